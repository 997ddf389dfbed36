//! From float32 to int8 by ranges that were observed: post-training quantization.
//!
//! The result follows TFLite's int8 specification: activations have one scale and zero point a tensor,
//! chosen so that 0 is exact; weights of convolutions and fully connected layers are symmetric with a
//! scale for each output channel, in -127 ..= 127; biases are int32 under the product of input and weight
//! scale; softmax and log-softmax have the scales that TFLite fixes; pools and operators that only move
//! elements keep their input's quantization.
//!
//! [`Calibration`] collects the ranges: whoever runs the float graph shows it every value.
//! [`quantize`] then makes the graph anew.

mod affine;
mod calibration;
mod error;
mod graph;
mod histogram;
mod rules;
mod weights;

pub use affine::affine;
pub use calibration::{Calibration, Method, Range};
pub use error::QuantizeError;
pub use graph::{KeptFloat, QuantizeOptions, Quantized, check, quantize};
