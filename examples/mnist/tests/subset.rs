//! Training on the first 10,000 images, where they are at hand.

mod support;

use std::path::PathBuf;

use kiln::boards::Board;
use kiln::{Device, Module};
use mnist::data::Images;
use mnist::export::quantized;
use mnist::train::{Training, accuracy};

/// The subset: `datasets/mnist` in `KILN_DATA`, by default `../shared/data`.
fn subset() -> Option<(Images, Images)> {
    let data = std::env::var_os("KILN_DATA")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")), PathBuf::from);
    let folder = data.join("datasets/mnist");
    if !folder.exists() {
        println!("skipped: no images in {} (set KILN_DATA to the directory of the data)", folder.display());
        return None;
    }
    Some(Images::of_folder(&folder).unwrap())
}

/// Epochs of the test: few, so that it does not take long.
const EPOCHS: u64 = 2;
/// They reach 94.67 %; kernels that round otherwise may reach a little less.
const RIGHT: f64 = 0.94;

#[test]
fn a_network_learns_to_read_digits() {
    let Some((images, test)) = subset() else { return };
    assert_eq!((images.len(), test.len()), (10_000, 10_000));
    let device = Device::cpu();
    let mut training = Training::new(1, &device);
    assert_eq!(training.model.num_params(), 13_898);
    let mut plans = 0;
    for _ in 0..EPOCHS {
        let mut steps = 0;
        let loss = training
            .epoch(&images, EPOCHS, &device, |_| {
                steps += 1;
                if steps == 2 && plans == 0 {
                    plans = device.plans_built();
                }
            })
            .unwrap();
        println!("loss {loss}");
    }
    // The short last batch is the only other plan.
    assert_eq!(device.plans_built(), plans + 1);
    let right = accuracy(&training.model, &test, &device).unwrap();
    println!("{right}");
    assert!(right >= RIGHT, "{right}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("digits.kiln");
    let board = Board::builtin("mps2-an386").unwrap();
    let (int8, found) = quantized(&training.model, (&images, &test), &device).unwrap();
    println!("{found:?}");
    assert!(found.float - found.int8 <= 0.005 && (found.float - right).abs() <= 0.001, "{found:?} {right}");
    int8.write(&board, &file).unwrap();

    // On an emulated board every byte is as the operators' references compute it.
    let graph = support::graph(&file);
    let inputs = support::stored(&graph, &test, 100);
    if let Some(emulated) = support::on_board(&graph, &inputs, &board) {
        assert!(emulated == support::by_references(&graph, &inputs), "outputs on {} differ", board.name);
    }
}

#[test]
fn training_that_is_resumed_is_the_same_as_if_it_had_not_stopped() {
    let Some((mut images, _)) = subset() else { return };
    images.truncate(200);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("training.safetensors");
    let device = Device::cpu();
    let mut whole = Training::new(3, &device);
    let mut losses = Vec::new();
    for _ in 0..2 {
        whole.epoch(&images, 2, &device, |loss| losses.push(loss)).unwrap();
    }

    let mut first = Training::new(3, &device);
    let mut again = Vec::new();
    first.epoch(&images, 2, &device, |loss| again.push(loss)).unwrap();
    first.save(&file).unwrap();
    let device = Device::cpu();
    // Another seed: what counts is in the file.
    let mut second = Training::new(4, &device);
    second.load(&file).unwrap();
    second.epoch(&images, 2, &device, |loss| again.push(loss)).unwrap();
    assert_eq!(again, losses);
}
