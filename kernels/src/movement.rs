//! Elements moved as they are: parts and repetitions, tensors among zeros, tensors behind one another.
//!
//! Windows: the inputs; then the output. Elements of any dtype of whole bytes, at any alignment. A row is a part
//! of the output, named with each row below; output bytes ascend.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::blocks::Blocks;
use crate::strided::{self, MAX_AXES, Walk};

/// The parameters of [`STRIDED`], 80 bytes. Axes are outermost first; those that are not needed have size 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StridedParameters {
    /// Rows; elements of the output.
    pub blocks: Blocks,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub element: u32,
    /// The first element that is read.
    pub start: u32,
    /// Sizes of the output's axes.
    pub sizes: [u32; MAX_AXES],
    /// Elements from one to the next in the input; 0 repeats.
    pub strides: [u32; MAX_AXES],
}

/// The parameters of [`SCATTER`], 92 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScatterParameters {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub element: u32,
    /// Elements of a row of the output.
    pub row_length: u32,
    /// The first row that has elements of the input.
    pub begin: u32,
    /// The distance from one such row to the next.
    pub step: u32,
    /// How many such rows there are.
    pub count: u32,
    /// Where in a row the first of the input's elements goes.
    pub start: u32,
    /// Reserved: 0.
    pub reserved: u32,
    /// Sizes of the input's other axes.
    pub sizes: [u32; MAX_AXES],
    /// Elements from one to the next in the output; not 0.
    pub strides: [u32; MAX_AXES],
}

/// The parameters of [`CONCAT`], 8 bytes and words.
#[derive(Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConcatParameters {
    /// Bytes of a row of the output.
    pub row_bytes: u32,
    /// Reserved: 0.
    pub reserved: u32,
    /// Bytes that each input gives in turn, again and again.
    pub pieces: [u32],
}

/// Elements at strides: slices, and repetitions along axes. A row is a block of elements.
pub const STRIDED: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(46, 1, 0, check_strided, run_strided) };
/// Zeros with the input's elements at strides. A row is one index of the outermost axis that has several.
pub const SCATTER: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(47, 1, 0, check_scatter, run_scatter) };
/// Tensors behind one another. A row is one index of all axes before theirs, or of the first axis if it is theirs.
pub const CONCAT: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(48, 1, 0, check_concat, run_concat) };

fn is_element(size: u32) -> bool {
    matches!(size, 1 | 2 | 4 | 8)
}

/// Copies `n` elements of one word each, `from_step` and `to_step` elements apart.
///
/// # Safety
///
/// They can be read and written, at any alignment.
#[inline(always)]
unsafe fn each<T: Copy>(from: *const u8, from_step: usize, to: *mut u8, to_step: usize, n: usize) {
    let (mut from, mut to) = (from.cast::<T>(), to.cast::<T>());
    for _ in 0..n {
        // SAFETY: the caller's promise.
        unsafe { to.write_unaligned(from.read_unaligned()) };
        from = from.wrapping_add(from_step);
        to = to.wrapping_add(to_step);
    }
}

/// Copies `n` elements of `element` bytes.
///
/// # Safety
///
/// As for [`each`].
#[inline(never)]
unsafe fn elements(element: u32, from: *const u8, from_step: usize, to: *mut u8, to_step: usize, n: usize) {
    // SAFETY: the caller's promise. As a whole where the elements are neighbours, which may overlap.
    unsafe {
        if from_step == 1 && to_step == 1 {
            return core::ptr::copy(from, to, n.wrapping_mul(element as usize));
        }
        match element {
            1 => each::<u8>(from, from_step, to, to_step, n),
            2 => each::<u16>(from, from_step, to, to_step, n),
            4 => each::<u32>(from, from_step, to, to_step, n),
            _ => each::<u64>(from, from_step, to, to_step, n),
        }
    }
}

fn check_strided(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<StridedParameters>() else { return false };
    // Rows are checked as bytes, which need no alignment.
    let Some(pitch) = p.blocks.row_length.checked_mul(p.element) else { return false };
    let far = strided::reach(&p.sizes, &p.strides).saturating_add(p.start as u64);
    is_element(p.element)
        && strided::elements(&p.sizes) == Some(p.blocks.length as u64)
        && p.blocks.fit(call.output(0), call.rows.end, pitch, p.element)
        && far.saturating_mul(p.element as u64) <= call.input(0).len as u64
}

