//! A training step as an entry of a plan computes what the host library does.

use kiln::nn::{BatchNorm, Linear};
use kiln::optim::{Optimizer, Sgd, SgdConfig};
use kiln::{Changes, Device, Distribution, Int, Module, Tensor, Trace, realize_all};
use kiln_planner::{Options, plan};
use kiln_target_host::{Runner, native_target};

const BATCH: usize = 8;

/// One step of a two-layer network: the loss and the new weights.
fn step(w: &[Tensor<2>; 2], x: &Tensor<2>, classes: &Tensor<1, Int>, rate: &Tensor<2>) -> (Tensor<0>, [Tensor<2>; 2]) {
    let hidden = x.matmul_transposed(&w[0]).relu();
    let loss = hidden.matmul_transposed(&w[1]).cross_entropy(classes);
    let gradients = loss.backward().unwrap();
    let new = [0, 1].map(|i| (&w[i] - &(&w[i].grad(&gradients).unwrap() * rate)).require_grad());
    (loss, new)
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn a_traced_step_gives_the_same_weights_bit_for_bit() {
    let device = Device::cpu();
    device.seed(5);
    let draw = |dims| (Tensor::<2>::random(dims, Distribution::Normal, &device) * 0.5).require_grad();
    let mut w = [draw([12, 20]), draw([3, 12])];
    let x = Tensor::<2>::zeros([BATCH, 20], &device);
    let classes = Tensor::<1, Int>::zeros([BATCH], &device);
    let rate = Tensor::<2>::zeros([1, 1], &device);
    let (loss, new) = step(&w, &x, &classes, &rate);
    let graph = Trace::new("mlp")
        .state("w0", &w[0])
        .unwrap()
        .state("w1", &w[1])
        .unwrap()
        .entry(
            "train_step",
            &[("x", &x), ("classes", &classes), ("rate", &rate)],
            &[("loss", &loss)],
            &[(&w[0], &new[0]), (&w[1], &new[1])],
        )
        .unwrap()
        .entry("weights", &[], &[("w0", &w[0]), ("w1", &w[1])], &[])
        .unwrap()
        .finish()
        .unwrap();
    let graph = kiln_passes::fuse_elementwise(kiln_passes::clean(graph).unwrap().graph);
    let planned = plan(&graph, &Options::for_target(native_target())).unwrap();
    assert_eq!(planned.state_bytes, 4 * (12 * 20 + 3 * 12));
    let mut runner = Runner::new(&planned.bytes).unwrap();

    for number in 0..5 {
        let images = Tensor::<2>::random([BATCH, 20], Distribution::Normal, &device);
        let labels: Vec<i32> = (0..BATCH as i32).map(|i| (i + number) % 3).collect();
        let rate = [0.1 / (number + 1) as f32];
        let classes = Tensor::<1, Int>::from_slice(&labels, [BATCH], &device);
        let (loss, new) = step(&w, &images, &classes, &Tensor::from_slice(&rate, [1, 1], &device));
        realize_all(&[&loss, &new[0], &new[1]]).unwrap();
        w = new;
        let labels: Vec<u8> = labels.iter().flat_map(|v| v.to_le_bytes()).collect();
        let inputs = [bytes(&images.to_vec().unwrap()), labels, bytes(&rate)];
        let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let outputs = runner.run("train_step", &slices).unwrap();
        assert_eq!(outputs, [bytes(&loss.to_vec().unwrap())], "the loss of step {number}");
        let weights = runner.run("weights", &[]).unwrap();
        let same = weights == w.clone().map(|w| bytes(&w.to_vec().unwrap()));
        assert!(same, "the weights after step {number}");
    }
}

#[derive(Module, Clone, Debug)]
struct Net {
    input: Linear,
    norm: BatchNorm,
    output: Linear,
}

#[test]
fn a_traced_optimizer_and_running_statistics_are_state() {
    let device = Device::cpu();
    device.seed(6);
    let mut training = (
        Net { input: Linear::new(4, 6, &device), norm: BatchNorm::new(6, &device), output: Linear::new(6, 3, &device) },
        Sgd::new(SgdConfig::default(), &()),
    );
    training.1 = Sgd::new(SgdConfig { momentum: 0.9, nesterov: true, weight_decay: 0.01 }, &training.0);
    let loss = |net: &Net, x: &Tensor<2>, classes: &Tensor<1, Int>| {
        net.output.forward(&net.norm.forward(&net.input.forward(x)).relu()).cross_entropy(classes)
    };

    let (x, classes) = (Tensor::<2>::zeros([BATCH, 4], &device), Tensor::<1, Int>::zeros([BATCH], &device));
    let (before, mut after) = (training.clone(), training.clone());
    let traced = loss(&after.0, &x, &classes);
    let rate = after.1.numbers(0.0, &device);
    let gradients = traced.backward().unwrap();
    let _ = after.1.record(&rate, &mut after.0, &gradients);
    let changes = Changes::between(&before, &after);
    let weights = &before.0.output.weight;
    let statistics = before.0.norm.running_var.get();
    let graph = Trace::new("net")
        .state_of("training", &before)
        .unwrap()
        .entry(
            "train_step",
            &[("x", &x), ("classes", &classes), ("rate", &rate[0])],
            &[("loss", &traced)],
            &changes.assigns(),
        )
        .unwrap()
        .entry("look", &[], &[("weights", weights), ("statistics", &statistics)], &[])
        .unwrap()
        .finish()
        .unwrap();
    assert!(graph.values.iter().any(|value| value.name == "training.1.velocity.norm.bias"));
    let graph = kiln_passes::fuse_elementwise(kiln_passes::clean(graph).unwrap().graph);
    let planned = plan(&graph, &Options::for_target(native_target())).unwrap();
    // Parameters, velocities and statistics.
    assert_eq!(planned.state_bytes, 4 * (2 * (30 + 12 + 21) + 12));
    let mut runner = Runner::new(&planned.bytes).unwrap();
    runner.run("reset", &[]).unwrap();

    for number in 0..4 {
        let images = Tensor::<2>::random([BATCH, 4], Distribution::Normal, &device);
        let labels: Vec<i32> = (0..BATCH as i32).map(|i| (i + number) % 3).collect();
        let classes = Tensor::<1, Int>::from_slice(&labels, [BATCH], &device);
        let rate = 0.1 / f64::from(number + 1);
        let found = loss(&training.0, &images, &classes);
        let gradients = found.backward().unwrap();
        training.1.step(rate, &mut training.0, &gradients).unwrap();

        let labels: Vec<u8> = labels.iter().flat_map(|v| v.to_le_bytes()).collect();
        let inputs = [bytes(&images.to_vec().unwrap()), labels, bytes(&[rate as f32])];
        let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let outputs = runner.run("train_step", &slices).unwrap();
        assert_eq!(outputs, [bytes(&found.to_vec().unwrap())], "the loss of step {number}");
        let look = runner.run("look", &[]).unwrap();
        let net = &training.0;
        let (weights, statistics) = (&net.output.weight, net.norm.running_var.get());
        assert_eq!(look, [bytes(&weights.to_vec().unwrap()), bytes(&statistics.to_vec().unwrap())], "step {number}");
    }
}

#[test]
fn what_was_forgotten_can_not_be_traced() {
    let device = Device::cpu();
    let x = Tensor::<1>::ones([3], &device);
    let y = &x + &x;
    y.realize().unwrap();
    let error = Trace::new("late").entry("infer", &[("x", &x)], &[("y", &y)], &[]).err().unwrap();
    assert!(error.to_string().contains("before it is computed"), "{error}");
}
