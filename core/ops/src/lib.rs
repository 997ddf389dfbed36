//! Kiln's operators, each declared once.
//!
//! An operator is one file: the attribute struct, the rule for the output's type, the memory
//! effect, the cost, and a plain scalar reference that shares no code with the kernels that are
//! meant to be fast. One line in the list `operators!` below gives it the opcode and makes it part of
//! [`Op`], of the graph's encoding and of the test matrix. Element-by-element operators need even
//! less: one row in [`elementwise`].
//!
//! Spatial operators are NHWC; convolution weights are OHWI. Integers are quantized as TFLite
//! quantizes them: `real = scale * (value - zero_point)`, a dtype with parameters, never a
//! parallel family of operators. References for int8 equal TensorFlow Lite Micro's reference
//! kernels bit for bit.

#![cfg_attr(not(test), no_std)]

mod activation;
mod arg;
mod average_pool2d_part;
mod broadcast;
#[cfg(feature = "host")]
mod build;
mod conv2d;
mod conv2d_grad;
mod copy;
mod dequantize;
pub mod elementwise;
mod error;
mod fully_connected;
mod fused;
mod log_softmax;
mod map;
mod matmul;
mod operator;
mod pool2d;
mod pool2d_grad;
mod quantize;
mod random;
mod reduce;
mod reshape;
mod slice;
mod softmax;
mod spatial;
mod transpose;
mod words;

pub use activation::Activation;
pub use arg::{Arg, ArgMut, QuantRef};
pub use average_pool2d_part::AveragePool2dPart;
pub use broadcast::{Expand, broadcast, position, strides};
#[cfg(feature = "host")]
pub use build::{Build, Differential, Gradients};
pub use conv2d::{Conv2d, channel_multiplier};
pub use conv2d_grad::{Conv2dInputGrad, Conv2dWeightGrad};
pub use copy::Copy;
pub use dequantize::Dequantize;
pub use elementwise::Add;
pub use error::OpError;
pub use fully_connected::{FullyConnected, output_multiplier};
pub use fused::{Fused, Instruction, MAX_INPUTS, MAX_VALUES, Program};
pub use log_softmax::{LOG_SOFTMAX_OUTPUT, LogSoftmax, LogSoftmaxScaling};
pub use map::{Function, Map, Signature};
pub use matmul::{MatMul, MatMulSizes};
pub use operator::{Coded, Cost, Effect, Operator};
pub use pool2d::{Pool2d, PoolKind};
pub use pool2d_grad::{AveragePool2dGrad, MaxPool2dGrad, MaxPool2dPick};
pub use quantize::Quantize;
pub use random::{Distribution, PHILOX_ROUNDS, Random, numbers, philox, philox_key, philox_round};
pub use reduce::{ArgMax, Reduce, ReduceKind};
pub use reshape::Reshape;
pub use slice::{Cast, Concat, Scatter, Slice};
pub use softmax::Softmax;
pub use spatial::{Window2d, same_padding};
pub use transpose::Transpose;
pub use words::{Reader, Words, Writer};

use kiln_core::TensorType;

