//! 2-D convolution.

use kiln_core::{DType, TensorType, fixed};

use crate::spatial::{counted, nhwc};
use crate::{Activation, Arg, ArgMut, Cost, OpError, Operator, QuantRef, Window2d};

/// 2-D convolution. Inputs: image `[N, H, W, C]`, weights `[O, KH, KW, C / groups]`, and
/// optionally a bias `[O]`; output `[N, OH, OW, O]`.
///
/// float32 (or float64) throughout, or int8 image, weights and output with an int32 bias; int8 weights have one
/// scale, or one for each output channel, and zero points of 0. Output channel `o` belongs to
/// group `o / (O / groups)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Conv2d {
    /// Steps between windows: height, width.
    pub strides: [u32; 2],
    /// Distance between taps: height, width.
    pub dilations: [u32; 2],
    /// Padding: top, left, bottom, right.
    pub pads: [u32; 4],
    /// Groups of channels that do not see each other.
    pub groups: u32,
    /// Applied to the result.
    pub activation: Activation,
}

impl Conv2d {
    /// The sliding window over weights of this type.
    pub fn window(&self, weights: &TensorType) -> Window2d {
        Window2d {
            kernel: [weights.shape.dim(1), weights.shape.dim(2)],
            strides: self.strides,
            dilations: self.dilations,
            pads: self.pads,
        }
    }
}

/// Checks the dtypes of image, weights and bias, which convolution and fully connected share.
pub(crate) fn check_dtypes(inputs: &[TensorType]) -> Result<(), OpError> {
    let (Some(x), Some(w)) = (inputs.first(), inputs.get(1)) else {
        return Err(OpError::Inputs(2, 3, inputs.len()));
    };
    if inputs.len() > 3 {
        return Err(OpError::Inputs(2, 3, inputs.len()));
    }
    let bias = match x.dtype {
        DType::F32 | DType::F64 => x.dtype,
        DType::I8 => DType::I32,
        other => return Err(OpError::DType(0, other)),
    };
    if w.dtype != x.dtype {
        return Err(OpError::DType(1, w.dtype));
    }
    match inputs.get(2) {
        Some(b) if b.dtype != bias => Err(OpError::DType(2, b.dtype)),
        _ => Ok(()),
    }
}

/// Checks that a bias has one element for each of `channels` outputs.
pub(crate) fn check_bias(inputs: &[TensorType], channels: u32) -> Result<(), OpError> {
    match inputs.get(2).and_then(|b| b.shape.elements()) {
        Some(n) if n != channels as u64 => Err(OpError::Mismatch("bias and output channels", n, channels as u64)),
        _ => Ok(()),
    }
}

/// The multiplier and shift of output channel `o` of a convolution of image `x` with weights `w`:
/// TFLite's `PopulateConvolutionQuantizationParams`.
pub fn channel_multiplier(x: &QuantRef<'_>, w: &QuantRef<'_>, y: &QuantRef<'_>, o: usize) -> (i32, i32) {
    let real = x.scale(0) as f64 * w.scale(o) as f64 / y.scale(0) as f64;
    fixed::quantize_multiplier(real)
}

