//! Why an operator refuses its inputs.

use core::fmt;

use kiln_core::DType;

/// Why an operator refuses its inputs; small and `Copy`, so that device code could carry it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpError {
    /// The wrong number of inputs: the fewest, the most, the number given.
    Inputs(usize, usize, usize),
    /// An input's dtype is not one it takes: which input, its dtype.
    DType(usize, DType),
    /// An input's rank: which input, the rank expected, its own.
    Rank(usize, usize, usize),
    /// Two sizes that must agree do not: what they are, the one, the other.
    Mismatch(&'static str, u64, u64),
    /// An attribute has a value that makes no sense: which, the value.
    Attribute(&'static str, u64),
    /// A window larger than the padded input: which axis ("height", "width"), window, input.
    Window(&'static str, u64, u64),
    /// Quantization parameters are missing or do not suit the operator: what is wrong.
    Quantization(&'static str),
    /// An axis varies at run time that may not: which input, which axis.
    Varying(usize, usize),
    /// The output would have more elements than can be counted.
    TooLarge,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            OpError::Inputs(min, max, given) if min == max => write!(f, "takes {min} inputs, not {given}"),
            OpError::Inputs(min, max, given) => write!(f, "takes {min} to {max} inputs, not {given}"),
            OpError::DType(input, dtype) => write!(f, "input {input} is {}, which is not supported", dtype.name()),
            OpError::Rank(input, want, given) => write!(f, "input {input} must have {want} dimensions, not {given}"),
            OpError::Mismatch(what, a, b) => write!(f, "{what} disagree: {a} and {b}"),
            OpError::Attribute(name, value) => write!(f, "attribute {name} can't be {value}"),
            OpError::Window(axis, window, input) => {
                write!(f, "the window's {axis} of {window} exceeds the padded input's {input}")
            }
            OpError::Quantization(what) => write!(f, "quantization: {what}"),
            OpError::Varying(input, axis) => write!(
                f,
                "input {input} varies at run time along axis {axis}, along which its elements are not computed \
                 independently of each other; give that axis a fixed size"
            ),
            OpError::TooLarge => write!(f, "the output has too many elements"),
        }
    }
}

impl core::error::Error for OpError {}
