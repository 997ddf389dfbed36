//! int8 convolution of one group as a product of matrices ([`crate::tile_mve`]), for CPUs with MVE.
//!
//! Windows: image, weights `[O, KH, KW, I]` as they are, constants of the output channels, scratch for four windows; then the output
//! image. Rows are output image rows. The walk is the plain convolution's, but four pixels at a time, across the ends of rows: all
//! of their windows are read before the first of their outputs is written, and nothing is read of them afterwards.

use kiln_core::{Call, Row};

use crate::arithmetic::S8;
use crate::conv2d::{self, Conv2dParameters};
use crate::conv2d_paired::clamp;
use crate::pixels::Pixels;
use crate::spatial::Taps;
use crate::tile_mve::{BLOCK, Lines, POSITIONS, TAPS, Tile, blocks, copy, gather, run as run_tile};

/// int8 convolution.
pub const CONV2D_MVE_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(18, 1, 0, check, run) };

/// Channels computed together.
const CHANNELS: usize = 4;

/// The taps of a window, channels and all.
fn taps(p: &Conv2dParameters) -> Option<usize> {
    let [height, width] = p.spatial.kernel.map(|n| n as usize);
    height.checked_mul(width)?.checked_mul(p.group_inputs as usize)
}

/// Whether any part of a window begins with a block: pixels fill blocks, or a window is one pixel.
fn in_blocks(p: &Conv2dParameters) -> bool {
    p.group_inputs as usize % TAPS == 0 || p.spatial.kernel == [1; 2]
}

/// Bytes of scratch for a block of taps. Windows that do not come in blocks are put together behind them first.
fn scratch_of_block(p: &Conv2dParameters) -> usize {
    if in_blocks(p) { BLOCK } else { BLOCK + TAPS }
}

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return false };
    let aligned = call.input(2).ptr.addr() | call.scratch(0).ptr.addr();
    conv2d::check::<S8>(call)
        && p.groups == 1
        && p.spatial.output.channels as usize >= CHANNELS
        && aligned & 3 == 0
        && taps(p).is_some_and(|taps| call.scratch(0).holds(blocks(taps), scratch_of_block(p)))
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let taps = taps(p).unwrap_or(0);
    let scratch = call.scratch(0).ptr;
    let (weights, block) = (call.input(1).ptr.cast_const(), call.input(2).ptr.cast_const());
    let channels = p.spatial.output.channels as usize;
    let fours = channels & !(CHANNELS - 1);
    let mut tile = Tile::new(scratch, taps, p.epilogue.output_zero);
    let mut pixels = Pixels::new(call, &p.spatial);
    let windows = Windows::new(p, taps, scratch);
    while pixels.left > 0 {
        // SAFETY: `check` proved that scratch holds four windows in blocks and what is put together behind them, that taps
        // inside the image are inside its window, and that weights and constants are there for every channel.
        unsafe {
            windows.gather(&mut pixels, &mut tile.outputs);
            let outputs = tile.outputs;
            tile.turn_to(weights, block, channels, [0, fours]);
            run_tile(&mut tile);
            if fours < channels {
                // The last four once more, those among them that were left over for the first time.
                tile.outputs = outputs.map(|output| output.wrapping_add(channels).wrapping_sub(CHANNELS));
                tile.turn_to(weights, block, channels, [channels.wrapping_sub(CHANNELS), channels]);
                run_tile(&mut tile);
            }
            if p.epilogue.low > -128 || p.epilogue.high < 127 {
                // Some may be the same: to clamp twice changes nothing.
                outputs.iter().for_each(|&output| clamp(output, channels, p));
            }
        }
    }
}

/// How windows lie in the image, and where they go.
struct Windows<'a> {
    p: &'a Conv2dParameters,
    /// Taps of a window.
    taps: usize,
    /// Blocks, then what is put together.
    scratch: *mut u8,
    /// Whether taps of a window row follow one another without a gap.
    dense: bool,
    /// Bytes that lie together, and how many times that makes a window: the lines of calls, and calls.
    length: usize,
    lines: usize,
    calls: usize,
    /// From one line to the next, from one call's to the next one's.
    line_step: usize,
    call_step: usize,
    /// Whether lines come in blocks.
    whole: bool,
    /// Whether parts of windows do.
    in_blocks: bool,
}

