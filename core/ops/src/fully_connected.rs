//! Fully connected layers.

use kiln_core::{DType, TensorType, fixed};

use crate::conv2d::{check_bias, check_dtypes};
use crate::spatial::counted;
use crate::{Activation, Arg, ArgMut, Cost, OpError, Operator, QuantRef};

/// A fully connected layer. Inputs: vectors `[..., I]` (any shape whose elements divide by I),
/// weights `[O, I]`, and optionally a bias `[O]`; output `[N, O]`, or `[..., O]` when dimensions
/// are kept.
///
/// dtypes as for [`Conv2d`](crate::Conv2d).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct FullyConnected {
    /// Keep the input's outer dimensions instead of flattening them.
    pub keep_dims: bool,
    /// Applied to the result.
    pub activation: Activation,
}

impl Operator for FullyConnected {
    const NAME: &'static str = "fully_connected";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        check_dtypes(inputs)?;
        let [x, w, ..] = inputs else { return Err(OpError::Inputs(2, 3, inputs.len())) };
        let &[o, i] = w.shape.dims() else { return Err(OpError::Rank(1, 2, w.shape.rank())) };
        check_bias(inputs, o)?;
        let elements = x.shape.elements().ok_or(OpError::TooLarge)?;
        if i == 0 || !elements.is_multiple_of(i as u64) || (self.keep_dims && x.shape.last() != i) {
            return Err(OpError::Mismatch("input elements and weights' columns", elements, i as u64));
        }
        let shape = if self.keep_dims {
            let rank = x.shape.rank();
            let Some(last) = rank.checked_sub(1) else { return Err(OpError::Rank(0, 1, 0)) };
            let mut dims = [0u32; kiln_core::MAX_RANK];
            for (axis, (to, &dim)) in dims.iter_mut().zip(x.shape.dims()).enumerate() {
                *to = if axis == last { o } else { dim };
            }
            counted(dims.get(..rank).unwrap_or(&[]))?
        } else {
            let rows = u32::try_from(elements / i as u64).map_err(|_| OpError::TooLarge)?;
            counted(&[rows, o])?
        };
        Ok(TensorType::new(x.dtype, shape))
    }

    fn varies(&self, inputs: &[TensorType], input: usize, axis: usize) -> Option<usize> {
        let (0, [x, w, ..]) = (input, inputs) else { return None };
        let columns = w.shape.last();
        if self.keep_dims {
            return (axis + 1 < x.shape.rank()).then_some(axis);
        }
        // Flattened, only the axis that the rows are, one each.
        let rows = x.shape.elements()? / columns.max(1) as u64;
        let within = x.shape.dims().iter().skip(axis + 1).fold(1u64, |n, &dim| n.saturating_mul(dim as u64));
        (rows == x.shape.dim(axis) as u64 && within == columns as u64).then_some(0)
    }

    fn cost(&self, inputs: &[TensorType], output: &TensorType) -> Cost {
        let columns = inputs.get(1).map_or(0, |w| w.shape.last() as u64);
        Cost::new(output.shape.elements().unwrap_or(0).saturating_mul(columns), inputs, output)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let (Some(x), Some(w)) = (inputs.first(), inputs.get(1)) else {
            return Err(OpError::Inputs(2, 3, inputs.len()));
        };
        let bias = inputs.get(2);
        let &[outputs, columns] = w.ty.shape.dims() else { return Err(OpError::Rank(1, 2, w.ty.shape.rank())) };
        let (outputs, columns) = (outputs as usize, columns as usize);
        let rows = y.ty.shape.elements().unwrap_or(0) as usize / outputs.max(1);
        let (x_zero, y_zero) = (x.quant.zero_point(0), y.quant.zero_point(0));
        let (low, high) = self.activation.quantized_bounds(y.quant.scale(0), y_zero, -128, 127);
        for row in 0..rows {
            for o in 0..outputs {
                let pairs = (0..columns).map(|k| (row * columns + k, o * columns + k));
                if x.ty.dtype == DType::I8 {
                    let sum = pairs.fold(bias.map_or(0, |b| b.i32(o)), |sum, (at_x, at_w)| {
                        let weight = (w.i8(at_w) as i32).wrapping_sub(w.quant.zero_point(o));
                        sum.wrapping_add((x.i8(at_x) as i32 - x_zero).wrapping_mul(weight))
                    });
                    let (multiplier, shift) = output_multiplier(&x.quant, &w.quant, &y.quant, o);
                    let scaled = fixed::multiply_by_quantized_multiplier(sum, multiplier, shift);
                    y.set_i8(row * outputs + o, scaled.wrapping_add(y_zero).max(low).min(high) as i8);
                } else if x.ty.dtype == DType::F64 {
                    let sum = pairs.fold(0f64, |sum, (at_x, at_w)| sum + x.real(at_x) * w.real(at_w));
                    let sum = sum + bias.map_or(0.0, |b| b.real(o));
                    y.set_real(row * outputs + o, self.activation.apply_f64(sum));
                } else {
                    let sum = pairs.fold(0f32, |sum, (at_x, at_w)| sum + x.f32(at_x) * w.f32(at_w));
                    let sum = sum + bias.map_or(0.0, |b| b.f32(o));
                    y.set_f32(row * outputs + o, self.activation.apply(sum));
                }
            }
        }
        Ok(())
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let d = crate::conv2d_grad::through(self.activation, b, at)?;
        let (x, w) = (at.input(0)?, at.input(1)?);
        // Vectors one under another, whatever the shapes were.
        let flat = |b: &mut B, v: B::Value, columns: u32| {
            let rows = b.ty(v).shape.elements().unwrap_or(0) / (columns as u64).max(1);
            let shape = counted(&[u32::try_from(rows).map_err(|_| OpError::TooLarge)?, columns])?;
            b.reshape(v, shape)
        };
        let (x_shape, w_shape) = (b.ty(x).shape, b.ty(w).shape);
        let d = flat(b, d, w_shape.dim(0))?;
        let by_x = if at.wants(0) {
            let product = b.matmul(d, w, [false, false])?;
            Some(b.reshape(product, x_shape)?)
        } else {
            None
        };
        let by_w = if at.wants(1) {
            let x = flat(b, x, w_shape.dim(1))?;
            Some(b.matmul(d, x, [true, false])?)
        } else {
            None
        };
        let by_bias = crate::build::bias_grad(b, at, d)?;
        Ok(crate::build::gradients([by_x, by_w, by_bias]))
    }
}

