//! Fixed-point arithmetic exactly as TensorFlow Lite Micro's reference kernels round it.
//!
//! The functions follow gemmlowp's `fixedpoint.h` and TFLite's `common.h` ("double rounding":
//! saturating rounding doubling high multiply, then rounding shift). Sums that the originals let
//! wrap in practice wrap here by name.

/// `a * b / 2^31`, rounded to nearest with ties away from zero, saturated: gemmlowp's
/// `SaturatingRoundingDoublingHighMul`.
#[inline]
pub const fn rounding_doubling_high_mul(a: i32, b: i32) -> i32 {
    if a == i32::MIN && b == i32::MIN {
        return i32::MAX;
    }
    let product = a as i64 * b as i64;
    let nudge = if product >= 0 { 1i64 << 30 } else { 1 - (1i64 << 30) };
    // The original divides, which truncates towards zero; a shift would round down.
    ((product + nudge) / (1i64 << 31)) as i32
}

/// `x / 2^exponent`, rounded to nearest with ties away from zero: gemmlowp's
/// `RoundingDivideByPOT`. `exponent` is taken modulo 32; 0 to 31 make sense.
#[inline]
pub const fn rounding_divide_by_pot(x: i32, exponent: u32) -> i32 {
    let mask = (1i32.wrapping_shl(exponent)).wrapping_sub(1);
    let remainder = x & mask;
    let threshold = (mask >> 1) + (x < 0) as i32;
    x.wrapping_shr(exponent) + (remainder > threshold) as i32
}

/// `x * 2^exponent`, saturated: gemmlowp's `SaturatingRoundingMultiplyByPOT` for a left shift.
#[inline]
pub const fn saturating_shift_left(x: i32, exponent: u32) -> i32 {
    let wide = (x as i64).wrapping_shl(exponent);
    if exponent > 31 || wide > i32::MAX as i64 {
        if x == 0 {
            0
        } else if x > 0 {
            i32::MAX
        } else {
            i32::MIN
        }
    } else if wide < i32::MIN as i64 {
        i32::MIN
    } else {
        wide as i32
    }
}

/// `x * multiplier / 2^31 * 2^shift` with both roundings: TFLite's `MultiplyByQuantizedMultiplier`.
/// A positive `shift` goes left before the multiplication, a negative one right after it.
#[inline]
pub const fn multiply_by_quantized_multiplier(x: i32, multiplier: i32, shift: i32) -> i32 {
    let left = if shift > 0 { shift as u32 } else { 0 };
    let right = if shift > 0 { 0 } else { shift.unsigned_abs() };
    let high = rounding_doubling_high_mul(x.wrapping_shl(left), multiplier);
    rounding_divide_by_pot(high, right)
}

/// The multiplier and shift that stand for `real` (a positive factor): TFLite's
/// `QuantizeMultiplier`. The multiplier is in `2^30 ..= 2^31 - 1`, or both are 0 for factors too
/// small to matter.
pub fn quantize_multiplier(real: f64) -> (i32, i32) {
    if real == 0.0 || !real.is_finite() {
        return (0, 0);
    }
    // frexp by hand, so that the core needs no libm: real = fraction * 2^exponent, 0.5 <= |fraction| < 1.
    let mut value = real;
    let mut exponent = 0i32;
    let field = |v: f64| ((v.to_bits() >> 52) & 0x7ff) as i32;
    if field(value) == 0 {
        value *= (1u64 << 54) as f64;
        exponent -= 54;
    }
    exponent += field(value) - 1022;
    let fraction = f64::from_bits((value.to_bits() & !(0x7ff << 52)) | (1022 << 52));
    // TfLiteRound: to nearest, ties away from zero. The product is exact (a power of two), so
    // adding a half and truncating rounds right.
    let scaled = fraction * (1i64 << 31) as f64;
    let mut multiplier = if scaled >= 0.0 { (scaled + 0.5) as i64 } else { (scaled - 0.5) as i64 };
    if multiplier == 1i64 << 31 {
        multiplier /= 2;
        exponent += 1;
    }
    if exponent < -31 {
        return (0, 0);
    }
    if exponent > 30 {
        return (i32::MAX, 30);
    }
    (multiplier as i32, exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_mul_rounds_ties_away_from_zero() {
        assert_eq!(rounding_doubling_high_mul(i32::MIN, i32::MIN), i32::MAX);
        assert_eq!(rounding_doubling_high_mul(1, 1 << 30), 1);
        // -0.5 plus the nudge of 1 - 2^30 truncates to 0: the original's asymmetry, kept.
        assert_eq!(rounding_doubling_high_mul(-1, 1 << 30), 0);
        assert_eq!(rounding_doubling_high_mul(-3, 1 << 30), -1);
        assert_eq!(rounding_doubling_high_mul(1000, 1 << 30), 500);
    }

    #[test]
    fn divide_by_pot_rounds_ties_away_from_zero() {
        assert_eq!(rounding_divide_by_pot(5, 1), 3);
        assert_eq!(rounding_divide_by_pot(-5, 1), -3);
        assert_eq!(rounding_divide_by_pot(-4, 3), -1);
        assert_eq!(rounding_divide_by_pot(7, 0), 7);
        assert_eq!(rounding_divide_by_pot(i32::MIN, 31), -1);
    }

    #[test]
    fn multipliers_reproduce_their_factor() {
        for &real in &[1.0, 0.5, 0.75, 0.001234, 3.999, 1e-9, 123.456] {
            let (m, s) = quantize_multiplier(real);
            let back = m as f64 / (1u64 << 31) as f64 * 2f64.powi(s);
            assert!((back / real - 1.0).abs() < 1e-9, "{real} became {back}");
        }
        assert_eq!(quantize_multiplier(1.0), (1 << 30, 1));
        assert_eq!(quantize_multiplier(0.0), (0, 0));
        assert_eq!(quantize_multiplier(1e-12), (0, 0));
        // Just below one: rounds up to 2^31 and is halved.
        assert_eq!(quantize_multiplier(1.0 - 1e-16), (1 << 30, 1));
        assert_eq!(quantize_multiplier(f64::from_bits(1)), (0, 0));
    }

    #[test]
    fn shift_left_saturates() {
        assert_eq!(saturating_shift_left(1 << 20, 20), i32::MAX);
        assert_eq!(saturating_shift_left(-(1 << 20), 20), i32::MIN);
        assert_eq!(saturating_shift_left(-3, 2), -12);
        assert_eq!(saturating_shift_left(0, 60), 0);
    }
}
