//! A stretch of [`crate::depthwise_scalar`] on Armv6-M, whose instructions Armv7-M has as well.

use core::arch::asm;

use crate::depthwise_scalar::Stretch;

/// The first row's element, into r0: no register is left to say its place to an instruction that reads with the sign.
macro_rules! first_row {
    () => {
        "ldrb r0, [r2]\nsxtb r0, r0\n"
    };
}

/// The product of the element in r0 with a weight goes into a register.
macro_rules! product {
    ($weight:literal, $to:literal) => {
        concat!("ldr ", $to, ", [sp, #", $weight, "]\nmuls ", $to, ", r0, ", $to, "\n")
    };
}

/// An element of another row is multiplied; products are added to sums.
macro_rules! element {
    ($row:literal $(, $weight:literal $sum:literal)*) => {
        concat!(
            "ldrsb r0, [r2, ", $row, "]\n",
            $("ldr r5, [sp, #", $weight, "]\nmuls r5, r0, r5\nadds ", $sum, ", ", $sum, ", r5\n",)*
        )
    };
}

/// What three weights make of padding, into `$to`; the arguments are in r0.
macro_rules! padding {
    ($a:literal, $b:literal, $c:literal, $to:literal) => {
        concat!(
            "ldr ",
            $to,
            ", [sp, #",
            $a,
            "]\n",
            "ldr r5, [sp, #",
            $b,
            "]\n",
            "adds ",
            $to,
            ", ",
            $to,
            ", r5\n",
            "ldr r5, [sp, #",
            $c,
            "]\n",
            "adds ",
            $to,
            ", ",
            $to,
            ", r5\n",
            "ldr r5, [r0, #56]\n",
            "muls ",
            $to,
            ", r5, ",
            $to,
            "\n",
        )
    };
}

/// Three weights, widened.
macro_rules! weights {
    ($a:literal, $b:literal, $c:literal) => {
        concat!(
            "ldrb r3, [r2, #",
            $a,
            "]\n",
            "ldrb r4, [r2, #",
            $b,
            "]\n",
            "ldrb r5, [r2, #",
            $c,
            "]\n",
            "sxtb r3, r3\nsxtb r4, r4\nsxtb r5, r5\nstm r6!, {{r3, r4, r5}}\n",
        )
    };
}

/// Two words change places.
macro_rules! swap {
    ($a:literal, $b:literal) => {
        concat!("ldr r3, [sp, #", $a, "]\nldr r4, [sp, #", $b, "]\nstr r3, [sp, #", $b, "]\nstr r4, [sp, #", $a, "]\n")
    };
}

/// A row of the window that is padding.
macro_rules! padded_row {
    ($left:literal, $a:literal, $b:literal, $c:literal) => {
        concat!(
            "lsls r3, r7, #",
            $left,
            "\nbpl 9f\n",
            padding!($a, $b, $c, "r3"),
            "add r10, r3\nmovs r3, #0\n",
            "str r3, [sp, #",
            $a,
            "]\nstr r3, [sp, #",
            $b,
            "]\nstr r3, [sp, #",
            $c,
            "]\n9:\n",
        )
    };
}

