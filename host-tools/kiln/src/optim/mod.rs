//! Optimizers.
//!
//! A step records every parameter's new value and state, and computes them together: one plan, the same at every
//! step. What changes from step to step, the learning rate and what depends on the number of steps, is an input of
//! that plan.

mod adam;
pub mod schedule;
mod sgd;
mod slots;
mod update;

pub use adam::{Adam, AdamConfig, AdamW};
pub use sgd::{Sgd, SgdConfig};
pub use slots::Slots;

pub use update::Updates;

use std::borrow::Borrow;

use crate::realize::Purpose;
use crate::{Device, Error, Gradients, Module, Tensor};

/// What moves parameters along their gradients. Its state is a module's: it is saved, loaded and moved as one.
///
/// ```
/// use kiln::nn::Linear;
/// use kiln::optim::{Optimizer, Sgd, SgdConfig};
/// use kiln::{Device, Tensor};
///
/// let device = Device::cpu();
/// let mut layer = Linear::new(2, 1, &device);
/// let mut sgd = Sgd::new(SgdConfig { momentum: 0.9, ..SgdConfig::default() }, &layer);
/// let x = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, -1.0]], &device);
/// let y = Tensor::<2>::from_floats([[5.0], [1.0]], &device);
/// let mut losses = Vec::new();
/// for _ in 0..50 {
///     let loss = (layer.forward(&x) - y.clone()).square().mean();
///     let gradients = loss.backward()?;
///     sgd.step(0.02, &mut layer, gradients)?;
///     losses.push(loss.into_scalar()?);
/// }
/// assert!(losses[49] < 0.01 * losses[0]);
/// # Ok::<(), kiln::Error>(())
/// ```
pub trait Optimizer: Module {
    /// Counts a step, and gives the numbers that are other ones at each: the learning rate, and what depends on how
    /// many steps were done. They are inputs of the plan.
    fn numbers(&mut self, learning_rate: f64, device: &Device) -> Vec<Tensor<0>>;

    /// Records a step with these [numbers](Optimizer::numbers) and computes nothing: replaces each parameter of
    /// `module` that has a gradient, and this optimizer's state.
    ///
    /// # Panics
    ///
    /// If there are other numbers, or a parameter has another shape than the optimizer was made for.
    fn record<M: Module>(&mut self, numbers: &[Tensor<0>], module: &mut M, gradients: &Gradients) -> Updates;

    /// Replaces each parameter of `module` that has a gradient, and computes the new ones, this optimizer's state,
    /// the module's buffers, and the number that the gradients are of, if a tensor of it is still held.
    ///
    /// Gradients given by value are given away, with all that was recorded up to them: then the new parameters and the
    /// new state are written over the old ones, which takes the least memory. A tensor, or a clone of the module, that
    /// is held outside keeps its numbers. What was computed on the way keeps its numbers too, but no gradient can be
    /// asked for through it any more ([`Error::Spent`]). With `&gradients` everything stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error`] if the device has no memory. The step is recorded then, and not computed.
    ///
    /// # Panics
    ///
    /// If a parameter has another shape than the optimizer was made for.
    fn step<M: Module>(
        &mut self,
        learning_rate: f64,
        module: &mut M,
        gradients: impl StepGradients,
    ) -> Result<(), Error> {
        let numbers = self.numbers(learning_rate, gradients.borrow().device());
        gradients.update(|gradients| self.record(&numbers, module, gradients))
    }
}

/// The gradients of a step: `&gradients`, or `gradients` given away.
pub trait StepGradients: Borrow<Gradients> + Sized {
    /// Computes what `record` makes of them.
    fn update(self, record: impl FnOnce(&Gradients) -> Updates) -> Result<(), Error>;
}

impl StepGradients for &Gradients {
    fn update(self, record: impl FnOnce(&Gradients) -> Updates) -> Result<(), Error> {
        record(self).compute()
    }
}

impl StepGradients for Gradients {
    fn update(self, record: impl FnOnce(&Gradients) -> Updates) -> Result<(), Error> {
        let updates = record(&self);
        drop(self);
        updates.compute_as(Purpose::Spend)
    }
}
