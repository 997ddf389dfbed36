//! Stochastic gradient descent.

use kiln_ops::Function;

use super::update::{Rule, Updates, update};
use super::{Optimizer, Slots};
use crate::{Device, Gradients, Module, Tensor};

/// How [`Sgd`] works; without anything it is `w - rate * gradient`.
#[derive(Module, Clone, Copy, PartialEq, Debug, Default)]
pub struct SgdConfig {
    /// How much of the last step goes into the next.
    pub momentum: f64,
    /// Nesterov's momentum: looks one step ahead.
    pub nesterov: bool,
    /// How much of the parameter is added to its gradient.
    pub weight_decay: f64,
}

/// Stochastic gradient descent, by PyTorch's formulas:
/// `g += decay * w; v = momentum * v + g; w -= rate * v`, with Nesterov's momentum `w -= rate * (g + momentum * v)`.
#[derive(Module, Clone, Debug)]
pub struct Sgd {
    config: SgdConfig,
    velocity: Slots,
}

impl Sgd {
    /// For the parameters of `module`.
    pub fn new<M: Module>(config: SgdConfig, module: &M) -> Sgd {
        let velocity = if config.momentum == 0.0 { Slots::default() } else { Slots::of(module) };
        Sgd { config, velocity }
    }
}

impl Optimizer for Sgd {
    fn numbers(&mut self, learning_rate: f64, device: &Device) -> Vec<Tensor<0>> {
        vec![number(learning_rate, device)]
    }

    fn record<M: Module>(&mut self, numbers: &[Tensor<0>], module: &mut M, gradients: &Gradients) -> Updates {
        let [rate] = numbers else { panic!("Sgd: {} numbers a step, not 1", numbers.len()) };
        update(module, gradients, &mut Descend { sgd: self, rate }).with(self)
    }
}

/// A number of this step as an input of its plan.
pub(super) fn number(value: f64, device: &Device) -> Tensor<0> {
    Tensor::from_slice(&[value as f32], [], device)
}

/// `g + decay * w`.
pub(super) fn decayed<const D: usize>(w: &Tensor<D>, g: &Tensor<D>, decay: f64) -> Tensor<D> {
    if decay == 0.0 { g.clone() } else { g + &w.with_constant(Function::Mul, decay) }
}

struct Descend<'a> {
    sgd: &'a mut Sgd,
    rate: &'a Tensor<0>,
}

impl Rule for Descend<'_> {
    fn update<const D: usize>(&mut self, path: &str, w: &Tensor<D>, g: &Tensor<D>) -> Tensor<D> {
        let SgdConfig { momentum, nesterov, weight_decay } = self.sgd.config;
        let g = decayed(w, g, weight_decay);
        let direction = if momentum == 0.0 {
            g
        } else {
            let old = self.sgd.velocity.get(path, w);
            let velocity = old.with_constant(Function::Mul, momentum) + g.clone();
            self.sgd.velocity.set(path, &velocity.detach());
            if nesterov { g + velocity.with_constant(Function::Mul, momentum) } else { velocity }
        };
        w - &direction.with_inner(Function::Mul, self.rate)
    }
}
