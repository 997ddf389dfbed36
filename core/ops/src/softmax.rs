//! Softmax.

use kiln_core::{DType, TensorType, fixed};

use crate::{Arg, ArgMut, OpError, Operator};

/// Softmax over the innermost dimension, `exp(beta x_i) / sum_j exp(beta x_j)`. float32, or int8
/// in TFLite's form: the output's scale is 1/256 and its zero point -128.
#[derive(Clone, Copy, PartialEq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Softmax {
    /// Factor of the exponent; 1 is the usual softmax.
    pub beta: f32,
}

/// Integer bits of the scaled difference from the maximum: TFLite's `kScaledDiffIntegerBits`.
const DIFF_INTEGER_BITS: u32 = 5;
/// Integer bits of the sum of exponentials: TFLite's `kAccumulationIntegerBits`.
const SUM_INTEGER_BITS: u32 = 12;

impl Softmax {
    /// The multiplier and left shift that scale an input difference, and the smallest difference
    /// that still counts: TFLite's `PreprocessSoftmaxScaling` and `CalculateInputRadius`.
    pub fn scaling(&self, input_scale: f32) -> (i32, i32, i32) {
        let real = (self.beta as f64 * input_scale as f64 * (1u64 << (31 - DIFF_INTEGER_BITS)) as f64)
            .min((1u64 << 31) as f64 - 1.0);
        let (multiplier, left_shift) = fixed::quantize_multiplier(real);
        let radius = ((1u64 << DIFF_INTEGER_BITS) - 1) as f64 * (1u64 << (31 - DIFF_INTEGER_BITS)) as f64;
        let radius = if left_shift >= 0 { radius / (1u64 << left_shift) as f64 } else { f64::MAX };
        // The cast truncates a positive number, which is the original's floor.
        (multiplier, left_shift, -(radius.min(i32::MAX as f64) as i32))
    }
}

