//! int8 pools, eight channels at a time, for CPUs with the DSP extension.
//!
//! Windows, parameters and rows are those of the plain pools. Pixels go in raster order and channels ascend, or both are reversed;
//! all taps of eight channels are read before the first of these is written. Where channels do not come in eights, the last
//! eight of the walk are computed once more, with those that are left.

use kiln_core::{Call, Direction, Row};

use crate::pool2d::PoolParameters;

/// int8 average.
pub const AVERAGE_POOL_DSP_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(30, 1, 0, check, run::<true>) };
/// int8 maximum.
pub const MAX_POOL_DSP_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(31, 1, 0, check, run::<false>) };

/// Channels of which the taps are read together.
const TOGETHER: usize = 8;

/// The taps of a window, and the walk over its channels.
#[repr(C)]
struct Taps {
    /// Rows; none if there are no columns.
    rows: usize,
    /// From column to column.
    right: usize,
    /// From behind a row's last column to the next row.
    skip: usize,
    /// Columns.
    columns: usize,
    /// 2^30, divided by the number of taps, and what is above it.
    inverse: i32,
    /// The smallest output, four times.
    low: u32,
    /// The largest.
    high: u32,
    /// The last eight channels of the walk.
    last: *const u8,
}

fn check(call: &Call<'_>) -> bool {
    crate::pool2d::check_s8(call)
        && call.parameters::<PoolParameters>().is_some_and(|p| p.spatial.output.channels as usize >= TOGETHER)
}

unsafe fn run<const AVERAGE: bool>(call: &Call<'_>) {
    let Some(p) = call.parameters::<PoolParameters>() else { return };
    let (down, right) = p.spatial.tap_steps();
    let channels = p.spatial.output.channels as usize;
    let last = channels.wrapping_sub(TOGETHER);
    let four = |bound: i32| (bound as u8 as u32).wrapping_mul(0x0101_0101);
    let (first, last) = match call.direction {
        Direction::Up => (0, last),
        Direction::Down => (last, 0),
    };
    let mut taps = Taps {
        rows: 0,
        right,
        skip: 0,
        columns: 0,
        inverse: 0,
        low: four(p.epilogue.low),
        high: four(p.epilogue.high),
        last: core::ptr::null(),
    };
    p.spatial.for_each_pixel(call, |pixel| {
        let rows = pixel.rows.end.wrapping_sub(pixel.rows.first);
        let columns = pixel.columns.end.wrapping_sub(pixel.columns.first);
        taps.rows = if columns == 0 { 0 } else { rows as usize };
        taps.columns = columns as usize;
        taps.skip = down.wrapping_sub(right.wrapping_mul(columns as usize));
        if AVERAGE {
            let taken = (1u32 << 30).checked_div(rows.wrapping_mul(columns));
            taps.inverse = (taken.unwrap_or(0) as i32).wrapping_add(1);
        }
        taps.last = pixel.input.wrapping_add(last);
        let (input, output) = (pixel.input.wrapping_add(first), pixel.output.wrapping_add(first));
        // SAFETY: `check` proved that the taps of a window that rows and columns count lie inside the input, the pixel's channels
        // inside the output, and that these are at least eight.
        unsafe { if AVERAGE { average(input, output, &taps) } else { maximum(input, output, &taps) } }
    });
}

/// Gives eight channels after eight others, up to `taps.last` and these, what `finish` makes of their taps, which `take` adds to `start`.
///
/// # Safety
///
/// The taps can be read and the outputs written, for all of these channels.
#[cfg(not(kiln_dsp))]
#[inline(always)]
unsafe fn walk(
    mut input: *const u8,
    mut output: *mut u8,
    taps: &Taps,
    start: i16,
    take: impl Fn(i16, i16) -> i16,
    finish: impl Fn(i16) -> i8,
) {
    loop {
        let mut states = [start; TOGETHER];
        let mut x = input;
        for _ in 0..taps.rows {
            for _ in 0..taps.columns {
                for (channel, state) in states.iter_mut().enumerate() {
                    // SAFETY: one of the taps.
                    *state = take(*state, unsafe { x.wrapping_add(channel).read() } as i8 as i16);
                }
                x = x.wrapping_add(taps.right);
            }
            x = x.wrapping_add(taps.skip);
        }
        for (channel, state) in states.into_iter().enumerate() {
            let value = finish(state).max(taps.low as i8).min(taps.high as i8);
            // SAFETY: one of the outputs.
            unsafe { output.wrapping_add(channel).write(value as u8) };
        }
        let left = taps.last.addr().wrapping_sub(input.addr()) as isize;
        if left == 0 {
            return;
        }
        let step = left.clamp(-8, 8);
        input = input.wrapping_offset(step);
        output = output.wrapping_offset(step);
    }
}

