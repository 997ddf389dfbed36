//! Random int8 layers, the same on every computer.

use anyhow::{Context, Result};
use kiln_core::{DType, TensorType};
use kiln_ops::{
    Activation, Add, AveragePool2dPart, Conv2d, FullyConnected, Op, Pool2d, PoolKind, Softmax, same_padding,
};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};

/// What a layer may hold, so that emulated boards have room for some: elements of an image, weights, and products.
const ELEMENTS: u32 = 6_000;
const WEIGHTS: u32 = 24_000;
const PRODUCTS: u64 = 300_000;

/// What the layers of one graph may take together: bytes of images and of constants.
const IMAGES: u64 = 160_000;
const CONSTANTS: u64 = 160_000;

/// A layer: what it is, in words, and how it is added to a graph.
pub(super) struct Layer {
    /// Its shape, in words.
    pub(super) name: String,
    op: Op,
    image: Vec<u32>,
    /// Shape of the weights; none for what has none.
    weights: Vec<u32>,
    random: Random,
}

/// Graphs of `count` layers in all.
pub(super) fn graphs(count: usize, seed: u64) -> Result<Vec<Graph>> {
    let mut random = Random(seed);
    let mut graphs: Vec<Graph> = Vec::new();
    let (mut images, mut constants) = (0, 0);
    for number in 0..count {
        let layer = Layer::new(&mut random)?;
        let (image, weights) = layer.bytes();
        if graphs.is_empty() || images + image > IMAGES || constants + weights > CONSTANTS {
            let mut graph = Graph::new(format!("sweep-{}", graphs.len()));
            graph.entries.push(Entry { name: "infer".into(), ..Entry::default() });
            graphs.push(graph);
            (images, constants) = (0, 0);
        }
        images += image;
        constants += weights;
        let graph = graphs.last_mut().context("no graph")?;
        layer.add(graph, number)?;
    }
    for graph in &graphs {
        graph.validate()?;
    }
    Ok(graphs)
}

impl Layer {
    fn new(random: &mut Random) -> Result<Layer> {
        loop {
            let seed = Random(random.next());
            let kind = random.below(16);
            let layer = match kind {
                0..6 => convolution(random, seed, [false, kind < 3]),
                6..10 => convolution(random, seed, [true, false]),
                10..13 => dense(random, seed),
                13..15 => pool(random, seed),
                _ => of_elements(random, seed),
            };
            if layer.fits()? {
                return Ok(layer);
            }
        }
    }

    fn fits(&self) -> Result<bool> {
        let mut types = vec![ty(&self.image)?];
        if !self.weights.is_empty() {
            types.push(ty(&self.weights)?);
        } else if matches!(self.op, Op::Add(_)) {
            types.push(ty(&self.image)?);
        }
        types.extend(self.sums()?);
        let Ok(output) = self.op.output(&types) else { return Ok(false) };
        let (image, output) = (types.first().map_or(0, elements), elements(&output));
        let weights: u64 = self.weights.iter().map(|&d| u64::from(d)).product();
        let each = match self.weights.first() {
            Some(&outputs) => weights / u64::from(outputs.max(1)),
            None => 1,
        };
        let small = [image, output].iter().all(|&n| (1..=u64::from(ELEMENTS)).contains(&n));
        Ok(small && weights <= u64::from(WEIGHTS) && output * each <= PRODUCTS)
    }

    /// The sums above a part of an average.
    fn sums(&self) -> Result<Option<TensorType>> {
        let Op::AveragePool2dPart(_) = self.op else { return Ok(None) };
        let channels = self.image.last().copied().unwrap_or(0);
        tensor_type(DType::I32, &[1, 1, 1, channels]).context("too many dimensions").map(Some)
    }

    /// Bytes of images, at most, and of constants.
    fn bytes(&self) -> (u64, u64) {
        let image: u64 = self.image.iter().map(|&d| u64::from(d)).product();
        let weights: u64 = self.weights.iter().map(|&d| u64::from(d)).product();
        (2 * image + u64::from(ELEMENTS), weights + 2_000)
    }

