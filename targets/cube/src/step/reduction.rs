//! Reductions, laid out for the shapes of one step.

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{ArgMax, Reduce};
use kiln_planner::backend::BackendError;

use super::movement::{dense, extend};
use super::{Step, count, first};
use crate::gpu::Gpu;
use crate::kernels::{self, LONG, ReduceKind, Reduction};
use crate::library;

/// A reduction of some axes.
pub(super) fn reduce(gpu: &Gpu, op: Reduce, x: &TensorType, output: &TensorType) -> Result<Step, BackendError> {
    let x = x.shape;
    let kind = match (op.kind, output.dtype == DType::F32) {
        (kiln_ops::ReduceKind::Sum, true) => return sum(gpu, passes(&x, op.axes)),
        (kiln_ops::ReduceKind::Max, true) => ReduceKind::MaxFloat,
        (kiln_ops::ReduceKind::Min, true) => ReduceKind::MinFloat,
        (kiln_ops::ReduceKind::Sum, false) => ReduceKind::SumInteger,
        (kiln_ops::ReduceKind::Max, false) => ReduceKind::MaxInteger,
        (kiln_ops::ReduceKind::Min, false) => ReduceKind::MinInteger,
    };
    let walk = dense(&x);
    // What the axes that are reduced have, or the others; the rest has something else.
    let part = |reduced: bool, what: &dyn Fn(usize) -> u32, rest: u32| -> Vec<u32> {
        let is = |axis: usize| (op.axes >> axis & 1 == 1) == reduced;
        (0..x.rank()).map(|axis| if is(axis) { what(axis) } else { rest }).collect()
    };
    let stride = |axis: usize| walk[axis] as u32;
    let inner = part(true, &|axis| x.dim(axis), 1);
    let outer = [output.shape.dims(), &part(false, &stride, 0)];
    let reduction = Reduction::new(gpu, kind, outer, [&inner, &part(true, &stride, 0)])?;
    Ok(Box::new(move |gpu, inputs| reduction.run(gpu, first(gpu, inputs)?)))
}

/// The index of the largest element along an axis.
pub(super) fn arg_max(gpu: &Gpu, op: ArgMax, x: &TensorType, output: &TensorType) -> Result<Step, BackendError> {
    let (rank, axis) = (x.shape.rank(), op.axis as usize);
    let mut walk = dense(&x.shape);
    let stride = std::mem::take(&mut walk[axis]);
    let mut layout = vec![x.shape.dim(axis), stride as u32];
    extend(&mut layout, &output.shape, &[&walk]);
    let layout = gpu.write_words(&layout)?;
    let (integer, elements) = (x.dtype == DType::I32, count(output));
    Ok(Box::new(move |gpu, inputs| kernels::arg_max(gpu, integer, first(gpu, inputs)?, &layout, rank, elements)))
}

/// The groups of neighbouring axes that a sum goes over, innermost first, each as what is outside, how many are
/// summed, and what is inside.
pub(super) fn passes(shape: &Shape, axes: u8) -> Vec<[usize; 3]> {
    let mut dims: Vec<(usize, bool)> = Vec::new();
    for (axis, &dim) in shape.dims().iter().enumerate() {
        let reduced = axes >> axis & 1 == 1;
        match dims.last_mut() {
            Some((size, same)) if *same == reduced => *size *= dim as usize,
            _ => dims.push((dim as usize, reduced)),
        }
    }
    let mut passes = Vec::new();
    for i in (0..dims.len()).rev() {
        let (count, reduced) = dims[i];
        if reduced && count != 1 {
            let product = |dims: &[(usize, bool)]| dims.iter().map(|(size, _)| size).product();
            passes.push([product(&dims[..i]), count, product(&dims[i + 1..])]);
            dims[i].0 = 1;
        }
    }
    passes
}

/// Sums of float32, one group of axes after another: the library's, but for long ones.
pub(super) fn sum(gpu: &Gpu, passes: Vec<[usize; 3]>) -> Result<Step, BackendError> {
    let mut all: Vec<Step> = Vec::with_capacity(passes.len());
    for [outer, count, inner] in passes {
        if count <= LONG {
            all.push(Box::new(move |gpu, inputs| library::sum(gpu, first(gpu, inputs)?, [outer, count, inner])));
            continue;
        }
        let [n, count, inner] = [outer, count, inner].map(|size| size as u32);
        let (dims, strides) = ([n, inner], [count * inner, 1]);
        let reduction = Reduction::new(gpu, ReduceKind::SumFloat, [&dims, &strides], [&[count, 1], &[inner, 0]])?;
        all.push(Box::new(move |gpu, inputs| reduction.run(gpu, first(gpu, inputs)?)));
    }
    Ok(Box::new(move |gpu, inputs| {
        let mut buffer = first(gpu, inputs)?.clone();
        for pass in &all {
            buffer = pass(gpu, &[&buffer])?;
        }
        Ok(buffer)
    }))
}
