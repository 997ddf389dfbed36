//! Random small graphs.

use std::collections::HashSet;

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{
    Activation, Add, Conv2d, Copy, Dequantize, FullyConnected, LOG_SOFTMAX_OUTPUT, LogSoftmax, Op, Pool2d, PoolKind,
    Quantize, Reshape, Softmax, Transpose,
};
use kiln_planner::graph::{Assign, Graph, Quant, ValueId};

use crate::support::{Random, graph, input, ty};

struct Maker {
    graph: Graph,
    random: Random,
    /// What the entry at hand can read.
    known: Vec<ValueId>,
    states: Vec<ValueId>,
    /// Floats that a plan may round differently than the reference, and what depends on them: no
    /// integer is made of these, since it could be another one.
    inexact: HashSet<ValueId>,
}

/// A graph of one or two entries that share state and constants, of up to `most` nodes each.
pub(crate) fn any_graph(seed: u64, most: u32) -> Graph {
    let mut random = Random::new(seed);
    let entries: &[&str] = if random.one_in(3) { &["infer", "second"] } else { &["infer"] };
    let mut maker =
        Maker { graph: graph(entries), random, known: Vec::new(), states: Vec::new(), inexact: HashSet::new() };
    let dtypes: &[DType] = maker.random.pick(&[&[DType::I8][..], &[DType::F32], &[DType::I8, DType::F32]]);
    let mut shared = Vec::new();
    for i in 0..maker.random.range(0, 2) {
        let (ty, quant) = maker.kind(dtypes);
        let id = maker.graph.add_state(format!("state{i}"), ty, quant);
        maker.states.push(id);
        maker.inexact.insert(id);
        shared.push(id);
    }
    if maker.random.one_in(3) {
        let (ty, quant) = maker.kind(dtypes);
        let data = maker.random.elements(&ty);
        shared.push(maker.graph.add_constant("constant", ty, quant, data));
    }
    for entry in 0..maker.graph.entries.len() {
        maker.known = shared.clone();
        maker.entry(entry, dtypes, most);
    }
    maker.graph.validate().unwrap();
    maker.graph
}

impl Maker {
    /// A type of an input or a state, with its quantization.
    fn kind(&mut self, dtypes: &[DType]) -> (TensorType, Quant) {
        let random = &mut self.random;
        let image = [random.range(1, 2), random.range(1, 7), random.range(1, 7), random.range(1, 5)];
        // Few shapes, so that sums find partners.
        let dims: &[u32] = match random.range(0, 5) {
            0 => &[1, 12],
            1 => &[24],
            2 => &[2, 2, 6],
            3 => &[1, 4, 4, 3],
            _ => &image,
        };
        let dtype = random.pick(dtypes);
        let ty = ty(dtype, dims);
        let quant = self.quant(dtype);
        (ty, quant)
    }

    fn quant(&mut self, dtype: DType) -> Quant {
        if dtype != DType::I8 {
            return Quant::default();
        }
        let zero = self.random.range(0, 255) as i32 - 128;
        Quant::per_tensor(0.03 + 0.02 * self.random.real(), zero)
    }

    fn entry(&mut self, entry: usize, dtypes: &[DType], most: u32) {
        for i in 0..self.random.range(1, 3) {
            let (ty, quant) = self.kind(dtypes);
            let id = input(&mut self.graph, entry, &format!("input{i}"), ty, &quant);
            self.known.push(id);
        }
        for i in 0..self.random.range(0, most) {
            // Recent values more often, or nothing grows deep.
            let recent = self.known.len().saturating_sub(3);
            let x = match self.random.one_in(3) {
                true => self.random.pick(&self.known),
                false => self.random.pick(&self.known[recent..]),
            };
            self.node(entry, i, x);
        }
        for _ in 0..self.random.range(1, 3) {
            let id = self.random.pick(&self.known);
            self.graph.entries[entry].outputs.push(id);
        }
        if let Some(&last) = self.known.last()
            && !self.random.one_in(4)
        {
            self.graph.entries[entry].outputs.push(last);
        }
        for state in self.states.clone() {
            let ty = self.graph.value(state).ty;
            let fits: Vec<ValueId> = self.known.iter().copied().filter(|&id| self.graph.value(id).ty == ty).collect();
            if !self.random.one_in(3) {
                let value = self.random.pick(&fits);
                self.graph.entries[entry].assigns.push(Assign { state, value });
            }
        }
    }

