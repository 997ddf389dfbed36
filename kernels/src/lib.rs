//! Kiln's CPU kernels, and on hosts the table that says which there are and how each walks memory.
//!
//! Firmware names the rows it needs (`kiln_kernels::rows::CONV2D_S8`), so the linker drops the
//! rest. Hosts, with feature `host`, see [`table::KERNELS`]: every row for every CPU as data,
//! so an x86-64 laptop plans for a microcontroller exactly. `docs/kernel-contract.md` is the contract.
//!
//! A kernel is one file: the parameters, the row (check and body), and under `host` what planning
//! needs of it. One line in [`rows`] makes it part of the table.

#![cfg_attr(not(test), no_std)]

// What the CPU at hand has is asked of the standard library.
#[cfg(all(feature = "host", target_arch = "x86_64"))]
extern crate std;

mod add;
mod add_affine;
mod add_mve;
mod arithmetic;
mod average_part;
mod blocks;
mod cast;
#[cfg(feature = "host")]
pub mod code;
#[cfg(feature = "host")]
mod code_bytes;
mod conv2d;
mod conv2d_blocked;
mod conv2d_columns;
mod conv2d_fma;
mod conv2d_grad;
mod conv2d_mve;
mod conv2d_paired;
mod conv2d_tiled;
mod copy;
mod depthwise;
mod depthwise_fma;
mod depthwise_mve;
mod depthwise_paired;
mod depthwise_scalar;
#[cfg(any(kiln_armv6m, kiln_armv7m))]
mod depthwise_scalar_arm;
#[cfg(kiln_rv32im)]
mod depthwise_scalar_rv32;
mod dequantize;
mod dsp;
mod fully_connected;
mod fully_connected_fma;
mod fully_connected_mve;
mod fully_connected_paired;
mod fully_connected_scalar;
mod gather;
#[cfg(feature = "host")]
mod instruction_figures;
#[cfg(feature = "host")]
pub mod instructions;
#[cfg(feature = "host")]
mod lag;
mod lanes;
#[cfg(all(feature = "host", target_arch = "x86_64"))]
mod lanes_wide;
mod log_softmax;
#[cfg(feature = "host")]
mod lowering;
mod map;
#[cfg(feature = "host")]
mod map_program;
mod matmul;
mod matmul_blocked;
mod movement;
mod mve;
mod paired;
mod pixels;
mod pool2d;
mod pool2d_dsp;
mod pool2d_grad;
mod pool2d_mve;
#[cfg(feature = "host")]
mod pool2d_wide;
mod product;
mod quantize;
mod random;
mod reduce;
mod reference;
mod requantize;
pub mod rows;
mod scalar;
#[cfg(feature = "host")]
mod scalar_channel;
mod softmax;
mod softmax_table;
#[cfg(all(feature = "host", target_arch = "x86_64"))]
mod softmax_wide;
mod spatial;
mod strided;
#[cfg(feature = "host")]
pub mod table;
mod tile_fma;
mod tile_mve;
mod tiled;
mod transpose;
mod vector;
#[cfg(all(feature = "host", target_arch = "x86_64"))]
mod vector_x86_64;
mod vectors;
#[cfg(all(feature = "host", target_arch = "x86_64"))]
mod wide;
#[cfg(feature = "host")]
pub mod workload;

pub mod parameters {
    //! What the rows read as their parameters: little-endian records used in place.

    pub use crate::add::{AddF32Parameters, AddS8Parameters, Scaling};
    pub use crate::add_affine::AddAffineParameters;
    pub use crate::arithmetic::Epilogue;
    pub use crate::average_part::AveragePartParameters;
    pub use crate::blocks::Blocks;
    pub use crate::cast::CastParameters;
    pub use crate::conv2d::Conv2dParameters;
    pub use crate::conv2d_grad::Conv2dGradParameters;
    pub use crate::copy::CopyParameters;
    pub use crate::dequantize::DequantizeParameters;
    pub use crate::fully_connected::FullyConnectedParameters;
    pub use crate::log_softmax::{LogSoftmaxF32Parameters, LogSoftmaxS8Parameters};
    pub use crate::map::MapParameters;
    pub use crate::matmul::MatMulParameters;
    pub use crate::movement::{ConcatParameters, ScatterParameters, StridedParameters};
    pub use crate::pool2d::PoolParameters;
    pub use crate::pool2d_grad::PoolGradParameters;
    pub use crate::quantize::{QuantizeParameters, RequantizeParameters};
    pub use crate::random::RandomParameters;
    pub use crate::reduce::{ArgMaxParameters, ReduceParameters};
    pub use crate::softmax::{SoftmaxF32Parameters, SoftmaxS8Parameters};
    pub use crate::softmax_table::SoftmaxTableParameters;
    pub use crate::spatial::{Image, Spatial};
    pub use crate::transpose::{Axis, TransposeParameters};
}
