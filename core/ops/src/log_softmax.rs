//! The logarithm of softmax.

use kiln_core::{DType, TensorType, fixed};

use crate::softmax::{
    difference, exp, exp_on_negative_values, for_each_vector, half_of_sum, one_over_one_plus, outer_axis, vectors,
};
use crate::{Arg, ArgMut, OpError, Operator, Softmax};

/// Log-softmax over the innermost dimension, `x_i - log(sum_j exp(x_j))`. float32, or int8 in
/// TFLite's form: the output's scale is 1/16 and its zero point 127.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct LogSoftmax;

/// The scale and zero point that an int8 output has: -16 to 0 in 256 steps.
pub const LOG_SOFTMAX_OUTPUT: (f32, i32) = (16.0 / 256.0, 127);

/// Integer bits of scaled differences and of the logarithm.
const DIFF_INTEGER_BITS: i32 = 5;
/// Integer bits of the sum of exponentials.
const SUM_INTEGER_BITS: i32 = 12;
/// Integer bits of the output.
const OUTPUT_INTEGER_BITS: i32 = 4;

/// How an int8 log-softmax scales its input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSoftmaxScaling {
    /// Brings differences from the maximum to Q5.26, as softmax's.
    pub multiplier: i32,
    /// Applied before `multiplier`.
    pub left_shift: i32,
    /// Smaller differences count as nothing.
    pub diff_min: i32,
    /// Brings Q5.26 back to differences.
    pub reverse_multiplier: i32,
    /// The shift that belongs to `reverse_multiplier`; 0 or less.
    pub reverse_shift: i32,
}

impl LogSoftmax {
    /// The scaling for an input of this scale: TFLite's `PreprocessLogSoftmaxScalingExp` and
    /// `CalculateInputRadius`.
    pub fn scaling(&self, input_scale: f32) -> LogSoftmaxScaling {
        let (multiplier, left_shift, diff_min) = Softmax { beta: 1.0 }.scaling(input_scale);
        let power = (1u64 << (31 - left_shift).clamp(0, 63)) as f64;
        let (reverse_multiplier, reverse_shift) = fixed::quantize_multiplier(power / multiplier.max(1) as f64);
        LogSoftmaxScaling { multiplier, left_shift, diff_min, reverse_multiplier, reverse_shift }
    }
}

impl Operator for LogSoftmax {
    const NAME: &'static str = "log_softmax";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        vectors(inputs)
    }

    fn varies(&self, inputs: &[TensorType], _: usize, axis: usize) -> Option<usize> {
        outer_axis(inputs, axis)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        for_each_vector(inputs, |x, start, depth| match x.ty.dtype {
            DType::I8 => row_int8(&self.scaling(x.quant.scale(0)), x, y, start, depth),
            _ => row_float(x, y, start, depth),
        })
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let (y, d) = (at.output, at.gradient);
        let last = 1u8.checked_shl(b.ty(y).shape.rank() as u32 - 1).unwrap_or(0);
        let sum = b.reduce(crate::ReduceKind::Sum, d, last)?;
        let probabilities = b.map(crate::Function::Exp, &[y])?;
        let part = b.mul(probabilities, sum)?;
        Ok(crate::build::gradients([Some(b.map(crate::Function::Sub, &[d, part])?)]))
    }
}

fn row_float(x: &Arg<'_>, y: &mut ArgMut<'_>, start: usize, depth: usize) {
    let at = start..start + depth;
    let max = at.clone().fold(f64::MIN, |max, i| max.max(x.real(i)));
    let sum = at.clone().fold(0f64, |sum, i| sum + exp(difference(x, i, max)));
    let log = ln(sum);
    for i in at {
        y.set_real(i, difference(x, i, max) - log);
    }
}

/// TFLite's `reference_ops::LogSoftmax` for int8; "in Qm" as in softmax.
fn row_int8(s: &LogSoftmaxScaling, x: &Arg<'_>, y: &mut ArgMut<'_>, start: usize, depth: usize) {
    let at = start..start + depth;
    let max = at.clone().fold(i32::MIN, |max, i| max.max(x.i8(i) as i32));
    let diff = |i: usize| x.i8(i) as i32 - max;
    let in_q5 = |diff: i32| fixed::multiply_by_quantized_multiplier(diff, s.multiplier, s.left_shift);
    let mut sum = 0i32;
    for i in at.clone() {
        if diff(i) >= s.diff_min {
            let power = exp_on_negative_values(in_q5(diff(i)));
            sum = sum.wrapping_add(fixed::rounding_divide_by_pot(power, SUM_INTEGER_BITS as u32));
        }
    }
    let log = log_of_sum(sum);
    // Below this difference, less the logarithm, the smallest Q5 would be passed.
    let reach =
        fixed::multiply_by_quantized_multiplier(log.wrapping_add(i32::MIN), s.reverse_multiplier, s.reverse_shift);
    let least = s.diff_min.saturating_sub(1).max(reach);
    for i in at {
        let value = if diff(i) > least {
            let exponent = 31 - DIFF_INTEGER_BITS - OUTPUT_INTEGER_BITS;
            let rounded = fixed::rounding_divide_by_pot(in_q5(diff(i)).wrapping_sub(log), exponent as u32);
            rounded.saturating_add(127).clamp(-128, 127)
        } else {
            -128
        };
        y.set_i8(i, value as i8);
    }
}

