//! Convolution and pooling of images `[N, H, W, C]`.

use kiln_ops::{Activation, Conv2d, Pool2d, PoolKind};

use super::{Float, Tensor, record};

/// The geometry of a convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConvOptions {
    /// Steps between windows: height, width.
    pub stride: [usize; 2],
    /// Padding: top, left, bottom, right.
    pub padding: [usize; 4],
    /// Distance between taps: height, width.
    pub dilation: [usize; 2],
    /// Groups of channels that do not see each other.
    pub groups: usize,
}

impl Default for ConvOptions {
    fn default() -> ConvOptions {
        ConvOptions { stride: [1, 1], padding: [0; 4], dilation: [1, 1], groups: 1 }
    }
}

fn narrow<const N: usize>(values: [usize; N]) -> [u32; N] {
    values.map(|v| u32::try_from(v).unwrap_or(u32::MAX))
}

impl Tensor<4, Float> {
    /// A convolution with weights `[O, KH, KW, C / groups]` and, if there is one, a bias `[O]`.
    #[track_caller]
    pub fn conv2d(
        &self,
        weights: &Tensor<4, Float>,
        bias: Option<&Tensor<1, Float>>,
        options: ConvOptions,
    ) -> Tensor<4, Float> {
        let op = Conv2d {
            strides: narrow(options.stride),
            dilations: narrow(options.dilation),
            pads: narrow(options.padding),
            groups: narrow([options.groups])[0],
            activation: Activation::None,
        };
        let mut inputs = vec![self.node(), weights.node()];
        inputs.extend(bias.map(|bias| bias.node()));
        record(op, &inputs)
    }

    /// The largest element of each window.
    #[track_caller]
    pub fn max_pool2d(&self, kernel: [usize; 2], stride: [usize; 2], padding: [usize; 4]) -> Tensor<4, Float> {
        self.pool2d(PoolKind::Max, kernel, stride, padding)
    }

    /// The mean of each window; padding does not count.
    #[track_caller]
    pub fn avg_pool2d(&self, kernel: [usize; 2], stride: [usize; 2], padding: [usize; 4]) -> Tensor<4, Float> {
        self.pool2d(PoolKind::Average, kernel, stride, padding)
    }

    #[track_caller]
    fn pool2d(&self, kind: PoolKind, kernel: [usize; 2], stride: [usize; 2], padding: [usize; 4]) -> Tensor<4, Float> {
        let op = Pool2d {
            kind,
            kernel: narrow(kernel),
            strides: narrow(stride),
            pads: narrow(padding),
            activation: Activation::None,
        };
        record(op, &[self.node()])
    }
}
