//! Tiles of the biased form on Armv6-M. All of its registers are in use; high ones can be added to, and hold sums.

use core::arch::asm;

use super::Tile;
use crate::scalar::assembly::high_product;

/// The products of one tap: its word in `$x`, weights from `$a` on behind r2.
macro_rules! tap {
    ($x:literal, $a:literal, $b:literal, $c:literal, $d:literal) => {
        concat!(
            "ldrb r4, [r2, #",
            $a,
            "]
            muls r4, ",
            $x,
            ", r4
            add r8, r8, r4
            lsrs r4, r4, #16
            add r9, r9, r4
            ldrb r4, [r2, #",
            $b,
            "]
            muls r4, ",
            $x,
            ", r4
            add r10, r10, r4
            lsrs r4, r4, #16
            add r11, r11, r4
            ldrb r4, [r2, #",
            $c,
            "]
            muls r4, ",
            $x,
            ", r4
            add r12, r12, r4
            lsrs r4, r4, #16
            add lr, lr, r4
            ldrb r4, [r2, #",
            $d,
            "]
            muls r4, ",
            $x,
            ", r4
            adds r6, r6, r4
            lsrs r4, r4, #16
            adds r7, r7, r4
            "
        )
    };
}

/// Both sums of a channel.
macro_rules! put {
    ($first:literal, $second:literal, $mixed:literal, $upper:literal) => {
        concat!(
            "mov r0, ",
            $mixed,
            "
            mov r1, ",
            $upper,
            "
            lsls r2, r1, #16
            subs r0, r0, r2
            str r0, [r4, #",
            $first,
            "]
            str r1, [r4, #",
            $second,
            "]
            "
        )
    };
}

/// While products are added up: words of two taps in r3 and r5; mixed sums in r8, r10, r12 and r6, sums of upper halves in r9,
/// r11, lr and r7. Then for each position: sums behind r7, records behind r6, shifts behind r3; in r8 to r12 the excess,
/// negative, how far outputs are from shifts, zero point, least and largest output. On the stack the tile.
#[inline(never)]
pub(super) unsafe extern "C" fn fours(tile: &mut Tile<'_>) {
    // SAFETY: the registers that a compiler may want back are pushed and popped; it reads the words and constants that the
    // caller promises, and writes outputs and the tile.
    unsafe {
        asm!(
            "push {{r4, r5, r6, r7}}",
            "mov r4, r8",
            "mov r5, r9",
            "mov r6, r10",
            "mov r7, r11",
            "push {{r0, r4, r5, r6, r7}}",
            // Four channels.
            "10:",
            "ldr r3, [sp]",
            "ldm r3!, {{r0, r1, r2}}",
            "movs r6, #0",
            "movs r7, #0",
            "mov r8, r6",
            "mov r9, r6",
            "mov r10, r6",
            "mov r11, r6",
            "mov r12, r6",
            "mov lr, r6",
            "lsrs r3, r1, #1",
            "bcc 1f",
            "ldm r0!, {{r5}}",
            tap!("r5", "0", "1", "2", "3"),
            "adds r2, r2, #4",
            "1:",
            "lsls r1, r3, #3",
            "beq 4f",
            "adds r1, r1, r0",
            "lsrs r3, r3, #1",
            "bcc 2f",
            // Into the middle: the second pair of taps is the first that there is.
            "subs r2, r2, #8",
            "b 3f",
            "2:",
            "ldm r0!, {{r3, r5}}",
            tap!("r3", "0", "1", "2", "3"),
            tap!("r5", "4", "5", "6", "7"),
            "3:",
            "ldm r0!, {{r3, r5}}",
            tap!("r3", "8", "9", "10", "11"),
            tap!("r5", "12", "13", "14", "15"),
            "adds r2, r2, #16",
            "cmp r0, r1",
            "bne 2b",
            "4:",
            "ldr r3, [sp]",
            "str r2, [r3, #8]",
            "movs r4, r0",
            put!("0", "16", "r8", "r9"),
            put!("4", "20", "r10", "r11"),
            put!("8", "24", "r12", "lr"),
            put!("12", "28", "r6", "r7"),
            "movs r7, r4",
            "ldr r4, [r3, #40]",
            "adds r4, r4, #4",
            "ldm r4!, {{r0, r1, r2}}",
            "mov r10, r0",
            "mov r11, r1",
            "mov r12, r2",
            "ldr r0, [r3, #24]",
            "ldr r1, [r3, #32]",
            "bl 11f",
            "ldr r3, [sp]",
            "str r0, [r3, #24]",
            "ldr r0, [r3, #28]",
            "ldr r1, [r3, #36]",
            "bl 11f",
            "ldr r2, [sp]",
            "str r0, [r2, #28]",
            "str r6, [r2, #12]",
            "str r3, [r2, #16]",
            "ldr r0, [r2, #20]",
            "subs r0, r0, #1",
            "str r0, [r2, #20]",
            "beq 20f",
            "b 10b",
            // The outputs of a position, from r0 on, with r1 too much in their sums.
            "11:",
            "rsbs r1, r1, #0",
            "mov r8, r1",
            "ldr r6, [r3, #12]",
            "ldr r3, [r3, #16]",
            "subs r0, r0, r3",
            "mov r9, r0",
            "b 15f",
            // A negative sum.
            "12:",
            "mov r0, r11",
            "cmp r0, r10",
            "bge 17f",
            "b 16f",
            // What is scaled to a negative number.
            "13:",
            "subs r0, r0, #2",
            "asrs r0, r0, r1",
            "adcs r0, r0, r2",
            "cmp r0, r11",
            "bge 17f",
            "mov r0, r11",
            "b 17f",
            "14:",
            "mov r0, r12",
            "b 17f",
            // A channel.
            "15:",
            "ldm r7!, {{r0}}",
            "ldm r6!, {{r4, r5}}",
            "add r0, r0, r8",
            "adds r4, r4, r0",
            "bmi 12b",
            "16:",
            high_product!("r4", "r5", "r0", "r1", "r2"),
            "ldrb r1, [r3]",
            "mov r2, r10",
            "adds r0, r4, #1",
            "ble 13b",
            "asrs r0, r0, r1",
            "adcs r0, r0, r2",
            "cmp r0, r12",
            "bgt 14b",
            "17:",
            "mov r2, r9",
            "strb r0, [r3, r2]",
            "adds r3, r3, #1",
            // The shifts of four channels begin at multiples of four.
            "lsls r0, r3, #30",
            "bne 15b",
            "adds r0, r3, r2",
            "bx lr",
            "20:",
            "pop {{r0, r4, r5, r6, r7}}",
            "mov r8, r4",
            "mov r9, r5",
            "mov r10, r6",
            "mov r11, r7",
            "pop {{r4, r5, r6, r7}}",
            inout("r0") tile => _,
            out("r1") _,
            out("r2") _,
            out("r3") _,
            out("r12") _,
            out("lr") _,
        );
    }
}

/// A word.
macro_rules! word {
    ($at:literal, $to:literal) => {
        concat!(
            "ldrb r4, [r0, #",
            $at,
            "]
            ldrb r5, [r1, #",
            $at,
            "]
            lsls r5, r5, #16
            orrs r4, r4, r5
            eors r4, r4, r6
            str r4, [r2, #",
            $to,
            "]
            "
        )
    };
}

/// 7 instructions a word.
#[inline(never)]
pub(super) unsafe extern "C" fn words(a: *const u8, b: *const u8, to: *mut i32, n: usize) {
    // SAFETY: the registers that a compiler may want back are pushed and popped; it reads the bytes and writes the words that
    // the caller promises.
    unsafe {
        asm!(
            "push {{r4, r5, r6}}",
            "movs r6, #128",
            "lsls r4, r6, #16",
            "orrs r6, r6, r4",
            "subs r3, r3, #4",
            "bcc 3f",
            "2:",
            word!("0", "0"),
            word!("1", "4"),
            word!("2", "8"),
            word!("3", "12"),
            "adds r0, r0, #4",
            "adds r1, r1, #4",
            "adds r2, r2, #16",
            "subs r3, r3, #4",
            "bcs 2b",
            "3:",
            "adds r3, r3, #4",
            "beq 5f",
            "4:",
            word!("0", "0"),
            "adds r0, r0, #1",
            "adds r1, r1, #1",
            "adds r2, r2, #4",
            "subs r3, r3, #1",
            "bne 4b",
            "5:",
            "pop {{r4, r5, r6}}",
            inout("r0") a => _,
            inout("r1") b => _,
            inout("r2") to => _,
            inout("r3") n => _,
        );
    }
}
