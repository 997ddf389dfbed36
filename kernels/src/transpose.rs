//! The dimensions of a tensor in another order.
//!
//! Windows: input; output. A row is one index of the outermost axis, after axes that stay together are made one.
//! Output elements ascend, each written as it is read.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

/// One axis of the output, 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Axis {
    /// Elements along it.
    pub size: u32,
    /// Bytes from one to the next in the input.
    pub stride: u32,
}

/// The parameters of [`TRANSPOSE`], 68 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TransposeParameters {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub element: u32,
    /// The axis of rows.
    pub rows: Axis,
    /// The axes between, outermost first; those that are not needed have size 1.
    pub middle: [Axis; 6],
    /// The innermost axis.
    pub inner: Axis,
}

/// Elements of 1, 2, 4 or 8 bytes at any alignment.
pub const TRANSPOSE: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(9, 1, 0, check, run) };

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<TransposeParameters>() else { return false };
    let Some(last) = call.rows.end.checked_sub(1) else { return true };
    let axes = || p.middle.iter().chain([&p.inner]);
    let bytes = axes().fold(p.element as u64, |product, axis| product.saturating_mul(axis.size as u64));
    // The element read farthest from the input's start; 32-bit factors keep each product within 64 bits.
    let far = |steps: u32, axis: &Axis| steps as u64 * axis.stride as u64;
    let from = axes().fold(far(last, &p.rows), |sum, axis| sum.saturating_add(far(axis.size.wrapping_sub(1), axis)));
    matches!(p.element, 1 | 2 | 4 | 8)
        && bytes != 0
        && last < p.rows.size
        && from.saturating_add(p.element as u64) <= call.input(0).len as u64
        && bytes.saturating_mul(call.rows.end as u64) <= call.output(0).len as u64
}

/// Copies an element as one word.
///
/// # Safety
///
/// `from` may be read and `to` written as a `T`, at any alignment.
#[inline(always)]
unsafe fn copy<T: Copy>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()) };
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<TransposeParameters>() else { return };
    let element = p.element as usize;
    let row_bytes = p.middle.iter().fold(p.inner.size.wrapping_mul(p.element), |n, axis| n.wrapping_mul(axis.size));
    let stride = p.inner.stride as usize;
    for row in call.rows.begin..call.rows.end {
        let start = call.input(0).ptr.wrapping_add((row as usize).wrapping_mul(p.rows.stride as usize));
        let mut to = call.output(0).ptr.wrapping_add((row as usize).wrapping_mul(row_bytes as usize));
        let mut line = start.cast_const();
        let mut counters = [0u32; 6];
        loop {
            let mut from = line;
            for _ in 0..p.inner.size {
                // SAFETY: `check` proved that the farthest element of every row lies inside the input, and
                // that all rows together lie inside the output.
                unsafe {
                    match element {
                        1 => copy::<u8>(from, to),
                        2 => copy::<u16>(from, to),
                        4 => copy::<u32>(from, to),
                        _ => copy::<u64>(from, to),
                    }
                }
                from = from.wrapping_add(stride);
                to = to.wrapping_add(element);
            }
            // The next line: one step along the innermost axis that has one left.
            let mut more = false;
            for (axis, counter) in p.middle.iter().zip(&mut counters).rev() {
                *counter = counter.wrapping_add(1);
                line = line.wrapping_add(axis.stride as usize);
                if *counter < axis.size {
                    more = true;
                    break;
                }
                line = line.wrapping_sub((axis.stride as usize).wrapping_mul(*counter as usize));
                *counter = 0;
            }
            if !more {
                break;
            }
        }
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::MAX_RANK;
    use kiln_ops::Op;

    use super::*;
    use crate::lowering;
    use crate::table::{Direction, Kernel, Operation};

    pub(crate) const TRANSPOSE: Kernel = Kernel {
        number: super::TRANSPOSE.number(),
        name: "transpose",
        row_name: "TRANSPOSE",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| layout(operation).is_some(),
        prepare: |operation, emit| lowering::emit_call(emit, 1, layout(operation).map(|p| (p, p.rows.size))),
        lag: |operation, input, _| layout(operation).filter(|_| input == 0).and_then(|p| lag(&p)),
        portable: super::TRANSPOSE,
        native: None,
        work: None,
    };

    /// The axes of the output with the input's strides; neighbours that are neighbours in the input too are one.
    fn layout(operation: &Operation<'_>) -> Option<TransposeParameters> {
        let Op::Transpose(op) = operation.op else { return None };
        let [x] = operation.inputs else { return None };
        let dtype = x.ty.dtype;
        if dtype.bits() < 8 || !lowering::is_sound(operation, dtype) {
            return None;
        }
        let mut strides = [0u32; MAX_RANK];
        let mut stride = dtype.bits() / 8;
        for (place, &dim) in strides.iter_mut().zip(x.ty.shape.dims()).rev() {
            *place = stride;
            stride = stride.checked_mul(dim)?;
        }
        let unit = Axis { size: 1, stride: 0 };
        let mut axes = [unit; MAX_RANK];
        let mut used = 0;
        for axis in op.axes(x.ty.shape.rank()) {
            let next = Axis { size: x.ty.shape.dim(axis), stride: *strides.get(axis)? };
            let before = axes.get_mut(..used)?.last_mut();
            match before.filter(|b| b.stride as u64 == next.size as u64 * next.stride as u64) {
                _ if next.size == 1 => {}
                Some(before) => *before = Axis { size: before.size * next.size, stride: next.stride },
                None => {
                    *axes.get_mut(used)? = next;
                    used += 1;
                }
            }
        }
        // The first axis is rows, the last is innermost, what is left stands just before it.
        let (rows, rest) = axes.get(..used)?.split_first().map_or((unit, &[][..]), |(&first, rest)| (first, rest));
        let (inner, between) = rest.split_last().map_or((unit, &[][..]), |(&last, between)| (last, between));
        let mut middle = [unit; 6];
        for (place, &axis) in middle.iter_mut().rev().zip(between.iter().rev()) {
            *place = axis;
        }
        Some(TransposeParameters { element: dtype.bits() / 8, rows, middle, inner })
    }

    /// The most elements whose reads are listed to find the lag; larger tensors are not overlapped.
    const MOST_LISTED: u64 = 1 << 20;

    /// The largest distance from the end of an output element to the first input byte that later ones
    /// read.
    fn lag(p: &TransposeParameters) -> Option<u64> {
        let axes = || [&p.rows].into_iter().chain(&p.middle).chain([&p.inner]);
        let total = axes().fold(1u64, |product, axis| product.saturating_mul(axis.size as u64));
        if total > MOST_LISTED {
            return None;
        }
        let (mut lag, mut later) = (0u64, u64::MAX);
        for i in (0..total).rev() {
            let mut rest = i;
            let mut from = 0u64;
            for axis in axes().rev() {
                from += rest % axis.size as u64 * axis.stride as u64;
                rest /= axis.size as u64;
            }
            lag = lag.max(((i + 1) * p.element as u64).saturating_sub(later));
            later = later.min(from);
        }
        Some(lag)
    }
}
