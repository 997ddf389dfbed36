//! int8 depthwise convolution, one output channel an input channel, for CPUs with MVE.
//!
//! Windows: image; constants of the channels, packed; scratch; then the output image. Rows are output image rows. A row is cut
//! into stretches of a few pixels; a stretch takes eight channels at a time. What these read is turned round in scratch: channel by
//! channel, and in a channel column by column, so that the taps of a window lie side by side. One instruction then multiplies sixteen of
//! them by their weights, which, if there are no more, stay in registers for four channels and all pixels of the stretch; the sums of four channels
//! are scaled together. Their outputs are written, and nothing is read of those eight channels for them again. Rows,
//! stretches and eights of channels ascend, or descend walking down.

use kiln_core::{Call, Direction, Row};

use crate::conv2d::Conv2dParameters;
use crate::spatial::{Spatial, ceil_div};

/// int8 depthwise convolution, one output channel an input channel.
pub const DEPTHWISE_MVE_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(19, 1, 0, check, run) };

/// Channels turned round together.
const CHANNELS: usize = 8;
/// Bytes of a vector.
const VECTOR: usize = 16;
/// The most taps of a window: scratch has them for eight channels at least.
const TAPS: u32 = 128;
/// Bytes of what the sums of four channels start from, their multipliers and their shifts.
const SCALES: usize = 36;
/// Bytes that scratch has for turned columns at most, with windows one column apart and more. A longer stretch takes fewer
/// instructions, and more scratch and a longer lag; the image that a stride halves is often the largest of a network, so that
/// its scratch counts in full.
const TURNED: [u32; 2] = [624, 312];

/// How a row is cut: outputs of a stretch, and bytes of a channel's columns under it.
fn stretch(s: &Spatial) -> (u32, u32) {
    let [height, width] = s.kernel;
    let stride = s.strides[1];
    let [one, more] = TURNED;
    let most = if stride == 1 { one } else { more };
    let columns = most.checked_div(height.wrapping_mul(CHANNELS as u32)).unwrap_or(0);
    let most = columns.saturating_sub(width).checked_div(stride).unwrap_or(0).wrapping_add(1);
    let whole = s.output.width;
    // Stretches of about one length: none is much shorter than the others.
    let stretches = ceil_div(whole, most);
    let outputs = ceil_div(whole, stretches);
    let columns = outputs.wrapping_sub(1).wrapping_mul(stride).wrapping_add(width);
    (outputs, columns.wrapping_mul(height))
}

/// Bytes of scratch. The vector of a window may end behind it; where windows take several, the last one is cut.
fn scratch_bytes(s: &Spatial, pitch: u32) -> usize {
    let taps = s.kernel[0].wrapping_mul(s.kernel[1]) as usize;
    (pitch as usize).wrapping_mul(CHANNELS).wrapping_add(VECTOR.saturating_sub(taps))
}

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return false };
    let s = &p.spatial;
    let channels = s.output.channels;
    let [height, width] = s.kernel;
    s.check(call, 1)
        && p.groups == channels
        && p.groups == s.input.channels
        && height <= TAPS
        && width <= TAPS
        && height.wrapping_mul(width) <= TAPS
        && s.dilations[1] == 1
        && s.output.width != 0
        && call.input(1).ptr.addr() & 3 == 0
        && call.input(1).holds(channels.div_ceil(4) as usize, four_bytes(s) as usize)
        && call.scratch(0).holds(scratch_bytes(s, stretch(s).1), 1)
}

/// Bytes of the constants of four channels.
fn four_bytes(s: &Spatial) -> u32 {
    s.kernel[0].wrapping_mul(s.kernel[1]).wrapping_mul(4).wrapping_add(SCALES as u32)
}

