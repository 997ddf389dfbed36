//! int8 convolution with windows three columns wide and one column apart, for CPUs with the DSP extension.
//!
//! Windows: image, weights and constants packed, scratch for the columns under three windows, widened; then the output image. Rows are
//! output image rows. A row is cut into threes of pixels from the left. The windows of three lie over five columns, which are
//! gathered once where [`crate::conv2d_paired`] gathers nine: all of them before the first of the outputs is written. Channels are
//! multiplied in pairs as in [`crate::paired`]. Rows and threes ascend, or descend walking down. If fewer than three pixels are left of a
//! row, products without a pixel come first and are written where the first of the pixels is written after them.

use kiln_core::{Call, Row};

use crate::conv2d::Conv2dParameters;
use crate::conv2d_paired::check_parts;
use crate::dsp::{sxtb16, sxtb16_ror8};
use crate::paired::{POSITIONS, Tile};

/// int8 convolution.
pub const CONV2D_COLUMNS_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(29, 1, 0, check, run) };

/// Bytes of code of a block in the loop over blocks.
const BLOCK_CODE: usize = 25 * 4;
/// Columns of a window.
const WIDTH: usize = 3;
/// Columns under the windows of a tile.
const COLUMNS: usize = POSITIONS + WIDTH - 1;
/// Words of four channels of all columns: channels 0 and 2 of each, then 1 and 3.
const FOUR: usize = 2 * COLUMNS;

/// Fours of channels under a window's column, of all its rows.
fn fours(p: &Conv2dParameters) -> Option<usize> {
    (p.spatial.kernel[0] as usize).checked_mul(p.group_inputs as usize >> 2)
}

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return false };
    let s = &p.spatial;
    p.group_inputs & 3 == 0
        && s.kernel[1] == WIDTH as u32
        && s.strides[1] == 1
        && s.dilations[1] == 1
        && fours(p).is_some_and(|fours| check_parts(call, p, fours, [4 * WIDTH, 9, 4 * FOUR]))
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let s = &p.spatial;
    let (scratch, width) = (call.scratch(0).ptr, s.output.width);
    let pairs = s.output.channels as usize >> 1;
    // A four of channels is two blocks, three of which are computed in a round.
    let blocks = fours(p).unwrap_or(0).wrapping_mul(2);
    let left = 2usize.wrapping_sub(blocks.wrapping_sub(1) % 3);
    let constants = [call.input(1).ptr.cast_const(), call.input(2).ptr.cast_const()];
    let zero = p.epilogue.output_zero;
    let mut tile = Tile::of_parts(scratch, blocks, left.wrapping_mul(BLOCK_CODE), constants, pairs, zero);
    let count = call.rows.end.saturating_sub(call.rows.begin) as usize;
    for row in 0..count {
        let row = call.rows.begin.wrapping_add(call.direction.pick(row, count) as u32);
        let image = row.checked_div(s.output.height).unwrap_or(0);
        let y = row.wrapping_sub(image.wrapping_mul(s.output.height));
        let top = (y.wrapping_mul(s.strides[0]) as i32).wrapping_sub(s.pads[0] as i32);
        let mut columns = Columns { p, call, image, top, left: 0, missing: 0 };
        let output = s.output.pixel(call.output(0), image, y, 0);
        // Division by a constant: there are fewer than 2^31 pixels.
        let tiles = (width as usize).wrapping_add(POSITIONS - 1) / POSITIONS;
        for part in 0..tiles {
            let x = call.direction.pick(part, tiles).wrapping_mul(POSITIONS);
            let missing = x.wrapping_add(POSITIONS).saturating_sub(width as usize);
            (columns.left, columns.missing) =
                ((x.wrapping_sub(missing) as i32).wrapping_sub(s.pads[1] as i32), missing);
            let pitch = s.output.pixel_pitch as usize;
            let mut at = output.wrapping_add(x.wrapping_mul(pitch));
            for (position, output) in tile.outputs.iter_mut().enumerate() {
                *output = at;
                if position >= missing {
                    at = at.wrapping_add(pitch);
                }
            }
            // SAFETY: `check` proved that scratch has room for the columns, that pixels inside the image are inside its window, that
            // weights and constants are there for every pair of channels, and the alignment of all three.
            unsafe {
                columns.gather(scratch.cast());
                products(&tile);
                if p.epilogue.clamps() {
                    p.epilogue.clamp_at(&tile.outputs, s.output.channels as usize);
                }
            }
        }
    }
}

