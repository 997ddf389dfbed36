//! To int8: from float32, and from int8 of another scale.
//!
//! Windows: input; output. A row is a block of elements; elements ascend, each written after it was read.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::blocks::Blocks;
use crate::{requantize, vectors};

/// The parameters of [`QUANTIZE_F32_S8`], 24 bytes.
#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QuantizeParameters {
    /// Rows.
    pub blocks: Blocks,
    /// Bytes from one row to the next: of the input, of the output.
    pub pitches: [u32; 2],
    /// The output's scale.
    pub scale: f32,
    /// The output's zero point.
    pub zero: i32,
}

/// The parameters of [`REQUANTIZE_S8`], 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RequantizeParameters {
    /// Rows.
    pub blocks: Blocks,
    /// Bytes from one row to the next: of the input, of the output.
    pub pitches: [u32; 2],
    /// The input's zero point.
    pub input_zero: i32,
    /// The output's zero point.
    pub output_zero: i32,
    /// Factor from the input's scale to the output's, as `multiplier / 2^31 * 2^shift`.
    pub multiplier: i32,
    /// See `multiplier`.
    pub shift: i32,
}

/// float32 to int8: halves away from zero, NaN as 0.
pub const QUANTIZE_F32_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(10, 4, 0, check_f32, run_f32) };
/// int8 to int8 of another scale or zero point.
pub const REQUANTIZE_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(11, 1, 0, check_s8, run_s8) };

fn fits(call: &Call<'_>, blocks: &Blocks, pitches: &[u32; 2], size: u32) -> bool {
    let [from, to] = *pitches;
    blocks.fit(call.input(0), call.rows.end, from, size) && blocks.fit(call.output(0), call.rows.end, to, 1)
}

fn check_f32(call: &Call<'_>) -> bool {
    call.parameters::<QuantizeParameters>().is_some_and(|p| fits(call, &p.blocks, &p.pitches, 4))
}

fn check_s8(call: &Call<'_>) -> bool {
    call.parameters::<RequantizeParameters>().is_some_and(|p| fits(call, &p.blocks, &p.pitches, 1))
}

/// Applies `convert` to the elements of the call's rows.
///
/// # Safety
///
/// [`fits`] holds for the windows and a row range that includes the call's; `T` has the size given to it.
#[inline(always)]
unsafe fn for_each<T>(call: &Call<'_>, blocks: &Blocks, pitches: &[u32; 2], convert: impl Fn(T) -> i8) {
    let [from, to] = *pitches;
    for row in call.rows.begin..call.rows.end {
        let mut x = vectors::start(call.input(0), row, from).cast::<T>();
        let mut y = vectors::start(call.output(0), row, to).cast::<i8>();
        for _ in 0..blocks.elements(row) {
            // SAFETY: the caller's promise: the elements of a row lie inside the windows.
            unsafe { y.write(convert(x.read())) };
            x = x.wrapping_add(1);
            y = y.wrapping_add(1);
        }
    }
}

unsafe fn run_f32(call: &Call<'_>) {
    let Some(p) = call.parameters::<QuantizeParameters>() else { return };
    // SAFETY: `check` proved that the rows fit.
    unsafe {
        for_each(call, &p.blocks, &p.pitches, |x: f32| {
            let scaled = x / p.scale;
            // Truncated and saturated; what was cut off is exact wherever it is not 0.
            let whole = scaled as i32;
            let rest = scaled - whole as f32;
            let up = (rest >= 0.5) as i32;
            let down = (rest <= -0.5) as i32;
            whole.saturating_add(up).saturating_sub(down).saturating_add(p.zero).clamp(-128, 127) as i8
        });
    }
}

unsafe fn run_s8(call: &Call<'_>) {
    let Some(p) = call.parameters::<RequantizeParameters>() else { return };
    // SAFETY: `check` proved that the rows fit.
    unsafe {
        for_each(call, &p.blocks, &p.pitches, |x: i8| {
            let centred = (x as i32).wrapping_sub(p.input_zero);
            requantize::narrow(requantize::scale(centred, p.multiplier, p.shift), p.output_zero, -128, 127)
        });
    }
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;
    use kiln_ops::{Op, OpError, Quantize};

    use super::*;
    use crate::table::{Direction, Kernel, Operand, Operation};
    use crate::{blocks, lowering};

    pub(crate) const QUANTIZE_F32_S8: Kernel = Kernel {
        number: super::QUANTIZE_F32_S8.number(),
        name: "quantize_f32_s8",
        row_name: "QUANTIZE_F32_S8",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| quantized(operation, DType::F32).is_some(),
        prepare: |operation, emit| {
            let (_, blocks, rows) = quantized(operation, DType::F32).ok_or(OpError::TooLarge)?;
            let input_pitch = blocks.row_length.checked_mul(4).ok_or(OpError::TooLarge)?;
            let y = &operation.output.quant;
            let pitches = [input_pitch, blocks.row_length];
            let parameters = QuantizeParameters { blocks, pitches, scale: y.scale(0), zero: y.zero_point(0) };
            lowering::emit_call(emit, 1, Some((parameters, rows)))
        },
        // Output bytes never pass the input's, which are four times as many.
        lag: |operation, input, _| quantized(operation, DType::F32).filter(|_| input == 0).map(|_| 0),
        portable: super::QUANTIZE_F32_S8,
        native: None,
        work: None,
    };

    pub(crate) const REQUANTIZE_S8: Kernel = Kernel {
        number: super::REQUANTIZE_S8.number(),
        name: "requantize_s8",
        row_name: "REQUANTIZE_S8",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| quantized(operation, DType::I8).is_some_and(|(x, _, _)| lowering::per_tensor(&x.quant)),
        prepare: |operation, emit| {
            let (x, blocks, rows) = quantized(operation, DType::I8).ok_or(OpError::TooLarge)?;
            let y = &operation.output.quant;
            let (multiplier, shift) = Quantize::multiplier(x.quant.scale(0), y.scale(0));
            let parameters = RequantizeParameters {
                blocks,
                pitches: [blocks.row_length; 2],
                input_zero: x.quant.zero_point(0),
                output_zero: y.zero_point(0),
                multiplier,
                shift,
            };
            lowering::emit_call(emit, 1, Some((parameters, rows)))
        },
        lag: |operation, input, _| quantized(operation, DType::I8).filter(|_| input == 0).map(|_| 0),
        portable: super::REQUANTIZE_S8,
        native: None,
        work: None,
    };

    /// The input, which is `dtype`, the blocks and the number of rows.
    fn quantized<'a>(operation: &Operation<'a>, dtype: DType) -> Option<(Operand<'a>, Blocks, u32)> {
        let Op::Quantize(_) = operation.op else { return None };
        let [x] = operation.inputs else { return None };
        let ty = operation.output.ty;
        let sound = x.ty.dtype == dtype && operation.op.output(&[x.ty]) == Ok(ty);
        if !sound || !lowering::per_tensor(&operation.output.quant) {
            return None;
        }
        let (blocks, rows) = blocks::host::cut(&ty)?;
        Some((*x, blocks, rows))
    }
}
