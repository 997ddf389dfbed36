//! int8 depthwise convolution with windows of 3 by 3, for CPUs that multiply one number at a time.
//!
//! Windows: image; weights `[O, KH, KW]`; constants of the channels; then the output image. Rows are output image rows. A row is cut
//! into stretches of pixels, and a channel walks along a stretch with its weights and constants at hand, so each element of
//! the image is read once for all windows over it. A row of the window that is padding has its weights made zero and what they
//! add put into what sums start from; so has the first column, and the last is added where the walk ends. Rows, stretches, channels
//! and pixels ascend, or descend walking down. An output element is written when its window has been read.

use kiln_core::{Call, Direction, Row};

use crate::arithmetic::S8;
use crate::conv2d::{self, Conv2dParameters};
use crate::spatial::Spatial;

/// int8 depthwise convolution, one output channel an input channel.
pub const DEPTHWISE_SCALAR_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(23, 1, 0, check, run) };

/// The most pixels of a stretch: a longer one takes fewer instructions, and a longer lag.
const STRETCH: u32 = 24;
/// Weights of a channel.
#[allow(dead_code, reason = "assembly has the number in its text")]
const TAPS: usize = 9;

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return false };
    p.group_inputs == 1
        && p.group_outputs == 1
        && along(&p.spatial)
        && call.input(2).ptr.addr() & 3 == 0
        && conv2d::check::<S8>(call)
}

/// Whether windows have 3 by 3 taps side by side, are one or two columns apart, and reach over at most one column of padding at
/// either side.
fn along(s: &Spatial) -> bool {
    let (stride, pad) = (s.strides[1], s.pads[1]);
    let last = (s.output.width as u64).saturating_sub(1) * stride as u64 + 2;
    s.kernel == [3; 2]
        && s.dilations == [1; 2]
        && (stride == 1 || stride == 2)
        && pad <= 1
        && s.output.width != 0
        && s.input.width != 0
        // A row that is padding is read at another one's place.
        && s.input.height != 0
        && last <= s.input.width as u64 + pad as u64
}

/// Rows of the window, first to last, that are padding.
#[cfg(not(any(kiln_armv6m, kiln_armv7m, kiln_rv32im)))]
const PADDED_ROWS: [u32; 3] = [1, 2, 4];
/// The first window's first column is padding.
const BEFORE: u32 = 8;
/// The last window's last column is padding.
const AFTER: u32 = 16;
/// The walk goes down.
const DOWN: u32 = 32;
/// Windows are two columns apart.
const APART: u32 = 64;

/// A stretch, as the walk goes: the first pixel is the one it begins with.
#[repr(C)]
pub(crate) struct Stretch {
    /// The first column under the windows, in each of their rows; of a row that is padding, some other row's.
    rows: [*const i8; 3],
    /// From one column to the next.
    pitch: isize,
    /// The first output.
    output: *mut u8,
    /// From one output to the next.
    output_pitch: isize,
    /// Bytes from the first output to where they end, without one whose last column is padding.
    bytes: isize,
    /// All channels' weights.
    weights: *const i8,
    /// What a channel's sum starts from, and its multiplier.
    block: *const [i32; 2],
    /// What [`crate::scalar::scaling`] shifts by.
    shifts: *const u8,
    /// The channel to begin with.
    channel: isize,
    /// From one channel to the next.
    step: isize,
    /// The channel to end before.
    end: isize,
    /// See above.
    flags: u32,
    /// The input's zero point.
    input_zero: i32,
    /// Twice the output's zero point, and 1.
    odd_zero: i32,
    /// The bounds.
    low: i32,
    high: i32,
    /// How many outputs of a channel, for who clamps them afterwards.
    #[cfg(any(kiln_armv6m, kiln_armv7m))]
    outputs: usize,
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let s = &p.spatial;
    let width = s.output.width;
    let stretches = width.wrapping_add(STRETCH - 1) / STRETCH;
    let count = call.rows.end.saturating_sub(call.rows.begin) as usize;
    for row in 0..count {
        let row = call.rows.begin.wrapping_add(call.direction.pick(row, count) as u32);
        let image = row.checked_div(s.output.height).unwrap_or(0);
        let y = row.wrapping_sub(image.wrapping_mul(s.output.height));
        for part in 0..stretches as usize {
            let x = (call.direction.pick(part, stretches as usize) as u32).wrapping_mul(STRETCH);
            let mut stretch = Stretch::new(call, p, [image, y, x]);
            // SAFETY: `check` proved that windows reach over one column beside the image at most, so all columns between lie in
            // its rows; that pixels lie in their windows; and that weights and constants are there for every channel.
            unsafe {
                walk(&mut stretch);
                #[cfg(any(kiln_armv6m, kiln_armv7m))]
                if p.epilogue.clamps() {
                    let (pitch, n) = (stretch.output_pitch as usize, s.output.channels as usize);
                    p.epilogue.clamp_pixels(stretch.output, stretch.outputs, pitch, n);
                }
            }
        }
    }
}