/// An average. With at most 256 taps, sums fit halves; `(2^30 / n + 1) * sum / 2^16`, rounded down, with a half of 2^14 and without
/// 14 bits, is the average, rounded to the nearest: what the factor is too large by turns halves away from zero, and is too little
/// to change anything else.
#[cfg(not(kiln_dsp))]
#[inline(always)]
fn mean(sum: i16, inverse: i32) -> i8 {
    let scaled = (inverse as i64 * sum as i64).wrapping_shr(16) as i32;
    let half = 1 << 13;
    scaled.wrapping_add(half).wrapping_shr(14) as i8
}

/// Averages.
///
/// # Safety
///
/// The taps can be read and the outputs written, for all channels from `input` to the eight at `taps.last`, or back.
#[cfg(not(kiln_dsp))]
unsafe fn average(input: *const u8, output: *mut u8, taps: &Taps) {
    // SAFETY: the caller's promise.
    unsafe { walk(input, output, taps, 0, i16::wrapping_add, |sum| mean(sum, taps.inverse)) }
}

/// Maxima.
///
/// # Safety
///
/// The taps can be read and the outputs written, for all channels from `input` to the eight at `taps.last`, or back.
#[cfg(not(kiln_dsp))]
unsafe fn maximum(input: *const u8, output: *mut u8, taps: &Taps) {
    // SAFETY: the caller's promise.
    unsafe { walk(input, output, taps, -128, i16::max, |x| x as i8) }
}

#[cfg(kiln_dsp)]
use assembly::{average, maximum};

#[cfg(kiln_dsp)]
mod assembly {
    use core::arch::asm;

    use super::Taps;
    use crate::dsp::extension;

