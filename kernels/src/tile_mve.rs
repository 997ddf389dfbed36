//! Products of int8 matrices, four positions by four channels at a time, for CPUs with MVE.
//!
//! Positions are gathered first, once for all channels: sixteen taps of the first position, then sixteen of each of the others make a
//! block. Weights are read as they lie, channel by channel. One instruction multiplies sixteen taps of one position by one
//! channel's and adds them all; two channels of four positions fill the eight registers that it can add to.

use kiln_core::Call;

#[cfg(not(kiln_mve))]
use crate::mve::finish;

/// Positions computed together, and channels.
pub(crate) const POSITIONS: usize = 4;
/// Taps of a position that lie together.
pub(crate) const TAPS: usize = 16;
/// Bytes of a block: the same taps of all positions.
pub(crate) const BLOCK: usize = TAPS * POSITIONS;

/// Blocks that a window of `taps` takes.
#[inline(always)]
pub(crate) fn blocks(taps: usize) -> usize {
    taps.div_ceil(TAPS)
}

/// Four positions and what they are multiplied by. The body of a tile changes where it has got to.
#[repr(C)]
pub(crate) struct Tile {
    /// The shifts of channels to come.
    shifts: *const i8,
    /// Where the outputs of each position go; the same place may stand for several.
    pub(crate) outputs: [*mut u8; POSITIONS],
    /// What the channels' sums start from, and their multipliers.
    bias: *const i32,
    multipliers: *const i32,
    /// The output's zero point.
    zero: i32,
    /// Where `bias` is behind the last channel.
    end: *const i32,
    /// The positions' last block, since blocks are visited from the last to the first.
    last: *const u8,
    /// Rounds through four blocks each, all but the last one; 0 if that is the only one.
    rounds: usize,
    /// The last taps of channels 0 and 2.
    weights: [*const i8; 2],
    /// From what lies before the first taps of a channel to the last of the next one, and to the last of the third from there.
    steps: [usize; 2],
    /// Bytes of code that the first round skips.
    skipped: usize,
    /// Taps of the last block.
    tail: usize,
    /// Shifts, bias and multipliers of the first channel.
    first: First,
}

/// Where the constants of a channel begin.
#[repr(C)]
struct First {
    shifts: *const i8,
    bias: *const i32,
    multipliers: *const i32,
}

/// Bytes of code for one block.
const BLOCK_CODE: usize = 56;
/// Those of a round, the loop's end included.
const ROUND_CODE: usize = 4 * BLOCK_CODE + 8;

impl Tile {
    /// A tile of windows of `taps` taps, at least 1, gathered at `x`.
    #[inline(never)]
    pub(crate) fn new(x: *const u8, taps: usize, zero: i32) -> Tile {
        let before = blocks(taps).wrapping_sub(1);
        let passed = blocks(taps).wrapping_mul(TAPS);
        let rounds = before.div_ceil(4);
        Tile {
            shifts: core::ptr::null(),
            outputs: [core::ptr::null_mut(); POSITIONS],
            bias: core::ptr::null(),
            multipliers: core::ptr::null(),
            zero,
            end: core::ptr::null(),
            last: x.wrapping_add(before.wrapping_mul(BLOCK)),
            rounds,
            weights: [core::ptr::null(); 2],
            steps: [taps.wrapping_add(passed), taps.wrapping_mul(3).wrapping_add(passed)],
            skipped: match rounds {
                0 => ROUND_CODE,
                _ => rounds.wrapping_mul(4).wrapping_sub(before).wrapping_mul(BLOCK_CODE),
            },
            tail: taps.wrapping_sub(before.wrapping_mul(TAPS)),
            first: First { shifts: core::ptr::null(), bias: core::ptr::null(), multipliers: core::ptr::null() },
        }
    }

    /// Taps of a window.
    #[inline(always)]
    fn taps(&self) -> usize {
        self.steps[1].wrapping_sub(self.steps[0]) >> 1
    }

