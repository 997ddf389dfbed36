//! Tensors that a forward pass replaces.

use std::sync::{Mutex, PoisonError};

use super::{Module, ModulePath, Visitor};
use crate::tensor::Tensor;

/// A tensor that goes with a module, is not trained, and that a forward pass may replace: running statistics.
///
/// What replaces it is recorded like everything else. The step of an optimizer computes it together with the new
/// parameters; without such a step, as when a network being trained is only looked at, the recorded updates pile
/// up: evaluate with [`Module::valid`], which leaves them out.
#[derive(Debug)]
pub struct Buffer<const D: usize>(Mutex<Tensor<D>>);

impl<const D: usize> Buffer<D> {
    /// One that begins as `tensor`.
    pub fn new(tensor: Tensor<D>) -> Buffer<D> {
        Buffer(Mutex::new(tensor.detach()))
    }

    /// What it is now.
    pub fn get(&self) -> Tensor<D> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces it. No gradient goes through a buffer.
    ///
    /// # Panics
    ///
    /// If the shape is another.
    #[track_caller]
    pub fn set(&self, tensor: &Tensor<D>) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(now.dims() == tensor.dims(), "a buffer of shape {:?} can't become {:?}", now.dims(), tensor.dims());
        *now = tensor.detach();
    }
}

impl<const D: usize> Clone for Buffer<D> {
    /// The same tensor in a buffer of its own: what one is set to does not show in the other.
    fn clone(&self) -> Buffer<D> {
        Buffer(Mutex::new(self.get()))
    }
}

impl<const D: usize> Module for Buffer<D> {
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V) {
        let tensor = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        visitor.buffer(path, tensor);
    }
}
