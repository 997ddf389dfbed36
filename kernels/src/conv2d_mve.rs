//! int8 convolution of one group as a product of matrices ([`crate::tile_mve`]), for CPUs with MVE.
//!
//! Windows: image, weights `[O, KH, KW, I]` as they are, constants of the output channels, scratch for four windows; then the output
//! image. Rows are output image rows. The walk is the plain convolution's, but four pixels at a time, across the ends of rows: all
//! of their windows are read before the first of their outputs is written, and nothing is read of them afterwards.

use kiln_core::{Call, Row};

use crate::arithmetic::S8;
use crate::conv2d::{self, Conv2dParameters};
use crate::pixels::Pixels;
use crate::tile_mve::{
    BLOCK, Lines, POSITIONS, SPREAD, TAPS, Tile, blocks, copy, distribute, fill, gather, run as run_tile, spread,
};

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
    (p.group_inputs as usize).is_multiple_of(TAPS) || p.spatial.kernel == [1; 2]
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
    let scratch = call.scratch(0).ptr;
    let taps = taps(p).unwrap_or(0);
    let channels = p.spatial.output.channels as usize;
    let mut tile = Tile::new(scratch, taps, p.epilogue.output_zero);
    let mut windows = Windows::new(call, p);
    windows.begin(taps);
    tile.turn_to(call, channels, [0, channels & !(CHANNELS - 1)]);
    while windows.pixels.left > 0 {
        let tiles = windows.tiles_inside();
        // SAFETY: `check` proved that scratch holds four windows in blocks and what is put together behind them, that taps
        // inside the image are inside its window, and that weights and constants are there for every channel.
        unsafe {
            for _ in 0..tiles {
                windows.gather_inside(scratch, &mut tile.outputs);
                products(&mut tile, call, p);
            }
            if tiles > 0 {
                windows.pixels.settle(tiles.wrapping_mul(POSITIONS));
            } else {
                windows.gather_each(scratch, &mut tile.outputs);
                products(&mut tile, call, p);
            }
        }
    }
}

/// Writes the outputs of a tile that was turned to the first channels.
///
/// # Safety
///
/// That of [`run_tile`], for all channels.
#[inline(always)]
unsafe fn products(tile: &mut Tile, call: &Call<'_>, p: &Conv2dParameters) {
    // SAFETY: the caller's promise.
    unsafe {
        run_tile(tile);
        let channels = p.spatial.output.channels as usize;
        if p.epilogue.clamps() || !channels.is_multiple_of(CHANNELS) {
            complete(tile, call, p);
        }
    }
}

/// Writes the outputs of the last channels and clamps all, where the first ones were written.
///
/// # Safety
///
/// As above.
#[inline(never)]
unsafe fn complete(tile: &mut Tile, call: &Call<'_>, p: &Conv2dParameters) {
    let channels = p.spatial.output.channels as usize;
    let fours = channels & !(CHANNELS - 1);
    let back = |tile: &mut Tile, n: usize| tile.outputs.iter_mut().for_each(|at| *at = at.wrapping_sub(n));
    // SAFETY: the caller's promise. Outputs are left where they end.
    unsafe {
        if fours < channels {
            // The last four, some of them for the second time.
            let first = channels.wrapping_sub(CHANNELS);
            back(tile, fours.wrapping_sub(first));
            tile.turn_to(call, channels, [first, channels]);
            run_tile(tile);
            tile.turn_to(call, channels, [0, fours]);
        }
        if p.epilogue.clamps() {
            back(tile, channels);
            p.epilogue.clamp_at(&tile.outputs, channels);
        }
    }
}

/// The windows of a call's pixels.
struct Windows<'a> {
    p: &'a Conv2dParameters,
    pixels: Pixels<'a>,
    /// The lines of a window, or of one of its rows where taps of a row do not follow one another, and where they go when a window is put
    /// together.
    lines: Lines,
    /// How many times that makes a window, and from one time to the next.
    times: usize,
    down: usize,
    /// Whether taps of a row follow one another: lines are rows.
    dense: bool,
    /// How four windows at a time are gathered.
    way: Way,
}

/// How four windows inside the image are gathered.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// One by one.
    Each,
    /// As blocks, which lines fill.
    Blocks,
    /// Line by line, spread over the blocks.
    Spread,
}