    /// Goes to channels `first..end` of the `channels` whose weights and whose block (bias, multipliers, shifts) are inputs 1 and 2.
    /// They are fours.
    #[inline(never)]
    pub(crate) fn turn_to(&mut self, call: &Call<'_>, channels: usize, [first, end]: [usize; 2]) {
        let (weights, block) = (call.input(1).ptr.cast_const(), call.input(2).ptr.cast_const());
        let taps = self.taps();
        let bias = block.cast::<i32>().wrapping_add(first);
        let shifts = block.cast::<i8>().wrapping_add(channels.wrapping_mul(8)).wrapping_add(first);
        self.first = First { shifts, bias, multipliers: bias.wrapping_add(channels) };
        self.end = block.cast::<i32>().wrapping_add(end);
        let at = first.wrapping_mul(taps).wrapping_add(taps).wrapping_sub(self.tail);
        let zeroth = weights.cast::<i8>().wrapping_add(at);
        self.weights = [zeroth, zeroth.wrapping_add(taps).wrapping_add(taps)];
    }
}

/// Computes the outputs of the channels that the tile was turned to, and leaves their pointers behind them.
///
/// # Safety
///
/// [`BLOCK`] bytes for every 16 taps of a window can be read where it was gathered; so can weights and block, which is aligned to 4
/// bytes, of those channels; their outputs can be written for each position. There are some.
#[cfg(not(kiln_mve))]
pub(crate) unsafe fn run(tile: &mut Tile) {
    let taps = tile.taps();
    let first = tile.last.wrapping_sub(blocks(taps).wrapping_sub(1).wrapping_mul(BLOCK)).cast::<i8>();
    let mut weights = tile.weights[0].wrapping_sub(taps.wrapping_sub(tile.tail));
    (tile.shifts, tile.bias, tile.multipliers) = (tile.first.shifts, tile.first.bias, tile.first.multipliers);
    while tile.bias != tile.end {
        // SAFETY: the constants and the weights of a channel, an output, a gathered tap: as the caller promises.
        unsafe {
            let (bias, multiplier, shift) = (tile.bias.read(), tile.multipliers.read(), tile.shifts.read());
            for (position, output) in tile.outputs.iter_mut().enumerate() {
                let mut x = first.wrapping_add(position.wrapping_mul(TAPS));
                let mut sum = bias;
                for tap in 0..taps {
                    let product = (x.read() as i32).wrapping_mul(weights.wrapping_add(tap).read() as i32);
                    sum = sum.wrapping_add(product);
                    let step = if tap % TAPS == TAPS - 1 { BLOCK - TAPS + 1 } else { 1 };
                    x = x.wrapping_add(step);
                }
                output.write(finish(sum, multiplier, shift as i32, tile.zero) as u8);
                *output = output.wrapping_add(1);
            }
        }
        weights = weights.wrapping_add(taps);
        tile.bias = tile.bias.wrapping_add(1);
        tile.multipliers = tile.multipliers.wrapping_add(1);
        tile.shifts = tile.shifts.wrapping_add(1);
    }
}

/// As above: 14 instructions for the 128 products of a block and two channels.
#[cfg(kiln_mve)]
#[inline(always)]
pub(crate) unsafe fn run(tile: &mut Tile) {
    // SAFETY: the caller's promise.
    unsafe { assembly::tile(tile) }
}

/// Lines of a window, and where they go.
#[repr(C)]
pub(crate) struct Lines {
    /// The first line.
    pub(crate) from: *const u8,
    /// Where it goes.
    pub(crate) to: *mut u8,
    /// Bytes of a line, at least 1.
    pub(crate) bytes: usize,
    /// Lines, at least 1.
    pub(crate) lines: usize,
    /// From one line to the next.
    pub(crate) from_step: usize,
    pub(crate) to_step: usize,
    /// From 16 bytes of a line to the next 16 where they go.
    pub(crate) step: usize,
}

