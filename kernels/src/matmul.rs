//! Matrix products.
//!
//! Windows: a, b; then the product. A row is one row of an output matrix. Each output element is summed in the
//! order of the inner dimension, from 0, without fused multiply-adds, whatever rows a call computes.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

/// The parameters of [`MATMUL_F32`], 24 bytes: output `[batch, m, n]`, and how the inputs lie in elements.
/// Neither matrix has gaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MatMulParameters {
    /// How many products.
    pub batch: u32,
    /// Rows of the output.
    pub m: u32,
    /// Columns of the output.
    pub n: u32,
    /// Elements summed for each.
    pub k: u32,
    /// Not 0 where the first input lies as `[k, m]`.
    pub transpose_a: u32,
    /// Not 0 where the second input lies as `[n, k]`.
    pub transpose_b: u32,
}

/// float32 product.
pub const MATMUL_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(45, 4, 0, check, run) };

/// Rows and columns of a tile, whose sums are kept in registers.
const TILE: (usize, usize) = (4, 8);
/// How much of the inner dimension of a column of tiles is packed at a time. Only speed and stack depend on it.
const DEPTH: usize = if cfg!(target_pointer_width = "64") { 256 } else { 16 };

/// A column of tiles of `b`, packed.
type Panel = [[f32; TILE.1]; DEPTH];

pub(crate) fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<MatMulParameters>() else { return false };
    let holds = |window: kiln_core::Window, rows: u32, columns: u32| {
        let matrix = rows as u64 * columns as u64;
        matrix.saturating_mul(p.batch as u64).saturating_mul(4) <= window.len as u64
    };
    p.batch != 0
        && p.m != 0
        && p.n != 0
        && p.k != 0
        && (call.rows.end as u64) <= p.batch as u64 * p.m as u64
        && holds(call.input(0), p.m, p.k)
        && holds(call.input(1), p.k, p.n)
        && holds(call.output(0), p.m, p.n)
}

/// A matrix in memory: strides in elements from row to row and from column to column.
#[derive(Clone, Copy)]
struct Matrix {
    start: *const f32,
    down: usize,
    right: usize,
}

impl Matrix {
    fn at(&self, row: usize, column: usize) -> *const f32 {
        self.start.wrapping_add(row.wrapping_mul(self.down)).wrapping_add(column.wrapping_mul(self.right))
    }
}

/// Copies `depth` rows and `columns` columns of `b` from its first element on; columns that are missing become 0.
///
/// # Safety
///
/// These elements can be read.
#[inline(never)]
unsafe fn pack(panel: &mut Panel, b: Matrix, depth: usize, columns: usize) {
    for (row, to) in panel.iter_mut().enumerate().take(depth) {
        for (column, to) in to.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *to = if column < columns { unsafe { b.at(row, column).read() } } else { 0.0 };
        }
    }
}

