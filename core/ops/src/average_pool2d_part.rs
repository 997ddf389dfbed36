//! The average of a whole image, taken some rows at a time.

use kiln_core::{DType, TensorType};

use crate::conv2d::{offset, positions};
use crate::spatial::{counted, nhwc};
use crate::{Activation, Arg, ArgMut, Cost, OpError, Operator};

/// Some rows of an image, `[N, H, W, C]`, and the sums of those above, `[N, 1, 1, C]`, to the sums of both; or to the
/// average of all, `[N, 1, 1, C]`. The first rows have no sums above them. int8 with sums of int32, which wrap; or float32.
///
/// Parts one after another compute, bit for bit, what [`Pool2d`](crate::Pool2d) does with a window of the image's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct AveragePool2dPart {
    /// Pixels of the whole image, which the last part divides by.
    pub taps: u32,
    /// Whether these are the last rows, and the average is computed.
    pub last: bool,
    /// Applied to the average.
    pub activation: Activation,
}

/// The type of sums; `None` where there are none of such elements.
fn sums(dtype: DType) -> Option<DType> {
    match dtype {
        DType::I8 => Some(DType::I32),
        DType::F32 => Some(DType::F32),
        _ => None,
    }
}

impl Operator for AveragePool2dPart {
    const NAME: &'static str = "average_pool2d_part";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x, above @ ..] = inputs else { return Err(OpError::Inputs(1, 2, inputs.len())) };
        let sum = sums(x.dtype).ok_or(OpError::DType(0, x.dtype))?;
        let [n, h, w, c] = nhwc(0, x)?;
        let pixels = h as u64 * w as u64;
        if pixels == 0 || pixels > self.taps as u64 {
            return Err(OpError::Attribute("taps", self.taps as u64));
        }
        let shape = counted(&[n, 1, 1, c])?;
        match above {
            [] => {}
            [above] if above.dtype != sum => return Err(OpError::DType(1, above.dtype)),
            [above] if above.shape == shape => {}
            [above] => {
                nhwc(1, above)?;
                let found = above.shape.elements().unwrap_or(u64::MAX);
                return Err(OpError::Mismatch("sums and channels", found, n as u64 * c as u64));
            }
            _ => return Err(OpError::Inputs(1, 2, inputs.len())),
        }
        Ok(TensorType::new(if self.last { x.dtype } else { sum }, shape))
    }

    fn varies(&self, _: &[TensorType], _: usize, axis: usize) -> Option<usize> {
        matches!(axis, 0 | 3).then_some(axis)
    }

    fn cost(&self, inputs: &[TensorType], output: &TensorType) -> Cost {
        // Additions only, as in a pool.
        Cost::new(0, inputs, output)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x, above @ ..] = inputs else { return Err(OpError::Inputs(1, 2, inputs.len())) };
        let dims = nhwc(0, &x.ty)?;
        let [n, h, w, c] = dims;
        let above = above.first();
        let (low, high) = self.activation.quantized_bounds(y.quant.scale(0), y.quant.zero_point(0), -128, 127);
        for (b, _, _, ch) in positions([n, 1, 1, c]) {
            let at = offset([n, 1, 1, c], [b, 0, 0, ch]);
            let taps = (0..h).flat_map(|iy| (0..w).map(move |ix| offset(dims, [b, iy, ix, ch])));
            if x.ty.dtype == DType::I8 {
                let sum = taps.fold(above.map_or(0, |a| a.i32(at)), |sum, t| sum.wrapping_add(x.i8(t) as i32));
                if self.last {
                    // TFLite rounds halves away from zero.
                    let rounded = (sum.unsigned_abs() as u64 + self.taps as u64 / 2).checked_div(self.taps as u64);
                    let mean = rounded.unwrap_or(0) as i64 * i64::from(sum.signum());
                    y.set_i8(at, mean.max(low as i64).min(high as i64) as i8);
                } else {
                    y.set_integer(at, sum as i64);
                }
            } else {
                let sum = taps.fold(above.map_or(0.0, |a| a.f32(at)), |sum, t| sum + x.f32(t));
                let mean = self.activation.apply(sum / self.taps as f32);
                y.set_f32(at, if self.last { mean } else { sum });
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

    fn ty(dtype: DType, dims: &[u32]) -> TensorType {
        TensorType::new(dtype, Shape::new(dims).unwrap())
    }

    #[test]
    fn sums_go_from_part_to_part() {
        let quant = QuantRef { scales: &[1.0], zero_points: &[0], axis: 0 };
        let part = |last| AveragePool2dPart { taps: 6, last, activation: Activation::None };
        let (first, x, sum) = ([127u8, 1, 127, 2], ty(DType::I8, &[1, 1, 2, 2]), ty(DType::I32, &[1, 1, 1, 2]));
        assert_eq!(part(false).output(&[x]), Ok(sum));
        let mut sums = [0u8; 8];
        let mut y = ArgMut { ty: sum, quant, data: &mut sums };
        part(false).reference(&[Arg { ty: x, quant, data: &first }], &mut y).unwrap();
        assert_eq!(sums, [254, 0, 0, 0, 3, 0, 0, 0]);
        let rest = [127u8, 250, 127, 0, 127, 0, 127, 0];
        let x = ty(DType::I8, &[1, 2, 2, 2]);
        let y_type = part(true).output(&[x, sum]).unwrap();
        assert_eq!(y_type, ty(DType::I8, &[1, 1, 1, 2]));
        let mut means = [0u8; 2];
        let mut y = ArgMut { ty: y_type, quant, data: &mut means };
        let above = Arg { ty: sum, quant, data: &sums };
        part(true).reference(&[Arg { ty: x, quant, data: &rest }, above], &mut y).unwrap();
        // 6 times 127; and 3 - 6, of which a sixth is -0.5.
        assert_eq!(means.map(|v| v as i8), [127, -1]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let part = AveragePool2dPart { taps: 6, last: false, activation: Activation::None };
        let x = ty(DType::I8, &[1, 3, 2, 4]);
        assert_eq!(part.output(&[]), Err(OpError::Inputs(1, 2, 0)));
        assert_eq!(part.output(&[ty(DType::I16, &[1, 3, 2, 4])]), Err(OpError::DType(0, DType::I16)));
        assert_eq!(part.output(&[ty(DType::I8, &[1, 4, 2, 4])]), Err(OpError::Attribute("taps", 6)));
        assert_eq!(part.output(&[x, ty(DType::F32, &[1, 1, 1, 4])]), Err(OpError::DType(1, DType::F32)));
        let other = part.output(&[x, ty(DType::I32, &[1, 1, 1, 3])]);
        assert_eq!(other, Err(OpError::Mismatch("sums and channels", 3, 4)));
        assert!(part.output(&[x, ty(DType::I32, &[1, 1, 1, 4])]).is_ok());
    }
}