/// Copies lines.
///
/// # Safety
///
/// They can be read and, where they go, written; nothing overlaps.
#[cfg(not(kiln_mve))]
pub(crate) unsafe fn copy(lines: &Lines) {
    for line in 0..lines.lines {
        let from = lines.from.wrapping_add(line.wrapping_mul(lines.from_step));
        let to = lines.to.wrapping_add(line.wrapping_mul(lines.to_step));
        for byte in 0..lines.bytes {
            let at = (byte / TAPS).wrapping_mul(lines.step).wrapping_add(byte % TAPS);
            // SAFETY: a byte of a line, as the caller promises.
            unsafe { to.wrapping_add(at).write(from.wrapping_add(byte).read()) };
        }
    }
}

/// As above.
#[cfg(kiln_mve)]
#[inline(always)]
pub(crate) unsafe fn copy(lines: &Lines) {
    // SAFETY: the caller's promise.
    unsafe { assembly::copy(lines) }
}

/// Gathers the same lines of four positions, the first of them at `from`, into blocks. Lines follow one another: where there are several, they
/// come in sixteens.
///
/// # Safety
///
/// They can be read, and the blocks at `lines.to` be written; nothing overlaps.
#[cfg(not(kiln_mve))]
pub(crate) unsafe fn gather(lines: &Lines, from: &[*const u8; POSITIONS]) {
    for (position, &from) in from.iter().enumerate() {
        let to = lines.to.wrapping_add(position.wrapping_mul(TAPS));
        let to_step = lines.bytes.wrapping_mul(POSITIONS);
        // SAFETY: as the caller promises.
        unsafe { copy(&Lines { from, to, to_step, step: BLOCK, ..*lines }) };
    }
}

/// As above: 9 instructions a block.
#[cfg(kiln_mve)]
#[inline(always)]
pub(crate) unsafe fn gather(lines: &Lines, from: &[*const u8; POSITIONS]) {
    // SAFETY: the caller's promise.
    unsafe { assembly::gather(lines, from) }
}

/// Fills the parts of a window in `blocks` blocks, at least 1, `step` bytes apart.
///
/// # Safety
///
/// [`TAPS`] bytes of each can be written.
#[cfg(not(kiln_mve))]
pub(crate) unsafe fn fill(to: *mut u8, step: usize, blocks: usize, byte: u8) {
    for block in 0..blocks {
        // SAFETY: as the caller promises.
        unsafe { to.wrapping_add(block.wrapping_mul(step)).cast::<[u8; TAPS]>().write([byte; TAPS]) };
    }
}

/// As above.
#[cfg(kiln_mve)]
#[inline(always)]
pub(crate) unsafe fn fill(to: *mut u8, step: usize, blocks: usize, byte: u8) {
    // SAFETY: the caller's promise.
    unsafe { assembly::fill(to, step, blocks, byte) }
}

/// The most taps of a window that is spread: places of bytes are bytes.
pub(crate) const SPREAD: usize = 64;

/// Spreads lines of four positions, the first of them at `from`, over the blocks. Lines follow one another and have 16 bytes or less, all
/// together [`SPREAD`] or less.
///
/// # Safety
///
/// As for [`gather`].
#[cfg(not(kiln_mve))]
pub(crate) unsafe fn spread(lines: &Lines, from: &[*const u8; POSITIONS]) {
    for (position, &from) in from.iter().enumerate() {
        let to = lines.to.wrapping_add(position.wrapping_mul(TAPS));
        for tap in 0..lines.lines.wrapping_mul(lines.bytes) {
            let (line, byte) = (tap.checked_div(lines.bytes).unwrap_or(0), tap.checked_rem(lines.bytes).unwrap_or(0));
            let from = from.wrapping_add(line.wrapping_mul(lines.from_step)).wrapping_add(byte);
            let at = (tap / TAPS).wrapping_mul(BLOCK).wrapping_add(tap % TAPS);
            // SAFETY: a byte of a line, as the caller promises.
            unsafe { to.wrapping_add(at).write(from.read()) };
        }
    }
}