/// Writes the output of the sum in r7, and compares where the next goes with the end. The multiplier comes in parts of 11, 11
/// and 9 bits, so that each product with a sum stays within 32 bits, and what they leave of the whole product has eight bits
/// more than [`crate::scalar`] says.
macro_rules! finish {
    () => {
        "add r7, r10
        ldr r0, [sp, #36]
        muls r0, r7, r0
        asrs r0, r0, #11
        ldr r1, [sp, #40]
        muls r1, r7, r1
        adds r0, r0, r1
        asrs r0, r0, #11
        ldr r1, [sp, #44]
        muls r7, r1, r7
        ldr r1, [sp, #56]
        adds r7, r7, r0
        bpl 98f
        subs r7, r7, r1
        b 9f
        98:
        adds r7, r7, r1
        9:
        ldr r1, [sp, #48]
        asrs r7, r7, r1
        ldr r1, [sp, #52]
        adcs r7, r7, r1
        sxtb r0, r7
        cmp r0, r7
        beq 9f
        asrs r7, r7, #31
        movs r0, #127
        eors r7, r7, r0
        9:
        mov r0, r12
        strb r7, [r0]
        add r12, lr
        ldr r0, [sp, #60]
        cmp r12, r0
        "
    };
}

/// Rows are at r2, and r3 and r4 from there; outputs in r12; what sums start from in r10, pitches in r11 and lr. Of the sums
/// that are open, r8 lacks a column, r9 two. On the stack: nine weights, the multiplier's parts, the shift, the output's
/// zero point, 2^8, where outputs end, the arguments.
#[inline(never)]
#[rustfmt::skip]
pub(crate) unsafe extern "C" fn walk(stretch: *mut Stretch) {
    // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
    unsafe {
        asm!(
            "push {{r4, r5, r6, r7}}",
            "mov r4, r8",
            "mov r5, r9",
            "mov r6, r10",
            "mov r7, r11",
            "push {{r4, r5, r6, r7}}",
            "sub sp, #72",
            "str r0, [sp, #64]",
            "ldr r1, [r0, #12]",
            "mov r11, r1",
            "ldr r1, [r0, #20]",
            "mov lr, r1",
            "ldr r1, [r0, #60]",
            "asrs r1, r1, #1",
            "str r1, [sp, #52]",
            "movs r1, #1",
            "lsls r1, r1, #8",
            "str r1, [sp, #56]",
            // A channel.
            "1:",
            "ldr r0, [sp, #64]",
            "ldr r1, [r0, #40]",
            "lsls r3, r1, #3",
            "ldr r2, [r0, #32]",
            "adds r2, r2, r3",
            "ldr r4, [r2]",
            "mov r10, r4",
            "ldr r4, [r2, #4]",
            "lsls r5, r4, #21",
            "lsrs r5, r5, #21",
            "str r5, [sp, #36]",
            "lsls r5, r4, #10",
            "lsrs r5, r5, #21",
            "str r5, [sp, #40]",
            "lsrs r5, r4, #22",
            "str r5, [sp, #44]",
            "ldr r4, [r0, #36]",
            "ldrb r4, [r4, r1]",
            "adds r4, r4, #8",
            "str r4, [sp, #48]",
            "ldr r2, [r0, #28]",
            "adds r2, r2, r3",
            "adds r2, r2, r1",
            "mov r6, sp",
            weights!("0", "1", "2"),
            weights!("3", "4", "5"),
            weights!("6", "7", "8"),
            "ldr r7, [r0, #52]",
            "movs r3, #39",
            "tst r7, r3",
            "beq 3f",
            "lsls r3, r7, #26",
            "bpl 2f",
            swap!("0", "8"),
            swap!("12", "20"),
            swap!("24", "32"),
            "2:",
            padded_row!("31", "0", "4", "8"),
            padded_row!("30", "12", "16", "20"),
            padded_row!("29", "24", "28", "32"),
            "3:",
            "ldr r5, [r0, #16]",
            "adds r5, r5, r1",
            "mov r12, r5",
            "ldr r6, [r0, #24]",
            "adds r5, r5, r6",
            "str r5, [sp, #60]",
            "ldm r0!, {{r2, r3, r4}}",
            "subs r3, r3, r2",
            "subs r4, r4, r2",
            "adds r2, r2, r1",
            // The first column.
            "lsls r5, r7, #28",
            "bpl 2f",
            "ldr r0, [sp, #64]",
            padding!("0", "12", "24", "r1"),
            "b 3f",
            "2:",
            first_row!(),
            product!("0", "r1"),
            element!("r3", "12" "r1"),
            element!("r4", "24" "r1"),
            "add r2, r11",
            "3:",
            "mov r9, r1",
            "lsls r5, r7, #25",
            "bmi 6f",
            // The second.
            "4:",
            first_row!(),
            product!("4", "r6"),
            "add r6, r9",
            product!("0", "r1"),
            element!("r3", "16" "r6", "12" "r1"),
            element!("r4", "28" "r6", "24" "r1"),
            "mov r8, r6",
            "mov r9, r1",
            "add r2, r11",
            "ldr r0, [sp, #64]",
            "ldr r7, [r0, #52]",
            "lsls r5, r7, #25",
            "bmi 3f",
            "ldr r0, [sp, #60]",
            "cmp r12, r0",
            "bne 5f",
            "3:",
            "b 8f",
            "5:",
            first_row!(),
            product!("8", "r7"),
            "add r7, r8",
            product!("4", "r6"),
            "add r6, r9",
            product!("0", "r1"),
            element!("r3", "20" "r7", "16" "r6", "12" "r1"),
            element!("r4", "32" "r7", "28" "r6", "24" "r1"),
            "mov r8, r6",
            "mov r9, r1",
            "add r2, r11",
            finish!(),
            "bne 5b",
            "b 8f",
            // Windows two columns apart.
            "6:",
            "mov r8, r1",
            "ldr r0, [sp, #60]",
            "cmp r12, r0",
            "beq 7f",
            "2:",
            first_row!(),
            product!("4", "r6"),
            "add r6, r8",
            element!("r3", "16" "r6"),
            element!("r4", "28" "r6"),
            "add r2, r11",
            first_row!(),
            product!("8", "r7"),
            "adds r7, r7, r6",
            product!("0", "r1"),
            element!("r3", "20" "r7", "12" "r1"),
            element!("r4", "32" "r7", "24" "r1"),
            "mov r8, r1",
            "add r2, r11",
            finish!(),
            "bne 2b",
            // A last window whose last column is padding.
            "7:",
            "mov r9, r8",
            "ldr r0, [sp, #64]",
            "ldr r7, [r0, #52]",
            "lsls r5, r7, #27",
            "bpl 8f",
            "b 4b",
            "8:",
            "ldr r0, [sp, #64]",
            "ldr r7, [r0, #52]",
            "lsls r5, r7, #27",
            "bpl 2f",
            padding!("8", "20", "32", "r7"),
            "add r7, r8",
            finish!(),
            "2:",
            "ldr r0, [sp, #64]",
            "ldr r1, [r0, #40]",
            "ldr r2, [r0, #44]",
            "adds r1, r1, r2",
            "str r1, [r0, #40]",
            "ldr r2, [r0, #48]",
            "cmp r1, r2",
            "beq 2f",
            "b 1b",
            "2:",
            "add sp, #72",
            "pop {{r4, r5, r6, r7}}",
            "mov r8, r4",
            "mov r9, r5",
            "mov r10, r6",
            "mov r11, r7",
            "pop {{r4, r5, r6, r7}}",
            inout("r0") stretch => _,
            out("r1") _,
            out("r2") _,
            out("r3") _,
            out("r12") _,
            out("lr") _,
        );
    }
}
