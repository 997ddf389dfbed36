//! int8 pools, four or sixteen channels at a time, for CPUs with MVE.
//!
//! Windows, parameters and rows are those of the plain pools. Pixels go in raster order and channels ascend, or both are reversed;
//! all taps of some channels are read before the first of these is written: of four for averages, of sixteen for maxima.

use kiln_core::{Call, Row};

use crate::pool2d::PoolParameters;

/// int8 average.
pub const AVERAGE_POOL_MVE_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(25, 1, 0, crate::pool2d::check_s8, run::<AVERAGED>) };
/// int8 maximum.
pub const MAX_POOL_MVE_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(26, 1, 0, crate::pool2d::check_s8, run::<COMPARED>) };

/// Channels that are averaged together: their sums have words.
const AVERAGED: usize = 4;
/// Channels whose maxima are taken together.
const COMPARED: usize = 16;

/// The taps of a window, of some channels.
#[repr(C)]
struct Taps {
    /// From row to row.
    down: usize,
    /// From column to column.
    right: usize,
    /// Columns, at least 1 if there are rows.
    columns: usize,
    /// Rows.
    rows: usize,
    /// The smallest output.
    low: i32,
    /// The largest.
    high: i32,
    /// 2^30, divided by the number of taps and rounded up.
    inverse: i32,
    /// Twice the half of that number, rounded down, and 1.
    half: i32,
    /// How many channels.
    channels: usize,
}

unsafe fn run<const TOGETHER: usize>(call: &Call<'_>) {
    let Some(p) = call.parameters::<PoolParameters>() else { return };
    let (down, right) = p.spatial.tap_steps();
    let channels = p.spatial.output.channels as usize;
    let parts = channels.wrapping_add(TOGETHER.wrapping_sub(1)) / TOGETHER;
    let mut taps = Taps {
        down,
        right,
        columns: 0,
        rows: 0,
        low: p.epilogue.low,
        high: p.epilogue.high,
        inverse: 0,
        half: 0,
        channels: 0,
    };
    p.spatial.for_each_pixel(call, |pixel| {
        let rows = pixel.rows.end.wrapping_sub(pixel.rows.first);
        let columns = pixel.columns.end.wrapping_sub(pixel.columns.first);
        let count = rows.wrapping_mul(columns);
        taps.columns = columns as usize;
        taps.rows = if columns == 0 { 0 } else { rows as usize };
        if TOGETHER == AVERAGED {
            // A window without taps has an average of 0.
            taps.inverse = crate::spatial::ceil_div(1 << 30, count) as i32;
            taps.half = (count | 1) as i32;
        }
        for part in 0..parts {
            let first = call.direction.pick(part, parts).wrapping_mul(TOGETHER);
            taps.channels = channels.wrapping_sub(first).min(TOGETHER);
            let (input, output) = (pixel.input.wrapping_add(first), pixel.output.wrapping_add(first));
            // SAFETY: `check` proved that the taps of a window that rows and columns count lie inside the input, and the
            // pixel's channels inside the output.
            unsafe {
                if TOGETHER == AVERAGED {
                    average(input, output, &taps);
                } else {
                    maximum(input, output, &taps);
                }
            }
        }
    });
}

/// Gives each channel's outputs what `finish` makes of its taps, which `take` adds to `start`.
///
/// # Safety
///
/// The taps can be read and the outputs written.
#[cfg(not(kiln_mve))]
#[inline(always)]
unsafe fn reduce<const TOGETHER: usize>(
    input: *const u8,
    output: *mut u8,
    taps: &Taps,
    start: i32,
    take: impl Fn(i32, i32) -> i32,
    finish: impl Fn(i32) -> i32,
) {
    let mut states = [start; TOGETHER];
    for (channel, state) in states.iter_mut().enumerate().take(taps.channels) {
        for row in 0..taps.rows {
            for column in 0..taps.columns {
                let at = row.wrapping_mul(taps.down).wrapping_add(column.wrapping_mul(taps.right));
                // SAFETY: one of the taps.
                let x = unsafe { input.wrapping_add(at).wrapping_add(channel).read() };
                *state = take(*state, x as i8 as i32);
            }
        }
    }
    for (channel, state) in states.into_iter().enumerate().take(taps.channels) {
        // SAFETY: one of the outputs.
        unsafe { output.wrapping_add(channel).write(finish(state).max(taps.low).min(taps.high) as u8) };
    }
}

/// Averages of up to four channels: a sum's magnitude and half of the number of taps, divided by that number, with the sum's sign.
/// With `n` taps at most 2,043, `(2 v + 1) * ceil(2^30 / n) / 2^31`, rounded down, is `v / n` rounded down, because `v` is at most
/// `128.5 n`.
///
/// # Safety
///
/// The taps can be read and the outputs written.
#[cfg(not(kiln_mve))]
unsafe fn average(input: *const u8, output: *mut u8, taps: &Taps) {
    let mean = |sum: i32| {
        let twice = sum.wrapping_abs().wrapping_mul(2).wrapping_add(taps.half);
        let mean = (twice as i64 * taps.inverse as i64).wrapping_shr(31) as i32;
        if sum < 0 { mean.wrapping_neg() } else { mean }
    };
    // SAFETY: the caller's promise.
    unsafe { reduce::<AVERAGED>(input, output, taps, 0, i32::wrapping_add, mean) }
}

