//! The loss of a small convolutional network, step by step, against PyTorch.

use std::path::Path;
use std::process::Command;

use kiln::nn::{BatchNorm, Conv2d, Linear};
use kiln::optim::{Optimizer, Sgd, SgdConfig};
use kiln::{ConvOptions, Device, Distribution, Int, Module, Tensor};

const STEPS: usize = 200;
const BATCH: usize = 32;
const IMAGES: usize = 50 * BATCH;

#[derive(Module, Clone, Debug)]
struct Net {
    conv1: Conv2d,
    norm: BatchNorm,
    conv2: Conv2d,
    linear: Linear,
}

impl Net {
    fn new(device: &Device) -> Net {
        let padded = ConvOptions { padding: [1; 4], ..ConvOptions::default() };
        let strided = ConvOptions { stride: [2, 2], ..ConvOptions::default() };
        Net {
            conv1: Conv2d::with_options([1, 8], [3, 3], padded, device),
            norm: BatchNorm::new(8, device),
            conv2: Conv2d::with_options([8, 16], [3, 3], strided, device),
            linear: Linear::new(3 * 3 * 16, 10, device),
        }
    }

    fn forward(&self, images: &Tensor<4>) -> Tensor<2> {
        let x = self.norm.forward(&self.conv1.forward(images)).relu().max_pool2d([2, 2], [2, 2], [0; 4]);
        self.linear.forward(&self.conv2.forward(&x).relu().flatten(1, 3))
    }
}

/// Weights and data as they are before the first step.
#[derive(Module, Clone)]
struct Start {
    net: Net,
    images: Tensor<4>,
    classes: Tensor<1, Int>,
}

impl Start {
    /// Noisy images around a pattern for each class, from counted random numbers: the same on every machine.
    fn new(device: &Device) -> Start {
        device.seed(2024);
        let net = Net::new(device);
        let patterns = Tensor::<4>::random([10, 14, 14, 1], Distribution::Normal, device);
        let classes: Vec<i32> = (0..IMAGES as i32).map(|i| (i * 7 + i / 10) % 10).collect();
        let shown: Vec<Tensor<4>> = classes.iter().map(|&c| patterns.narrow(0, c as usize..c as usize + 1)).collect();
        let noise = Tensor::<4>::random([IMAGES, 14, 14, 1], Distribution::Normal, device);
        patterns.realize().unwrap();
        let images = Tensor::cat(&shown, 0) * 0.4 + noise;
        images.realize().unwrap();
        Start { net, images, classes: Tensor::from_slice(&classes, [IMAGES], device) }
    }
}

/// The loss of each step, and the running statistics after the last.
fn train(start: &Start) -> (Vec<f32>, Vec<f32>) {
    let mut net = start.net.clone();
    let device = start.images.device();
    let mut sgd = Sgd::new(SgdConfig { momentum: 0.9, ..SgdConfig::default() }, &net);
    let mut losses = Vec::new();
    let mut plans = 0;
    for step in 0..STEPS {
        let begin = step * BATCH % IMAGES;
        let batch = |begin| begin..begin + BATCH;
        // Cut out and computed: a slice's place is part of the graph.
        let (images, classes) = (start.images.narrow(0, batch(begin)), start.classes.narrow(0, batch(begin)));
        images.realize().unwrap();
        classes.realize().unwrap();
        let before = device.plans_built();
        let loss = net.forward(&images).cross_entropy(&classes);
        let gradients = loss.backward().unwrap();
        sgd.step(0.02 * (1.0 - step as f64 / 400.0), &mut net, &gradients).unwrap();
        losses.push(loss.into_scalar().unwrap());
        plans += device.plans_built() - before;
    }
    // The first step leaves the statistics that `start` holds as they are, the others write over them.
    assert_eq!(plans, 2);
    let statistics = [net.norm.running_mean.get(), net.norm.running_var.get()];
    (losses, statistics.iter().flat_map(|t| t.to_vec().unwrap()).collect())
}

/// The largest difference, relative to the expected number.
fn deviation(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs() / b.abs()).fold(0.0, f32::max)
}

/// What `curve.py` prints.
fn parse(text: &str) -> (Vec<f32>, Vec<f32>) {
    let mut lines: Vec<&str> = text.lines().collect();
    let last = lines.pop().unwrap();
    let numbers = |words: &mut dyn Iterator<Item = &str>| words.map(|w| w.parse().unwrap()).collect();
    (numbers(&mut lines.into_iter()), numbers(&mut last.split(' ').skip(1)))
}

fn agree((losses, statistics): &(Vec<f32>, Vec<f32>), expected: &str) {
    let (torch_losses, torch_statistics) = parse(expected);
    let deviations = (deviation(losses, &torch_losses), deviation(statistics, &torch_statistics));
    println!("loss {} to {}, relative deviation {deviations:?}", losses[0], losses[STEPS - 1]);
    assert!(losses[STEPS - 1] < 0.2 * losses[0], "{losses:?}");
    assert!(deviations.0 <= 1e-4 && deviations.1 <= 1e-4, "{deviations:?}");
}

/// What PyTorch gives for `start`; none without PyTorch.
fn torch(start: &Start) -> Option<String> {
    let python = std::env::var_os("KILN_PYTHON").unwrap_or("/usr/bin/python3".into());
    if !Command::new(&python).args(["-c", "import torch"]).output().is_ok_and(|o| o.status.success()) {
        println!("skipped: no PyTorch in {} (set KILN_PYTHON)", Path::new(&python).display());
        return None;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    start.save(file.path()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch/curve.py");
    let output = Command::new(&python).arg(script).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn two_hundred_steps_have_pytorchs_losses() {
    let start = Start::new(&Device::cpu());
    let found = train(&start);
    if let Some(text) = torch(&start) {
        // How the kept curve is made anew.
        if let Some(to) = std::env::var_os("KILN_CURVE") {
            std::fs::write(to, &text).unwrap();
        }
        agree(&found, &text);
    }
    // What curve.py printed with PyTorch 1.13, for where there is none.
    agree(&found, include_str!("../torch/curve.txt"));
}