    /// Goes through eight channels and their taps: `$take` of the channels at r11. r4 to r7 are theirs; what is kept of them is
    /// in r4 and r5 with `$finish`, which has the bounds in r10 and r11.
    macro_rules! pool {
        ($(#[$doc:meta])* $name:ident, [$($start:literal)*], [$($take:literal)*], [$($finish:literal)*]) => {
            $(#[$doc])*
            #[inline(never)]
            pub(super) unsafe extern "C" fn $name(input: *const u8, output: *mut u8, taps: *const Taps) {
                // SAFETY: the caller's promise. The registers that a compiler may want back are pushed and popped.
                unsafe {
                    asm!(
                        extension!(),
                        "push {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                        "1:",
                        "ldm r2, {{r3, r8, r9, r10}}",
                        "mov r11, r0",
                        $($start,)*
                        "cbz r3, 4f",
                        "2:",
                        "mov r12, r10",
                        "3:",
                        $($take,)*
                        "add r11, r11, r8",
                        "subs r12, r12, #1",
                        "bne 3b",
                        "add r11, r11, r9",
                        "subs r3, r3, #1",
                        "bne 2b",
                        "4:",
                        "ldr r8, [r2, #16]",
                        "ldrd r10, r11, [r2, #20]",
                        $($finish,)*
                        // Eight channels on, or as many as there are to the last eight.
                        "ldr r3, [r2, #28]",
                        "subs r3, r3, r0",
                        "beq 6f",
                        "cmp r3, #8",
                        "it gt",
                        "movgt r3, #8",
                        "cmn r3, #8",
                        "it lt",
                        "mvnlt r3, #7",
                        "add r0, r0, r3",
                        "add r1, r1, r3",
                        "b 1b",
                        "6:",
                        "pop {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                        inout("r0") input => _,
                        inout("r1") output => _,
                        inout("r2") taps => _,
                        out("r3") _,
                        out("r12") _,
                        out("lr") _,
                    );
                }
            }
        };
    }

    pool! {
        /// As in plain Rust, nine instructions a tap of eight channels: r4 has the sums of 0 and 2, r5 those of 1 and 3, r6 and r7
        /// the others'.
        average,
        ["movs r4, #0" "movs r5, #0" "movs r6, #0" "movs r7, #0"],
        [
            "ldr lr, [r11]"
            "sxtab16 r4, r4, lr"
            "sxtab16 r5, r5, lr, ror #8"
            "ldr lr, [r11, #4]"
            "sxtab16 r6, r6, lr"
            "sxtab16 r7, r7, lr, ror #8"
        ],
        [
            "mov r9, #8192"
            "movs r3, #2"
            "5:"
            "smlawb r12, r8, r4, r9"
            "smlawt r4, r8, r4, r9"
            "lsls r4, r4, #2"
            "pkhtb r4, r4, r12, asr #14"
            "smlawb r12, r8, r5, r9"
            "smlawt r5, r8, r5, r9"
            "lsls r5, r5, #2"
            "pkhtb r5, r5, r12, asr #14"
            "uxtb16 r4, r4"
            "uxtb16 r5, r5"
            "orr r4, r4, r5, lsl #8"
            "ssub8 r12, r4, r10"
            "sel r4, r4, r10"
            "ssub8 r12, r11, r4"
            "sel r4, r4, r11"
            "str r4, [r1], #4"
            "mov r4, r6"
            "mov r5, r7"
            "subs r3, r3, #1"
            "bne 5b"
            "subs r1, r1, #8"
        ]
    }
    pool! {
        /// Nine instructions a tap of eight channels: r4 has the maxima of the first four, r5 those of the others.
        maximum,
        ["mov r4, #0x80808080" "mov r5, r4"],
        [
            "ldr r6, [r11]"
            "ldr r7, [r11, #4]"
            "ssub8 lr, r4, r6"
            "sel r4, r4, r6"
            "ssub8 lr, r5, r7"
            "sel r5, r5, r7"
        ],
        [
            "ssub8 lr, r4, r10"
            "sel r4, r4, r10"
            "ssub8 lr, r11, r4"
            "sel r4, r4, r11"
            "ssub8 lr, r5, r10"
            "sel r5, r5, r10"
            "ssub8 lr, r11, r5"
            "sel r5, r5, r11"
            "str r4, [r1]"
            "str r5, [r1, #4]"
        ]
    }
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::TargetId;
    use kiln_ops::Op;

    use super::*;
    use crate::lag;
    use crate::pool2d::host::{AVERAGE_POOL_S8, MAX_POOL_S8, spatial_s8};
    use crate::table::{Kernel, Operation};

    /// Taps above which sums may leave their halves.
    const MOST: u64 = 256;

    const TARGETS: &[TargetId] = &[TargetId::ARMV7EM, TargetId::ARMV8M];

    pub(crate) const AVERAGE_POOL_DSP_S8: Kernel = Kernel {
        number: super::AVERAGE_POOL_DSP_S8.number(),
        name: "average_pool_dsp_s8",
        row_name: "AVERAGE_POOL_DSP_S8",
        targets: TARGETS,
        applies: |operation| {
            let Op::Pool2d(op) = operation.op else { return false };
            let taps = op.kernel.iter().map(|&size| u64::from(size)).product::<u64>();
            taps <= MOST && wide(operation) && (AVERAGE_POOL_S8.applies)(operation)
        },
        lag: lag_of,
        portable: super::AVERAGE_POOL_DSP_S8,
        ..AVERAGE_POOL_S8
    };

    pub(crate) const MAX_POOL_DSP_S8: Kernel = Kernel {
        number: super::MAX_POOL_DSP_S8.number(),
        name: "max_pool_dsp_s8",
        row_name: "MAX_POOL_DSP_S8",
        targets: TARGETS,
        applies: |operation| wide(operation) && (MAX_POOL_S8.applies)(operation),
        lag: lag_of,
        portable: super::MAX_POOL_DSP_S8,
        ..MAX_POOL_S8
    };

    fn wide(operation: &Operation<'_>) -> bool {
        operation.output.ty.shape.last() >= TOGETHER as u32
    }

    fn lag_of(operation: &Operation<'_>, input: usize, direction: Direction) -> Option<u64> {
        let spatial = spatial_s8(operation).filter(|_| input == 0)?;
        lag::again(&spatial, operation.output.ty.shape.dim(0), TOGETHER as u32, direction)
    }
}

#[cfg(all(test, not(kiln_dsp)))]
mod tests {
    use super::*;

    #[test]
    fn any_sum_has_the_average_of_a_division() {
        for count in 1..=if cfg!(miri) { 3 } else { 256 } {
            let inverse = (1 << 30) / count + 1;
            for sum in -128 * count..=127 * count {
                let half = if sum > 0 { count / 2 } else { -(count / 2) };
                assert_eq!(mean(sum as i16, inverse), ((sum + half) / count) as i8, "{sum} / {count}");
            }
        }
    }
}