/// Adds to `ROWS` rows of a tile the products of `a` and the panel. A tile is read (but where `fresh`) and
/// written in memory, `columns` of each row.
///
/// # Safety
///
/// `ROWS` rows and `depth` columns can be read from `a` on; `columns` elements of `ROWS` rows, `down` elements apart,
/// can be read and written from `y` on.
#[inline(always)]
unsafe fn tile<const ROWS: usize>(
    panel: &Panel,
    a: Matrix,
    depth: usize,
    y: *mut f32,
    down: usize,
    columns: usize,
    fresh: bool,
) {
    let mut sums = [[0f32; TILE.1]; ROWS];
    let place = |row: usize, column: usize| y.wrapping_add(row.wrapping_mul(down)).wrapping_add(column);
    if !fresh {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (column, sum) in sums.iter_mut().enumerate().take(columns) {
                // SAFETY: the caller's promise.
                *sum = unsafe { place(row, column).read() };
            }
        }
    }
    let mut along = a.start;
    for b in panel.iter().take(depth) {
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let a = unsafe { along.wrapping_add(row.wrapping_mul(a.down)).read() };
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum += a * b;
            }
        }
        along = along.wrapping_add(a.right);
    }
    for (row, sums) in sums.iter().enumerate() {
        for (column, sum) in sums.iter().enumerate().take(columns) {
            // SAFETY: the caller's promise.
            unsafe { place(row, column).write(*sum) };
        }
    }
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<MatMulParameters>() else { return };
    let [m, n, k] = [p.m, p.n, p.k].map(|size| size as usize);
    let matrix = |window: kiln_core::Window, batch: usize, rows: usize, columns: usize, transposed: bool| {
        let start = window.ptr.cast::<f32>().cast_const().wrapping_add(batch.wrapping_mul(rows).wrapping_mul(columns));
        let (down, right) = if transposed { (1, rows) } else { (columns, 1) };
        Matrix { start, down, right }
    };
    let mut panel: Panel = [[0.0; TILE.1]; DEPTH];
    let end = call.rows.end as usize;
    let mut row = call.rows.begin as usize;
    while row < end {
        // The rows of the call that belong to one product.
        let batch = row.checked_div(m).unwrap_or(0);
        let i = row.wrapping_sub(batch.wrapping_mul(m));
        let rows = m.wrapping_sub(i).min(end.wrapping_sub(row));
        let a = matrix(call.input(0), batch, m, k, p.transpose_a != 0);
        let b = matrix(call.input(1), batch, k, n, p.transpose_b != 0);
        let y = call.output(0).ptr.cast::<f32>().wrapping_add(row.wrapping_mul(n));
        let mut column = 0usize;
        while column < n {
            let columns = TILE.1.min(n.wrapping_sub(column));
            let mut done = 0usize;
            while done < k {
                let depth = DEPTH.min(k.wrapping_sub(done));
                // SAFETY: `check` proved that all three batches of matrices lie inside their windows; rows, columns
                // and depth are those that these have.
                unsafe {
                    pack(&mut panel, Matrix { start: b.at(done, column), ..b }, depth, columns);
                    let mut r = 0usize;
                    while r < rows {
                        let a = Matrix { start: a.at(i.wrapping_add(r), done), ..a };
                        let y = y.wrapping_add(r.wrapping_mul(n)).wrapping_add(column);
                        let left = rows.wrapping_sub(r);
                        if left >= TILE.0 {
                            tile::<{ TILE.0 }>(&panel, a, depth, y, n, columns, done == 0);
                            r = r.wrapping_add(TILE.0);
                        } else {
                            tile::<1>(&panel, a, depth, y, n, columns, done == 0);
                            r = r.wrapping_add(1);
                        }
                    }
                }
                done = done.wrapping_add(depth);
            }
            column = column.wrapping_add(columns);
        }
        row = row.wrapping_add(rows);
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;
    use kiln_ops::Op;

    use super::*;
    use crate::lowering;
    use crate::table::{Direction, Kernel, Operation};

    pub(crate) const MATMUL_F32: Kernel = Kernel {
        number: super::MATMUL_F32.number(),
        name: "matmul_f32",
        row_name: "MATMUL_F32",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| parameters(operation).is_some(),
        prepare: |operation, emit| lowering::emit_call(emit, 2, parameters(operation)),
        // Both inputs are read for every column of tiles.
        lag: |_, _, _| None,
        portable: super::MATMUL_F32,
        native: None,
        work: None,
    };

    pub(crate) fn parameters(operation: &Operation<'_>) -> Option<(MatMulParameters, u32)> {
        let Op::MatMul(op) = operation.op else { return None };
        let [a, b] = operation.inputs else { return None };
        if !lowering::is_sound(operation, DType::F32) {
            return None;
        }
        let sizes = op.sizes(&a.ty, &b.ty).ok()?;
        let batch = u32::try_from(sizes.batch).ok()?;
        let p = MatMulParameters {
            batch,
            m: sizes.m,
            n: sizes.n,
            k: sizes.k,
            transpose_a: op.transpose_a.into(),
            transpose_b: op.transpose_b.into(),
        };
        Some((p, batch.checked_mul(sizes.m)?))
    }
}
