//! Layers.
//!
//! Images are `[N, H, W, C]`, features are in the innermost axis everywhere. Weights are laid out as the operators
//! read them: fully connected `[O, I]` as in PyTorch, convolution `[O, KH, KW, I / groups]` (PyTorch's are
//! `[O, I / groups, KH, KW]`: permute them by 0, 2, 3, 1).
//!
//! A new layer draws its weights as PyTorch's does, from the device's random numbers: seed it first.

mod activation;
mod batch_norm;
mod conv2d;
mod dropout;
mod flatten;
mod init;
mod layer_norm;
mod linear;
mod pool;

pub use activation::Activation;
pub use batch_norm::BatchNorm;
pub use conv2d::Conv2d;
pub use dropout::Dropout;
pub use flatten::Flatten;
pub use init::{Init, kaiming_uniform};
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use pool::{AvgPool2d, MaxPool2d};
