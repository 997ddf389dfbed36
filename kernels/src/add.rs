//! Element-by-element sum.
//!
//! Windows: a, b; then the sum. A row is a block of elements; elements ascend, each written after both of
//! its operands were read.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::arithmetic::clamp;
use crate::blocks::Blocks;
use crate::dsp::smmlar;
use crate::{requantize, vectors};

/// Zero point and factor of one tensor of a sum, 12 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Scaling {
    /// Zero point.
    pub zero: i32,
    /// Factor as `multiplier / 2^31 * 2^shift`.
    pub multiplier: i32,
    /// See `multiplier`.
    pub shift: i32,
}

/// The parameters of [`ADD_S8`], 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AddS8Parameters {
    /// Rows.
    pub blocks: Blocks,
    /// Bytes from one row to the next: of a, of b, of the sum.
    pub pitches: [u32; 3],
    /// Of a, whose values are shifted left by 20 before they are scaled.
    pub a: Scaling,
    /// Of b, likewise.
    pub b: Scaling,
    /// Of the sum.
    pub y: Scaling,
    /// The smallest output.
    pub low: i32,
    /// The largest output.
    pub high: i32,
}

/// The parameters of [`ADD_F32`], 28 bytes.
#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AddF32Parameters {
    /// Rows.
    pub blocks: Blocks,
    /// Bytes from one row to the next: of a, of b, of the sum.
    pub pitches: [u32; 3],
    /// The smallest output.
    pub low: f32,
    /// The largest output.
    pub high: f32,
}

/// int8 sum.
pub const ADD_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(6, 1, 0, check_s8, run_s8) };
/// float32 sum.
pub const ADD_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(37, 4, 0, check_f32, run_f32) };

pub(crate) fn fits(call: &Call<'_>, blocks: &Blocks, pitches: &[u32; 3], size: u32) -> bool {
    let [a, b, y] = *pitches;
    let rows = call.rows.end;
    blocks.fit(call.input(0), rows, a, size)
        && blocks.fit(call.input(1), rows, b, size)
        && blocks.fit(call.output(0), rows, y, size)
}

fn check_s8(call: &Call<'_>) -> bool {
    call.parameters::<AddS8Parameters>().is_some_and(|p| fits(call, &p.blocks, &p.pitches, 1))
}

fn check_f32(call: &Call<'_>) -> bool {
    call.parameters::<AddF32Parameters>().is_some_and(|p| fits(call, &p.blocks, &p.pitches, 4))
}

/// Applies `sum` to the elements of the call's rows.
///
/// # Safety
///
/// [`fits`] holds for the windows and a row range that includes the call's; `T` has the size given to it.
#[inline(always)]
pub(crate) unsafe fn for_each<T>(call: &Call<'_>, blocks: &Blocks, pitches: &[u32; 3], sum: impl Fn(T, T) -> T) {
    let [pitch_a, pitch_b, pitch_y] = *pitches;
    for row in call.rows.begin..call.rows.end {
        let mut a = vectors::start(call.input(0), row, pitch_a).cast::<T>();
        let mut b = vectors::start(call.input(1), row, pitch_b).cast::<T>();
        let mut y = vectors::start(call.output(0), row, pitch_y).cast::<T>();
        for _ in 0..blocks.elements(row) {
            // SAFETY: the caller's promise: the elements of a row lie inside the windows.
            unsafe { y.write(sum(a.read(), b.read())) };
            a = a.wrapping_add(1);
            b = b.wrapping_add(1);
            y = y.wrapping_add(1);
        }
    }
}

/// A factor as it is applied to each element: [`requantize::scale`] with what depends on the factor alone done before.
#[derive(Clone, Copy)]
struct Factor {
    /// Twice the multiplier, less 2^32: `x * 2 m / 2^32` is `x + x * (2 m - 2^32) / 2^32`.
    multiplier: i32,
    right: u32,
    /// Half of what is divided by.
    half: i32,
    /// All ones where there is a division, which rounds half away from zero.
    divides: i32,
}

impl Factor {
    fn new(scaling: &Scaling) -> Factor {
        let right = scaling.shift.min(0).unsigned_abs() & 31;
        let half = (1u32.wrapping_shl(right) >> 1) as i32;
        let divides = if right > 0 { -1 } else { 0 };
        Factor { multiplier: scaling.multiplier.wrapping_shl(1), right, half, divides }
    }

    #[inline(always)]
    fn of(&self, x: i32) -> i32 {
        let scaled = smmlar(x, self.multiplier, x);
        let toward = scaled.wrapping_shr(31) & self.divides;
        scaled.wrapping_add(toward).wrapping_add(self.half).wrapping_shr(self.right)
    }
}

/// One operand's part of a sum, `x * step + zero` before it is scaled. A factor too small to matter, whose multiplier
/// is 0, makes both 0.
#[derive(Clone, Copy)]
struct Part {
    step: i32,
    zero: i32,
    factor: Factor,
}