impl<'a> Windows<'a> {
    /// They have to [`begin`](Windows::begin).
    #[inline(always)]
    fn new(call: &'a Call<'a>, p: &'a Conv2dParameters) -> Windows<'a> {
        let (from, to) = (core::ptr::null(), core::ptr::null_mut());
        let (bytes, lines, from_step, to_step, step) = (0, 0, 0, 0, 0);
        let lines = Lines { from, to, bytes, lines, from_step, to_step, step };
        let (times, down, dense, way) = (0, 0, false, Way::Each);
        Windows { p, pixels: Pixels::new(call, &p.spatial), lines, times, down, dense, way }
    }

    /// Goes to the first window, of `taps` taps. Written in place: returned, it would be copied.
    #[inline(never)]
    fn begin(&mut self, taps: usize) {
        let p = self.p;
        let (down, right) = p.spatial.tap_steps();
        let [height, width] = p.spatial.kernel.map(|n| n as usize);
        let depth = p.group_inputs as usize;
        let dense = right == depth || width == 1;
        let line = width.wrapping_mul(depth);
        let (bytes, lines, times, from_step) =
            if dense { (line, height, 1, down) } else { (depth, width, height, right) };
        self.way = if bytes % TAPS == 0 || bytes == taps {
            Way::Blocks
        } else if dense && bytes <= TAPS && taps <= SPREAD {
            Way::Spread
        } else {
            Way::Each
        };
        (self.times, self.down, self.dense) = (times, down, dense);
        (self.lines.bytes, self.lines.lines, self.lines.from_step) = (bytes, lines, from_step);
        (self.lines.to_step, self.lines.step) =
            if in_blocks(p) { (bytes.wrapping_mul(POSITIONS), BLOCK) } else { (bytes, TAPS) };
        self.pixels.begin();
    }

    /// How many times the next four windows are inside the image, and can be gathered together.
    #[inline(always)]
    fn tiles_inside(&self) -> usize {
        if self.way == Way::Each { 0 } else { self.pixels.inside() / POSITIONS }
    }

    /// Gathers the next four windows, says where their outputs go, and moves to the next.
    ///
    /// # Safety
    ///
    /// They are inside the image, and `scratch` has [`BLOCK`] bytes for each block of a window.
    #[inline(never)]
    unsafe fn gather_inside(&mut self, scratch: *mut u8, outputs: &mut [*mut u8; POSITIONS]) {
        let (across, step) = self.pixels.steps;
        let (source, output) = (self.pixels.source, self.pixels.output);
        let (second, second_output) = (source.wrapping_offset(across), output.wrapping_offset(step));
        let (third, third_output) = (second.wrapping_offset(across), second_output.wrapping_offset(step));
        let (last, last_output) = (third.wrapping_offset(across), third_output.wrapping_offset(step));
        *outputs = [output, second_output, third_output, last_output];
        let mut from = [source, second, third, last];
        (self.pixels.source, self.pixels.output) = (last.wrapping_offset(across), last_output.wrapping_offset(step));
        // SAFETY: the caller's promise.
        unsafe { self.together(scratch, &mut from) };
    }

    /// Gathers four windows from where they are.
    ///
    /// # Safety
    ///
    /// As above.
    #[inline(always)]
    unsafe fn together(&mut self, scratch: *mut u8, from: &mut [*const u8; POSITIONS]) {
        self.lines.to = scratch;
        // SAFETY: the windows can be read; together the lines fill no more than the blocks.
        unsafe {
            if self.way == Way::Spread {
                return spread(&self.lines, from);
            }
            gather(&self.lines, from);
            for _ in 1..self.times {
                let each = self.lines.bytes.wrapping_mul(self.lines.lines).wrapping_mul(POSITIONS);
                self.lines.to = self.lines.to.wrapping_add(each);
                from.iter_mut().for_each(|from| *from = from.wrapping_add(self.down));
                gather(&self.lines, from);
            }
        }
    }

    /// The same wherever they are. If fewer than four are left, the last stands for those that are missing.
    ///
    /// # Safety
    ///
    /// Taps inside the image can be read, and `scratch` is as large as [`scratch_of_block`] says, aligned to 4 bytes; a pixel is left.
    #[inline(never)]
    unsafe fn gather_each(&mut self, scratch: *mut u8, outputs: &mut [*mut u8; POSITIONS]) {
        let mut place = self.pixels.place();
        let left = self.pixels.left;
        let mut from = [core::ptr::null(); POSITIONS];
        let mut any = core::ptr::null();
        let mut inside = 0u32;
        for (position, (output, from)) in outputs.iter_mut().zip(&mut from).enumerate() {
            *output = self.pixels.output;
            inside <<= 1;
            if self.way != Way::Each && self.pixels.is_inside() {
                any = self.pixels.source;
                inside |= 1;
            }
            *from = any;
            if left > position.wrapping_add(1) {
                self.pixels.go_on();
            }
        }
        if left <= POSITIONS {
            self.pixels.left = 0;
        }
        if inside != 0 {
            // Those before the first that is inside.
            from.iter_mut().filter(|from| from.is_null()).for_each(|from| *from = any);
            // SAFETY: four windows inside the image, some of them in the place of those that are not.
            unsafe { self.together(scratch, &mut from) };
        }
        let window = scratch.wrapping_add(blocks(self.taps()).wrapping_mul(BLOCK));
        let mut slot = scratch;
        for position in 0..POSITIONS {
            if inside & 1 << (POSITIONS - 1) == 0 {
                let clip = self.clip(place);
                // SAFETY: where the window goes in the blocks, or where it is put together.
                unsafe {
                    if self.lines.step == BLOCK {
                        self.part(slot, clip);
                    } else {
                        self.part(window, clip);
                        distribute(window, slot, self.taps());
                    }
                }
            }
            slot = slot.wrapping_add(TAPS);
            inside <<= 1;
            if left > position.wrapping_add(1) {
                place = self.pixels.after(place);
            }
        }
    }

    /// Taps of a window.
    #[inline(always)]
    fn taps(&self) -> usize {
        self.lines.bytes.wrapping_mul(self.lines.lines).wrapping_mul(self.times)
    }

    /// The first tap of the window at `place` that is inside the image, and how many are, down and to the right. Lines begin there.
    #[inline(never)]
    fn clip(&mut self, place: (u32, u32)) -> [u32; 3] {
        let (from, [row, column], [height, width]) = self.pixels.clip(place);
        self.lines.from = from;
        [row.wrapping_mul(self.p.spatial.kernel[1]).wrapping_add(column), height, width]
    }

    /// Copies what of a window is inside the image, which is what [`Windows::clip`] says, to `window`, and fills the rest with
    /// the zero point.
    ///
    /// # Safety
    ///
    /// It can be read; `window` has whole blocks.
    #[inline(never)]
    unsafe fn part(&mut self, window: *mut u8, clip: [u32; 3]) {
        let (bytes, lines, step) = (self.lines.bytes, self.lines.lines, self.lines.step);
        let [first, mut height, width] = clip.map(|n| n as usize);
        // SAFETY: the window's blocks.
        unsafe { fill(window, step, blocks(self.taps()), self.p.epilogue.input_zero as u8) };
        if height == 0 || width == 0 {
            return;
        }
        let depth = self.p.group_inputs as usize;
        // Windows in blocks have those of the other positions between each 16 bytes.
        let spread = step / TAPS;
        let row = self.p.spatial.kernel[1] as usize;
        self.lines.to = window.wrapping_add(first.wrapping_mul(depth).wrapping_mul(spread));
        self.lines.lines = width;
        if self.dense {
            // The lines are rows.
            (self.lines.bytes, self.lines.lines) = (width.wrapping_mul(depth), height);
            height = 1;
        }
        for _ in 0..height {
            // SAFETY: taps inside the image, and their places in the window.
            unsafe { copy(&self.lines) };
            self.lines.from = self.lines.from.wrapping_add(self.down);
            self.lines.to = self.lines.to.wrapping_add(row.wrapping_mul(depth).wrapping_mul(spread));
        }
        (self.lines.bytes, self.lines.lines) = (bytes, lines);
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;
    use kiln_ops::OpError;

    use super::*;
    use crate::conv2d::host::{channel, finish, parameters, quantization_suits};
    use crate::table::{Direction, Kernel, Operation};
    use crate::workload::Workload;
    use crate::{lag, lowering, mve};

    pub(crate) const CONV2D_MVE_S8: Kernel = Kernel {
        number: super::CONV2D_MVE_S8.number(),
        name: "conv2d_mve_s8",
        row_name: "CONV2D_MVE_S8",
        targets: mve::TARGETS,
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| {
            let Some((_, p)) = parameters(operation, DType::I8) else { return false };
            let channels = p.spatial.output.channels;
            p.groups == 1
                && channels as usize >= CHANNELS
                && quantization_suits(operation)
                && mve::can_scale(channels, |o| channel(operation, o))
        },
        prepare: |operation, emit| {
            let (_, p) = parameters(operation, DType::I8).ok_or(OpError::TooLarge)?;
            emit.input(0);
            emit.input(1);
            mve::emit_block(emit, p.spatial.output.channels, |o| channel(operation, o));
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
        let mut windows = Windows::new(&call, &p);
        windows.begin(taps(&p)?);
        let (mut inside, mut others) = (0u32, 0u32);
        if windows.pixels.left > COUNTED {
            return None;
        }
        while windows.pixels.left > 0 {
            let tiles = windows.tiles_inside();
            if tiles > 0 {
                windows.pixels.settle(tiles * POSITIONS);
                inside += tiles as u32;
                continue;
            }
            others += 1;
            for _ in 0..windows.pixels.left.min(POSITIONS) {
                windows.pixels.go_on();
            }
        }
        let blocks = blocks(windows.taps()) as f64;
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
