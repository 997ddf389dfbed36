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

use crate::{Error, Gradients, Module};

/// What moves parameters along their gradients. Its state is a module's: it is saved, loaded and moved as one.
pub trait Optimizer: Module {
    /// Replaces each parameter of `module` that has a gradient, and computes the new ones, this optimizer's state,
    /// the module's buffers, and the number that the gradients are of, if a tensor of it is still held.
    ///
    /// # Errors
    ///
    /// [`Error`] if the device has no memory. The step is recorded then, and not computed.
    ///
    /// # Panics
    ///
    /// If a parameter's shape is not the one that the optimizer was made for.
    fn step<M: Module>(&mut self, learning_rate: f64, module: &mut M, gradients: &Gradients) -> Result<(), Error>;
}
