//! The network that reads digits: its forward pass, and whole steps of training.

use kiln::Device;

use crate::device;
use crate::network::{Update, forward, training};

#[test]
fn the_forward_pass_is_the_hosts_and_runs_on_the_gpu() {
    let Some(gpu) = device() else { return };
    let [scores, loss] = forward(&gpu, &Device::cpu()).unwrap();
    assert!(scores < 1e-5 && loss < 1e-5, "scores differ by {scores:e}, the loss by {loss:e}");
    assert_eq!(gpu.routed(), [""; 0]);
}

#[test]
fn steps_of_training_are_the_hosts_and_run_on_the_gpu() {
    let Some(gpu) = device() else { return };
    let [losses, parameters] = training(&gpu, &Device::cpu(), Update::Sgd, 4).unwrap();
    assert!(losses < 1e-4 && parameters < 1e-4, "losses differ by {losses:e}, parameters by {parameters:e}");
    // Adam divides a gradient by its size, and so makes whole steps of the last bits of small ones.
    let [losses, _] = training(&gpu, &Device::cpu(), Update::Adam, 4).unwrap();
    assert!(losses < 1e-2, "losses differ by {losses:e}");
    assert_eq!(gpu.routed(), [""; 0]);
}
