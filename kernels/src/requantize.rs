//! From a 32-bit sum to an int8 output: the one epilogue of all integer kernels.
//!
//! TFLite Micro's double rounding, as `kiln_core::fixed` documents it, in the form that costs the
//! fewest instructions: the high multiply's sign-dependent nudge followed by a truncating division is
//! `(product + 2^30) >> 31` for either sign.

/// `a * b / 2^31`, ties away from zero, saturated.
#[inline(always)]
pub(crate) fn high_mul(a: i32, b: i32) -> i32 {
    // The one product that does not fit is MIN * MIN.
    if a == i32::MIN && b == i32::MIN {
        return i32::MAX;
    }
    ((a as i64 * b as i64 + (1 << 30)) >> 31) as i32
}

/// `x / 2^exponent`, ties away from zero; `exponent` modulo 32.
#[inline(always)]
pub(crate) fn divide_by_pot(x: i32, exponent: u32) -> i32 {
    let mask = 1i32.wrapping_shl(exponent).wrapping_sub(1);
    let threshold = (mask >> 1).wrapping_add((x < 0) as i32);
    x.wrapping_shr(exponent).wrapping_add(((x & mask) > threshold) as i32)
}

/// `x * multiplier / 2^31 * 2^shift`.
#[inline(always)]
pub(crate) fn scale(x: i32, multiplier: i32, shift: i32) -> i32 {
    let left = shift.max(0) as u32;
    let right = shift.min(0).unsigned_abs();
    divide_by_pot(high_mul(x.wrapping_shl(left), multiplier), right)
}

/// An int8 in `low..=high` from a scaled sum.
#[inline(always)]
pub(crate) fn narrow(scaled: i32, zero: i32, low: i32, high: i32) -> i8 {
    scaled.wrapping_add(zero).max(low).min(high) as i8
}

/// Numbers to round: a linear congruence (Knuth, MMIX), of which the upper half is used.
#[cfg(test)]
pub(crate) fn random() -> impl FnMut() -> i32 {
    let mut seed = 1u64;
    move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 32) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::fixed;

    #[test]
    fn equals_the_cores_arithmetic() {
        let edges = [i32::MIN, i32::MIN + 1, -(1 << 30), -3, -2, -1, 0, 1, 2, 3, 1 << 30, i32::MAX - 1, i32::MAX];
        let mut random = random();
        let mut values: Vec<i32> = edges.to_vec();
        values.extend((0..if cfg!(miri) { 20 } else { 400 }).map(|_| random()));
        for &a in &values {
            for &b in &values {
                assert_eq!(high_mul(a, b), fixed::rounding_doubling_high_mul(a, b), "{a} * {b}");
            }
            for e in 0..32 {
                assert_eq!(divide_by_pot(a, e), fixed::rounding_divide_by_pot(a, e), "{a} >> {e}");
                let (m, s) = (random(), e as i32 - 31);
                for shift in [s, -s] {
                    let want = fixed::multiply_by_quantized_multiplier(a, m, shift);
                    assert_eq!(scale(a, m, shift), want, "{a} * {m} << {shift}");
                }
            }
        }
    }
}
