//! Sums and extremes along axes, and where the largest element is.
//!
//! Windows: input; output. A row is a block of output elements. Each element has an order of its own in which
//! its inputs are taken, whatever rows a call computes. Output elements ascend and are written once their
//! inputs were read.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::blocks::Blocks;
use crate::strided::{self, Walk};

/// The parameters of [`REDUCE_F32`], 80 bytes. Strides are in elements, axes outermost first; those that are not
/// needed have size 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReduceParameters {
    /// Rows.
    pub blocks: Blocks,
    /// 0 for the sum, 1 for the largest, 2 for the smallest element.
    pub kind: u32,
    /// Reserved: 0.
    pub reserved: u32,
    /// Sizes of the axes that stay: the output.
    pub kept_sizes: [u32; 4],
    /// The input's strides along them.
    pub kept_strides: [u32; 4],
    /// Sizes of the axes that are reduced.
    pub sizes: [u32; 4],
    /// The input's strides along them.
    pub strides: [u32; 4],
}

/// The parameters of [`ARG_MAX_F32`], 16 bytes: the input is `[outer, size, inner]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ArgMaxParameters {
    /// Rows.
    pub blocks: Blocks,
    /// Elements along the axis.
    pub size: u32,
    /// Elements from one to the next, and of the axes within.
    pub inner: u32,
}

/// float32 sum, maximum or minimum.
pub const REDUCE_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(43, 4, 0, check, run) };
/// The index of the largest float32 element along an axis, as int32.
pub const ARG_MAX_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(44, 4, 0, check_arg_max, run_arg_max) };

/// Output elements computed together where they lie side by side in the input.
const TOGETHER: usize = 16;
/// Elements of one sum before it is added to the whole, so that errors grow with the number of sums.
const PIECE: usize = 256;

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<ReduceParameters>() else { return false };
    let Some(pitch) = p.blocks.row_length.checked_mul(4) else { return false };
    let far = strided::reach(&p.kept_sizes, &p.kept_strides).saturating_add(strided::reach(&p.sizes, &p.strides));
    p.kind <= 2
        && p.reserved == 0
        && strided::elements(&p.kept_sizes) == Some(p.blocks.length as u64)
        // Every element that is reduced lies somewhere else, which bounds the time.
        && strided::elements(&p.sizes).is_some_and(|n| n.saturating_mul(4) <= call.input(0).len as u64)
        && p.blocks.fit(call.output(0), call.rows.end, pitch, 4)
        && far.saturating_sub(1).saturating_mul(4) <= call.input(0).len as u64
}

/// How two elements become one.
trait Kind {
    const START: f32;
    fn join(a: f32, b: f32) -> f32;
}

struct Sum;

impl Kind for Sum {
    const START: f32 = 0.0;
    #[inline(always)]
    fn join(a: f32, b: f32) -> f32 {
        a + b
    }
}

struct Max;

impl Kind for Max {
    const START: f32 = f32::NEG_INFINITY;
    #[inline(always)]
    fn join(a: f32, b: f32) -> f32 {
        if b > a || b.is_nan() { b } else { a }
    }
}

struct Min;

impl Kind for Min {
    const START: f32 = f32::INFINITY;
    #[inline(always)]
    fn join(a: f32, b: f32) -> f32 {
        if b < a || b.is_nan() { b } else { a }
    }
}

/// `n` elements in a row, `step` apart, in eight interleaved parts so that they can be taken together.
///
/// # Safety
///
/// The elements can be read, aligned.
#[inline(always)]
unsafe fn line<K: Kind>(x: *const f32, step: usize, n: usize) -> f32 {
    let mut parts = [K::START; 8];
    let mut at = x;
    for _ in 0..n / 8 {
        for (i, part) in parts.iter_mut().enumerate() {
            // SAFETY: one of the `n` elements.
            *part = K::join(*part, unsafe { at.wrapping_add(i.wrapping_mul(step)).read() });
        }
        at = at.wrapping_add(step.wrapping_mul(8));
    }
    for (i, part) in parts.iter_mut().enumerate().take(n % 8) {
        // SAFETY: as above.
        *part = K::join(*part, unsafe { at.wrapping_add(i.wrapping_mul(step)).read() });
    }
    let [a, b, c, d, e, f, g, h] = parts;
    K::join(K::join(K::join(a, e), K::join(b, f)), K::join(K::join(c, g), K::join(d, h)))
}