impl Operator for Conv2d {
    const NAME: &'static str = "conv2d";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        check_dtypes(inputs)?;
        let [image, weights, ..] = inputs else { return Err(OpError::Inputs(2, 3, inputs.len())) };
        let [n, h, w, c] = nhwc(0, image)?;
        let [o, _, _, per_group] = nhwc(1, weights)?;
        if self.groups == 0 {
            return Err(OpError::Attribute("groups", 0));
        }
        if per_group as u64 * self.groups as u64 != c as u64 {
            let taken = per_group as u64 * self.groups as u64;
            return Err(OpError::Mismatch("input channels and weights' channels times groups", c as u64, taken));
        }
        if o % self.groups != 0 {
            return Err(OpError::Mismatch("output channels and groups", o as u64, self.groups as u64));
        }
        check_bias(inputs, o)?;
        let [oh, ow] = self.window(weights).output(h, w)?;
        Ok(TensorType::new(image.dtype, counted(&[n, oh, ow, o])?))
    }

    fn varies(&self, inputs: &[TensorType], input: usize, axis: usize) -> Option<usize> {
        let window = self.window(inputs.get(1)?);
        (input == 0 && window.keeps_apart(axis)).then_some(axis)
    }

    fn cost(&self, inputs: &[TensorType], output: &TensorType) -> Cost {
        let taps = inputs
            .get(1)
            .map_or(0, |w| w.shape.dims().iter().skip(1).fold(1u64, |product, &d| product.saturating_mul(d as u64)));
        Cost::new(output.shape.elements().unwrap_or(0).saturating_mul(taps), inputs, output)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let (Some(x), Some(w)) = (inputs.first(), inputs.get(1)) else {
            return Err(OpError::Inputs(2, 3, inputs.len()));
        };
        let bias = inputs.get(2);
        let [n, h, width, c] = nhwc(0, &x.ty)?;
        let [out_c, kh, kw, per_group] = nhwc(1, &w.ty)?;
        let [_, oh, ow, _] = nhwc(0, &y.ty)?;
        let window = self.window(&w.ty);
        let per_output_group = (out_c / self.groups.max(1)).max(1);
        let quantized = x.ty.dtype == DType::I8;
        let (x_zero, y_zero) = (x.quant.zero_point(0), y.quant.zero_point(0));
        let (low, high) = self.activation.quantized_bounds(y.quant.scale(0), y_zero, -128, 127);
        for (b, oy, ox, o) in positions([n, oh, ow, out_c]) {
            let group = o / per_output_group;
            let mut sum = 0i32;
            let (mut real, mut double) = (0f32, 0f64);
            for ky in 0..kh {
                for kx in 0..kw {
                    let (Some(iy), Some(ix)) = (window.tap(0, oy, ky, h), window.tap(1, ox, kx, width)) else {
                        continue;
                    };
                    for k in 0..per_group {
                        let at_x = offset([n, h, width, c], [b, iy, ix, group * per_group + k]);
                        let at_w = offset([out_c, kh, kw, per_group], [o, ky, kx, k]);
                        if quantized {
                            let value = x.i8(at_x) as i32 - x_zero;
                            sum = sum.wrapping_add(value.wrapping_mul(w.i8(at_w) as i32));
                        } else if x.ty.dtype == DType::F64 {
                            double += x.real(at_x) * w.real(at_w);
                        } else {
                            real += x.f32(at_x) * w.f32(at_w);
                        }
                    }
                }
            }
            let at = offset([n, oh, ow, out_c], [b, oy, ox, o]);
            let o = o as usize;
            if quantized {
                let (multiplier, shift) = channel_multiplier(&x.quant, &w.quant, &y.quant, o);
                let sum = sum.wrapping_add(bias.map_or(0, |b| b.i32(o)));
                let scaled = fixed::multiply_by_quantized_multiplier(sum, multiplier, shift);
                y.set_i8(at, scaled.wrapping_add(y_zero).max(low).min(high) as i8);
            } else if x.ty.dtype == DType::F64 {
                y.set_real(at, self.activation.apply_f64(double + bias.map_or(0.0, |b| b.real(o))));
            } else {
                y.set_f32(at, self.activation.apply(real + bias.map_or(0.0, |b| b.f32(o))));
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
        let conv = Conv2d { activation: Activation::None, ..*self };
        let (x, w) = (at.input(0)?, at.input(1)?);
        let by_x = if at.wants(0) { Some(crate::conv2d_grad::input_grad(conv, b, d, w, x)?) } else { None };
        let by_w = if at.wants(1) { Some(crate::conv2d_grad::weight_grad(conv, b, x, d, w)?) } else { None };
        let by_bias = crate::build::bias_grad(b, at, d)?;
        Ok(crate::build::gradients([by_x, by_w, by_bias]))
    }
}

/// Every position of a rank-4 shape, innermost fastest.
pub(crate) fn positions(dims: [u32; 4]) -> impl Iterator<Item = (u32, u32, u32, u32)> {
    let [a, b, c, d] = dims;
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).flat_map(move |k| (0..d).map(move |l| (i, j, k, l)))))
}

/// The element's index in a dense rank-4 tensor.
pub(crate) fn offset(dims: [u32; 4], at: [u32; 4]) -> usize {
    let mut index = 0usize;
    for (d, i) in dims.into_iter().zip(at) {
        index = index.wrapping_mul(d as usize).wrapping_add(i as usize);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::Shape;

    fn ty(dtype: DType, dims: &[u32]) -> TensorType {
        TensorType::new(dtype, Shape::new(dims).unwrap())
    }

    fn plain() -> Conv2d {
        Conv2d { strides: [1, 1], dilations: [1, 1], pads: [0; 4], groups: 1, activation: Activation::None }
    }

    #[test]
    fn the_rule_names_what_disagrees() {
        let x = ty(DType::I8, &[1, 8, 8, 6]);
        let w = ty(DType::I8, &[4, 3, 3, 6]);
        assert_eq!(plain().output(&[x, w]), Ok(ty(DType::I8, &[1, 6, 6, 4])));
        let groups = Conv2d { groups: 2, ..plain() };
        assert!(matches!(groups.output(&[x, w]), Err(OpError::Mismatch(_, 6, 12))));
        assert_eq!(plain().output(&[x]), Err(OpError::Inputs(2, 3, 1)));
        assert_eq!(plain().output(&[x, w, ty(DType::F32, &[4])]), Err(OpError::DType(2, DType::F32)));
        assert!(matches!(plain().output(&[x, w, ty(DType::I32, &[5])]), Err(OpError::Mismatch(_, 5, 4))));
    }

    #[test]
    fn a_float_convolution_by_hand() {
        let x: Vec<u8> = (1..=4).flat_map(|v| (v as f32).to_le_bytes()).collect();
        let w: Vec<u8> = [1f32, 10.0, 100.0, 1000.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut y = [0u8; 16];
        let op = Conv2d { pads: [0, 0, 1, 1], ..plain() };
        let (xt, wt) = (ty(DType::F32, &[1, 2, 2, 1]), ty(DType::F32, &[1, 2, 2, 1]));
        let yt = op.output(&[xt, wt]).unwrap();
        let arg = |ty, data| Arg { ty, quant: QuantRef::default(), data };
        let mut out = ArgMut { ty: yt, quant: QuantRef::default(), data: &mut y };
        op.reference(&[arg(xt, &x), arg(wt, &w)], &mut out).unwrap();
        let got: Vec<f32> = y.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
        assert_eq!(got, [4321.0, 402.0, 43.0, 4.0]);
        assert_eq!(op.cost(&[xt, wt], &yt).macs, 16);
    }
}
