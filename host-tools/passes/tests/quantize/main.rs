//! Quantized graphs beside the float32 graphs they were made from, by the operators' references.

mod edges;
mod networks;
mod support;
