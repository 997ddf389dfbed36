//! What can be wrong with a TFLite file.

use std::fmt::Write;

use super::operator::OpName;

/// Why a file was refused. Each message names the place, what was expected and what to do;
/// the caller adds the file's name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TfliteError {
    /// No bytes at all.
    #[error("the file is empty; export or download it again")]
    Empty,
    /// Too short for the header every TFLite file begins with.
    #[error("the file has {bytes} bytes, too few for a TFLite model; export or download it again")]
    TooShort {
        /// The file's size in bytes.
        bytes: usize,
    },
    /// The identifier "TFL3" is missing.
    #[error("not a TFLite file: bytes 4 to 7 are \"{found}\", expected \"TFL3\"; {hint}")]
    NotTflite {
        /// The bytes found in the identifier's place, escaped.
        found: String,
        /// What the file may be instead, or what to do.
        hint: &'static str,
    },
    /// A schema version other than 3.
    #[error("schema version {found}, expected 3; convert the model again with a current TFLite converter")]
    Version {
        /// The version the file gives.
        found: u32,
    },
    /// The flatbuffer's own structure does not hold: an offset, a length or a string.
    #[error("the file ({bytes} bytes) is damaged or cut short: {detail}; export or download it again")]
    Damaged {
        /// The file's size in bytes.
        bytes: usize,
        /// What the verifier found, and where.
        detail: String,
    },
    /// The model has nothing to run.
    #[error("the model has no subgraph, so nothing to run; export it again")]
    NoSubgraph,
    /// An index to something the file does not have.
    #[error("{place}: {what} {index}, but there are {count}; the file is damaged, export it again")]
    Index {
        /// Where the index stands.
        place: String,
        /// What the index refers to.
        what: &'static str,
        /// The index.
        index: i64,
        /// How many there are.
        count: usize,
    },
    /// An input that the operator cannot do without is left out.
    #[error("{place}: input {input} is omitted (-1), but this operator needs it; export the model again")]
    MissingInput {
        /// The operator.
        place: String,
        /// The position in the operator's list of inputs.
        input: usize,
    },
    /// An operator code without a meaning.
    #[error("operator code {index}: {detail}; export the model again")]
    OperatorCode {
        /// The position in the model's list of operator codes.
        index: usize,
        /// What is wrong.
        detail: String,
    },
    /// A dimension below zero, or a product of dimensions too large to address.
    #[error("{place}: {detail}; export the model again")]
    Shape {
        /// The tensor.
        place: String,
        /// What is wrong.
        detail: String,
    },
    /// A constant's bytes do not match its shape and dtype.
    #[error("{place}: {found} bytes of data, but {dtype} of shape {shape} takes {expected}; export the model again")]
    DataSize {
        /// The tensor.
        place: String,
        /// The element type, as the schema names it.
        dtype: String,
        /// The shape.
        shape: String,
        /// The bytes that shape and dtype ask for.
        expected: usize,
        /// The bytes that the file has.
        found: usize,
    },
    /// Bytes that are said to lie behind the flatbuffer are not in the file.
    #[error(
        "{place}: {size} bytes at offset {offset} lie outside the file's {bytes} bytes; export or download it again"
    )]
    Outside {
        /// The buffer or operator.
        place: String,
        /// Where the bytes should begin.
        offset: u64,
        /// How many there should be.
        size: u64,
        /// The file's size in bytes.
        bytes: usize,
    },
    /// Scales and zero points that contradict each other, the shape or the dtype.
    #[error("{place}: {detail}; quantize and export the model again")]
    Quantization {
        /// The tensor.
        place: String,
        /// What is wrong.
        detail: String,
    },
    /// An operator's options are missing, of another operator, or out of range.
    #[error("{place}: {detail}; export the model again")]
    Options {
        /// The operator.
        place: String,
        /// What is wrong.
        detail: String,
    },
    /// A tensor that is read before it is written, written twice, or written although it is constant.
    #[error("{place}: {detail}; the file is damaged, export it again")]
    Dataflow {
        /// The operator or subgraph.
        place: String,
        /// What is wrong.
        detail: String,
    },
    /// A way of storing tensors that is not read.
    #[error("{place}: {what} not supported; {instead}")]
    Unsupported {
        /// The tensor.
        place: String,
        /// What is not supported.
        what: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
}

/// Where in the model a check stands. Formatted only when the check fails.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    Subgraph(usize),
    Tensor { subgraph: usize, index: usize, name: &'a str },
    Operator { subgraph: usize, index: usize, name: OpName<'a> },
    Metadata { index: usize, name: &'a str },
}

impl Place<'_> {
    /// The place in words; the main subgraph, 0, goes without saying.
    pub(super) fn describe(self) -> String {
        let (mut text, subgraph) = match self {
            Place::Subgraph(index) => return format!("subgraph {index}"),
            Place::Metadata { index, name } => {
                return format!("metadata {index} ({})", quoted(name));
            }
            Place::Tensor { subgraph, index, name } => (format!("tensor {index} ({})", quoted(name)), subgraph),
            Place::Operator { subgraph, index, name } => (format!("operator {index} ({name})"), subgraph),
        };
        if subgraph != 0 {
            // Writing to a String cannot fail.
            let _ = write!(text, " of subgraph {subgraph}");
        }
        text
    }
}

/// A name from the file, fit for a terminal: quoted, escaped, and cut after 60 characters.
pub(super) fn quoted(name: &str) -> String {
    match name.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}…", name.get(..end).unwrap_or_default()),
        None => format!("{name:?}"),
    }
}

/// A shape in brackets, cut after eight dimensions.
pub(super) fn shape_text<T: std::fmt::Display>(shape: &[T]) -> String {
    let mut dims: Vec<String> = shape.iter().take(8).map(T::to_string).collect();
    if shape.len() > 8 {
        dims.push("…".to_owned());
    }
    format!("[{}]", dims.join(", "))
}
