//! Matrix products and fully connected layers of CPUs with wide vectors ([`crate::product`]).
//!
//! Windows, parameters and rows are those of the plain kernels, and scratch. The output overlaps no input.

use kiln_core::{Call, Row};

use crate::fully_connected::{self, FullyConnectedParameters};
use crate::matmul::{self, MatMulParameters};
use crate::product::{Finish, Matrix, Pitched, Product, multiply, scratch_bytes};
use crate::vector::{Plain, Vector};

/// float32 product.
pub const MATMUL_BLOCKED_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(96, 4, 0, check, run::<Plain>) };
/// float32 fully connected layer.
pub const FULLY_CONNECTED_BLOCKED_F32: Row =
    // SAFETY: `check_connected` proves that `run_connected` stays inside the windows.
    unsafe { Row::new(97, 4, 0, check_connected, run_connected::<Plain>) };

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<MatMulParameters>() else { return false };
    matmul::check(call) && scratch_bytes(p.n as usize, p.k as usize) <= call.scratch(0).len
}

#[inline(always)]
unsafe fn run<V: Vector>(call: &Call<'_>) {
    let Some(p) = call.parameters::<MatMulParameters>() else { return };
    let [m, n, k] = [p.m, p.n, p.k].map(|size| size as usize);
    let end = call.rows.end as usize;
    let mut row = call.rows.begin as usize;
    while row < end {
        // The rows of the call that belong to one product.
        let batch = row.checked_div(m).unwrap_or(0);
        let first = batch.wrapping_mul(m);
        let last = first.wrapping_add(m).min(end);
        let start = |window: kiln_core::Window, elements: usize| {
            window.ptr.cast::<f32>().wrapping_add(batch.wrapping_mul(elements))
        };
        let left = start(call.input(0), m.wrapping_mul(k));
        let product = Product {
            // Transposed, it lies across.
            left: if p.transpose_a != 0 { Matrix::dense(left, k, m, false) } else { Matrix::dense(left, m, k, false) },
            right: Matrix::dense(start(call.input(1), k.wrapping_mul(n)), k, n, p.transpose_b != 0),
            output: Pitched { start: start(call.output(0), m.wrapping_mul(n)), pitch: n },
            columns: n,
            depth: k,
            finish: Finish::NONE,
        };
        let rows = (row.wrapping_sub(first), last.wrapping_sub(first));
        // SAFETY: `check` proved that all batches of all matrices lie inside their windows, and that scratch is
        // large enough.
        unsafe {
            if p.transpose_a != 0 {
                multiply::<V, true, _, _, _>(&product, rows, call.scratch(0));
            } else {
                multiply::<V, false, _, _, _>(&product, rows, call.scratch(0));
            }
        }
        row = last;
    }
}

fn check_connected(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<FullyConnectedParameters>() else { return false };
    // A sum of nothing would not be written.
    p.inputs != 0
        && fully_connected::check::<crate::arithmetic::F32>(call)
        && scratch_bytes(p.outputs as usize, p.inputs as usize) <= call.scratch(0).len
}

#[inline(always)]
unsafe fn run_connected<V: Vector>(call: &Call<'_>) {
    let Some(p) = call.parameters::<FullyConnectedParameters>() else { return };
    let (inputs, outputs) = (p.inputs as usize, p.outputs as usize);
    let start = |i: usize| call.input(i).ptr.cast::<f32>().cast_const();
    let product = Product {
        left: Matrix { start: start(0), down: (p.input_pitch / 4) as usize, right: 1 },
        right: Matrix::dense(start(1), inputs, outputs, true),
        output: Pitched { start: call.output(0).ptr.cast(), pitch: (p.output_pitch / 4) as usize },
        columns: outputs,
        depth: inputs,
        finish: Finish::of(&p.epilogue, start(2)),
    };
    // SAFETY: `check_connected` proved that the vectors, the weights, the bias where there is one, and scratch have
    // these elements.
    unsafe {
        multiply::<V, false, _, _, _>(&product, (call.rows.begin as usize, call.rows.end as usize), call.scratch(0))
    };
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::TargetId;

    use super::*;
    use crate::table::{Direction, Kernel};
    use crate::vector::native;

    pub(crate) const MATMUL_BLOCKED_F32: Kernel = Kernel {
        number: super::MATMUL_BLOCKED_F32.number(),
        name: "matmul_blocked_f32",
        row_name: "MATMUL_BLOCKED_F32",
        targets: &[TargetId::X86_64_V3],
        directions: &[Direction::Up],
        applies: |operation| matmul::host::parameters(operation).is_some(),
        prepare: |operation, emit| {
            let (p, _) = matmul::host::parameters(operation).ok_or(kiln_ops::OpError::TooLarge)?;
            emit.scratch(scratch_bytes(p.n as usize, p.k as usize) as u64);
            (matmul::host::MATMUL_F32.prepare)(operation, emit)
        },
        lag: |_, _, _| None,
        portable: super::MATMUL_BLOCKED_F32,
        native: native!(super::MATMUL_BLOCKED_F32, check, run),
        work: None,
    };

    pub(crate) const FULLY_CONNECTED_BLOCKED_F32: Kernel = Kernel {
        number: super::FULLY_CONNECTED_BLOCKED_F32.number(),
        name: "fully_connected_blocked_f32",
        row_name: "FULLY_CONNECTED_BLOCKED_F32",
        targets: &[TargetId::X86_64_V3],
        directions: &[Direction::Up],
        applies: |operation| fully_connected::host::float(operation).is_some(),
        prepare: |operation, emit| {
            let p = fully_connected::host::float(operation).ok_or(kiln_ops::OpError::TooLarge)?;
            emit.scratch(scratch_bytes(p.outputs as usize, p.inputs as usize) as u64);
            (fully_connected::host::FULLY_CONNECTED_F32.prepare)(operation, emit)
        },
        lag: |_, _, _| None,
        portable: super::FULLY_CONNECTED_BLOCKED_F32,
        native: native!(super::FULLY_CONNECTED_BLOCKED_F32, check_connected, run_connected),
        work: None,
    };
}
