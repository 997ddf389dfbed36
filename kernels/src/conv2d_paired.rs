//! int8 convolution of one group as a product of matrices ([`crate::paired`]), for CPUs with the DSP extension.
//!
//! Windows: image, weights and constants as `paired` packs them, scratch for three windows, widened; then the output
//! image. Rows are output image rows. The walk is the plain convolution's, but three pixels at a time, across the ends of rows: all
//! of their windows are read before the first of their outputs is written, and nothing is read of them afterwards.

use kiln_core::{Call, Row};

use crate::conv2d::Conv2dParameters;
use crate::dsp::{sxtb16, sxtb16_ror8};
use crate::paired::{GROUP, POSITIONS, Tile, channel_bytes, groups, run as run_tile, widen, widen_in_place};
use crate::pixels::Pixels;
use crate::spatial::Taps;

/// int8 convolution.
pub const CONV2D_PAIRED_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(14, 1, 0, check, run) };

/// The taps of a window, channels and all.
fn taps(p: &Conv2dParameters) -> Option<usize> {
    let [height, width] = p.spatial.kernel.map(|n| n as usize);
    height.checked_mul(width)?.checked_mul(p.group_inputs as usize)
}

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return false };
    taps(p).is_some_and(|taps| check_parts(call, p, groups(taps), [4, channel_bytes(taps), GROUP]))
}

/// What rows that compute channels in pairs have in common: windows are of `parts` parts, each of which takes so many bytes of weights
/// for a channel, the block so many, and scratch so many for a part.
#[inline(never)]
pub(crate) fn check_parts(
    call: &Call<'_>,
    p: &Conv2dParameters,
    parts: usize,
    [weights, block, scratch]: [usize; 3],
) -> bool {
    let s = &p.spatial;
    let outputs = s.output.channels as usize;
    let aligned = call.input(1).ptr.addr() | call.input(2).ptr.addr() | call.scratch(0).ptr.addr();
    s.check(call, 1)
        && p.groups == 1
        && p.group_inputs == s.input.channels
        && outputs & 1 == 0
        && aligned & 3 == 0
        && parts.checked_mul(outputs).is_some_and(|n| call.input(1).holds(n, weights))
        && call.input(2).holds(outputs, block)
        && call.scratch(0).holds(parts, scratch)
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let taps = taps(p).unwrap_or(0);
    let scratch = call.scratch(0).ptr;
    let pairs = p.spatial.output.channels as usize >> 1;
    let mut tile = Tile::new(scratch, taps, call.input(1).ptr, call.input(2).ptr, pairs, p.epilogue.output_zero);
    let mut walk = Walk::new(call, p);
    while walk.pixels.left > 0 {
        // SAFETY: `check` proved that scratch holds the widened windows, that taps inside the image are inside its window,
        // that weights and constants are there for every pair of channels, and the alignment of all three.
        unsafe {
            let tiles = walk.tiles_inside();
            for _ in 0..tiles {
                walk.gather_inside(&mut tile);
                products(&tile, p);
            }
            if tiles > 0 {
                walk.pixels.settle(tiles.wrapping_mul(POSITIONS));
            } else {
                walk.gather_edges(scratch.cast(), taps, &mut tile.outputs);
                products(&tile, p);
            }
        }
    }
}

/// Writes the outputs of a tile.
///
/// # Safety
///
/// That of [`run_tile`].
#[inline(always)]
unsafe fn products(tile: &Tile, p: &Conv2dParameters) {
    // SAFETY: the caller's promise.
    unsafe {
        run_tile(tile);
        if p.epilogue.clamps() {
            p.epilogue.clamp_at(&tile.outputs, p.spatial.output.channels as usize);
        }
    }
}

/// The windows of a call's pixels.
struct Walk<'a> {
    p: &'a Conv2dParameters,
    pixels: Pixels<'a>,
    /// Runs of a window row that lie side by side, and groups in each of them; no groups where windows come otherwise.
    runs: usize,
    each: usize,
    /// Whether a window is three lines of nine bytes.
    colours: bool,
    /// Whether its lines are four bytes, and those of the image as many or more.
    words: bool,
}

