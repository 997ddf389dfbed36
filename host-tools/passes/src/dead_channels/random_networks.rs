//! Random int8 networks with many dead channels, for tests.

use kiln_core::DType;
use kiln_ops::{
    Activation, Add, Concat, Conv2d, Copy, FullyConnected, Op, Pool2d, PoolKind, Quantize, Reshape, same_padding,
};
use kiln_planner::graph::{Assign, Entry, Graph, Quant, ValueId, tensor_type};
use proptest::prelude::*;

/// A layer: which, and what else it asks.
type Instruction = [u8; 5];

/// What a network is made by.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    /// Images, height, width, channels, zero point.
    input: [u8; 5],
    layers: Vec<Instruction>,
    numbers: u64,
    /// Of which value there is another output, and which is kept as state.
    also: [Option<u8>; 2],
}

/// Recipes of up to seven layers.
pub(super) fn recipe() -> impl Strategy<Value = Recipe> {
    let also = || prop::option::weighted(0.1, any::<u8>());
    let layers = prop::collection::vec(any::<Instruction>(), 1..8);
    (any::<[u8; 5]>(), layers, any::<u64>(), [also(), also()]).prop_map(|(input, layers, numbers, also)| Recipe {
        input,
        layers,
        numbers,
        also,
    })
}

/// Numbers that repeat (a 64-bit linear congruential generator, Knuth's constants).
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    /// In 0 .. `count`.
    pub(super) fn below(&mut self, count: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(count)) as u32
    }

    /// One of a list.
    pub(super) fn of<T: std::marker::Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u32) as usize]
    }

    /// In `-size ..= size`.
    fn around(&mut self, size: i32) -> i32 {
        self.below(2 * size as u32 + 1) as i32 - size
    }
}

/// A network that grows.
struct Network {
    graph: Graph,
    numbers: Numbers,
    /// All values that layers may read, the last of them first.
    values: Vec<ValueId>,
}

/// The graph of a recipe; valid, whatever the recipe.
pub(super) fn build(recipe: &Recipe) -> Graph {
    let [n, h, w, c, zero] = recipe.input.map(u32::from);
    let mut graph = Graph::new("random");
    let ty = tensor_type(DType::I8, &[1 + n % 2, 1 + h % 5, 1 + w % 5, 1 + c % 6]).unwrap();
    let x = graph.add_input("x", ty, Quant::per_tensor(0.1, [-128, 0, 127, -5][zero as usize % 4]));
    graph.entries.push(Entry { name: "infer".into(), inputs: vec![x], ..Entry::default() });
    let mut network = Network { graph, numbers: Numbers(recipe.numbers), values: vec![x] };
    for instruction in &recipe.layers {
        let value = network.layer(instruction.map(u32::from));
        network.values.push(value);
    }
    let Network { mut graph, values, .. } = network;
    let pick = |choice: u8| values[choice as usize % values.len()];
    graph.entries[0].outputs = values.last().copied().into_iter().chain(recipe.also[0].map(pick)).collect();
    if let Some(value) = recipe.also[1].map(pick) {
        let state = graph.add_state("state", graph.value(value).ty, graph.value(value).quant.clone());
        graph.entries[0].assigns = vec![Assign { state, value }];
        graph.entries.push(Entry { name: "peek".into(), outputs: vec![state], ..Entry::default() });
    }
    graph.validate().unwrap();
    graph
}

impl Network {
    fn dims(&self, id: ValueId) -> Vec<u32> {
        self.graph.value(id).ty.shape.dims().to_vec()
    }

    fn quant(&mut self) -> Quant {
        Quant::per_tensor(self.numbers.of(&[0.1, 0.1, 0.07, 0.3]), self.numbers.of(&[-128, -128, -128, 0, -5, 127]))
    }

    fn node(&mut self, op: impl Into<Op>, inputs: &[ValueId], quant: Quant) -> ValueId {
        let name = format!("node {}", self.graph.values.len());
        self.graph.add_node(0, name, op, inputs, quant).unwrap()
    }

    fn shaped(&mut self, x: ValueId, dims: &[u32]) -> ValueId {
        let quant = self.graph.value(x).quant.clone();
        self.node(Reshape { shape: tensor_type(DType::I8, dims).unwrap().shape }, &[x], quant)
    }

    fn activation(&mut self) -> Activation {
        self.numbers.of(&[Activation::None, Activation::Relu, Activation::Relu, Activation::Relu6])
    }