/// Columns under the windows of three pixels.
struct Columns<'a> {
    p: &'a Conv2dParameters,
    call: &'a Call<'a>,
    image: u32,
    /// Where the first window begins.
    top: i32,
    left: i32,
    /// Columns that are not gathered, on the left, because so many pixels are missing.
    missing: usize,
}

/// Lines of columns that are inside the image and where they go.
#[repr(C)]
struct Lines {
    /// The first channel of the first column.
    source: *const u8,
    /// From one column to the next.
    pitch: usize,
    to: *mut i32,
    /// Bytes of a column, in fours, at least one.
    bytes: usize,
    /// From one line to the next.
    down: usize,
    /// Lines, at least 1.
    lines: usize,
}

impl Columns<'_> {
    /// Widens them.
    ///
    /// # Safety
    ///
    /// Pixels inside the image can be read, and `to` has [`FOUR`] words for each four of channels and row of a window.
    #[inline(never)]
    unsafe fn gather(&self, to: *mut i32) {
        let s = &self.p.spatial;
        let (height, width) = (s.input.height as i32, s.input.width as i32);
        let lines = s.kernel[0] as usize;
        let reach = s.kernel[0].wrapping_sub(1).wrapping_mul(s.dilations[0]) as i32;
        let from = s.input.pixel(self.call.input(0), self.image, self.top as u32, self.left as u32);
        let (pitch, bytes, down) = (s.input.pixel_pitch as usize, self.p.group_inputs as usize, s.tap_steps().0);
        let inside = self.top >= 0
            && self.top.wrapping_add(reach) < height
            && self.left >= 0
            && self.left <= width.wrapping_sub(COLUMNS as i32)
            && self.missing == 0;
        if inside {
            // SAFETY: all of the columns are inside the image.
            unsafe { widen(&Lines { source: from, pitch, to, bytes, down, lines }) };
            return;
        }
        let zero = self.p.epilogue.input_zero & 0xffff;
        let zero = zero | zero.wrapping_shl(16);
        let (mut to, mut y) = (to, self.top);
        for _ in 0..lines {
            let line = s.input.pixel(self.call.input(0), self.image, y as u32, 0);
            for column in self.missing..COLUMNS {
                let x = self.left.wrapping_add(column as i32);
                let is_inside = (y as u32) < s.input.height && (x as u32) < s.input.width;
                let source = line.wrapping_add((x as usize).wrapping_mul(pitch));
                // SAFETY: a pixel inside the image, or none; a column of the target.
                unsafe { widen_pixel(is_inside.then_some(source), zero, to.wrapping_add(column), bytes >> 2) };
            }
            to = to.wrapping_add((bytes >> 2).wrapping_mul(FOUR));
            y = y.wrapping_add(s.dilations[0] as i32);
        }
    }
}

/// Widens the channels of one pixel, or puts `zero` in their place.
///
/// # Safety
///
/// There are so many fours of channels, and `to` is a column of as many.
#[inline(never)]
unsafe fn widen_pixel(source: Option<*mut u8>, zero: i32, to: *mut i32, fours: usize) {
    let (mut even, mut odd, mut to) = (zero, zero, to);
    for four in 0..fours {
        // SAFETY: as the caller promises.
        unsafe {
            if let Some(source) = source {
                let word = source.wrapping_add(four.wrapping_mul(4)).cast::<i32>().read_unaligned();
                (even, odd) = (sxtb16(word), sxtb16_ror8(word));
            }
            to.write(even);
            to.wrapping_add(COLUMNS).write(odd);
        }
        to = to.wrapping_add(FOUR);
    }
}

/// Widens the columns of some lines.
///
/// # Safety
///
/// Five columns of each can be read, and `to` has [`FOUR`] words for each four bytes of a column and line.
#[cfg(not(kiln_dsp))]
unsafe fn widen(lines: &Lines) {
    let fours = lines.bytes >> 2;
    for line in 0..lines.lines {
        let to = lines.to.wrapping_add(line.wrapping_mul(fours).wrapping_mul(FOUR));
        let source = lines.source.wrapping_add(line.wrapping_mul(lines.down));
        for column in 0..COLUMNS {
            let source = source.wrapping_add(column.wrapping_mul(lines.pitch));
            // SAFETY: as the caller promises.
            unsafe { widen_pixel(Some(source.cast_mut()), 0, to.wrapping_add(column), fours) };
        }
    }
}

