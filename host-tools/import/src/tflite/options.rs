//! Operator options: what an operator is told besides its tensors.

use super::dtype::DType;

/// How the border of an image is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Padding {
    /// The output is as large as the input divided by the stride, rounded up; missing taps are zero.
    Same,
    /// Only whole windows count.
    Valid,
}

/// The function applied to an operator's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// None.
    None,
    /// max(x, 0).
    Relu,
    /// x clamped to −1 … 1.
    ReluN1To1,
    /// x clamped to 0 … 6.
    Relu6,
    /// The hyperbolic tangent.
    Tanh,
    /// The sign.
    SignBit,
}

/// How the weights of a fully connected layer are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightsFormat {
    /// One row for each output.
    Default,
    /// In blocks for one particular CPU kernel.
    Shuffled4x16Int8,
}

/// What an operator is told besides its tensors.
///
/// Strides, dilations and window sizes are at least 1, numbers that are real are finite, and a subgraph named here
/// exists. Whether they suit the tensors is the conversion's business.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are the schema's, by its names")]
pub enum OpOptions<'a> {
    /// The operator has none that mean anything.
    None,
    /// The operator may have some, but they are not read.
    Other,
    /// A custom operator's, in its author's encoding; empty if it has none.
    Custom(&'a [u8]),
    Add {
        activation: Activation,
        pot_scale_int16: bool,
    },
    CallOnce {
        subgraph: usize,
    },
    Cast {
        from: DType,
        to: DType,
    },
    Concatenation {
        axis: i32,
        activation: Activation,
    },
    Conv2D {
        padding: Padding,
        stride_h: usize,
        stride_w: usize,
        dilation_h: usize,
        dilation_w: usize,
        activation: Activation,
    },
    /// `depth_multiplier` is redundant, and 0 in some files: output channels over input channels count.
    DepthwiseConv2D {
        padding: Padding,
        stride_h: usize,
        stride_w: usize,
        dilation_h: usize,
        dilation_w: usize,
        depth_multiplier: usize,
        activation: Activation,
    },
    Div {
        activation: Activation,
    },
    FullyConnected {
        activation: Activation,
        weights_format: WeightsFormat,
        keep_num_dims: bool,
        asymmetric_quantize_inputs: bool,
    },
    LeakyRelu {
        alpha: f32,
    },
    Mul {
        activation: Activation,
    },
    Pool2D {
        padding: Padding,
        stride_h: usize,
        stride_w: usize,
        filter_h: usize,
        filter_w: usize,
        activation: Activation,
    },
    Reducer {
        keep_dims: bool,
    },
    /// Dimensions of −1 or more; `None` where a second input gives the shape.
    Reshape {
        new_shape: Option<Vec<i32>>,
    },
    Softmax {
        beta: f32,
    },
    /// Bit i of a mask stands for dimension i.
    StridedSlice {
        begin_mask: i32,
        end_mask: i32,
        ellipsis_mask: i32,
        new_axis_mask: i32,
        shrink_axis_mask: i32,
        offset: bool,
    },
    Sub {
        activation: Activation,
        pot_scale_int16: bool,
    },
    Svdf {
        rank: usize,
        activation: Activation,
        asymmetric_quantize_inputs: bool,
    },
    TransposeConv {
        padding: Padding,
        stride_h: usize,
        stride_w: usize,
        activation: Activation,
    },
    /// A clip of 0 means none.
    UnidirectionalSequenceLstm {
        activation: Activation,
        cell_clip: f32,
        proj_clip: f32,
        time_major: bool,
        asymmetric_quantize_inputs: bool,
        diagonal_recurrent_tensors: bool,
    },
    VarHandle {
        container: &'a str,
        shared_name: &'a str,
    },
}
