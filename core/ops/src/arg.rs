//! Arguments of reference kernels: typed views of bytes.

use kiln_core::{DType, TensorType};

/// Quantization parameters: `real = scale * (value - zero_point)`, for the whole tensor or for each
/// index along `axis`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct QuantRef<'a> {
    /// One scale, or one for each index along the axis; none when not quantized.
    pub scales: &'a [f32],
    /// As many zero points.
    pub zero_points: &'a [i32],
    /// The axis that several scales run along.
    pub axis: usize,
}

impl QuantRef<'_> {
    /// Whether there are parameters.
    pub fn is_quantized(&self) -> bool {
        !self.scales.is_empty()
    }

    /// The scale for index `i` of the axis.
    pub fn scale(&self, i: usize) -> f32 {
        let one = if self.scales.len() == 1 { 0 } else { i };
        self.scales.get(one).copied().unwrap_or(0.0)
    }

    /// The zero point for index `i` of the axis.
    pub fn zero_point(&self, i: usize) -> i32 {
        let one = if self.zero_points.len() == 1 { 0 } else { i };
        self.zero_points.get(one).copied().unwrap_or(0)
    }
}

/// An input of a reference kernel. Elements are little-endian and need no alignment.
#[derive(Clone, Copy, Debug)]
pub struct Arg<'a> {
    /// Element type and shape.
    pub ty: TensorType,
    /// Quantization.
    pub quant: QuantRef<'a>,
    /// The elements.
    pub data: &'a [u8],
}

/// The output of a reference kernel.
#[derive(Debug)]
pub struct ArgMut<'a> {
    /// Element type and shape.
    pub ty: TensorType,
    /// Quantization.
    pub quant: QuantRef<'a>,
    /// The elements.
    pub data: &'a mut [u8],
}

fn piece<const N: usize>(data: &[u8], i: usize) -> [u8; N] {
    let start = i.saturating_mul(N);
    let bytes = data.get(start..start.saturating_add(N)).and_then(|b| b.try_into().ok());
    bytes.unwrap_or([0; N])
}

impl Arg<'_> {
    /// Element `i` as int8; 0 beyond the data.
    pub fn i8(&self, i: usize) -> i8 {
        i8::from_le_bytes(piece(self.data, i))
    }

    /// Element `i` as int32; 0 beyond the data.
    pub fn i32(&self, i: usize) -> i32 {
        i32::from_le_bytes(piece(self.data, i))
    }

    /// Element `i` as float32; 0 beyond the data.
    pub fn f32(&self, i: usize) -> f32 {
        f32::from_le_bytes(piece(self.data, i))
    }

    /// Element `i` of any dtype that a double holds exactly, not dequantized; 0 beyond the data, and for
    /// other dtypes.
    pub fn real(&self, i: usize) -> f64 {
        match self.ty.dtype {
            DType::F32 => self.f32(i) as f64,
            DType::F64 => f64::from_le_bytes(piece(self.data, i)),
            _ => self.integer(i) as f64,
        }
    }

    /// Element `i` of an integer dtype of whole bytes, or a bool; 0 beyond the data, and for other dtypes.
    pub fn integer(&self, i: usize) -> i64 {
        match self.ty.dtype {
            DType::I8 => self.i8(i) as i64,
            DType::I16 => i16::from_le_bytes(piece(self.data, i)) as i64,
            DType::I32 => self.i32(i) as i64,
            DType::I64 => i64::from_le_bytes(piece(self.data, i)),
            DType::U8 | DType::Bool => u8::from_le_bytes(piece(self.data, i)) as i64,
            DType::U16 => u16::from_le_bytes(piece(self.data, i)) as i64,
            DType::U32 => u32::from_le_bytes(piece(self.data, i)) as i64,
            _ => 0,
        }
    }
}

impl ArgMut<'_> {
    fn put<const N: usize>(&mut self, i: usize, bytes: [u8; N]) {
        let start = i.saturating_mul(N);
        if let Some(place) = self.data.get_mut(start..start.saturating_add(N)) {
            // Not as one copy, whose lengths would be compared again at run time.
            for (to, from) in place.iter_mut().zip(bytes) {
                *to = from;
            }
        }
    }

    /// Stores an int8 as element `i`.
    pub fn set_i8(&mut self, i: usize, value: i8) {
        self.put(i, value.to_le_bytes());
    }

    /// Stores a float32 as element `i`.
    pub fn set_f32(&mut self, i: usize, value: f32) {
        self.put(i, value.to_le_bytes());
    }

    /// How many elements it has.
    pub fn elements(&self) -> usize {
        self.ty.shape.elements().unwrap_or(0) as usize
    }

    /// Stores a real number as element `i`: rounded to float32, or as a double; integers are truncated toward
    /// zero and saturate, NaN becoming 0; a bool is whether it is not 0. Other dtypes are left alone.
    pub fn set_real(&mut self, i: usize, value: f64) {
        match self.ty.dtype {
            DType::F32 => self.set_f32(i, value as f32),
            DType::F64 => self.put(i, value.to_le_bytes()),
            DType::Bool => self.put(i, [u8::from(value != 0.0)]),
            DType::I8 => self.put(i, (value as i8).to_le_bytes()),
            DType::U8 => self.put(i, [value as u8]),
            DType::I32 => self.put(i, (value as i32).to_le_bytes()),
            DType::I64 => self.put(i, (value as i64).to_le_bytes()),
            _ => {}
        }
    }

    /// Adds a real number to element `i`, which must be one that [`ArgMut::set_real`] stores.
    pub fn add_real(&mut self, i: usize, term: f64) {
        let sum = Arg { ty: self.ty, quant: self.quant, data: self.data }.real(i) + term;
        self.set_real(i, sum);
    }

    /// Stores an integer as element `i`, its low bits where the type is narrower.
    pub fn set_integer(&mut self, i: usize, value: i64) {
        match self.ty.dtype {
            DType::F32 | DType::F64 => self.set_real(i, value as f64),
            DType::Bool => self.put(i, [u8::from(value != 0)]),
            DType::I8 | DType::U8 => self.put(i, [value as u8]),
            DType::I32 => self.put(i, (value as i32).to_le_bytes()),
            DType::I64 => self.put(i, value.to_le_bytes()),
            _ => {}
        }
    }

    /// Copies element `from` of `x`, of the same dtype of whole bytes, to element `i`. What either side does not
    /// have is left alone.
    pub fn copy(&mut self, i: usize, x: &Arg<'_>, from: usize) {
        let size = (self.ty.dtype.bits() / 8) as usize;
        let range = |at: usize| at.saturating_mul(size)..at.saturating_add(1).saturating_mul(size);
        if let (Some(to), Some(from)) = (self.data.get_mut(range(i)), x.data.get(range(from))) {
            for (to, &from) in to.iter_mut().zip(from) {
                *to = from;
            }
        }
    }
}
