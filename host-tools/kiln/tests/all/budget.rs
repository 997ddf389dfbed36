//! Steps of training within a memory budget: the same bits, in fewer bytes.

use kiln::nn::{Conv2d, Dropout, Linear};
use kiln::optim::{Adam, AdamConfig, Optimizer, Sgd, SgdConfig};
use kiln::{Changes, ConvOptions, Device, Distribution, Error, Int, Module, Tensor, Trace};
use kiln_planner::backend::BackendError;
use kiln_planner::{Options, PlanError, PlannedEntry, Shortage, plan};
use kiln_target_host::{Runner, native_target};

const BATCH: usize = 64;

/// Sixteen convolutions, each followed by a rectifier, and a linear layer.
#[derive(Module, Clone, Debug)]
struct Deep {
    layers: Vec<Conv2d>,
    dropout: Dropout,
    output: Linear,
}

/// How many channels and which stride each layer has.
#[derive(Clone, Copy)]
enum Shape {
    /// The same for all.
    Even,
    /// Half the height and width, and twice the channels, every four layers: as in most networks.
    Pyramid,
}

const LAYERS: usize = 16;
const SIZE: usize = 16;

impl Deep {
    fn new(shape: Shape, dropout: f32, device: &Device) -> Deep {
        let (mut channels, mut size) = (8, SIZE);
        let mut layers = Vec::new();
        for layer in 0..LAYERS {
            let halves = matches!(shape, Shape::Pyramid) && layer % 4 == 0 && layer > 0;
            let (inputs, stride) = (if layer == 0 { 1 } else { channels }, if halves { 2 } else { 1 });
            if halves {
                (channels, size) = (2 * channels, size / 2);
            }
            let options = ConvOptions { padding: [1; 4], stride: [stride; 2], ..ConvOptions::default() };
            layers.push(Conv2d::with_options([inputs, channels], [3, 3], options, device));
        }
        Deep { layers, dropout: Dropout::new(dropout), output: Linear::new(size * size * channels, 3, device) }
    }

    fn forward(&self, images: &Tensor<4>) -> Tensor<2> {
        let deep = self.layers.iter().fold(images.clone(), |x, layer| layer.forward(&x).relu());
        self.output.forward(&self.dropout.forward(&deep.flatten(1, 3)))
    }

    /// Multiply-accumulates of a forward pass.
    fn macs(&self) -> u64 {
        let mut size = SIZE;
        let mut sum = 0;
        for layer in &self.layers {
            size /= layer.options.stride[0];
            sum += size * size * layer.weight.dims().iter().product::<usize>();
        }
        (BATCH * (sum + self.output.weight.elements())) as u64
    }
}

/// Losses and, in the end, all weights, bit for bit.
type Bits = Vec<Vec<u32>>;

fn bits(tensor: &Tensor<1>) -> Vec<u32> {
    tensor.to_vec().unwrap().into_iter().map(f32::to_bits).collect()
}

fn batch(device: &Device, size: usize, count: i32) -> (Tensor<4>, Tensor<1, Int>) {
    let images = Tensor::<4>::random([BATCH, size, size, 1], Distribution::Normal, device);
    images.realize().unwrap();
    let classes: Vec<i32> = (0..BATCH as i32).map(|i| (i + count) % 3).collect();
    (images, Tensor::from_slice(&classes, [BATCH], device))
}

/// Trains a network for a few steps.
fn train<M: Module>(
    mut net: M,
    size: usize,
    device: &Device,
    forward: impl Fn(&M, &Tensor<4>) -> Tensor<2>,
) -> Result<Bits, Error> {
    let mut adam = Adam::new(AdamConfig::default(), &net);
    let mut all = Vec::new();
    for count in 0..3 {
        let (images, classes) = batch(device, size, count);
        let loss = forward(&net, &images).cross_entropy(&classes);
        let gradients = loss.backward()?;
        adam.step(0.01, &mut net, gradients)?;
        all.push(bits(&loss.reshape([1])));
    }
    all.extend(kiln::Record::of(&net)?.names().map(|name| name.bytes().map(u32::from).collect::<Vec<u32>>()));
    let weights = tempfile::NamedTempFile::new().unwrap();
    kiln::Record::of(&net)?.write(weights.path()).unwrap();
    all.push(std::fs::read(weights.path()).unwrap().into_iter().map(u32::from).collect());
    Ok(all)
}

