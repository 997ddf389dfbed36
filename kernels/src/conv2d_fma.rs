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
use crate::tile_fma::{CHANNELS, POSITIONS, Tile, one, single, three};

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
    let mut walk = Walk { call, p, pixels: Pixels::new(call, &p.spatial), tile: Tile::new(0) };
    walk.pixels.begin();
    while walk.pixels.left > 0 {
        let tiles = walk.pixels.inside() / POSITIONS;
        // SAFETY: `check` proved that windows inside the image, and the taps inside it of others, are inside the image's window, that
        // the outputs are inside theirs, that weights and bias are there for every channel, and alignments.
        unsafe {
            if tiles > 0 {
                let weights = walk.form([0; 2], p.spatial.kernel);
                for _ in 0..tiles {
                    let (x, outputs) = walk.pixels.take();
                    (walk.tile.x, walk.tile.outputs) = (x.map(<*const u8>::cast), outputs.map(<*mut u8>::cast));
                    walk.compute(POSITIONS, weights);
                }
                walk.pixels.settle(tiles.wrapping_mul(POSITIONS));
            } else {
                let (x, first, size) = if walk.pixels.is_inside() {
                    (walk.pixels.source, [0; 2], p.spatial.kernel)
                } else {
                    walk.pixels.clip(walk.pixels.place())
                };
                let weights = walk.form(first, size);
                walk.tile.x = [x.cast(); POSITIONS];
                walk.tile.outputs = [walk.pixels.output.cast(); POSITIONS];
                walk.compute(1, weights);
                walk.pixels.go_on();
            }
        }
    }
}

/// A call's pixels, and what the next of them are computed with.
struct Walk<'a> {
    call: &'a Call<'a>,
    p: &'a Conv2dParameters,
    pixels: Pixels<'a>,
    tile: Tile,
}

impl Walk<'_> {
    /// Gives the tile the form of a window of `size` taps from `first` on, and says where in bytes of a channel's weights these begin.
    #[inline(never)]
    fn form(&mut self, [row, column]: [u32; 2], [height, width]: [u32; 2]) -> usize {
        let (s, tile) = (&self.p.spatial, &mut self.tile);
        let depth = (self.p.group_inputs as usize).wrapping_mul(4);
        let (down, right) = s.tap_steps();
        let bytes = |taps: u32| (taps as usize).wrapping_mul(depth);
        // Where taps follow one another without a gap, all of a line is one run.
        (tile.runs, tile.length) = if right == depth { (1, bytes(width) >> 2) } else { (width as usize, depth >> 2) };
        tile.lines = if width == 0 { 0 } else { height as usize };
        tile.gap = right.wrapping_sub(depth);
        tile.line_gap = down.wrapping_sub(right.wrapping_mul(width as usize));
        let [rows, columns] = s.kernel;
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
    unsafe fn compute(&mut self, n: usize, first: usize) {
        let tile = &mut self.tile;
        let weights = self.call.input(1).ptr.cast_const().cast::<f32>();
        let channels = self.p.spatial.output.channels as usize;
        tile.weights = weights.wrapping_byte_add(first.wrapping_mul(CHANNELS));
        tile.bias = self.call.input(2).ptr.cast_const().cast();
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
                if self.p.epilogue.bounds() {
                    self.p.epilogue.bound(output.wrapping_sub(fours), channels);
                }
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