    /// Adds a node that reads `x`, if the operator that comes up can.
    fn node(&mut self, entry: usize, number: u32, x: ValueId) {
        let x_ty = self.graph.value(x).ty;
        let image = x_ty.shape.rank() == 4;
        let made = match self.random.range(0, 11) {
            0 | 1 if image => self.convolution(x_ty),
            2 if image => self.depthwise(x_ty),
            3 if image => self.pool(x),
            4 => self.fully_connected(x_ty),
            5 => Some(self.softmax(x_ty.dtype)),
            9 => self.transpose(x),
            10 if x_ty.dtype == DType::I8 && self.random.one_in(2) => {
                Some((Dequantize.into(), vec![], Quant::default()))
            }
            10 if x_ty.dtype == DType::I8 || !self.inexact.contains(&x) => {
                Some((Quantize.into(), vec![], self.quant(DType::I8)))
            }
            6 => Some(self.reshape(x)),
            7 if self.random.one_in(2) => Some((Copy.into(), vec![], self.graph.value(x).quant.clone())),
            _ => Some(self.sum(x)),
        };
        let Some((op, rest, quant)) = made else { return };
        let inputs: Vec<ValueId> = [x].into_iter().chain(rest).collect();
        if let Ok(id) = self.graph.add_node(entry, format!("node{number}"), op, &inputs, quant) {
            self.known.push(id);
            let rounds = matches!(op, Op::Softmax(_) | Op::LogSoftmax(_));
            if rounds || inputs.iter().any(|id| self.inexact.contains(id)) {
                self.inexact.insert(id);
            }
        }
    }

    fn activation(&mut self) -> Activation {
        self.random.pick(&[Activation::None, Activation::None, Activation::Relu, Activation::Relu6])
    }

    fn weights(&mut self, dtype: DType, dims: &[u32]) -> ValueId {
        let ty = ty(dtype, dims);
        let mut data = self.random.elements(&ty);
        let mut quant = Quant::default();
        if dtype == DType::I8 {
            let scales = if self.random.one_in(2) { 1 } else { dims[0] };
            quant.scales = (0..scales).map(|_| 0.01 + 0.005 * self.random.real()).collect();
            quant.zero_points = vec![0; scales as usize];
        } else {
            // Sums stay near one, so that rounding errors do not pile up.
            let terms = dims[1..].iter().product::<u32>().max(1) as f32;
            data = data
                .chunks_exact(4)
                .flat_map(|c| (f32::from_le_bytes(c.try_into().unwrap()) / terms.sqrt()).to_le_bytes())
                .collect();
        }
        self.graph.add_constant("weights", ty, quant, data)
    }

    fn with_bias(&mut self, dtype: DType, w: ValueId) -> Vec<ValueId> {
        if self.random.one_in(3) {
            return vec![w];
        }
        let channels = self.graph.value(w).ty.shape.dim(0);
        let ty = ty(if dtype == DType::I8 { DType::I32 } else { dtype }, &[channels]);
        let data = self.random.elements(&ty);
        vec![w, self.graph.add_constant("bias", ty, Quant::default(), data)]
    }

    fn pads(&mut self, kernel: [u32; 2]) -> [u32; 4] {
        let mut pad = |k: u32| self.random.range(0, k - 1);
        [pad(kernel[0]), pad(kernel[1]), pad(kernel[0]), pad(kernel[1])]
    }

    fn convolution(&mut self, x: TensorType) -> Option<(Op, Vec<ValueId>, Quant)> {
        let channels = x.shape.last();
        let groups = if channels.is_multiple_of(2) && self.random.one_in(3) { 2 } else { 1 };
        let outputs = groups * self.random.range(1, 5);
        self.windowed(x.dtype, groups, outputs, channels / groups)
    }

    fn depthwise(&mut self, x: TensorType) -> Option<(Op, Vec<ValueId>, Quant)> {
        let channels = x.shape.last();
        let outputs = channels * self.random.range(1, 2);
        self.windowed(x.dtype, channels, outputs, 1)
    }