/// What is missing where nothing fits.
fn shortage(error: Error) -> Shortage {
    match error {
        Error::Backend(BackendError::Plan(PlanError::Ram(shortage))) => *shortage,
        other => panic!("{other}"),
    }
}

fn deep(shape: Shape, budget: Option<u64>) -> (Device, Result<Bits, Error>, u64) {
    let device = Device::cpu();
    device.seed(3);
    let net = Deep::new(shape, 0.25, &device);
    kiln::Record::of(&net).unwrap();
    let macs = net.macs();
    device.set_memory_budget(budget);
    let result = train(net, SIZE, &device, Deep::forward);
    (device, result, macs)
}

#[test]
fn a_deep_network_trains_in_a_part_of_its_memory_with_the_same_bits() {
    for (shape, percents) in [(Shape::Even, [75, 50, 35]), (Shape::Pyramid, [75, 50, 40])] {
        let (unlimited, expected, macs) = deep(shape, None);
        let expected = expected.unwrap();
        assert_eq!(unlimited.again().steps, 0);
        assert_eq!(unlimited.memory().peak, unlimited.largest_plan());
        let short = shortage(deep(shape, Some(1000)).1.unwrap_err());
        println!("{} bytes without a budget, {} at least; {}", short.unaided, short.least, short);
        assert_eq!(short.limit, 1000);
        for percent in percents {
            let budget = short.unaided * percent / 100;
            let (device, found, _) = deep(shape, Some(budget));
            let again = device.again();
            println!("{percent} %: {again:?}, {macs} MACs a forward pass");
            assert!(found.unwrap() == expected, "{percent} % of the memory gives other numbers");
            assert!(again.steps > 0 && short.unaided - again.saved <= budget);
            // No more than the forward pass once again.
            assert!(again.macs <= macs, "{} MACs more", again.macs);
            assert_eq!(device.memory().peak, device.largest_plan());
            assert!(device.memory().peak + again.saved <= unlimited.memory().peak + 64);
        }
    }
}

#[test]
fn an_impossible_budget_says_what_is_needed() {
    let (_, result, _) = deep(Shape::Pyramid, Some(1000));
    let error = result.unwrap_err();
    let text = error.to_string();
    let short = shortage(error);
    assert!(text.contains(&format!("may take 1000 bytes of memory and needs {}", short.least)), "{text}");
    assert!(text.contains(&short.unaided.to_string()) && text.contains("fullest at step"), "{text}");
    assert!(1000 < short.least && short.least < short.unaided);
    // What it says suffices.
    let (device, result, _) = deep(Shape::Pyramid, Some(short.least));
    assert!(result.is_ok());
    assert!(short.unaided - device.again().saved <= short.least);
}

/// The network of the MNIST example.
#[derive(Module, Clone, Debug)]
struct Digits {
    conv1: Conv2d,
    conv2: Conv2d,
    conv3: Conv2d,
    dropout: Dropout,
    scores: Linear,
}

impl Digits {
    fn new(device: &Device) -> Digits {
        let padded = ConvOptions { padding: [1; 4], ..ConvOptions::default() };
        let halving = ConvOptions { stride: [2, 2], ..padded };
        Digits {
            conv1: Conv2d::with_options([1, 8], [3, 3], halving, device),
            conv2: Conv2d::with_options([8, 16], [3, 3], padded, device),
            conv3: Conv2d::new([16, 32], [3, 3], device),
            dropout: Dropout::new(0.2),
            scores: Linear::new(5 * 5 * 32, 10, device),
        }
    }

    fn forward(&self, images: &Tensor<4>) -> Tensor<2> {
        let x = self.conv1.forward(images).relu();
        let x = self.conv2.forward(&x).relu().max_pool2d([2, 2], [2, 2], [0; 4]);
        let x = self.conv3.forward(&x).relu().flatten(1, 3);
        self.scores.forward(&self.dropout.forward(&x))
    }
}

