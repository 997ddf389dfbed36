//! Softmax over vectors.
//!
//! Windows: vectors; then the output vectors. A row is one vector. A vector's maximum is found first; then
//! elements ascend, each read for the last time before its own output is written. (float32 leaves
//! exponentials in the output and divides them by their sum afterwards.)

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::requantize::{divide_by_pot, high_mul, narrow};
use crate::vectors;

/// The parameters of [`SOFTMAX_S8`], 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SoftmaxS8Parameters {
    /// Elements of a vector.
    pub length: u32,
    /// Bytes from one input vector to the next.
    pub input_pitch: u32,
    /// Bytes from one output vector to the next.
    pub output_pitch: u32,
    /// Brings differences from the maximum to Q5.26.
    pub multiplier: i32,
    /// Applied before the multiplier; taken modulo 32.
    pub left_shift: u32,
    /// Smaller differences count as nothing.
    pub diff_min: i32,
}

/// The parameters of [`SOFTMAX_F32`], 16 bytes.
#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SoftmaxF32Parameters {
    /// Elements of a vector.
    pub length: u32,
    /// Bytes from one input vector to the next.
    pub input_pitch: u32,
    /// Bytes from one output vector to the next.
    pub output_pitch: u32,
    /// Factor of the exponent.
    pub beta: f32,
}

/// int8 softmax; the output's scale is 1/256, its zero point -128.
pub const SOFTMAX_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(7, 1, 0, check_s8, run_s8) };
/// float32 softmax.
pub const SOFTMAX_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(38, 4, 0, check_f32, run_f32) };
/// The same over the vectors of hosts, with an exponential of its own.
pub const SOFTMAX_WIDE_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(101, 4, 0, check_f32, run_f32) };

fn check_s8(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<SoftmaxS8Parameters>() else { return false };
    vectors::fit_both(call, p.length, p.input_pitch, p.output_pitch, 1)
}

/// Integer bits of the sum of exponentials: with 12 of them, 4096 ones fit.
pub(crate) const SUM_BITS: u32 = 12;

unsafe fn run_s8(call: &Call<'_>) {
    let Some(p) = call.parameters::<SoftmaxS8Parameters>() else { return };
    let n = p.length as usize;
    vectors::for_each(call, p.input_pitch, p.output_pitch, |x: *const i8, y: *mut i8| {
        // SAFETY: `check` proved that the `n` elements of the row lie inside the input.
        let read = |i: usize| unsafe { x.wrapping_add(i).read() } as i32;
        // SAFETY: the same.
        let max = unsafe { vectors::max_s8(x, n) };
        let mut sum = 0i32;
        for i in 0..n {
            if let Some(e) = exponential(read(i).wrapping_sub(max), p) {
                sum = sum.wrapping_add(divide_by_pot(e, SUM_BITS));
            }
        }
        let (reciprocal, exponent) = reciprocal(sum as u32);
        for i in 0..n {
            let value = match exponential(read(i).wrapping_sub(max), p) {
                Some(e) => {
                    let scaled = divide_by_pot(high_mul(reciprocal, e), exponent);
                    narrow(scaled.saturating_sub(128), 0, -128, 127)
                }
                None => -128,
            };
            // SAFETY: `check` proved that the row's elements lie inside the output.
            unsafe { y.wrapping_add(i).write(value) };
        }
    });
}

/// The factor of exponentials whose sum this is, and the exponent of 2 of what is divided by then.
#[inline(always)]
pub(crate) fn reciprocal(sum: u32) -> (i32, u32) {
    // `sum` is `s * 2^(SUM_BITS - headroom)` with 1 <= s < 2; the reciprocal is that of s.
    let headroom = sum.leading_zeros();
    let fraction = sum.wrapping_shl(headroom).wrapping_sub(1 << 31) as i32;
    // From Q0.31 to units of 1/256.
    let exponent = (SUM_BITS as i32).wrapping_sub(headroom as i32).wrapping_add(31 - 8).clamp(0, 31);
    (reciprocal_of_one_plus(fraction), exponent as u32)
}

