//! From a sum to an output on CPUs that multiply one number at a time: Cortex-M0 and M3, RV32IMC.
//!
//! TFLite Micro rounds twice: `x = (sum * m + 2^30) >> 31`, then `x / 2^n` with ties away from zero. For `n` of 1 or more both are one
//! shift of the exact product, `(sum * m + 2^(30 + n) + 2^30) >> (31 + n)`, or with `- 2^30` where the sum is negative. What is
//! added ends in thirty zero bits, so these bits of the product can go first: with `high = (4 * sum * m) >> 32`, the upper half of
//! a product, the output is `(((high + 1) >> n) + 1) >> 1`, or with `high - 1`. A shift by `n + 1` leaves the last bit that it
//! drops in the carry of Arm's CPUs, which makes the last step an addition with carry, of the output's zero point.
//!
//! An activation that begins at zero makes negative sums its least output, whatever else they are.

use crate::arithmetic::Epilogue;

/// Sums are below this, and not below its negative: what keeps every step within 32 bits.
#[cfg(feature = "host")]
pub(crate) const SUM_LIMIT: i64 = 1 << 27;

/// Keeps the registers that RISC-V's callers may want back in 64 bytes of stack, of which those from 52 on are free.
#[cfg(kiln_rv32im)]
macro_rules! save {
    () => {
        "addi sp, sp, -64
        sw ra, 0(sp)
        sw s0, 4(sp)
        sw s1, 8(sp)
        sw s2, 12(sp)
        sw s3, 16(sp)
        sw s4, 20(sp)
        sw s5, 24(sp)
        sw s6, 28(sp)
        sw s7, 32(sp)
        sw s8, 36(sp)
        sw s9, 40(sp)
        sw s10, 44(sp)
        sw s11, 48(sp)"
    };
}
#[cfg(kiln_rv32im)]
pub(crate) use save;

/// Gives them back, and the stack.
#[cfg(kiln_rv32im)]
macro_rules! restore {
    () => {
        "lw ra, 0(sp)
        lw s0, 4(sp)
        lw s1, 8(sp)
        lw s2, 12(sp)
        lw s3, 16(sp)
        lw s4, 20(sp)
        lw s5, 24(sp)
        lw s6, 28(sp)
        lw s7, 32(sp)
        lw s8, 36(sp)
        lw s9, 40(sp)
        lw s10, 44(sp)
        lw s11, 48(sp)
        addi sp, sp, 64"
    };
}
#[cfg(kiln_rv32im)]
pub(crate) use restore;

/// The upper half of a product.
#[cfg(not(kiln_armv6m))]
#[inline(always)]
fn high_half(a: i32, b: i32) -> i32 {
    #[cfg(target_arch = "riscv32")]
    {
        let out;
        // SAFETY: arithmetic on registers. The compiler makes three products of it where a factor stays the same in a loop.
        unsafe {
            core::arch::asm!(
                "mulh {out}, {a}, {b}",
                a = in(reg) a,
                b = in(reg) b,
                out = lateout(reg) out,
                options(pure, nomem, nostack),
            );
        }
        out
    }
    #[cfg(not(target_arch = "riscv32"))]
    {
        (a as i64).wrapping_mul(b as i64).wrapping_shr(32) as i32
    }
}

/// The output of a sum within `SUM_LIMIT`; `multiplier` and `shift` are a channel's `scaling`.
#[cfg(not(kiln_armv6m))]
#[inline(always)]
pub(crate) fn finish(sum: i32, multiplier: i32, shift: u8, epilogue: &Epilogue) -> i8 {
    let zero = epilogue.output_zero;
    let high = || high_half(sum.wrapping_shl(2), multiplier);
    let divide = |x: i32| x.wrapping_shr((shift as u32).wrapping_sub(1)).wrapping_add(1).wrapping_shr(1);
    if sum >= 0 {
        let output = divide(high().wrapping_add(1)).wrapping_add(zero);
        return output.min(epilogue.high) as i8;
    }
    if epilogue.low >= zero {
        return epilogue.low as i8;
    }
    let output = divide(high().wrapping_sub(1)).wrapping_add(zero);
    output.max(epilogue.low) as i8
}

