//! The logarithm of softmax over vectors.
//!
//! Windows: vectors; then the output vectors. A row is one vector. A vector's maximum is found first, then the
//! logarithm of the sum of exponentials; then elements ascend, each read for the last time before its own
//! output is written.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::requantize::{divide_by_pot, high_mul, narrow, scale};
use crate::softmax::{exp, half_of_sum, reciprocal_of_one_plus, shift_left};
use crate::vectors;

/// The parameters of [`LOG_SOFTMAX_S8`], 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LogSoftmaxS8Parameters {
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
    /// Brings Q5.26 back to differences.
    pub reverse_multiplier: i32,
    /// The shift that belongs to it.
    pub reverse_shift: i32,
}

/// The parameters of [`LOG_SOFTMAX_F32`], 12 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LogSoftmaxF32Parameters {
    /// Elements of a vector.
    pub length: u32,
    /// Bytes from one input vector to the next.
    pub input_pitch: u32,
    /// Bytes from one output vector to the next.
    pub output_pitch: u32,
}

/// int8 log-softmax; the output's scale is 1/16, its zero point 127.
pub const LOG_SOFTMAX_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(13, 1, 0, check_s8, run_s8) };
/// float32 log-softmax.
pub const LOG_SOFTMAX_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(39, 4, 0, check_f32, run_f32) };
/// The same over the vectors of hosts, with an exponential of its own.
pub const LOG_SOFTMAX_WIDE_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(102, 4, 0, check_f32, run_f32) };

fn check_s8(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<LogSoftmaxS8Parameters>() else { return false };
    vectors::fit_both(call, p.length, p.input_pitch, p.output_pitch, 1)
}

/// Integer bits of the sum of exponentials.
const SUM_BITS: u32 = 12;

unsafe fn run_s8(call: &Call<'_>) {
    let Some(p) = call.parameters::<LogSoftmaxS8Parameters>() else { return };
    let n = p.length as usize;
    vectors::for_each(call, p.input_pitch, p.output_pitch, |x: *const i8, y: *mut i8| {
        // SAFETY: `check` proved that the `n` elements of the row lie inside the input.
        let read = |i: usize| unsafe { x.wrapping_add(i).read() } as i32;
        let scaled = |diff: i32| high_mul(diff.wrapping_shl(p.left_shift), p.multiplier);
        // SAFETY: the same.
        let max = unsafe { vectors::max_s8(x, n) };
        let mut sum = 0i32;
        for i in 0..n {
            let diff = read(i).wrapping_sub(max);
            if diff >= p.diff_min {
                sum = sum.wrapping_add(divide_by_pot(exp(scaled(diff)), SUM_BITS));
            }
        }
        let log = log(sum);
        // At this difference, less the logarithm, Q5.26 ends.
        let reach = scale(log.wrapping_add(i32::MIN), p.reverse_multiplier, p.reverse_shift);
        let least = p.diff_min.saturating_sub(1).max(reach);
        for i in 0..n {
            let diff = read(i).wrapping_sub(max);
            let value = if diff > least {
                // From Q5.26 to units of 1/16.
                narrow(divide_by_pot(scaled(diff).wrapping_sub(log), 26 - 4), 127, -128, 127)
            } else {
                -128
            };
            // SAFETY: `check` proved that the row's elements lie inside the output.
            unsafe { y.wrapping_add(i).write(value) };
        }
    });
}

/// `log(sum)` for a sum of at least 1 in Q12.19, result in Q5.26: TFLite's
/// `log_x_for_x_greater_than_or_equal_to_1`, rounding for rounding.
///
/// `sum = 2^k * r` with r near `c = 2^(-1/4)`: k and r come from the leading zeros of the sum, or of the sum
/// times `sqrt(1/2)`, whichever makes r smaller. `log(r)` is a rational function of `q = 2 (r - c)`.
fn log(sum: i32) -> i32 {
    const ROOT_OF_HALF: i32 = 1_518_500_250;
    const CENTRE: i32 = 1_805_811_301;
    // 1/4 in Q6.25, in which exponents are kept.
    const QUARTER: i32 = 1 << 23;
    let exponent = |zeros: u32| (SUM_BITS as i32).wrapping_sub(zeros as i32).wrapping_shl(25);
    let zeros = (sum as u32).leading_zeros();
    let first = shift_left(high_mul(shift_left(sum, zeros.saturating_sub(1)), ROOT_OF_HALF), 1);
    let headroom = (high_mul(sum, ROOT_OF_HALF) as u32).leading_zeros().saturating_sub(1);
    let second = shift_left(sum, headroom);
    let r = first.min(second);
    let k = exponent(zeros).saturating_add(QUARTER).max(exponent(headroom).saturating_sub(QUARTER));

    let q = r.wrapping_sub(CENTRE).wrapping_shl(1);
    let square = high_mul(q, q);
    // q r + 11/240 c^-1 q^3 over 1 + (2c - 1/c + q + q^2 / 20c) (r + c) / 2 + q / 4c.
    let above = high_mul(q, r).wrapping_add(high_mul(high_mul(q, square), 117_049_297));
    let below = 1_057_819_769i32.wrapping_add(q).wrapping_add(high_mul(127_690_142, square));
    let below = high_mul(half_of_sum(r, CENTRE), below).wrapping_add(high_mul(638_450_708, q));
    let fraction = high_mul(divide_by_pot(above, 6), reciprocal_of_one_plus(below));
    const LN_2: i32 = 1_488_522_236;
    shift_left(high_mul(k, LN_2).wrapping_add(fraction), 1)
}

