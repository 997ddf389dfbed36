//! Operators that are several kernels.

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{Activation, Function, MatMulSizes};
use kiln_planner::backend::BackendError;

use super::reduction::{passes, sum};
use super::{Elementwise, Step, clamp, count, first, two};
use crate::gpu::{Buffer, Gpu};
use crate::kernels::{ReduceKind, Reduction};
use crate::library;

fn floats(dims: &[u32]) -> TensorType {
    TensorType::new(DType::F32, Shape::new(dims).unwrap_or(Shape::SCALAR))
}

/// A product, then bias and activation as one expression.
pub(super) fn fully_connected(
    gpu: &Gpu,
    activation: Activation,
    inputs: &[TensorType],
    output: &TensorType,
) -> Result<Step, BackendError> {
    let (w, biased) = (inputs[1].shape, inputs.len() > 2);
    let (outputs, columns) = (w.dim(0), w.dim(1));
    let rows = count(&inputs[0]) as u32 / columns.max(1);
    let sizes = MatMulSizes { batch: 1, m: rows, n: outputs, k: columns };
    let product = floats(&[rows, outputs]);
    let mut types = vec![product];
    let (mut instructions, mut immediates) = (Vec::new(), Vec::new());
    if biased {
        types.push(floats(&[outputs]));
        instructions.push((Function::Add, [0, 1, 0]));
    }
    clamp(activation, types.len() as u8, &mut instructions, &mut immediates);
    debug_assert_eq!(count(&product), count(output));
    let rest = Elementwise::new(gpu, false, &types, &product, &instructions, &immediates)?;
    Ok(Box::new(move |gpu, inputs| {
        let [x, w] = two(gpu, inputs)?;
        let product = library::matmul(gpu, x, w, sizes, [false, true])?;
        if rest.is_empty() {
            return Ok(product);
        }
        let with_bias: Vec<&Buffer> = std::iter::once(&product).chain(inputs.get(2).copied()).collect();
        rest.run(gpu, &with_bias)
    }))
}

/// Softmax along the last axis, or its logarithm, from extremes, expressions and sums.
pub(super) fn softmax(gpu: &Gpu, output: &TensorType, beta: f32, log: bool) -> Result<Step, BackendError> {
    let (rows, depth) = (output.shape.outer().unwrap_or(0) as u32, output.shape.last());
    let (matrix, column) = (floats(&[rows, depth]), floats(&[rows, 1]));
    let max = Reduction::new(gpu, ReduceKind::MaxFloat, [&[rows, 1], &[depth, 0]], [&[1, depth], &[0, 1]])?;
    let total = sum(gpu, passes(&matrix.shape, 2))?;
    let of = |inputs: &[TensorType], immediates: &[f32], instructions: &[(Function, [u8; 3])]| {
        Elementwise::new(gpu, false, inputs, &matrix, instructions, immediates)
    };
    // (x - max) * beta; then its power.
    let shifted = of(&[matrix, column], &[beta], &[(Function::Sub, [0, 1, 0]), (Function::Mul, [3, 2, 0])])?;
    let power = of(&[matrix], &[], &[(Function::Exp, [0, 0, 0])])?;
    let last = if log {
        of(&[matrix, column], &[], &[(Function::Log, [1, 0, 0]), (Function::Sub, [0, 2, 0])])?
    } else {
        of(&[matrix, column], &[], &[(Function::Div, [0, 1, 0])])?
    };
    Ok(Box::new(move |gpu, inputs| {
        let x = first(gpu, inputs)?;
        let shifted = shifted.run(gpu, &[x, &max.run(gpu, x)?])?;
        let powers = power.run(gpu, &[&shifted])?;
        let sums = total(gpu, &[&powers])?;
        last.run(gpu, &[if log { &shifted } else { &powers }, &sums])
    }))
}
