//! int8 depthwise convolution with windows of 3 by 3, for CPUs with the DSP extension.
//!
//! Windows: image; weights, packed; constants of the channels; scratch; then the output image. Rows are output image rows. A row
//! is cut into stretches of a few pixels; a stretch takes four channels at a time. All that these read is widened into scratch
//! first: for each input column and channel a word with the taps of the first two window rows, so that one instruction
//! multiplies both, and a word with the third. Then their outputs are written, and nothing is read of those channels
//! for them again. Rows, stretches and fours of channels ascend, or descend walking down.

use kiln_core::{Call, Direction, Row};

use crate::conv2d::Conv2dParameters;
use crate::spatial::Spatial;

/// int8 depthwise convolution, one output channel an input channel.
pub const DEPTHWISE_PAIRED_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(15, 1, 0, check, run) };

/// Channels computed together.
const CHANNELS: usize = 4;
/// Bytes of an input column of so many channels in scratch.
const COLUMN: usize = 8 * CHANNELS;
/// Columns that scratch has room for at most, with windows one and two columns apart. A longer stretch takes fewer
/// instructions, and more scratch and a longer lag; the image that a stride of two halves is often the largest of a network, so
/// that its scratch counts in full.
const COLUMNS: [u32; 2] = [26, 11];

/// How many outputs a stretch has, and how many columns they read.
fn stretch(s: &Spatial) -> (u32, u32) {
    let stride = s.strides[1];
    let most = if stride == 1 { COLUMNS[0] } else { COLUMNS[1] };
    let room = most.wrapping_sub(3).checked_div(stride).unwrap_or(0).wrapping_add(1);
    let outputs = s.output.width.min(room);
    (outputs, outputs.wrapping_sub(1).wrapping_mul(stride).wrapping_add(3))
}

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return false };
    let s = &p.spatial;
    let channels = s.output.channels;
    let aligned = call.input(1).ptr.addr() | call.input(2).ptr.addr() | call.scratch(0).ptr.addr();
    s.check(call, 1)
        && p.groups == channels
        && p.groups == s.input.channels
        && channels & 3 == 0
        && s.kernel == [3; 2]
        && s.dilations == [1; 2]
        && (s.strides[1] == 1 || s.strides[1] == 2)
        && s.input.height != 0
        && s.input.width != 0
        && aligned & 3 == 0
        && call.input(1).holds(channels as usize, 9)
        && call.input(2).holds(channels as usize, 9)
        && call.scratch(0).holds(stretch(s).1 as usize, COLUMN)
}

/// The constants of four channels and where their outputs go. The body goes on to the next four's.
#[repr(C)]
struct Four {
    /// The columns that the first output reads.
    x: *const i32,
    /// What a channel's sum starts from, and its multiplier.
    block: *const i32,
    /// Two words a channel: the weights of the first two rows in pairs, but for column 2, whose pair shares its word
    /// with the third row's first two.
    weights: *const i32,
    /// One byte a channel: the last weight.
    last: *const i8,
    /// What [`crate::dsp::scaling`] shifts by.
    shifts: *const u8,
    /// The first output of the first channel.
    output: *mut u8,
    /// Outputs, at least 1.
    outputs: usize,
    /// From one output to the next.
    pitch: usize,
    /// The output's zero point.
    zero: i32,
    /// Where the body enters its loop, once it knows.
    entry: usize,
    /// From the columns of one window to those of the next.
    step: usize,
}

/// Lines of the image and where their columns go.
#[repr(C)]
struct Lines {
    /// The first column of each row under the window.
    rows: [*const u8; 3],
    /// Where its words go.
    to: *mut i32,
    /// From one column to the next.
    pitch: usize,
    /// Columns times pitch.
    bytes: usize,
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let s = &p.spatial;
    let width = s.output.width;
    let (most, _) = stretch(s);
    let stretches = (width.wrapping_add(most).wrapping_sub(1)).checked_div(most).unwrap_or(0) as usize;
    let count = call.rows.end.saturating_sub(call.rows.begin) as usize;
    let mut rows = Rows { lines: [core::ptr::null(); 3], padding: [false; 3], padded: false };
    for row in 0..count {
        let row = call.rows.begin.wrapping_add(call.direction.pick(row, count) as u32);
        let image = row.checked_div(s.output.height).unwrap_or(0);
        let y = row.wrapping_sub(image.wrapping_mul(s.output.height));
        rows.enter(call, s, image, y);
        for part in 0..stretches {
            let x = (call.direction.pick(part, stretches) as u32).wrapping_mul(most);
            let outputs = most.min(width.wrapping_sub(x));
            let output = s.output.pixel(call.output(0), image, y, x);
            // SAFETY: `check` proved that scratch has room for a stretch, that the pixels of input and output lie in their
            // windows, that constants are there for every channel, and alignments.
            unsafe { compute(call, p, &rows, x, outputs, output) };
        }
    }
}