impl Part {
    fn new(scaling: &Scaling) -> Part {
        let left = (scaling.shift.max(0) as u32).wrapping_add(20);
        let step = if scaling.multiplier == 0 { 0 } else { 1i32.wrapping_shl(left) };
        Part { step, zero: scaling.zero.wrapping_neg().wrapping_mul(step), factor: Factor::new(scaling) }
    }

    #[inline(always)]
    fn of(&self, x: i8) -> i32 {
        self.factor.of((x as i32).wrapping_mul(self.step).wrapping_add(self.zero))
    }
}

unsafe fn run_s8(call: &Call<'_>) {
    let Some(p) = call.parameters::<AddS8Parameters>() else { return };
    let (a_part, b_part, whole) = (Part::new(&p.a), Part::new(&p.b), Factor::new(&p.y));
    // A sum of no scale is 0; one that is shifted left is shifted before it is scaled.
    let left = p.y.shift.max(0) as u32;
    let kept = if p.y.multiplier == 0 { 0 } else { -1 };
    // SAFETY: `check` proved that the rows fit.
    unsafe {
        for_each(call, &p.blocks, &p.pitches, |a: i8, b: i8| {
            let sum = a_part.of(a).wrapping_add(b_part.of(b)).wrapping_shl(left) & kept;
            requantize::narrow(whole.of(sum), p.y.zero, p.low, p.high)
        });
    }
}

unsafe fn run_f32(call: &Call<'_>) {
    let Some(p) = call.parameters::<AddF32Parameters>() else { return };
    // SAFETY: `check` proved that the rows fit.
    unsafe { for_each(call, &p.blocks, &p.pitches, |a: f32, b: f32| clamp(a + b, p.low, p.high)) };
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{DType, fixed};
    use kiln_ops::elementwise::{ADD_LEFT_SHIFT, add_multipliers};
    use kiln_ops::{Add, Op};

    use super::*;
    use crate::table::{Direction, Kernel, Operand, Operation};
    use crate::{blocks, lowering};

    const _: () = assert!(ADD_LEFT_SHIFT == 20);

    pub(crate) const ADD_S8: Kernel = Kernel {
        number: super::ADD_S8.number(),
        name: "add_s8",
        row_name: "ADD_S8",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| parameters_s8(operation).is_some(),
        prepare: |operation, emit| lowering::emit_call(emit, 2, parameters_s8(operation)),
        lag: |operation, input, _| lag(operation, DType::I8, input),
        portable: super::ADD_S8,
        native: None,
        work: None,
    };

    pub(crate) const ADD_F32: Kernel = Kernel {
        number: super::ADD_F32.number(),
        name: "add_f32",
        row_name: "ADD_F32",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| cut(operation, DType::F32).is_some(),
        prepare: |operation, emit| lowering::emit_call(emit, 2, parameters_f32(operation)),
        lag: |operation, input, _| lag(operation, DType::F32, input),
        portable: super::ADD_F32,
        native: None,
        work: None,
    };

    /// The sum, its blocks, their pitch and their number.
    fn cut(operation: &Operation<'_>, dtype: DType) -> Option<(Add, Blocks, u32, u32)> {
        let Op::Add(op) = operation.op else { return None };
        if !lowering::is_sound(operation, dtype) {
            return None;
        }
        let (blocks, rows) = blocks::host::cut(&operation.output.ty)?;
        Some((op, blocks, blocks.row_length.checked_mul(dtype.bits() / 8)?, rows))
    }

    /// The parameters of an int8 sum and its rows, if it is one with one scale a tensor.
    pub(crate) fn parameters_s8(operation: &Operation<'_>) -> Option<(AddS8Parameters, u32)> {
        let (op, blocks, pitch, rows) = cut(operation, DType::I8)?;
        let ([a, b], y) = (operation.inputs, &operation.output) else { return None };
        if ![a, b, y].into_iter().all(|o| lowering::per_tensor(&o.quant)) {
            return None;
        }
        let factors = add_multipliers(a.quant.scale(0), b.quant.scale(0), y.quant.scale(0));
        let scaling = |operand: &Operand<'_>, factor: f64| {
            let (multiplier, shift) = fixed::quantize_multiplier(factor);
            Scaling { zero: operand.quant.zero_point(0), multiplier, shift }
        };
        let bounds = lowering::epilogue(op.activation, &a.quant, y);
        let parameters = AddS8Parameters {
            blocks,
            pitches: [pitch; 3],
            a: scaling(a, factors[0]),
            b: scaling(b, factors[1]),
            y: scaling(y, factors[2]),
            low: bounds.low,
            high: bounds.high,
        };
        Some((parameters, rows))
    }

    fn parameters_f32(operation: &Operation<'_>) -> Option<(AddF32Parameters, u32)> {
        let (op, blocks, pitch, rows) = cut(operation, DType::F32)?;
        let (low, high) = op.activation.bounds();
        Some((AddF32Parameters { blocks, pitches: [pitch; 3], low, high }, rows))
    }

    /// Each element is read just before it is written.
    fn lag(operation: &Operation<'_>, dtype: DType, input: usize) -> Option<u64> {
        cut(operation, dtype).filter(|_| input < 2).map(|_| 0)
    }
}
