//! TFLite model files, read from untrusted bytes.
//!
//! [`TfliteFile::parse`] checks a file once and in full; what it hands out is plain Rust data that refers to tensors by
//! indices which exist, so whoever reads it needs no further checks and cannot fail. It guarantees:
//!
//! - no panic, and no more time and memory than in proportion to the file's size, whatever the bytes;
//! - every index (of a tensor, buffer, operator code or subgraph) is in range;
//! - shapes are non-negative and their sizes fit `usize`; a constant has exactly the bytes its shape and dtype take;
//! - scales are finite and above 0, as many as zero points, one or one for each index of an existing dimension;
//! - operators stand in execution order, write each tensor at most once, and read only what is there;
//! - strides, dilations and window sizes are at least 1.
//!
//! It does not judge whether an operator is supported, whether its tensors' shapes and dtypes suit it, or whether the
//! names are unique: that is the conversion's business. Data behind the flatbuffer (models above 2 GB) is read;
//! weights in other files, sparse tensors and blockwise quantization are refused. Of the zip archive that packaging tools append, labels are
//! read and the rest passed over.

mod archive;
mod dataflow;
mod dtype;
mod error;
mod file;
mod labels;
mod operator;
mod options;
mod read_options;
#[allow(
    missing_docs,
    dead_code,
    deprecated,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "generated code; writing the format is used by tests only"
)]
mod schema_generated;
mod tensor;
#[cfg(test)]
mod tests;

use flatbuffers::{Follow, Vector};
use schema_generated::tflite as schema;

pub use archive::appended_texts;
pub use dtype::DType;
pub use error::TfliteError;
pub use file::{Metadata, Subgraph, TfliteFile};
pub(crate) use labels::labels;
pub use operator::{OpName, Operator};
pub use options::{Activation, OpOptions, Padding, WeightsFormat};
pub use tensor::{Quant, Tensor};

/// Reads every element of a vector of the file; none where the vector is left out.
fn read_all<'a, S: Follow<'a> + 'a, T>(
    vector: Option<Vector<'a, S>>,
    mut read: impl FnMut(usize, S::Inner) -> Result<T, TfliteError>,
) -> Result<Vec<T>, TfliteError> {
    let Some(vector) = vector else {
        return Ok(Vec::new());
    };
    // The verifier has found this many elements in the file.
    let mut all = Vec::with_capacity(vector.len());
    for (index, element) in vector.iter().enumerate() {
        all.push(read(index, element)?);
    }
    Ok(all)
}
