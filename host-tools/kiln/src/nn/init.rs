//! Initial weights.

use kiln_ops::Distribution;

use crate::{Device, Tensor};

/// What a new parameter is filled with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Init {
    /// One number everywhere.
    Constant(f32),
    /// Evenly in `-bound <= x < bound`.
    Uniform {
        /// The bound.
        bound: f32,
    },
    /// The normal distribution around 0.
    Normal {
        /// The standard deviation.
        deviation: f32,
    },
}

/// Kaiming's uniform initialization as PyTorch uses it for fully connected and convolutional layers, weights and
/// biases: evenly within `1 / sqrt(fan_in)`, where `fan_in` is how many numbers each output is a sum over.
/// (He et al., "Delving deep into rectifiers", 2015, with a leaky rectifier of slope `sqrt(5)`.)
pub fn kaiming_uniform(fan_in: usize) -> Init {
    Init::Uniform { bound: if fan_in == 0 { 0.0 } else { 1.0 / (fan_in as f32).sqrt() } }
}

impl Init {
    /// A new parameter, computed at once: otherwise the first step of training would be a plan of its own.
    ///
    /// # Panics
    ///
    /// If the device has no memory for it.
    #[track_caller]
    pub fn parameter<const D: usize>(self, dims: [usize; D], device: &Device) -> Tensor<D> {
        let random = |distribution| Tensor::<D>::random(dims, distribution, device);
        let tensor = match self {
            Init::Constant(value) => Tensor::from_slice(&vec![value; dims.iter().product()], dims, device),
            Init::Uniform { bound } => random(Distribution::Uniform) * (2.0 * bound) - bound,
            Init::Normal { deviation } => random(Distribution::Normal) * deviation,
        };
        if let Err(error) = tensor.realize() {
            panic!("a parameter of shape {dims:?}: {error}");
        }
        tensor.require_grad()
    }
}