/// `log(sum)` for a sum of at least 1 in Q12, result in Q5: TFLite's
/// `log_x_for_x_greater_than_or_equal_to_1_impl<5, 12>`.
///
/// The sum is `2^k * r` with r around `2^(-1/4)`, found from the sum itself or from the sum times
/// `2^(-1/2)`, whichever leaves r smaller. The logarithm of r is a rational function of
/// `r - 2^(-1/4)`.
fn log_of_sum(sum: i32) -> i32 {
    const LN_2: i32 = 1488522236;
    const FOURTH_ROOT_OF_HALF: i32 = 1805811301;
    const ROOT_OF_HALF: i32 = 1518500250;
    const NUMERATOR: i32 = 117049297; // 11/240 * 2^(1/4)
    const DENOMINATOR_SQUARE: i32 = 127690142; // 1/20 * 2^(1/4)
    const DENOMINATOR_CONSTANT: i32 = 1057819769; // 2 * 2^(-1/4) - 2^(1/4)
    const DENOMINATOR_LINEAR: i32 = 638450708; // 1/4 * 2^(1/4)
    // The exponent is kept in Q6, with a bit of headroom over the result.
    const EXPONENT_BITS: i32 = DIFF_INTEGER_BITS + 1;
    const QUARTER: i32 = 1 << (31 - EXPONENT_BITS - 2);
    let mul = fixed::rounding_doubling_high_mul;
    let shifted = |x: i32, by: i32| fixed::saturating_shift_left(x, by.max(0) as u32);
    let zeros = |x: i32| (x as u32).leading_zeros() as i32;
    let whole = |exponent: i32| shifted(exponent, 31 - EXPONENT_BITS);

    let plain_zeros = zeros(sum);
    let plain = shifted(mul(shifted(sum, plain_zeros - 1), ROOT_OF_HALF), 1);
    let plain_exponent = whole(SUM_INTEGER_BITS - plain_zeros).saturating_add(QUARTER);
    let scaled_headroom = (zeros(mul(sum, ROOT_OF_HALF)) - 1).max(0);
    let scaled = shifted(sum, scaled_headroom);
    let scaled_exponent = whole(SUM_INTEGER_BITS - scaled_headroom).saturating_sub(QUARTER);
    let r = plain.min(scaled);
    let exponent = plain_exponent.max(scaled_exponent);

    let p = half_of_sum(r, FOURTH_ROOT_OF_HALF);
    let q = r.wrapping_sub(FOURTH_ROOT_OF_HALF);
    let q = q.wrapping_add(q);
    let q2 = mul(q, q);
    let numerator = mul(q, r).wrapping_add(mul(mul(q, q2), NUMERATOR));
    let polynomial = DENOMINATOR_CONSTANT.wrapping_add(q).wrapping_add(mul(DENOMINATOR_SQUARE, q2));
    let denominator_less_one = mul(p, polynomial).wrapping_add(mul(DENOMINATOR_LINEAR, q));
    let fraction =
        mul(fixed::rounding_divide_by_pot(numerator, EXPONENT_BITS as u32), one_over_one_plus(denominator_less_one));
    shifted(mul(exponent, LN_2).wrapping_add(fraction), EXPONENT_BITS - DIFF_INTEGER_BITS)
}