/// Channels of a stretch, eight after eight; the body moves what depends on them to the next ones.
#[repr(C)]
struct Tiles {
    /// From a channel's window to its next one.
    step: usize,
    /// Bytes of a channel's columns.
    pitch: usize,
    /// From behind the last output of a channel to the first of the channel four on.
    back: usize,
    /// Outputs, at least 1.
    outputs: usize,
    /// From behind the last window of a channel to the first of the next channel.
    next: usize,
    /// How many eights, or channels, are to be computed.
    left: usize,
    /// The first channel of the first pixel inside the image.
    source: *const u8,
    /// From pixel to pixel.
    right: usize,
    /// From row to row.
    down: usize,
    /// Rows of the windows that are inside the image.
    rows: usize,
    /// Columns of the stretch that are inside the image; at least 1 if there are rows.
    columns: usize,
    /// Where the first channel of that pixel goes.
    to: *mut u8,
    /// The columns, turned.
    body: *mut u8,
    /// The first channel's first output.
    output: *mut u8,
    /// For every four channels what [`SCALES`] counts, then their weights, each channel's column by column.
    constants: *const u8,
    /// The output's zero point in the lower half, 0 in the upper.
    zero: i32,
    /// From output to output.
    output_pitch: usize,
    /// Rows of a window.
    height: usize,
    /// Taps of a window.
    taps: usize,
    /// Behind eight channels, what is added to the place of constants.
    constants_on: isize,
    /// The same of outputs.
    output_on: isize,
    /// From the source of eight channels to that of the next.
    source_on: isize,
    /// Outputs left, of windows of several vectors.
    count: usize,
}

impl Tiles {
    /// Whether [`eights`] is for these windows.
    #[inline(always)]
    fn is_small(&self) -> bool {
        self.taps == 9 && self.height == 3 && (self.step == 3 || self.step == 6)
    }
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let s = &p.spatial;
    let (most, pitch) = stretch(s);
    let width = s.output.width;
    let stretches = ceil_div(width, most) as usize;
    let [height, _] = s.kernel;
    let (down, right) = s.tap_steps();
    let up = call.direction == Direction::Up;
    let four_bytes = four_bytes(s) as isize;
    let mut tiles = Tiles {
        step: s.strides[1].wrapping_mul(height) as usize,
        pitch: pitch as usize,
        back: 0,
        outputs: 0,
        next: 0,
        left: 0,
        source: call.input(0).ptr,
        right,
        down,
        rows: 0,
        columns: 0,
        to: call.scratch(0).ptr,
        body: call.scratch(0).ptr,
        output: call.output(0).ptr,
        constants: call.input(1).ptr,
        zero: p.epilogue.output_zero & 0xffff,
        output_pitch: s.output.pixel_pitch as usize,
        height: height as usize,
        taps: height.wrapping_mul(s.kernel[1]) as usize,
        // Bodies go up; walking down, they go back over two eights after each.
        constants_on: if up { 0 } else { four_bytes.wrapping_mul(-4) },
        output_on: if up { 0 } else { -16 },
        source_on: if up { 8 } else { -8 },
        count: 0,
    };
    let count = call.rows.end.saturating_sub(call.rows.begin) as usize;
    for row in 0..count {
        let row = call.rows.begin.wrapping_add(call.direction.pick(row, count) as u32);
        let image = row.checked_div(s.output.height).unwrap_or(0);
        let y = row.wrapping_sub(image.wrapping_mul(s.output.height));
        let rows = s.row_taps(y);
        let line = Line {
            first: rows.first as usize,
            rows: rows.end.wrapping_sub(rows.first) as usize,
            input: s.input.pixel(call.input(0), image, rows.at, 0),
            output: s.output.pixel(call.output(0), image, y, 0),
        };
        for part in 0..stretches {
            let x = (call.direction.pick(part, stretches) as u32).wrapping_mul(most);
            // SAFETY: `check` proved that scratch has room for a stretch, that the pixels of input and output lie in their
            // windows, that constants are there for every channel, and alignments.
            unsafe { compute(call, p, &line, x, most.min(width.wrapping_sub(x)), &mut tiles) };
        }
    }
}

/// An output row.
struct Line {
    /// How many of the windows' rows are above the image.
    first: usize,
    /// How many are inside.
    rows: usize,
    /// The first pixel of the first of these.
    input: *const u8,
    /// The first output pixel.
    output: *mut u8,
}

