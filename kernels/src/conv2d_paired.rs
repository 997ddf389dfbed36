//! int8 convolution of one group as a product of matrices ([`crate::paired`]), for CPUs with the DSP extension.
//!
//! Windows: image, weights and constants as `paired` packs them, scratch for three windows, widened; then the output
//! image. Rows are output image rows. The walk is the plain convolution's, but three pixels at a time, across the ends of rows: all
//! of their windows are read before the first of their outputs is written, and nothing is read of them afterwards.

use kiln_core::{Call, Direction, Row};

use crate::conv2d::Conv2dParameters;
use crate::dsp::{sxtb16, sxtb16_ror8};
use crate::paired::{GROUP, POSITIONS, Tile, groups, run as run_tile, widen, widen_in_place};
use crate::spatial::{Image, Taps, ceil_div};

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
    let s = &p.spatial;
    let outputs = s.output.channels as usize;
    let aligned = call.input(1).ptr.addr() | call.input(2).ptr.addr() | call.scratch(0).ptr.addr();
    s.check(call, 1)
        && p.groups == 1
        && p.group_inputs == s.input.channels
        && outputs & 1 == 0
        && aligned & 3 == 0
        && call.input(2).holds(outputs, 9)
        && taps(p).is_some_and(|taps| {
            let groups = groups(taps);
            let weights = groups.checked_mul(outputs);
            weights.is_some_and(|n| call.input(1).holds(n, 4)) && call.scratch(0).holds(groups, GROUP)
        })
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let groups = groups(taps(p).unwrap_or(0));
    let scratch = call.scratch(0).ptr;
    let pairs = p.spatial.output.channels as usize >> 1;
    let mut tile = Tile::new(scratch, groups, call.input(1).ptr, call.input(2).ptr, pairs, p.epilogue.output_zero);
    let mut walk = Walk::new(call, p);
    while walk.left > 0 {
        // SAFETY: `check` proved that scratch holds the widened windows, that taps inside the image are inside its window,
        // that weights and constants are there for every pair of channels, and the alignment of all three.
        unsafe {
            let tiles = walk.tiles_inside();
            for _ in 0..tiles {
                walk.gather_inside(&mut tile);
                products(&mut tile, call, p);
            }
            if tiles > 0 {
                walk.settle(tiles);
            } else {
                walk.gather_edges(scratch.cast(), groups, &mut tile.outputs);
                products(&mut tile, call, p);
            }
        }
    }
}

/// Writes the outputs of a tile.
///
/// # Safety
///
/// That of [`run_tile`].
#[inline(never)]
unsafe fn products(tile: &mut Tile, call: &Call<'_>, p: &Conv2dParameters) {
    let pairs = tile.pairs;
    // SAFETY: the caller's promise.
    unsafe {
        run_tile(tile);
        tile.rewind(call.input(2).ptr, pairs);
        if p.epilogue.low > -128 || p.epilogue.high < 127 {
            // Some may be the same: to clamp twice changes nothing.
            let back = pairs << 1;
            tile.outputs.iter().for_each(|&end| clamp(end.wrapping_sub(back), back, p));
        }
    }
}

/// The pixels of a call, one after the other.
struct Walk<'a> {
    call: &'a Call<'a>,
    p: &'a Conv2dParameters,
    /// Pixels to come.
    left: usize,
    /// Pixels of a row; all there are where rows follow one another without a gap and windows are single pixels.
    width: u32,
    /// Columns of the row whose windows are inside the image: none where the row's are not.
    inside: (u32, u32),
    /// The columns of rows whose windows are inside.
    columns: (u32, u32),
    /// The next pixel: its row, counted over all images, its column, the first byte under its window if that is inside the
    /// image, its outputs.
    row: u32,
    x: u32,
    source: *const u8,
    output: *mut u8,
    /// From one to the next.
    steps: (isize, isize),
    /// Runs of a window row that lie side by side, and groups in each of them; no groups where windows come otherwise.
    runs: usize,
    each: usize,
    /// Whether a window is three lines of nine bytes.
    colours: bool,
}

