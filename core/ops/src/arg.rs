//! Arguments of reference kernels: typed views of bytes.

use kiln_core::TensorType;

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
}

impl ArgMut<'_> {
    fn put<const N: usize>(&mut self, i: usize, bytes: [u8; N]) {
        let start = i.saturating_mul(N);
        if let Some(place) = self.data.get_mut(start..start.saturating_add(N)) {
            place.copy_from_slice(&bytes);
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
}
