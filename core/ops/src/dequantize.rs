//! From int8 to real numbers.

use kiln_core::{DType, TensorType};

use crate::{Arg, ArgMut, OpError, Operator};

/// The real number that each int8 stands for, as float32: `scale * (value - zero_point)`, one
/// multiplication in single precision. Scales may run along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Dequantize;

impl Operator for Dequantize {
    const NAME: &'static str = "dequantize";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        match x.dtype {
            DType::I8 => Ok(TensorType::new(DType::F32, x.shape)),
            other => Err(OpError::DType(0, other)),
        }
    }

    fn varies(&self, _: &[TensorType], _: usize, axis: usize) -> Option<usize> {
        Some(axis)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let quant = &x.quant;
        let along = x.ty.shape.dim(quant.axis) as usize;
        if quant.scales.is_empty() || quant.scales.len() > 1 && quant.scales.len() != along {
            return Err(OpError::Quantization("dequantize needs one scale, or one for each index of an axis"));
        }
        // Elements from one index of the axis to the next.
        let inner = x.ty.shape.dims().iter().skip(quant.axis + 1);
        let inner = inner.fold(1usize, |product, &d| product.wrapping_mul(d as usize)).max(1);
        for i in 0..y.ty.shape.elements().unwrap_or(0) as usize {
            let index = i / inner % along.max(1);
            let centred = (x.i8(i) as i32).wrapping_sub(quant.zero_point(index));
            y.set_f32(i, quant.scale(index) * centred as f32);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;
    use kiln_core::Shape;

    fn dequantized(dims: &[u32], data: &[i8], quant: QuantRef<'_>) -> Result<Vec<f32>, OpError> {
        let ty = TensorType::new(DType::I8, Shape::new(dims).unwrap());
        let data: Vec<u8> = data.iter().map(|&v| v as u8).collect();
        let yt = Dequantize.output(&[ty])?;
        let mut out = vec![0; yt.bytes().unwrap() as usize];
        let mut y = ArgMut { ty: yt, quant: QuantRef::default(), data: &mut out };
        Dequantize.reference(&[Arg { ty, quant, data: &data }], &mut y)?;
        Ok(out.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect())
    }

    #[test]
    fn one_scale() {
        let quant = QuantRef { scales: &[0.1], zero_points: &[-128], axis: 0 };
        let got = dequantized(&[3], &[-128, -125, 127], quant).unwrap();
        // The product in single precision, not the nearest float of the product.
        assert_eq!(got, [0.0, 0.1f32 * 3.0, 0.1f32 * 255.0]);
    }

    #[test]
    fn a_scale_for_each_index_of_an_axis() {
        let quant = QuantRef { scales: &[1.0, 2.0, 4.0], zero_points: &[0, 1, 2], axis: 1 };
        let got = dequantized(&[2, 3, 2], &[5, 6, 5, 6, 5, 6, -5, -6, -5, -6, -5, -6], quant).unwrap();
        assert_eq!(got, [5., 6., 8., 10., 12., 16., -5., -6., -12., -14., -28., -32.]);
    }

    #[test]
    fn scales_that_do_not_suit_are_refused() {
        assert!(matches!(dequantized(&[1], &[1], QuantRef::default()), Err(OpError::Quantization(_))));
        let quant = QuantRef { scales: &[1.0, 2.0], zero_points: &[0, 0], axis: 0 };
        assert!(matches!(dequantized(&[3], &[1, 2, 3], quant), Err(OpError::Quantization(_))));
        let ty = TensorType::new(DType::F32, Shape::SCALAR);
        assert_eq!(Dequantize.output(&[ty]), Err(OpError::DType(0, DType::F32)));
    }
}