/// The multiplier and shift of output `o` of a fully connected layer. With one scale TFLite's
/// `GetQuantizedConvolutionMultipler` multiplies input and weight scale in single precision; with
/// one a channel it works in double precision, as for convolution. The difference shows.
pub fn output_multiplier(x: &QuantRef<'_>, w: &QuantRef<'_>, y: &QuantRef<'_>, o: usize) -> (i32, i32) {
    if w.scales.len() > 1 {
        return crate::conv2d::channel_multiplier(x, w, y, o);
    }
    let product = x.scale(0) * w.scale(0);
    fixed::quantize_multiplier(product as f64 / y.scale(0) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::Shape;

    fn ty(dtype: DType, dims: &[u32]) -> TensorType {
        TensorType::new(dtype, Shape::new(dims).unwrap())
    }

    #[test]
    fn shapes_flatten_or_are_kept() {
        let (x, w) = (ty(DType::F32, &[2, 3, 4]), ty(DType::F32, &[5, 4]));
        let flat = FullyConnected { keep_dims: false, activation: Activation::None };
        let kept = FullyConnected { keep_dims: true, ..flat };
        assert_eq!(flat.output(&[x, w]), Ok(ty(DType::F32, &[6, 5])));
        assert_eq!(kept.output(&[x, w]), Ok(ty(DType::F32, &[2, 3, 5])));
        assert_eq!([0, 1, 2].map(|axis| kept.varies(&[x, w], 0, axis)), [Some(0), Some(1), None]);
        assert_eq!([0, 1, 2].map(|axis| flat.varies(&[x, w], 0, axis)), [None, None, None]);
        let image = ty(DType::F32, &[6, 2, 2]);
        assert_eq!([0, 1, 2].map(|axis| flat.varies(&[image, w], 0, axis)), [Some(0), None, None]);
        assert_eq!(flat.varies(&[image, w], 1, 0), None);
        let odd = ty(DType::F32, &[5, 7]);
        assert!(matches!(flat.output(&[x, odd]), Err(OpError::Mismatch(_, 24, 7))));
        // A scalar has no last dimension to replace.
        let (scalar, column) = (ty(DType::F32, &[]), ty(DType::F32, &[5, 1]));
        assert_eq!(kept.output(&[scalar, column]), Err(OpError::Rank(0, 1, 0)));
        assert_eq!(flat.output(&[scalar, column]), Ok(ty(DType::F32, &[1, 5])));
    }

    #[test]
    fn int8_by_hand() {
        // real: x = (3 - 1) * 0.5 = 1, (5 - 1) * 0.5 = 2; w = 2 * 0.25, 4 * 0.25; y = 2.5 + bias 8 * 0.125.
        let op = FullyConnected { keep_dims: false, activation: Activation::None };
        let quant = |scales: &'static [f32], zero_points: &'static [i32]| QuantRef { scales, zero_points, axis: 0 };
        let x = Arg { ty: ty(DType::I8, &[1, 2]), quant: quant(&[0.5], &[1]), data: &[3, 5] };
        let w = Arg { ty: ty(DType::I8, &[1, 2]), quant: quant(&[0.25], &[0]), data: &[2, 4] };
        let b = Arg { ty: ty(DType::I32, &[1]), quant: QuantRef::default(), data: &[8, 0, 0, 0] };
        let mut out = [0u8];
        let mut y = ArgMut { ty: ty(DType::I8, &[1, 1]), quant: quant(&[0.125], &[-10]), data: &mut out };
        op.reference(&[x, w, b], &mut y).unwrap();
        assert_eq!(out[0] as i8, 28 - 10);
    }
}