/// Computes a stretch of `outputs` pixels from `x` on, `output` the first of them.
///
/// # Safety
///
/// The rows lie inside the image, or are padding; scratch has room for the columns that the stretch reads; there are constants for
/// every channel; the outputs can be written.
#[inline(always)]
unsafe fn compute(call: &Call<'_>, p: &Conv2dParameters, rows: &Rows, x: u32, outputs: u32, output: *mut u8) {
    let s = &p.spatial;
    let stride = s.strides[1];
    let zero = p.epilogue.input_zero as i16 as i32;
    let columns = outputs.wrapping_sub(1).wrapping_mul(stride).wrapping_add(3);
    let left = (x.wrapping_mul(stride) as i32).wrapping_sub(s.pads[1] as i32);
    let before = left.saturating_neg().max(0).min(columns as i32) as u32;
    let first = left.max(0) as u32;
    let inside = s.input.width.saturating_sub(first).min(columns.wrapping_sub(before));
    let words = |columns: u32| (columns as usize).wrapping_mul(COLUMN / 4);
    let scratch = call.scratch(0).ptr.cast::<i32>();
    let body = scratch.wrapping_add(words(before));
    let pitch = s.input.pixel_pitch as usize;
    let fours = s.output.channels as usize / CHANNELS;
    let up = call.direction == Direction::Up;
    let mut state = Four::new(call, p, outputs, output, call.direction.pick(0, fours));
    // SAFETY: columns `first .. first + inside` are inside the image's rows; all columns together are those that scratch has
    // room for. Padding at the sides stays from one four of channels to the next.
    unsafe {
        pad(scratch, before, zero);
        pad(body.wrapping_add(words(inside)), columns.wrapping_sub(before).wrapping_sub(inside), zero);
        for four in 0..fours {
            if inside > 0 {
                let four = call.direction.pick(four, fours);
                let at = (first as usize).wrapping_mul(pitch).wrapping_add(four.wrapping_mul(CHANNELS));
                let [a, b, c] = rows.lines;
                let lines = [a.wrapping_add(at), b.wrapping_add(at), c.wrapping_add(at)];
                widen(&Lines { rows: lines, to: body, pitch, bytes: pitch.wrapping_mul(inside as usize) });
                if rows.padded {
                    rows.pad(body, inside, zero);
                }
            }
            windows(&mut state);
            if !up {
                state.turn_back();
            }
        }
        if p.epilogue.clamps() {
            let (pitch, channels) = (s.output.pixel_pitch as usize, s.output.channels as usize);
            p.epilogue.clamp_pixels(output, outputs as usize, pitch, channels);
        }
    }
}

impl Four {
    /// The four channels from `4 four` on, and those after them.
    #[inline(always)]
    fn new(call: &Call<'_>, p: &Conv2dParameters, outputs: u32, output: *mut u8, four: usize) -> Four {
        let channels = p.spatial.output.channels as usize;
        let first = four.wrapping_mul(CHANNELS);
        let (weights, block) = (call.input(1).ptr.cast_const(), call.input(2).ptr.cast_const());
        let (words, bytes) = (first.wrapping_mul(8), channels.wrapping_mul(8).wrapping_add(first));
        Four {
            x: call.scratch(0).ptr.cast_const().cast(),
            block: block.wrapping_add(words).cast(),
            weights: weights.wrapping_add(words).cast(),
            last: weights.wrapping_add(bytes).cast(),
            shifts: block.wrapping_add(bytes),
            output: output.wrapping_add(first),
            outputs: outputs as usize,
            pitch: p.spatial.output.pixel_pitch as usize,
            zero: p.epilogue.output_zero,
            entry: 0,
            step: (p.spatial.strides[1] as usize).wrapping_mul(COLUMN),
        }
    }

