use core::arch::asm;

use super::{SCALES, Tiles};
use crate::mve::{extension, narrow, scale};

/// As in plain Rust, three instructions a byte of eight channels.
#[inline(never)]
pub(super) unsafe extern "C" fn fill(to: *mut u8, count: usize, pitch: usize, zero: i32) {
    // SAFETY: the caller's promise. Nothing changes but registers that a callee may.
    unsafe {
        asm!(
            extension!(),
            "mov r12, #0",
            "vidup.u16 q1, r12, #1",
            "vmul.i16 q1, q1, r2",
            "vdup.8 q0, r3",
            "wls lr, r1, 2f",
            "3:",
            "vstrb.16 q0, [r0, q1]",
            "add r0, r0, #1",
            "le lr, 3b",
            "2:",
            inout("r0") to => _,
            inout("r1") count => _,
            inout("r2") pitch => _,
            inout("r3") zero => _,
            out("r12") _,
            out("lr") _,
        );
    }
}

/// What both bodies begin with: outputs in r0, their pitch in r12, their zero point in r11, constants in r2, and 1 in r9. The
/// arguments are on the stack.
macro_rules! enter {
    () => {
        concat!(
            "vpush {{d8-d15}}\n",
            "push {{r0, r4, r5, r6, r7, r8, r9, r10, r11}}\n",
            "mov r1, r0\n",
            "add r3, r0, #52\n",
            "ldm r3, {{r0, r2, r11, r12}}\n",
            "mov r9, #1\n",
            // A group of channels goes back first.
            "ldr r3, [r1, #8]\n",
            "add r0, r0, r3\n",
        )
    };
}

/// What they do after eight channels; leaves the arguments in r1.
macro_rules! go_on {
    () => {
        concat!("ldr r1, [sp]\n", "ldrd r3, r4, [r1, #76]\n", "add r2, r2, r3\n", "add r0, r0, r4\n",)
    };
}

/// And what they end with.
macro_rules! leave {
    () => {
        concat!("str r2, [r1, #56]\n", "pop {{r0, r4, r5, r6, r7, r8, r9, r10, r11}}\n", "vpop {{d8-d15}}\n",)
    };
}

/// Takes what is to be turned: source in r3, pitches in r4 and r5, rows in r6, columns in r7, the place in r8, scratch in
/// r10; where eight channels go, in q4. The source is moved on.
macro_rules! turn {
    () => {
        concat!(
            "ldr r1, [sp]\n",
            "add r3, r1, #24\n",
            "ldm r3, {{r3, r4, r5, r6, r7, r8, r10}}\n",
            "ldr lr, [r1, #84]\n",
            "add lr, lr, r3\n",
            "str lr, [r1, #24]\n",
            "ldr r1, [r1, #4]\n",
            "mov lr, #0\n",
            "vidup.u16 q4, lr, #1\n",
            "vmul.i16 q4, q4, r1\n",
        )
    };
}

/// Goes to four channels, the first of whose windows is in r1.
macro_rules! columns {
    () => {
        concat!("add r3, r1, r4\n", "add r5, r3, r4\n", "add r7, r5, r4\n", "sub r0, r0, r6\n",)
    };
}

/// Sums of a pixel's windows, for four channels.
macro_rules! multiply {
    ($($window:tt)*) => {
        concat!(
            window!("r1", "r4", "q0", $($window)*),
            window!("r3", "r6", "q1", $($window)*),
            window!("r5", "r8", "q2", $($window)*),
            window!("r7", "r10", "q3", $($window)*),
            together!(),
        )
    };
}

/// The sums of four channels as a vector, with what they start from.
macro_rules! together {
    () => {
        concat!("vmov q7[2], q7[0], r4, r8\n", "vmov q7[3], q7[1], r6, r10\n", "vadd.i32 q7, q7, q4\n",)
    };
}

/// The sum of a window of several vectors; the last may be shorter. Goes to the next channel.
macro_rules! vectors {
    ($sum:literal, $label:literal) => {
        concat!(
            "mov ",
            $sum,
            ", #0\n",
            "dlstp.8 lr, r5\n",
            $label,
            ":\n",
            "vldrb.u8 q0, [r7], #16\n",
            "vldrb.u8 q1, [r1], #16\n",
            "vmladava.s8 ",
            $sum,
            ", q0, q1\n",
            "letp lr, ",
            $label,
            "b\n",
            "add r7, r7, r3\n",
            "add r1, r1, r2\n",
        )
    };
}

