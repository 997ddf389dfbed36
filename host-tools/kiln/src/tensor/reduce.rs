//! Sums, means and extremes.

use kiln_core::Shape;
use kiln_ops::{ArgMax, Reduce, ReduceKind, Reshape};

use super::{Float, Int, Kind, Tensor, record};

impl<const D: usize, K: Kind> Tensor<D, K> {
    /// A reduction along one axis, which stays with 1 element.
    #[track_caller]
    fn reduce_dim(&self, kind: ReduceKind, axis: usize) -> Self {
        assert!(axis < D, "a reduction along axis {axis} of {:?}, which has none", self.dims());
        record(Reduce { kind, axes: 1 << axis }, &[self.node()])
    }

    /// A reduction of everything.
    #[track_caller]
    fn reduce_all(&self, kind: ReduceKind) -> Tensor<0, K> {
        let all: Tensor<D, K> = record(Reduce { kind, axes: ((1u16 << D) - 1) as u8 }, &[self.node()]);
        record(Reshape { shape: Shape::SCALAR }, &[all.node()])
    }

    /// The largest element along an axis, which stays with 1 element.
    #[track_caller]
    pub fn max_dim(&self, axis: usize) -> Self {
        self.reduce_dim(ReduceKind::Max, axis)
    }

    /// The smallest element along an axis, which stays with 1 element.
    #[track_caller]
    pub fn min_dim(&self, axis: usize) -> Self {
        self.reduce_dim(ReduceKind::Min, axis)
    }

    /// The sum along an axis, which stays with 1 element.
    #[track_caller]
    pub fn sum_dim(&self, axis: usize) -> Self {
        self.reduce_dim(ReduceKind::Sum, axis)
    }

    /// The sum of all elements.
    #[track_caller]
    pub fn sum(&self) -> Tensor<0, K> {
        self.reduce_all(ReduceKind::Sum)
    }

    /// The largest element.
    #[track_caller]
    pub fn max(&self) -> Tensor<0, K> {
        self.reduce_all(ReduceKind::Max)
    }

    /// The smallest element.
    #[track_caller]
    pub fn min(&self) -> Tensor<0, K> {
        self.reduce_all(ReduceKind::Min)
    }

    /// The index of the largest element along an axis, which stays with 1 element.
    #[track_caller]
    pub fn argmax(&self, axis: usize) -> Tensor<D, Int> {
        record(ArgMax { axis: u8::try_from(axis).unwrap_or(u8::MAX) }, &[self.node()])
    }
}

impl<const D: usize> Tensor<D, Float> {
    /// The mean of all elements.
    #[track_caller]
    pub fn mean(&self) -> Tensor<0, Float> {
        self.sum().mul_scalar(1.0 / self.elements() as f32)
    }

    /// The mean along an axis, which stays with 1 element.
    #[track_caller]
    pub fn mean_dim(&self, axis: usize) -> Self {
        self.sum_dim(axis).mul_scalar(1.0 / self.dims()[axis] as f32)
    }

    /// The mean along several axes, which stay with 1 element each.
    #[track_caller]
    pub fn mean_dims(&self, axes: &[usize]) -> Self {
        let (mut bits, mut count) = (0u8, 1);
        for &axis in axes {
            assert!(axis < D, "a mean along axis {axis} of {:?}, which has none", self.dims());
            bits |= 1 << axis;
            count *= self.dims()[axis];
        }
        let sum: Self = record(Reduce { kind: ReduceKind::Sum, axes: bits }, &[self.node()]);
        sum.mul_scalar(1.0 / count as f32)
    }
}
