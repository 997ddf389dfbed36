//! Rows that are vectors, each a pitch after the one before.

use kiln_core::{Call, Window};

/// Whether `rows` vectors of `length` elements of `size` bytes (a power of two) lie inside `window`,
/// every element aligned if the window is.
#[inline(never)]
pub(crate) fn fit(window: Window, rows: u32, length: u32, pitch: u32, size: u32) -> bool {
    let used = length as u64 * size as u64;
    // `used <= pitch` keeps the sum within 64 bits.
    rows == 0
        || length != 0
            && used <= pitch as u64
            && pitch & size.wrapping_sub(1) == 0
            && (rows as u64).saturating_sub(1) * pitch as u64 + used <= window.len as u64
}

/// Where vector `row` begins.
#[inline(always)]
pub(crate) fn start(window: Window, row: u32, pitch: u32) -> *mut u8 {
    window.ptr.wrapping_add((row as usize).wrapping_mul(pitch as usize))
}

/// Whether as many vectors as `call` has rows lie inside its first input and its first output: [`fit`] for both.
#[inline(never)]
pub(crate) fn fit_both(call: &Call<'_>, length: u32, input_pitch: u32, output_pitch: u32, size: u32) -> bool {
    fit(call.input(0), call.rows.end, length, input_pitch, size)
        && fit(call.output(0), call.rows.end, length, output_pitch, size)
}

/// Gives `run` each row's vector of the first input and of the first output.
#[inline(always)]
pub(crate) fn for_each<T>(call: &Call<'_>, input_pitch: u32, output_pitch: u32, run: impl Fn(*const T, *mut T)) {
    for row in call.rows.begin..call.rows.end {
        run(start(call.input(0), row, input_pitch).cast::<T>(), start(call.output(0), row, output_pitch).cast::<T>());
    }
}

/// The largest of `n` elements; `i32::MIN` of none.
///
/// # Safety
///
/// `x` must be valid for reads of `n` elements.
#[inline(always)]
pub(crate) unsafe fn max_s8(x: *const i8, n: usize) -> i32 {
    // SAFETY: the caller vouches for all `n` elements.
    (0..n).fold(i32::MIN, |max, i| max.max(unsafe { x.wrapping_add(i).read() } as i32))
}
