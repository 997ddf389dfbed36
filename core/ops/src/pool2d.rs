//! Pooling over sliding windows.

use kiln_core::{DType, TensorType};

use crate::conv2d::{offset, positions};
use crate::spatial::{counted, nhwc};
use crate::{Activation, Arg, ArgMut, Cost, OpError, Operator, Window2d};

/// What a pool computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub enum PoolKind {
    /// The average of the taps inside the image; padding does not count.
    Average,
    /// The maximum of the taps inside the image.
    Max,
}

/// Pooling of `[N, H, W, C]` to `[N, OH, OW, C]`, each channel alone. float32 or int8; an int8
/// output has the input's quantization.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Pool2d {
    /// Average or maximum.
    pub kind: PoolKind,
    /// Window height and width.
    pub kernel: [u32; 2],
    /// Steps between windows: height, width.
    pub strides: [u32; 2],
    /// Padding: top, left, bottom, right.
    pub pads: [u32; 4],
    /// Applied to the result.
    pub activation: Activation,
}

impl Pool2d {
    /// The sliding window.
    pub fn window(&self) -> Window2d {
        Window2d { kernel: self.kernel, strides: self.strides, dilations: [1, 1], pads: self.pads }
    }
}

impl Operator for Pool2d {
    const NAME: &'static str = "pool2d";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        if !matches!(x.dtype, DType::F32 | DType::I8) {
            return Err(OpError::DType(0, x.dtype));
        }
        let [n, h, w, c] = nhwc(0, x)?;
        let [oh, ow] = self.window().output(h, w)?;
        Ok(TensorType::new(x.dtype, counted(&[n, oh, ow, c])?))
    }

    fn varies(&self, _: &[TensorType], _: usize, axis: usize) -> Option<usize> {
        (axis == 3 || self.window().keeps_apart(axis)).then_some(axis)
    }

    fn cost(&self, inputs: &[TensorType], output: &TensorType) -> Cost {
        // An average adds once a tap and multiplies not at all: no multiply-accumulates.
        Cost::new(0, inputs, output)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let [n, h, w, c] = nhwc(0, &x.ty)?;
        let [_, oh, ow, _] = nhwc(0, &y.ty)?;
        let window = self.window();
        let (low, high) = self.activation.quantized_bounds(y.quant.scale(0), y.quant.zero_point(0), -128, 127);
        for (b, oy, ox, ch) in positions([n, oh, ow, c]) {
            let rows = (0..self.kernel[0]).filter_map(|k| window.tap(0, oy, k, h));
            let taps = rows.flat_map(|iy| {
                (0..self.kernel[1])
                    .filter_map(move |k| window.tap(1, ox, k, w))
                    .map(move |ix| offset([n, h, w, c], [b, iy, ix, ch]))
            });
            let at = offset([n, oh, ow, c], [b, oy, ox, ch]);
            let count = taps.clone().count() as i32;
            match (x.ty.dtype, self.kind) {
                (DType::I8, PoolKind::Average) => {
                    let sum = taps.fold(0i32, |sum, t| sum.wrapping_add(x.i8(t) as i32));
                    // TFLite rounds halves away from zero.
                    let half = if sum > 0 { count / 2 } else { -(count / 2) };
                    let mean = sum.wrapping_add(half).checked_div(count).unwrap_or(0);
                    y.set_i8(at, mean.max(low).min(high) as i8);
                }
                (DType::I8, PoolKind::Max) => {
                    let max = taps.fold(i8::MIN as i32, |max, t| max.max(x.i8(t) as i32));
                    y.set_i8(at, max.max(low).min(high) as i8);
                }
                (_, PoolKind::Average) => {
                    let sum = taps.fold(0f32, |sum, t| sum + x.f32(t));
                    y.set_f32(at, self.activation.apply(sum / count as f32));
                }
                (_, PoolKind::Max) => {
                    let max = taps.fold(f32::NEG_INFINITY, |max, t| max.max(x.f32(t)));
                    y.set_f32(at, self.activation.apply(max));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;
    use kiln_core::Shape;

    #[test]
    fn averages_round_halves_away_from_zero_and_skip_padding() {
        let op = Pool2d {
            kind: PoolKind::Average,
            kernel: [1, 2],
            strides: [1, 2],
            pads: [0, 1, 0, 1],
            activation: Activation::None,
        };
        let ty = |w| TensorType::new(DType::I8, Shape::new(&[1, 1, w, 1]).unwrap());
        let quant = QuantRef { scales: &[1.0], zero_points: &[0], axis: 0 };
        let data = [7u8, 2, 3, 254, 253, 9];
        let yt = op.output(&[ty(6)]).unwrap();
        assert_eq!(yt, ty(4));
        let mut out = [0u8; 4];
        let mut y = ArgMut { ty: yt, quant, data: &mut out };
        op.reference(&[Arg { ty: ty(6), quant, data: &data }], &mut y).unwrap();
        // Windows: {7}, {2, 3}, {-2, -3}, {9}.
        assert_eq!(out.map(|v| v as i8), [7, 3, -3, 9]);
    }
}
