//! int8 softmax by a table of exponentials.
//!
//! A difference from the maximum is one of 256, so that all exponentials are known at plan time: 1 KiB that many elements share.
//!
//! Windows: vectors, the table; then the output vectors. Rows and walk are those of the plain softmax.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::softmax::{SUM_BITS, reciprocal};
use crate::vectors;

/// The parameters of [`SOFTMAX_TABLE_S8`], 12 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SoftmaxTableParameters {
    /// Elements of a vector.
    pub length: u32,
    /// Bytes from one input vector to the next.
    pub input_pitch: u32,
    /// Bytes from one output vector to the next.
    pub output_pitch: u32,
}

/// int8 softmax; the output's scale is 1/256, its zero point -128.
pub const SOFTMAX_TABLE_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(59, 1, 0, check, run) };

/// Differences from a maximum.
const DIFFERENCES: usize = 256;

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<SoftmaxTableParameters>() else { return false };
    let table = call.input(1);
    table.holds(DIFFERENCES, 4)
        && table.ptr.addr() & 3 == 0
        && vectors::fit_both(call, p.length, p.input_pitch, p.output_pitch, 1)
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<SoftmaxTableParameters>() else { return };
    let n = p.length as usize;
    let table = call.input(1).ptr.cast::<u32>().cast_const();
    vectors::for_each(call, p.input_pitch, p.output_pitch, |x: *const i8, y: *mut i8| {
        // SAFETY: `check` proved that the `n` elements of the row lie inside the input.
        let max = unsafe { vectors::max_s8(x, n) };
        let exponential = |i: usize| {
            // SAFETY: the same, and that the table has 256 words.
            unsafe { table.wrapping_add(max.wrapping_sub(x.wrapping_add(i).read() as i32) as u8 as usize).read() }
        };
        let mut sum = 0u32;
        for i in 0..n {
            sum = sum.wrapping_add(exponential(i).wrapping_add(1 << (SUM_BITS - 1)) >> SUM_BITS);
        }
        // Sums of up to 8191 elements do not wrap to 0, so that neither factor is negative: halves are rounded up.
        let (reciprocal, exponent) = reciprocal(sum);
        let half = 1u32.wrapping_shl(exponent) >> 1;
        for i in 0..n {
            let product = (reciprocal as u32 as u64).wrapping_mul(exponential(i) as u64);
            let scaled = (product.wrapping_add(1 << 30) >> 31) as u32;
            let value = scaled.wrapping_add(half).wrapping_shr(exponent).min(255);
            // SAFETY: `check` proved that the row's elements lie inside the output.
            unsafe { y.wrapping_add(i).write((value as i32).wrapping_sub(128) as i8) };
        }
    });
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_ops::OpError;

    use super::*;
    use crate::lowering;
    use crate::softmax::host::{SOFTMAX_S8, parameters_s8};
    use crate::softmax::{SoftmaxS8Parameters, exponential};
    use crate::table::Kernel;

    /// Elements that are worth a table.
    const FEWEST: u64 = 256;
    /// Elements of a vector of which the sum may wrap.
    const MANY: u32 = 8192;

    pub(crate) const SOFTMAX_TABLE_S8: Kernel = Kernel {
        number: super::SOFTMAX_TABLE_S8.number(),
        name: "softmax_table_s8",
        row_name: "SOFTMAX_TABLE_S8",
        applies: |operation| {
            let shape = &operation.output.ty.shape;
            let many = shape.elements().is_some_and(|n| n >= FEWEST);
            many && shape.last() < MANY && (SOFTMAX_S8.applies)(operation)
        },
        prepare: |operation, emit| {
            let (p, rows) = parameters_s8(operation).ok_or(OpError::TooLarge)?;
            emit.input(0);
            emit.constant("exponentials", 4 * DIFFERENCES, &mut |table| {
                for (entry, difference) in table.chunks_exact_mut(4).zip(0i32..) {
                    // What is too small to count adds nothing, and gives 0.
                    entry.copy_from_slice(&exponential(-difference, &p).unwrap_or(0).to_le_bytes());
                }
            });
            let SoftmaxS8Parameters { length, input_pitch, output_pitch, .. } = p;
            lowering::emit_call(emit, 0, Some((SoftmaxTableParameters { length, input_pitch, output_pitch }, rows)))
        },
        portable: super::SOFTMAX_TABLE_S8,
        ..SOFTMAX_S8
    };
}