/// As above: 19 instructions for a line of all positions.
#[cfg(kiln_mve)]
#[inline(always)]
pub(crate) unsafe fn spread(lines: &Lines, from: &[*const u8; POSITIONS]) {
    // SAFETY: the caller's promise.
    unsafe { assembly::spread(lines, from) }
}

/// Distributes the `taps` taps of a window, at least 1, from where they are put together over the blocks.
///
/// # Safety
///
/// They can be read and, where they go, written.
#[cfg(not(kiln_mve))]
pub(crate) unsafe fn distribute(window: *const u8, to: *mut u8, taps: usize) {
    let (from_step, to_step) = (0, 0);
    // SAFETY: the caller's promise.
    unsafe { copy(&Lines { from: window, to, bytes: taps, lines: 1, from_step, to_step, step: BLOCK }) };
}

/// As above.
#[cfg(kiln_mve)]
#[inline(always)]
pub(crate) unsafe fn distribute(window: *const u8, to: *mut u8, taps: usize) {
    // SAFETY: the caller's promise.
    unsafe { assembly::distribute(window, to, taps) }
}

#[cfg(kiln_mve)]
mod assembly {
    use core::arch::asm;

    use super::{Lines, POSITIONS, Tile};
    use crate::mve::{extension, narrow, scale};