impl<'a> Windows<'a> {
    #[inline(never)]
    fn new(p: &'a Conv2dParameters, taps: usize, scratch: *mut u8) -> Windows<'a> {
        let (down, right) = p.spatial.tap_steps();
        let [height, width] = p.spatial.kernel.map(|n| n as usize);
        let depth = p.group_inputs as usize;
        let dense = right == depth || width == 1;
        let (length, lines, calls) =
            if dense { (width.wrapping_mul(depth), height, 1) } else { (depth, width, height) };
        Windows {
            p,
            taps,
            scratch,
            dense,
            length,
            lines,
            calls,
            line_step: if dense { down } else { right },
            call_step: down,
            whole: length % TAPS == 0 || length == taps,
            in_blocks: in_blocks(p),
        }
    }

    /// Gathers the windows of the next four pixels, says where their outputs go, and goes past them. If fewer are left, the last
    /// stands for those that are missing.
    ///
    /// # Safety
    ///
    /// Taps inside the image can be read, and scratch is as large as [`scratch_of_block`] says; a pixel is left.
    #[inline(never)]
    unsafe fn gather(&self, pixels: &mut Pixels<'_>, outputs: &mut [*mut u8; POSITIONS]) {
        if self.whole && pixels.are_inside(POSITIONS as u32) {
            let mut output = pixels.output;
            for to in outputs {
                *to = output;
                output = output.wrapping_offset(pixels.steps.1);
            }
            let (bytes, lines, to_step) = (self.length, self.lines, self.length.wrapping_mul(POSITIONS));
            let (mut from, mut to) = (pixels.source, self.scratch);
            for _ in 0..self.calls {
                let lines = Lines { from, to, bytes, lines, from_step: self.line_step, to_step, step: BLOCK };
                // SAFETY: the windows are inside the image, and together the lines fill no more than the blocks.
                unsafe { gather(&lines, pixels.steps.0) };
                from = from.wrapping_add(self.call_step);
                to = to.wrapping_add(to_step.wrapping_mul(self.lines));
            }
            pixels.go_on(POSITIONS as u32);
            return;
        }
        let mut last = false;
        for (position, output) in outputs.iter_mut().enumerate() {
            *output = pixels.output;
            // SAFETY: the caller's promise.
            unsafe { self.gather_one(pixels, self.scratch.wrapping_add(position.wrapping_mul(TAPS))) };
            if pixels.left > 1 {
                pixels.go_on(1);
            } else {
                last = true;
            }
        }
        if last {
            pixels.left = 0;
        }
    }

    /// Gathers the next pixel's window, with the zero point where a tap is padding, into the blocks' part at `blocks`.
    ///
    /// # Safety
    ///
    /// As above.
    #[inline(never)]
    unsafe fn gather_one(&self, pixels: &Pixels<'_>, to: *mut u8) {
        let s = &self.p.spatial;
        let depth = self.p.group_inputs as usize;
        let many = blocks(self.taps);
        let (window, step) = match self.in_blocks {
            true => (to, BLOCK),
            false => (self.scratch.wrapping_add(many.wrapping_mul(BLOCK)), TAPS),
        };
        let all = |n: u32| Taps { first: 0, end: n, at: 0 };
        let (rows, columns, from) = if pixels.are_inside(1) {
            (all(s.kernel[0]), all(s.kernel[1]), pixels.source)
        } else {
            let zeros = u32::from_ne_bytes([self.p.epilogue.input_zero as u8; 4]);
            let mut block = window.cast::<[u32; 4]>();
            for _ in 0..many {
                // SAFETY: scratch is aligned to 4 bytes, and has 16 for each block of this window.
                unsafe { block.write([zeros; 4]) };
                block = block.wrapping_byte_add(step);
            }
            pixels.taps()
        };
        let [height, width] = [&rows, &columns].map(|taps| taps.end.wrapping_sub(taps.first) as usize);
        // Where taps go: windows in blocks have a block's bytes between 16 of theirs.
        let place = |taps: usize| match self.in_blocks {
            true => taps.wrapping_mul(POSITIONS),
            false => taps,
        };
        let line = place((s.kernel[1] as usize).wrapping_mul(depth));
        let to_row = (rows.first as usize).wrapping_mul(line);
        let to_first = to_row.wrapping_add(place((columns.first as usize).wrapping_mul(depth)));
        let mut part = Lines {
            from,
            to: window.wrapping_add(to_first),
            bytes: depth,
            lines: width,
            from_step: self.line_step,
            to_step: place(depth),
            step,
        };
        let mut calls = height;
        if self.dense {
            (part.bytes, part.lines, part.to_step) = (width.wrapping_mul(depth), height, line);
            calls = 1;
        }
        if width == 0 || height == 0 {
            calls = 0;
        }
        // SAFETY: taps inside the image, and their places in the window.
        unsafe {
            for _ in 0..calls {
                copy(&part);
                part.from = part.from.wrapping_add(self.call_step);
                part.to = part.to.wrapping_add(line);
            }
            if !self.in_blocks {
                let (from, bytes) = (window.cast_const(), self.taps);
                copy(&Lines { from, to, bytes, lines: 1, from_step: 0, to_step: 0, step: BLOCK });
            }
        }
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;
    use kiln_ops::OpError;

    use super::*;
    use crate::conv2d::host::{channel, finish, parameters, quantization_suits};
    use crate::mve::{TARGETS, scaling};
    use crate::table::{Direction, Kernel, Operation};
    use crate::workload::Workload;
    use crate::{lag, lowering};

    pub(crate) const CONV2D_MVE_S8: Kernel = Kernel {
        number: super::CONV2D_MVE_S8.number(),
        name: "conv2d_mve_s8",
        row_name: "CONV2D_MVE_S8",
        targets: TARGETS,
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| {
            let Some((_, p)) = parameters(operation, DType::I8) else { return false };
            let channels = p.spatial.output.channels as usize;
            let scales = |o: usize| {
                let (_, multiplier, shift) = channel(operation, o);
                scaling(multiplier, shift).is_some()
            };
            p.groups == 1 && channels >= CHANNELS && quantization_suits(operation) && (0..channels).all(scales)
        },
        prepare: |operation, emit| {
            let (_, p) = parameters(operation, DType::I8).ok_or(OpError::TooLarge)?;
            emit.input(0);
            emit.input(1);
            lowering::emit_block(emit, p.spatial.output.channels, |o| {
                let (start, multiplier, shift) = channel(operation, o);
                let (multiplier, shift) = scaling(multiplier, shift).unwrap_or((0, -1));
                (start, multiplier, shift)
            });
            let bytes = taps(&p).map(|taps| blocks(taps) as u64 * scratch_of_block(&p) as u64);
            emit.scratch(bytes.ok_or(OpError::TooLarge)?);
            finish(operation, DType::I8, emit)
        },
        lag: |operation, input, direction| {
            let (_, p) = parameters(operation, DType::I8).filter(|_| input == 0)?;
            lag::tiles(&p.spatial, operation.output.ty.shape.dim(0), POSITIONS as u32, direction)
        },
        portable: super::CONV2D_MVE_S8,
        native: None,
        work: Some(work),
    };

    /// The most pixels that the walk is followed over.
    const COUNTED: usize = 1 << 20;

    /// Instructions grow with blocks and outputs of fours of channels; for tiles inside the image with the blocks and the lines that they
    /// gather, for others with their pixels and what these gather.
    fn work(operation: &Operation<'_>) -> Option<Workload> {
        let (_, p) = parameters(operation, DType::I8)?;
        let rows = kiln_core::RowRange { begin: 0, end: lowering::image_rows(&operation.output.ty)? };
        let call = Call::new(&[], &[], &[], &[], rows);
        let mut pixels = Pixels::new(&call, &p.spatial);
        let windows = Windows::new(&p, taps(&p)?, core::ptr::null_mut());
        let (mut inside, mut others) = (0u32, 0u32);
        if pixels.left > COUNTED {
            return None;
        }
        while pixels.left > 0 {
            if windows.whole && pixels.are_inside(POSITIONS as u32) {
                pixels.go_on(POSITIONS as u32);
                inside += 1;
                continue;
            }
            others += 1;
            for _ in 0..POSITIONS {
                if pixels.left > 1 {
                    pixels.go_on(1);
                } else {
                    pixels.left = 0;
                }
            }
        }
        let blocks = blocks(windows.taps) as f64;
        let fours = f64::from(p.spatial.output.channels.div_ceil(CHANNELS as u32));
        let [inside, others] = [inside, others].map(f64::from);
        let outputs = (inside + others) * fours;
        Some(Workload {
            products: outputs * blocks,
            outputs,
            vectors: inside,
            gathered: inside * blocks,
            edges: others,
            gathered_at_edges: others * blocks,
            lines: others * f64::from(p.spatial.kernel[0]),
            ..Workload::default()
        })
    }
}
