//! Layers of the shapes that small networks have, a few for each operator and dtype: what the figures are fitted to.
//! An operator that is not among them has no figures, and models with it no estimate.

use anyhow::{Context, Result};
use kiln_core::{DType, TensorType};
use kiln_ops::{
    Activation, Add, AveragePool2dPart, Conv2d, Copy, Dequantize, FullyConnected, LOG_SOFTMAX_OUTPUT, LogSoftmax, Op,
    Pool2d, PoolKind, Quantize, Softmax, Transpose, same_padding,
};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};

/// Height, width, channels of the image; output channels; height and width of the window; stride; dilation; groups;
/// whether it is padded.
type Convolution = ([u32; 3], u32, [u32; 2], u32, u32, u32, bool);

/// Convolutions, those with as many groups as channels depthwise.
#[rustfmt::skip]
const CONVOLUTIONS: [Convolution; 30] = [
    ([8, 8, 3], 8, [3, 3], 1, 1, 1, true),
    ([16, 16, 3], 8, [3, 3], 2, 1, 1, true),
    ([12, 12, 1], 8, [5, 5], 2, 1, 1, false),
    ([20, 3, 1], 4, [4, 3], 1, 1, 1, true),
    ([8, 8, 16], 16, [1, 1], 1, 1, 1, true),
    ([6, 6, 32], 24, [1, 1], 1, 1, 1, true),
    ([4, 4, 64], 64, [1, 1], 1, 1, 1, true),
    ([3, 3, 128], 64, [1, 1], 1, 1, 1, true),
    ([8, 8, 16], 32, [1, 1], 2, 1, 1, true),
    ([8, 8, 8], 16, [3, 3], 1, 1, 1, true),
    ([8, 8, 16], 16, [3, 3], 2, 1, 1, true),
    ([4, 4, 32], 32, [3, 3], 1, 1, 1, true),
    ([7, 5, 8], 12, [3, 3], 1, 1, 1, false),
    ([1, 24, 8], 8, [1, 5], 1, 1, 1, true),
    ([8, 8, 8], 8, [3, 3], 1, 2, 1, true),
    ([6, 6, 16], 16, [3, 3], 1, 1, 4, true),
    ([9, 10, 1], 8, [10, 8], 2, 1, 1, true),
    ([10, 8, 16], 16, [3, 3], 1, 1, 16, true),
    ([12, 12, 8], 8, [3, 3], 2, 1, 8, true),
    ([6, 6, 64], 64, [3, 3], 1, 1, 64, true),
    ([3, 3, 128], 128, [3, 3], 1, 1, 128, true),
    ([8, 8, 16], 16, [3, 3], 1, 1, 16, false),
    ([25, 10, 1], 8, [10, 4], 2, 1, 1, true),
    ([12, 12, 4], 4, [5, 5], 1, 1, 4, true),
    ([8, 6, 4], 8, [3, 3], 1, 1, 4, true),
    ([1, 40, 8], 8, [1, 15], 1, 1, 8, true),
    ([1, 30, 4], 8, [1, 20], 1, 1, 1, false),
    // Two channels, which rows for four at a time leave to others.
    ([1, 1, 256], 2, [1, 1], 1, 1, 1, true),
    ([8, 8, 16], 2, [3, 3], 1, 1, 1, true),
    ([6, 6, 8], 2, [1, 1], 1, 1, 1, true),
];

/// Larger ones: what the borders of an image cost, and pixels that are left over, must not pass for what all
/// pixels cost.
#[rustfmt::skip]
const LARGE: [Convolution; 18] = [
    ([20, 20, 8], 16, [1, 1], 1, 1, 1, true),
    ([12, 12, 16], 32, [1, 1], 1, 1, 1, true),
    ([21, 5, 64], 48, [1, 1], 1, 1, 1, true),
    ([6, 6, 96], 64, [1, 1], 1, 1, 1, true),
    ([16, 16, 16], 16, [3, 3], 1, 1, 1, true),
    ([24, 24, 3], 8, [3, 3], 1, 1, 1, true),
    ([30, 30, 3], 8, [3, 3], 2, 1, 1, true),
    ([10, 10, 16], 16, [3, 3], 1, 1, 1, true),
    ([24, 24, 8], 8, [3, 3], 1, 1, 8, true),
    ([24, 24, 8], 8, [3, 3], 2, 1, 8, true),
    ([48, 6, 4], 4, [3, 3], 1, 1, 4, true),
    ([8, 48, 8], 8, [3, 3], 1, 1, 8, true),
    ([8, 32, 8], 8, [3, 3], 2, 1, 8, true),
    ([12, 12, 32], 32, [3, 3], 1, 1, 32, true),
    ([6, 6, 64], 64, [3, 3], 2, 1, 64, true),
    ([3, 3, 32], 32, [3, 3], 1, 1, 32, true),
    ([32, 24, 1], 8, [10, 8], 2, 1, 1, true),
    ([40, 16, 1], 8, [10, 8], 2, 1, 1, true),
];