impl<'a> Walk<'a> {
    /// At the first pixel.
    #[inline(always)]
    fn new(call: &'a Call<'a>, p: &'a Conv2dParameters) -> Walk<'a> {
        let s = &p.spatial;
        // Where taps follow one another without a gap, all of a window row is one run.
        let (depth, taps) = (p.group_inputs as usize, s.kernel[1] as usize);
        let (runs, length) = if s.tap_steps().1 == depth { (1, taps.wrapping_mul(depth)) } else { (taps, depth) };
        let colours = runs == 1 && length == 9 && s.kernel[0] == 3;
        let words = runs == 1 && length == 4 && (s.input.width as usize).wrapping_mul(depth) >= 4;
        let each = if length & 3 == 0 { length >> 2 } else { 0 };
        let mut walk = Walk { p, pixels: Pixels::new(call, s), runs, each, colours, words };
        walk.pixels.begin();
        walk
    }

    /// How many times the next three pixels are of one row, with windows inside the image that are gathered as they lie.
    #[inline(always)]
    fn tiles_inside(&self) -> usize {
        // A division by 3: there are fewer than 2^31 pixels.
        if self.each > 0 || self.colours { self.pixels.inside() / POSITIONS } else { 0 }
    }

    /// Widens the windows of the next three pixels, which are inside the image, says where their outputs go, and moves
    /// to the next.
    ///
    /// # Safety
    ///
    /// The windows can be read, and `tile.x` has [`GROUP`] bytes for each group of a window, aligned to 4 bytes.
    #[inline(never)]
    unsafe fn gather_inside(&mut self, tile: &mut Tile) {
        let p = self.p;
        let pixels = &mut self.pixels;
        let (across, step) = pixels.steps;
        let (source, first) = (pixels.source, pixels.output);
        let second = first.wrapping_offset(step);
        let third = second.wrapping_offset(step);
        tile.outputs = [first, second, third];
        let more = POSITIONS as isize;
        (pixels.source, pixels.output) =
            (source.wrapping_offset(across.wrapping_mul(more)), third.wrapping_offset(step));
        let (down, right) = p.spatial.tap_steps();
        let mut to = tile.x.cast_mut();
        // SAFETY: the windows are inside the image, so each run can be read; together they are the groups.
        unsafe {
            if self.colours {
                let mut line = source;
                for position in 0..POSITIONS {
                    three_nines(line, down, to.wrapping_add(position));
                    line = line.wrapping_offset(across);
                }
                return;
            }
            let each = self.each;
            let mut line = source;
            for _ in 0..p.spatial.kernel[0] {
                let mut x = line;
                for _ in 0..self.runs {
                    widen(x, across, to, each);
                    x = x.wrapping_add(right);
                    to = to.wrapping_add(each.wrapping_mul(GROUP / 4));
                }
                line = line.wrapping_add(down);
            }
        }
    }

    /// The same wherever they are. If fewer than three are left, the last stands for those that are missing.
    ///
    /// # Safety
    ///
    /// As above, for the groups of `taps`; at least one pixel is left.
    #[inline(never)]
    unsafe fn gather_edges(&mut self, to: *mut i32, taps: usize, outputs: &mut [*mut u8; POSITIONS]) {
        let groups = groups(taps);
        let mut at = to.wrapping_add(groups.wrapping_mul(POSITIONS));
        for output in outputs {
            *output = self.pixels.output;
            // SAFETY: the place of a position's bytes in the upper half of `to`.
            unsafe { fill(self, Interleaved { at: at.cast() }) };
            at = at.wrapping_add(1);
            if self.pixels.left > 1 {
                self.pixels.go_on();
            } else {
                self.pixels.left = 0;
            }
        }
        // SAFETY: as the caller promises.
        unsafe { widen_in_place(to, groups) };
    }
}

/// Widens a window of three lines of nine bytes, a first layer's over pixels of three colours.
///
/// # Safety
///
/// The lines can be read, and `to` has room for 7 groups.
#[inline(never)]
unsafe fn three_nines(line: *const u8, down: usize, to: *mut i32) {
    let word = |line: *const u8, at: usize| {
        // SAFETY: four of a line's nine bytes.
        unsafe { line.wrapping_add(at).cast::<i32>().read_unaligned() }
    };
    let half = |line: *const u8, at: usize| {
        // SAFETY: two of a line's nine bytes.
        unsafe { line.wrapping_add(at).cast::<u16>().read_unaligned() as i32 }
    };
    let (second, third) = (line.wrapping_add(down), line.wrapping_add(down).wrapping_add(down));
    // SAFETY: the last of a line's nine bytes.
    let ninth = unsafe { line.wrapping_add(8).read() as i32 };
    let put = |group: usize, word: i32| {
        let to = to.wrapping_add(group.wrapping_mul(GROUP / 4));
        // SAFETY: one of the groups.
        unsafe {
            to.write(sxtb16(word));
            to.wrapping_add(POSITIONS).write(sxtb16_ror8(word));
        }
    };
    put(0, word(line, 0));
    put(1, word(line, 4));
    put(2, ninth | word(second, 0).wrapping_shl(8));
    put(3, word(second, 3));
    put(4, half(second, 7) | half(third, 0).wrapping_shl(16));
    put(5, word(third, 2));
    // The last place has no tap.
    put(6, (word(third, 5) as u32).wrapping_shr(8) as i32);
}

/// Bytes of one position among those of the others: four, then a gap.
struct Interleaved {
    at: *mut u8,
}

impl Interleaved {
    /// Bytes from one word of a position to the next.
    const STEP: usize = 4 * POSITIONS;

