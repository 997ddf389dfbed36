//! The same bytes elsewhere.
//!
//! Windows: input; output. A row is a block of bytes; each is moved as a whole, as if by way of a copy,
//! and rows ascend.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::blocks::Blocks;
use crate::vectors;

/// The parameters of [`COPY`], 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CopyParameters {
    /// Rows; elements are bytes.
    pub blocks: Blocks,
    /// Bytes from one row to the next: of the input, of the output.
    pub pitches: [u32; 2],
}

/// Bytes of any dtype.
pub const COPY: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(8, 1, 0, check, run) };

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<CopyParameters>() else { return false };
    let [from, to] = p.pitches;
    p.blocks.fit(call.input(0), call.rows.end, from, 1) && p.blocks.fit(call.output(0), call.rows.end, to, 1)
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<CopyParameters>() else { return };
    let [from, to] = p.pitches;
    for row in call.rows.begin..call.rows.end {
        let x = vectors::start(call.input(0), row, from).cast_const();
        let y = vectors::start(call.output(0), row, to);
        // SAFETY: `check` proved that the row's bytes lie inside both windows, which may overlap.
        unsafe { move_bytes(x, y, p.blocks.elements(row) as usize) };
    }
}

/// Moves bytes, as if by way of a copy.
///
/// # Safety
///
/// `n` bytes can be read at `from` and written at `to`.
#[cfg(not(target_os = "none"))]
unsafe fn move_bytes(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy(from, to, n) }
}

/// As above, [`BLOCK`] by block where both lie at words. The compiler's `memmove`, which is fast for any alignment, takes 2,300 bytes with
/// the `memcpy` it calls; a fence in the loops keeps the compiler from seeing that this is one.
#[cfg(target_os = "none")]
#[inline(never)]
unsafe fn move_bytes(from: *const u8, to: *mut u8, n: usize) {
    use core::sync::atomic::{Ordering, compiler_fence};
    let byte = |i: usize| {
        // SAFETY: one of the `n` bytes.
        unsafe { to.wrapping_add(i).write(from.wrapping_add(i).read()) };
        compiler_fence(Ordering::SeqCst);
    };
    // Upwards none is written over that is still to be read, unless the bytes go up by less than they are.
    if to.addr().wrapping_sub(from.addr()) < n {
        return (0..n).rev().for_each(byte);
    }
    let blocks = if (from.addr() | to.addr()) & 3 == 0 { n / BLOCK } else { 0 };
    // SAFETY: so many whole blocks are among the `n` bytes, at words in both places.
    unsafe { move_blocks(from, to, blocks) };
    (blocks.wrapping_mul(BLOCK)..n).for_each(byte);
}

/// Bytes that are moved at once.
#[cfg(all(target_os = "none", target_arch = "arm"))]
const BLOCK: usize = 16;
#[cfg(all(target_os = "none", not(target_arch = "arm")))]
const BLOCK: usize = 4;

/// Moves blocks from the first on.
///
/// # Safety
///
/// Both places are aligned for words and hold so many blocks; none is written over that is still to be read.
#[cfg(all(target_os = "none", target_arch = "arm"))]
#[inline(always)]
unsafe fn move_blocks(from: *const u8, to: *mut u8, blocks: usize) {
    // SAFETY: the caller's promise; a block is read as a whole before it is written.
    unsafe {
        core::arch::asm!(
            "b 3f",
            "2:",
            "ldmia r0!, {{r2, r3, r4, r5}}",
            "stmia r1!, {{r2, r3, r4, r5}}",
            "3:",
            "subs {blocks}, {blocks}, #1",
            "bhs 2b",
            blocks = inout(reg) blocks => _,
            inout("r0") from => _,
            inout("r1") to => _,
            out("r2") _,
            out("r3") _,
            out("r4") _,
            out("r5") _,
            options(nostack),
        );
    }
}

#[cfg(all(target_os = "none", not(target_arch = "arm")))]
#[inline(always)]
unsafe fn move_blocks(from: *const u8, to: *mut u8, blocks: usize) {
    for block in 0..blocks {
        let at = block.wrapping_mul(BLOCK);
        // SAFETY: the caller's promise.
        unsafe { to.wrapping_add(at).cast::<u32>().write(from.wrapping_add(at).cast::<u32>().read()) };
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{DType, Shape, TensorType};
    use kiln_ops::{Op, OpError};

    use super::*;
    use crate::table::{Direction, Kernel, Operation};
    use crate::{blocks, lowering};

    pub(crate) const COPY: Kernel = Kernel {
        number: super::COPY.number(),
        name: "copy",
        row_name: "COPY",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| cut(operation).is_some(),
        prepare: |operation, emit| {
            let (blocks, rows) = cut(operation).ok_or(OpError::TooLarge)?;
            lowering::emit_call(emit, 1, Some((CopyParameters { blocks, pitches: [blocks.row_length; 2] }, rows)))
        },
        // Within a row the move minds overlap itself; across rows the output must not run ahead.
        lag: |operation, input, _| cut(operation).filter(|_| input == 0).map(|_| 0),
        portable: super::COPY,
        native: None,
        work: None,
    };

    /// The blocks of the tensor's bytes.
    fn cut(operation: &Operation<'_>) -> Option<(Blocks, u32)> {
        let Op::Copy(_) = operation.op else { return None };
        let [x] = operation.inputs else { return None };
        let ty = operation.output.ty;
        if x.ty != ty {
            return None;
        }
        let bits = ty.dtype.bits();
        if bits.is_multiple_of(8) {
            // The innermost dimension in bytes.
            let mut dims = [0u32; kiln_core::MAX_RANK];
            let dims = dims.get_mut(..ty.shape.rank())?;
            dims.copy_from_slice(ty.shape.dims());
            if let Some(last) = dims.last_mut() {
                *last = last.checked_mul(bits / 8)?;
                return blocks::host::cut(&TensorType::new(DType::U8, Shape::new(dims).ok()?));
            }
        }
        // Scalars, and elements smaller than a byte, whose rows need not begin at one.
        let bytes = u32::try_from(ty.bytes()?).ok()?;
        blocks::host::cut(&TensorType::new(DType::U8, Shape::new(&[bytes]).ok()?))
    }
}