    fn add(mut self, graph: &mut Graph, number: usize) -> Result<()> {
        let random = &mut self.random;
        let image = ty(&self.image)?;
        let scale = random.between(0.002, 0.1);
        let zero = random.zero_point();
        let mut inputs = vec![input(graph, format!("x{number}"), image, scale, zero)];
        let mut output = Quant::per_tensor(scale, zero);
        if matches!(self.op, Op::Add(_)) {
            let (other, zero) = (scale * random.between(0.3, 3.0), random.zero_point());
            inputs.push(input(graph, format!("z{number}"), image, other, zero));
            output = Quant::per_tensor((scale + other) * random.between(0.5, 1.5), random.zero_point());
        }
        if !self.weights.is_empty() {
            let weights = ty(&self.weights)?;
            let outputs = self.weights.first().copied().unwrap_or(0);
            let taps = elements(&weights) / u64::from(outputs.max(1));
            // Dense layers have one scale, as most converters write them, and every other convolution too.
            let channels = if matches!(self.op, Op::Conv2d(_)) && random.below(2) == 0 { outputs } else { 1 };
            let scales: Vec<f32> = (0..channels).map(|_| random.between(0.001, 0.02)).collect();
            let quant = Quant { zero_points: vec![0; scales.len()], scales: scales.clone(), axis: 0 };
            // The least weight is -127, as TFLite's specification has it.
            let bytes: Vec<u8> = (0..elements(&weights)).map(|_| (random.below(255) as i32 - 127) as u8).collect();
            let bias: Vec<u8> = (0..outputs).flat_map(|_| (random.below(8001) as i32 - 4000).to_le_bytes()).collect();
            let biases = tensor_type(DType::I32, &[outputs]).context("no shape")?;
            let of_bias = Quant {
                zero_points: vec![0; scales.len()],
                scales: scales.iter().map(|s| s * scale).collect(),
                axis: 0,
            };
            inputs.push(graph.add_constant(format!("w{number}"), weights, quant, bytes));
            inputs.push(graph.add_constant(format!("b{number}"), biases, of_bias, bias));
            // Outputs that fill their type, saturate at times, and now and then lose all but a few values.
            let spread = (taps as f32).sqrt() * 5_000.0 * scale * 0.01 / 100.0;
            output = Quant::per_tensor(spread * random.between(0.3, 3.0), random.zero_point());
        }
        if let Some(sums) = self.sums()? {
            let id = graph.add_input(format!("s{number}"), sums, Quant::default());
            graph.entries[0].inputs.push(id);
            inputs.push(id);
        }
        if matches!(self.op, Op::Pool2d(_) | Op::AveragePool2dPart(_)) {
            output = Quant::per_tensor(scale, zero);
        }
        if matches!(self.op, Op::Softmax(_)) {
            output = Quant::per_tensor(1.0 / 256.0, -128);
        }
        let output = graph.add_node(0, self.name, self.op, &inputs, output)?;
        graph.entries[0].outputs.push(output);
        Ok(())
    }
}

fn input(graph: &mut Graph, name: String, ty: TensorType, scale: f32, zero: i32) -> ValueId {
    let id = graph.add_input(name, ty, Quant::per_tensor(scale, zero));
    graph.entries[0].inputs.push(id);
    id
}

/// A convolution, depthwise or not, of windows of one pixel or any.
fn convolution(random: &mut Random, seed: Random, [depthwise, pointwise]: [bool; 2]) -> Layer {
    let common = random.below(2) == 0;
    let kernel = match (pointwise, common) {
        (true, _) => [1; 2],
        (false, true) => [3; 2],
        (false, false) => [1 + random.below(7), 1 + random.below(7)],
    };
    let strides = if random.below(3) > 0 { [1; 2] } else { [1 + random.below(3), 1 + random.below(3)] };
    let dilations = if random.below(4) > 0 { [1; 2] } else { [1 + random.below(3), 1 + random.below(2)] };
    let channels = random.channels();
    let outputs = match depthwise {
        true if random.below(5) == 0 => channels.saturating_mul(2),
        true => channels,
        false => random.channels(),
    };
    let size = [1 + random.below(24), 1 + random.below(24)];
    let batch = if random.below(8) == 0 { 2 } else { 1 };
    let same = |axis: usize| same_padding(size[axis], kernel[axis], strides[axis], dilations[axis]);
    let pads = match random.below(3) {
        0 => [0; 4],
        1 => [same(0).0, same(1).0, same(0).1, same(1).1],
        _ => [(); 4].map(|()| random.below(3)),
    };
    let groups = if depthwise { channels } else { 1 };
    let activation = random.activation();
    let words = if depthwise { "depthwise" } else { "conv" };
    let name = format!(
        "{words} {batch}x{}x{}x{channels} to {outputs}, window {}x{}, stride {}x{}, dilation {}x{}, padding {pads:?}, {activation:?}",
        size[0], size[1], kernel[0], kernel[1], strides[0], strides[1], dilations[0], dilations[1]
    );
    let op = Conv2d { strides, dilations, pads, groups, activation }.into();
    let weights = vec![outputs, kernel[0], kernel[1], channels / groups];
    Layer { name, op, image: vec![batch, size[0], size[1], channels], weights, random: seed }
}

