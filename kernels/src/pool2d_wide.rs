//! Maximum pools and their gradient over wide vectors of channels: the native bodies of the rows in [`crate::pool2d`]
//! and [`crate::pool2d_grad`], bit for bit.
//!
//! Channels are taken a vector at a time, all read before any is written, in the order of the plain bodies.

use kiln_core::Call;

use crate::pool2d::PoolParameters;
use crate::pool2d_grad::PoolGradParameters;
use crate::spatial::{Spatial, Taps};
use crate::vector::Vector;

/// The taps of window `at` along an axis (0 height, 1 width), without divisions where taps are side by side.
#[inline(always)]
fn taps(s: &Spatial, axis: usize, at: u32) -> Taps {
    let of = |pair: &[u32; 2]| if axis == 0 { pair[0] } else { pair[1] };
    let size = if axis == 0 { s.input.height } else { s.input.width };
    let (kernel, stride, pad) = (of(&s.kernel), of(&s.strides), of(&s.pads));
    if of(&s.dilations) != 1 {
        return Spatial::taps(at, size, kernel, stride, of(&s.dilations), pad);
    }
    // Sums stay within 32 bits: `axis_is_sound`.
    let from = at.wrapping_mul(stride);
    let first = pad.saturating_sub(from);
    let end = size.wrapping_add(pad).saturating_sub(from).min(kernel);
    if first < end {
        Taps { first, end, at: from.wrapping_add(first).wrapping_sub(pad) }
    } else {
        Taps { first: 0, end: 0, at: 0 }
    }
}

#[inline(always)]
fn count(taps: Taps) -> usize {
    taps.end.wrapping_sub(taps.first) as usize
}

/// The vector that begins at channel `group * LANES`, of which `n` elements are channels.
///
/// # Safety
///
/// These can be read; the CPU has these vectors.
#[inline(always)]
unsafe fn load<V: Vector>(from: *const u8, n: usize) -> V {
    // SAFETY: the caller's promise.
    unsafe { if n == V::LANES { V::load(from.cast()) } else { V::load_part(from.cast(), n) } }
}

/// See [`load`].
///
/// # Safety
///
/// These can be written; the CPU has these vectors.
#[inline(always)]
unsafe fn store<V: Vector>(value: V, to: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { if n == V::LANES { value.store(to.cast()) } else { value.store_part(to.cast(), n) } }
}

/// The maximum pool.
///
/// # Safety
///
/// As for the row's `run`; the CPU has these vectors.
#[inline(always)]
pub(crate) unsafe fn max<V: Vector>(call: &Call<'_>) {
    let Some(p) = call.parameters::<PoolParameters>() else { return };
    let s = &p.spatial;
    let (down, right) = s.tap_steps();
    let channels = s.output.channels as usize;
    let groups = channels.div_ceil(V::LANES);
    let (width, rows) = (s.output.width as usize, call.rows.end.saturating_sub(call.rows.begin) as usize);
    for row in 0..rows {
        let row = call.rows.begin.wrapping_add(call.direction.pick(row, rows) as u32);
        let image = row.checked_div(s.output.height).unwrap_or(0);
        let y = row.wrapping_sub(image.wrapping_mul(s.output.height));
        let lines = taps(s, 0, y);
        for x in 0..width {
            let x = call.direction.pick(x, width) as u32;
            let columns = taps(s, 1, x);
            let from = s.input.pixel(call.input(0), image, lines.at, columns.at).cast_const();
            let to = s.output.pixel(call.output(0), image, y, x);
            for group in 0..groups {
                let first = call.direction.pick(group, groups).wrapping_mul(V::LANES);
                let n = V::LANES.min(channels.wrapping_sub(first));
                let offset = first.wrapping_mul(4);
                // SAFETY: `check` proved that the taps of a window that are counted lie inside the input, and the
                // pixel's channels inside the output.
                unsafe {
                    let mut most = V::splat(f32::NEG_INFINITY);
                    let mut line = from.wrapping_add(offset);
                    for _ in 0..count(lines) {
                        let mut at = line;
                        for _ in 0..count(columns) {
                            let x = load::<V>(at, n);
                            most = V::select(x.above(most), x, most);
                            at = at.wrapping_add(right);
                        }
                        line = line.wrapping_add(down);
                    }
                    let low = V::splat(f32::from_bits(p.epilogue.low as u32));
                    let high = V::splat(f32::from_bits(p.epilogue.high as u32));
                    store(most.clamp(low, high), to.wrapping_add(offset), n);
                }
            }
        }
    }
}