    /// A block before the one visited last: x in r1, weights of the two channels in r3 and r5. Sums of position 0 in r0 and r2,
    /// of 1 in r4 and r6, of 2 in r8 and r10, of 3 in r12 and lr.
    macro_rules! block {
        () => {
            "vldrb.8 q2, [r3], #-16
            vldrb.8 q3, [r5], #-16
            vldrw.32 q0, [r1, #16]
            vmladava.s8 r4, q0, q2
            vldrw.32 q1, [r1, #32]
            vmladava.s8 r6, q0, q3
            vmladava.s8 r8, q1, q2
            vldrw.32 q0, [r1, #48]
            vmladava.s8 r10, q1, q3
            vmladava.s8 r12, q0, q2
            vldrw.32 q1, [r1], #-64
            vmladava.s8 lr, q0, q3
            vmladava.s8 r0, q1, q2
            vmladava.s8 r2, q1, q3
            "
        };
    }

    /// Two channels of four positions: their sums, in the registers that `block` says. The last block comes first: its
    /// taps beyond the window have weights of 0. Then r9 says how many bytes of code to skip.
    macro_rules! pair {
        () => {
            concat!(
                "ldrd r1, r7, [r11, #36]
                vpstt
                vldrbt.u8 q2, [r3], #-16
                vldrbt.u8 q3, [r5], #-16
                vldrw.32 q0, [r1, #16]
                vmladav.s8 r4, q0, q2
                vldrw.32 q1, [r1, #32]
                vmladav.s8 r6, q0, q3
                vmladav.s8 r8, q1, q2
                vldrw.32 q0, [r1, #48]
                vmladav.s8 r10, q1, q3
                vmladav.s8 r12, q0, q2
                vldrw.32 q1, [r1], #-64
                vmladav.s8 lr, q0, q3
                vmladav.s8 r0, q1, q2
                vmladav.s8 r2, q1, q3
                add pc, r9
                nop
                2:
                ",
                block!(),
                block!(),
                block!(),
                block!(),
                "subs.w r7, r7, #1
                bne.w 2b
                ",
            )
        };
    }

    /// The tile stays in r11.
    #[inline(never)]
    pub(super) unsafe extern "C" fn tile(tile: *mut Tile) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                extension!(),
                "push {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                "vpush {{d8, d9, d10, d11, d12, d13, d14, d15}}",
                "mov r11, r0",
                "ldrd r9, r1, [r11, #60]",
                "vctp.8 r1",
                "ldr r0, [r11, #68]",
                "ldrd r1, r2, [r11, #72]",
                "str r0, [r11]",
                "strd r1, r2, [r11, #20]",
                "ldrd r3, r5, [r11, #44]",
                "1:",
                pair!(),
                "vmov q4[2], q4[0], r0, r2",
                "vmov q5[2], q5[0], r4, r6",
                "vmov q6[2], q6[0], r8, r10",
                "vmov q7[2], q7[0], r12, lr",
                "ldr r0, [r11, #52]",
                "add r3, r3, r0",
                "add r5, r5, r0",
                pair!(),
                "vmov q4[3], q4[1], r0, r2",
                "vmov q5[3], q5[1], r4, r6",
                "vmov q6[3], q6[1], r8, r10",
                "vmov q7[3], q7[1], r12, lr",
                "ldr r0, [r11, #56]",
                "add r3, r3, r0",
                "add r5, r5, r0",
                // Four channels: shifts in r0, outputs in r1, r2, r4 and r6, other constants in r8 and r10, the zero point in r12.
                "ldm r11, {{r0, r1, r2, r4, r6, r8, r10, r12}}",
                "mov r7, #1",
                "vldrw.32 q0, [r8], #16",
                "vldrw.32 q1, [r10], #16",
                "vldrb.s32 q2, [r0], #4",
                "vadd.i32 q4, q4, q0",
                "vadd.i32 q5, q5, q0",
                "vadd.i32 q6, q6, q0",
                "vadd.i32 q7, q7, q0",
                scale!("q4", "q1", "q2", "r7"),
                scale!("q5", "q1", "q2", "r7"),
                scale!("q6", "q1", "q2", "r7"),
                scale!("q7", "q1", "q2", "r7"),
                narrow!("q4", "q5", "q6", "q7", "r12"),
                "vstrb.32 q4, [r1], #4",
                "vshr.u32 q4, q4, #8",
                "vstrb.32 q4, [r4], #4",
                "vshr.u32 q4, q4, #8",
                "vstrb.32 q4, [r2], #4",
                "vshr.u32 q4, q4, #8",
                "vstrb.32 q4, [r6], #4",
                "ldr lr, [r11, #32]",
                "stm r11, {{r0, r1, r2, r4, r6, r8, r10}}",
                "cmp r8, lr",
                "bne.w 1b",
                "vpop {{d8, d9, d10, d11, d12, d13, d14, d15}}",
                "pop {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                inout("r0") tile => _,
                out("r1") _,
                out("r2") _,
                out("r3") _,
                out("r12") _,
                out("lr") _,
            );
        }
    }

    /// Four instructions for each 16 bytes, twelve for a line.
    #[inline(never)]
    pub(super) unsafe extern "C" fn copy(lines: *const Lines) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                extension!(),
                "push {{r4, r5, r6, r7}}",
                "ldm r0, {{r1, r2, r3, r4, r5, r6, r7}}",
                "1:",
                "mov r0, r1",
                "mov r12, r2",
                "dlstp.8 lr, r3",
                "2:",
                "vldrb.8 q0, [r0], #16",
                "vstrb.8 q0, [r12]",
                "add r12, r12, r7",
                "letp lr, 2b",
                "add r1, r1, r5",
                "add r2, r2, r6",
                "subs r4, r4, #1",
                "bne 1b",
                "pop {{r4, r5, r6, r7}}",
                inout("r0") lines => _,
                out("r1") _,
                out("r2") _,
                out("r3") _,
                out("r12") _,
                out("lr") _,
            );
        }
    }

