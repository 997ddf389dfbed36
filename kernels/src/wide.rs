//! Functions of float32 over the vectors of hosts: exponential, logarithm, hyperbolic tangent, sigmoid, error function.
//!
//! Each is within 2 units in the last place of the exact value over all float32 numbers, subnormal ones among
//! arguments and results included; infinities, zeros and what is not a number give what the limits say. A lane's
//! result depends on its argument alone, so elements have the same bits in a full vector and in a rest, with AVX2 and
//! with AVX-512. The series are minimax polynomials, fitted by the exchange algorithm to the error that counts.

use crate::vector::Vector;

/// What functions need beyond [`Vector`]: the arithmetic of float32, lane by lane, rounded as IEEE 754 says.
///
/// The safety of all of it: the CPU has these vectors.
pub(crate) trait Wide: Vector {
    /// `self - other`.
    unsafe fn minus(self, other: Self) -> Self;
    /// `self * other`.
    unsafe fn times(self, other: Self) -> Self;
    /// `self / other`.
    unsafe fn over(self, other: Self) -> Self;
    /// The square root.
    unsafe fn root(self) -> Self;
    /// The nearest whole number, the even one of two.
    unsafe fn rounded(self) -> Self;
    /// The largest whole number that is not larger.
    unsafe fn floor(self) -> Self;
    /// With the other sign.
    unsafe fn negated(self) -> Self;
    /// Without the sign.
    unsafe fn magnitude(self) -> Self;
    /// With the other's sign.
    unsafe fn with_sign_of(self, other: Self) -> Self;
    /// `2^self` for whole numbers from -126 to 127.
    unsafe fn two_to(self) -> Self;
    /// `(m, e)` with `self = m 2^e` and `2/3 <= m < 4/3` for positive normal numbers.
    unsafe fn split(self) -> (Self, Self);
}

/// A polynomial, the highest power's coefficient first.
///
/// # Safety
///
/// The CPU has these vectors; so for every function here.
#[inline(always)]
unsafe fn series<V: Wide, const N: usize>(x: V, coefficients: [f32; N]) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sum = V::zero();
        for &c in &coefficients {
            sum = V::splat(c).multiply_add(sum, x);
        }
        sum
    }
}

/// `e^x` as a number, what it is short of it, and two factors: `(e^r, error, 2^h, 2^(n - h))` with `x = n log(2) + r` and
/// `|r| <= log(2) / 2`. In two factors: alone `2^n` may be no normal number where the result is one.
///
/// # Safety
///
/// The CPU has these vectors.
#[inline(always)]
unsafe fn power<V: Wide>(x: V) -> (V, V, V, V) {
    const LOG2_E: f32 = core::f32::consts::LOG2_E;
    // log(2) in two parts.
    const HIGH: f32 = core::f32::consts::LN_2;
    const LOW: f32 = -1.904_654_3e-9;
    // SAFETY: the caller's promise.
    unsafe {
        let one = V::splat(1.0);
        // Beyond these the result is 0 or infinite.
        let x = x.clamp(V::splat(-104.0), V::splat(89.0));
        let n = x.times(V::splat(LOG2_E)).rounded();
        let r = x.multiply_add(n, V::splat(-HIGH)).multiply_add(n, V::splat(-LOW));
        // (e^r - 1 - r) / r^2.
        let rest = series(r, [1.979_03e-4, 1.394_470_3e-3, 8.333_498e-3, 4.166_629_5e-2, 0.166_666_66, 0.5]);
        let beyond = r.multiply_add(r.times(r), rest);
        let power = one.plus(beyond);
        let half = n.times(V::splat(0.5)).rounded();
        (power, beyond.minus(power.minus(one)), half.two_to(), n.minus(half).two_to())
    }
}

/// `e^x`.
///
/// # Safety
///
/// The CPU has these vectors.
#[inline(always)]
pub(crate) unsafe fn exp<V: Wide>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let (power, _, first, second) = power(x);
        power.times(first).times(second)
    }
}