impl Stretch {
    /// The stretch that begins at output column `x` of row `y`.
    #[inline(never)]
    fn new(call: &Call<'_>, p: &Conv2dParameters, [image, y, x]: [u32; 3]) -> Stretch {
        let s = &p.spatial;
        let outputs = STRETCH.min(s.output.width.wrapping_sub(x));
        let (stride, pad) = (s.strides[1], s.pads[1]);
        let mut flags = if stride == 2 { APART } else { 0 };
        // The columns under the windows, counted from the padding at the left, and those of them at the edges that are padding.
        let first = x.wrapping_mul(stride);
        let last = first.wrapping_add(outputs.wrapping_sub(1).wrapping_mul(stride)).wrapping_add(2);
        let (left, right) = (first < pad, last >= s.input.width.wrapping_add(pad));
        let channels = s.output.channels as isize;
        let up = call.direction == Direction::Up;
        let (from, column, before, after) = if up {
            (x, first.max(pad), left, right)
        } else {
            (x.wrapping_add(outputs).wrapping_sub(1), last.wrapping_sub(right as u32), right, left)
        };
        let column = column.wrapping_sub(pad);
        let (step, channel, end) = if up { (1isize, 0, channels) } else { (-1, channels.wrapping_sub(1), -1) };
        flags |= if up { 0 } else { DOWN };
        flags |= if before { BEFORE } else { 0 };
        flags |= if after { AFTER } else { 0 };
        let top = (y.wrapping_mul(s.strides[0]) as i32).wrapping_sub(s.pads[0] as i32);
        let bottom = (s.input.height as i32).wrapping_sub(1);
        let start = s.input.pixel(call.input(0), image, 0, column).cast_const();
        let rows = [0, 1, 2].map(|row| {
            let place = top.wrapping_add(row);
            let inside = place.min(bottom).max(0);
            if place != inside {
                flags |= 1u32.wrapping_shl(row as u32);
            }
            start.wrapping_add((inside as usize).wrapping_mul(s.input.row_pitch as usize)).cast()
        });
        let output_pitch = step.wrapping_mul(s.output.pixel_pitch as isize);
        let whole = outputs.wrapping_sub(after as u32) as isize;
        let block = call.input(2).ptr.cast_const();
        Stretch {
            rows,
            pitch: step.wrapping_mul(s.input.pixel_pitch as isize),
            output: s.output.pixel(call.output(0), image, y, from),
            output_pitch,
            bytes: whole.wrapping_mul(output_pitch),
            weights: call.input(1).ptr.cast_const().cast(),
            block: block.cast(),
            shifts: block.wrapping_add((channels as usize).wrapping_mul(8)),
            channel,
            step,
            end,
            flags,
            input_zero: p.epilogue.input_zero,
            odd_zero: p.epilogue.output_zero.wrapping_mul(2).wrapping_add(1),
            low: p.epilogue.low,
            high: p.epilogue.high,
            #[cfg(any(kiln_armv6m, kiln_armv7m))]
            outputs: outputs as usize,
        }
    }
}