/// `log(x)` for `x >= 0` in double precision without libm: the exponent apart, and the series of the
/// inverse hyperbolic tangent for the fraction.
fn ln(x: f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    // Sums of exponentials are far from subnormal.
    if !x.is_finite() || x < f64::MIN_POSITIVE {
        return x;
    }
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let fraction = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let t = (fraction - 1.0) / (fraction + 1.0);
    let (mut power, mut sum) = (t, 0.0);
    for k in 0..20 {
        sum += power / (2 * k + 1) as f64;
        power *= t * t;
    }
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;
    use kiln_core::Shape;

    #[test]
    fn fixed_point_logarithms_are_close() {
        for i in 0..4000 {
            // From 1 to almost 4096 in Q12.
            let sum = (1 << 19) + i * 536_739;
            let got = log_of_sum(sum) as f64 / (1 << 26) as f64;
            let want = (sum as f64 / (1 << 19) as f64).ln();
            assert!((got - want).abs() < 1e-6, "log({}) = {got}", sum as f64 / (1 << 19) as f64);
        }
    }

    #[test]
    fn double_logarithms_are_close() {
        for x in [1.0, 1.5, 1.999_999, 2.0, 3.7, 10.0, 4096.0, 1e-9, 1e30] {
            assert!((ln(x) - x.ln()).abs() <= 1e-14 * x.ln().abs().max(1.0), "ln({x}) = {}", ln(x));
        }
        assert_eq!((ln(0.0), ln(f64::INFINITY)), (f64::NEG_INFINITY, f64::INFINITY));
    }

    #[test]
    fn float_rows_are_log_probabilities() {
        let ty = TensorType::new(DType::F32, Shape::new(&[2, 3]).unwrap());
        let values = [1f32, 2.0, 3.0, -50.0, 0.0, 800.0];
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut out = [0u8; 24];
        let quant = QuantRef::default();
        LogSoftmax.reference(&[Arg { ty, quant, data: &data }], &mut ArgMut { ty, quant, data: &mut out }).unwrap();
        let got: Vec<f32> = out.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
        let log = (1.0 + (-1f64).exp() + (-2f64).exp()).ln();
        for (g, w) in got.iter().zip([-2.0 - log, -1.0 - log, -log, -850.0, -800.0, 0.0]) {
            assert!((*g as f64 - w).abs() <= 1e-7 * w.abs().max(1.0), "{g}, not {w}");
        }
    }

    /// What TensorFlow Lite Micro computes for an input of scale 0.1.
    #[test]
    fn int8_rows_are_tflite_micros() {
        let rows: [([i8; 16], [i8; 16]); 3] = [
            (
                [-128, -90, -60, -40, -20, -10, -5, -3, 0, 1, 5, 17, 40, 80, 100, 127],
                [-128, -128, -128, -128, -109, -93, -85, -82, -77, -76, -69, -50, -13, 51, 83, 126],
            ),
            ([3; 16], [83; 16]),
            (
                [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5],
                [93, 91, 90, 88, 87, 85, 83, 82, 80, 79, 77, 75, 74, 72, 71, 69],
            ),
        ];
        let ty = TensorType::new(DType::I8, Shape::new(&[16]).unwrap());
        for (data, want) in rows {
            let data = data.map(|v| v as u8);
            let mut out = [0u8; 16];
            let x = Arg { ty, quant: QuantRef { scales: &[0.1], zero_points: &[4], axis: 0 }, data: &data };
            let mut y = ArgMut { ty, quant: QuantRef::default(), data: &mut out };
            LogSoftmax.reference(&[x], &mut y).unwrap();
            assert_eq!(out.map(|v| v as i8), want);
        }
    }

    #[test]
    fn int8_rows_are_within_a_step() {
        let ty = TensorType::new(DType::I8, Shape::new(&[16, 16]).unwrap());
        let data: Vec<u8> = (0..=255u8).map(|v| v.wrapping_mul(37)).collect();
        for scale in [0.01f32, 0.1, 0.5] {
            let mut out = [0u8; 256];
            let x = Arg { ty, quant: QuantRef { scales: &[scale], zero_points: &[4], axis: 0 }, data: &data };
            let quant = QuantRef { scales: &[LOG_SOFTMAX_OUTPUT.0], zero_points: &[LOG_SOFTMAX_OUTPUT.1], axis: 0 };
            LogSoftmax.reference(&[x], &mut ArgMut { ty, quant, data: &mut out }).unwrap();
            for (row, got) in data.chunks(16).zip(out.chunks(16)) {
                let reals: Vec<f64> = row.iter().map(|&b| scale as f64 * (b as i8 as f64 - 4.0)).collect();
                let log = reals.iter().map(|r| r.exp()).sum::<f64>().ln();
                for (real, got) in reals.iter().zip(got) {
                    let want = ((real - log) * 16.0 + 127.0).clamp(-128.0, 127.0);
                    assert!((want - *got as i8 as f64).abs() <= 0.51, "{want} became {}", *got as i8);
                }
            }
        }
    }

    #[test]
    fn the_scaling_goes_there_and_back() {
        let s = LogSoftmax.scaling(0.125);
        assert_eq!((s.multiplier, s.left_shift), (1 << 30, 24));
        // 2^7 / 2^30 is 2^-23: one half, times 2^-22.
        assert_eq!((s.reverse_multiplier, s.reverse_shift), (1 << 30, -22));
    }
}