/// For each of `n` channels the number of the tap, in raster order, that has the first largest element.
///
/// # Safety
///
/// The taps can be read, `down` and `right` bytes apart; there is one, and fewer than 2^24; the CPU has these vectors.
#[inline(always)]
unsafe fn largest<V: Vector>(
    first: *const u8,
    (lines, columns): (usize, usize),
    (down, right): (usize, usize),
    n: usize,
) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let (mut best, mut place) = (load::<V>(first, n), V::zero());
        let mut line = first;
        let mut number = 0f32;
        for _ in 0..lines {
            let mut at = line;
            for _ in 0..columns {
                let x = load::<V>(at, n);
                let larger = x.above(best);
                best = V::select(larger, x, best);
                place = V::select(larger, V::splat(number), place);
                number += 1.0;
                at = at.wrapping_add(right);
            }
            line = line.wrapping_add(down);
        }
        place
    }
}

/// Whether no two windows cover a pixel.
fn are_apart(s: &Spatial) -> bool {
    s.dilations == [1, 1] && s.kernel[0] <= s.strides[0] && s.kernel[1] <= s.strides[1]
}

/// Whether the taps of a window can be counted in float32.
fn are_few(s: &Spatial) -> bool {
    s.kernel[0] as u64 * s.kernel[1] as u64 <= 1 << 20
}

/// The gradient of the maximum pool: over vectors where windows [`are_apart`], elsewhere the plain body.
///
/// # Safety
///
/// As for the row's `run`; the CPU has these vectors.
#[inline(always)]
pub(crate) unsafe fn max_grad<V: Vector>(call: &Call<'_>) {
    let Some(p) = call.parameters::<PoolGradParameters>() else { return };
    let s = &p.spatial;
    if !are_apart(s) || !are_few(s) {
        // SAFETY: the caller's promise.
        return unsafe { crate::pool2d_grad::run_max(call) };
    }
    let channels = s.input.channels as usize;
    let pixel = s.input.pixel_pitch as usize;
    let groups = channels.div_ceil(V::LANES);
    for row in call.rows.begin..call.rows.end {
        let image = row.checked_div(s.input.height).unwrap_or(0);
        let y = row.wrapping_sub(image.wrapping_mul(s.input.height));
        let to = s.input.pixel(call.output(0), image, y, 0);
        let clear = |from: u32, end: u32| {
            for x in from..end {
                let to = to.wrapping_add((x as usize).wrapping_mul(pixel));
                for group in 0..groups {
                    let first = group.wrapping_mul(V::LANES);
                    let n = V::LANES.min(channels.wrapping_sub(first));
                    // SAFETY: `check_max` proved that the pixel's channels lie inside the output.
                    unsafe { store(V::zero(), to.wrapping_add(first.wrapping_mul(4)), n) };
                }
            }
        };
        // The one window over this row along the height, if there is one.
        let oy = y.wrapping_add(s.pads[0]).checked_div(s.strides[0]).unwrap_or(0);
        let lines = taps(s, 0, oy);
        if oy >= s.output.height || y < lines.at || y.wrapping_sub(lines.at) as usize >= count(lines) {
            clear(0, s.input.width);
            continue;
        }
        let mut done = 0u32;
        for ox in 0..s.output.width {
            let columns = taps(s, 1, ox);
            if count(columns) == 0 {
                continue;
            }
            clear(done, columns.at);
            done = columns.at.wrapping_add(count(columns) as u32);
            let first = s.input.pixel(call.input(0), image, lines.at, columns.at).cast_const();
            let d = s.output.pixel(call.input(1), image, oy, ox).cast_const();
            let to = to.wrapping_add((columns.at as usize).wrapping_mul(pixel));
            let taps = (count(lines), count(columns));
            // The number of the window's first tap in this row.
            let own = (y.wrapping_sub(lines.at) as usize).wrapping_mul(taps.1) as f32;
            for group in 0..groups {
                let channel = group.wrapping_mul(V::LANES);
                let n = V::LANES.min(channels.wrapping_sub(channel));
                let offset = channel.wrapping_mul(4);
                // SAFETY: `check_max` proved that the window's taps that are counted lie inside the image, its result
                // inside the gradient, and the row's pixels inside the output.
                unsafe {
                    let place = largest::<V>(first.wrapping_add(offset), taps, s.tap_steps(), n);
                    let d = V::zero().plus(load::<V>(d.wrapping_add(offset), n));
                    let (mut to, mut number) = (to.wrapping_add(offset), own);
                    for _ in 0..taps.1 {
                        store(V::select(place.equal(V::splat(number)), d, V::zero()), to, n);
                        to = to.wrapping_add(pixel);
                        number += 1.0;
                    }
                }
            }
        }
        clear(done, s.input.width);
    }
}