/// Matrices: vectors, columns, rows.
const MATRICES: [[u32; 3]; 10] = [
    [1, 16, 16],
    [1, 64, 10],
    [1, 256, 32],
    [1, 128, 128],
    [1, 1, 16],
    [1, 16, 1],
    [1, 400, 24],
    [1, 8, 200],
    [8, 32, 16],
    [1, 130, 3],
];

/// Pools: height, width, channels; height and width of the window; stride; whether it is padded.
const POOLS: [([u32; 3], [u32; 2], u32, bool); 14] = [
    ([8, 8, 16], [2, 2], 2, false),
    ([4, 4, 64], [4, 4], 1, false),
    ([12, 5, 32], [12, 5], 1, false),
    ([10, 10, 8], [3, 3], 1, true),
    ([3, 3, 128], [3, 3], 1, false),
    ([7, 7, 12], [3, 3], 2, true),
    ([20, 3, 8], [3, 3], 3, false),
    ([6, 6, 4], [2, 2], 1, false),
    ([1, 40, 8], [1, 40], 1, false),
    ([40, 2, 8], [40, 1], 1, false),
    ([9, 16, 4], [9, 16], 1, false),
    // Few channels, which rows for several at a time leave to others.
    ([10, 10, 3], [3, 3], 1, true),
    ([8, 12, 3], [2, 2], 2, false),
    ([12, 5, 2], [12, 5], 1, false),
];

/// Parts of averages: height, width, channels; whether they are the first, and the last.
const PARTS: [([u32; 3], bool, bool); 6] = [
    ([1, 5, 64], true, false),
    ([2, 5, 64], false, false),
    ([1, 5, 64], false, true),
    ([4, 8, 16], false, false),
    ([6, 3, 10], true, true),
    ([3, 12, 32], false, true),
];

/// Shapes for operators that go element by element or vector by vector.
const SHAPES: [&[u32]; 7] = [&[1, 10], &[1, 100], &[1, 640], &[4, 20], &[1, 8, 8, 16], &[30, 3], &[1, 2]];

/// Transpositions: dimensions, and which of them becomes which.
const TRANSPOSITIONS: [(&[u32], &[usize]); 6] = [
    (&[16, 32], &[1, 0]),
    (&[4, 6, 8], &[0, 2, 1]),
    (&[4, 6, 8], &[1, 0, 2]),
    (&[4, 6, 8], &[2, 1, 0]),
    (&[3, 12, 12], &[1, 2, 0]),
    (&[40, 5], &[1, 0]),
];

/// The scale of outputs.
const OUTPUT: f32 = 0.06;
/// One so fine that outputs are larger than a quarter of sums, for which some kernels have no form: plain ones take their place.
const FINE: f32 = 0.000_6;
/// The scale of sums.
const SUM: f32 = 0.05;
/// One so fine that no factor of 32 bits makes a sum of two tensors.
const FINEST: f32 = 1e-10;

/// A graph whose steps are the layers, each with inputs of its own.
pub(super) fn graph() -> Result<Graph> {
    let mut layers = Layers::new("layers");
    for dtype in [DType::I8, DType::F32] {
        layers.convolutions(dtype, &CONVOLUTIONS, OUTPUT)?;
        layers.matrices(dtype, OUTPUT)?;
        layers.pools(dtype)?;
        layers.parts(dtype)?;
        for shape in SHAPES {
            let ty = layers.ty(dtype, shape)?;
            layers.sum(ty, SUM)?;
            layers.unary(Copy, ty, quant(dtype, 0.03))?;
            layers.unary(Quantize, ty, Quant::per_tensor(0.02, 5))?;
            layers.unary(Softmax { beta: 1.0 }, ty, known(dtype, 1.0 / 256.0, -128))?;
            let (scale, zero) = LOG_SOFTMAX_OUTPUT;
            layers.unary(LogSoftmax, ty, known(dtype, scale, zero))?;
            if dtype == DType::I8 {
                layers.unary(Dequantize, ty, Quant::default())?;
            }
        }
        for (dims, permutation) in TRANSPOSITIONS {
            let ty = layers.ty(dtype, dims)?;
            let transpose = Transpose::new(permutation).context("no permutation")?;
            layers.unary(transpose, ty, quant(dtype, 0.03))?;
        }
    }
    layers.graph.validate()?;
    Ok(layers.graph)
}