/// The natural logarithm: `e log(2) + log(m)` with `2/3 <= m < 4/3`.
///
/// # Safety
///
/// The CPU has these vectors.
#[inline(always)]
pub(crate) unsafe fn log<V: Wide>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let small = V::splat(f32::MIN_POSITIVE).above(x);
        let scaled = V::select(small, x.times(V::splat(8_388_608.0)), x);
        let (m, e) = scaled.split();
        let e = e.plus(V::select(small, V::splat(-23.0), V::zero()));
        let f = m.minus(V::splat(1.0));
        // (log(1 + f) - f + f^2 / 2) / f^3.
        let third = [
            -0.128_951_04,
            0.139_877_91,
            -0.121_835_545,
            0.140_052_48,
            -0.166_805_33,
            0.200_104_4,
            -0.249_997_97,
            0.333_332_15,
        ];
        let second = V::splat(-0.5).multiply_add(f, series(f, third));
        let rest = f.multiply_add(f.times(f), second);
        let log = rest.multiply_add(e, V::splat(core::f32::consts::LN_2));
        // What is no positive finite number: -infinity at 0, nothing below, itself above.
        let positive = V::select(x.above(V::splat(f32::MAX)), x, log);
        let zero = V::select(x.equal(V::zero()), V::splat(f32::NEG_INFINITY), V::splat(f32::NAN));
        V::select(x.above(V::zero()), positive, zero)
    }
}

/// The hyperbolic tangent: an odd series up to 0.625, beyond `1 - 2 / (e^2x + 1)`.
///
/// # Safety
///
/// The CPU has these vectors.
#[inline(always)]
pub(crate) unsafe fn tanh<V: Wide>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let (size, one) = (x.magnitude(), V::splat(1.0));
        let square = x.times(x);
        let odd = series(square, [-5.702_611_5e-3, 2.063_704_7e-2, -5.373_911_6e-2, 0.133_314_36, -0.333_332_8]);
        let small = x.multiply_add(x.times(square), odd);
        let power = exp(size.plus(size));
        let large = one.minus(V::splat(2.0).over(power.plus(one))).with_sign_of(x);
        V::select(V::splat(0.625).above(size), small, large)
    }
}

/// `1 / (1 + e^-x)`, without overflow.
///
/// # Safety
///
/// The CPU has these vectors.
#[inline(always)]
pub(crate) unsafe fn sigmoid<V: Wide>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let one = V::splat(1.0);
        let (e, short, first, second) = power(x.magnitude().negated());
        let (e, short) = (e.times(first).times(second), short.times(first).times(second));
        let below = one.plus(e);
        let below_short = e.minus(below.minus(one)).plus(short);
        let negative = V::zero().above(x);
        let above = V::select(negative, e, one);
        let quotient = above.over(below);
        // What the quotient is short of.
        let rest = above.multiply_add(quotient.negated(), below).multiply_add(quotient.negated(), below_short);
        let rest = V::select(negative, rest.plus(short), rest);
        quotient.plus(rest.over(below))
    }
}

