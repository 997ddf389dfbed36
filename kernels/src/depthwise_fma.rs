//! float32 depthwise convolution, one output a channel, for CPUs with an FPU, four channels at a time ([`crate::tile_fma`]).
//!
//! Windows: image; weights, packed: four channels' for each tap in turn, then those of channels left over as they lie; bias; then the
//! output image. Rows are output image rows. Pixels are visited as the plain convolution visits them; of a pixel, fours of channels ascend, then
//! those that are left over, or both descend walking down. The outputs of a four are written when its channels of the window
//! have been read. An output begins with its bias and adds the taps inside the image in their order.

use kiln_core::{Call, Direction, Row};

use crate::arithmetic::F32;
use crate::conv2d::Conv2dParameters;
use crate::spatial::Pixel;
use crate::tile_fma::{CHANNELS, POSITIONS, Tile, bound, own, single};

/// float32 depthwise convolution, one output channel an input channel.
pub const DEPTHWISE_FMA_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(57, 4, 0, check, run) };

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return false };
    crate::conv2d::check::<F32>(call)
        && p.group_inputs == 1
        && p.group_outputs == 1
        && call.input(2).holds(p.spatial.output.channels as usize, 4)
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let mut tile = Tile::new(1);
    p.spatial.for_each_pixel(call, |pixel| {
        // SAFETY: `check` proved that the taps of a window that the walk finds inside the image are inside its window, that the outputs
        // are inside theirs, that weights and bias are there for every channel, and alignments.
        unsafe { compute(call, p, &mut tile, pixel) };
    });
}

/// Computes a pixel.
///
/// # Safety
///
/// It is one of the call's.
#[inline(never)]
unsafe fn compute(call: &Call<'_>, p: &Conv2dParameters, tile: &mut Tile, pixel: &Pixel) {
    let s = &p.spatial;
    let (down, right) = s.tap_steps();
    let [rows, columns] = s.kernel.map(|n| n as usize);
    let width = pixel.columns.end.wrapping_sub(pixel.columns.first) as usize;
    let height = pixel.rows.end.wrapping_sub(pixel.rows.first) as usize;
    tile.lines = if width == 0 { 0 } else { height };
    tile.runs = width;
    tile.gap = right.wrapping_sub(4);
    tile.line_gap = down.wrapping_sub(right.wrapping_mul(width));
    tile.skip = columns.wrapping_sub(width).wrapping_mul(4);
    let pitch = rows.wrapping_mul(columns).wrapping_mul(4);
    let tap = (pixel.rows.first as usize).wrapping_mul(columns).wrapping_add(pixel.columns.first as usize);
    let first = call.input(1).ptr.cast_const().cast::<f32>();
    let bias = call.input(2).ptr.cast_const().cast::<f32>();
    let (x, output) = (pixel.input.cast::<f32>(), pixel.output.cast::<f32>());
    let channels = s.output.channels as usize;
    let fours = channels / CHANNELS;
    let begin = call.direction.pick(0, fours).wrapping_mul(CHANNELS);
    let up = call.direction == Direction::Up;
    (tile.pitch, tile.step) =
        if up { (pitch, 4 * CHANNELS) } else { (pitch.wrapping_neg(), (4 * CHANNELS).wrapping_neg()) };
    let weights = |channel: usize| first.wrapping_byte_add(channel.wrapping_mul(pitch));
    tile.x = [x.wrapping_add(begin); POSITIONS];
    tile.outputs = [output.wrapping_add(begin); POSITIONS];
    tile.weights = weights(begin).wrapping_add(tap.wrapping_mul(CHANNELS));
    tile.bias = bias.wrapping_add(begin);
    tile.fours = fours;
    let left = channels & (CHANNELS - 1);
    // SAFETY: the caller's promise; weights and bias are those of all channels.
    unsafe {
        if up && fours > 0 {
            own(tile);
        }
        for channel in 0..left {
            let channel = channels.wrapping_sub(left).wrapping_add(call.direction.pick(channel, left));
            let (x, output) = (x.wrapping_add(channel), output.wrapping_add(channel));
            single(tile, bias.wrapping_add(channel), x, weights(channel).wrapping_add(tap), output);
        }
        if !up && fours > 0 {
            own(tile);
        }
        if p.epilogue.bounds() {
            bound(&p.epilogue, output, channels);
        }
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;

    use super::*;
    use crate::conv2d::host::{finish, parameters};
    use crate::table::Kernel;
    use crate::{lag, tile_fma};

    pub(crate) const DEPTHWISE_FMA_F32: Kernel = Kernel {
        number: super::DEPTHWISE_FMA_F32.number(),
        name: "depthwise_fma_f32",
        row_name: "DEPTHWISE_FMA_F32",
        targets: tile_fma::host::TARGETS,
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| {
            let one = |p: &Conv2dParameters| p.group_inputs == 1 && p.group_outputs == 1;
            parameters(operation, DType::F32).is_some_and(|(_, p)| one(&p)) && tile_fma::host::suits(operation)
        },
        prepare: |operation, emit| {
            tile_fma::host::emit(operation, emit)?;
            finish(operation, DType::F32, emit)
        },
        lag: |operation, input, direction| {
            let (_, p) = parameters(operation, DType::F32).filter(|_| input == 0)?;
            lag::stretches(&p.spatial, operation.output.ty.shape.dim(0), [1, CHANNELS as u32], direction)
        },
        portable: super::DEPTHWISE_FMA_F32,
        native: None,
        work: None,
    };
}