/// `exp` of a difference from the maximum, Q0.31; `None` when it is too small to count.
#[inline(never)]
pub(crate) fn exponential(diff: i32, p: &SoftmaxS8Parameters) -> Option<i32> {
    if diff < p.diff_min {
        return None;
    }
    Some(exp(high_mul(diff.wrapping_shl(p.left_shift), p.multiplier)))
}

/// `exp(a)` for `a <= 0` in Q5.26, result in Q0.31.
///
/// `a` is split into quarters and a rest in [-1/4, 0): a series for the rest, then a factor
/// `exp(-2^k)` for every bit of the quarters. gemmlowp's `exp_on_negative_values`, rounding for
/// rounding.
pub(crate) fn exp(a: i32) -> i32 {
    if a == 0 {
        return i32::MAX;
    }
    const QUARTER: i32 = 1 << 24;
    let rest = (a & (QUARTER - 1)).wrapping_sub(QUARTER);
    // exp(-1/8) * (1 + x + x^2/2 + x^3/6 + x^4/24) around -1/8, x in Q0.31.
    let x = rest.wrapping_shl(5).wrapping_add(1 << 28);
    let x2 = high_mul(x, x);
    let x3 = high_mul(x2, x);
    let x4 = high_mul(x2, x2);
    let tail = high_mul(divide_by_pot(x4, 2).wrapping_add(x3), 0x2aaa_aaab).wrapping_add(x2);
    let series = x.wrapping_add(divide_by_pot(tail, 1));
    const EXP_OF_MINUS_EIGHTH: i32 = 1_895_147_668;
    let mut result = EXP_OF_MINUS_EIGHTH.saturating_add(high_mul(EXP_OF_MINUS_EIGHTH, series));
    let mut quarters = rest.wrapping_sub(a) >> 24;
    // exp(-1/4), exp(-1/2), exp(-1), … exp(-16) in Q0.31.
    for &factor in &[1_672_461_947, 1_302_514_674, 790_015_084, 290_630_308, 39_332_535, 720_401, 242] {
        if quarters & 1 != 0 {
            result = high_mul(result, factor);
        }
        quarters >>= 1;
    }
    result
}

/// `1 / (1 + x)` for `0 <= x < 1`, both Q0.31: three Newton-Raphson steps from gemmlowp's
/// 48/17 - 32/17 d, in Q2.29.
pub(crate) fn reciprocal_of_one_plus(x: i32) -> i32 {
    // 1 is the largest Q0.31. x is -1 only where a sum wrapped to 0.
    let half = half_of_sum(x, i32::MAX);
    let mut estimate = 1_515_870_810i32.wrapping_add(high_mul(half, -1_010_580_540));
    for _ in 0..3 {
        let missing = (1i32 << 29).wrapping_sub(high_mul(half, estimate));
        estimate = estimate.wrapping_add(shift_left(high_mul(estimate, missing), 2));
    }
    shift_left(estimate, 1)
}

/// `(a + b) / 2`, ties away from zero.
#[inline(always)]
pub(crate) fn half_of_sum(a: i32, b: i32) -> i32 {
    let sum = a as i64 + b as i64;
    ((sum + if sum >= 0 { 1 } else { -1 }) / 2) as i32
}

/// `x * 2^bits`, saturated; `bits` below 32.
#[inline(always)]
pub(crate) fn shift_left(x: i32, bits: u32) -> i32 {
    let wide = (x as i64).wrapping_shl(bits);
    wide.max(i32::MIN as i64).min(i32::MAX as i64) as i32
}

fn check_f32(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<SoftmaxF32Parameters>() else { return false };
    vectors::fit_both(call, p.length, p.input_pitch, p.output_pitch, 4)
}