fn dense(random: &mut Random, seed: Random) -> Layer {
    let (vectors, columns, rows) = (1 + random.below(3), random.channels() + random.below(40), random.channels());
    let activation = random.activation();
    let name = format!("dense {vectors}x{columns} to {rows}, {activation:?}");
    let op = FullyConnected { keep_dims: false, activation }.into();
    Layer { name, op, image: vec![vectors, columns], weights: vec![rows, columns], random: seed }
}

fn pool(random: &mut Random, seed: Random) -> Layer {
    let kind = if random.below(2) == 0 { PoolKind::Average } else { PoolKind::Max };
    let kernel = [1 + random.below(7), 1 + random.below(7)];
    let strides = [1 + random.below(3), 1 + random.below(3)];
    let size = [kernel[0] + random.below(12), kernel[1] + random.below(12)];
    let channels = random.channels();
    // At least one tap of each window lies inside.
    let most = kernel.map(|k| k.saturating_sub(1).min(2));
    let pads = if random.below(2) == 0 { [0; 4] } else { [most[0], most[1], most[0].min(1), most[1].min(1)] };
    let activation = random.activation();
    let image = vec![1, size[0], size[1], channels];
    if seed.0.is_multiple_of(4) {
        let taps = size[0] * size[1] + kernel[0];
        let part = AveragePool2dPart { taps, last: seed.0.is_multiple_of(8), activation };
        let name = format!("part of an average {}x{}x{channels}, {part:?}", size[0], size[1]);
        return Layer { name, op: part.into(), image, weights: Vec::new(), random: seed };
    }
    let name = format!(
        "{kind:?} pool {}x{}x{channels}, window {}x{}, stride {}x{}, padding {pads:?}, {activation:?}",
        size[0], size[1], kernel[0], kernel[1], strides[0], strides[1]
    );
    let op = Pool2d { kind, kernel, strides, pads, activation }.into();
    Layer { name, op, image, weights: Vec::new(), random: seed }
}

/// A sum, or now and then a softmax.
fn of_elements(random: &mut Random, seed: Random) -> Layer {
    let image = vec![1, 1 + random.below(12), 1 + random.below(12), random.channels()];
    let activation = random.activation();
    let (name, op) = if seed.0.is_multiple_of(4) {
        (format!("softmax {image:?}"), Softmax { beta: 1.0 }.into())
    } else {
        (format!("add {image:?}, {activation:?}"), Add { activation }.into())
    };
    Layer { name, op, image, weights: Vec::new(), random: seed }
}

fn ty(dims: &[u32]) -> Result<TensorType> {
    tensor_type(DType::I8, dims).context("too many dimensions")
}

fn elements(ty: &TensorType) -> u64 {
    ty.shape.elements().unwrap_or(u64::MAX)
}

/// A linear congruence (Knuth, MMIX), of which the upper half is used.
#[derive(Clone, Copy)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0
    }

    fn below(&mut self, limit: u32) -> u32 {
        ((self.next() >> 32) % u64::from(limit.max(1))) as u32
    }

    fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.below(1 << 20) as f32 / (1 << 20) as f32)
    }

    /// From 1 to 256, small numbers and multiples of 8 more often than others.
    fn channels(&mut self) -> u32 {
        match self.below(4) {
            0 => 1 + self.below(8),
            1 => 8 * (1 + self.below(16)),
            2 => 1 + self.below(64),
            _ => 1 + self.below(256),
        }
    }

    fn zero_point(&mut self) -> i32 {
        match self.below(4) {
            0 => -128,
            1 => 127,
            _ => self.below(256) as i32 - 128,
        }
    }

    fn activation(&mut self) -> Activation {
        [Activation::None, Activation::None, Activation::Relu, Activation::Relu6][self.below(4) as usize]
    }
}