/// The sum of one window; the next lies so many bytes on, or as many as r2 says.
macro_rules! window {
    ($x:literal, $sum:literal, $weights:literal, r2) => {
        concat!(
            "vldrb.u8 q7, [",
            $x,
            "]\n",
            "add ",
            $x,
            ", ",
            $x,
            ", r2\n",
            "vmladav.s8 ",
            $sum,
            ", ",
            $weights,
            ", q7\n",
        )
    };
    ($x:literal, $sum:literal, $weights:literal, $step:tt) => {
        concat!("vldrb.u8 q7, [", $x, "], #", $step, "\n", "vmladav.s8 ", $sum, ", ", $weights, ", q7\n",)
    };
}

/// All outputs of four channels, 20 instructions each time.
macro_rules! outputs {
    ($label:literal, $step:tt) => {
        concat!(
            $label,
            ":\n",
            multiply!($step),
            scale!("q7", "q5", "q6", "r9"),
            narrow!("q7", "r11"),
            "vstrb.32 q7, [r0]\n",
            "add r0, r0, r12\n",
            "le lr, ",
            $label,
            "b\n",
        )
    };
}

/// Three rows take 11 instructions a column. The upper half of r11 says which four of the eight channels it is.
#[inline(never)]
pub(super) unsafe extern "C" fn eights(tiles: *mut Tiles) {
    // SAFETY: registers that a compiler may want back are pushed and popped; the rest is the caller's promise.
    unsafe {
        asm!(
            extension!(),
            enter!(),
            "mov r1, #9",
            "vctp.8 r1",
            "4:",
            turn!(),
            "vadd.i16 q5, q4, r9",
            "vadd.i16 q6, q5, r9",
            "cmp r6, #3",
            "bne 6f",
            "add r1, r3, r5",
            "add r5, r1, r5",
            "dls lr, r7",
            "5:",
            "vldrb.u16 q0, [r3]",
            "vldrb.u16 q1, [r1]",
            "vldrb.u16 q2, [r5]",
            "vstrb.16 q0, [r8, q4]",
            "vstrb.16 q1, [r8, q5]",
            "vstrb.16 q2, [r8, q6]",
            "add r3, r3, r4",
            "add r1, r1, r4",
            "add r5, r5, r4",
            "add r8, r8, #3",
            "le lr, 5b",
            "b 9f",
            "6:",
            "cbz r6, 9f",
            "7:",
            "mov r1, r3",
            "dls lr, r7",
            "8:",
            "vldrb.u16 q0, [r1]",
            "vstrb.16 q0, [r8, q4]",
            "add r1, r1, r4",
            "add r8, r8, #3",
            "le lr, 8b",
            "sub r8, r8, r7, lsl #1",
            "sub r8, r8, r7",
            "add r8, r8, #1",
            "add r3, r3, r5",
            "subs r6, r6, #1",
            "bne 7b",
            "9:",
            "mov r1, r10",
            "20:",
            "vldrw.u32 q4, [r2], #16",
            "vldrw.u32 q5, [r2], #16",
            "vldrb.s32 q6, [r2], #4",
            "vpstttt",
            "vldrbt.u8 q0, [r2], #9",
            "vldrbt.u8 q1, [r2], #9",
            "vldrbt.u8 q2, [r2], #9",
            "vldrbt.u8 q3, [r2], #9",
            "ldr r3, [sp]",
            "ldm r3, {{r3, r4, r6, lr}}",
            "cmp r3, #3",
            columns!(),
            "bne 22f",
            outputs!("21", 3),
            "b 23f",
            outputs!("22", 6),
            "23:",
            "ldr r3, [sp]",
            "ldr r3, [r3, #16]",
            "add r1, r7, r3",
            "adds r11, r11, #0x80000000",
            "bcc 20b",
            go_on!(),
            "ldr r3, [r1, #20]",
            "subs r3, r3, #1",
            "str r3, [r1, #20]",
            "bne 4b",
            "ldr r3, [r1, #8]",
            "sub r0, r0, r3",
            "str r0, [r1, #52]",
            leave!(),
            inout("r0") tiles => _,
            out("r1") _,
            out("r12") _,
            out("r3") _,
            out("r2") _,
            out("lr") _,
        );
    }
}

/// Four channels, as the second half of eight that begin with the four before; these may have been written over, and are not
/// computed.
#[inline(always)]
pub(super) unsafe fn four(tiles: &mut Tiles) {
    let body = tiles.body;
    tiles.source = tiles.source.wrapping_sub(4);
    tiles.body = body.wrapping_add(tiles.pitch.wrapping_mul(4));
    tiles.zero |= i32::MIN;
    tiles.left = 1;
    // SAFETY: the caller's promise.
    unsafe { eights(tiles) };
    tiles.body = body;
    tiles.zero &= i32::MAX;
    // What comes next is as far on as behind eight.
    tiles.source = tiles.source.wrapping_add(4);
    tiles.output = tiles.output.wrapping_add(4);
    tiles.constants = tiles.constants.wrapping_add(SCALES + 4 * 9);
}

