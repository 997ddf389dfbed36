//! What the int8 rows for MVE (Helium), the vector extension of Armv8.1-M, share: how the assembler is told of it, and how four sums
//! become outputs. Each assembly fragment has a twin in plain Rust that gives the same for any operands.

/// Lets the assembler take the extension's instructions, and the low-overhead loops of Armv8.1-M.
///
/// The compiler knows nothing of vector registers: a body keeps q4 to q7, which a caller may want back, by `vpush {d8-d15}`.
#[cfg(kiln_mve)]
macro_rules! extension {
    () => {
        ".cpu cortex-m55"
    };
}
#[cfg(kiln_mve)]
pub(crate) use extension;

/// [`scale`] of the four sums in a vector register: registers of the sums, of the multipliers, of the shifts, and one that
/// holds 1. Multipliers may be a vector or one for all, in an integer register; so may shifts, then as `scale!(…, all …)`.
#[cfg(kiln_mve)]
macro_rules! scale {
    ($sums:literal, $multipliers:literal, $shifts:literal, $one:literal) => {
        concat!(
            crate::mve::multiply!($sums, $multipliers, $one),
            "vrshl.s32 ",
            $sums,
            ", ",
            $sums,
            ", ",
            $shifts,
            "\n",
        )
    };
    ($sums:literal, $multipliers:literal, all $shift:literal, $one:literal) => {
        concat!(crate::mve::multiply!($sums, $multipliers, $one), "vrshl.s32 ", $sums, ", ", $shift, "\n")
    };
}

/// All of [`scale`] but its division. The second instruction adds the high word of twice the sum times 1: -1 to what is negative.
#[cfg(kiln_mve)]
macro_rules! multiply {
    ($sums:literal, $multipliers:literal, $one:literal) => {
        concat!(
            "vqrdmulh.s32 ",
            $sums,
            ", ",
            $sums,
            ", ",
            $multipliers,
            "\n",
            "vqdmlah.s32 ",
            $sums,
            ", ",
            $sums,
            ", ",
            $one,
            "\n",
        )
    };
}

/// [`narrow`] of the four scaled sums in a vector register; the zero point is in an integer register. An output is the low byte
/// of a lane, which `vstrb.32` stores side by side.
///
/// Of four vectors: a lane of the first becomes a word of the outputs of the first, the third, the second and the fourth, from its low
/// byte on. The third is lost.
#[cfg(kiln_mve)]
macro_rules! narrow {
    ($sums:literal, $zero:literal) => {
        concat!(
            "vqmovnb.s32 ",
            $sums,
            ", ",
            $sums,
            "\n",
            "vqadd.s16 ",
            $sums,
            ", ",
            $sums,
            ", ",
            $zero,
            "\n",
            "vqmovnb.s16 ",
            $sums,
            ", ",
            $sums,
            "\n",
        )
    };
    ($a:literal, $b:literal, $c:literal, $d:literal, $zero:literal) => {
        concat!(
            crate::mve::narrow!(halves $a, $b, $zero),
            crate::mve::narrow!(halves $c, $d, $zero),
            "vqmovnb.s16 ",
            $a,
            ", ",
            $a,
            "\n",
            "vqmovnt.s16 ",
            $a,
            ", ",
            $c,
            "\n",
        )
    };
    (halves $a:literal, $b:literal, $zero:literal) => {
        concat!(
            "vqmovnb.s32 ",
            $a,
            ", ",
            $a,
            "\n",
            "vqmovnt.s32 ",
            $a,
            ", ",
            $b,
            "\n",
            "vqadd.s16 ",
            $a,
            ", ",
            $a,
            ", ",
            $zero,
            "\n",
        )
    };
}

#[cfg(kiln_mve)]
pub(crate) use {multiply, narrow, scale};

/// A sum times `multiplier / 2^31`, rounded half up and saturated, divided by `2^-shift`, rounded to nearest with ties away from
/// zero, for a multiplier and a shift that [`scaling`] accepts.
#[inline(always)]
#[cfg_attr(kiln_mve, allow(dead_code))]
pub(crate) fn scale_one(sum: i32, multiplier: i32, shift: i32) -> i32 {
    let scaled = crate::requantize::high_mul(sum, multiplier);
    // Division rounds half up; one less does so away from zero for what is negative.
    let scaled = scaled.saturating_add(scaled.wrapping_shr(31)) as i64;
    let right = shift.wrapping_neg() as u32 & 31;
    let half = 1i64.wrapping_shl(right) >> 1;
    scaled.wrapping_add(half).wrapping_shr(right) as i32
}