    fn windowed(
        &mut self,
        dtype: DType,
        groups: u32,
        outputs: u32,
        per_group: u32,
    ) -> Option<(Op, Vec<ValueId>, Quant)> {
        let kernel = [self.random.range(1, 3), self.random.range(1, 3)];
        let pads = self.pads(kernel);
        let strides = [self.random.range(1, 2), self.random.range(1, 2)];
        let dilations = if self.random.one_in(4) { [2, 1] } else { [1, 1] };
        let w = self.weights(dtype, &[outputs, kernel[0], kernel[1], per_group]);
        let rest = self.with_bias(dtype, w);
        let activation = self.activation();
        let op = Conv2d { strides, dilations, pads, groups, activation };
        Some((op.into(), rest, self.quant(dtype)))
    }

    fn pool(&mut self, x: ValueId) -> Option<(Op, Vec<ValueId>, Quant)> {
        let kernel = [self.random.range(1, 3), self.random.range(1, 3)];
        let op = Pool2d {
            kind: self.random.pick(&[PoolKind::Average, PoolKind::Max]),
            kernel,
            strides: [self.random.range(1, 2), self.random.range(1, 3)],
            pads: self.pads(kernel),
            activation: self.activation(),
        };
        Some((op.into(), vec![], self.graph.value(x).quant.clone()))
    }

    fn fully_connected(&mut self, x: TensorType) -> Option<(Op, Vec<ValueId>, Quant)> {
        let keep_dims = self.random.one_in(2);
        let columns = if keep_dims || self.random.one_in(2) {
            x.shape.last()
        } else {
            u32::try_from(x.shape.elements()?).ok()?
        };
        let outputs = self.random.range(1, 9);
        // Float weights may be computed.
        let computed = self.known.iter().copied().find(|&id| {
            let ty = self.graph.value(id).ty;
            ty.dtype == DType::F32 && x.dtype == DType::F32 && ty.shape.rank() == 2 && ty.shape.dim(1) == columns
        });
        let w = match computed {
            Some(w) if self.random.one_in(2) => w,
            _ => self.weights(x.dtype, &[outputs, columns]),
        };
        let rest = self.with_bias(x.dtype, w);
        let activation = self.activation();
        Some((FullyConnected { keep_dims, activation }.into(), rest, self.quant(x.dtype)))
    }

    fn transpose(&mut self, x: ValueId) -> Option<(Op, Vec<ValueId>, Quant)> {
        let mut axes: Vec<usize> = (0..self.graph.value(x).ty.shape.rank()).collect();
        for i in 1..axes.len() {
            axes.swap(i, self.random.below(i + 1));
        }
        Some((Transpose::new(&axes)?.into(), vec![], self.graph.value(x).quant.clone()))
    }

    fn softmax(&mut self, dtype: DType) -> (Op, Vec<ValueId>, Quant) {
        if self.random.one_in(2) {
            let quant = if dtype == DType::I8 {
                Quant::per_tensor(LOG_SOFTMAX_OUTPUT.0, LOG_SOFTMAX_OUTPUT.1)
            } else {
                Quant::default()
            };
            return (LogSoftmax.into(), vec![], quant);
        }
        let quant = if dtype == DType::I8 { Quant::per_tensor(1.0 / 256.0, -128) } else { Quant::default() };
        (Softmax { beta: 1.0 }.into(), vec![], quant)
    }

    fn reshape(&mut self, x: ValueId) -> (Op, Vec<ValueId>, Quant) {
        let ty = self.graph.value(x).ty;
        let n = ty.shape.elements().unwrap() as u32;
        let half = if n.is_multiple_of(2) { 2 } else { 1 };
        let shapes = [&[n][..], &[1, n], &[half, n / half], &[1, half, n / half, 1], &[1, 1, half, n / half]];
        let shape = Shape::new(self.random.pick(&shapes)).unwrap();
        (Reshape { shape }.into(), vec![], self.graph.value(x).quant.clone())
    }

    fn sum(&mut self, x: ValueId) -> (Op, Vec<ValueId>, Quant) {
        let ty = self.graph.value(x).ty;
        let partners: Vec<ValueId> = self.known.iter().copied().filter(|&id| self.graph.value(id).ty == ty).collect();
        let other = self.random.pick(&partners);
        let activation = self.activation();
        (Add { activation }.into(), vec![other], self.quant(ty.dtype))
    }
}