/// Computes a stretch.
///
/// # Safety
///
/// The columns that the flags do not call padding can be read in each row, the outputs written; weights and constants are there
/// for every channel, `block` aligned.
#[cfg(not(any(kiln_armv6m, kiln_armv7m, kiln_rv32im)))]
unsafe fn walk(stretch: &mut Stretch) {
    use crate::arithmetic::Epilogue;
    let has = |flag: u32| stretch.flags & flag != 0;
    let epilogue = Epilogue {
        input_zero: stretch.input_zero,
        output_zero: stretch.odd_zero >> 1,
        low: stretch.low,
        high: stretch.high,
    };
    let zero = stretch.input_zero;
    let mut channel = stretch.channel;
    while channel != stretch.end {
        let mut w = [[0i32; 3]; 3];
        // SAFETY: as the caller promises.
        let ([mut start, multiplier], shift) = unsafe {
            for (i, to) in w.as_flattened_mut().iter_mut().enumerate() {
                let tap = channel.wrapping_mul(TAPS as isize).wrapping_add(i as isize);
                *to = stretch.weights.wrapping_offset(tap).read() as i32;
            }
            (stretch.block.wrapping_offset(channel).read(), stretch.shifts.wrapping_offset(channel).read())
        };
        if has(DOWN) {
            w.iter_mut().for_each(|row| row.reverse());
        }
        for (row, padded) in w.iter_mut().zip(PADDED_ROWS) {
            if has(padded) {
                start = row.iter().fold(start, |sum, &w| sum.wrapping_add(w.wrapping_mul(zero)));
                *row = [0; 3];
            }
        }
        let mut x = stretch.rows.map(|row| row.wrapping_offset(channel));
        // What a column adds to the sum whose window has it as column `column`.
        let add = |sum: i32, column: usize, elements: [i32; 3]| {
            w.iter().zip(elements).fold(sum, |sum, (row, x)| {
                let weight = row.get(column).copied().unwrap_or(0);
                sum.wrapping_add(weight.wrapping_mul(x))
            })
        };
        let mut column = || {
            let elements = x.map(|x| {
                // SAFETY: a column that is not padding, as the caller promises.
                (unsafe { x.read() }) as i32
            });
            x = x.map(|x| x.wrapping_offset(stretch.pitch));
            elements
        };
        let mut output = stretch.output.wrapping_offset(channel);
        let end = output.wrapping_offset(stretch.bytes);
        let mut write = |sum: i32| {
            let at = output;
            // SAFETY: one of the outputs.
            unsafe { at.write(crate::scalar::finish(sum, multiplier, shift, &epilogue) as u8) };
            output = output.wrapping_offset(stretch.output_pitch);
            output != end
        };
        let apart = has(APART);
        let first = if has(BEFORE) { [zero; 3] } else { column() };
        let mut next = add(start, 0, first);
        let mut sum = next;
        if !apart {
            let x = column();
            (sum, next) = (add(next, 1, x), add(start, 0, x));
        }
        let mut more = stretch.bytes != 0;
        while more {
            if apart {
                sum = add(sum, 1, column());
            }
            let x = column();
            let whole = add(sum, 2, x);
            if apart {
                sum = add(start, 0, x);
            } else {
                (sum, next) = (add(next, 1, x), add(start, 0, x));
            }
            more = write(whole);
        }
        if has(AFTER) {
            if apart {
                sum = add(sum, 1, column());
            }
            write(add(sum, 2, [zero; 3]));
        }
        channel = channel.wrapping_add(stretch.step);
    }
}