impl Operator for Softmax {
    const NAME: &'static str = "softmax";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let x = vectors(inputs)?;
        if !self.beta.is_finite() || self.beta <= 0.0 {
            return Err(OpError::Attribute("beta (bits)", self.beta.to_bits() as u64));
        }
        Ok(x)
    }

    fn varies(&self, inputs: &[TensorType], _: usize, axis: usize) -> Option<usize> {
        outer_axis(inputs, axis)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        for_each_vector(inputs, |x, start, depth| match x.ty.dtype {
            DType::I8 => self.row_int8(x, y, start, depth),
            _ => self.row_float(x, y, start, depth),
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
        let product = b.mul(d, y)?;
        let sum = b.reduce(crate::ReduceKind::Sum, product, last)?;
        let centred = b.map(crate::Function::Sub, &[d, sum])?;
        let gradient = b.mul(centred, y)?;
        let gradient = match self.beta {
            1.0 => gradient,
            beta => b.map_scalar(crate::Function::Mul, gradient, beta as f64)?,
        };
        Ok(crate::build::gradients([Some(gradient)]))
    }
}

/// The type of one input that is float32 or int8 vectors, which it shares with the output.
pub(crate) fn vectors(inputs: &[TensorType]) -> Result<TensorType, OpError> {
    match inputs {
        [x] if !matches!(x.dtype, DType::F32 | DType::F64 | DType::I8) => Err(OpError::DType(0, x.dtype)),
        [x] if x.shape.rank() == 0 => Err(OpError::Rank(0, 1, 0)),
        [x] => Ok(*x),
        _ => Err(OpError::Inputs(1, 1, inputs.len())),
    }
}

/// Any axis but the innermost, which is normalized over.
pub(crate) fn outer_axis(inputs: &[TensorType], axis: usize) -> Option<usize> {
    inputs.first().filter(|x| axis + 1 < x.shape.rank()).map(|_| axis)
}

/// Gives `run` the input, and each vector's first element and length.
pub(crate) fn for_each_vector(inputs: &[Arg<'_>], mut run: impl FnMut(&Arg<'_>, usize, usize)) -> Result<(), OpError> {
    let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
    let depth = x.ty.shape.last() as usize;
    for row in 0..x.ty.shape.outer().unwrap_or(0) as usize {
        run(x, row * depth, depth);
    }
    Ok(())
}

impl Softmax {
    fn row_float(&self, x: &Arg<'_>, y: &mut ArgMut<'_>, start: usize, depth: usize) {
        let at = start..start + depth;
        let max = at.clone().fold(f64::NEG_INFINITY, |max, i| max.max(x.real(i)));
        let power = |i: usize| exp(difference(x, i, max) * self.beta as f64);
        let sum = at.clone().fold(0f64, |sum, i| sum + power(i));
        for i in at {
            y.set_real(i, power(i) / sum);
        }
    }

    /// TFLite's `reference_ops::Softmax` for int8, written with plain integers: a value "in Qm" has
    /// m integer bits, so its 32-bit integer stands for `integer / 2^(31 - m)`.
    fn row_int8(&self, x: &Arg<'_>, y: &mut ArgMut<'_>, start: usize, depth: usize) {
        let (multiplier, left_shift, diff_min) = self.scaling(x.quant.scale(0));
        let at = start..start + depth;
        let max = at.clone().fold(i32::MIN, |max, i| max.max(x.i8(i) as i32));
        let exponential = |i: usize| {
            let diff = x.i8(i) as i32 - max;
            (diff >= diff_min).then(|| {
                // `MultiplyByQuantizedMultiplierGreaterThanOne`.
                let shifted = diff.wrapping_shl(left_shift.max(0) as u32);
                exp_on_negative_values(fixed::rounding_doubling_high_mul(shifted, multiplier))
            })
        };
        let sum = at
            .clone()
            .filter_map(exponential)
            .fold(0i32, |sum, e| sum.wrapping_add(fixed::rounding_divide_by_pot(e, SUM_INTEGER_BITS)));
        // Bring the sum to 1 <= s < 2 and invert it: `GetReciprocal`.
        let headroom = (sum as u32).leading_zeros();
        let over_unit = SUM_INTEGER_BITS as i32 - headroom as i32;
        let fraction = ((sum as u32).wrapping_shl(headroom)).wrapping_sub(1 << 31) as i32;
        let reciprocal = one_over_one_plus(fraction);
        for i in at {
            let value = exponential(i).map_or(-128, |e| {
                let product = fixed::rounding_doubling_high_mul(reciprocal, e);
                let unsat = fixed::rounding_divide_by_pot(product, (over_unit + 31 - 8).clamp(0, 31) as u32);
                unsat.saturating_sub(128).clamp(-128, 127)
            });
            y.set_i8(i, value as i8);
        }
    }
}

/// Element `i` less the largest, rounded as the element type does.
pub(crate) fn difference(x: &Arg<'_>, i: usize, max: f64) -> f64 {
    if x.ty.dtype == DType::F64 { x.real(i) - max } else { (x.f32(i) - max as f32) as f64 }
}

/// `exp(a)` for `a <= 0` in Q5, result in Q0: gemmlowp's `exp_on_negative_values`.
pub(crate) fn exp_on_negative_values(a: i32) -> i32 {
    const QUARTER: i32 = 1 << 24; // 1/4 in Q5
    let quarter = (a & (QUARTER - 1)) - QUARTER;
    // Rescale Q5 to Q0: exact here, the value is above -1/4.
    let mut result = exp_between_minus_quarter_and_zero(quarter.wrapping_shl(5));
    let remainder = quarter.wrapping_sub(a);
    // exp(-2^k) in Q0 for k = -2 ..= 4.
    const FACTORS: [i32; 7] = [1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242];
    for (k, factor) in FACTORS.into_iter().enumerate() {
        if remainder & (1 << (24 + k)) != 0 {
            result = fixed::rounding_doubling_high_mul(result, factor);
        }
    }
    if a == 0 { i32::MAX } else { result }
}

/// `exp(a)` for `-1/4 <= a < 0` in Q0: a Taylor series around -1/8.
fn exp_between_minus_quarter_and_zero(a: i32) -> i32 {
    const EXP_MINUS_EIGHTH: i32 = 1895147668;
    const THIRD: i32 = 715827883;
    let mul = fixed::rounding_doubling_high_mul;
    let x = a.wrapping_add(1 << 28);
    let x2 = mul(x, x);
    let x3 = mul(x2, x);
    let x4 = mul(x2, x2);
    let quarter_x4 = fixed::rounding_divide_by_pot(x4, 2);
    let inner = mul(quarter_x4.wrapping_add(x3), THIRD).wrapping_add(x2);
    let halved = fixed::rounding_divide_by_pot(inner, 1);
    EXP_MINUS_EIGHTH.saturating_add(mul(EXP_MINUS_EIGHTH, x.wrapping_add(halved)))
}

/// `1 / (1 + x)` for `0 <= x < 1` in Q0: three Newton-Raphson steps, gemmlowp's
/// `one_over_one_plus_x_for_x_in_0_1`.
pub(crate) fn one_over_one_plus(x: i32) -> i32 {
    const ONE_Q2: i32 = 1 << 29;
    const N48_OVER_17: i32 = 1515870810;
    const NEG_32_OVER_17: i32 = -1010580540;
    let mul = fixed::rounding_doubling_high_mul;
    // 1 is the largest Q0.
    let half_denominator = half_of_sum(x, i32::MAX);
    let mut estimate = N48_OVER_17.wrapping_add(mul(half_denominator, NEG_32_OVER_17));
    for _ in 0..3 {
        let one_minus = ONE_Q2.wrapping_sub(mul(half_denominator, estimate));
        // Q2 times Q2 is Q4; back to Q2 by a saturating shift.
        let step = fixed::saturating_shift_left(mul(estimate, one_minus), 2);
        estimate = estimate.wrapping_add(step);
    }
    // Q2 times a half, read in Q1, then rescaled to Q0.
    fixed::saturating_shift_left(estimate, 1)
}

/// `(a + b) / 2`, rounded with ties away from zero: gemmlowp's `RoundingHalfSum`.
pub(crate) fn half_of_sum(a: i32, b: i32) -> i32 {
    let sum = a as i64 + b as i64;
    ((sum + if sum >= 0 { 1 } else { -1 }) / 2) as i32
}

/// `e^x` for `x <= 0` in double precision without libm: halve into [-1/2, 0], series, square back.
pub(crate) fn exp(x: f64) -> f64 {
    if x < -745.0 {
        return 0.0;
    }
    if x.is_nan() {
        return x;
    }
    let mut halvings = 0;
    let mut r = x;
    while r < -0.5 {
        r /= 2.0;
        halvings += 1;
    }
    let mut term = 1.0;
    let mut sum = 1.0;
    for k in 1..=18 {
        term *= r / k as f64;
        sum += term;
    }
    for _ in 0..halvings {
        sum *= sum;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;
    use kiln_core::Shape;

    #[test]
    fn fixed_point_exponentials_are_close() {
        for i in 0..4000 {
            let a = -(i * 536_870); // Q5 steps down to about -32
            let got = exp_on_negative_values(a) as f64 / (1u64 << 31) as f64;
            let want = (a as f64 / (1 << 26) as f64).exp();
            assert!((got - want).abs() < 1e-6, "exp({}) = {got}", a as f64 / (1 << 26) as f64);
        }
        for i in 0..1000 {
            let x = i * 2_147_483;
            let got = one_over_one_plus(x) as f64 / (1u64 << 31) as f64;
            let want = 1.0 / (1.0 + x as f64 / (1u64 << 31) as f64);
            assert!((got - want).abs() < 1e-7, "1 / (1 + {x}) = {got}, not {want}");
        }
    }

    #[test]
    fn float_rows_sum_to_one() {
        let ty = TensorType::new(DType::F32, Shape::new(&[2, 3]).unwrap());
        let values = [1f32, 2.0, 3.0, -50.0, 0.0, 800.0];
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut out = [0u8; 24];
        let mut y = ArgMut { ty, quant: QuantRef::default(), data: &mut out };
        let x = Arg { ty, quant: QuantRef::default(), data: &data };
        Softmax { beta: 1.0 }.reference(&[x], &mut y).unwrap();
        let got: Vec<f32> = out.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
        let e = |v: f64| v.exp();
        let sum = e(-2.0) + e(-1.0) + 1.0;
        for (g, w) in got.iter().zip([e(-2.0) / sum, e(-1.0) / sum, 1.0 / sum, 0.0, 0.0, 1.0]) {
            assert!((*g as f64 - w).abs() < 1e-7);
        }
    }

    #[test]
    fn the_int8_scaling_of_a_unit_scale() {
        let (multiplier, shift, diff_min) = Softmax { beta: 1.0 }.scaling(0.125);
        assert_eq!((multiplier, shift), (1 << 30, 24));
        assert_eq!(diff_min, -((31i64 << 26) >> 24) as i32);
    }
}