    /// From behind four channels to the four before them.
    #[inline(always)]
    fn turn_back(&mut self) {
        self.block = self.block.wrapping_sub(4 * CHANNELS);
        self.weights = self.weights.wrapping_sub(4 * CHANNELS);
        self.last = self.last.wrapping_sub(2 * CHANNELS);
        self.shifts = self.shifts.wrapping_sub(2 * CHANNELS);
        self.output = self.output.wrapping_sub(2 * CHANNELS);
    }
}

/// The input rows under one output row.
struct Rows {
    /// Their first pixels; of a row that is padding, those of some other.
    lines: [*const u8; 3],
    /// Which are padding.
    padding: [bool; 3],
    /// Whether any is.
    padded: bool,
}

impl Rows {
    /// Goes to the rows under output row `y`. Written in place: returned, they would be copied.
    #[inline(never)]
    fn enter(&mut self, call: &Call<'_>, s: &Spatial, image: u32, y: u32) {
        let mut at = (y.wrapping_mul(s.strides[0]) as i32).wrapping_sub(s.pads[0] as i32);
        let last = (s.input.height as i32).wrapping_sub(1);
        self.padded = false;
        for (line, padding) in self.lines.iter_mut().zip(&mut self.padding) {
            let inside = at.min(last).max(0);
            *line = s.input.pixel(call.input(0), image, inside as u32, 0);
            *padding = at != inside;
            self.padded |= *padding;
            at = at.wrapping_add(1);
        }
    }

    /// Puts the zero point where a row is padding.
    ///
    /// # Safety
    ///
    /// `to` has `columns` columns, aligned to 4 bytes.
    #[inline(never)]
    unsafe fn pad(&self, to: *mut i32, columns: u32, zero: i32) {
        for (row, &padding) in self.padding.iter().enumerate() {
            if !padding {
                continue;
            }
            let mut half = to.cast::<i16>().wrapping_add(row);
            for _ in 0..(columns as usize).wrapping_mul(CHANNELS) {
                // SAFETY: a channel of a column has two words: two halves, then a third.
                unsafe { half.write(zero as i16) };
                half = half.wrapping_add(4);
            }
        }
    }
}

/// Columns of padding.
///
/// # Safety
///
/// `to` has room for `columns` columns, aligned to 4 bytes.
unsafe fn pad(to: *mut i32, columns: u32, zero: i32) {
    let both = (zero & 0xffff) | zero.wrapping_shl(16);
    for word in 0..(columns as usize).wrapping_mul(COLUMN / 4) {
        // SAFETY: one of the columns' words. The second of a channel is read as its low half.
        unsafe { to.wrapping_add(word).write(both) };
    }
}

/// The outputs of four channels. Leaves constants and outputs at the next channels'.
///
/// # Safety
///
/// `x` has the columns of all windows, the constants are there for every channel, and the outputs can be written; all but these and
/// `last` are aligned to 4 bytes.
#[cfg(not(kiln_dsp))]
unsafe fn windows(four: &mut Four) {
    use crate::dsp::{finish, smlad, sxtb16, sxtb16_ror8};
    for channel in 0..CHANNELS {
        // SAFETY: as the caller promises.
        unsafe {
            let [w01, w2] = four.weights.cast::<[i32; 2]>().wrapping_add(channel).read();
            let pairs = [sxtb16(w01), sxtb16_ror8(w01), sxtb16(w2)];
            let third = sxtb16_ror8(w2);
            let third = [third & 0xffff, (third as u32 >> 16) as i32, four.last.wrapping_add(channel).read() as i32];
            let [start, multiplier] = four.block.cast::<[i32; 2]>().wrapping_add(channel).read();
            let divisor = 1i32.wrapping_shl(four.shifts.wrapping_add(channel).read() as u32);
            for output in 0..four.outputs {
                let mut sum = start;
                for (tap, (&pair, third)) in pairs.iter().zip(third).enumerate() {
                    let window = four.x.wrapping_byte_add(output.wrapping_mul(four.step));
                    let word = tap.wrapping_mul(COLUMN / 4).wrapping_add(channel.wrapping_mul(2));
                    let at = window.wrapping_add(word);
                    let [x01, x2] = at.cast::<[i32; 2]>().read();
                    sum = smlad(x01, pair, sum);
                    sum = smlad(x2 & 0xffff, third & 0xffff, sum);
                }
                let to = four.output.wrapping_add(channel).wrapping_add(output.wrapping_mul(four.pitch));
                to.write(finish(sum, multiplier, divisor, four.zero) as u8);
            }
        }
    }
    four.weights = four.weights.wrapping_add(2 * CHANNELS);
    four.block = four.block.wrapping_add(2 * CHANNELS);
    four.last = four.last.wrapping_add(CHANNELS);
    four.shifts = four.shifts.wrapping_add(CHANNELS);
    four.output = four.output.wrapping_add(CHANNELS);
}

