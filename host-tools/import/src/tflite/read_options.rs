//! How an operator's options are read from the schema's tables.

use super::dtype::DType;
use super::error::{Place, TfliteError};
use super::file::outside;
use super::operator::{Context, OpName};
use super::options::{Activation, OpOptions, Padding, WeightsFormat};
use super::schema::{self, ActivationFunctionType, BuiltinOperator};

impl<'a> OpOptions<'a> {
    /// Whether the options of this operator are read, or known to say nothing.
    pub(super) fn reads(code: BuiltinOperator) -> bool {
        without_options(code) || with_options(code)
    }

    pub(super) fn read(
        source: schema::Operator<'a>,
        name: OpName<'a>,
        context: Context<'_, 'a>,
        place: Place<'_>,
    ) -> Result<Self, TfliteError> {
        match name {
            OpName::Custom(_) => read_custom(source, context.bytes, place).map(OpOptions::Custom),
            OpName::Unknown(_) => Ok(OpOptions::Other),
            OpName::Builtin { code, .. } => {
                let code = BuiltinOperator(code);
                if without_options(code) {
                    Ok(OpOptions::None)
                } else if with_options(code) {
                    Reader { source, place }.read(code, context)
                } else {
                    Ok(OpOptions::Other)
                }
            }
        }
    }
}

/// Operators whose options table is empty or absent.
fn without_options(code: BuiltinOperator) -> bool {
    type B = BuiltinOperator;
    #[rustfmt::skip]
    let listed = matches!(
        code,
        B::ABS | B::ASSIGN_VARIABLE | B::CEIL | B::COS | B::DEQUANTIZE | B::ELU | B::EXP | B::EXPAND_DIMS | B::FLOOR
        | B::HARD_SWISH | B::LOG | B::LOGISTIC | B::LOG_SOFTMAX | B::MAXIMUM | B::MINIMUM | B::NEG | B::PAD | B::PADV2
        | B::PRELU | B::QUANTIZE | B::READ_VARIABLE | B::RELU | B::RELU6 | B::RELU_0_TO_1 | B::RELU_N1_TO_1 | B::ROUND
        | B::RSQRT | B::SIN | B::SQRT | B::SQUARE | B::SQUARED_DIFFERENCE | B::TANH | B::TRANSPOSE
    );
    listed
}

/// Operators that [`Reader::read`] has an arm for.
fn with_options(code: BuiltinOperator) -> bool {
    type B = BuiltinOperator;
    #[rustfmt::skip]
    let listed = matches!(
        code,
        B::ADD | B::AVERAGE_POOL_2D | B::CALL_ONCE | B::CAST | B::CONCATENATION | B::CONV_2D | B::DEPTHWISE_CONV_2D | B::DIV
        | B::FULLY_CONNECTED | B::LEAKY_RELU | B::MAX_POOL_2D | B::MEAN | B::MUL | B::REDUCE_MAX | B::REDUCE_MIN
        | B::RESHAPE | B::SOFTMAX | B::STRIDED_SLICE | B::SUB | B::SUM | B::SVDF | B::TRANSPOSE_CONV
        | B::UNIDIRECTIONAL_SEQUENCE_LSTM | B::VAR_HANDLE
    );
    listed
}

fn read_custom<'a>(source: schema::Operator<'a>, bytes: &'a [u8], place: Place<'_>) -> Result<&'a [u8], TfliteError> {
    let inside = source.custom_options().map(|options| options.bytes()).unwrap_or_default();
    if !inside.is_empty() {
        return Ok(inside);
    }
    let (offset, size) = (source.large_custom_options_offset(), source.large_custom_options_size());
    Ok(outside(bytes, offset, size, || place.describe())?.unwrap_or_default())
}

/// Reads one builtin operator's options.
struct Reader<'p, 'a> {
    source: schema::Operator<'a>,
    place: Place<'p>,
}