/// Makes [`Op`] out of the list: variant, opcode, dispatch.
macro_rules! operators {
    ($($(#[$doc:meta])* $code:literal => $name:ident,)*) => {
        /// An operator with its attributes.
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub enum Op {
            $($(#[$doc])* $name($name),)*
        }

        impl Op {
            /// Every opcode with its operator's name, in the order of the list.
            pub const ALL: &'static [(u16, &'static str)] = &[$(($code, <$name as Operator>::NAME),)*];

            /// The opcode: explicit, never reused.
            pub const fn code(&self) -> u16 {
                match self { $(Op::$name(_) => $code,)* }
            }

            /// The name in snake case.
            pub const fn name(&self) -> &'static str {
                match self { $(Op::$name(_) => <$name as Operator>::NAME,)* }
            }

            /// See [`Operator::output`].
            pub fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
                match self { $(Op::$name(op) => op.output(inputs),)* }
            }

            /// See [`Operator::varies`].
            pub fn varies(&self, inputs: &[TensorType], input: usize, axis: usize) -> Option<usize> {
                match self { $(Op::$name(op) => op.varies(inputs, input, axis),)* }
            }

            /// See [`Operator::effect`].
            pub fn effect(&self) -> Effect {
                match self { $(Op::$name(op) => op.effect(),)* }
            }

            /// See [`Operator::cost`].
            pub fn cost(&self, inputs: &[TensorType], output: &TensorType) -> Cost {
                match self { $(Op::$name(op) => op.cost(inputs, output),)* }
            }

            /// See [`Operator::reference`].
            pub fn reference(&self, inputs: &[Arg<'_>], output: &mut ArgMut<'_>) -> Result<(), OpError> {
                match self { $(Op::$name(op) => op.reference(inputs, output),)* }
            }

            /// See [`Operator::gradient`].
            #[cfg(feature = "host")]
            pub fn gradient<B: Build>(
                &self,
                b: &mut B,
                at: &Differential<'_, B::Value>,
            ) -> Result<Gradients<B::Value>, OpError> {
                match self { $(Op::$name(op) => op.gradient(b, at),)* }
            }
        }

        /// The opcode, then the attributes: files do not depend on the order of the list.
        #[cfg(feature = "host")]
        impl serde::Serialize for Op {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                match self { $(Op::$name(op) => (self.code(), op).serialize(to),)* }
            }
        }

        #[cfg(feature = "host")]
        impl<'de> serde::Deserialize<'de> for Op {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Op, D::Error> {
                struct Pair;

                impl<'de> serde::de::Visitor<'de> for Pair {
                    type Value = Op;

                    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                        f.write_str("an opcode and its operator's attributes")
                    }

                    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Op, A::Error> {
                        use serde::de::Error;
                        let short = |have| A::Error::invalid_length(have, &self);
                        let code: u16 = seq.next_element()?.ok_or_else(|| short(0))?;
                        match code {
                            $($code => Ok(Op::$name(seq.next_element()?.ok_or_else(|| short(1))?)),)*
                            _ => Err(A::Error::custom("an operator that this build does not have")),
                        }
                    }
                }

                from.deserialize_tuple(2, Pair)
            }
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Op { Op::$name(op) }
        }

        impl TryFrom<Op> for $name {
            type Error = Op;

            fn try_from(op: Op) -> Result<$name, Op> {
                match op { Op::$name(op) => Ok(op), other => Err(other) }
            }
        }

        impl Coded for $name {
            const CODE: u16 = $code;
        })*
    };
}

operators! {
    /// 2-D convolution, grouped or not; depthwise is `groups == channels`.
    1 => Conv2d,
    /// A matrix times each vector of the input, plus bias.
    2 => FullyConnected,
    /// Maximum or average over a sliding window.
    3 => Pool2d,
    /// Softmax over the innermost dimension.
    4 => Softmax,
    /// The same elements under another shape; takes no step.
    5 => Reshape,
    /// The same bytes elsewhere: what `assign` becomes where the value can't be computed in place.
    6 => Copy,
    /// Element-by-element sum of two tensors.
    64 => Add,
    /// The dimensions in another order.
    7 => Transpose,
    /// float32 to int8, or int8 to int8 of another scale.
    8 => Quantize,
    /// int8 to float32.
    9 => Dequantize,
    /// The logarithm of softmax over the innermost dimension.
    10 => LogSoftmax,
    /// A matrix product.
    16 => MatMul,
    /// A sum or an extreme along axes.
    17 => Reduce,
    /// The index of the largest element along an axis.
    18 => ArgMax,
    /// The input repeated along axes of 1.
    19 => Expand,
    /// A part of a tensor.
    20 => Slice,
    /// Zeros with a tensor among them.
    21 => Scatter,
    /// Tensors behind one another.
    22 => Concat,
    /// Another element type.
    23 => Cast,
    /// Random numbers from a counter.
    24 => Random,
    /// The gradient of a convolution by its image; the transposed convolution.
    32 => Conv2dInputGrad,
    /// The gradient of a convolution by its weights.
    33 => Conv2dWeightGrad,
    /// The gradient of an average pool.
    34 => AveragePool2dGrad,
    /// The gradient of a maximum pool.
    35 => MaxPool2dGrad,
    /// What lies where a maximum pool found its maxima.
    36 => MaxPool2dPick,
    /// The average of an image, some rows at a time.
    37 => AveragePool2dPart,
    /// A function of each element.
    65 => Map,
    /// A chain of functions of each element.
    66 => Fused,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_and_names_are_unique() {
        for (i, a) in Op::ALL.iter().enumerate() {
            for b in &Op::ALL[i + 1..] {
                assert_ne!(a.0, b.0);
                assert_ne!(a.1, b.1);
            }
        }
    }
}