/// As above.
#[cfg(kiln_dsp)]
#[inline(always)]
unsafe fn widen(lines: &Lines) {
    // SAFETY: the caller's promise.
    unsafe { assembly::widen(lines) }
}

/// Computes a tile's outputs.
///
/// # Safety
///
/// That of [`crate::paired::run`], for blocks of five words and weights of three a pair.
#[cfg(not(kiln_dsp))]
unsafe fn products(tile: &Tile) {
    use crate::dsp::smlad;
    let mut weights = tile.weights();
    for pair in 0..tile.pairs() {
        // SAFETY: the words of a pair's blocks, as the caller promises.
        unsafe {
            let [mut sums, mut mixed] = tile.starts(pair);
            let mut x = tile.x;
            for _ in 0..tile.parts() {
                for column in 0..WIDTH {
                    let w = weights.read();
                    weights = weights.wrapping_add(1);
                    for (position, (sum, mixed)) in sums.iter_mut().zip(&mut mixed).enumerate() {
                        let x = x.wrapping_add(column).wrapping_add(position).read();
                        *sum = smlad(x, sxtb16(w), *sum);
                        *mixed = smlad(x, w, *mixed);
                    }
                }
                x = x.wrapping_add(COLUMNS);
            }
            tile.end(pair, sums, mixed);
        }
    }
}

/// As above: 25 instructions for the 36 products of a block.
#[cfg(kiln_dsp)]
#[inline(always)]
unsafe fn products(tile: &Tile) {
    // SAFETY: the caller's promise.
    unsafe { assembly::products(tile) }
}

#[cfg(kiln_dsp)]
mod assembly {
    use core::arch::asm;

    use super::Lines;
    use crate::dsp::{extension, finish_in};
    use crate::paired::Tile;
    use crate::paired::assembly::{finish_all, frame, multiply, separate, store};

    /// One column's taps of two channels.
    macro_rules! column {
        ($x:tt) => {
            concat!("ldr r11, [lr], #4\n", multiply!("r11", $x, ["r4", "r5", "r6"], ["r7", "r8", "r9"]))
        };
    }

    /// Two channels of five columns, 25 instructions of 4 bytes: x in r12, weights in lr; sums of A in r4 to r6, mixed ones in r7 to r9.
    macro_rules! block {
        () => {
            concat!(
                "ldm r12!, {{r0, r1, r2, r3, r10}}\n",
                column!(["r0", "r1", "r2"]),
                column!(["r1", "r2", "r3"]),
                column!(["r2", "r3", "r10"]),
            )
        };
    }