/// Any windows, any number of channels.
#[inline(never)]
pub(super) unsafe extern "C" fn few(tiles: *mut Tiles) {
    // SAFETY: registers that a compiler may want back are pushed and popped; the rest is the caller's promise.
    unsafe {
        asm!(
            extension!(),
            enter!(),
            "ldr r3, [r1, #20]",
            "vctp.16 r3",
            turn!(),
            "ldr r1, [sp]",
            "ldr r10, [r1, #68]",
            "cbz r6, 9f",
            "7:",
            "mov r1, r3",
            "dls lr, r7",
            "8:",
            "vpst",
            "vldrbt.u16 q0, [r1]",
            "vstrb.16 q0, [r8, q4]",
            "add r1, r1, r4",
            "add r8, r8, r10",
            "le lr, 8b",
            "mls r8, r7, r10, r8",
            "add r8, r8, #1",
            "add r3, r3, r5",
            "subs r6, r6, #1",
            "bne 7b",
            "9:",
            "ldr r3, [sp]",
            "ldr r1, [r3, #48]",
            "ldr r5, [r3, #72]",
            "cmp r5, #16",
            "bgt 30f",
            "20:",
            "vldrw.u32 q4, [r2], #16",
            "vldrw.u32 q5, [r2], #16",
            "vldrb.s32 q6, [r2], #4",
            "ldr r5, [r3, #72]",
            "vctp.8 r5",
            "add r6, r2, r5",
            "add r7, r6, r5",
            "add r8, r7, r5",
            "vpstttt",
            "vldrbt.u8 q0, [r2]",
            "vldrbt.u8 q1, [r6]",
            "vldrbt.u8 q2, [r7]",
            "vldrbt.u8 q3, [r8]",
            "add r2, r8, r5",
            "str r2, [r3, #88]",
            "ldr r5, [r3, #20]",
            "vctp.32 r5",
            "sub r5, r5, #4",
            "str r5, [r3, #20]",
            "ldm r3, {{r3, r4, r6, lr}}",
            "mov r2, r3",
            columns!(),
            "21:",
            multiply!(r2),
            scale!("q7", "q5", "q6", "r9"),
            narrow!("q7", "r11"),
            "vpst",
            "vstrbt.32 q7, [r0]",
            "add r0, r0, r12",
            "le lr, 21b",
            "ldr r3, [sp]",
            "ldr r4, [r3, #16]",
            "add r1, r7, r4",
            "ldr r2, [r3, #88]",
            "ldr r4, [r3, #20]",
            "cmp r4, #0",
            "bgt 20b",
            "b 34f",
            // Windows of several vectors. Columns in r7, weights in r1, what is passed in r3 and r2.
            "30:",
            "vldrw.u32 q4, [r2], #16",
            "vldrw.u32 q5, [r2], #16",
            "vldrb.s32 q6, [r2], #4",
            "ldr r4, [r3, #20]",
            "vctp.32 r4",
            "sub r4, r4, #4",
            "str r4, [r3, #20]",
            "ldrd r4, r6, [r3, #8]",
            "sub r0, r0, r4",
            "str r6, [r3, #88]",
            "mov r7, r1",
            "mov r1, r2",
            "ldr r3, [r3, #4]",
            "add r4, r5, #15",
            "bic r4, r4, #15",
            "sub r2, r5, r4",
            "sub r3, r3, r4",
            "31:",
            vectors!("r4", "35"),
            vectors!("r6", "36"),
            vectors!("r8", "37"),
            vectors!("r10", "38"),
            together!(),
            scale!("q7", "q5", "q6", "r9"),
            narrow!("q7", "r11"),
            "vpst",
            "vstrbt.32 q7, [r0]",
            "add r0, r0, r12",
            "ldr lr, [sp]",
            "ldrd r4, r6, [lr]",
            "add r7, r7, r4",
            "sub r7, r7, r6, lsl #2",
            "sub r1, r1, r5, lsl #2",
            "ldr r4, [lr, #88]",
            "subs r4, r4, #1",
            "str r4, [lr, #88]",
            "bne 31b",
            "ldr r3, [sp]",
            "add r2, r1, r5, lsl #2",
            "ldr r4, [r3, #4]",
            "ldr r6, [r3, #16]",
            "add r7, r7, r6",
            "add r7, r7, r4",
            "add r1, r7, r4, lsl #1",
            "ldr r4, [r3, #20]",
            "cmp r4, #0",
            "bgt 30b",
            "34:",
            "ldr r5, [r3, #72]",
            "ldrd r0, r2, [r3, #52]",
            "add r0, r0, #8",
            "add r2, r2, #72",
            "add r2, r2, r5, lsl #3",
            go_on!(),
            "str r0, [r1, #52]",
            leave!(),
            inout("r0") tiles => _,
            out("r1") _,
            out("r12") _,
            out("r3") _,
            out("r2") _,
            out("lr") _,
        );
    }
}