unsafe fn run_strided(call: &Call<'_>) {
    let Some(p) = call.parameters::<StridedParameters>() else { return };
    let (row, element) = (p.blocks.row_length as usize, p.element as usize);
    let end = (call.rows.end as usize).saturating_mul(row).min(p.blocks.length as usize);
    let mut first = (call.rows.begin as usize).wrapping_mul(row);
    let mut walk = Walk::new(&p.sizes, &p.strides, first);
    while first < end {
        let run = walk.next(end.wrapping_sub(first));
        let from = run.position.wrapping_add(p.start as usize).wrapping_mul(element);
        let from = call.input(0).ptr.wrapping_add(from).cast_const();
        let to = call.output(0).ptr.wrapping_add(first.wrapping_mul(element));
        // SAFETY: `check` proved that the farthest element lies inside the input, and the rows inside the output.
        unsafe { elements(p.element, from, run.stride, to, 1, run.length) };
        first = first.wrapping_add(run.length);
    }
}

fn check_scatter(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<ScatterParameters>() else { return false };
    let size = p.element as u64;
    let far = strided::reach(&p.sizes, &p.strides).saturating_add(p.start as u64);
    let Some(own) = strided::elements(&p.sizes) else { return false };
    is_element(p.element)
        && p.reserved == 0
        && p.step != 0
        && p.count != 0
        && far <= p.row_length as u64
        // Several elements can't go to one place, which bounds the time.
        && own <= p.row_length as u64
        && (p.row_length as u64).saturating_mul(call.rows.end as u64).saturating_mul(size) <= call.output(0).len as u64
        && own.saturating_mul(p.count as u64).saturating_mul(size) <= call.input(0).len as u64
}

unsafe fn run_scatter(call: &Call<'_>) {
    let Some(p) = call.parameters::<ScatterParameters>() else { return };
    let element = p.element as usize;
    let row_bytes = (p.row_length as usize).wrapping_mul(element);
    let own = p.sizes.iter().fold(1usize, |n, &size| n.wrapping_mul(size as usize));
    for row in call.rows.begin..call.rows.end {
        let to = call.output(0).ptr.wrapping_add((row as usize).wrapping_mul(row_bytes));
        // SAFETY: `check` proved that the rows lie inside the output.
        unsafe { to.write_bytes(0, row_bytes) };
        let Some(beyond) = row.checked_sub(p.begin) else { continue };
        let number = beyond.checked_div(p.step).unwrap_or(0);
        if number >= p.count || number.wrapping_mul(p.step) != beyond {
            continue;
        }
        let mut done = 0usize;
        let mut walk = Walk::new(&p.sizes, &p.strides, 0);
        while done < own {
            let run = walk.next(own.wrapping_sub(done));
            let from = (number as usize).wrapping_mul(own).wrapping_add(done).wrapping_mul(element);
            let from = call.input(0).ptr.wrapping_add(from).cast_const();
            let to = to.wrapping_add(run.position.wrapping_add(p.start as usize).wrapping_mul(element));
            // SAFETY: `check` proved that `count` rows of the input lie inside it, and that the farthest
            // element of one lies inside a row of the output.
            unsafe { elements(p.element, from, 1, to, run.stride, run.length) };
            done = done.wrapping_add(run.length);
        }
    }
}

/// How far each input goes: what one round of all pieces is, and how many rounds some bytes are.
fn rounds(pieces: &[u32], bytes: u64) -> Option<(u64, u64)> {
    let round = pieces.iter().fold(0u64, |sum, &piece| sum.wrapping_add(piece as u64));
    Some((round, bytes.checked_add(round)?.checked_sub(1)?.checked_div(round)?))
}

