//! The network.

use kiln::nn::{Conv2d, Dropout, Linear};
use kiln::{ConvOptions, Device, Module, Tensor};

/// Three convolutions and a fully connected layer, 13,898 parameters: small enough for a microcontroller.
#[derive(Module, Clone, Debug)]
pub struct Cnn {
    conv1: Conv2d,
    conv2: Conv2d,
    conv3: Conv2d,
    dropout: Dropout,
    scores: Linear,
}

impl Cnn {
    /// A network with random weights.
    pub fn new(device: &Device) -> Cnn {
        let padded = ConvOptions { padding: [1; 4], ..ConvOptions::default() };
        let halving = ConvOptions { stride: [2, 2], ..padded };
        Cnn {
            conv1: Conv2d::with_options([1, 8], [3, 3], halving, device),
            conv2: Conv2d::with_options([8, 16], [3, 3], padded, device),
            conv3: Conv2d::new([16, 32], [3, 3], device),
            dropout: Dropout::new(0.2),
            scores: Linear::new(5 * 5 * 32, 10, device),
        }
    }

    /// Scores `[N, 10]` of images `[N, 28, 28, 1]` with pixels from 0 to 1.
    pub fn forward(&self, images: &Tensor<4>) -> Tensor<2> {
        let x = self.conv1.forward(images).relu();
        let x = self.conv2.forward(&x).relu().max_pool2d([2, 2], [2, 2], [0; 4]);
        let x = self.conv3.forward(&x).relu().flatten(1, 3);
        self.scores.forward(&self.dropout.forward(&x))
    }
}
