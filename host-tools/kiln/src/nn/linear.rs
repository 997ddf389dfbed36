//! Fully connected layers.

use kiln_ops::{Activation, FullyConnected};

use super::kaiming_uniform;
use crate::tensor::record;
use crate::{Device, Module, Tensor};

/// A fully connected layer: `y = x W^T + b` along the innermost axis.
#[derive(Module, Clone, Debug)]
pub struct Linear {
    /// `[O, I]`.
    pub weight: Tensor<2>,
    /// `[O]`.
    pub bias: Option<Tensor<1>>,
}

impl Linear {
    /// A layer of `inputs` to `outputs` features with a bias.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize, device: &Device) -> Linear {
        let bias = kaiming_uniform(inputs);
        Linear { bias: Some(bias.parameter([outputs], device)), ..Linear::without_bias(inputs, outputs, device) }
    }

    /// A layer without a bias.
    #[track_caller]
    pub fn without_bias(inputs: usize, outputs: usize, device: &Device) -> Linear {
        Linear { weight: kaiming_uniform(inputs).parameter([outputs, inputs], device), bias: None }
    }

    /// `[.., I]` to `[.., O]`.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: &Tensor<D>) -> Tensor<D> {
        let op = FullyConnected { keep_dims: true, activation: Activation::None };
        let mut inputs = vec![x.node(), self.weight.node()];
        inputs.extend(self.bias.as_ref().map(Tensor::node));
        record(op, &inputs)
    }
}