/// The error function: an odd series up to 0.9, beyond `1 - e^-h` with a series for `h`.
///
/// # Safety
///
/// The CPU has these vectors.
#[inline(always)]
pub(crate) unsafe fn erf<V: Wide>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let square = x.times(x);
        let even = [-6.088_330_4e-4, 5.011_589_3e-3, -2.677_867e-2, 0.112_821_35, -0.376_125_22, 0.128_379_15];
        let small = x.multiply_add(x, series(square, even));
        // From here on it is 1.
        let size = x.magnitude().clamp(V::zero(), V::splat(3.95));
        let rest =
            [1.001_513_2e-5, -3.107_257e-4, 3.593_762_4e-3, -2.366_000_2e-2, 0.106_119_536, 0.635_221_54, 0.128_631_38];
        let h = size.multiply_add(size, series(size, rest));
        let large = V::splat(1.0).minus(exp(h.negated())).with_sign_of(x);
        V::select(V::splat(0.9).above(size), small, large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::{Avx2, Avx512};

    type Exact = fn(f64) -> f64;
    type Many = unsafe fn(&mut [f32; 16]);

    /// `f` of sixteen numbers, over vectors.
    macro_rules! many {
        ($vector:ty, $features:literal, $f:ident) => {{
            #[target_feature(enable = $features)]
            unsafe fn many(x: &mut [f32; 16]) {
                let mut i = 0;
                while i < 16 {
                    // SAFETY: the test saw that the CPU has these vectors; they are whole within sixteen numbers.
                    unsafe { $f(<$vector>::load(x[i..].as_ptr())).store(x[i..].as_mut_ptr()) };
                    i += <$vector>::LANES;
                }
            }
            many as Many
        }};
    }

    macro_rules! functions {
        ($($name:ident $exact:expr;)*) => {
            [$((stringify!($name), $exact as Exact, many!(Avx2, "avx2,fma", $name),
                many!(Avx512, "avx2,fma,avx512f", $name)),)*]
        };
    }

    fn all() -> [(&'static str, Exact, Many, Many); 5] {
        functions! {
            exp libm::exp;
            log libm::log;
            tanh libm::tanh;
            sigmoid |x| if x < 0.0 { libm::exp(x) / (1.0 + libm::exp(x)) } else { 1.0 / (1.0 + libm::exp(-x)) };
            erf libm::erf;
        }
    }

    /// How far `got` is from `exact`, in units in the last place of float32 there.
    fn distance(got: f32, exact: f64) -> f64 {
        let nearest = exact as f32;
        if got == nearest || got.is_nan() && exact.is_nan() {
            return 0.0;
        }
        if !nearest.is_finite() || !got.is_finite() {
            // Next to the largest number either may be right.
            let bounded = |x: f64| x.clamp(-2f64.powi(128), 2f64.powi(128));
            return (bounded(got as f64) - bounded(exact)).abs() / 2f64.powi(104);
        }
        let unit = f64::from(nearest.abs().to_bits().max(1 << 23) >> 23) - 150.0;
        (got as f64 - exact).abs() / 2f64.powf(unit)
    }

    /// Over all exponents and signs, subnormal numbers, infinities and what is not a number among them.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has none of these vectors")]
    fn functions_are_within_two_units_and_the_same_over_all_vectors() {
        use std::arch::is_x86_feature_detected;
        if !is_x86_feature_detected!("avx2") || !is_x86_feature_detected!("fma") {
            return;
        }
        let special = [0.0, 1.0, 0.625, 0.9, 3.95, 88.722_84, 103.972_08, 104.0, f32::MAX, f32::INFINITY, f32::NAN];
        let special = special.into_iter().flat_map(|x| {
            let near = (-8..8).map(move |by| f32::from_bits(x.to_bits().wrapping_add_signed(by)));
            near.flat_map(|x| [x, -x])
        });
        // 4.3 million numbers, evenly over the bits.
        let mut numbers: Vec<f32> = special.chain((0..u32::MAX / 997).map(|i| f32::from_bits(i * 997))).collect();
        numbers.resize(numbers.len().next_multiple_of(16), 0.0);
        for (name, exact, eight, sixteen) in all() {
            let mut worst = (0.0, 0.0);
            for chunk in numbers.chunks_exact(16) {
                let (mut got, mut wider) = ([0f32; 16], [0f32; 16]);
                got.copy_from_slice(chunk);
                wider.copy_from_slice(chunk);
                // SAFETY: the CPU has AVX2 and FMA, and AVX-512 where it is asked.
                unsafe {
                    eight(&mut got);
                    if is_x86_feature_detected!("avx512f") {
                        sixteen(&mut wider);
                        assert!(got.map(f32::to_bits) == wider.map(f32::to_bits), "{name} of {chunk:?}");
                    }
                }
                for (&x, got) in chunk.iter().zip(got) {
                    let far = distance(got, exact(x as f64));
                    assert!(far <= 2.0, "{name}({x:e}) is {got:e}, {far} units from {:e}", exact(x as f64));
                    if far > worst.0 {
                        worst = (far, x);
                    }
                }
            }
            std::println!("{name}: at most {:.2} units in the last place, at {:e}", worst.0, worst.1);
        }
    }
}
