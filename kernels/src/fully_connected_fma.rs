//! float32 fully connected layers for CPUs with an FPU, four outputs at a time ([`crate::tile_fma`]).
//!
//! Windows: vectors; weights, packed: four outputs' for each element in turn, then those of outputs left over as they lie; bias; then
//! the output vectors. Rows are vectors. Vectors and outputs ascend; a vector is read anew for each four outputs, which are written
//! together, and for each of those that are left over. An output begins with its bias and adds the products in their order.

use kiln_core::{Call, Row};

use crate::arithmetic::F32;
use crate::fully_connected::FullyConnectedParameters;
use crate::tile_fma::{CHANNELS, POSITIONS, Tile, bound, one, single};
use crate::vectors;

/// float32 fully connected layer.
pub const FULLY_CONNECTED_FMA_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(58, 4, 0, check, run) };

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<FullyConnectedParameters>() else { return false };
    crate::fully_connected::check::<F32>(call) && call.input(2).holds(p.outputs as usize, 4)
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<FullyConnectedParameters>() else { return };
    let mut tile = Tile::new(p.inputs as usize);
    let outputs = p.outputs as usize;
    for row in call.rows.begin..call.rows.end {
        let x = vectors::start(call.input(0), row, p.input_pitch).cast_const().cast();
        let output = vectors::start(call.output(0), row, p.output_pitch).cast::<f32>();
        tile.x = [x; POSITIONS];
        tile.outputs = [output; POSITIONS];
        tile.weights = call.input(1).ptr.cast_const().cast();
        tile.bias = call.input(2).ptr.cast_const().cast();
        tile.fours = outputs / CHANNELS;
        let fours = tile.fours.wrapping_mul(CHANNELS);
        // SAFETY: `check` proved that vector `row` of input and output lies inside its window, that weights and bias are there for
        // every output, and alignments.
        unsafe {
            if tile.fours > 0 {
                one(&mut tile);
            }
            for o in 0..outputs & (CHANNELS - 1) {
                let weights = tile.weights.wrapping_byte_add(o.wrapping_mul(tile.pitch));
                single(&tile, tile.bias.wrapping_add(o), x, weights, output.wrapping_add(fours).wrapping_add(o));
            }
            if p.epilogue.bounds() {
                bound(&p.epilogue, output, outputs);
            }
        }
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;

    use super::*;
    use crate::fully_connected::host::{finish, parameters};
    use crate::table::{Direction, Kernel};
    use crate::{lag, tile_fma};

    pub(crate) const FULLY_CONNECTED_FMA_F32: Kernel = Kernel {
        number: super::FULLY_CONNECTED_FMA_F32.number(),
        name: "fully_connected_fma_f32",
        row_name: "FULLY_CONNECTED_FMA_F32",
        targets: tile_fma::host::TARGETS,
        directions: &[Direction::Up],
        applies: |operation| parameters(operation, DType::F32).is_some() && tile_fma::host::suits(operation),
        prepare: |operation, emit| {
            tile_fma::host::emit(operation, emit)?;
            finish(operation, DType::F32, emit)
        },
        lag: |operation, input, _| {
            let (p, rows) = parameters(operation, DType::F32).filter(|_| input == 0)?;
            // What is left over of fours is written one by one.
            let part = if p.outputs.is_multiple_of(CHANNELS as u32) { CHANNELS as u32 } else { 1 };
            Some(4 * lag::vectors_in_parts(rows, p.inputs, p.outputs, part))
        },
        portable: super::FULLY_CONNECTED_FMA_F32,
        native: None,
        work: None,
    };
}
