//! From real numbers to int8, and from int8 to int8 of another scale.

use kiln_core::{DType, TensorType, fixed};

use crate::{Arg, ArgMut, OpError, Operator};

/// The nearest int8 of each element in the output's quantization, clamped to its range. The input is
/// float32, or int8 with a quantization of its own; both have one scale for the whole tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Quantize;

impl Quantize {
    /// The multiplier and shift from the input's scale to the output's, as TFLite finds them.
    pub fn multiplier(input_scale: f32, output_scale: f32) -> (i32, i32) {
        fixed::quantize_multiplier(input_scale as f64 / output_scale as f64)
    }
}

impl Operator for Quantize {
    const NAME: &'static str = "quantize";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        match x.dtype {
            DType::F32 | DType::I8 => Ok(TensorType::new(DType::I8, x.shape)),
            other => Err(OpError::DType(0, other)),
        }
    }

    fn varies(&self, _: &[TensorType], _: usize, axis: usize) -> Option<usize> {
        Some(axis)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        if y.quant.scales.len() != 1 || x.ty.dtype == DType::I8 && x.quant.scales.len() != 1 {
            return Err(OpError::Quantization("quantize needs one scale for each int8 tensor"));
        }
        let (scale, zero_point) = (y.quant.scale(0), y.quant.zero_point(0));
        let (multiplier, shift) = Self::multiplier(x.quant.scale(0), scale);
        for i in 0..y.ty.shape.elements().unwrap_or(0) as usize {
            let value = if x.ty.dtype == DType::I8 {
                // TFLite's `Requantize`.
                let centred = (x.i8(i) as i32).wrapping_sub(x.quant.zero_point(0));
                fixed::multiply_by_quantized_multiplier(centred, multiplier, shift).wrapping_add(zero_point)
            } else {
                // TFLite's `AffineQuantize`. Where the original's conversion is undefined (NaN, or beyond
                // int32), NaN counts as 0 and the rest saturates.
                round(x.f32(i) / scale).saturating_add(zero_point)
            };
            y.set_i8(i, value.clamp(-128, 127) as i8);
        }
        Ok(())
    }
}

/// The nearest integer, ties away from zero, saturated; NaN is 0.
fn round(x: f32) -> i32 {
    // In double precision adding a half is exact for whatever has a fraction, and `as` truncates.
    (x as f64 + if x < 0.0 { -0.5 } else { 0.5 }) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;
    use kiln_core::Shape;

    fn quantized(dtype: DType, data: &[u8], from: (f32, i32), to: (f32, i32)) -> Vec<i8> {
        let n = data.len() as u32 * 8 / dtype.bits();
        let ty = TensorType::new(dtype, Shape::new(&[n]).unwrap());
        let yt = Quantize.output(&[ty]).unwrap();
        let mut out = vec![0u8; n as usize];
        let x = Arg { ty, quant: QuantRef { scales: &[from.0], zero_points: &[from.1], axis: 0 }, data };
        let quant = QuantRef { scales: &[to.0], zero_points: &[to.1], axis: 0 };
        Quantize.reference(&[x], &mut ArgMut { ty: yt, quant, data: &mut out }).unwrap();
        out.into_iter().map(|b| b as i8).collect()
    }

    #[test]
    fn floats_round_halves_away_from_zero_and_clamp() {
        let values = [0.0, 0.25, 0.24, -0.25, -0.75, 1.25, 1e30, -1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(quantized(DType::F32, &data, (1.0, 0), (0.5, 3)), [3, 4, 3, 2, 1, 6, 127, -128, 127, -128, 3]);
        // The largest float below a half must not become 1.
        assert_eq!(round(0.499_999_97), 0);
        assert_eq!((round(8_388_609.0), round(-2.5), round(2.5)), (8_388_609, -3, 3));
    }

    #[test]
    fn int8_keeps_its_value_under_another_scale() {
        let data: Vec<u8> = (0..=255).collect();
        let got = quantized(DType::I8, &data, (0.05, -3), (0.11, 20));
        for (byte, got) in data.iter().zip(got) {
            let want = (0.05 * (*byte as i8 as f64 + 3.0) / 0.11 + 20.0).clamp(-128.0, 127.0);
            // Rounded twice: before the right shift, and by it.
            assert!((want - got as f64).abs() <= 0.75 + 1e-4, "{} became {got}, not {want}", *byte as i8);
        }
        // Some of what TensorFlow Lite Micro computes.
        let some = [-128i8, -90, -60, -40, -20, -10, -5, -3, 0, 1, 5, 17, 40, 80, 100, 127].map(|v| v as u8);
        let want = [-37, -20, -6, 3, 12, 17, 19, 20, 22, 22, 24, 29, 40, 58, 67, 79];
        assert_eq!(quantized(DType::I8, &some, (0.05, -3), (0.11, 20)), want);
        // The same scale moves by the difference of the zero points alone.
        let got = quantized(DType::I8, &data, (0.3, 10), (0.3, -118));
        let want = data.iter().map(|&b| (b as i8 as i32 - 128).clamp(-128, 127) as i8);
        assert_eq!(got, want.collect::<Vec<i8>>());
    }

    #[test]
    fn other_dtypes_and_missing_scales_are_refused() {
        let ty = TensorType::new(DType::I16, Shape::SCALAR);
        assert_eq!(Quantize.output(&[ty]), Err(OpError::DType(0, DType::I16)));
        let ty = TensorType::new(DType::F32, Shape::SCALAR);
        let yt = Quantize.output(&[ty]).unwrap();
        let mut y = ArgMut { ty: yt, quant: QuantRef::default(), data: &mut [0] };
        let x = Arg { ty, quant: QuantRef::default(), data: &[0; 4] };
        assert!(matches!(Quantize.reference(&[x], &mut y), Err(OpError::Quantization(_))));
    }
}