/// As above.
#[cfg(kiln_dsp)]
#[inline(always)]
unsafe fn windows(four: &mut Four) {
    // SAFETY: the caller's promise.
    unsafe { assembly::windows(four) }
}

/// Widens four channels of some columns of three rows.
///
/// # Safety
///
/// Four bytes can be read in each row of each column, and `to` has room for the columns, aligned to 4 bytes. There is at
/// least one.
#[cfg(not(kiln_dsp))]
unsafe fn widen(lines: &Lines) {
    let mut to = lines.to.cast::<[i16; 4]>();
    let mut at = 0usize;
    while at < lines.bytes {
        for channel in 0..CHANNELS {
            let byte = |row: *const u8| row.wrapping_add(at).wrapping_add(channel).cast::<i8>();
            let [a, b, c] = lines.rows;
            // SAFETY: as the caller promises.
            unsafe { to.write([byte(a).read() as i16, byte(b).read() as i16, byte(c).read() as i16, 0]) };
            to = to.wrapping_add(1);
        }
        at = at.wrapping_add(lines.pitch);
    }
}

/// As above.
#[cfg(kiln_dsp)]
#[inline(always)]
unsafe fn widen(lines: &Lines) {
    // SAFETY: the caller's promise.
    unsafe { assembly::widen(lines) }
}

#[cfg(kiln_dsp)]
mod assembly {
    use core::arch::asm;

    use super::{Four, Lines};
    use crate::dsp::extension;

    /// An output; `$tie` takes 1 from a sum that is negative.
    macro_rules! window {
        ($step:literal, $tie:literal) => {
            concat!(
                "ldr r1, [sp, #32]\n",
                "ldrd r2, r3, [r0, #32]\n",
                "smlad r1, r2, r5, r1\n",
                "smlabt r1, r3, r7, r1\n",
                "ldrd r2, r3, [r0, #64]\n",
                "smlad r1, r2, r6, r1\n",
                "smlabb r1, r3, r8, r1\n",
                "ldrd r2, r3, [r0], #",
                $step,
                "\nsmlad r1, r2, r4, r1\n",
                "smlabb r1, r3, r7, r1\n",
                "smmlar r1, r1, r9, r1\n",
                $tie,
                "smmlar r1, r1, r10, r11\n",
                "ssat r1, #8, r1\n",
                "strb r1, [r12]\n",
                "add r12, r12, lr\n",
            )
        };
    }

    /// Two outputs a round, entered in the middle at `$odd`; windows `$step / 32` columns apart.
    macro_rules! outputs {
        ($even:literal, $odd:literal, $step:literal, $tie:literal) => {
            concat!(
                $even,
                ":\n",
                window!($step, $tie),
                $odd,
                ":\n",
                window!($step, $tie),
                "ldr r2, [sp, #40]\ncmp r0, r2\nbne ",
                $even,
                "b\n",
            )
        };
    }