/// Layers with scales that some kernels have no form for, so that plain ones take their place.
pub(super) fn plain() -> Result<Graph> {
    let mut layers = Layers::new("plain-layers");
    layers.convolutions(DType::I8, &CONVOLUTIONS, FINE)?;
    layers.matrices(DType::I8, FINE)?;
    for shape in SHAPES {
        let ty = layers.ty(DType::I8, shape)?;
        layers.sum(ty, FINEST)?;
    }
    layers.graph.validate()?;
    Ok(layers.graph)
}

/// Layers too large to lie beside the others.
pub(super) fn large() -> Result<Graph> {
    let mut layers = Layers::new("large-layers");
    layers.convolutions(DType::I8, &LARGE, OUTPUT)?;
    layers.graph.validate()?;
    Ok(layers.graph)
}

/// One of them alone.
pub(super) fn single() -> Result<Graph> {
    let mut layers = Layers::new("layer");
    let x = layers.ty(DType::I8, &[1, 16])?;
    layers.weighted(FullyConnected { keep_dims: false, activation: Activation::Relu }, x, &[16, 16], OUTPUT)?;
    layers.graph.validate()?;
    Ok(layers.graph)
}

struct Layers {
    graph: Graph,
    random: u32,
}

impl Layers {
    fn new(name: &str) -> Layers {
        let mut graph = Graph::new(name);
        graph.entries.push(Entry { name: "infer".into(), ..Entry::default() });
        Layers { graph, random: 1 }
    }

    fn ty(&self, dtype: DType, dims: &[u32]) -> Result<TensorType> {
        tensor_type(dtype, dims).context("too many dimensions")
    }

    fn input(&mut self, ty: TensorType) -> ValueId {
        let id = self.graph.add_input(self.name("x"), ty, quant(ty.dtype, 0.03));
        self.graph.entries[0].inputs.push(id);
        id
    }

    fn name(&self, what: &str) -> String {
        format!("{what}{}", self.graph.values.len())
    }

    /// Weights from -127 to 127, or about -0.5 to 0.5; the same on every computer.
    fn constant(&mut self, ty: TensorType, scale: f32) -> ValueId {
        let mut data = Vec::new();
        for _ in 0..ty.shape.elements().unwrap_or(0) {
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = (self.random >> 16) as i32 % 255 - 127;
            match ty.dtype {
                DType::I8 => data.extend((value as i8).to_le_bytes()),
                DType::I32 => data.extend((value * 10).to_le_bytes()),
                _ => data.extend((value as f32 / 254.0).to_le_bytes()),
            }
        }
        let quant = if ty.dtype == DType::F32 { Quant::default() } else { Quant::per_tensor(scale, 0) };
        self.graph.add_constant(self.name("w"), ty, quant, data)
    }

    fn node(&mut self, op: impl Into<Op>, inputs: &[ValueId], quant: Quant) -> Result<()> {
        let name = self.name("y");
        let output = self.graph.add_node(0, name, op, inputs, quant)?;
        self.graph.entries[0].outputs.push(output);
        Ok(())
    }

    fn unary(&mut self, op: impl Into<Op>, ty: TensorType, quant: Quant) -> Result<()> {
        let input = self.input(ty);
        self.node(op, &[input], quant)
    }

    /// A sum of two tensors.
    fn sum(&mut self, ty: TensorType, scale: f32) -> Result<()> {
        let two = [self.input(ty), self.input(ty)];
        self.node(Add { activation: Activation::None }, &two, quant(ty.dtype, scale))
    }

