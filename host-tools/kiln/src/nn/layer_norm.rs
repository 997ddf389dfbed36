//! Layer normalization.

use kiln_ops::Function;

use super::Init;
use crate::{Device, Module, Tensor};

/// Layer normalization along the innermost axis (Ba et al., 2016):
/// `(x - mean) / sqrt(variance + epsilon) * weight + bias`, with the mean and the biased variance of each row.
#[derive(Module, Clone, Debug)]
pub struct LayerNorm {
    /// `[C]`.
    pub weight: Tensor<1>,
    /// `[C]`.
    pub bias: Tensor<1>,
    /// What keeps the divisor from 0.
    pub epsilon: f32,
}

impl LayerNorm {
    /// A layer for `features` with epsilon 1e-5.
    #[track_caller]
    pub fn new(features: usize, device: &Device) -> LayerNorm {
        let filled = |value| Init::Constant(value).parameter([features], device);
        LayerNorm { weight: filled(1.0), bias: filled(0.0), epsilon: 1e-5 }
    }

    /// `[.., C]`, normalized.
    ///
    /// # Panics
    ///
    /// If there are other features.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: &Tensor<D>) -> Tensor<D> {
        let features = self.weight.elements();
        let fits = D > 0 && x.dims()[D - 1] == features;
        assert!(fits, "LayerNorm of {features} features can't normalize {:?}", x.dims());
        let centred = x - &x.mean_dim(D - 1);
        let variance = centred.square().mean_dim(D - 1);
        let deviation = variance.with_constant(Function::Add, self.epsilon.into()).sqrt();
        (centred / deviation).with_inner(Function::Mul, &self.weight).with_inner(Function::Add, &self.bias)
    }
}