fn check_concat(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<ConcatParameters>() else { return false };
    let bytes = p.row_bytes as u64 * call.rows.end as u64;
    let Some((_, rounds)) = rounds(&p.pieces, bytes) else { return call.rows.end == 0 };
    let fits =
        |(i, &piece): (usize, &u32)| piece != 0 && rounds.saturating_mul(piece as u64) <= call.input(i).len as u64;
    p.reserved == 0
        && p.row_bytes != 0
        && !p.pieces.is_empty()
        && p.pieces.len() <= kiln_core::MAX_OPERANDS
        && bytes <= call.output(0).len as u64
        && p.pieces.iter().enumerate().all(fits)
}

unsafe fn run_concat(call: &Call<'_>) {
    let Some(p) = call.parameters::<ConcatParameters>() else { return };
    let round = p.pieces.iter().fold(0usize, |sum, &piece| sum.wrapping_add(piece as usize));
    let row = p.row_bytes as usize;
    let (mut at, end) = ((call.rows.begin as usize).wrapping_mul(row), (call.rows.end as usize).wrapping_mul(row));
    while at < end {
        let number = at.checked_div(round).unwrap_or(0);
        let mut within = at.wrapping_sub(number.wrapping_mul(round));
        for (i, &piece) in p.pieces.iter().enumerate() {
            let piece = piece as usize;
            if within >= piece {
                within = within.wrapping_sub(piece);
                continue;
            }
            let n = piece.wrapping_sub(within).min(end.wrapping_sub(at));
            let from = call.input(i).ptr.wrapping_add(number.wrapping_mul(piece)).wrapping_add(within);
            // SAFETY: `check` proved that every input has its piece of every round the rows touch, and that
            // the rows lie inside the output.
            unsafe { core::ptr::copy(from.cast_const(), call.output(0).ptr.wrapping_add(at), n) };
            at = at.wrapping_add(n);
            within = 0;
            if at >= end {
                break;
            }
        }
    }
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{MAX_OPERANDS, MAX_RANK, Shape};
    use kiln_ops::{Op, OpError};

    use super::*;
    use crate::table::{Direction, Kernel, Operation};
    use crate::{blocks, lowering};

    pub(crate) const STRIDED: Kernel = Kernel {
        number: super::STRIDED.number(),
        name: "strided",
        row_name: "STRIDED",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| strided(operation).is_some(),
        prepare: |operation, emit| lowering::emit_call(emit, 1, strided(operation)),
        // Elements that are not repeated lie no earlier in the input than in the output.
        lag: |operation, input, _| {
            let (p, _) = strided(operation).filter(|_| input == 0)?;
            let repeats = p.sizes.iter().zip(&p.strides).any(|(&size, &stride)| size > 1 && stride == 0);
            (!repeats).then_some(0)
        },
        portable: super::STRIDED,
        native: None,
        work: None,
    };

    pub(crate) const SCATTER: Kernel = Kernel {
        number: super::SCATTER.number(),
        name: "scatter",
        row_name: "SCATTER",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| scatter(operation).is_some(),
        prepare: |operation, emit| lowering::emit_call(emit, 1, scatter(operation)),
        // The zeros of a row would fall on elements that are still to be read.
        lag: |_, _, _| None,
        portable: super::SCATTER,
        native: None,
        work: None,
    };

    pub(crate) const CONCAT: Kernel = Kernel {
        number: super::CONCAT.number(),
        name: "concat",
        row_name: "CONCAT",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| concat(operation).is_some(),
        prepare: |operation, emit| {
            let (words, rows) = concat(operation).ok_or(OpError::TooLarge)?;
            let count = operation.inputs.len();
            (0..count).for_each(|input| emit.input(input));
            emit.parameters(words.get(..count + 2).unwrap_or(&[]).as_bytes());
            emit.rows(rows);
            Ok(())
        },
        // Of one round, the first input's bytes come first and are moved as a whole.
        lag: |operation, input, _| {
            let (words, rows) = concat(operation).filter(|_| input == 0)?;
            let (round, _) = rounds(words.get(2..operation.inputs.len() + 2)?, 0)?;
            (round == words[0] as u64 * rows as u64).then_some(0)
        },
        portable: super::CONCAT,
        native: None,
        work: None,
    };

    /// Bytes of an element of the operation, which is consistent.
    fn element(operation: &Operation<'_>) -> Option<u32> {
        let size = operation.output.ty.dtype.bits() / 8;
        (is_element(size) && lowering::is_consistent(operation)).then_some(size)
    }

    /// Dense strides, in elements.
    fn dense(shape: &Shape) -> [usize; MAX_RANK] {
        let mut strides = [0usize; MAX_RANK];
        let mut stride = 1usize;
        for (place, &dim) in strides.iter_mut().zip(shape.dims()).rev() {
            *place = stride;
            stride = stride.saturating_mul(dim as usize);
        }
        strides
    }

    fn strided(operation: &Operation<'_>) -> Option<(StridedParameters, u32)> {
        let [x] = operation.inputs else { return None };
        let (start, strides) = match operation.op {
            Op::Expand(_) => (0, kiln_ops::strides(&x.ty.shape, &operation.output.ty.shape)),
            Op::Slice(op) => {
                let mut strides = dense(&x.ty.shape);
                let mut start = 0usize;
                for ((stride, &begin), &step) in strides.iter_mut().zip(&op.begin).zip(&op.step) {
                    start = start.checked_add(stride.checked_mul(begin as usize)?)?;
                    *stride = stride.checked_mul(step as usize)?;
                }
                (start, strides)
            }
            _ => return None,
        };
        let element = element(operation)?;
        let (blocks, rows) = blocks::host::cut(&operation.output.ty)?;
        let axes = strided::host::axes(&operation.output.ty.shape, &[strides])?.at_the_end();
        let [strides] = axes.strides;
        let start = u32::try_from(start).ok()?;
        Some((StridedParameters { blocks, element, start, sizes: axes.sizes, strides }, rows))
    }

    fn scatter(operation: &Operation<'_>) -> Option<(ScatterParameters, u32)> {
        let (Op::Scatter(op), [x]) = (operation.op, operation.inputs) else { return None };
        let element = element(operation)?;
        let shape = &operation.output.ty.shape;
        // The axis of rows; what is before it has one element, at index 0.
        let outermost = shape.dims().iter().position(|&dim| dim != 1).unwrap_or(0);
        let mut strides = dense(shape);
        let mut start = 0usize;
        for (axis, (stride, &begin)) in strides.iter_mut().zip(&op.begin).enumerate() {
            if axis > outermost {
                start = start.checked_add(stride.checked_mul(begin as usize)?)?;
            }
            *stride = stride.checked_mul(op.step[axis] as usize)?;
        }
        let rows = shape.dim(outermost);
        let row_length = u32::try_from(shape.elements()?).ok()?.checked_div(rows)?;
        // The input's axes within a row.
        let mut inner = [1u32; MAX_RANK];
        for (axis, (to, &dim)) in inner.iter_mut().zip(x.ty.shape.dims()).enumerate() {
            *to = if axis > outermost { dim } else { 1 };
        }
        let axes = strided::host::axes(&Shape::new(&inner).ok()?, &[strides])?.at_the_end();
        let [strides] = axes.strides;
        let p = ScatterParameters {
            element,
            row_length,
            begin: op.begin[outermost],
            step: op.step[outermost],
            count: x.ty.shape.dim(outermost),
            start: u32::try_from(start).ok()?,
            reserved: 0,
            sizes: axes.sizes,
            strides,
        };
        Some((p, rows))
    }

    /// The parameters as words, and the rows.
    fn concat(operation: &Operation<'_>) -> Option<([u32; MAX_OPERANDS + 2], u32)> {
        let Op::Concat(op) = operation.op else { return None };
        let element = element(operation)? as u64;
        let dims = operation.output.ty.shape.dims();
        let (before, rest) = dims.split_at_checked(op.axis as usize)?;
        let product = |dims: &[u32]| dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64));
        let inner = product(rest.get(1..)?)?.checked_mul(element)?;
        let mut words = [0u32; MAX_OPERANDS + 2];
        for (to, x) in words.iter_mut().skip(2).zip(operation.inputs) {
            *to = u32::try_from(inner.checked_mul(x.ty.shape.dim(op.axis as usize) as u64)?).ok()?;
        }
        let rows = if before.is_empty() { *rest.first()? as u64 } else { product(before)? };
        words[0] = u32::try_from(operation.output.ty.bytes()?.checked_div(rows)?).ok()?;
        Some((words, u32::try_from(rows).ok()?))
    }
}
