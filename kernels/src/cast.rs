//! Elements as another dtype.
//!
//! Windows: input; output. A row is a block of elements; elements ascend, each written after it was read.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, DType, Row};

use crate::blocks::Blocks;

/// The parameters of [`CAST`], 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CastParameters {
    /// Rows.
    pub blocks: Blocks,
    /// The input's dtype, by its number: float32, int32, int8, uint8 or bool.
    pub from: u32,
    /// The output's.
    pub to: u32,
}

/// Between float32, int32, int8, uint8 and bool.
pub const CAST: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(49, 4, 0, check, run) };

const F32: u32 = DType::F32 as u32;
const I32: u32 = DType::I32 as u32;
const I8: u32 = DType::I8 as u32;
const U8: u32 = DType::U8 as u32;
const BOOL: u32 = DType::Bool as u32;

/// Bytes of an element; none for other dtypes.
fn size(dtype: u32) -> Option<u32> {
    match dtype {
        F32 | I32 => Some(4),
        I8 | U8 | BOOL => Some(1),
        _ => None,
    }
}

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<CastParameters>() else { return false };
    let (Some(from), Some(to)) = (size(p.from), size(p.to)) else { return false };
    let pitch = |size| p.blocks.row_length.checked_mul(size);
    let (Some(from_pitch), Some(to_pitch)) = (pitch(from), pitch(to)) else { return false };
    p.blocks.fit(call.input(0), call.rows.end, from_pitch, from)
        && p.blocks.fit(call.output(0), call.rows.end, to_pitch, to)
}

/// Converts elements `first..end`.
///
/// # Safety
///
/// They lie inside both windows, aligned.
#[inline(always)]
unsafe fn each<A: Copy, B>(call: &Call<'_>, first: usize, end: usize, f: impl Fn(A) -> B) {
    let (x, y) = (call.input(0).ptr.cast::<A>(), call.output(0).ptr.cast::<B>());
    for i in first..end {
        // SAFETY: the caller's promise.
        unsafe { y.wrapping_add(i).write(f(x.wrapping_add(i).read())) };
    }
}

/// From an integer, whose low bits are kept.
///
/// # Safety
///
/// As for [`each`].
#[inline(always)]
unsafe fn integer<A: Copy>(call: &Call<'_>, first: usize, end: usize, to: u32, wide: impl Fn(A) -> i32) {
    // SAFETY: the caller's promise.
    unsafe {
        match to {
            F32 => each(call, first, end, |x: A| wide(x) as f32),
            I32 => each(call, first, end, wide),
            BOOL => each(call, first, end, |x: A| (wide(x) != 0) as u8),
            _ => each(call, first, end, |x: A| wide(x) as u8),
        }
    }
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<CastParameters>() else { return };
    let row = p.blocks.row_length as usize;
    let end = (call.rows.end as usize).saturating_mul(row).min(p.blocks.length as usize);
    let first = (call.rows.begin as usize).wrapping_mul(row);
    // SAFETY: `check` proved that the rows' elements lie inside both windows.
    unsafe {
        match (p.from, p.to) {
            (F32, F32) => each(call, first, end, |x: f32| x),
            (F32, I32) => each(call, first, end, |x: f32| x as i32),
            (F32, I8) => each(call, first, end, |x: f32| x as i8),
            (F32, U8) => each(call, first, end, |x: f32| x as u8),
            (F32, _) => each(call, first, end, |x: f32| (x != 0.0) as u8),
            (I32, to) => integer(call, first, end, to, |x: i32| x),
            (I8, to) => integer(call, first, end, to, |x: i8| x as i32),
            (_, to) => integer(call, first, end, to, |x: u8| x as i32),
        }
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_ops::Op;

    use super::*;
    use crate::table::{Direction, Kernel, Operation};
    use crate::{blocks, lowering};

    pub(crate) const CAST: Kernel = Kernel {
        number: super::CAST.number(),
        name: "cast",
        row_name: "CAST",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| parameters(operation).is_some(),
        prepare: |operation, emit| lowering::emit_call(emit, 1, parameters(operation)),
        // Where elements become larger, the output runs ahead by the difference with each but the last.
        lag: |operation, input, _| {
            let (p, _) = parameters(operation).filter(|_| input == 0)?;
            let more = size(p.to)?.saturating_sub(size(p.from)?) as u64;
            Some(more * (p.blocks.length as u64).saturating_sub(1))
        },
        portable: super::CAST,
        native: None,
        work: None,
    };

    fn parameters(operation: &Operation<'_>) -> Option<(CastParameters, u32)> {
        let (Op::Cast(_), [x]) = (operation.op, operation.inputs) else { return None };
        let [from, to] = [x.ty.dtype, operation.output.ty.dtype].map(|dtype| dtype as u32);
        if size(from).is_none() || size(to).is_none() || !lowering::is_consistent(operation) {
            return None;
        }
        let (blocks, rows) = blocks::host::cut(&operation.output.ty)?;
        Some((CastParameters { blocks, from, to }, rows))
    }
}
