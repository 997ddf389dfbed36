//! float32 convolution of one group for CPUs with an FPU, three pixels by four channels at a time ([`crate::tile_fma`]).
//!
//! Windows: image; weights, packed: four channels' for each tap in turn, then those of channels left over as they lie; bias; then the
//! output image. Rows are output image rows. The walk is the plain convolution's, but three pixels at a time where as many of a row
//! have windows inside the image: for each four channels, ascending, the windows are read and then their outputs written; then channels that are
//! left over, pixel by pixel. An output begins with its bias and adds the taps inside the image in their order.

use kiln_core::{Call, Row};

use crate::arithmetic::F32;
use crate::conv2d::Conv2dParameters;
use crate::pixels::Pixels;
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
    let s = &p.spatial;
    let mut pixels = Pixels::new(call, s);
    let mut tile = Tile::new(0);
    pixels.begin();
    while pixels.left > 0 {
        let inside = pixels.inside();
        let n = if inside >= POSITIONS { POSITIONS } else { 1 };
        let (x, first, size) = if inside > 0 { (pixels.source, [0; 2], s.kernel) } else { pixels.clip(pixels.place()) };
        let weights = form(&mut tile, p, first, size);
        let (across, step) = pixels.steps;
        let output = pixels.output;
        let (second, second_output) = (x.wrapping_offset(across), output.wrapping_offset(step));
        let (third, third_output) = (second.wrapping_offset(across), second_output.wrapping_offset(step));
        tile.x = [x.cast(), second.cast(), third.cast()];
        tile.outputs = [output.cast(), second_output.cast(), third_output.cast()];
        // SAFETY: `check` proved that windows inside the image, and the taps inside it of another, are inside the image's window, that
        // outputs are inside theirs, that weights and bias are there for every channel, and alignments.
        unsafe { compute(call, p, &mut tile, n, weights) };
        pixels.pass(n);
    }
}

/// Gives a tile the form of a window of `size` taps from `first` on, and says where in bytes of a channel's weights these begin.
#[inline(always)]
fn form(tile: &mut Tile, p: &Conv2dParameters, [row, column]: [u32; 2], [height, width]: [u32; 2]) -> usize {
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
    bytes(row.wrapping_mul(columns).wrapping_add(column))
}

/// Computes `n` pixels, all that a tile has or one, whose weights begin so many bytes behind each channel's.
///
/// # Safety
///
/// The tile's windows and outputs are those of so many of the call's pixels.
#[inline(never)]
unsafe fn compute(call: &Call<'_>, p: &Conv2dParameters, tile: &mut Tile, n: usize, first: usize) {
    let weights = call.input(1).ptr.cast_const().cast::<f32>();
    let channels = p.spatial.output.channels as usize;
    tile.weights = weights.wrapping_byte_add(first.wrapping_mul(CHANNELS));
    tile.bias = call.input(2).ptr.cast_const().cast();
    tile.fours = channels / CHANNELS;
    let fours = tile.fours.wrapping_mul(CHANNELS);
    let over = weights.wrapping_byte_add(first.wrapping_add(fours.wrapping_mul(tile.pitch)));
    let left = channels & (CHANNELS - 1);
    // SAFETY: the caller's promise; weights and bias are those of all channels.
    unsafe {
        if tile.fours > 0 {
            if n == 1 { one(tile) } else { three(tile) }
        }
        for (x, output) in tile.x.iter().zip(&tile.outputs).take(n) {
            for channel in 0..left {
                let weights = over.wrapping_byte_add(channel.wrapping_mul(tile.pitch));
                single(tile, tile.bias.wrapping_add(channel), *x, weights, output.wrapping_add(channel));
            }
            if p.epilogue.bounds() {
                bound(&p.epilogue, output.wrapping_sub(fours), channels);
            }
        }
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
