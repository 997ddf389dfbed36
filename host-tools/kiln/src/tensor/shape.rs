//! Other shapes, parts and wholes.

use std::ops::Range;

use kiln_core::MAX_RANK;
use kiln_ops::{Concat, Expand, Reshape, Scatter, Slice, Transpose};

use super::{Kind, Tensor, record, shape_of};

impl<const D: usize, K: Kind> Tensor<D, K> {
    /// The same elements under another shape.
    #[track_caller]
    pub fn reshape<const E: usize>(&self, dims: [usize; E]) -> Tensor<E, K> {
        record(Reshape { shape: shape_of(&dims) }, &[self.node()])
    }

    /// Axes `first..=last` as one.
    #[track_caller]
    pub fn flatten<const E: usize>(&self, first: usize, last: usize) -> Tensor<E, K> {
        let dims = self.dims();
        let merged = dims.get(first..=last).map(|part| part.iter().product::<usize>());
        let Some(merged) = merged.filter(|_| D - (last - first) == E) else {
            panic!("flatten: axes {first} to {last} of {dims:?} as one don't give rank {E}");
        };
        let new: Vec<usize> =
            dims[..first].iter().copied().chain([merged]).chain(dims[last + 1..].iter().copied()).collect();
        record(Reshape { shape: shape_of(&new) }, &[self.node()])
    }

    /// A new axis of 1 before axis `axis`.
    #[track_caller]
    pub fn unsqueeze_dim<const E: usize>(&self, axis: usize) -> Tensor<E, K> {
        let mut dims = self.dims().to_vec();
        assert!(axis <= D && E == D + 1, "unsqueeze_dim: {dims:?} with an axis before {axis} is not of rank {E}");
        dims.insert(axis, 1);
        record(Reshape { shape: shape_of(&dims) }, &[self.node()])
    }

    /// Without axis `axis`, which has 1 element.
    #[track_caller]
    pub fn squeeze<const E: usize>(&self, axis: usize) -> Tensor<E, K> {
        let mut dims = self.dims().to_vec();
        let one = dims.get(axis) == Some(&1);
        assert!(one && E + 1 == D, "squeeze: {dims:?} without axis {axis} is not of rank {E}, or that axis is not 1");
        dims.remove(axis);
        record(Reshape { shape: shape_of(&dims) }, &[self.node()])
    }

    /// The axes in another order: axis `i` of the result is axis `axes[i]` of this.
    #[track_caller]
    pub fn permute(&self, axes: [usize; D]) -> Self {
        let Some(op) = Transpose::new(&axes) else { panic!("permute: {axes:?} is no order of {D} axes") };
        record(op, &[self.node()])
    }

    /// Two axes exchanged.
    #[track_caller]
    pub fn swap_dims(&self, a: usize, b: usize) -> Self {
        let mut axes: [usize; D] = std::array::from_fn(|axis| axis);
        assert!(a < D && b < D, "swap_dims: {:?} has no axes {a} and {b}", self.dims());
        axes.swap(a, b);
        self.permute(axes)
    }

    /// The innermost two axes exchanged.
    #[track_caller]
    pub fn transpose(&self) -> Self {
        assert!(D >= 2, "transpose: {:?} has fewer than two axes", self.dims());
        self.swap_dims(D - 2, D - 1)
    }

    /// Repeated along axes of 1 until it has this shape.
    #[track_caller]
    pub fn expand<const E: usize>(&self, dims: [usize; E]) -> Tensor<E, K> {
        record(Expand { shape: shape_of(&dims) }, &[self.node()])
    }

    /// A range along each axis.
    #[track_caller]
    pub fn slice(&self, ranges: [Range<usize>; D]) -> Self {
        self.slice_step(ranges, [1; D])
    }

    /// Every `steps[i]`-th element of a range along each axis.
    #[track_caller]
    pub fn slice_step(&self, ranges: [Range<usize>; D], steps: [usize; D]) -> Self {
        let (mut begin, mut step) = ([0u32; MAX_RANK], [1u32; MAX_RANK]);
        let mut size = [0usize; D];
        for (axis, range) in ranges.iter().enumerate() {
            let good = range.end <= self.dims()[axis] && range.start <= range.end && steps[axis] > 0;
            assert!(good, "slice: {range:?} by {} is no part of axis {axis} of {:?}", steps[axis], self.dims());
            begin[axis] = range.start as u32;
            step[axis] = steps[axis] as u32;
            size[axis] = range.len().div_ceil(steps[axis]);
        }
        record(Slice { begin, size: shape_of(&size), step }, &[self.node()])
    }

    /// A range along one axis.
    #[track_caller]
    pub fn narrow(&self, axis: usize, range: Range<usize>) -> Self {
        let dims = self.dims();
        assert!(axis < D, "narrow: {dims:?} has no axis {axis}");
        self.slice(std::array::from_fn(|at| if at == axis { range.clone() } else { 0..dims[at] }))
    }

    /// Zeros around it: as many before and after along each axis.
    #[track_caller]
    pub fn pad_zeros(&self, before: [usize; D], after: [usize; D]) -> Self {
        let dims: [usize; D] = std::array::from_fn(|axis| before[axis] + self.dims()[axis] + after[axis]);
        let mut begin = [0u32; MAX_RANK];
        for (to, from) in begin.iter_mut().zip(before) {
            *to = from as u32;
        }
        record(Scatter { begin, shape: shape_of(&dims), step: [1; MAX_RANK] }, &[self.node()])
    }

    /// Tensors behind one another along an axis.
    ///
    /// # Panics
    ///
    /// If there are none, or they don't go together.
    #[track_caller]
    pub fn cat(tensors: &[Self], axis: usize) -> Self {
        // A step reads a limited number of tensors; more are put together in groups.
        const MOST: usize = kiln_core::MAX_OPERANDS - 1;
        assert!(!tensors.is_empty(), "cat: no tensors");
        let op = Concat { axis: u8::try_from(axis).unwrap_or(u8::MAX) };
        let mut parts = tensors.to_vec();
        loop {
            parts = parts
                .chunks(MOST)
                .map(|group| record(op, &group.iter().map(Tensor::node).collect::<Vec<_>>()))
                .collect();
            if let [whole] = &parts[..] {
                return whole.clone();
            }
        }
    }
}