    /// Weights of which some rows and columns are 0, with one scale or one a row; and biases, some
    /// of which saturate the result whatever the input is, just so or by far, and some of which don't exist.
    fn constants(&mut self, dims: &[u32], zero_point: i32) -> Vec<ValueId> {
        let (rows, columns) = (dims[0], dims[dims.len() - 1]);
        let unread: Vec<bool> = (0..columns).map(|_| columns > 1 && self.numbers.below(4) == 0).collect();
        let empty: Vec<bool> = (0..rows).map(|_| self.numbers.below(5) == 0).collect();
        let size = dims[1..].iter().product::<u32>();
        let weight = |i: u32| match unread[(i % columns) as usize] || empty[(i / size) as usize] {
            true => zero_point as i8 as u8,
            false => self.numbers.around(60) as u8,
        };
        let weights = (0..rows * size).map(weight).collect::<Vec<u8>>();
        let scales: Vec<f32> = match self.numbers.below(2) {
            0 => vec![0.01],
            _ => (0..rows).map(|row| 0.005 + row as f32 * 0.001).collect(),
        };
        let quant = Quant { zero_points: vec![zero_point; scales.len()], scales, axis: 0 };
        let ty = tensor_type(DType::I8, dims).unwrap();
        let mut constants = vec![self.graph.add_constant("weights", ty, quant, weights)];
        if self.numbers.below(5) > 0 {
            let reach = 60 * 130 * size as i32;
            let biases = [0, 3_000, -3_000, -reach / 4, reach / 4, -reach / 2, -reach * 2, -reach * 2, reach * 2];
            let bias = (0..rows).flat_map(|_| (self.numbers.of(&biases) + self.numbers.around(99)).to_le_bytes());
            let bias = bias.collect::<Vec<u8>>();
            let ty = tensor_type(DType::I32, &[rows]).unwrap();
            constants.push(self.graph.add_constant("bias", ty, Quant::default(), bias));
        }
        constants
    }

    fn layer(&mut self, [op, channels, size, geometry, extra]: [u32; 5]) -> ValueId {
        let x = self.values[self.values.len() - 1];
        let dims = self.dims(x);
        let &[n, h, w, c] = &dims[..] else { return self.after_dense(x, op, extra) };
        let out = [1, 2, 3, 5, 8, 11][channels as usize % 6];
        let kernel = [1 + size % 3, 1 + size / 3 % 3];
        let strides = [1 + geometry % 2, 1 + geometry / 2 % 2];
        // Pools have no dilation.
        let dilation = if op % 8 != 5 && geometry / 8 % 4 == 0 { 2 } else { 1 };
        let mut pads = [0; 4];
        // VALID where it fits, every other time.
        if geometry / 4 % 2 == 0 || (kernel[0] - 1) * dilation >= h || (kernel[1] - 1) * dilation >= w {
            let (top, bottom) = same_padding(h, kernel[0], strides[0], dilation);
            let (left, right) = same_padding(w, kernel[1], strides[1], dilation);
            pads = [top, left, bottom, right];
        }
        let activation = self.activation();
        let conv = |groups| Conv2d { strides, dilations: [dilation; 2], pads, groups, activation };
        match op % 8 {
            0..=2 => {
                let groups = if extra % 8 == 0 && c % 2 == 0 && out % 2 == 0 { 2 } else { 1 };
                let constants = self.constants(&[out, kernel[0], kernel[1], c / groups], 0);
                let quant = self.quant();
                self.node(conv(groups), &[&[x], &constants[..]].concat(), quant)
            }
            3 | 4 => {
                let constants = self.constants(&[c, kernel[0], kernel[1], 1], 0);
                let quant = self.quant();
                self.node(conv(c), &[&[x], &constants[..]].concat(), quant)
            }
            5 => {
                let kind = if extra % 2 == 0 { PoolKind::Average } else { PoolKind::Max };
                let quant = self.graph.value(x).quant.clone();
                self.node(Pool2d { kind, kernel, strides, pads, activation }, &[x], quant)
            }
            6 => self.elementwise(x, extra),
            _ => {
                let flat = if extra % 2 == 0 { self.shaped(x, &[n, h * w * c]) } else { x };
                let keep_dims = flat == x && extra / 2 % 3 == 0;
                self.dense(flat, out, if keep_dims { c } else { h * w * c }, keep_dims)
            }
        }
    }

    fn dense(&mut self, x: ValueId, rows: u32, columns: u32, keep_dims: bool) -> ValueId {
        let zero_point = self.numbers.of(&[0, 0, 0, 3]);
        let constants = self.constants(&[rows, columns], zero_point);
        let (quant, activation) = (self.quant(), self.activation());
        self.node(FullyConnected { keep_dims, activation }, &[&[x], &constants[..]].concat(), quant)
    }

    /// A layer after what is no image.
    fn after_dense(&mut self, x: ValueId, op: u32, extra: u32) -> ValueId {
        let (n, c) = (self.dims(x)[0], self.graph.value(x).ty.shape.last());
        match op % 4 {
            0 => self.elementwise(x, extra),
            1 if c.is_multiple_of(2) && extra.is_multiple_of(4) => self.shaped(x, &[n, 1, 2, c / 2]),
            1 => self.shaped(x, &[n, 1, 1, c]),
            _ => self.dense(x, 1 + extra % 9, c, extra.is_multiple_of(2)),
        }
    }

    fn elementwise(&mut self, x: ValueId, extra: u32) -> ValueId {
        let dims = self.dims(x);
        let alike: Vec<ValueId> = self.values.iter().copied().filter(|&id| self.dims(id) == dims).collect();
        let (own, other) = (self.graph.value(x).quant.clone(), self.quant());
        let term = self.numbers.of(&alike);
        match extra % 5 {
            0 => self.node(Copy, &[x], own),
            1 => self.node(Quantize, &[x], other),
            // Along the channels, or what is before them.
            2 => self.node(Concat { axis: (dims.len() as u32 - 1 - extra / 5 % 2) as u8 }, &[x, term], own),
            _ => {
                let activation = self.activation();
                self.node(Add { activation }, &[x, term], other)
            }
        }
    }
}
