//! float32 convolution of one group for CPUs with an FPU, three pixels by four channels at a time ([`crate::tile_fma`]).
//!
//! Windows: image; weights, packed: four channels' for each tap in turn, then those of channels left over as they lie; bias; then the
//! output image. Rows are output image rows. The walk is the plain convolution's, but three pixels at a time where as many follow
//! one another with windows inside the image: for each four channels, ascending, the windows are read and then their outputs written; then channels that are
//! left over, pixel by pixel. An output begins with its bias and adds the taps inside the image in their order.

use kiln_core::{Call, Row};

use crate::arithmetic::F32;
use crate::conv2d::Conv2dParameters;
use crate::tile_fma::{CHANNELS, POSITIONS, Tile, bound, one, single, three};

/// float32 convolution.
pub const CONV2D_FMA_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(56, 4, 0, check, run) };

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return false };
    crate::conv2d::check::<F32>(call) && p.groups == 1 && call.input(2).holds(p.spatial.output.channels as usize, 4)
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let whole = p.spatial.kernel;
    let mut tile = Tile::new(0);
    let mut held = 0usize;
    // SAFETY: `check` proved that the taps of a window that the walk finds inside the image are inside its window, that outputs are inside
    // theirs, that weights and bias are there for every channel, and alignments.
    unsafe {
        p.spatial.for_each_pixel(call, |pixel| {
            let (rows, columns) = (&pixel.rows, &pixel.columns);
            let size = [rows.end.wrapping_sub(rows.first), columns.end.wrapping_sub(columns.first)];
            if size != whole {
                compute(call, p, &mut tile, held, [0; 2], whole);
                held = 0;
            }
            if let (Some(x), Some(output)) = (tile.x.get_mut(held), tile.outputs.get_mut(held)) {
                (*x, *output) = (pixel.input.cast(), pixel.output.cast());
            }
            held = held.wrapping_add(1);
            if size != whole || held == POSITIONS {
                compute(call, p, &mut tile, held, [rows.first, columns.first], size);
                held = 0;
            }
        });
        compute(call, p, &mut tile, held, [0; 2], whole);
    }
}

/// Computes the first `n` pixels of a tile, three together or else one by one. Their windows have `size` taps from `first` on.
///
/// # Safety
///
/// They are pixels of the call, with windows of that form.
#[inline(never)]
unsafe fn compute(
    call: &Call<'_>,
    p: &Conv2dParameters,
    tile: &mut Tile,
    n: usize,
    [row, column]: [u32; 2],
    [height, width]: [u32; 2],
) {
    let depth = (p.group_inputs as usize).wrapping_mul(4);
    let (down, right) = p.spatial.tap_steps();
    let bytes = |taps: u32| (taps as usize).wrapping_mul(depth);
    // Where taps follow one another without a gap, all of a line is one run.
    (tile.runs, tile.length) = if right == depth { (1, bytes(width) >> 2) } else { (width as usize, depth >> 2) };
    tile.lines = if width == 0 { 0 } else { height as usize };
    tile.gap = right.wrapping_sub(depth);
    tile.line_gap = down.wrapping_sub(right.wrapping_mul(width as usize));
    let [rows, columns] = p.spatial.kernel;
    tile.skip = bytes(columns.wrapping_sub(width));
    tile.pitch = bytes(rows.wrapping_mul(columns));
    let first = bytes(row.wrapping_mul(columns).wrapping_add(column));
    let weights = call.input(1).ptr.cast_const().cast::<f32>();
    let channels = p.spatial.output.channels as usize;
    let fours = channels & !(CHANNELS - 1);
    let over = weights.wrapping_byte_add(first.wrapping_add(fours.wrapping_mul(tile.pitch)));
    let mut n = n;
    while n > 0 {
        let together = if n == POSITIONS { POSITIONS } else { 1 };
        n = n.wrapping_sub(together);
        tile.weights = weights.wrapping_byte_add(first.wrapping_mul(CHANNELS));
        tile.bias = call.input(2).ptr.cast_const().cast();
        tile.fours = channels / CHANNELS;
        // SAFETY: the caller's promise; weights and bias are those of all channels.
        unsafe {
            if fours > 0 {
                if together == 1 { one(tile) } else { three(tile) }
            }
            for (x, output) in tile.x.iter().zip(&tile.outputs).take(together) {
                for channel in 0..channels.wrapping_sub(fours) {
                    let weights = over.wrapping_byte_add(channel.wrapping_mul(tile.pitch));
                    single(tile, tile.bias.wrapping_add(channel), *x, weights, output.wrapping_add(channel));
                }
                if p.epilogue.bounds() {
                    bound(&p.epilogue, output.wrapping_sub(fours), channels);
                }
            }
        }
        tile.x.rotate_left(1);
        tile.outputs.rotate_left(1);
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;

    use super::*;
    use crate::conv2d::host::{finish, parameters};
    use crate::table::{Direction, Kernel};
    use crate::{lag, tile_fma};

    pub(crate) const CONV2D_FMA_F32: Kernel = Kernel {
        number: super::CONV2D_FMA_F32.number(),
        name: "conv2d_fma_f32",
        row_name: "CONV2D_FMA_F32",
        targets: tile_fma::host::TARGETS,
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| {
            parameters(operation, DType::F32).is_some_and(|(_, p)| p.groups == 1) && tile_fma::host::suits(operation)
        },
        prepare: |operation, emit| {
            tile_fma::host::emit(operation, emit)?;
            finish(operation, DType::F32, emit)
        },
        lag: |operation, input, direction| {
            let (_, p) = parameters(operation, DType::F32).filter(|_| input == 0)?;
            let images = operation.output.ty.shape.dim(0);
            lag::tiles_in_parts(&p.spatial, images, [POSITIONS, CHANNELS].map(|n| n as u32), direction)
        },
        portable: super::CONV2D_FMA_F32,
        native: None,
        work: None,
    };
}
