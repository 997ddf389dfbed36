//! From int8 to float32.
//!
//! Windows: input; output. A row is a block of elements; elements ascend, or descend walking down, each written
//! after it was read.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::blocks::Blocks;
use crate::vectors;

/// The parameters of [`DEQUANTIZE_S8_F32`], 24 bytes.
#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DequantizeParameters {
    /// Rows.
    pub blocks: Blocks,
    /// Bytes from one row to the next: of the input, of the output.
    pub pitches: [u32; 2],
    /// The input's scale.
    pub scale: f32,
    /// The input's zero point.
    pub zero: i32,
}

/// int8 to float32.
pub const DEQUANTIZE_S8_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(12, 4, 0, check, run) };

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<DequantizeParameters>() else { return false };
    let [from, to] = p.pitches;
    p.blocks.fit(call.input(0), call.rows.end, from, 1) && p.blocks.fit(call.output(0), call.rows.end, to, 4)
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<DequantizeParameters>() else { return };
    let [from, to] = p.pitches;
    let rows = call.rows.end.saturating_sub(call.rows.begin) as usize;
    for i in 0..rows {
        let row = call.rows.begin.wrapping_add(call.direction.pick(i, rows) as u32);
        let x = vectors::start(call.input(0), row, from).cast::<i8>();
        let y = vectors::start(call.output(0), row, to).cast::<f32>();
        let n = p.blocks.elements(row) as usize;
        for j in 0..n {
            let at = call.direction.pick(j, n);
            // SAFETY: `check` proved that the row's elements lie inside both windows.
            unsafe {
                let centred = (x.wrapping_add(at).read() as i32).wrapping_sub(p.zero);
                y.wrapping_add(at).write(p.scale * centred as f32);
            }
        }
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;
    use kiln_ops::{Op, OpError};

    use super::*;
    use crate::table::{Direction, Kernel, Operand, Operation};
    use crate::{blocks, lowering};

    pub(crate) const DEQUANTIZE_S8_F32: Kernel = Kernel {
        number: super::DEQUANTIZE_S8_F32.number(),
        name: "dequantize_s8_f32",
        row_name: "DEQUANTIZE_S8_F32",
        targets: &[],
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| quantized(operation).is_some(),
        prepare: |operation, emit| {
            let (x, blocks, rows) = quantized(operation).ok_or(OpError::TooLarge)?;
            let output_pitch = blocks.row_length.checked_mul(4).ok_or(OpError::TooLarge)?;
            let pitches = [blocks.row_length, output_pitch];
            let (scale, zero) = (x.quant.scale(0), x.quant.zero_point(0));
            lowering::emit_call(emit, 1, Some((DequantizeParameters { blocks, pitches, scale, zero }, rows)))
        },
        // When the last output but one of n is written, which ends at 4 (n - 1), input byte n - 1 is to be read.
        lag: |operation, input, _| {
            let (_, blocks, _) = quantized(operation).filter(|_| input == 0)?;
            Some(3 * u64::from(blocks.length - 1))
        },
        portable: super::DEQUANTIZE_S8_F32,
        native: None,
        work: None,
    };

    /// The input, the blocks and the number of rows.
    fn quantized<'a>(operation: &Operation<'a>) -> Option<(Operand<'a>, Blocks, u32)> {
        let Op::Dequantize(_) = operation.op else { return None };
        let [x] = operation.inputs else { return None };
        let ty = operation.output.ty;
        let sound = x.ty.dtype == DType::I8 && operation.op.output(&[x.ty]) == Ok(ty);
        if !sound || !lowering::per_tensor(&x.quant) {
            return None;
        }
        let (blocks, rows) = blocks::host::cut(&ty)?;
        Some((*x, blocks, rows))
    }
}