/// Computes a stretch of `outputs` pixels from `x` on.
///
/// # Safety
///
/// The stretch is one of the row's; scratch has room for its columns; there are constants for every channel.
#[inline(always)]
unsafe fn compute(call: &Call<'_>, p: &Conv2dParameters, line: &Line, x: u32, outputs: u32, tiles: &mut Tiles) {
    let s = &p.spatial;
    let stride = s.strides[1];
    let columns = outputs.wrapping_sub(1).wrapping_mul(stride).wrapping_add(s.kernel[1]);
    let left = (x.wrapping_mul(stride) as i32).wrapping_sub(s.pads[1] as i32);
    let before = left.saturating_neg().max(0).min(columns as i32) as usize;
    let first = left.max(0) as usize;
    let inside = (s.input.width as usize).saturating_sub(first).min((columns as usize).wrapping_sub(before));
    let outputs = outputs as usize;
    tiles.outputs = outputs;
    tiles.back = outputs.wrapping_mul(tiles.output_pitch).wrapping_sub(4);
    tiles.next = tiles.pitch.wrapping_sub(outputs.wrapping_mul(tiles.step));
    tiles.source = line.input.wrapping_add(first.wrapping_mul(tiles.right));
    tiles.columns = inside;
    tiles.rows = if inside == 0 { 0 } else { line.rows };
    let inside_from = tiles.body.wrapping_add(before.wrapping_mul(tiles.height));
    tiles.to = inside_from.wrapping_add(line.first);
    let output = line.output.wrapping_add((x as usize).wrapping_mul(tiles.output_pitch));
    let channels = s.output.channels as usize;
    // SAFETY: padding stays from one eight of channels to the next; its bytes are of the columns that scratch has room for.
    unsafe {
        if tiles.rows < tiles.height {
            fill(tiles.body, tiles.pitch, tiles.pitch, p.epilogue.input_zero);
        } else {
            let after = (columns as usize).wrapping_sub(before).wrapping_sub(inside);
            if before > 0 {
                fill(tiles.body, before.wrapping_mul(tiles.height), tiles.pitch, p.epilogue.input_zero);
            }
            if after > 0 {
                let to = inside_from.wrapping_add(inside.wrapping_mul(tiles.height));
                fill(to, after.wrapping_mul(tiles.height), tiles.pitch, p.epilogue.input_zero);
            }
        }
    }
    let whole = channels / CHANNELS;
    let rest = channels % CHANNELS;
    let up = call.direction == Direction::Up;
    // Walking down, channels that are no whole eight come first.
    let begin = if up { 0 } else { channels.wrapping_sub(1) / CHANNELS };
    let eight_bytes = tiles.taps.wrapping_mul(2 * 4).wrapping_add(2 * SCALES);
    tiles.constants = call.input(1).ptr.wrapping_add(begin.wrapping_mul(eight_bytes));
    let begin = begin.wrapping_mul(CHANNELS);
    tiles.source = tiles.source.wrapping_add(begin);
    tiles.output = output.wrapping_add(begin);
    for eights in [up, !up] {
        // SAFETY: as the caller promises; the channels are there. Behind a whole eight the four channels before the last can
        // be read.
        unsafe {
            if eights {
                all(tiles, whole);
            } else if rest == 4 && whole > 0 && tiles.is_small() {
                four(tiles);
            } else if rest > 0 {
                tiles.left = rest;
                few(tiles);
            }
        }
    }
    if p.epilogue.clamps() {
        // SAFETY: the stretch's outputs.
        unsafe { p.epilogue.clamp_pixels(output, outputs, tiles.output_pitch, channels) };
    }
}

/// Computes `whole` eights of channels.
///
/// # Safety
///
/// The pixels inside the image can be read, and the outputs written; scratch has room; there are constants for the channels.
#[inline(always)]
unsafe fn all(tiles: &mut Tiles, whole: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        if whole > 0 && tiles.is_small() {
            tiles.left = whole;
            eights(tiles);
        } else {
            for _ in 0..whole {
                tiles.left = CHANNELS;
                few(tiles);
            }
        }
    }
}

/// Writes the zero point to `count` bytes of each of eight channels.
///
/// # Safety
///
/// `to` has `count` bytes, and so many again seven times, every `pitch` bytes.
#[cfg(not(kiln_mve))]
unsafe fn fill(to: *mut u8, count: usize, pitch: usize, zero: i32) {
    for channel in 0..CHANNELS {
        let to = to.wrapping_add(channel.wrapping_mul(pitch));
        for byte in 0..count {
            // SAFETY: as the caller promises.
            unsafe { to.wrapping_add(byte).write(zero as u8) };
        }
    }
}