    #[inline(never)]
    pub(super) unsafe extern "C" fn gather(lines: *const Lines, from: *const [*const u8; POSITIONS]) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                extension!(),
                "push {{r4, r5, r6, r7, r8}}",
                "ldm r0, {{r2, r3, r4, r5, r6}}",
                "sub r6, r6, r4",
                "ldm r1, {{r1, r2, r7, r8}}",
                "1:",
                "dlstp.8 lr, r4",
                "2:",
                "vldrb.8 q0, [r1], #16",
                "vldrb.8 q1, [r2], #16",
                "vldrb.8 q2, [r7], #16",
                "vldrb.8 q3, [r8], #16",
                "vstrb.8 q1, [r3, #16]",
                "vstrb.8 q2, [r3, #32]",
                "vstrb.8 q3, [r3, #48]",
                "vstrb.8 q0, [r3], #64",
                "letp lr, 2b",
                "add r2, r2, r6",
                "add r7, r7, r6",
                "add r8, r8, r6",
                "add r1, r1, r6",
                "subs r5, r5, #1",
                "bne 1b",
                "pop {{r4, r5, r6, r7, r8}}",
                inout("r0") lines => _,
                inout("r1") from => _,
                out("r2") _,
                out("r3") _,
                out("r12") _,
                out("lr") _,
            );
        }
    }

    /// Places in q2: bytes of a window in q1, and three times their blocks' beginnings on top.
    #[inline(never)]
    pub(super) unsafe extern "C" fn spread(lines: *const Lines, from: *const [*const u8; POSITIONS]) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                extension!(),
                "push {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                "ldm r0, {{r2, r3, r4, r5, r6}}",
                "ldm r1, {{r1, r2, r7, r8}}",
                "add r9, r3, #16",
                "add r10, r3, #32",
                "add r11, r3, #48",
                "mov r0, #0",
                "vidup.u8 q1, r0, #1",
                "vmov.i8 q3, #0xf0",
                "mov r12, #3",
                "vctp.8 r4",
                "dls lr, r5",
                "1:",
                "vand q2, q1, q3",
                "vmul.i8 q2, q2, r12",
                "vadd.i8 q2, q2, q1",
                "vpstttt",
                "vldrbt.u8 q0, [r1]",
                "vstrbt.8 q0, [r3, q2]",
                "vldrbt.u8 q0, [r2]",
                "vstrbt.8 q0, [r9, q2]",
                "vpstttt",
                "vldrbt.u8 q0, [r7]",
                "vstrbt.8 q0, [r10, q2]",
                "vldrbt.u8 q0, [r8]",
                "vstrbt.8 q0, [r11, q2]",
                "vadd.i8 q1, q1, r4",
                "add r2, r2, r6",
                "add r7, r7, r6",
                "add r8, r8, r6",
                "add r1, r1, r6",
                "le lr, 1b",
                "pop {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                inout("r0") lines => _,
                inout("r1") from => _,
                out("r2") _,
                out("r3") _,
                out("r12") _,
                out("lr") _,
            );
        }
    }

    #[inline(never)]
    pub(super) unsafe extern "C" fn distribute(window: *const u8, to: *mut u8, taps: usize) {
        // SAFETY: what is changed is said below.
        unsafe {
            asm!(
                extension!(),
                "dlstp.8 lr, r2",
                "1:",
                "vldrb.8 q0, [r0], #16",
                "vstrb.8 q0, [r1], #64",
                "letp lr, 1b",
                inout("r0") window => _,
                inout("r1") to => _,
                inout("r2") taps => _,
                out("lr") _,
            );
        }
    }

    #[inline(never)]
    pub(super) unsafe extern "C" fn fill(to: *mut u8, step: usize, blocks: usize, byte: u8) {
        // SAFETY: what is changed is said below.
        unsafe {
            asm!(
                extension!(),
                "vdup.8 q0, r3",
                "dls lr, r2",
                "1:",
                "vstrb.8 q0, [r0]",
                "add r0, r0, r1",
                "le lr, 1b",
                inout("r0") to => _,
                inout("r1") step => _,
                inout("r2") blocks => _,
                inout("r3") byte as u32 => _,
                out("lr") _,
            );
        }
    }
}
