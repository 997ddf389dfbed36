//! Convolutional layers.

use super::kaiming_uniform;
use crate::tensor::ConvOptions;
use crate::{Device, Module, Tensor};

/// A convolution of images `[N, H, W, I]`.
#[derive(Module, Clone, Debug)]
pub struct Conv2d {
    /// `[O, KH, KW, I / groups]`.
    pub weight: Tensor<4>,
    /// `[O]`.
    pub bias: Option<Tensor<1>>,
    /// Stride, padding, dilation and groups.
    #[module(skip)]
    pub options: ConvOptions,
}

impl Conv2d {
    /// A layer of `[inputs, outputs]` channels with a kernel of `[height, width]` and a bias, which moves by 1 and
    /// pads nothing.
    #[track_caller]
    pub fn new(channels: [usize; 2], kernel: [usize; 2], device: &Device) -> Conv2d {
        Conv2d::with_options(channels, kernel, ConvOptions::default(), device)
    }

    /// A layer with this stride, padding, dilation and groups.
    ///
    /// # Panics
    ///
    /// If there are no groups, or they do not divide the channels.
    #[track_caller]
    pub fn with_options(
        [inputs, outputs]: [usize; 2],
        [height, width]: [usize; 2],
        options: ConvOptions,
        device: &Device,
    ) -> Conv2d {
        let groups = options.groups;
        assert!(
            groups > 0 && inputs.is_multiple_of(groups) && outputs.is_multiple_of(groups),
            "Conv2d: {groups} groups don't divide {inputs} input and {outputs} output channels"
        );
        let init = kaiming_uniform(height * width * inputs / groups);
        let weight = init.parameter([outputs, height, width, inputs / groups], device);
        Conv2d { weight, bias: Some(init.parameter([outputs], device)), options }
    }

    /// `[N, H, W, I]` to `[N, H', W', O]`.
    #[track_caller]
    pub fn forward(&self, x: &Tensor<4>) -> Tensor<4> {
        x.conv2d(&self.weight, self.bias.as_ref(), self.options)
    }
}