/// As above: 35 instructions with its call, 12 for a sum that is not scaled.
#[cfg(kiln_armv6m)]
#[inline(always)]
pub(crate) fn finish(sum: i32, multiplier: i32, shift: u8, epilogue: &Epilogue) -> i8 {
    // SAFETY: it reads the epilogue.
    unsafe { assembly::finish(sum, multiplier, shift as u32, epilogue) as i8 }
}

#[cfg(kiln_armv6m)]
pub(crate) mod assembly {
    //! What other rows' assembly is made of too. Operands are names of low registers.

    use core::arch::asm;

    use crate::arithmetic::Epilogue;

    /// The upper half of four times a sum's product with a multiplier below 2^31, in the sum's register: 16 instructions. The
    /// sum's absolute value is below 2^27. `$multiplier` and three more registers lose what they had.
    ///
    /// The sum's low half is taken with its sign, so that the sum of the middle products stays within 32 bits.
    macro_rules! high_product {
        ($sum:literal, $multiplier:literal, $low:literal, $half:literal, $middle:literal) => {
            concat!(
                "lsls ",
                $sum,
                ", ",
                $sum,
                ", #2\n",
                "sxth ",
                $half,
                ", ",
                $sum,
                "\n",
                "subs ",
                $sum,
                ", ",
                $sum,
                ", ",
                $half,
                "\n",
                "asrs ",
                $sum,
                ", ",
                $sum,
                ", #16\n",
                "uxth ",
                $low,
                ", ",
                $multiplier,
                "\n",
                "lsrs ",
                $multiplier,
                ", ",
                $multiplier,
                ", #16\n",
                "movs ",
                $middle,
                ", ",
                $half,
                "\n",
                "muls ",
                $middle,
                ", ",
                $low,
                ", ",
                $middle,
                "\n",
                "asrs ",
                $middle,
                ", ",
                $middle,
                ", #16\n",
                "muls ",
                $half,
                ", ",
                $multiplier,
                ", ",
                $half,
                "\n",
                "adds ",
                $middle,
                ", ",
                $middle,
                ", ",
                $half,
                "\n",
                "muls ",
                $low,
                ", ",
                $sum,
                ", ",
                $low,
                "\n",
                "adds ",
                $middle,
                ", ",
                $middle,
                ", ",
                $low,
                "\n",
                "asrs ",
                $middle,
                ", ",
                $middle,
                ", #16\n",
                "muls ",
                $sum,
                ", ",
                $multiplier,
                ", ",
                $sum,
                "\n",
                "adds ",
                $sum,
                ", ",
                $sum,
                ", ",
                $middle,
                "\n",
            )
        };
    }
    pub(crate) use high_product;

    /// [`finish`](super::finish) by the calling convention.
    #[inline(never)]
    pub(crate) unsafe extern "C" fn finish(sum: i32, multiplier: i32, shift: u32, epilogue: *const Epilogue) -> i32 {
        let output;
        // SAFETY: the registers that a compiler may want back are pushed and popped; the caller's epilogue can be read.
        unsafe {
            asm!(
                "push {{r4, r5, r6}}",
                "cmp r0, #0",
                "bmi 2f",
                "1:",
                high_product!("r0", "r1", "r4", "r5", "r6"),
                "ldr r1, [r3, #4]",
                "adds r0, r0, #1",
                "ble 3f",
                "asrs r0, r0, r2",
                "adcs r0, r0, r1",
                "ldr r1, [r3, #12]",
                "cmp r0, r1",
                "ble 4f",
                "movs r0, r1",
                "b 4f",
                // A negative sum.
                "2:",
                "ldr r4, [r3, #8]",
                "ldr r5, [r3, #4]",
                "cmp r4, r5",
                "blt 1b",
                "movs r0, r4",
                "b 4f",
                "3:",
                "subs r0, r0, #2",
                "asrs r0, r0, r2",
                "adcs r0, r0, r1",
                "ldr r1, [r3, #8]",
                "cmp r0, r1",
                "bge 4f",
                "movs r0, r1",
                "4:",
                "pop {{r4, r5, r6}}",
                inout("r0") sum => output,
                inout("r1") multiplier => _,
                in("r2") shift,
                in("r3") epilogue,
                options(readonly),
            );
        }
        output
    }
}