/// The options of table `$table`; where the file has none, `$missing`.
macro_rules! table {
    ($reader:ident, $accessor:ident, $table:ident) => {
        match $reader.source.$accessor() {
            Some(options) => options,
            None => return Err($reader.absent(stringify!($table))),
        }
    };
    ($reader:ident, $accessor:ident, $table:ident or $missing:expr) => {
        match $reader.source.$accessor() {
            Some(options) => options,
            None if $reader.source.builtin_options_type() == schema::BuiltinOptions::NONE => return Ok($missing),
            None => return Err($reader.absent(stringify!($table))),
        }
    };
}

impl<'a> Reader<'_, 'a> {
    fn read(&self, code: BuiltinOperator, context: Context<'_, 'a>) -> Result<OpOptions<'a>, TfliteError> {
        type B = BuiltinOperator;
        Ok(match code {
            B::ADD => {
                let absent = OpOptions::Add { activation: Activation::None, pot_scale_int16: true };
                let o = table!(self, builtin_options_as_add_options, AddOptions or absent);
                let activation = self.activation(o.fused_activation_function())?;
                OpOptions::Add { activation, pot_scale_int16: o.pot_scale_int16() }
            }
            B::SUB => {
                let absent = OpOptions::Sub { activation: Activation::None, pot_scale_int16: true };
                let o = table!(self, builtin_options_as_sub_options, SubOptions or absent);
                let activation = self.activation(o.fused_activation_function())?;
                OpOptions::Sub { activation, pot_scale_int16: o.pot_scale_int16() }
            }
            B::MUL => {
                let absent = OpOptions::Mul { activation: Activation::None };
                let o = table!(self, builtin_options_as_mul_options, MulOptions or absent);
                OpOptions::Mul { activation: self.activation(o.fused_activation_function())? }
            }
            B::DIV => {
                let absent = OpOptions::Div { activation: Activation::None };
                let o = table!(self, builtin_options_as_div_options, DivOptions or absent);
                OpOptions::Div { activation: self.activation(o.fused_activation_function())? }
            }
            B::CALL_ONCE => {
                let o = table!(self, builtin_options_as_call_once_options, CallOnceOptions);
                let index = o.init_subgraph_index();
                match usize::try_from(index) {
                    Ok(subgraph) if subgraph < context.subgraphs => OpOptions::CallOnce { subgraph },
                    _ => {
                        return Err(TfliteError::Index {
                            place: self.place.describe(),
                            what: "subgraph",
                            index: index.into(),
                            count: context.subgraphs,
                        });
                    }
                }
            }
            B::CAST => {
                // Converters leave the options out: the tensors say the same.
                let o = table!(self, builtin_options_as_cast_options, CastOptions or OpOptions::None);
                OpOptions::Cast { from: DType::new(o.in_data_type()), to: DType::new(o.out_data_type()) }
            }
            B::CONCATENATION => {
                let o = table!(self, builtin_options_as_concatenation_options, ConcatenationOptions);
                OpOptions::Concatenation { axis: o.axis(), activation: self.activation(o.fused_activation_function())? }
            }
            B::CONV_2D => {
                let o = table!(self, builtin_options_as_conv_2_doptions, Conv2DOptions);
                OpOptions::Conv2D {
                    padding: self.padding(o.padding())?,
                    stride_h: self.at_least_one("stride_h", o.stride_h())?,
                    stride_w: self.at_least_one("stride_w", o.stride_w())?,
                    dilation_h: self.at_least_one("dilation_h_factor", o.dilation_h_factor())?,
                    dilation_w: self.at_least_one("dilation_w_factor", o.dilation_w_factor())?,
                    activation: self.activation(o.fused_activation_function())?,
                }
            }
            B::DEPTHWISE_CONV_2D => {
                let o = table!(self, builtin_options_as_depthwise_conv_2_doptions, DepthwiseConv2DOptions);
                OpOptions::DepthwiseConv2D {
                    padding: self.padding(o.padding())?,
                    stride_h: self.at_least_one("stride_h", o.stride_h())?,
                    stride_w: self.at_least_one("stride_w", o.stride_w())?,
                    dilation_h: self.at_least_one("dilation_h_factor", o.dilation_h_factor())?,
                    dilation_w: self.at_least_one("dilation_w_factor", o.dilation_w_factor())?,
                    depth_multiplier: self.at_least("depth_multiplier", o.depth_multiplier(), 0)?,
                    activation: self.activation(o.fused_activation_function())?,
                }
            }
            B::TRANSPOSE_CONV => {
                let o = table!(self, builtin_options_as_transpose_conv_options, TransposeConvOptions);
                OpOptions::TransposeConv {
                    padding: self.padding(o.padding())?,
                    stride_h: self.at_least_one("stride_h", o.stride_h())?,
                    stride_w: self.at_least_one("stride_w", o.stride_w())?,
                    activation: self.activation(o.fused_activation_function())?,
                }
            }
            B::AVERAGE_POOL_2D | B::MAX_POOL_2D => {
                let o = table!(self, builtin_options_as_pool_2_doptions, Pool2DOptions);
                OpOptions::Pool2D {
                    padding: self.padding(o.padding())?,
                    stride_h: self.at_least_one("stride_h", o.stride_h())?,
                    stride_w: self.at_least_one("stride_w", o.stride_w())?,
                    filter_h: self.at_least_one("filter_height", o.filter_height())?,
                    filter_w: self.at_least_one("filter_width", o.filter_width())?,
                    activation: self.activation(o.fused_activation_function())?,
                }
            }
            B::FULLY_CONNECTED => {
                let o = table!(self, builtin_options_as_fully_connected_options, FullyConnectedOptions);
                OpOptions::FullyConnected {
                    activation: self.activation(o.fused_activation_function())?,
                    weights_format: self.weights_format(o.weights_format())?,
                    keep_num_dims: o.keep_num_dims(),
                    asymmetric_quantize_inputs: o.asymmetric_quantize_inputs(),
                }
            }
            B::LEAKY_RELU => {
                let o = table!(self, builtin_options_as_leaky_relu_options, LeakyReluOptions);
                OpOptions::LeakyRelu { alpha: self.finite("alpha", o.alpha())? }
            }
            B::MEAN | B::REDUCE_MAX | B::REDUCE_MIN | B::SUM => {
                let o = table!(self, builtin_options_as_reducer_options, ReducerOptions);
                OpOptions::Reducer { keep_dims: o.keep_dims() }
            }
            B::RESHAPE => {
                let absent = OpOptions::Reshape { new_shape: None };
                let o = table!(self, builtin_options_as_reshape_options, ReshapeOptions or absent);
                OpOptions::Reshape { new_shape: self.new_shape(o.new_shape())? }
            }
            B::SOFTMAX => {
                let o = table!(self, builtin_options_as_softmax_options, SoftmaxOptions);
                OpOptions::Softmax { beta: self.finite("beta", o.beta())? }
            }
            B::STRIDED_SLICE => {
                let o = table!(self, builtin_options_as_strided_slice_options, StridedSliceOptions);
                OpOptions::StridedSlice {
                    begin_mask: o.begin_mask(),
                    end_mask: o.end_mask(),
                    ellipsis_mask: o.ellipsis_mask(),
                    new_axis_mask: o.new_axis_mask(),
                    shrink_axis_mask: o.shrink_axis_mask(),
                    offset: o.offset(),
                }
            }
            B::SVDF => {
                let o = table!(self, builtin_options_as_svdfoptions, SVDFOptions);
                OpOptions::Svdf {
                    rank: self.at_least_one("rank", o.rank())?,
                    activation: self.activation(o.fused_activation_function())?,
                    asymmetric_quantize_inputs: o.asymmetric_quantize_inputs(),
                }
            }
            B::UNIDIRECTIONAL_SEQUENCE_LSTM => {
                let o = table!(
                    self,
                    builtin_options_as_unidirectional_sequence_lstmoptions,
                    UnidirectionalSequenceLSTMOptions
                );
                OpOptions::UnidirectionalSequenceLstm {
                    activation: self.activation(o.fused_activation_function())?,
                    cell_clip: self.finite("cell_clip", o.cell_clip())?,
                    proj_clip: self.finite("proj_clip", o.proj_clip())?,
                    time_major: o.time_major(),
                    asymmetric_quantize_inputs: o.asymmetric_quantize_inputs(),
                    diagonal_recurrent_tensors: o.diagonal_recurrent_tensors(),
                }
            }
            B::VAR_HANDLE => {
                let o = table!(self, builtin_options_as_var_handle_options, VarHandleOptions);
                OpOptions::VarHandle {
                    container: o.container().unwrap_or_default(),
                    shared_name: o.shared_name().unwrap_or_default(),
                }
            }
            _ => OpOptions::Other,
        })
    }

    fn wrong(&self, detail: String) -> TfliteError {
        TfliteError::Options { place: self.place.describe(), detail }
    }

    fn absent(&self, table: &str) -> TfliteError {
        self.wrong(match self.source.builtin_options_type() {
            schema::BuiltinOptions::NONE => format!("{table} is missing"),
            other => format!("{} in place of {table}", other.variant_name().unwrap_or("another operator's options")),
        })
    }

    fn at_least(&self, what: &str, value: i32, least: i32) -> Result<usize, TfliteError> {
        usize::try_from(value)
            .ok()
            .filter(|_| value >= least)
            .ok_or_else(|| self.wrong(format!("{what} is {value}, expected {least} or more")))
    }

    fn at_least_one(&self, what: &str, value: i32) -> Result<usize, TfliteError> {
        self.at_least(what, value, 1)
    }

    fn finite(&self, what: &str, value: f32) -> Result<f32, TfliteError> {
        if value.is_finite() { Ok(value) } else { Err(self.wrong(format!("{what} is {value}"))) }
    }

    fn padding(&self, padding: schema::Padding) -> Result<Padding, TfliteError> {
        match padding {
            schema::Padding::SAME => Ok(Padding::Same),
            schema::Padding::VALID => Ok(Padding::Valid),
            other => Err(self.wrong(format!("padding {} is not known", other.0))),
        }
    }

    fn activation(&self, activation: ActivationFunctionType) -> Result<Activation, TfliteError> {
        match activation {
            ActivationFunctionType::NONE => Ok(Activation::None),
            ActivationFunctionType::RELU => Ok(Activation::Relu),
            ActivationFunctionType::RELU_N1_TO_1 => Ok(Activation::ReluN1To1),
            ActivationFunctionType::RELU6 => Ok(Activation::Relu6),
            ActivationFunctionType::TANH => Ok(Activation::Tanh),
            ActivationFunctionType::SIGN_BIT => Ok(Activation::SignBit),
            other => Err(self.wrong(format!("activation {} is not known", other.0))),
        }
    }

    fn weights_format(&self, format: schema::FullyConnectedOptionsWeightsFormat) -> Result<WeightsFormat, TfliteError> {
        match format {
            schema::FullyConnectedOptionsWeightsFormat::DEFAULT => Ok(WeightsFormat::Default),
            schema::FullyConnectedOptionsWeightsFormat::SHUFFLED4x16INT8 => Ok(WeightsFormat::Shuffled4x16Int8),
            other => Err(self.wrong(format!("weights format {} is not known", other.0))),
        }
    }

    fn new_shape(&self, shape: Option<flatbuffers::Vector<'_, i32>>) -> Result<Option<Vec<i32>>, TfliteError> {
        let Some(shape) = shape else { return Ok(None) };
        match shape.iter().find(|&dim| dim < -1) {
            Some(dim) => Err(self.wrong(format!("new_shape has a dimension of {dim}, expected -1 or more"))),
            None => Ok(Some(shape.iter().collect())),
        }
    }
}