#[test]
fn the_mnist_network_trains_in_the_least_memory_with_the_same_bits() {
    let run = |budget| {
        let device = Device::cpu();
        device.seed(4);
        let net = Digits::new(&device);
        kiln::Record::of(&net).unwrap();
        device.set_memory_budget(budget);
        (train(net, 28, &device, Digits::forward), device)
    };
    let expected = run(None).0.unwrap();
    let short = shortage(run(Some(1)).0.unwrap_err());
    println!("{} bytes, {} at least", short.unaided, short.least);
    assert!(short.least < short.unaided * 9 / 10);
    let (found, device) = run(Some(short.least));
    println!("{:?}", device.again());
    assert!(found.unwrap() == expected);
    assert_eq!(device.memory().peak, device.largest_plan());
}

#[test]
fn a_traced_step_is_planned_within_the_memory_of_a_board_dropout_and_all() {
    let device = Device::cpu();
    device.seed(9);
    let net = Deep::new(Shape::Even, 0.0, &device);
    // Dropout early, where its mask is wanted late.
    let dropout = Dropout::new(0.3);
    let sgd = Sgd::new(SgdConfig { momentum: 0.9, ..SgdConfig::default() }, &net);
    let before = (net, sgd);
    let mut after = before.clone();
    let (images, classes) = batch(&device, SIZE, 0);
    let key = device.random_state();
    let first = dropout.forward(&after.0.layers[0].forward(&images).relu());
    let deep = after.0.layers[1..].iter().fold(first, |x, layer| layer.forward(&x).relu());
    let loss = after.0.output.forward(&deep.flatten(1, 3)).cross_entropy(&classes);
    assert_ne!(device.random_state(), key);
    let rate = after.1.numbers(0.1, &device);
    let gradients = loss.backward().unwrap();
    let _ = after.1.record(&rate, &mut after.0, &gradients);
    let changes = Changes::between(&before, &after);
    let weights = &before.0.layers[0].weight;
    let graph = Trace::new("deep")
        .state_of("training", &before)
        .unwrap()
        .entry("train_step", &[("images", &images), ("classes", &classes)], &[("loss", &loss)], &changes.assigns())
        .unwrap()
        .entry("look", &[], &[("weights", weights)], &[])
        .unwrap()
        .finish()
        .unwrap();
    let graph = kiln_passes::fuse_elementwise(kiln_passes::clean(graph).unwrap().graph);
    let options =
        Options { budget: kiln_planner::solve::Budget { nodes: 2000 }, ..Options::for_target(native_target()) };
    let plain = plan(&graph, &options).unwrap();
    let small = plan(&graph, &Options { ram: Some(plain.ram_bytes * 65 / 100), ..options }).unwrap();
    assert!(small.ram_bytes <= plain.ram_bytes * 65 / 100);
    let step = |planned: &kiln_planner::Planned| -> usize {
        let entry: &PlannedEntry = &planned.entries[0];
        println!("{} of RAM, {:?}", planned.ram_bytes, entry.again);
        assert_eq!(entry.steps.iter().filter(|s| s.again).map(|s| s.cost.macs).sum::<u64>(), entry.again.macs);
        entry.steps.iter().filter(|s| s.again && s.op.name() == "random").count()
    };
    assert_eq!((step(&plain), step(&small)), (0, 1));

    let mut runners = [&plain, &small].map(|planned| Runner::new(&planned.bytes).unwrap());
    let as_bytes = |values: Vec<f32>| values.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
    runners.iter_mut().for_each(Runner::reset);
    for count in 0..3 {
        let (images, classes) = batch(&device, SIZE, count);
        let classes: Vec<u8> = classes.to_vec().unwrap().into_iter().flat_map(i32::to_le_bytes).collect();
        let inputs = [as_bytes(images.to_vec().unwrap()), classes];
        let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let [plain, small] = runners.each_mut().map(|runner| {
            let loss = runner.run("train_step", &slices).unwrap();
            (loss, runner.run("look", &[]).unwrap())
        });
        assert!(plain == small, "step {count}");
    }
}
