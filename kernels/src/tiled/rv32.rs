//! Tiles of the signed form on RV32IMC.

use core::arch::asm;

use super::Tile;

/// The products of one channel and two taps: their words in a5 and a7, weights behind a2.
macro_rules! channel {
    ($first:literal, $second:literal, $mixed:literal, $upper:literal) => {
        concat!(
            "lb s2, ",
            $first,
            "(a2)
            lb s3, ",
            $second,
            "(a2)
            mul s2, s2, a5
            mul s3, s3, a7
            add s2, s2, a4
            add s2, s2, s3
            add ",
            $mixed,
            ", ",
            $mixed,
            ", s2
            srai s2, s2, 16
            add ",
            $upper,
            ", ",
            $upper,
            ", s2
            "
        )
    };
}

/// The products of one channel and one tap.
macro_rules! odd {
    ($at:literal, $mixed:literal, $upper:literal) => {
        concat!(
            "lb s2, ",
            $at,
            "(a2)
            mul s2, s2, a5
            add s2, s2, a4
            add ",
            $mixed,
            ", ",
            $mixed,
            ", s2
            srai s2, s2, 16
            add ",
            $upper,
            ", ",
            $upper,
            ", s2
            "
        )
    };
}

/// Both sums of a channel.
macro_rules! put {
    ($first:literal, $second:literal, $mixed:literal, $upper:literal) => {
        concat!(
            "slli a5, ",
            $upper,
            ", 16
            sub ",
            $mixed,
            ", ",
            $mixed,
            ", a5
            sw ",
            $mixed,
            ", ",
            $first,
            "(a0)
            sw ",
            $upper,
            ", ",
            $second,
            "(a0)
            "
        )
    };
}

