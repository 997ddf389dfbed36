//! What the DSP extension of Armv7E-M and Armv8-M does in one instruction, under its instructions' names; elsewhere the
//! same in plain Rust. Plans for CPUs with the extension use rows built from these, and any CPU runs them.

/// Lets the assembler take the extension's instructions.
#[cfg(all(kiln_dsp, kiln_dsp_optional))]
macro_rules! extension {
    () => {
        ".cpu cortex-m33"
    };
}
#[cfg(all(kiln_dsp, not(kiln_dsp_optional)))]
macro_rules! extension {
    () => {
        ""
    };
}
#[cfg(kiln_dsp)]
pub(crate) use extension;

/// An instruction of three registers, with what it computes.
macro_rules! instruction {
    ($(#[$doc:meta])* $name:ident($($operand:ident),*), $assembly:literal, $plain:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name($($operand: i32),*) -> i32 {
            #[cfg(kiln_dsp)]
            {
                let out;
                // SAFETY: arithmetic on registers. The sticky Q flag, which some of them set, belongs to nobody.
                unsafe {
                    core::arch::asm!(
                        extension!(),
                        $assembly,
                        $($operand = in(reg) $operand,)*
                        out = lateout(reg) out,
                        options(pure, nomem, nostack),
                    );
                }
                out
            }
            #[cfg(not(kiln_dsp))]
            {
                $plain
            }
        }
    };
}

instruction! {
    /// `c + a * b / 2^32`, rounded half up.
    smmlar(a, b, c), "smmlar {out}, {a}, {b}, {c}",
    (c as i64).wrapping_shl(32).wrapping_add(a as i64 * b as i64).wrapping_add(1 << 31).wrapping_shr(32) as i32
}

instruction! {
    /// Bytes 0 and 2 as the low and the high half, with their signs.
    sxtb16(a), "sxtb16 {out}, {a}",
    halves(a as i8 as i32, a.wrapping_shr(16) as i8 as i32)
}

instruction! {
    /// Bytes 1 and 3 as the low and the high half, with their signs.
    sxtb16_ror8(a), "sxtb16 {out}, {a}, ror #8",
    halves(a.wrapping_shr(8) as i8 as i32, a.wrapping_shr(24) as i8 as i32)
}

instruction! {
    /// `c` plus the products of the low halves and of the high halves.
    smlad(a, b, c), "smlad {out}, {a}, {b}, {c}",
    c.wrapping_add(low(a).wrapping_mul(low(b))).wrapping_add(high(a).wrapping_mul(high(b)))
}

instruction! {
    /// `a` within `-128..=127`.
    ssat8(a), "ssat {out}, #8, {a}",
    a.clamp(-128, 127)
}

/// Two halves as a word.
#[cfg(not(kiln_dsp))]
#[inline(always)]
fn halves(low: i32, high: i32) -> i32 {
    (low & 0xffff) | high.wrapping_shl(16)
}

/// The low half, with its sign.
#[cfg(not(kiln_dsp))]
#[inline(always)]
fn low(a: i32) -> i32 {
    a as i16 as i32
}

/// The high half, with its sign.
#[cfg(not(kiln_dsp))]
#[inline(always)]
fn high(a: i32) -> i32 {
    a.wrapping_shr(16)
}

/// The output of a sum: scaled, rounded twice as TFLite Micro rounds, shifted by the zero point, saturated.
/// `multiplier` and `divisor` are a channel's [`scaling`].
#[inline(always)]
pub(crate) fn finish(sum: i32, multiplier: i32, divisor: i32, zero: i32) -> i32 {
    let scaled = smmlar(sum, multiplier, sum);
    // Division rounds half up; one less does so away from zero for what is negative.
    let scaled = scaled.wrapping_add(scaled.wrapping_shr(31));
    ssat8(smmlar(scaled, divisor, zero))
}

/// [`finish`] in place, as assembly: the registers of the sum, the multiplier, the divisor and the zero point.
#[cfg(kiln_dsp)]
macro_rules! finish_in {
    ($sum:literal, $multiplier:literal, $divisor:literal, $zero:literal) => {
        concat!(
            "smmlar ",
            $sum,
            ", ",
            $sum,
            ", ",
            $multiplier,
            ", ",
            $sum,
            "\nadd ",
            $sum,
            ", ",
            $sum,
            ", ",
            $sum,
            ", asr #31\nsmmlar ",
            $sum,
            ", ",
            $sum,
            ", ",
            $divisor,
            ", ",
            $zero,
            "\nssat ",
            $sum,
            ", #8, ",
            $sum,
            "\n",
        )
    };
}
#[cfg(kiln_dsp)]
pub(crate) use finish_in;

/// A multiplier and its shift as [`finish`] takes them: twice the multiplier, less 2^32, and what of 32 bits a division by
/// a power of 2 leaves. `sum * 2 m / 2^32` is `sum + sum * (2 m - 2^32) / 2^32`, so that one instruction rounds it as the doubling
/// high product does; `x * 2^(32 - n) / 2^32` is `x / 2^n`. `None` where that has no form: without a division by 4 or more.
#[cfg(feature = "host")]
pub(crate) fn scaling(multiplier: i32, shift: i32) -> Option<(i32, u8)> {
    let normal = multiplier >= 1 << 30;
    (normal && (-31..=-2).contains(&shift)).then(|| (multiplier.wrapping_shl(1), (32 + shift) as u8))
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use kiln_core::fixed;

    use super::*;

    #[test]
    fn finishing_rounds_as_the_core_does() {
        let mut random = crate::requantize::random();
        let edges = [i32::MIN, i32::MIN + 1, -(1 << 30), -3, -2, -1, 0, 1, 2, 3, 1 << 30, i32::MAX - 1, i32::MAX];
        for round in 0..if cfg!(miri) { 100 } else { 20_000 } {
            let multiplier = match round % 4 {
                0 => 1 << 30,
                1 => i32::MAX,
                _ => random() & i32::MAX | 1 << 30,
            };
            let shift = -2 - round % 30;
            let (doubled, left) = scaling(multiplier, shift).unwrap();
            let zero = random() % 128;
            // Sums whose scaled values are ties, as well as any.
            let tie = (1i64 << (-shift - 1)) + ((random() % 64) as i64) * (1i64 << -shift);
            let sums = edges.into_iter().chain([random(), random() >> 12, random() >> 20, tie as i32, -tie as i32]);
            for sum in sums {
                let want = fixed::multiply_by_quantized_multiplier(sum, multiplier, shift).wrapping_add(zero);
                let got = finish(sum, doubled, 1 << left, zero);
                assert_eq!(got, want.clamp(-128, 127), "{sum} * {multiplier} << {shift} + {zero}");
            }
        }
        assert_eq!(scaling(1 << 30, -1), None);
        assert_eq!(scaling(0, -4), None);
    }

    #[test]
    fn halves_keep_their_signs() {
        assert_eq!(sxtb16(0x1280_7ff0u32 as i32), 0xff80_fff0u32 as i32);
        assert_eq!(sxtb16_ror8(0x1280_7ff0u32 as i32), 0x0012_007f);
        assert_eq!(smlad(0x0003_fffe, 0x0005_0007, 100), 100 + 15 - 14);
    }
}
