//! Element-by-element sum.
//!
//! Windows: a, b; then the sum. A row is a block of elements; elements ascend, each written after both of
//! its operands were read.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::arithmetic::clamp;
use crate::blocks::Blocks;
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

fn fits(call: &Call<'_>, blocks: &Blocks, pitches: &[u32; 3], size: u32) -> bool {
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
unsafe fn for_each<T>(call: &Call<'_>, blocks: &Blocks, pitches: &[u32; 3], sum: impl Fn(T, T) -> T) {
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

#[inline(never)]
fn scaled(x: i8, scaling: &Scaling) -> i32 {
    let shifted = (x as i32).wrapping_sub(scaling.zero).wrapping_shl(20);
    requantize::scale(shifted, scaling.multiplier, scaling.shift)
}

unsafe fn run_s8(call: &Call<'_>) {
    let Some(p) = call.parameters::<AddS8Parameters>() else { return };
    // SAFETY: `check` proved that the rows fit.
    unsafe {
        for_each(call, &p.blocks, &p.pitches, |a: i8, b: i8| {
            let sum = scaled(a, &p.a).wrapping_add(scaled(b, &p.b));
            requantize::narrow(requantize::scale(sum, p.y.multiplier, p.y.shift), p.y.zero, p.low, p.high)
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
    use kiln_ops::{Add, Op, OpError};

    use super::*;
    use crate::table::{Direction, Emit, Kernel, Operand, Operation};
    use crate::{blocks, lowering};

    const _: () = assert!(ADD_LEFT_SHIFT == 20);

    pub(crate) const ADD_S8: Kernel = Kernel {
        number: super::ADD_S8.number(),
        name: "add_s8",
        row_name: "ADD_S8",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| {
            let all = operation.inputs.iter().chain([&operation.output]);
            cut(operation, DType::I8).is_some() && all.clone().all(|o| lowering::per_tensor(&o.quant))
        },
        prepare: prepare_s8,
        lag: |operation, input, _| lag(operation, DType::I8, input),
        portable: super::ADD_S8,
        native: None,
    };

    pub(crate) const ADD_F32: Kernel = Kernel {
        number: super::ADD_F32.number(),
        name: "add_f32",
        row_name: "ADD_F32",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| cut(operation, DType::F32).is_some(),
        prepare: prepare_f32,
        lag: |operation, input, _| lag(operation, DType::F32, input),
        portable: super::ADD_F32,
        native: None,
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

    fn emit_all(emit: &mut dyn Emit, parameters: &[u8], rows: u32) {
        emit.input(0);
        emit.input(1);
        emit.parameters(parameters);
        emit.rows(rows);
    }

    fn prepare_s8(operation: &Operation<'_>, emit: &mut dyn Emit) -> Result<(), OpError> {
        let (op, blocks, pitch, rows) = cut(operation, DType::I8).ok_or(OpError::TooLarge)?;
        let [a, b] = operation.inputs else { return Err(OpError::Inputs(2, 2, operation.inputs.len())) };
        let y = &operation.output;
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
        emit_all(emit, parameters.as_bytes(), rows);
        Ok(())
    }

    fn prepare_f32(operation: &Operation<'_>, emit: &mut dyn Emit) -> Result<(), OpError> {
        let (op, blocks, pitch, rows) = cut(operation, DType::F32).ok_or(OpError::TooLarge)?;
        let (low, high) = op.activation.bounds();
        let parameters = AddF32Parameters { blocks, pitches: [pitch; 3], low, high };
        emit_all(emit, parameters.as_bytes(), rows);
        Ok(())
    }

    /// Each element is read just before it is written.
    fn lag(operation: &Operation<'_>, dtype: DType, input: usize) -> Option<u64> {
        cut(operation, dtype).filter(|_| input < 2).map(|_| 0)
    }
}