/// Elements `0..n` of the output that lie `side` apart in the input from `x` on.
///
/// # Safety
///
/// `check` accepted the parameters; the inputs of these elements begin at `x`.
#[inline(never)]
unsafe fn group<K: Kind>(p: &ReduceParameters, x: *const f32, side: usize, n: usize) -> [f32; TOGETHER] {
    let mut all = [K::START; TOGETHER];
    // Beyond the innermost reduced axis.
    let [a, b, c, size] = p.sizes;
    let [ra, rb, rc, step] = p.strides;
    let outer = (a as usize).wrapping_mul(b as usize).wrapping_mul(c as usize);
    let (sizes, strides) = ([a, b, c], [ra, rb, rc]);
    let mut walk = Walk::new(&sizes, &strides, 0);
    for _ in 0..outer {
        let at = x.wrapping_add(walk.next(1).position);
        let mut done = 0usize;
        while done < size as usize {
            let length = PIECE.min((size as usize).wrapping_sub(done));
            let start = at.wrapping_add(done.wrapping_mul(step as usize));
            // SAFETY: `check` proved that the element farthest along all axes lies inside the input.
            unsafe {
                if side == 1 {
                    let mut piece = [K::START; TOGETHER];
                    for i in 0..length {
                        let row = start.wrapping_add(i.wrapping_mul(step as usize));
                        for (lane, sum) in piece.iter_mut().enumerate().take(n) {
                            *sum = K::join(*sum, row.wrapping_add(lane).read());
                        }
                    }
                    for (all, piece) in all.iter_mut().zip(piece) {
                        *all = K::join(*all, piece);
                    }
                } else {
                    for (lane, all) in all.iter_mut().enumerate().take(n) {
                        let x = start.wrapping_add(lane.wrapping_mul(side));
                        let piece =
                            if step == 1 { line::<K>(x, 1, length) } else { line::<K>(x, step as usize, length) };
                        *all = K::join(*all, piece);
                    }
                }
            }
            done = done.wrapping_add(length);
        }
    }
    all
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<ReduceParameters>() else { return };
    let row = p.blocks.row_length as usize;
    let end = (call.rows.end as usize).saturating_mul(row).min(p.blocks.length as usize);
    let mut first = (call.rows.begin as usize).wrapping_mul(row);
    let mut walk = Walk::new(&p.kept_sizes, &p.kept_strides, first);
    let input = call.input(0).ptr.cast::<f32>().cast_const();
    while first < end {
        let run = walk.next(TOGETHER.min(end.wrapping_sub(first)));
        let x = input.wrapping_add(run.position);
        // SAFETY: `check` accepted the parameters; the walk gives where the elements' inputs begin.
        let results = unsafe {
            match p.kind {
                0 => group::<Sum>(p, x, run.stride, run.length),
                1 => group::<Max>(p, x, run.stride, run.length),
                _ => group::<Min>(p, x, run.stride, run.length),
            }
        };
        let output = call.output(0).ptr.cast::<f32>().wrapping_add(first);
        for (i, &result) in results.iter().enumerate().take(run.length) {
            // SAFETY: `check` proved that the rows' elements lie inside the output.
            unsafe { output.wrapping_add(i).write(result) };
        }
        first = first.wrapping_add(run.length);
    }
}

fn check_arg_max(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<ArgMaxParameters>() else { return false };
    let Some(pitch) = p.blocks.row_length.checked_mul(4) else { return false };
    let outer = p.blocks.length.checked_div(p.inner).unwrap_or(0);
    let elements = (p.blocks.length as u64).saturating_mul(p.size as u64);
    p.size != 0
        && p.inner != 0
        && outer.checked_mul(p.inner) == Some(p.blocks.length)
        && p.blocks.fit(call.output(0), call.rows.end, pitch, 4)
        && elements.saturating_mul(4) <= call.input(0).len as u64
}

