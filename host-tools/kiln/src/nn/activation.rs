//! Activations as layers.

use crate::{Module, Tensor};

/// A function of each element, where a network chooses it by a value rather than by calling it.
#[derive(Module, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x Phi(x)`, where Phi is the standard normal distribution.
    Gelu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// The same shape.
    pub fn forward<const D: usize>(&self, x: &Tensor<D>) -> Tensor<D> {
        match self {
            Activation::Relu => x.relu(),
            Activation::Gelu => x.gelu(),
            Activation::Sigmoid => x.sigmoid(),
            Activation::Tanh => x.tanh(),
        }
    }
}