fn check_f32(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<LogSoftmaxF32Parameters>() else { return false };
    vectors::fit_both(call, p.length, p.input_pitch, p.output_pitch, 4)
}

unsafe fn run_f32(call: &Call<'_>) {
    let Some(p) = call.parameters::<LogSoftmaxF32Parameters>() else { return };
    let n = p.length as usize;
    vectors::for_each(call, p.input_pitch, p.output_pitch, |x: *const f32, y: *mut f32| {
        // SAFETY: `check` proved that the `n` elements of the row lie inside input and output.
        unsafe {
            let mut max = f32::MIN;
            for i in 0..n {
                let value = x.wrapping_add(i).read();
                max = if value > max { value } else { max };
            }
            let mut sum = 0.0;
            for i in 0..n {
                sum += libm::expf(x.wrapping_add(i).read() - max);
            }
            let log = libm::logf(sum);
            for i in 0..n {
                y.wrapping_add(i).write(x.wrapping_add(i).read() - max - log);
            }
        }
    });
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{DType, TargetId};
    use kiln_ops::{LOG_SOFTMAX_OUTPUT, LogSoftmax, Op, OpError};

    use super::*;
    use crate::lowering;
    #[cfg(target_arch = "x86_64")]
    use crate::softmax_wide::log_softmax;
    use crate::table::{Direction, Kernel, Operation};
    use crate::vector::native;

    pub(crate) const LOG_SOFTMAX_S8: Kernel = Kernel {
        number: super::LOG_SOFTMAX_S8.number(),
        name: "log_softmax_s8",
        row_name: "LOG_SOFTMAX_S8",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| {
            let (Some(_), Some(x)) = (vectors_of(operation, DType::I8), operation.inputs.first()) else {
                return false;
            };
            let y = &operation.output.quant;
            lowering::per_tensor(&x.quant)
                && lowering::per_tensor(y)
                && (y.scale(0), y.zero_point(0)) == LOG_SOFTMAX_OUTPUT
        },
        prepare: |operation, emit| {
            let (length, rows) = vectors_of(operation, DType::I8).ok_or(OpError::TooLarge)?;
            let s = LogSoftmax.scaling(operation.inputs.first().map_or(0.0, |x| x.quant.scale(0)));
            let parameters = LogSoftmaxS8Parameters {
                length,
                input_pitch: length,
                output_pitch: length,
                multiplier: s.multiplier,
                left_shift: s.left_shift.max(0) as u32,
                diff_min: s.diff_min,
                reverse_multiplier: s.reverse_multiplier,
                reverse_shift: s.reverse_shift,
            };
            lowering::emit_call(emit, 1, Some((parameters, rows)))
        },
        lag: |operation, input, _| vectors_of(operation, DType::I8).filter(|_| input == 0).map(|_| 0),
        portable: super::LOG_SOFTMAX_S8,
        native: None,
        work: None,
    };

    pub(crate) const LOG_SOFTMAX_F32: Kernel = Kernel {
        number: super::LOG_SOFTMAX_F32.number(),
        name: "log_softmax_f32",
        row_name: "LOG_SOFTMAX_F32",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| vectors_of(operation, DType::F32).is_some(),
        prepare: |operation, emit| {
            let (length, rows) = vectors_of(operation, DType::F32).ok_or(OpError::TooLarge)?;
            let pitch = length.checked_mul(4).ok_or(OpError::TooLarge)?;
            let parameters = LogSoftmaxF32Parameters { length, input_pitch: pitch, output_pitch: pitch };
            lowering::emit_call(emit, 1, Some((parameters, rows)))
        },
        lag: |operation, input, _| vectors_of(operation, DType::F32).filter(|_| input == 0).map(|_| 0),
        portable: super::LOG_SOFTMAX_F32,
        native: None,
        work: None,
    };

    pub(crate) const LOG_SOFTMAX_WIDE_F32: Kernel = Kernel {
        number: super::LOG_SOFTMAX_WIDE_F32.number(),
        name: "log_softmax_wide_f32",
        row_name: "LOG_SOFTMAX_WIDE_F32",
        targets: &[TargetId::X86_64_V3],
        portable: super::LOG_SOFTMAX_WIDE_F32,
        native: native!(super::LOG_SOFTMAX_WIDE_F32, check_f32, log_softmax, run_f32),
        work: None,
        ..LOG_SOFTMAX_F32
    };

    /// The elements of a vector and the number of vectors.
    fn vectors_of(operation: &Operation<'_>, dtype: DType) -> Option<(u32, u32)> {
        let Op::LogSoftmax(_) = operation.op else { return None };
        lowering::vectors(operation, dtype)
    }
}