/// Computes up to eight channels.
///
/// # Safety
///
/// As for [`all`].
#[cfg(not(kiln_mve))]
unsafe fn few(tiles: &mut Tiles) {
    let t = tiles;
    let four_bytes = t.taps.wrapping_mul(4).wrapping_add(SCALES);
    for channel in 0..t.left {
        let to = t.to.wrapping_add(channel.wrapping_mul(t.pitch));
        let source = t.source.wrapping_add(channel);
        for row in 0..t.rows {
            for column in 0..t.columns {
                let at = row.wrapping_mul(t.down).wrapping_add(column.wrapping_mul(t.right));
                // SAFETY: a pixel inside the image, and its place in scratch.
                unsafe {
                    let x = source.wrapping_add(at).read();
                    to.wrapping_add(row).wrapping_add(column.wrapping_mul(t.height)).write(x);
                }
            }
        }
    }
    for channel in 0..t.left {
        let lane = channel % 4;
        let four = t.constants.wrapping_add((channel / 4).wrapping_mul(four_bytes));
        let word = |number: usize| four.cast::<i32>().wrapping_add(number.wrapping_mul(4).wrapping_add(lane));
        let weights = four.wrapping_add(SCALES).wrapping_add(lane.wrapping_mul(t.taps)).cast::<i8>();
        for output in 0..t.outputs {
            let x = t.body.wrapping_add(channel.wrapping_mul(t.pitch)).wrapping_add(output.wrapping_mul(t.step));
            let to = t.output.wrapping_add(channel).wrapping_add(output.wrapping_mul(t.output_pitch));
            // SAFETY: a window of scratch, the channel's constants, and an output.
            unsafe {
                let (mut sum, multiplier) = (word(0).read(), word(1).read());
                let shift = word(2).cast::<i8>().wrapping_sub(lane.wrapping_mul(3)).read();
                for tap in 0..t.taps {
                    let product =
                        (x.wrapping_add(tap).read() as i8 as i32).wrapping_mul(weights.wrapping_add(tap).read() as i32);
                    sum = sum.wrapping_add(product);
                }
                to.write(crate::mve::finish(sum, multiplier, shift as i32, t.zero) as u8);
            }
        }
    }
    t.source = t.source.wrapping_offset(t.source_on);
    t.output = t.output.wrapping_add(CHANNELS).wrapping_offset(t.output_on);
    t.constants = t.constants.wrapping_add(four_bytes.wrapping_mul(2)).wrapping_offset(t.constants_on);
}

/// Computes eights of channels for windows of 3 by 3.
///
/// # Safety
///
/// As for [`all`].
#[cfg(not(kiln_mve))]
unsafe fn eights(tiles: &mut Tiles) {
    for _ in 0..tiles.left {
        tiles.left = CHANNELS;
        // SAFETY: as the caller promises.
        unsafe { few(tiles) };
    }
}

/// Computes four channels for windows of 3 by 3.
///
/// # Safety
///
/// As for [`all`], and the four channels before them can be read.
#[cfg(not(kiln_mve))]
unsafe fn four(tiles: &mut Tiles) {
    tiles.left = 4;
    // SAFETY: as the caller promises.
    unsafe { few(tiles) };
}

#[cfg(kiln_mve)]
use assembly::{eights, few, fill, four};