impl<'a> Walk<'a> {
    /// At the first pixel.
    #[inline(always)]
    fn new(call: &'a Call<'a>, p: &'a Conv2dParameters) -> Walk<'a> {
        let (source, output) = (core::ptr::null(), core::ptr::null_mut());
        let (inside, columns, steps) = ((0, 0), (0, 0), (0, 0));
        let (left, width, row, x, runs, each, colours) = (0, 0, 0, 0, 0, 0, false);
        let mut walk =
            Walk { call, p, left, width, inside, columns, row, x, source, output, steps, runs, each, colours };
        walk.begin();
        walk
    }

    /// Goes to the first pixel. Written in place: returned, it would be copied.
    #[inline(never)]
    fn begin(&mut self) {
        let (call, p) = (self.call, self.p);
        let s = &p.spatial;
        let [stride_down, stride] = s.strides;
        let rows = call.rows.end.saturating_sub(call.rows.begin);
        let left = (rows as usize).wrapping_mul(s.output.width as usize);
        let dense = |image: &Image| {
            image.width.wrapping_mul(image.pixel_pitch) == image.row_pitch
                && image.height.wrapping_mul(image.row_pitch) == image.image_pitch
        };
        let reach = s.kernel[1].wrapping_sub(1).wrapping_mul(s.dilations[1]);
        let first = ceil_div(s.pads[1], stride);
        let end = match s.input.width.checked_sub(reach) {
            Some(room) if room > 0 => {
                let last = room.wrapping_sub(1).wrapping_add(s.pads[1]).checked_div(stride).unwrap_or(0);
                last.wrapping_add(1).min(s.output.width)
            }
            _ => 0,
        };
        let step = (stride as isize).wrapping_mul(s.input.pixel_pitch as isize);
        let steps = (step, s.output.pixel_pitch as isize);
        let up = call.direction == Direction::Up;
        // Where taps follow one another without a gap, all of a window row is one run.
        let (depth, taps) = (p.group_inputs as usize, s.kernel[1] as usize);
        let (runs, length) = if s.tap_steps().1 == depth { (1, taps.wrapping_mul(depth)) } else { (taps, depth) };
        let colours = runs == 1 && length == 9 && s.kernel[0] == 3;
        let each = if length & 3 == 0 { length >> 2 } else { 0 };
        let single = s.kernel == [1; 2] && s.pads == [0; 2] && stride == 1 && stride_down == 1;
        let flat = single && s.input.width == s.output.width && s.input.height == s.output.height;
        let flat = flat && dense(&s.input) && dense(&s.output) && each > 0;
        // Windows that are not gathered as they lie are nowhere inside.
        let (first, end) = if each > 0 || colours { (first, end) } else { (0, 0) };
        let width = if flat { left as u32 } else { s.output.width };
        (self.left, self.width) = (left, width);
        self.columns = if flat { (0, width) } else { (first, end) };
        self.steps = if up { steps } else { (steps.0.wrapping_neg(), steps.1.wrapping_neg()) };
        (self.runs, self.each, self.colours) = (runs, each, colours);
        if left > 0 {
            self.enter(if up { call.rows.begin } else { call.rows.end.wrapping_sub(1) });
            if flat && !up {
                self.x = width.wrapping_sub(1);
            }
        }
    }

    /// Goes to the first pixel of a row, or to the last.
    #[inline(never)]
    fn enter(&mut self, row: u32) {
        let s = &self.p.spatial;
        let image = row.checked_div(s.output.height).unwrap_or(0);
        let y = row.wrapping_sub(image.wrapping_mul(s.output.height));
        let x = if self.call.direction == Direction::Up { 0 } else { s.output.width.wrapping_sub(1) };
        let reach = s.kernel[0].wrapping_sub(1).wrapping_mul(s.dilations[0]) as i32;
        let top = (y.wrapping_mul(s.strides[0]) as i32).wrapping_sub(s.pads[0] as i32);
        self.inside = if top >= 0 && top.wrapping_add(reach) < s.input.height as i32 { self.columns } else { (0, 0) };
        // Signed, as wrapping arithmetic is: outside the image the pointer is not used.
        let left = x.wrapping_mul(s.strides[1]).wrapping_sub(s.pads[1]) as i32 as isize;
        let to_left = left.wrapping_mul(s.input.pixel_pitch as isize);
        self.source = s.input.pixel(self.call.input(0), image, top as u32, 0).wrapping_offset(to_left);
        self.output = s.output.pixel(self.call.output(0), image, y, x);
        (self.row, self.x) = (row, x);
    }

    /// Goes on by a pixel.
    #[inline(always)]
    fn go_on(&mut self) {
        self.left = self.left.wrapping_sub(1);
        self.source = self.source.wrapping_offset(self.steps.0);
        self.output = self.output.wrapping_offset(self.steps.1);
        self.arrive(1);
    }

    /// Is `n` pixels further, at most at the row's end, and from there at the next row.
    #[inline(always)]
    fn arrive(&mut self, n: u32) {
        if self.call.direction == Direction::Up {
            self.x = self.x.wrapping_add(n);
            if self.x == self.width {
                self.enter(self.row.wrapping_add(1));
            }
        } else if self.x >= n {
            self.x = self.x.wrapping_sub(n);
        } else {
            self.enter(self.row.wrapping_sub(1));
        }
    }

    /// How many times the next three pixels are of one row, with windows inside the image that are gathered as they lie.
    #[inline(always)]
    fn tiles_inside(&self) -> u32 {
        let (from, end) = self.inside;
        if self.x < from || self.x >= end {
            return 0;
        }
        let pixels = match self.call.direction {
            Direction::Up => end.wrapping_sub(self.x),
            Direction::Down => self.x.wrapping_sub(from).wrapping_add(1),
        };
        // A division by 3: `left` is smaller than 2^31.
        ((pixels as usize).min(self.left) / POSITIONS) as u32
    }

    /// Goes past so many tiles that were gathered: pointers have moved already.
    #[inline(never)]
    fn settle(&mut self, tiles: u32) {
        let n = tiles.wrapping_mul(POSITIONS as u32);
        self.left = self.left.wrapping_sub(n as usize);
        self.arrive(n);
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
        let (across, step) = self.steps;
        let (source, first) = (self.source, self.output);
        let second = first.wrapping_offset(step);
        let third = second.wrapping_offset(step);
        tile.outputs = [first, second, third];
        let more = POSITIONS as isize;
        (self.source, self.output) = (source.wrapping_offset(across.wrapping_mul(more)), third.wrapping_offset(step));
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
    /// As above, for `groups` groups; at least one pixel is left.
    #[inline(never)]
    unsafe fn gather_edges(&mut self, to: *mut i32, groups: usize, outputs: &mut [*mut u8; POSITIONS]) {
        let mut at = to.wrapping_add(groups.wrapping_mul(POSITIONS));
        for output in outputs {
            *output = self.output;
            // SAFETY: the place of a position's bytes in the upper half of `to`.
            unsafe { fill(self, Interleaved { at: at.cast() }) };
            at = at.wrapping_add(1);
            if self.left > 1 {
                self.go_on();
            } else {
                self.left = 0;
            }
        }
        // SAFETY: as the caller promises.
        unsafe { widen_in_place(to, groups) };
    }
}

/// Clamps the `n` outputs of a pixel.
///
/// # Safety
///
/// They can be read and written.
#[inline(never)]
pub(crate) unsafe fn clamp(output: *mut u8, n: usize, p: &Conv2dParameters) {
    for o in 0..n {
        let at = output.wrapping_add(o).cast::<i8>();
        // SAFETY: one of the `n` outputs.
        unsafe { at.write((at.read() as i32).max(p.epilogue.low).min(p.epilogue.high) as i8) };
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
    let (mut rows, mut columns, mut line) = (all(s.kernel[0]), all(s.kernel[1]), walk.source);
    if walk.x < walk.inside.0 || walk.x >= walk.inside.1 {
        let image = walk.row.checked_div(s.output.height).unwrap_or(0);
        rows = s.row_taps(walk.row.wrapping_sub(image.wrapping_mul(s.output.height)));
        columns = s.column_taps(walk.x);
        line = s.input.pixel(walk.call.input(0), image, rows.at, columns.at);
    }
    let zero = walk.p.epilogue.input_zero as u8;
    let of = |taps: u32| (taps as usize).wrapping_mul(depth);
    let taps = columns.end.wrapping_sub(columns.first);
    let (runs, length) = if right == depth { (1, of(taps)) } else { (taps, depth) };
    // Padding is put together: what is right of one line with what is left of the next.
    let mut padding = of(rows.first.wrapping_mul(s.kernel[1]));
    for _ in rows.first..rows.end {
        // SAFETY: bytes of the image for taps inside it, as the caller promises.
        unsafe {
            to.put(zero, padding.wrapping_add(of(columns.first)));
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
    // SAFETY: what is left of the window. Behind it, the last group may have places without a tap, whose weights are 0.
    unsafe { to.put(zero, padding.wrapping_add(of(below.wrapping_mul(s.kernel[1])))) };
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
        if walk.left > COUNTED {
            return None;
        }
        while walk.left > 0 {
            let tiles = walk.tiles_inside();
            if tiles > 0 {
                walk.settle(tiles);
                inside += tiles;
                continue;
            }
            others += 1;
            for _ in 0..POSITIONS {
                if walk.left > 1 {
                    walk.go_on();
                } else {
                    walk.left = 0;
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
