//! float32 softmax and its logarithm over the vectors of hosts: the native bodies of `SOFTMAX_WIDE_F32` and
//! `LOG_SOFTMAX_WIDE_F32`. They are rows of their own because their bits are not those of the plain rows, which a
//! plan for a board has on hosts too.
//!
//! A vector's exponentials are summed in 16 parts, element `i` in part `i % 16`, whatever vectors the CPU has; then
//! parts are added pair by pair.

use kiln_core::Call;

use crate::log_softmax::LogSoftmaxF32Parameters;
use crate::softmax::SoftmaxF32Parameters;
use crate::vectors;
use crate::wide::{Wide, exp};

/// Parts of a sum.
const PARTS: usize = 16;

/// The largest of `n` elements, at least `least`.
///
/// # Safety
///
/// They can be read; the CPU has these vectors.
#[inline(always)]
unsafe fn largest<V: Wide>(x: *const f32, n: usize, least: f32) -> f32 {
    let mut lanes = [least; PARTS];
    // SAFETY: the caller's promise; a vector has at most as many lanes.
    unsafe {
        let mut most = V::splat(least);
        let mut i = 0usize;
        while i.wrapping_add(V::LANES) <= n {
            let x = V::load(x.wrapping_add(i));
            most = V::select(x.above(most), x, most);
            i = i.wrapping_add(V::LANES);
        }
        most.store(lanes.as_mut_ptr());
        let mut most = least;
        for &lane in &lanes {
            most = if lane > most { lane } else { most };
        }
        while i < n {
            let x = x.wrapping_add(i).read();
            most = if x > most { x } else { most };
            i = i.wrapping_add(1);
        }
        most
    }
}

/// Exponentials of `n` elements less `max`, times `beta`: written to `y` where it is not null, and their sum.
///
/// # Safety
///
/// The elements can be read and written; the CPU has these vectors.
#[inline(always)]
unsafe fn powers<V: Wide>(x: *const f32, y: *mut f32, n: usize, max: f32, beta: f32) -> f32 {
    let mut parts = [0f32; PARTS];
    let mut power = [0f32; PARTS];
    // SAFETY: the caller's promise; a vector has at most as many lanes as there are parts.
    unsafe {
        let (max, beta) = (V::splat(max), V::splat(beta));
        // No closures: they lack the instructions that pass vectors, and would not be inlined.
        let mut i = 0usize;
        while i < n {
            let left = V::LANES.min(n.wrapping_sub(i));
            let whole = left == V::LANES;
            let from = x.wrapping_add(i);
            let x = if whole { V::load(from) } else { V::load_part(from, left) };
            let mut value = exp(x.minus(max).times(beta));
            if !whole {
                // Lanes beyond the end count nothing.
                value.store(power.as_mut_ptr());
                value = V::load_part(power.as_ptr(), left);
            }
            let sum = parts.as_mut_ptr().wrapping_add(i % PARTS);
            V::load(sum).plus(value).store(sum);
            if !y.is_null() {
                let to = y.wrapping_add(i);
                if whole { value.store(to) } else { value.store_part(to, left) }
            }
            i = i.wrapping_add(V::LANES);
        }
    }
    let mut width = PARTS;
    while width > 1 {
        width /= 2;
        let (low, high) = parts.split_at_mut(width);
        for (a, b) in low.iter_mut().zip(high) {
            *a += *b;
        }
    }
    parts[0]
}

/// Softmax.
///
/// # Safety
///
/// As for the row's `run`; the CPU has these vectors.
#[inline(always)]
pub(crate) unsafe fn softmax<V: Wide>(call: &Call<'_>) {
    let Some(p) = call.parameters::<SoftmaxF32Parameters>() else { return };
    let n = p.length as usize;
    for row in call.rows.begin..call.rows.end {
        let x: *const f32 = vectors::start(call.input(0), row, p.input_pitch).cast();
        let y: *mut f32 = vectors::start(call.output(0), row, p.output_pitch).cast();
        // SAFETY: `check` proved that the `n` elements of the row lie inside input and output.
        unsafe {
            let max = largest::<V>(x, n, f32::NEG_INFINITY);
            let sum = V::splat(powers::<V>(x, y, n, max, p.beta));
            let mut i = 0usize;
            while i < n {
                let (left, y) = (n.wrapping_sub(i), y.wrapping_add(i));
                if left >= V::LANES {
                    V::load(y).over(sum).store(y);
                } else {
                    V::load_part(y, left).over(sum).store_part(y, left);
                }
                i = i.wrapping_add(V::LANES);
            }
        }
    }
}

/// The logarithm of softmax.
///
/// # Safety
///
/// As for the row's `run`; the CPU has these vectors.
#[inline(always)]
pub(crate) unsafe fn log_softmax<V: Wide>(call: &Call<'_>) {
    let Some(p) = call.parameters::<LogSoftmaxF32Parameters>() else { return };
    let n = p.length as usize;
    for row in call.rows.begin..call.rows.end {
        let x: *const f32 = vectors::start(call.input(0), row, p.input_pitch).cast();
        let y: *mut f32 = vectors::start(call.output(0), row, p.output_pitch).cast();
        // SAFETY: `check` proved that the `n` elements of the row lie inside input and output.
        unsafe {
            let max = largest::<V>(x, n, f32::MIN);
            let log = libm::logf(powers::<V>(x, core::ptr::null_mut(), n, max, 1.0));
            let (max, log) = (V::splat(max), V::splat(log));
            let mut i = 0usize;
            while i < n {
                let (left, x, y) = (n.wrapping_sub(i), x.wrapping_add(i), y.wrapping_add(i));
                if left >= V::LANES {
                    V::load(x).minus(max).minus(log).store(y);
                } else {
                    V::load_part(x, left).minus(max).minus(log).store_part(y, left);
                }
                i = i.wrapping_add(V::LANES);
            }
        }
    }
}