/// An output: the sum's place behind a0, the output's register; the channel's start, multiplier and shift are in t0 to t2, zero
/// point, least and largest output in t3 to t5. Labels of what is far from the usual way.
macro_rules! finish {
    ($sum:literal, $output:literal, $negative:literal, $back:literal, $large:literal) => {
        concat!(
            "lw a5, ",
            $sum,
            "(a0)
            add a5, a5, t0
            bltz a5, ",
            $negative,
            "f
            slli a5, a5, 2
            mulh a5, a5, t1
            addi a5, a5, 1
            sra a5, a5, t2
            addi a5, a5, 1
            srai a5, a5, 1
            add a5, a5, t3
            bgt a5, t5, ",
            $large,
            "f
            ",
            $back,
            ":
            sb a5, 0(",
            $output,
            ")
            "
        )
    };
}

/// Where the usual way of an output is left.
macro_rules! far {
    ($negative:literal, $back:literal, $large:literal) => {
        concat!(
            $negative,
            ":
            bge t4, t3, 9f
            slli a5, a5, 2
            mulh a5, a5, t1
            addi a5, a5, -1
            sra a5, a5, t2
            addi a5, a5, 1
            srai a5, a5, 1
            add a5, a5, t3
            bge a5, t4, ",
            $back,
            "b
            9:
            mv a5, t4
            j ",
            $back,
            "b
            ",
            $large,
            ":
            mv a5, t5
            j ",
            $back,
            "b
            "
        )
    };
}

/// Mixed sums, which begin with `start`, in t0 to t3; sums of upper halves in t4 to t6 and a6; the tile in a3.
#[inline(never)]
pub(super) unsafe extern "C" fn fours(tile: &mut Tile<'_>, start: i32) {
    // SAFETY: it reads the words and constants that the caller promises, and writes outputs and the tile.
    unsafe {
        asm!(
            "mv a3, a0",
            "mv s4, a1",
            // Four channels.
            "20:",
            "lw a0, 0(a3)",
            "lw a1, 4(a3)",
            "lw a2, 8(a3)",
            "mv t0, s4",
            "mv t1, s4",
            "mv t2, s4",
            "mv t3, s4",
            "li a4, 0x7f00",
            "li t4, 0",
            "li t5, 0",
            "li t6, 0",
            "li a6, 0",
            "andi a5, a1, 1",
            "srli a1, a1, 1",
            "beqz a5, 1f",
            "lw a5, 0(a0)",
            odd!("0", "t0", "t4"),
            odd!("1", "t1", "t5"),
            odd!("2", "t2", "t6"),
            odd!("3", "t3", "a6"),
            "addi a0, a0, 4",
            "addi a2, a2, 4",
            "beqz a1, 4f",
            "1:",
            "andi a5, a1, 1",
            "slli a1, a1, 3",
            "add a1, a1, a0",
            "beqz a5, 2f",
            // Into the middle: the second pair of taps is the first that there is.
            "addi a0, a0, -8",
            "addi a2, a2, -8",
            "j 3f",
            "2:",
            "lw a5, 0(a0)",
            "lw a7, 4(a0)",
            channel!("0", "4", "t0", "t4"),
            channel!("1", "5", "t1", "t5"),
            channel!("2", "6", "t2", "t6"),
            channel!("3", "7", "t3", "a6"),
            "3:",
            "lw a5, 8(a0)",
            "lw a7, 12(a0)",
            channel!("8", "12", "t0", "t4"),
            channel!("9", "13", "t1", "t5"),
            channel!("10", "14", "t2", "t6"),
            channel!("11", "15", "t3", "a6"),
            "addi a0, a0, 16",
            "addi a2, a2, 16",
            "bne a0, a1, 2b",
            "4:",
            "sw a2, 8(a3)",
            put!("0", "16", "t0", "t4"),
            put!("4", "20", "t1", "t5"),
            put!("8", "24", "t2", "t6"),
            put!("12", "28", "t3", "a6"),
            // Their outputs: a0, which is behind the taps, goes through the sums, a1 records, a2 shifts, a4 and a7 outputs.
            "addi s2, a0, 16",
            "lw a5, 40(a3)",
            "lw a1, 12(a3)",
            "lw a2, 16(a3)",
            "lw a4, 24(a3)",
            "lw a7, 28(a3)",
            "lw t3, 4(a5)",
            "lw t4, 8(a5)",
            "lw t5, 12(a5)",
            "5:",
            "lw t0, 0(a1)",
            "lw t1, 4(a1)",
            "lbu t2, 0(a2)",
            "addi t2, t2, -1",
            finish!("0", "a4", "10", "11", "13"),
            finish!("16", "a7", "14", "15", "17"),
            "addi a0, a0, 4",
            "addi a1, a1, 8",
            "addi a2, a2, 1",
            "addi a4, a4, 1",
            "addi a7, a7, 1",
            "bne a0, s2, 5b",
            "lw a5, 20(a3)",
            "sw a1, 12(a3)",
            "sw a2, 16(a3)",
            "addi a5, a5, -1",
            "sw a4, 24(a3)",
            "sw a7, 28(a3)",
            "sw a5, 20(a3)",
            "bnez a5, 20b",
            "j 21f",
            far!("10", "11", "13"),
            far!("14", "15", "17"),
            "21:",
            inout("a0") tile => _,
            inout("a1") start => _,
            out("a2") _,
            out("a3") _,
            out("a4") _,
            out("a5") _,
            out("a6") _,
            out("a7") _,
            out("t0") _,
            out("t1") _,
            out("t2") _,
            out("t3") _,
            out("t4") _,
            out("t5") _,
            out("t6") _,
            out("s2") _,
            out("s3") _,
            out("s4") _,
            options(nostack),
        );
    }
}

/// A word.
macro_rules! word {
    ($at:literal, $to:literal) => {
        concat!(
            "lb a4, ",
            $at,
            "(a0)
            lb a5, ",
            $at,
            "(a1)
            slli a5, a5, 16
            add a4, a4, a5
            sw a4, ",
            $to,
            "(a2)
            "
        )
    };
}

/// 6 instructions a word.
#[inline(never)]
pub(super) unsafe extern "C" fn words(a: *const u8, b: *const u8, to: *mut i32, n: usize) {
    // SAFETY: it reads the bytes and writes the words that the caller promises.
    unsafe {
        asm!(
            "slli a3, a3, 2",
            "add a3, a3, a2",
            "addi a6, a3, -16",
            "bltu a6, a2, 3f",
            "2:",
            word!("0", "0"),
            word!("1", "4"),
            word!("2", "8"),
            word!("3", "12"),
            "addi a0, a0, 4",
            "addi a1, a1, 4",
            "addi a2, a2, 16",
            "bgeu a6, a2, 2b",
            "3:",
            "beq a2, a3, 4f",
            word!("0", "0"),
            "addi a0, a0, 1",
            "addi a1, a1, 1",
            "addi a2, a2, 4",
            "j 3b",
            "4:",
            inout("a0") a => _,
            inout("a1") b => _,
            inout("a2") to => _,
            inout("a3") n => _,
            out("a4") _,
            out("a5") _,
            out("a6") _,
            options(nostack),
        );
    }
}
