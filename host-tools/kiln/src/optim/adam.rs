//! Adam.

use kiln_ops::Function;

use super::sgd::{decayed, number};
use super::update::{Rule, Updates, update};
use super::{Optimizer, Slots};
use crate::module::Counter;
use crate::{Device, Gradients, Module, Tensor};

/// How [`Adam`] and [`AdamW`] work.
#[derive(Module, Clone, Copy, PartialEq, Debug)]
pub struct AdamConfig {
    /// How much of the mean gradient is kept each step.
    pub beta1: f64,
    /// How much of the mean squared gradient is kept each step.
    pub beta2: f64,
    /// What keeps the divisor from 0.
    pub epsilon: f64,
    /// [`Adam`]: how much of the parameter is added to its gradient. [`AdamW`]: how much of the parameter, times
    /// the learning rate, is taken away.
    pub weight_decay: f64,
}

impl Default for AdamConfig {
    fn default() -> AdamConfig {
        AdamConfig { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }
}

/// Steps done, and the two means.
#[derive(Module, Clone, Debug)]
struct Moments {
    config: AdamConfig,
    steps: Counter,
    first: Slots,
    second: Slots,
}

impl Moments {
    fn new<M: Module>(config: AdamConfig, module: &M) -> Moments {
        Moments { config, steps: Counter(0), first: Slots::of(module), second: Slots::of(module) }
    }

    /// The learning rate over the first mean's bias, the square root of the second mean's bias, and what decoupled
    /// decay multiplies parameters by.
    fn numbers(&mut self, rate: f64, device: &Device) -> [Tensor<0>; 3] {
        self.steps.0 += 1;
        let AdamConfig { beta1, beta2, weight_decay, .. } = self.config;
        let done = self.steps.0 as f64;
        let (first, second) = (1.0 - beta1.powf(done), 1.0 - beta2.powf(done));
        [rate / first, second.sqrt(), 1.0 - rate * weight_decay].map(|value| number(value, device))
    }

    fn record<M: Module>(&mut self, numbers: &[Tensor<0>], module: &mut M, gradients: &Gradients) -> Updates {
        let (rate, correction, shrink) = match numbers {
            [rate, correction] => (rate, correction, None),
            [rate, correction, shrink] => (rate, correction, Some(shrink)),
            _ => unreachable!("counted by the optimizer"),
        };
        update(module, gradients, &mut Adapt { moments: self, rate, correction, shrink }).with(self)
    }
}

struct Adapt<'a> {
    moments: &'a mut Moments,
    rate: &'a Tensor<0>,
    correction: &'a Tensor<0>,
    shrink: Option<&'a Tensor<0>>,
}

impl Rule for Adapt<'_> {
    fn update<const D: usize>(&mut self, path: &str, w: &Tensor<D>, g: &Tensor<D>) -> Tensor<D> {
        let AdamConfig { beta1, beta2, epsilon, weight_decay } = self.moments.config;
        let (w, g) = match self.shrink {
            Some(shrink) => (w.with_inner(Function::Mul, shrink), g.clone()),
            None => (w.clone(), decayed(w, g, weight_decay)),
        };
        let mean = |old: Tensor<D>, new: &Tensor<D>, beta: f64| {
            old.with_constant(Function::Mul, beta) + new.with_constant(Function::Mul, 1.0 - beta)
        };
        let first = mean(self.moments.first.get(path, &w), &g, beta1);
        let second = mean(self.moments.second.get(path, &w), &g.square(), beta2);
        self.moments.first.set(path, &first.detach());
        self.moments.second.set(path, &second.detach());
        let divisor = second.sqrt().with_inner(Function::Div, self.correction).with_constant(Function::Add, epsilon);
        w - (first / divisor).with_inner(Function::Mul, self.rate)
    }
}

macro_rules! adams {
    ($($(#[$doc:meta])* $name:ident, $numbers:literal;)*) => {
        $($(#[$doc])*
        #[derive(Module, Clone, Debug)]
        pub struct $name(Moments);

        impl $name {
            /// For the parameters of `module`.
            pub fn new<M: Module>(config: AdamConfig, module: &M) -> $name {
                $name(Moments::new(config, module))
            }
        }

        impl Optimizer for $name {
            fn numbers(&mut self, learning_rate: f64, device: &Device) -> Vec<Tensor<0>> {
                self.0.numbers(learning_rate, device)[..$numbers].to_vec()
            }

            fn record<M: Module>(&mut self, numbers: &[Tensor<0>], module: &mut M, gradients: &Gradients) -> Updates {
                let (name, given) = (stringify!($name), numbers.len());
                assert!(given == $numbers, "{name}: {given} numbers a step, not {}", $numbers);
                self.0.record(numbers, module, gradients)
            }
        })*
    };
}

adams! {
    /// Adam (Kingma and Ba, 2015), by PyTorch's formulas: with `m` and `v` the running means of the gradient and of
    /// its square, `w -= rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)`.
    Adam, 2;
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): `w *= 1 - rate * decay` before each step of
    /// [`Adam`] without decay.
    AdamW, 3;
}
