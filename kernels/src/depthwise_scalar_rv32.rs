//! A stretch of [`crate::depthwise_scalar`] on RV32IMC.

use core::arch::asm;

use crate::depthwise_scalar::Stretch;
use crate::scalar::{restore, save};

/// An element is read from the row in `$row` and multiplied; each product goes with a sum into another, or the same.
macro_rules! element {
    ($row:literal $(, $weight:literal $from:literal $to:literal)*) => {
        concat!("lb t0, 0(", $row, ")\n", $("mul t1, t0, ", $weight, "\nadd ", $to, ", ", $from, ", t1\n",)*)
    };
}

/// The next column.
macro_rules! column {
    () => {
        "add t3, t3, a2\nadd t4, t4, a2\nadd t5, t5, a2\n"
    };
}

/// What three weights make of padding, into `$to`.
macro_rules! padding {
    ($a:literal, $b:literal, $c:literal, $from:literal, $to:literal) => {
        concat!(
            "add t1, ",
            $a,
            ", ",
            $b,
            "\nadd t1, t1, ",
            $c,
            "\nlw t2, 56(a0)\nmul t1, t1, t2\nadd ",
            $to,
            ", ",
            $from,
            ", t1\n"
        )
    };
}

/// A row of the window that is padding.
macro_rules! padded_row {
    ($flag:literal, $a:literal, $b:literal, $c:literal) => {
        concat!(
            "andi t1, t0, ",
            $flag,
            "\nbeqz t1, 9f\n",
            padding!($a, $b, $c, "s11", "s11"),
            "li ",
            $a,
            ", 0\nli ",
            $b,
            ", 0\nli ",
            $c,
            ", 0\n9:\n"
        )
    };
}

/// Writes the output of the sum in t2: see [`crate::scalar`]. What is added before the shift is in a5.
macro_rules! finish {
    () => {
        "slli t2, t2, 2
        mulh t2, t2, a7
        bgez t2, 9f
        addi t2, t2, -2
        9:
        add t2, t2, a5
        sra t2, t2, a6
        bge t2, a4, 9f
        mv t2, a4
        9:
        bge a3, t2, 9f
        mv t2, a3
        9:
        sb t2, 0(t6)
        add t6, t6, a1
        "
    };
}

