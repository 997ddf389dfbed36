//! Batch normalization.

use kiln_ops::Function;

use super::Init;
use crate::module::{Buffer, Mode};
use crate::{Device, Module, Tensor};

/// Batch normalization of the features in the innermost axis, `[N, C]` and `[N, H, W, C]` alike (Ioffe and Szegedy,
/// 2015): `(x - mean) / sqrt(variance + epsilon) * weight + bias`.
///
/// In training, mean and variance are the batch's, and the running statistics move toward them by `momentum`; the
/// variance that they keep is the unbiased one, as in PyTorch. In evaluation they are the running statistics.
#[derive(Module, Clone, Debug)]
pub struct BatchNorm {
    /// `[C]`.
    pub weight: Tensor<1>,
    /// `[C]`.
    pub bias: Tensor<1>,
    /// `[C]`.
    pub running_mean: Buffer<1>,
    /// `[C]`.
    pub running_var: Buffer<1>,
    /// How much of a batch goes into the running statistics.
    pub momentum: f32,
    /// What keeps the divisor from 0.
    pub epsilon: f32,
    /// Whether it learns.
    pub mode: Mode,
}

impl BatchNorm {
    /// A layer for `features` with momentum 0.1 and epsilon 1e-5.
    #[track_caller]
    pub fn new(features: usize, device: &Device) -> BatchNorm {
        let filled = |value| Init::Constant(value).parameter([features], device);
        BatchNorm {
            weight: filled(1.0),
            bias: filled(0.0),
            running_mean: Buffer::new(filled(0.0)),
            running_var: Buffer::new(filled(1.0)),
            momentum: 0.1,
            epsilon: 1e-5,
            mode: Mode::default(),
        }
    }

    /// `[.., C]`, normalized.
    ///
    /// # Panics
    ///
    /// If there are other features, or, in training, fewer than two numbers a feature.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: &Tensor<D>) -> Tensor<D> {
        let features = self.weight.elements();
        let fits = D > 0 && x.dims()[D - 1] == features;
        assert!(fits, "BatchNorm of {features} features can't normalize {:?}", x.dims());
        let (mean, variance) = match self.mode {
            Mode::Evaluation => (self.running_mean.get(), self.running_var.get()),
            Mode::Training => {
                let count = x.elements() / features.max(1);
                assert!(count > 1, "BatchNorm can't be trained with one number a feature, as in {:?}", x.dims());
                let others: Vec<usize> = (0..D - 1).collect();
                let mean = x.mean_dims(&others);
                let centred = x - &mean;
                let variance = centred.square().mean_dims(&others);
                let unbiased = count as f32 / (count - 1) as f32;
                self.follow(&self.running_mean, &mean.reshape([features]), 1.0);
                self.follow(&self.running_var, &variance.reshape([features]), unbiased);
                return self.scaled(&centred, &variance.reshape([features]));
            }
        };
        self.scaled(&x.with_inner(Function::Sub, &mean), &variance)
    }

    fn scaled<const D: usize>(&self, centred: &Tensor<D>, variance: &Tensor<1>) -> Tensor<D> {
        let deviation = variance.with_constant(Function::Add, self.epsilon.into()).sqrt();
        let scale = &self.weight / &deviation;
        centred.with_inner(Function::Mul, &scale).with_inner(Function::Add, &self.bias)
    }

    /// Moves a running statistic toward `factor` times that of a batch.
    fn follow(&self, running: &Buffer<1>, batch: &Tensor<1>, factor: f32) {
        let momentum: f64 = self.momentum.into();
        let kept = running.get().with_constant(Function::Mul, 1.0 - momentum);
        running.set(&(kept + batch.detach().with_constant(Function::Mul, momentum * f64::from(factor))));
    }
}
