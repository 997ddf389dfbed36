//! Kernels in CubeCL's language, each with the function that launches it.
//!
//! Tensors are 32-bit words: float32 and int32 as they are, a bool as 0 or 1. A kernel's `layout` is a small buffer
//! with the sizes and strides of one step, made once when a plan is: so shapes may differ without another kernel being
//! compiled, and only ranks and expressions are part of a kernel.

mod conv2d;
mod copy;
mod expression;
mod pool2d;
mod random;
mod reduce;
mod truth;

pub(crate) use conv2d::{Convolution, Kind as ConvolutionKind, weight_rounds, weight_scratch};
pub(crate) use copy::{copy, fill};
pub(crate) use expression::{Expression, Load, Walk, expression};
pub(crate) use pool2d::{Kind as PoolKind, Pool};
pub(crate) use random::random;
pub(crate) use reduce::{Kind as ReduceKind, LONG, Reduction, arg_max};
pub(crate) use truth::{pack, unpack};

use cubecl::prelude::*;

/// Where element `i` of a shape lies: its `rank` dimensions stand in `layout` from `dims` on, the strides from
/// `strides` on.
#[cube]
pub(crate) fn position(
    layout: &[u32],
    #[comptime] dims: usize,
    #[comptime] strides: usize,
    i: usize,
    #[comptime] rank: usize,
) -> usize {
    let mut rest = i;
    let mut at = 0usize;
    #[unroll]
    for step in 0..rank {
        let axis = comptime!(rank - 1 - step);
        let dim = layout[comptime!(dims + axis)] as usize;
        at += rest % dim * layout[comptime!(strides + axis)] as usize;
        rest /= dim;
    }
    at
}
