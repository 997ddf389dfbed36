//! A whole model from nothing: made-up data, training, quantization, and the files Kiln reads.
//!
//! The binary of this crate puts the pieces together. Every number comes from double-precision
//! `+ - * / sqrt`, which round the same way on every machine, so training gives the same bytes
//! everywhere.

pub mod data;
pub mod export;
pub mod integer;
pub mod network;
pub mod quantize;
pub mod train;
