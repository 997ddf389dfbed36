//! Element types.

use std::fmt;

use super::schema;

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 binary16.
    F16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Two's complement, two to a byte, the first in the low half.
    I4,
    /// Two's complement, 8 bits.
    I8,
    /// Two's complement, 16 bits.
    I16,
    /// Two's complement, 32 bits.
    I32,
    /// Two's complement, 64 bits.
    I64,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// One byte, zero or not.
    Bool,
    /// Any other, by the schema's number; `Display` gives the schema's name.
    Other(i8),
}

impl DType {
    pub(super) fn new(code: schema::TensorType) -> Self {
        match code {
            schema::TensorType::FLOAT16 => DType::F16,
            schema::TensorType::FLOAT32 => DType::F32,
            schema::TensorType::FLOAT64 => DType::F64,
            schema::TensorType::INT4 => DType::I4,
            schema::TensorType::INT8 => DType::I8,
            schema::TensorType::INT16 => DType::I16,
            schema::TensorType::INT32 => DType::I32,
            schema::TensorType::INT64 => DType::I64,
            schema::TensorType::UINT8 => DType::U8,
            schema::TensorType::UINT16 => DType::U16,
            schema::TensorType::UINT32 => DType::U32,
            schema::TensorType::UINT64 => DType::U64,
            schema::TensorType::BOOL => DType::Bool,
            other => DType::Other(other.0),
        }
    }

    fn code(self) -> schema::TensorType {
        match self {
            DType::F16 => schema::TensorType::FLOAT16,
            DType::F32 => schema::TensorType::FLOAT32,
            DType::F64 => schema::TensorType::FLOAT64,
            DType::I4 => schema::TensorType::INT4,
            DType::I8 => schema::TensorType::INT8,
            DType::I16 => schema::TensorType::INT16,
            DType::I32 => schema::TensorType::INT32,
            DType::I64 => schema::TensorType::INT64,
            DType::U8 => schema::TensorType::UINT8,
            DType::U16 => schema::TensorType::UINT16,
            DType::U32 => schema::TensorType::UINT32,
            DType::U64 => schema::TensorType::UINT64,
            DType::Bool => schema::TensorType::BOOL,
            DType::Other(code) => schema::TensorType(code),
        }
    }

    /// Bits of one element; `None` where elements have no fixed size (strings, resources, variants) or the type is
    /// not known.
    pub fn bits(self) -> Option<usize> {
        match self {
            DType::I4 => Some(4),
            DType::I8 | DType::U8 | DType::Bool => Some(8),
            DType::F16 | DType::I16 | DType::U16 => Some(16),
            DType::F32 | DType::I32 | DType::U32 => Some(32),
            DType::F64 | DType::I64 | DType::U64 => Some(64),
            DType::Other(code) => match schema::TensorType(code) {
                schema::TensorType::INT2 => Some(2),
                schema::TensorType::UINT4 => Some(4),
                schema::TensorType::FLOAT8_E4M3FN | schema::TensorType::FLOAT8_E5M2 => Some(8),
                schema::TensorType::BFLOAT16 => Some(16),
                schema::TensorType::COMPLEX64 => Some(64),
                schema::TensorType::COMPLEX128 => Some(128),
                _ => None,
            },
        }
    }

    /// The values an integer of this type can take, for the types that are quantized.
    pub(super) fn range(self) -> Option<(i64, i64)> {
        match self {
            DType::I4 => Some((-8, 7)),
            DType::I8 => Some((i8::MIN.into(), i8::MAX.into())),
            DType::U8 => Some((0, u8::MAX.into())),
            DType::I16 => Some((i16::MIN.into(), i16::MAX.into())),
            DType::U16 => Some((0, u16::MAX.into())),
            DType::I32 => Some((i32::MIN.into(), i32::MAX.into())),
            DType::U32 => Some((0, u32::MAX.into())),
            _ => None,
        }
    }
}

/// The schema's name: `INT8`, `FLOAT32`, and so on.
impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code();
        match code.variant_name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type {}", code.0),
        }
    }
}