    /// An operator with weights and a bias, and an output of this scale.
    fn weighted(&mut self, op: impl Into<Op>, x: TensorType, weights: &[u32], scale: f32) -> Result<()> {
        let bias = if x.dtype == DType::I8 { DType::I32 } else { x.dtype };
        let (weights, bias) = (self.ty(x.dtype, weights)?, self.ty(bias, weights.get(..1).unwrap_or(&[]))?);
        let inputs = [self.input(x), self.constant(weights, 0.01), self.constant(bias, 0.0003)];
        // As converters choose it for what is not negative: a rectifier then costs nothing.
        self.node(op, &inputs, known(x.dtype, scale, -128))
    }

    fn convolutions(&mut self, dtype: DType, all: &[Convolution], scale: f32) -> Result<()> {
        for &([height, width, channels], outputs, kernel, stride, dilation, groups, padded) in all {
            let conv = Conv2d {
                strides: [stride; 2],
                dilations: [dilation; 2],
                pads: pads([height, width], kernel, stride, dilation, padded),
                groups,
                activation: Activation::Relu,
            };
            let x = self.ty(dtype, &[1, height, width, channels])?;
            self.weighted(conv, x, &[outputs, kernel[0], kernel[1], channels / groups], scale)?;
        }
        Ok(())
    }

    fn matrices(&mut self, dtype: DType, scale: f32) -> Result<()> {
        for [vectors, columns, rows] in MATRICES {
            let x = self.ty(dtype, &[vectors, columns])?;
            self.weighted(
                FullyConnected { keep_dims: false, activation: Activation::Relu },
                x,
                &[rows, columns],
                scale,
            )?;
        }
        Ok(())
    }

    fn pools(&mut self, dtype: DType) -> Result<()> {
        for kind in [PoolKind::Average, PoolKind::Max] {
            for ([height, width, channels], kernel, stride, padded) in POOLS {
                let pads = pads([height, width], kernel, stride, 1, padded);
                let pool = Pool2d { kind, kernel, strides: [stride; 2], pads, activation: Activation::None };
                let x = self.ty(dtype, &[1, height, width, channels])?;
                self.unary(pool, x, quant(dtype, 0.03))?;
            }
        }
        Ok(())
    }

    fn parts(&mut self, dtype: DType) -> Result<()> {
        for ([height, width, channels], first, last) in PARTS {
            let part = AveragePool2dPart { taps: 125, last, activation: Activation::None };
            let x = self.ty(dtype, &[1, height, width, channels])?;
            let mut inputs = vec![self.input(x)];
            if !first {
                let sums = self.ty(if dtype == DType::I8 { DType::I32 } else { dtype }, &[1, 1, 1, channels])?;
                inputs.push(self.input(sums));
            }
            self.node(part, &inputs, if last { quant(dtype, 0.03) } else { Quant::default() })?;
        }
        Ok(())
    }
}

fn pads(size: [u32; 2], kernel: [u32; 2], stride: u32, dilation: u32, padded: bool) -> [u32; 4] {
    if !padded {
        return [0; 4];
    }
    let [(top, bottom), (left, right)] = [0, 1].map(|axis| same_padding(size[axis], kernel[axis], stride, dilation));
    [top, left, bottom, right]
}

fn quant(dtype: DType, scale: f32) -> Quant {
    known(dtype, scale, -3)
}

/// The quantization of what has one.
fn known(dtype: DType, scale: f32, zero: i32) -> Quant {
    if dtype == DType::I8 { Quant::per_tensor(scale, zero) } else { Quant::default() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kiln_core::TargetId;
    use kiln_kernels::table::KERNELS;
    use kiln_planner::solve::Budget;
    use kiln_planner::{Options, plan};

    use super::*;

    #[test]
    fn layers_use_every_kernel_of_imported_models() {
        // Kernels of training steps and general graphs, which no importer makes yet. Plans with them have no estimate.
        const OTHERS: std::ops::Range<u16> = 40..56;
        let options = Options { budget: Budget { nodes: 0 }, ..Options::for_target(TargetId::ARMV7EM) };
        let graphs = [graph().unwrap(), plain().unwrap()];
        let used: BTreeSet<u16> = graphs
            .iter()
            .flat_map(|graph| plan(graph, &options).unwrap().kernels)
            .map(|kernel| kernel.number)
            .collect();
        for kernel in
            KERNELS.iter().filter(|kernel| kernel.runs_on(TargetId::ARMV7EM) && !OTHERS.contains(&kernel.number))
        {
            assert!(used.contains(&kernel.number), "no layer is computed by {}", kernel.name);
        }
    }
}
