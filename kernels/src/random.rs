//! Random numbers from a counter.
//!
//! Windows: the key, four int32; output. A row is a block of elements. Every element depends on the key and its
//! own place only.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};
use kiln_ops::{Distribution, numbers, philox};

use crate::blocks::Blocks;

/// The parameters of [`RANDOM_F32`], 12 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RandomParameters {
    /// Rows.
    pub blocks: Blocks,
    /// 0 for uniform, 1 for normal numbers.
    pub distribution: u32,
}

/// float32, uniform or normal.
pub const RANDOM_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(50, 4, 0, check, run) };

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<RandomParameters>() else { return false };
    let Some(pitch) = p.blocks.row_length.checked_mul(4) else { return false };
    p.distribution <= 1 && call.input(0).holds(4, 4) && p.blocks.fit(call.output(0), call.rows.end, pitch, 4)
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<RandomParameters>() else { return };
    let distribution = if p.distribution == 0 { Distribution::Uniform } else { Distribution::Normal };
    // SAFETY: `check` proved that the key lies inside the input.
    let [low, high, stream, counter] = unsafe { call.input(0).ptr.cast::<[u32; 4]>().read() };
    let row = p.blocks.row_length as usize;
    let end = (call.rows.end as usize).saturating_mul(row).min(p.blocks.length as usize);
    let mut first = (call.rows.begin as usize).wrapping_mul(row);
    while first < end {
        // Rows need not begin where a block of four does. Positions have 32 bits.
        let block = philox([(first / 4) as u32, 0, stream, counter], [low, high]);
        for value in numbers(block, distribution).into_iter().skip(first % 4) {
            if first < end {
                // SAFETY: `check` proved that the rows' elements lie inside the output.
                unsafe { call.output(0).ptr.cast::<f32>().wrapping_add(first).write(value) };
                first = first.wrapping_add(1);
            }
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

    pub(crate) const RANDOM_F32: Kernel = Kernel {
        number: super::RANDOM_F32.number(),
        name: "random_f32",
        row_name: "RANDOM_F32",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| parameters(operation).is_some(),
        prepare: |operation, emit| lowering::emit_call(emit, 1, parameters(operation)),
        // Every row reads the key.
        lag: |_, _, _| None,
        portable: super::RANDOM_F32,
        native: None,
    };

    fn parameters(operation: &Operation<'_>) -> Option<(RandomParameters, u32)> {
        let Op::Random(op) = operation.op else { return None };
        if !lowering::is_consistent(operation) {
            return None;
        }
        let (blocks, rows) = blocks::host::cut(&operation.output.ty)?;
        let distribution = u32::from(op.distribution == Distribution::Normal);
        Some((RandomParameters { blocks, distribution }, rows))
    }
}