    /// Goes past a byte.
    #[inline(always)]
    fn pass(&mut self) {
        self.at = self.at.wrapping_add(1);
        if self.at.addr() & 3 == 0 {
            self.at = self.at.wrapping_add(Self::STEP - 4);
        }
    }

    /// The next `n` bytes, from `x`, four by four where they fill a word.
    ///
    /// # Safety
    ///
    /// There are so many places left, and so many bytes at `x`.
    #[inline(never)]
    unsafe fn copy(&mut self, mut x: *const u8, mut n: usize) {
        loop {
            if self.at.addr() & 3 == 0 {
                for _ in 0..n >> 2 {
                    // SAFETY: four of the bytes, and a word of the position's.
                    unsafe { self.at.cast::<u32>().write(x.cast::<u32>().read_unaligned()) };
                    self.at = self.at.wrapping_add(Self::STEP);
                    x = x.wrapping_add(4);
                }
                n &= 3;
            }
            if n == 0 {
                return;
            }
            // SAFETY: one of the bytes.
            unsafe { self.at.write(x.read()) };
            self.pass();
            x = x.wrapping_add(1);
            n = n.wrapping_sub(1);
        }
    }

    /// The next `n` bytes, all the same.
    ///
    /// # Safety
    ///
    /// There are so many places left.
    #[inline(never)]
    unsafe fn put(&mut self, byte: u8, mut n: usize) {
        let word = u32::from_ne_bytes([byte; 4]);
        loop {
            if self.at.addr() & 3 == 0 {
                for _ in 0..n >> 2 {
                    // SAFETY: a word of the position's.
                    unsafe { self.at.cast::<u32>().write(word) };
                    self.at = self.at.wrapping_add(Self::STEP);
                }
                n &= 3;
            }
            if n == 0 {
                return;
            }
            // SAFETY: a byte of the position's.
            unsafe { self.at.write(byte) };
            self.pass();
            n = n.wrapping_sub(1);
        }
    }
}

/// Writes a window whose lines are words, `first..end` of `all` inside the image, and of their bytes `left..right`.
///
/// # Safety
///
/// `line` is where those begin, in a line of at least four bytes that can be read, and the next is `down` bytes from there. `to` has a
/// word for each line, of all positions.
#[inline(never)]
unsafe fn fill_words(
    line: *const u8,
    down: usize,
    [first, end, all]: [u32; 3],
    [left, right]: [usize; 2],
    zero: u8,
    to: *mut u32,
) {
    let padding = u32::from_ne_bytes([zero; 4]);
    // No byte: no line. A line that ends early is read from where it has four bytes, and one of both sides fits there.
    let end = if left < right { end } else { first };
    let missing = 4usize.wrapping_sub(right);
    let (down_shift, up_shift) = ((missing as u32).wrapping_mul(8), (left as u32).wrapping_mul(8));
    let all_ones = u32::MAX.wrapping_shl(up_shift).wrapping_shl(down_shift).wrapping_shr(down_shift);
    let (mut line, mut to) = (line.wrapping_sub(missing), to);
    for number in 0..all {
        let mut word = padding;
        if number >= first && number < end {
            // SAFETY: four bytes of a line, of which those inside the window are moved to their places.
            let bytes = unsafe { line.cast::<u32>().read_unaligned() };
            let bytes = bytes.wrapping_shr(down_shift).wrapping_shl(up_shift);
            word = (bytes & all_ones) | (padding & !all_ones);
            line = line.wrapping_add(down);
        }
        // SAFETY: the line's word.
        unsafe { to.write(word) };
        to = to.wrapping_add(POSITIONS);
    }
}

/// Writes the window of the walk's next pixel, with the zero point where a tap is padding.
///
/// # Safety
///
/// Taps inside the image can be read; `to` has a place for each tap.
#[inline(always)]
unsafe fn fill(walk: &Walk<'_>, mut to: Interleaved) {
    let s = &walk.p.spatial;
    let depth = walk.p.group_inputs as usize;
    let (down, right) = s.tap_steps();
    let all = |n: u32| Taps { first: 0, end: n, at: 0 };
    let (mut rows, mut columns, mut line) = (all(s.kernel[0]), all(s.kernel[1]), walk.pixels.source);
    if !walk.pixels.is_inside() {
        let (row, x) = walk.pixels.place();
        let image = row.checked_div(s.output.height).unwrap_or(0);
        rows = s.row_taps(row.wrapping_sub(image.wrapping_mul(s.output.height)));
        columns = s.column_taps(x);
        line = s.input.pixel(walk.pixels.call.input(0), image, rows.at, columns.at);
    }
    let zero = walk.p.epilogue.input_zero as u8;
    let of = |taps: u32| (taps as usize).wrapping_mul(depth);
    if walk.words {
        let lines = [rows.first, rows.end, s.kernel[0]];
        let bytes = [of(columns.first), of(columns.end)];
        // SAFETY: lines of the image for taps inside it, as the caller promises, which have at least four bytes.
        return unsafe { fill_words(line, down, lines, bytes, zero, to.at.cast()) };
    }
    let taps = columns.end.wrapping_sub(columns.first);
    let (runs, length) = if right == depth { (1, of(taps)) } else { (taps, depth) };
    // Padding is put together: what is right of one line with what is left of the next.
    let mut padding = of(rows.first.wrapping_mul(s.kernel[1]));
    for _ in rows.first..rows.end {
        // SAFETY: bytes of the image for taps inside it, as the caller promises.
        unsafe {
            // Most lines of an image's inside have none between them.
            let before = padding.wrapping_add(of(columns.first));
            if before > 0 {
                to.put(zero, before);
            }
            let mut x = line;
            for _ in 0..runs {
                to.copy(x, length);
                x = x.wrapping_add(right);
            }
        }
        padding = of(s.kernel[1].wrapping_sub(columns.end));
        line = line.wrapping_add(down);
    }
    let below = s.kernel[0].wrapping_sub(rows.end);
    // SAFETY: what is left of the window, and the places without a tap behind it, up to the group's end.
    unsafe {
        to.put(zero, padding.wrapping_add(of(below.wrapping_mul(s.kernel[1]))));
        to.put(0, to.at.addr().wrapping_neg() & 3);
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{DType, TargetId};

    use super::*;
    use crate::conv2d::host::{channel, finish, parameters, quantization_suits};
    use crate::paired::host::Channels;
    use crate::table::{Direction, Kernel, Operation};
    use crate::workload::Workload;
    use crate::{lag, lowering};

    pub(crate) const CONV2D_PAIRED_S8: Kernel = Kernel {
        number: super::CONV2D_PAIRED_S8.number(),
        name: "conv2d_paired_s8",
        row_name: "CONV2D_PAIRED_S8",
        targets: TARGETS,
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| {
            let suits = parameters(operation, DType::I8).is_some_and(|(_, p)| p.groups == 1);
            suits && quantization_suits(operation) && channels(operation, |channels| channels.pair_up()) == Some(true)
        },
        prepare: |operation, emit| {
            emit.input(0);
            channels(operation, |channels| channels.emit(emit));
            let taps = parameters(operation, DType::I8).and_then(|(_, p)| taps(&p));
            emit.scratch(groups(taps.unwrap_or(0)) as u64 * GROUP as u64);
            finish(operation, DType::I8, emit)
        },
        lag: |operation, input, direction| {
            let (_, p) = parameters(operation, DType::I8).filter(|_| input == 0)?;
            lag::tiles(&p.spatial, operation.output.ty.shape.dim(0), POSITIONS as u32, direction)
        },
        portable: super::CONV2D_PAIRED_S8,
        native: None,
        work: Some(work),
    };

    /// Pixels beyond which tiles are not counted.
    const COUNTED: usize = 1 << 22;

    /// Groups of taps multiplied, pairs of channels, and for tiles inside the image and for others their number and what they
    /// gather, for others their lines as well.
    fn work(operation: &Operation<'_>) -> Option<Workload> {
        let (_, p) = parameters(operation, DType::I8)?;
        let rows = kiln_core::RowRange { begin: 0, end: lowering::image_rows(&operation.output.ty)? };
        let call = Call::new(&[], &[], &[], &[], rows);
        let mut walk = Walk::new(&call, &p);
        let (mut inside, mut others) = (0u32, 0u32);
        if walk.pixels.left > COUNTED {
            return None;
        }
        while walk.pixels.left > 0 {
            let tiles = walk.tiles_inside();
            if tiles > 0 {
                walk.pixels.settle(tiles * POSITIONS);
                inside += tiles as u32;
                continue;
            }
            others += 1;
            for _ in 0..POSITIONS {
                if walk.pixels.left > 1 {
                    walk.pixels.go_on();
                } else {
                    walk.pixels.left = 0;
                }
            }
        }
        let taps = taps(&p)?;
        let (groups, pairs) = (groups(taps) as f64, f64::from(p.spatial.output.channels / 2));
        let [inside, others] = [inside, others].map(f64::from);
        let outputs = (inside + others) * pairs;
        Some(Workload {
            products: outputs * groups,
            outputs,
            vectors: inside,
            gathered: inside * groups,
            edges: others,
            gathered_at_edges: others * taps as f64,
            lines: others * f64::from(p.spatial.kernel[0]),
            ..Workload::default()
        })
    }

    /// CPUs with the DSP extension.
    pub(crate) const TARGETS: &[TargetId] = &[TargetId::ARMV7EM, TargetId::ARMV8M, TargetId::ARMV81M];

    /// Does something with the output channels of a convolution with constant weights.
    pub(crate) fn channels<R>(operation: &Operation<'_>, with: impl FnOnce(&Channels<'_>) -> R) -> Option<R> {
        let w = operation.inputs.get(1)?;
        let constants = |o: usize| channel(operation, o);
        let zero = operation.output.quant.zero_point(0);
        Some(with(&Channels { count: w.ty.shape.dim(0) as usize, weights: w.data?, constants: &constants, zero }))
    }
}