/// Weights are in s2 to s10, rows in t3 to t5, outputs in t6, where they end in s1; what sums start from in s11, the multiplier in
/// a7, the shift in a6, bounds in a4 and a3, pitches in a2 and a1. Of the sums that are open, s0 lacks a column, ra two.
#[inline(never)]
#[rustfmt::skip]
pub(crate) unsafe extern "C" fn walk(stretch: *mut Stretch) {
    // SAFETY: the registers that a compiler may want back are stored and loaded; the rest is said below.
    unsafe {
        asm!(
            save!(),
            "lw a2, 12(a0)",
            "lw a1, 20(a0)",
            "lw a4, 64(a0)",
            "lw a3, 68(a0)",
            // A channel.
            "1:",
            "lw t1, 40(a0)",
            "slli t2, t1, 3",
            "lw t0, 28(a0)",
            "add t0, t0, t2",
            "add t0, t0, t1",
            "lb s2, 0(t0)",
            "lb s3, 1(t0)",
            "lb s4, 2(t0)",
            "lb s5, 3(t0)",
            "lb s6, 4(t0)",
            "lb s7, 5(t0)",
            "lb s8, 6(t0)",
            "lb s9, 7(t0)",
            "lb s10, 8(t0)",
            "lw t0, 32(a0)",
            "add t0, t0, t2",
            "lw s11, 0(t0)",
            "lw a7, 4(t0)",
            "lw t0, 36(a0)",
            "add t0, t0, t1",
            "lbu a6, 0(t0)",
            "lw t3, 0(a0)",
            "lw t4, 4(a0)",
            "lw t5, 8(a0)",
            "lw t6, 16(a0)",
            "add t3, t3, t1",
            "add t4, t4, t1",
            "add t5, t5, t1",
            "add t6, t6, t1",
            "lw s1, 24(a0)",
            "add s1, s1, t6",
            "lw t0, 60(a0)",
            "addi t1, a6, -1",
            "sll a5, t0, t1",
            "addi a5, a5, 1",
            "lw t0, 52(a0)",
            "andi t1, t0, 39",
            "beqz t1, 3f",
            "andi t1, t0, 32",
            "beqz t1, 2f",
            "mv t1, s2",
            "mv s2, s4",
            "mv s4, t1",
            "mv t1, s5",
            "mv s5, s7",
            "mv s7, t1",
            "mv t1, s8",
            "mv s8, s10",
            "mv s10, t1",
            "2:",
            padded_row!("1", "s2", "s3", "s4"),
            padded_row!("2", "s5", "s6", "s7"),
            padded_row!("4", "s8", "s9", "s10"),
            "3:",
            // The first column.
            "andi t1, t0, 8",
            "beqz t1, 2f",
            padding!("s2", "s5", "s8", "s11", "ra"),
            "j 3f",
            "2:",
            element!("t3", "s2" "s11" "ra"),
            element!("t4", "s5" "ra" "ra"),
            element!("t5", "s8" "ra" "ra"),
            column!(),
            "lw t0, 52(a0)",
            "3:",
            "andi t1, t0, 64",
            "bnez t1, 6f",
            // The second.
            "4:",
            element!("t3", "s3" "ra" "s0", "s2" "s11" "ra"),
            element!("t4", "s6" "s0" "s0", "s5" "ra" "ra"),
            element!("t5", "s9" "s0" "s0", "s8" "ra" "ra"),
            column!(),
            "lw t0, 52(a0)",
            "andi t1, t0, 64",
            "bnez t1, 8f",
            "beq t6, s1, 8f",
            "5:",
            "lb t0, 0(t3)",
            "mul t2, t0, s4",
            "add t2, t2, s0",
            "mul t1, t0, s3",
            "add s0, ra, t1",
            "mul t1, t0, s2",
            "add ra, s11, t1",
            element!("t4", "s7" "t2" "t2", "s6" "s0" "s0", "s5" "ra" "ra"),
            element!("t5", "s10" "t2" "t2", "s9" "s0" "s0", "s8" "ra" "ra"),
            column!(),
            finish!(),
            "bne t6, s1, 5b",
            "j 8f",
            // Windows two columns apart.
            "6:",
            "mv s0, ra",
            "beq t6, s1, 7f",
            "2:",
            element!("t3", "s3" "s0" "s0"),
            element!("t4", "s6" "s0" "s0"),
            element!("t5", "s9" "s0" "s0"),
            column!(),
            "lb t0, 0(t3)",
            "mul t2, t0, s4",
            "add t2, t2, s0",
            "mul t1, t0, s2",
            "add s0, s11, t1",
            element!("t4", "s7" "t2" "t2", "s5" "s0" "s0"),
            element!("t5", "s10" "t2" "t2", "s8" "s0" "s0"),
            column!(),
            finish!(),
            "bne t6, s1, 2b",
            // A last window whose last column is padding.
            "7:",
            "lw t0, 52(a0)",
            "andi t1, t0, 16",
            "mv ra, s0",
            "bnez t1, 4b",
            "8:",
            "lw t0, 52(a0)",
            "andi t1, t0, 16",
            "beqz t1, 2f",
            padding!("s4", "s7", "s10", "s0", "t2"),
            finish!(),
            "2:",
            "lw t1, 40(a0)",
            "lw t0, 44(a0)",
            "add t1, t1, t0",
            "sw t1, 40(a0)",
            "lw t0, 48(a0)",
            "bne t0, t1, 1b",
            restore!(),
            inout("a0") stretch => _,
            out("a1") _,
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
        );
    }
}
