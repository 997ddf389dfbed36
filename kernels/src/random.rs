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
    #[cfg(target_arch = "x86_64")]
    use kiln_ops::{PHILOX_ROUNDS, philox_key, philox_round};

    use super::*;
    use crate::table::{Direction, Kernel, Operation};
    use crate::vector::native;
    use crate::{blocks, lowering};

    /// Blocks of four numbers that are made together.
    #[cfg(target_arch = "x86_64")]
    const TOGETHER: usize = 16;

    /// Uniform numbers, many blocks side by side: the loop over them becomes vector code. Normal ones as they are.
    ///
    /// # Safety
    ///
    /// As for the row's `run`; the CPU has these vectors.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn uniform<V: crate::vector::Vector>(call: &Call<'_>) {
        let Some(p) = call.parameters::<RandomParameters>() else { return };
        if p.distribution != 0 {
            // SAFETY: the caller's promise.
            return unsafe { run(call) };
        }
        // SAFETY: `check` proved that the key lies inside the input.
        let [low, high, stream, counter] = unsafe { call.input(0).ptr.cast::<[u32; 4]>().read() };
        let row = p.blocks.row_length as usize;
        let end = (call.rows.end as usize).saturating_mul(row).min(p.blocks.length as usize);
        let mut first = (call.rows.begin as usize).wrapping_mul(row);
        let mut made = [[0f32; 4]; TOGETHER];
        while first < end {
            let block = (first / 4) as u32;
            // The words of the blocks, side by side.
            let mut a = [0u32; TOGETHER];
            a.iter_mut().enumerate().for_each(|(i, a)| *a = block.wrapping_add(i as u32));
            let (mut b, mut c, mut d) = ([0u32; TOGETHER], [stream; TOGETHER], [counter; TOGETHER]);
            let mut key = [low, high];
            for _ in 0..PHILOX_ROUNDS {
                for i in 0..TOGETHER {
                    [a[i], b[i], c[i], d[i]] = philox_round([a[i], b[i], c[i], d[i]], key);
                }
                key = philox_key(key);
            }
            for (i, made) in made.iter_mut().enumerate() {
                *made = numbers([a[i], b[i], c[i], d[i]], Distribution::Uniform);
            }
            // Rows need not begin where a block of four does.
            let skipped = first % 4;
            let n = (4 * TOGETHER).wrapping_sub(skipped).min(end.wrapping_sub(first));
            // SAFETY: `check` proved that the rows' elements lie inside the output; `n` numbers were made from
            // `skipped` on.
            unsafe {
                let from = made.as_ptr().cast::<f32>().wrapping_add(skipped);
                crate::product::copy::<V>(from, call.output(0).ptr.cast::<f32>().wrapping_add(first), n);
            }
            first = first.wrapping_add(n);
        }
    }

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
        native: native!(super::RANDOM_F32, check, uniform, run),
        work: None,
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