unsafe fn run_f32(call: &Call<'_>) {
    let Some(p) = call.parameters::<SoftmaxF32Parameters>() else { return };
    let n = p.length as usize;
    vectors::for_each(call, p.input_pitch, p.output_pitch, |x: *const f32, y: *mut f32| {
        // SAFETY: `check` proved that the `n` elements of the row lie inside input and output.
        unsafe {
            let mut max = f32::NEG_INFINITY;
            for i in 0..n {
                let value = x.wrapping_add(i).read();
                max = if value > max { value } else { max };
            }
            let mut sum = 0.0;
            for i in 0..n {
                let power = libm::expf((x.wrapping_add(i).read() - max) * p.beta);
                sum += power;
                y.wrapping_add(i).write(power);
            }
            for i in 0..n {
                let y = y.wrapping_add(i);
                y.write(y.read() / sum);
            }
        }
    });
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{DType, TargetId};
    use kiln_ops::{Op, OpError, Softmax};

    use super::*;
    use crate::lowering;
    #[cfg(target_arch = "x86_64")]
    use crate::softmax_wide::softmax;
    use crate::table::{Direction, Kernel, Operation};
    use crate::vector::native;

    pub(crate) const SOFTMAX_S8: Kernel = Kernel {
        number: super::SOFTMAX_S8.number(),
        name: "softmax_s8",
        row_name: "SOFTMAX_S8",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| {
            let (Some(_), Some(x)) = (vectors_of(operation, DType::I8), operation.inputs.first()) else {
                return false;
            };
            let y = &operation.output.quant;
            lowering::per_tensor(&x.quant)
                && lowering::per_tensor(y)
                && (y.scale(0), y.zero_point(0)) == (1.0 / 256.0, -128)
        },
        prepare: |operation, emit| lowering::emit_call(emit, 1, parameters_s8(operation)),
        lag: |operation, input, _| vectors_of(operation, DType::I8).filter(|_| input == 0).map(|_| 0),
        portable: super::SOFTMAX_S8,
        native: None,
        work: None,
    };

    pub(crate) const SOFTMAX_F32: Kernel = Kernel {
        number: super::SOFTMAX_F32.number(),
        name: "softmax_f32",
        row_name: "SOFTMAX_F32",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| vectors_of(operation, DType::F32).is_some(),
        prepare: |operation, emit| {
            let (op, length, rows) = vectors_of(operation, DType::F32).ok_or(OpError::TooLarge)?;
            let pitch = length.checked_mul(4).ok_or(OpError::TooLarge)?;
            let parameters = SoftmaxF32Parameters { length, input_pitch: pitch, output_pitch: pitch, beta: op.beta };
            lowering::emit_call(emit, 1, Some((parameters, rows)))
        },
        lag: |operation, input, _| vectors_of(operation, DType::F32).filter(|_| input == 0).map(|_| 0),
        portable: super::SOFTMAX_F32,
        native: None,
        work: None,
    };

    pub(crate) const SOFTMAX_WIDE_F32: Kernel = Kernel {
        number: super::SOFTMAX_WIDE_F32.number(),
        name: "softmax_wide_f32",
        row_name: "SOFTMAX_WIDE_F32",
        targets: &[TargetId::X86_64_V3],
        portable: super::SOFTMAX_WIDE_F32,
        native: native!(super::SOFTMAX_WIDE_F32, check_f32, softmax, run_f32),
        work: None,
        ..SOFTMAX_F32
    };

    /// The parameters of an int8 softmax, and its rows.
    pub(crate) fn parameters_s8(operation: &Operation<'_>) -> Option<(SoftmaxS8Parameters, u32)> {
        let (op, length, rows) = vectors_of(operation, DType::I8)?;
        let (multiplier, left_shift, diff_min) = op.scaling(operation.inputs.first()?.quant.scale(0));
        let parameters = SoftmaxS8Parameters {
            length,
            input_pitch: length,
            output_pitch: length,
            multiplier,
            left_shift: left_shift.max(0) as u32,
            diff_min,
        };
        Some((parameters, rows))
    }

    /// The softmax, the elements of a vector and the number of vectors.
    fn vectors_of(operation: &Operation<'_>, dtype: DType) -> Option<(Softmax, u32, u32)> {
        let Op::Softmax(op) = operation.op else { return None };
        let (length, rows) = lowering::vectors(operation, dtype)?;
        Some((op, length, rows))
    }
}