    #[inline(never)]
    pub(super) unsafe extern "C" fn products(tile: *const Tile) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said in `paired`.
        unsafe {
            asm!(
                extension!(),
                frame!("add r3, r7, r7, lsl #2\nadd r3, r4, r3, lsl #2\n", ""),
                "1:",
                "ldm sp, {{r0, r1, r2, r3, r12}}",
                "ldrd r4, r7, [r0, #-8]",
                "mov r5, r4",
                "mov r6, r4",
                "mov r8, r7",
                "mov r9, r7",
                "ldr pc, [sp, #28]",
                // The addresses of labels are right only in a section that is aligned.
                ".p2align 2",
                "3:",
                block!(),
                block!(),
                block!(),
                "ldr r11, [sp, #12]",
                "cmp r12, r11",
                "bne 3b",
                separate!(),
                finish_all!(),
                store!(),
                inout("r0") tile => _,
                out("r1") _,
                out("r2") _,
                out("r3") _,
                out("r12") _,
                out("lr") _,
            );
        }
    }

    /// 20 instructions for the 20 bytes of four channels. On the stack: a line's bytes, from its end to the next line, lines left.
    #[inline(never)]
    pub(super) unsafe extern "C" fn widen(lines: *const Lines) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                extension!(),
                "push {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                "ldm r0, {{r0, r1, r2, r3, r4, r5}}",
                "sub r4, r4, r3",
                "push {{r3, r4, r5}}",
                "add r12, r1, r1, lsl #1",
                "1:",
                "add r3, r0, r3",
                "2:",
                "ldr r5, [r0, r1]",
                "ldr r6, [r0, r1, lsl #1]",
                "ldr r7, [r0, r12]",
                "ldr r8, [r0, r1, lsl #2]",
                "ldr r4, [r0], #4",
                "sxtb16 r9, r4",
                "sxtb16 r10, r5",
                "sxtb16 r11, r6",
                "sxtb16 lr, r7",
                "stm r2!, {{r9, r10, r11, lr}}",
                "sxtb16 r9, r8",
                "str r9, [r2], #4",
                "sxtb16 r4, r4, ror #8",
                "sxtb16 r5, r5, ror #8",
                "sxtb16 r6, r6, ror #8",
                "sxtb16 r7, r7, ror #8",
                "sxtb16 r8, r8, ror #8",
                "stm r2!, {{r4, r5, r6, r7, r8}}",
                "cmp r0, r3",
                "bne 2b",
                "pop {{r3, r4, r5}}",
                "add r0, r0, r4",
                "subs r5, r5, #1",
                "push {{r3, r4, r5}}",
                "bne 1b",
                "add sp, sp, #12",
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
    use kiln_core::{DType, Direction, TargetId};

    use super::*;
    use crate::conv2d::host::{finish, parameters, quantization_suits};
    use crate::conv2d_paired::host::channels;
    use crate::lag;
    use crate::table::{Kernel, Operation};
    use crate::workload::Workload;

    pub(crate) const CONV2D_COLUMNS_S8: Kernel = Kernel {
        number: super::CONV2D_COLUMNS_S8.number(),
        name: "conv2d_columns_s8",
        row_name: "CONV2D_COLUMNS_S8",
        targets: &[TargetId::ARMV7EM, TargetId::ARMV8M],
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| {
            let suits = geometry(operation).is_some_and(|p| {
                // The last three of a row cost as much with fewer pixels.
                let width = p.spatial.output.width;
                (width.div_ceil(POSITIONS as u32) * POSITIONS as u32 - width) * 16 <= width
            });
            suits && quantization_suits(operation) && channels(operation, |channels| channels.pair_up()) == Some(true)
        },
        prepare: |operation, emit| {
            emit.input(0);
            let p = geometry(operation);
            let depth = p.map_or(0, |p| p.group_inputs) as usize;
            channels(operation, |channels| channels.emit_columns(emit, depth));
            emit.scratch(p.and_then(|p| fours(&p)).unwrap_or(0) as u64 * (4 * FOUR) as u64);
            finish(operation, DType::I8, emit)
        },
        lag: |operation, input, direction| {
            let p = geometry(operation).filter(|_| input == 0)?;
            let tile = [POSITIONS as u32, p.spatial.output.channels];
            lag::stretches(&p.spatial, operation.output.ty.shape.dim(0), tile, direction)
        },
        portable: super::CONV2D_COLUMNS_S8,
        native: None,
        work: Some(work),
    };

    /// The parameters of a convolution of the form that the row takes.
    fn geometry(operation: &Operation<'_>) -> Option<Conv2dParameters> {
        let (_, p) = parameters(operation, DType::I8)?;
        let s = &p.spatial;
        let form = s.kernel[1] == WIDTH as u32 && s.strides[1] == 1 && s.dilations[1] == 1;
        (form && p.groups == 1 && p.group_inputs.is_multiple_of(4)).then_some(p)
    }

    /// Fours of channels multiplied, pairs of channels, and for tiles inside the image and for others their number and what they
    /// gather.
    fn work(operation: &Operation<'_>) -> Option<Workload> {
        let p = geometry(operation)?;
        let s = &p.spatial;
        let rows = |y: u32| s.row_taps(y).end - s.row_taps(y).first == s.kernel[0];
        let whole_rows = f64::from((0..s.output.height).filter(|&y| rows(y)).count() as u32);
        let tiles = s.output.width.div_ceil(POSITIONS as u32);
        let inside = |tile: &u32| {
            let left = i64::from(tile * POSITIONS as u32) - i64::from(s.pads[1]);
            let end = left + COLUMNS as i64;
            left >= 0 && end <= i64::from(s.input.width) && (tile + 1) * POSITIONS as u32 <= s.output.width
        };
        let images = f64::from(operation.output.ty.shape.dim(0));
        let inside = images * whole_rows * f64::from((0..tiles).filter(inside).count() as u32);
        let all = images * f64::from(s.output.height) * f64::from(tiles);
        let (fours, pairs) = (fours(&p)? as f64, f64::from(s.output.channels / 2));
        Some(Workload {
            products: all * pairs * fours,
            outputs: all * pairs,
            vectors: inside,
            gathered: inside * fours,
            edges: all - inside,
            gathered_at_edges: (all - inside) * fours,
            lines: (all - inside) * f64::from(s.kernel[0]),
            ..Workload::default()
        })
    }
}
