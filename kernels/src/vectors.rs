//! Rows that are vectors, each a pitch after the one before.

use kiln_core::Window;

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