#[cfg(kiln_mve)]
mod assembly;

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;
    use kiln_ops::OpError;

    use super::*;
    use crate::conv2d::host::{channel, finish, parameters, quantization_suits};
    use crate::lag;
    use crate::mve::{TARGETS, scaling};
    use crate::table::{Direction, Emit, Kernel, Operation};
    use crate::workload::Workload;

    pub(crate) const DEPTHWISE_MVE_S8: Kernel = Kernel {
        number: super::DEPTHWISE_MVE_S8.number(),
        name: "depthwise_mve_s8",
        row_name: "DEPTHWISE_MVE_S8",
        targets: TARGETS,
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| {
            geometry(operation).is_some_and(|p| (0..p.groups as usize).all(|o| scale(operation, o).is_some()))
        },
        prepare: |operation, emit| {
            let p = geometry(operation).ok_or(OpError::TooLarge)?;
            emit.input(0);
            pack(operation, &p, emit)?;
            emit.scratch(scratch_bytes(&p.spatial, stretch(&p.spatial).1) as u64);
            finish(operation, DType::I8, emit)
        },
        lag: |operation, input, direction| {
            let p = geometry(operation).filter(|_| input == 0)?;
            let steps = [stretch(&p.spatial).0, CHANNELS as u32];
            lag::stretches(&p.spatial, operation.output.ty.shape.dim(0), steps, direction)
        },
        portable: super::DEPTHWISE_MVE_S8,
        native: None,
        work: Some(work),
    };

    /// Outputs of four channels, fours of channels of a stretch, columns turned of each row, stretches, columns of padding, and rows.
    fn work(operation: &Operation<'_>) -> Option<Workload> {
        let p = geometry(operation)?;
        let s = &p.spatial;
        let (most, _) = stretch(s);
        let images = f64::from(operation.output.ty.shape.dim(0));
        let [stretches, columns, beside] = s.stretches(most);
        let taps = (0..s.output.height).map(|y| s.row_taps(y)).map(|rows| rows.end - rows.first).sum::<u32>();
        let rows = f64::from(s.output.height) * images;
        let [fours, eights] = [4, 8].map(|together| f64::from(p.groups.div_ceil(together)));
        Some(Workload {
            products: rows * f64::from(s.output.width) * fours,
            outputs: rows * stretches * fours,
            lines: f64::from(taps) * images * columns * eights,
            vectors: rows * stretches,
            padding: rows * beside * f64::from(s.kernel[0]),
            gathered: rows,
            ..Workload::default()
        })
    }

    /// What a channel's sum starts from, its multiplier and its shift, if they can be applied to vectors.
    fn scale(operation: &Operation<'_>, o: usize) -> Option<(i32, i32, i32)> {
        let (start, multiplier, shift) = channel(operation, o);
        scaling(multiplier, shift).map(|(multiplier, shift)| (start, multiplier, shift))
    }

    /// The parameters of a convolution of the form that the row takes.
    fn geometry(operation: &Operation<'_>) -> Option<Conv2dParameters> {
        let (_, p) = parameters(operation, DType::I8)?;
        let s = &p.spatial;
        let suits = p.group_inputs == 1
            && p.group_outputs == 1
            && s.kernel.iter().map(|&size| u64::from(size)).product::<u64>() <= u64::from(TAPS)
            && s.dilations[1] == 1
            && quantization_suits(operation);
        suits.then_some(p)
    }

    /// Emits scales and weights, four channels after four.
    fn pack(operation: &Operation<'_>, p: &Conv2dParameters, emit: &mut dyn Emit) -> Result<(), OpError> {
        let data = operation.inputs.get(1).and_then(|w| w.data);
        let data = data.ok_or(OpError::Quantization("depthwise weights must be constant"))?;
        let [height, width] = p.spatial.kernel.map(|size| size as usize);
        let each = four_bytes(&p.spatial) as usize;
        emit.constant("weights and scales", p.groups.div_ceil(4) as usize * each, &mut |packed| {
            for (four, record) in packed.chunks_exact_mut(each).enumerate() {
                let (scales, weights) = record.split_at_mut(SCALES);
                let (starts, rest) = scales.split_at_mut(16);
                let (multipliers, shifts) = rest.split_at_mut(16);
                let words = starts.chunks_exact_mut(4).zip(multipliers.chunks_exact_mut(4));
                let bytes = weights.chunks_exact_mut(height * width).zip(shifts);
                for (lane, ((first, second), (to, left))) in words.zip(bytes).enumerate() {
                    let o = 4 * four + lane;
                    // Channels that are not there are computed too, and not written.
                    let Some(taps) = data.get(o * to.len()..(o + 1) * to.len()) else { continue };
                    let (start, multiplier, shift) = scale(operation, o).unwrap_or((0, 0, -1));
                    first.copy_from_slice(&start.to_le_bytes());
                    second.copy_from_slice(&multiplier.to_le_bytes());
                    *left = shift as i8 as u8;
                    for (at, to) in to.iter_mut().enumerate() {
                        *to = taps.get(at % height * width + at / height).copied().unwrap_or(0);
                    }
                }
            }
        });
        Ok(())
    }
}
