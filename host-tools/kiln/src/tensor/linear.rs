//! Matrix products, softmax, cross-entropy.

use kiln_ops::{LogSoftmax, MatMul, Softmax};

use super::{Float, Int, Tensor, record};

impl<const D: usize> Tensor<D, Float> {
    /// The product of the matrices in the innermost two axes, `[.., M, K]` by `[.., K, N]`.
    #[track_caller]
    pub fn matmul(&self, other: &Self) -> Self {
        record(MatMul { transpose_a: false, transpose_b: false }, &[self.node(), other.node()])
    }

    /// The product with the other's matrices transposed, `[.., M, K]` by `[.., N, K]`.
    #[track_caller]
    pub fn matmul_transposed(&self, other: &Self) -> Self {
        record(MatMul { transpose_a: false, transpose_b: true }, &[self.node(), other.node()])
    }

    /// Softmax along the innermost axis.
    #[track_caller]
    pub fn softmax(&self) -> Self {
        record(Softmax { beta: 1.0 }, &[self.node()])
    }

    /// The logarithm of softmax along the innermost axis.
    #[track_caller]
    pub fn log_softmax(&self) -> Self {
        record(LogSoftmax, &[self.node()])
    }
}

impl Tensor<2, Float> {
    /// The mean cross-entropy of scores `[N, C]` (before softmax) with classes `[N]`.
    #[track_caller]
    pub fn cross_entropy(&self, classes: &Tensor<1, Int>) -> Tensor<0, Float> {
        let [n, c] = self.dims();
        assert!(classes.dims() == [n], "cross_entropy: scores {:?} and classes {:?}", self.dims(), classes.dims());
        let numbers = Tensor::<1, Int>::arange(0..c as i32, self.device()).reshape([1, c]);
        let hit = classes.reshape([n, 1]).expand([n, c]).equal(&numbers.expand([n, c]));
        -(self.log_softmax() * hit.float()).sum().mul_scalar(1.0 / n as f32)
    }
}