/// A scaled sum, moved by the output's zero point, as an output.
#[inline(always)]
#[cfg_attr(kiln_mve, allow(dead_code))]
pub(crate) fn narrow_one(scaled: i32, zero: i32) -> i8 {
    let half = scaled.clamp(i16::MIN as i32, i16::MAX as i32) as i16;
    half.saturating_add(zero as i16).clamp(-128, 127) as i8
}

/// The output of a sum.
#[inline(always)]
#[cfg_attr(kiln_mve, allow(dead_code))]
pub(crate) fn finish(sum: i32, multiplier: i32, shift: i32, zero: i32) -> i8 {
    narrow_one(scale_one(sum, multiplier, shift), zero)
}

/// A multiplier and its shift as [`scale_one`] takes them: those that divide by 2 or more. `None` for others.
#[cfg(feature = "host")]
pub(crate) fn scaling(multiplier: i32, shift: i32) -> Option<(i32, i32)> {
    match multiplier {
        // A scale too small to matter: the shift is as good as any.
        0 => Some((0, -1)),
        1.. => (-31..=-1).contains(&shift).then_some((multiplier, shift)),
        _ => None,
    }
}

/// Whether all channels, of which `constants` gives start, multiplier and shift, have scales that [`scale_one`] takes.
#[cfg(feature = "host")]
pub(crate) fn can_scale(channels: u32, constants: impl Fn(usize) -> (i32, i32, i32)) -> bool {
    (0..channels as usize).map(constants).all(|(_, multiplier, shift)| scaling(multiplier, shift).is_some())
}

/// Emits the block of such channels.
#[cfg(feature = "host")]
pub(crate) fn emit_block(
    emit: &mut dyn crate::table::Emit,
    channels: u32,
    constants: impl Fn(usize) -> (i32, i32, i32),
) {
    crate::lowering::emit_block(emit, channels, |o| {
        let (start, multiplier, shift) = constants(o);
        let (multiplier, shift) = scaling(multiplier, shift).unwrap_or((0, -1));
        (start, multiplier, shift)
    });
}

/// CPUs with the extension.
#[cfg(feature = "host")]
pub(crate) const TARGETS: &[kiln_core::TargetId] = &[kiln_core::TargetId::ARMV81M];

#[cfg(all(test, feature = "host"))]
mod tests {
    use kiln_core::fixed;

    use super::*;

    #[test]
    fn finishing_rounds_as_the_core_does() {
        let mut random = crate::requantize::random();
        let edges = [i32::MIN, i32::MIN + 1, -(1 << 30), -3, -2, -1, 0, 1, 2, 3, 1 << 30, i32::MAX - 1, i32::MAX];
        for round in 0..if cfg!(miri) { 100 } else { 20_000 } {
            let multiplier = match round % 5 {
                0 => 1 << 30,
                1 => i32::MAX,
                2 => 1 + (random() & 0xffff),
                _ => random() & i32::MAX | 1 << 30,
            };
            let shift = -1 - round % 31;
            assert_eq!(scaling(multiplier, shift), Some((multiplier, shift)));
            let zero = random() % 129;
            // Sums whose scaled values are ties, as well as any.
            let tie = (1i64 << (-shift - 1)) + ((random() % 64) as i64) * (1i64 << -shift);
            let sums = edges.into_iter().chain([random(), random() >> 12, random() >> 20, tie as i32, -tie as i32]);
            for sum in sums {
                let want = fixed::multiply_by_quantized_multiplier(sum, multiplier, shift);
                assert_eq!(scale_one(sum, multiplier, shift), want, "{sum} * {multiplier} << {shift}");
                let want = (want as i64 + zero as i64).clamp(-128, 127);
                assert_eq!(
                    finish(sum, multiplier, shift, zero) as i64,
                    want,
                    "{sum} * {multiplier} << {shift} + {zero}"
                );
            }
        }
        assert_eq!(scaling(1 << 30, 0), None);
        assert_eq!(finish(i32::MIN, 0, -1, 5), 5);
    }
}