/// A multiplier and its shift as [`finish`] takes them. `None` where that has no form: without a division by 2 or more.
#[cfg(feature = "host")]
pub(crate) fn scaling(multiplier: i32, shift: i32) -> Option<(i32, u8)> {
    (multiplier >= 0 && (-28..=-1).contains(&shift)).then_some((multiplier, (1 - shift) as u8))
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use kiln_core::fixed;

    use super::*;

    #[test]
    fn finishing_rounds_as_the_core_does() {
        let mut random = crate::requantize::random();
        let limit = SUM_LIMIT as i32;
        let edges = [1 - limit, -limit / 2, -3, -2, -1, 0, 1, 2, 3, limit / 2, limit - 1];
        for round in 0..if cfg!(miri) { 100 } else { 20_000 } {
            let multiplier = match round % 5 {
                0 => 1 << 30,
                1 => i32::MAX,
                2 => random() & i32::MAX,
                _ => random() & i32::MAX | 1 << 30,
            };
            let shift = -1 - round % 28;
            let (multiplier, own) = scaling(multiplier, shift).unwrap();
            let output_zero = random() % 128;
            let (low, high) = match round % 3 {
                0 => (-128, 127),
                1 => (output_zero, 127),
                _ => (output_zero.saturating_sub(random() & 15).max(-128), (output_zero + (random() & 63)).min(127)),
            };
            let epilogue = Epilogue { input_zero: 0, output_zero, low, high };
            // Sums whose scaled values are about ties, as well as any.
            let wanted = (random() % 256) as f64 + 0.5;
            let tie = (wanted * 2f64.powi(31 - shift) / multiplier.max(1) as f64).clamp(-1e8, 1e8) as i32;
            let near = [tie - 2, tie - 1, tie, tie + 1, tie + 2, -tie - 1, -tie, -tie + 1];
            let sums = edges.into_iter().chain(near).chain([random() >> 5, random() >> 12, random() >> 20]);
            for sum in sums {
                let want = fixed::multiply_by_quantized_multiplier(sum, multiplier, shift).wrapping_add(output_zero);
                let got = finish(sum, multiplier, own, &epilogue);
                assert_eq!(got as i32, want.clamp(low, high), "{sum} * {multiplier} << {shift}, {epilogue:?}");
            }
        }
        assert_eq!(scaling(1 << 30, 0), None);
        assert_eq!(scaling(1 << 30, -29), None);
    }

    /// The steps of Armv6-M's `high_product`, each of which must stay within 32 bits.
    #[test]
    fn middle_products_stay_within_32_bits() {
        let limit = SUM_LIMIT as i32;
        let edges =
            [1 - limit, -0x1_8000, -0x8001, -0x8000, -1, 0, 1, 0x7fff, 0x8000, 0x1_7fff, limit - 0x2001, limit - 1];
        for sum in edges {
            for multiplier in [0, 1, 0xffff, 0x1_0000, 1 << 30, (1 << 30) + 0xffff, i32::MAX - 0xffff, i32::MAX] {
                let quadruple = sum.checked_mul(4).unwrap();
                let half = quadruple as i16 as i32;
                let upper = quadruple.checked_sub(half).unwrap() >> 16;
                let (low, high) = (multiplier & 0xffff, multiplier >> 16);
                let middle = (half.checked_mul(low).unwrap() >> 16).checked_add(half.checked_mul(high).unwrap());
                let middle = middle.unwrap().checked_add(low.checked_mul(upper).unwrap()).unwrap();
                let got = upper.checked_mul(high).unwrap().checked_add(middle >> 16).unwrap();
                assert_eq!(got as i64, (quadruple as i64 * multiplier as i64) >> 32, "{sum} * {multiplier}");
            }
        }
    }
}