/// As above: 62 instructions an output, 73 where windows are two columns apart.
#[cfg(any(kiln_armv6m, kiln_armv7m))]
#[inline(always)]
unsafe fn walk(stretch: &mut Stretch) {
    // SAFETY: the caller's promise.
    unsafe { crate::depthwise_scalar_arm::walk(stretch) }
}

/// As above: 35 instructions an output, 42 where windows are two columns apart.
#[cfg(kiln_rv32im)]
#[inline(always)]
unsafe fn walk(stretch: &mut Stretch) {
    // SAFETY: the caller's promise.
    unsafe { crate::depthwise_scalar_rv32::walk(stretch) }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{DType, TargetId};
    use kiln_ops::OpError;

    use super::*;
    use crate::conv2d::host::{channel, finish, parameters, quantization_suits};
    use crate::lag;
    use crate::lowering::{BLOCK_BYTES, BLOCK_LABEL};
    use crate::scalar_channel::Channel;
    use crate::table::{Direction, Emit, Kernel, Operation};

    pub(crate) const DEPTHWISE_SCALAR_S8: Kernel = Kernel {
        number: super::DEPTHWISE_SCALAR_S8.number(),
        name: "depthwise_scalar_s8",
        row_name: "DEPTHWISE_SCALAR_S8",
        targets: &[TargetId::ARMV6M, TargetId::ARMV7M, TargetId::RV32IMC],
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| {
            geometry(operation).is_some_and(|p| (0..p.groups as usize).all(|o| packed(operation, o).is_some()))
        },
        prepare,
        lag: |operation, input, direction| {
            let p = geometry(operation).filter(|_| input == 0)?;
            lag::channels_along(&p.spatial, operation.output.ty.shape.dim(0), STRETCH, direction)
        },
        portable: super::DEPTHWISE_SCALAR_S8,
        native: None,
        work: None,
    };

    /// The largest sum, and the longest shift, with which every step of every body stays within 32 bits.
    const SUM: i32 = 1 << 20;
    const SHIFT: u8 = 20;

    /// The parameters of a convolution of the form that the row takes.
    fn geometry(operation: &Operation<'_>) -> Option<Conv2dParameters> {
        let (_, p) = parameters(operation, DType::I8)?;
        let suits = p.group_inputs == 1 && p.group_outputs == 1 && along(&p.spatial) && quantization_suits(operation);
        suits.then_some(p)
    }

    /// Channel `o` as it is packed.
    fn packed<'a>(operation: &Operation<'a>, o: usize) -> Option<Channel<'a>> {
        let weights = operation.inputs.get(1)?.data?.get(o * TAPS..(o + 1) * TAPS)?;
        let zero = operation.output.quant.zero_point(0);
        Channel::within(SUM.into(), SHIFT, channel(operation, o), weights, 0, zero)
    }

    fn prepare(operation: &Operation<'_>, emit: &mut dyn Emit) -> Result<(), OpError> {
        let p = geometry(operation).ok_or(OpError::TooLarge)?;
        let channels = p.groups as usize;
        emit.input(0);
        emit.constant("weights", TAPS * channels, &mut |weights| {
            weights.fill(0);
            for (o, to) in weights.chunks_exact_mut(TAPS).enumerate() {
                let channel = packed(operation, o);
                let weights = channel.iter().flat_map(|channel| channel.weights);
                to.iter_mut().zip(weights).for_each(|(to, &weight)| *to = weight);
            }
        });
        emit.constant(BLOCK_LABEL, BLOCK_BYTES * channels, &mut |block| {
            let (words, shifts) = block.split_at_mut(8 * channels);
            for (o, (to, shift)) in words.chunks_exact_mut(8).zip(shifts).enumerate() {
                let Some(channel) = packed(operation, o) else { continue };
                let (start, multiplier) = to.split_at_mut(4);
                start.copy_from_slice(&channel.start.to_le_bytes());
                multiplier.copy_from_slice(&channel.multiplier.to_le_bytes());
                *shift = channel.shift;
            }
        });
        finish(operation, DType::I8, emit)
    }
}