    /// 16 or 17 instructions an output, 3 for two, and 22 for a channel: one after the other. Weights in r4 to r8 (pairs of columns 0, 1, 2;
    /// the third row's first two; its last), the multiplier in r9, the divisor in r10, the zero point in r11, where outputs go in r12. On
    /// the stack: what a channel has of `Four`, x and output before they go on; bytes of the windows of x; the block's end; what a sum
    /// starts from; where the loop is entered; the end of x; the argument.
    #[inline(never)]
    pub(super) unsafe extern "C" fn windows(four: *mut Four) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                extension!(),
                "push {{r0, r4, r5, r6, r7, r8, r9, r10, r11}}",
                "ldm r0, {{r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12}}",
                "mov r1, r11",
                "cbnz r1, 1f",
                // Sums whose zero point is -128 become that where they are negative, however they are rounded.
                "adr r11, 2f",
                "adr r1, 3f",
                "adr lr, 6f",
                "sub lr, lr, r11",
                "cmn r10, #128",
                "itt eq",
                "adreq r11, 4f",
                "adreq r1, 5f",
                "cmp r12, #64",
                "itt eq",
                "addeq r11, r11, lr",
                "addeq r1, r1, lr",
                "tst r8, #1",
                "it ne",
                "movne r11, r1",
                "add r11, r11, #1",
                "str r11, [r0, #36]",
                "1:",
                "mov lr, r9",
                "mul r8, r8, r12",
                "add r9, r3, #32",
                "sub r2, r2, #8",
                "sub r7, r7, #1",
                "push {{r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12}}",
                "mov r11, r10",
                "1:",
                "ldm sp, {{r0, r1, r2, r3, r5, r12}}",
                "ldrd r7, r9, [r1], #8",
                "ldrd r4, r6, [r2], #8",
                "ldrsb r8, [r3], #1",
                "ldrb r10, [r5], #1",
                "add r0, r0, #8",
                "add r12, r12, #1",
                "stm sp, {{r0, r1, r2, r3, r5, r12}}",
                "ldr r2, [sp, #24]",
                "str r7, [sp, #32]",
                "add r2, r2, r0",
                "str r2, [sp, #40]",
                "mov r2, #1",
                "lsl r10, r2, r10",
                "sxtb16 r5, r4, ror #8",
                "sxtb16 r4, r4",
                "sxtb16 r7, r6, ror #8",
                "sxtb16 r6, r6",
                "ldr pc, [sp, #36]",
                // The addresses of labels are right only in a section that is aligned. Both steps' code has one form.
                ".p2align 2",
                outputs!("2", "3", "32", "add r1, r1, r1, asr #31\n"),
                "b 8f",
                outputs!("4", "5", "32", ""),
                "b 8f",
                outputs!("6", "7", "64", "add r1, r1, r1, asr #31\n"),
                "b 8f",
                outputs!("6", "7", "64", ""),
                "8:",
                "ldr r1, [sp, #4]",
                "ldr r2, [sp, #28]",
                "cmp r1, r2",
                "bne 1b",
                "pop {{r1, r2, r3, r4, r5, r6}}",
                "ldr r0, [sp, #20]",
                "add r6, r6, #1",
                "add r0, r0, #4",
                "stm r0, {{r2, r3, r4, r5, r6}}",
                "add sp, sp, #24",
                "pop {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                inout("r0") four => _,
                out("r1") _,
                out("r2") _,
                out("r3") _,
                out("r12") _,
                out("lr") _,
            );
        }
    }

    /// 19 instructions for the 12 bytes of a column. On the stack: columns' pitch and end.
    #[inline(never)]
    pub(super) unsafe extern "C" fn widen(lines: *const Lines) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                extension!(),
                "push {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                "ldrd r4, r5, [r0, #16]",
                "push {{r4, r5}}",
                "ldr r12, [r0, #12]",
                "ldm r0, {{r0, r1, r2}}",
                "mov r3, #0",
                "1:",
                "ldr r4, [r0, r3]",
                "ldr r6, [r1, r3]",
                "ldr lr, [r2, r3]",
                "pkhtb r8, r6, r4, asr #16",
                "pkhbt r4, r4, r6, lsl #16",
                "sxtb16 r6, r4, ror #8",
                "sxtb16 r4, r4",
                "sxtb16 r10, r8, ror #8",
                "sxtb16 r8, r8",
                "sxtb r5, lr",
                "sxtb r7, lr, ror #8",
                "sxtb r9, lr, ror #16",
                "sxtb r11, lr, ror #24",
                "stm r12!, {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                "ldrd r4, r5, [sp]",
                "add r3, r3, r4",
                "cmp r3, r5",
                "bne 1b",
                "add sp, sp, #8",
                "pop {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                inout("r0") lines => _,
                out("r1") _,
                out("r2") _,
                out("r3") _,
                out("r12") _,
                out("lr") _,
            );
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
    use crate::conv2d_paired::host::TARGETS;
    use crate::dsp::scaling;
    use crate::lag;
    use crate::lowering::{BLOCK_BYTES, BLOCK_LABEL};
    use crate::table::{Direction, Emit, Kernel, Operation};
    use crate::workload::Workload;

    pub(crate) const DEPTHWISE_PAIRED_S8: Kernel = Kernel {
        number: super::DEPTHWISE_PAIRED_S8.number(),
        name: "depthwise_paired_s8",
        row_name: "DEPTHWISE_PAIRED_S8",
        targets: TARGETS,
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| {
            geometry(operation).is_some_and(|p| (0..p.groups as usize).all(|o| scale(operation, o).is_some()))
        },
        prepare: |operation, emit| {
            let p = geometry(operation).ok_or(OpError::TooLarge)?;
            emit.input(0);
            pack(operation, p.groups as usize, emit)?;
            emit.scratch(u64::from(stretch(&p.spatial).1) * COLUMN as u64);
            finish(operation, DType::I8, emit)
        },
        lag: |operation, input, direction| {
            let p = geometry(operation).filter(|_| input == 0)?;
            let steps = [stretch(&p.spatial).0, CHANNELS as u32];
            lag::stretches(&p.spatial, operation.output.ty.shape.dim(0), steps, direction)
        },
        portable: super::DEPTHWISE_PAIRED_S8,
        native: None,
        work: Some(work),
    };

    /// Outputs, fours of channels of a stretch, columns widened for them, stretches, columns of padding, and columns of rows
    /// that have padding above or below.
    fn work(operation: &Operation<'_>) -> Option<Workload> {
        let p = geometry(operation)?;
        let s = &p.spatial;
        let (most, _) = stretch(s);
        let fours = f64::from(p.groups / CHANNELS as u32);
        let images = f64::from(operation.output.ty.shape.dim(0));
        let [stretches, columns, beside] = s.stretches(most);
        let padded = (0..s.output.height).filter(|&y| {
            let rows = s.row_taps(y);
            rows.end - rows.first < 3
        });
        let rows = f64::from(s.output.height) * images;
        Some(Workload {
            products: rows * f64::from(s.output.width) * f64::from(p.groups),
            outputs: rows * stretches * fours,
            lines: rows * columns * fours,
            vectors: rows * stretches,
            padding: rows * beside,
            edges: padded.count() as f64 * images * columns * fours,
            gathered: rows,
            ..Workload::default()
        })
    }

    /// What a channel's sum starts from, its multiplier and its shift, if they have the short form.
    fn scale(operation: &Operation<'_>, o: usize) -> Option<(i32, i32, u8)> {
        let (start, multiplier, shift) = channel(operation, o);
        scaling(multiplier, shift).map(|(multiplier, shift)| (start, multiplier, shift))
    }

    /// The parameters of a convolution of the form that the row takes.
    fn geometry(operation: &Operation<'_>) -> Option<Conv2dParameters> {
        let (_, p) = parameters(operation, DType::I8)?;
        let s = &p.spatial;
        let suits = p.group_inputs == 1
            && p.group_outputs == 1
            && p.groups.is_multiple_of(CHANNELS as u32)
            && s.kernel == [3; 2]
            && s.dilations == [1; 2]
            && (1..=2).contains(&s.strides[1])
            && quantization_suits(operation);
        suits.then_some(p)
    }

    /// Emits weights and constants of the channels.
    fn pack(operation: &Operation<'_>, channels: usize, emit: &mut dyn Emit) -> Result<(), OpError> {
        let data = operation.inputs.get(1).and_then(|w| w.data);
        let data = data.ok_or(OpError::Quantization("depthwise weights must be constant"))?;
        emit.constant("weights", data.len(), &mut |packed| {
            let (words, last) = packed.split_at_mut(8 * channels);
            let taps = data.chunks_exact(9);
            for ((to, last), w) in words.chunks_exact_mut(8).zip(last).zip(taps) {
                // Rows of the window are 0 to 2, 3 to 5, 6 to 8.
                for (to, tap) in to.iter_mut().zip([0, 1, 3, 4, 2, 6, 5, 7]) {
                    *to = w.get(tap).copied().unwrap_or(0);
                }
                *last = w.get(8).copied().unwrap_or(0);
            }
        });
        emit.constant(BLOCK_LABEL, BLOCK_BYTES * channels, &mut |block| {
            let (words, shifts) = block.split_at_mut(8 * channels);
            for (o, (to, shift)) in words.chunks_exact_mut(8).zip(shifts).enumerate() {
                let (start, multiplier, left) = scale(operation, o).unwrap_or((0, 0, 0));
                let (a, b) = to.split_at_mut(4);
                a.copy_from_slice(&start.to_le_bytes());
                b.copy_from_slice(&multiplier.to_le_bytes());
                *shift = left;
            }
        });
        Ok(())
    }
}