unsafe fn run_arg_max(call: &Call<'_>) {
    let Some(p) = call.parameters::<ArgMaxParameters>() else { return };
    let (row, inner) = (p.blocks.row_length as usize, p.inner as usize);
    let end = (call.rows.end as usize).saturating_mul(row).min(p.blocks.length as usize);
    let first = (call.rows.begin as usize).wrapping_mul(row);
    for i in first..end {
        let outer = i.checked_div(inner).unwrap_or(0);
        let start = outer.wrapping_mul(p.size as usize).wrapping_sub(outer).wrapping_mul(inner).wrapping_add(i);
        let mut x = call.input(0).ptr.cast::<f32>().cast_const().wrapping_add(start);
        // SAFETY: `check` proved that all of `[outer, size, inner]` lies inside the input.
        let (mut best, mut index) = (unsafe { x.read() }, 0u32);
        for k in 1..p.size {
            x = x.wrapping_add(inner);
            // SAFETY: as above.
            let value = unsafe { x.read() };
            if value > best {
                (best, index) = (value, k);
            }
        }
        // SAFETY: `check` proved that the rows' elements lie inside the output.
        unsafe { call.output(0).ptr.cast::<u32>().wrapping_add(i).write(index) };
    }
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;
    use kiln_ops::{Op, ReduceKind};

    use super::*;
    use crate::table::{Direction, Kernel, Operation};
    use crate::{blocks, lowering};

    pub(crate) const REDUCE_F32: Kernel = Kernel {
        number: super::REDUCE_F32.number(),
        name: "reduce_f32",
        row_name: "REDUCE_F32",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| parameters(operation).is_some(),
        prepare: |operation, emit| lowering::emit_call(emit, 1, parameters(operation)),
        // An element's inputs begin no earlier than where it is written, and those of later elements later.
        lag: |operation, input, _| parameters(operation).filter(|_| input == 0).map(|_| 0),
        portable: super::REDUCE_F32,
        native: None,
        work: None,
    };

    pub(crate) const ARG_MAX_F32: Kernel = Kernel {
        number: super::ARG_MAX_F32.number(),
        name: "arg_max_f32",
        row_name: "ARG_MAX_F32",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| arg_max(operation).is_some(),
        prepare: |operation, emit| lowering::emit_call(emit, 1, arg_max(operation)),
        lag: |operation, input, _| arg_max(operation).filter(|_| input == 0).map(|_| 0),
        portable: super::ARG_MAX_F32,
        native: None,
        work: None,
    };

    /// Axes of one kind, from the innermost.
    #[derive(Default)]
    struct Axes {
        sizes: [u32; 4],
        strides: [u32; 4],
        used: usize,
    }

    impl Axes {
        /// Adds the next axis outward, or makes the outermost longer if the axis before was of this kind too.
        fn add(&mut self, size: u32, stride: u32, joins: bool) -> Option<()> {
            if joins {
                let outermost = self.sizes.get_mut(self.used.checked_sub(1)?)?;
                *outermost = outermost.checked_mul(size)?;
            } else {
                *self.sizes.get_mut(self.used)? = size;
                *self.strides.get_mut(self.used)? = stride;
                self.used += 1;
            }
            Some(())
        }

        /// Outermost first, all four.
        fn finish(mut self) -> ([u32; 4], [u32; 4]) {
            self.sizes.iter_mut().skip(self.used).for_each(|size| *size = 1);
            self.sizes.reverse();
            self.strides.reverse();
            (self.sizes, self.strides)
        }
    }

    fn parameters(operation: &Operation<'_>) -> Option<(ReduceParameters, u32)> {
        let Op::Reduce(op) = operation.op else { return None };
        if !lowering::is_sound(operation, DType::F32) {
            return None;
        }
        let shape = &operation.inputs.first()?.ty.shape;
        let (blocks, rows) = blocks::host::cut(&operation.output.ty)?;
        let (mut kept, mut reduced, mut before) = (Axes::default(), Axes::default(), None);
        let mut stride = 1u32;
        for (axis, &size) in shape.dims().iter().enumerate().rev().filter(|(_, size)| **size != 1) {
            let reduces = op.axes >> axis & 1 == 1;
            let axes = if reduces { &mut reduced } else { &mut kept };
            axes.add(size, stride, before == Some(reduces))?;
            before = Some(reduces);
            stride = stride.checked_mul(size)?;
        }
        let kind = match op.kind {
            ReduceKind::Sum => 0,
            ReduceKind::Max => 1,
            ReduceKind::Min => 2,
        };
        let ((kept_sizes, kept_strides), (sizes, strides)) = (kept.finish(), reduced.finish());
        Some((ReduceParameters { blocks, kind, reserved: 0, kept_sizes, kept_strides, sizes, strides }, rows))
    }

    fn arg_max(operation: &Operation<'_>) -> Option<(ArgMaxParameters, u32)> {
        let Op::ArgMax(op) = operation.op else { return None };
        let x = operation.inputs.first().filter(|x| x.ty.dtype == DType::F32)?;
        if !lowering::is_consistent(operation) {
            return None;
        }
        let (blocks, rows) = blocks::host::cut(&operation.output.ty)?;
        let inner = x.ty.shape.dims().get(op.axis as usize + 1..)?.iter().try_fold(1u32, |n, &d| n.checked_mul(d))?;
        Some((ArgMaxParameters { blocks, size: x.ty.shape.dim(op.axis as usize), inner }, rows))
    }
}