/// Maxima of up to sixteen channels.
///
/// # Safety
///
/// The taps can be read and the outputs written.
#[cfg(not(kiln_mve))]
unsafe fn maximum(input: *const u8, output: *mut u8, taps: &Taps) {
    // SAFETY: the caller's promise.
    unsafe { reduce::<COMPARED>(input, output, taps, -128, i32::max, |x| x) }
}

#[cfg(kiln_mve)]
use assembly::{average, maximum};

#[cfg(kiln_mve)]
mod assembly {
    use core::arch::asm;

    use super::Taps;
    use crate::mve::extension;

    /// Goes through the taps: `$load` of each at r7, then `$take`. The channels are the vector's lanes, by `$mask`.
    macro_rules! pool {
        ($(#[$doc:meta])* $name:ident, $mask:literal, [$($start:literal)*], $load:literal, $take:literal, [$($finish:literal)*]) => {
            $(#[$doc])*
            #[inline(never)]
            pub(super) unsafe extern "C" fn $name(input: *const u8, output: *mut u8, taps: *const Taps) {
                // SAFETY: the caller's promise. The registers that a compiler may want back are pushed and popped.
                unsafe {
                    asm!(
                        extension!(),
                        "push {{r4, r5, r6, r7}}",
                        "ldr r3, [r2, #32]",
                        $mask,
                        $($start,)*
                        "ldm r2, {{r3, r4, r5, r6}}",
                        "cbz r6, 4f",
                        "2:",
                        "mov r7, r0",
                        "dls lr, r5",
                        "3:",
                        "vpst",
                        $load,
                        $take,
                        "add r7, r7, r4",
                        "le lr, 3b",
                        "add r0, r0, r3",
                        "subs r6, r6, #1",
                        "bne 2b",
                        "4:",
                        "ldrd r3, r4, [r2, #16]",
                        $($finish,)*
                        "pop {{r4, r5, r6, r7}}",
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
        /// As in plain Rust, five instructions a tap of four channels.
        average, "vctp.32 r3", ["vmov.i32 q0, #0"], "vldrbt.s32 q1, [r7]", "vadd.i32 q0, q0, q1",
        [
            "ldrd r5, r6, [r2, #24]"
            "vabs.s32 q1, q0"
            "vadd.i32 q1, q1, q1"
            "vadd.i32 q1, q1, r6"
            "vqdmulh.s32 q1, q1, r5"
            // A negative one: all bits turned, and 1 added.
            "vshr.s32 q0, q0, #31"
            "veor q1, q1, q0"
            "vsub.i32 q1, q1, q0"
            "vdup.32 q2, r3"
            "vdup.32 q3, r4"
            "vmax.s32 q1, q1, q2"
            "vmin.s32 q1, q1, q3"
            "vpst"
            "vstrbt.32 q1, [r1]"
        ]
    }
    pool! {
        /// As in plain Rust, five instructions a tap of sixteen channels.
        maximum, "vctp.8 r3", ["vmov.i8 q0, #0x80"], "vldrbt.u8 q1, [r7]", "vmax.s8 q0, q0, q1",
        [
            "vdup.8 q2, r3"
            "vdup.8 q3, r4"
            "vmax.s8 q0, q0, q2"
            "vmin.s8 q0, q0, q3"
            "vpst"
            "vstrbt.8 q0, [r1]"
        ]
    }
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_ops::Op;

    use super::*;
    use crate::lag;
    use crate::pool2d::host::{AVERAGE_POOL_S8, MAX_POOL_S8, spatial_s8};
    use crate::table::{Kernel, Operation};

    /// Taps above which the reciprocal is not exact.
    const MOST: u64 = 2043;

    pub(crate) const AVERAGE_POOL_MVE_S8: Kernel = Kernel {
        number: super::AVERAGE_POOL_MVE_S8.number(),
        name: "average_pool_mve_s8",
        row_name: "AVERAGE_POOL_MVE_S8",
        targets: crate::mve::TARGETS,
        applies: |operation| {
            let Op::Pool2d(op) = operation.op else { return false };
            let taps = op.kernel.iter().map(|&size| u64::from(size)).product::<u64>();
            taps <= MOST && wide(operation) && (AVERAGE_POOL_S8.applies)(operation)
        },
        lag: |operation, input, direction| lag_of(operation, input, AVERAGED, direction),
        portable: super::AVERAGE_POOL_MVE_S8,
        ..AVERAGE_POOL_S8
    };

    pub(crate) const MAX_POOL_MVE_S8: Kernel = Kernel {
        number: super::MAX_POOL_MVE_S8.number(),
        name: "max_pool_mve_s8",
        row_name: "MAX_POOL_MVE_S8",
        targets: crate::mve::TARGETS,
        applies: |operation| wide(operation) && (MAX_POOL_S8.applies)(operation),
        lag: |operation, input, direction| lag_of(operation, input, COMPARED, direction),
        portable: super::MAX_POOL_MVE_S8,
        ..MAX_POOL_S8
    };

    /// Fewer channels take the plain row less.
    fn wide(operation: &Operation<'_>) -> bool {
        operation.output.ty.shape.last() >= AVERAGED as u32
    }

    fn lag_of(
        operation: &Operation<'_>,
        input: usize,
        channels: usize,
        direction: kiln_core::Direction,
    ) -> Option<u64> {
        let spatial = spatial_s8(operation).filter(|_| input == 0)?;
        lag::stretches(&spatial, operation.output.ty.shape.dim(0), [1, channels as u32], direction)
    }
}
