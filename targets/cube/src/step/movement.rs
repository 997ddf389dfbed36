//! Elements from place to place, by strides.

use kiln_core::{MAX_RANK, Shape, TensorType};
use kiln_planner::backend::BackendError;

use super::{Step, count, first};
use crate::gpu::Gpu;
use crate::kernels;

/// How far apart, in elements, neighbours along each axis lie.
pub(super) fn dense(shape: &Shape) -> [usize; MAX_RANK] {
    let mut strides = [0; MAX_RANK];
    let mut stride = 1usize;
    for (axis, &dim) in shape.dims().iter().enumerate().rev() {
        strides[axis] = stride;
        stride = stride.wrapping_mul(dim as usize);
    }
    strides
}

/// Where a slice of a tensor begins and how it walks.
pub(super) fn cut(shape: &Shape, begin: &[u32; MAX_RANK], step: &[u32; MAX_RANK]) -> (usize, [usize; MAX_RANK]) {
    let dense = dense(shape);
    let start = dense.iter().zip(begin).map(|(stride, &begin)| stride * begin as usize).sum();
    (start, core::array::from_fn(|axis| dense[axis] * step[axis] as usize))
}

/// Dimensions, then strides, one set after another.
pub(super) fn extend(layout: &mut Vec<u32>, shape: &Shape, strides: &[&[usize]]) {
    layout.extend(shape.dims());
    for walk in strides {
        layout.extend(walk[..shape.rank()].iter().map(|&stride| stride as u32));
    }
}

/// Reads the input by strides, from `start` on, into a dense output.
pub(super) fn gather(gpu: &Gpu, shape: &Shape, start: usize, walk: &[usize]) -> Result<Step, BackendError> {
    let (rank, elements) = (shape.rank(), shape.elements().unwrap_or(0) as usize);
    let mut layout = vec![elements as u32, start as u32, 0];
    extend(&mut layout, shape, &[walk, &dense(shape)]);
    let layout = gpu.write_words(&layout)?;
    Ok(Box::new(move |gpu, inputs| {
        let output = gpu.empty(elements)?;
        kernels::copy(gpu, first(gpu, inputs)?, &output, &layout, rank, elements);
        Ok(output)
    }))
}

/// Writes dense inputs by the same strides, each from its start on, into an output of zeros.
pub(super) fn spread(
    gpu: &Gpu,
    output: &TensorType,
    parts: Vec<(Shape, usize)>,
    walk: [usize; MAX_RANK],
) -> Result<Step, BackendError> {
    let mut laid = Vec::with_capacity(parts.len());
    let mut covered = 0;
    for (shape, start) in parts {
        let elements = shape.elements().unwrap_or(0) as usize;
        let mut layout = vec![elements as u32, 0, start as u32];
        extend(&mut layout, &shape, &[&dense(&shape), &walk]);
        laid.push((gpu.write_words(&layout)?, shape.rank(), elements));
        covered += elements;
    }
    let elements = count(output);
    Ok(Box::new(move |gpu, inputs| {
        let output = if covered == elements { gpu.empty(elements)? } else { kernels::fill(gpu, 0, elements)? };
        for (input, (layout, rank, elements)) in inputs.iter().zip(&laid) {
            kernels::copy(gpu, input, &output, layout, *rank, *elements);
        }
        Ok(output)
    }))
}
