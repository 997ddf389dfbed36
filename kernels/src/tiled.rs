//! Products of int8 matrices, two positions by four channels at a time, for CPUs that multiply one number at a time.
//!
//! A word holds what two positions have under a tap: `256 * 256 * x1 + x0`. A weight times the word is the products of both
//! positions, and the words' products are added up as they are, `mixed = 65536 * S1 + S0`, as far as 32 bits go. So that `S1` is not
//! lost, the upper half of each product, which is exact where the lower half is kept from being negative, is added up
//! apart. Then `S0 = mixed - 65536 * S1`.
//!
//! There are two forms. [`Signed`] takes bytes as they are, and the products of two taps together: with what is added to keep it
//! from being negative, the sum fits the lower half. [`Biased`] is for Armv6-M, whose loads of signed bytes have no
//! immediate offset: inputs and weights have 128 added, and what that adds to sums is taken out of them afterwards.
//!
//! Weights of four channels lie tap by tap, those of up to three last ones channel by channel.

use crate::arithmetic::Epilogue;
use crate::scalar::finish;

/// Positions computed together.
pub(crate) const POSITIONS: usize = 2;
/// Channels computed together.
pub(crate) const CHANNELS: usize = 4;
/// Sums of a tile: of the first position every channel's, then of the second.
type Sums = [i32; POSITIONS * CHANNELS];

/// How numbers are multiplied.
pub(crate) trait Form {
    /// What words of two positions have added.
    const BIAS: i32;

    /// Sums of four channels over `taps` taps.
    ///
    /// # Safety
    ///
    /// There are `taps` words at `x` and four times as many weights; `taps` is not 0.
    unsafe fn sums(x: *const i32, taps: usize, weights: *const u8, sums: &mut Sums);

    /// The first of the sums of each position, over `taps` taps.
    ///
    /// # Safety
    ///
    /// There are `taps` words at `x` and as many weights.
    unsafe fn sums_of_one(x: *const i32, taps: usize, weights: *const u8, sums: &mut Sums);

    /// What the sums of each position have too much, whatever the channel.
    ///
    /// # Safety
    ///
    /// There are `taps` words at `x`.
    unsafe fn excess(x: *const i32, taps: usize) -> [i32; POSITIONS];
}

/// Sums that are open: of a channel's products as they come, and of their upper halves.
#[derive(Clone, Copy)]
struct Open {
    mixed: i32,
    upper: i32,
}

impl Open {
    const NONE: Open = Open { mixed: 0, upper: 0 };

    /// Adds products whose upper half is a signed number.
    #[inline(always)]
    fn add_signed(&mut self, products: i32) {
        self.mixed = self.mixed.wrapping_add(products);
        self.upper = self.upper.wrapping_add(products.wrapping_shr(16));
    }

    /// Adds products whose upper half is not.
    #[inline(always)]
    fn add_unsigned(&mut self, products: u32) {
        self.mixed = self.mixed.wrapping_add(products as i32);
        self.upper = self.upper.wrapping_add(products.wrapping_shr(16) as i32);
    }

    /// Both positions' sums.
    #[inline(always)]
    fn both(self) -> [i32; POSITIONS] {
        [self.mixed.wrapping_sub(self.upper.wrapping_shl(16)), self.upper]
    }
}

/// Puts the sums of four channels by position.
#[inline(always)]
fn put(open: [Open; CHANNELS], sums: &mut Sums) {
    let [[a0, a1], [b0, b1], [c0, c1], [d0, d1]] = open.map(Open::both);
    *sums = [a0, b0, c0, d0, a1, b1, c1, d1];
}

/// Bytes as they are.
pub(crate) struct Signed;

/// What keeps the lower half of two products from being negative: `2 * 127 * 128`.
const LEAST: i32 = 0x7f00;

impl Form for Signed {
    const BIAS: i32 = 0;

    #[cfg(not(target_arch = "riscv32"))]
    #[inline(never)]
    unsafe fn sums(x: *const i32, taps: usize, weights: *const u8, sums: &mut Sums) {
        let (mut x, mut weights) = (x, weights.cast::<[i8; CHANNELS]>());
        let start = Open { mixed: added(taps).wrapping_neg(), upper: 0 };
        let (mut a, mut b, mut c, mut d) = (start, start, start, start);
        let end = x.wrapping_add(taps & !1);
        // SAFETY: words and weights of two taps, then of a last one.
        unsafe {
            while x != end {
                let [x0, x1] = x.cast::<[i32; 2]>().read();
                let [w0, w1] = weights.cast::<[[i8; CHANNELS]; 2]>().read();
                a.add_signed(two(x0, w0[0], x1, w1[0]));
                b.add_signed(two(x0, w0[1], x1, w1[1]));
                c.add_signed(two(x0, w0[2], x1, w1[2]));
                d.add_signed(two(x0, w0[3], x1, w1[3]));
                (x, weights) = (x.wrapping_add(2), weights.wrapping_add(2));
            }
            if taps & 1 != 0 {
                let (x0, w) = (x.read(), weights.read());
                a.add_signed(two(x0, w[0], 0, 0));
                b.add_signed(two(x0, w[1], 0, 0));
                c.add_signed(two(x0, w[2], 0, 0));
                d.add_signed(two(x0, w[3], 0, 0));
            }
        }
        put([a, b, c, d], sums);
    }

    /// 38 instructions for the 16 products of two taps.
    #[cfg(target_arch = "riscv32")]
    #[inline(always)]
    unsafe fn sums(x: *const i32, taps: usize, weights: *const u8, sums: &mut Sums) {
        // SAFETY: the caller's promise.
        unsafe { rv32::sums(x, taps, weights, sums, added(taps).wrapping_neg()) }
    }

    #[inline(never)]
    unsafe fn sums_of_one(x: *const i32, taps: usize, weights: *const u8, sums: &mut Sums) {
        let (mut x, mut weights) = (x, weights.cast::<i8>());
        let mut open = Open { mixed: added(taps).wrapping_neg(), upper: 0 };
        let end = x.wrapping_add(taps & !1);
        // SAFETY: as above.
        unsafe {
            while x != end {
                let ([x0, x1], [w0, w1]) = (x.cast::<[i32; 2]>().read(), weights.cast::<[i8; 2]>().read());
                open.add_signed(two(x0, w0, x1, w1));
                (x, weights) = (x.wrapping_add(2), weights.wrapping_add(2));
            }
            if taps & 1 != 0 {
                open.add_signed(two(x.read(), weights.read(), 0, 0));
            }
        }
        [sums[0], sums[CHANNELS]] = open.both();
    }

    #[inline(always)]
    unsafe fn excess(_: *const i32, _: usize) -> [i32; POSITIONS] {
        [0; POSITIONS]
    }
}

/// The products of two taps, not negative in their lower half.
#[inline(always)]
fn two(x0: i32, w0: i8, x1: i32, w1: i8) -> i32 {
    x0.wrapping_mul(w0 as i32).wrapping_add(x1.wrapping_mul(w1 as i32)).wrapping_add(LEAST)
}

/// What that adds to a sum.
#[inline(always)]
fn added(taps: usize) -> i32 {
    (taps.wrapping_add(1).wrapping_shr(1) as i32).wrapping_mul(LEAST)
}

/// Bytes with 128 added.
pub(crate) struct Biased;

impl Form for Biased {
    const BIAS: i32 = 0x0080_0080;

    #[cfg(not(kiln_armv6m))]
    #[inline(never)]
    unsafe fn sums(x: *const i32, taps: usize, weights: *const u8, sums: &mut Sums) {
        let (mut a, mut b, mut c, mut d) = (Open::NONE, Open::NONE, Open::NONE, Open::NONE);
        for tap in 0..taps {
            // SAFETY: the word and the weights of a tap.
            let (x, w) = unsafe {
                (x.wrapping_add(tap).read() as u32, weights.cast::<[u8; CHANNELS]>().wrapping_add(tap).read())
            };
            a.add_unsigned(x.wrapping_mul(w[0] as u32));
            b.add_unsigned(x.wrapping_mul(w[1] as u32));
            c.add_unsigned(x.wrapping_mul(w[2] as u32));
            d.add_unsigned(x.wrapping_mul(w[3] as u32));
        }
        put([a, b, c, d], sums);
    }

    /// 41 instructions for the 16 products of two taps.
    #[cfg(kiln_armv6m)]
    #[inline(always)]
    unsafe fn sums(x: *const i32, taps: usize, weights: *const u8, sums: &mut Sums) {
        // SAFETY: the caller's promise.
        unsafe { armv6m::sums(x, taps, weights, sums) }
    }

    #[inline(never)]
    unsafe fn sums_of_one(x: *const i32, taps: usize, weights: *const u8, sums: &mut Sums) {
        let mut open = Open::NONE;
        for tap in 0..taps {
            // SAFETY: the word and the weight of a tap.
            let (x, w) = unsafe { (x.wrapping_add(tap).read() as u32, weights.wrapping_add(tap).read()) };
            open.add_unsigned(x.wrapping_mul(w as u32));
        }
        [sums[0], sums[CHANNELS]] = open.both();
    }

    #[inline(never)]
    unsafe fn excess(x: *const i32, taps: usize) -> [i32; POSITIONS] {
        let mut open = Open::NONE;
        for tap in 0..taps {
            // SAFETY: a word of the caller's.
            open.add_unsigned(unsafe { x.wrapping_add(tap).read() } as u32);
        }
        open.both().map(|sum| sum.wrapping_shl(7))
    }
}

/// Makes words of two positions' bytes. `steps` are 1, or 0 where a byte stands for all of them.
///
/// # Safety
///
/// There are `n` bytes at each source, or one where its step is 0, and `n` words at `to`.
#[inline(never)]
pub(crate) unsafe fn pair<F: Form>(sources: [*const u8; POSITIONS], steps: [usize; POSITIONS], to: *mut i32, n: usize) {
    let ([mut a, mut b], mut to) = (sources.map(|source| source.cast::<i8>()), to);
    let word = |a: i8, b: i8| (b as i32).wrapping_shl(16).wrapping_add(F::BIAS).wrapping_add(a as i32);
    let mut left = n;
    if steps == [1; POSITIONS] {
        while left >= 4 {
            // SAFETY: four of the bytes of each position, and their words.
            unsafe {
                let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (a.cast::<[i8; 4]>().read(), b.cast::<[i8; 4]>().read());
                to.cast::<[i32; 4]>().write([word(a0, b0), word(a1, b1), word(a2, b2), word(a3, b3)]);
            }
            (a, b, to) = (a.wrapping_add(4), b.wrapping_add(4), to.wrapping_add(4));
            left = left.wrapping_sub(4);
        }
    }
    while left > 0 {
        // SAFETY: one of the bytes of each position, and its word.
        unsafe { to.write(word(a.read(), b.read())) };
        (a, b, to) = (a.wrapping_add(steps[0]), b.wrapping_add(steps[1]), to.wrapping_add(1));
        left = left.wrapping_sub(1);
    }
}

/// The constants of a layer's channels.
pub(crate) struct Layer<'a> {
    /// Their weights, then a start and a multiplier each, then their shifts.
    pub(crate) weights: *const u8,
    pub(crate) block: *const u8,
    /// How many channels.
    pub(crate) channels: usize,
    /// Taps of a window.
    pub(crate) taps: usize,
    pub(crate) epilogue: &'a Epilogue,
}

impl Layer<'_> {
    /// Computes the outputs of two positions.
    ///
    /// # Safety
    ///
    /// `x` has a word a tap; weights, block and outputs are there for every channel; words are aligned. There is a tap.
    #[inline(never)]
    pub(crate) unsafe fn tile<F: Form>(&self, x: *const i32, outputs: [*mut u8; POSITIONS]) {
        let mut sums = [0; POSITIONS * CHANNELS];
        let mut outputs = outputs;
        let mut weights = self.weights;
        let mut records = self.block.cast::<[i32; 2]>();
        let mut shifts = records.wrapping_add(self.channels).cast::<u8>();
        let mut left = self.channels;
        // SAFETY: as the caller promises.
        unsafe {
            let excess = F::excess(x, self.taps);
            while left > 0 {
                let n = if left < CHANNELS { 1 } else { CHANNELS };
                if n == 1 {
                    F::sums_of_one(x, self.taps, weights, &mut sums);
                } else {
                    F::sums(x, self.taps, weights, &mut sums);
                }
                let [first, second] = outputs;
                let constants = Constants { records, shifts, n };
                constants.finish(sums.as_ptr(), excess[0], first, self.epilogue);
                constants.finish(sums.as_ptr().wrapping_add(CHANNELS), excess[1], second, self.epilogue);
                weights = weights.wrapping_add(self.taps.wrapping_mul(n));
                (records, shifts) = (records.wrapping_add(n), shifts.wrapping_add(n));
                outputs = [first.wrapping_add(n), second.wrapping_add(n)];
                left = left.wrapping_sub(n);
            }
        }
    }
}

/// The constants of some channels.
#[repr(C)]
struct Constants {
    records: *const [i32; 2],
    shifts: *const u8,
    n: usize,
}

impl Constants {
    /// Scales their sums, less `excess`.
    ///
    /// # Safety
    ///
    /// There is a record, a shift, a sum and an output for each; `n` is not 0.
    #[cfg(not(kiln_armv6m))]
    #[inline(never)]
    unsafe fn finish(&self, sums: *const i32, excess: i32, output: *mut u8, epilogue: &Epilogue) {
        let (mut records, mut shifts, mut sums, mut output) = (self.records, self.shifts, sums, output);
        let end = records.wrapping_add(self.n);
        while records != end {
            // SAFETY: a channel's record, its shift, its sum, its output.
            unsafe {
                let [start, multiplier] = records.read();
                let sum = sums.read().wrapping_sub(excess).wrapping_add(start);
                output.write(finish(sum, multiplier, shifts.read(), epilogue) as u8);
            }
            (records, shifts) = (records.wrapping_add(1), shifts.wrapping_add(1));
            (sums, output) = (sums.wrapping_add(1), output.wrapping_add(1));
        }
    }

    /// As above: 36 instructions each, or 14 where a negative sum is the least output.
    #[cfg(kiln_armv6m)]
    #[inline(always)]
    unsafe fn finish(&self, sums: *const i32, excess: i32, output: *mut u8, epilogue: &Epilogue) {
        // SAFETY: as the caller promises.
        unsafe { armv6m::finish(self, sums, &armv6m::Finish { excess, output, epilogue }) }
    }
}

#[cfg(target_arch = "riscv32")]
mod rv32 {
    use core::arch::asm;

    use super::Sums;

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
    macro_rules! last {
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
                "(a3)
                sw ",
                $upper,
                ", ",
                $second,
                "(a3)
                "
            )
        };
    }

    /// Four channels. Mixed sums, which begin with `start`, in t0 to t3; sums of upper halves in t4 to t6 and a6.
    #[inline(never)]
    pub(super) unsafe extern "C" fn sums(x: *const i32, taps: usize, weights: *const u8, sums: &mut Sums, start: i32) {
        // SAFETY: it reads the words and weights that the caller promises, and writes sums.
        unsafe {
            asm!(
                "mv t0, a4",
                "mv t1, a4",
                "mv t2, a4",
                "mv t3, a4",
                "li a4, 0x7f00",
                "li t4, 0",
                "li t5, 0",
                "li t6, 0",
                "li a6, 0",
                "andi a5, a1, 1",
                "beqz a5, 1f",
                "lw a5, 0(a0)",
                last!("0", "t0", "t4"),
                last!("1", "t1", "t5"),
                last!("2", "t2", "t6"),
                last!("3", "t3", "a6"),
                "addi a0, a0, 4",
                "addi a2, a2, 4",
                "1:",
                "srli a1, a1, 1",
                "beqz a1, 4f",
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
                put!("0", "16", "t0", "t4"),
                put!("4", "20", "t1", "t5"),
                put!("8", "24", "t2", "t6"),
                put!("12", "28", "t3", "a6"),
                inout("a0") x => _,
                inout("a1") taps => _,
                inout("a2") weights => _,
                in("a3") sums,
                inout("a4") start => _,
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
                options(nostack),
            );
        }
    }
}

#[cfg(kiln_armv6m)]
mod armv6m {
    use core::arch::asm;

    use super::{Constants, Sums};
    use crate::arithmetic::Epilogue;
    use crate::scalar::assembly::high_product;

    /// What sums become outputs with.
    #[repr(C)]
    pub(super) struct Finish<'a> {
        pub(super) excess: i32,
        pub(super) output: *mut u8,
        pub(super) epilogue: &'a Epilogue,
    }

    /// [`Constants::finish`](super::Constants): sums behind r7, records behind r6, shifts behind r3; in r8 to r12 the excess, negative, how
    /// far outputs are from shifts, zero point, least and largest output; in lr the records' end.
    #[inline(never)]
    pub(super) unsafe extern "C" fn finish(constants: &Constants, sums: *const i32, finish: &Finish<'_>) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; it reads and writes what the caller promises.
        unsafe {
            asm!(
                "push {{r4, r5, r6, r7}}",
                "mov r4, r8",
                "mov r5, r9",
                "mov r6, r10",
                "mov r7, r11",
                "push {{r4, r5, r6, r7}}",
                "movs r7, r1",
                "ldm r0!, {{r3, r4, r5}}",
                "movs r6, r3",
                "movs r3, r4",
                "lsls r5, r5, #3",
                "adds r5, r5, r6",
                "mov lr, r5",
                "ldm r2!, {{r0, r1, r4}}",
                "rsbs r0, r0, #0",
                "mov r8, r0",
                "subs r1, r1, r3",
                "mov r9, r1",
                "adds r4, r4, #4",
                "ldm r4!, {{r0, r1, r2}}",
                "mov r10, r0",
                "mov r11, r1",
                "mov r12, r2",
                "b 2f",
                // A negative sum.
                "1:",
                "mov r0, r11",
                "cmp r0, r10",
                "bge 5f",
                "b 3f",
                // What is scaled to a negative number.
                "6:",
                "subs r0, r0, #2",
                "asrs r0, r0, r1",
                "adcs r0, r0, r2",
                "cmp r0, r11",
                "bge 5f",
                "mov r0, r11",
                "b 5f",
                // A channel.
                "2:",
                "ldm r7!, {{r0}}",
                "ldm r6!, {{r4, r5}}",
                "add r0, r0, r8",
                "adds r4, r4, r0",
                "bmi 1b",
                "3:",
                high_product!("r4", "r5", "r0", "r1", "r2"),
                "ldrb r1, [r3]",
                "mov r2, r10",
                "adds r0, r4, #1",
                "ble 6b",
                "asrs r0, r0, r1",
                "adcs r0, r0, r2",
                "cmp r0, r12",
                "bgt 4f",
                "5:",
                "mov r2, r9",
                "strb r0, [r3, r2]",
                "adds r3, r3, #1",
                "cmp r6, lr",
                "bne 2b",
                "b 7f",
                "4:",
                "mov r0, r12",
                "b 5b",
                "7:",
                "pop {{r4, r5, r6, r7}}",
                "mov r8, r4",
                "mov r9, r5",
                "mov r10, r6",
                "mov r11, r7",
                "pop {{r4, r5, r6, r7}}",
                inout("r0") constants => _,
                inout("r1") sums => _,
                inout("r2") finish => _,
                out("r3") _,
                out("r12") _,
                out("lr") _,
            );
        }
    }

    /// The products of one tap: its word in `$x`, weights from `$at` on behind r2.
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
                str r0, [r3, #",
                $first,
                "]
                str r1, [r3, #",
                $second,
                "]
                "
            )
        };
    }

    /// Four channels: words of two taps in r3 and r5; mixed sums in r8, r10, r12 and r6, sums of upper halves in r9, r11, lr and r7.
    #[inline(never)]
    pub(super) unsafe extern "C" fn sums(x: *const i32, taps: usize, weights: *const u8, sums: &mut Sums) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; it reads the words and weights that the
        // caller promises, and writes sums.
        unsafe {
            asm!(
                "push {{r4, r5, r6, r7}}",
                "mov r4, r8",
                "mov r5, r9",
                "mov r6, r10",
                "mov r7, r11",
                "push {{r3, r4, r5, r6, r7}}",
                "movs r6, #0",
                "movs r7, #0",
                "mov r8, r6",
                "mov r9, r6",
                "mov r10, r6",
                "mov r11, r6",
                "mov r12, r6",
                "mov lr, r6",
                "lsls r1, r1, #2",
                "adds r1, r1, r0",
                "subs r3, r1, r0",
                "lsrs r3, r3, #3",
                "bcc 1f",
                "ldm r0!, {{r5}}",
                tap!("r5", "0", "1", "2", "3"),
                "adds r2, r2, #4",
                "1:",
                "cmp r0, r1",
                "beq 4f",
                "subs r3, r1, r0",
                "lsrs r3, r3, #4",
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
                "pop {{r3}}",
                put!("0", "16", "r8", "r9"),
                put!("4", "20", "r10", "r11"),
                put!("8", "24", "r12", "lr"),
                put!("12", "28", "r6", "r7"),
                "pop {{r4, r5, r6, r7}}",
                "mov r8, r4",
                "mov r9, r5",
                "mov r10, r6",
                "mov r11, r7",
                "pop {{r4, r5, r6, r7}}",
                inout("r0") x => _,
                inout("r1") taps => _,
                inout("r2") weights => _,
                inout("r3") sums => _,
                out("r12") _,
                out("lr") _,
            );
        }
    }
}

/// What planning packs.
#[cfg(feature = "host")]
pub(crate) mod host {
    use super::CHANNELS;
    use crate::lowering::{BLOCK_BYTES, BLOCK_LABEL};
    use crate::paired::host::{Channel, Channels};
    use crate::scalar::{SUM_LIMIT, scaling};
    use crate::table::Emit;

    /// Which form a layer is packed for.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Packing {
        Signed,
        Biased,
    }

    /// Whether channels have sums and scales that [`crate::scalar::finish`] takes, and products that stay within their halves.
    pub(crate) fn suit(channels: &Channels<'_>, packing: Packing) -> bool {
        let both_least = |weights: &[u8]| weights.chunks_exact(2).any(|two| two == [0x80; 2]);
        let suits = |channel: &Channel<'_>| {
            let (low, high) = channels.reach(channel.start, channel.weights);
            scaling(channel.multiplier, channel.shift).is_some()
                && low > -SUM_LIMIT
                && high < SUM_LIMIT
                && !(packing == Packing::Signed && both_least(channel.weights))
        };
        (0..channels.count).all(|o| suits(&channels.channel(o)))
    }

    /// Emits weights and block.
    pub(crate) fn emit(channels: &Channels<'_>, packing: Packing, emit: &mut dyn Emit) {
        let taps = channels.taps();
        let bias = if packing == Packing::Biased { 128 } else { 0 };
        emit.constant("weights", channels.count * taps, &mut |packed| {
            for (group, to) in packed.chunks_mut(CHANNELS * taps).enumerate() {
                let whole = to.len() == CHANNELS * taps;
                for (at, to) in to.iter_mut().enumerate() {
                    let (o, tap) = if whole { (at % CHANNELS, at / CHANNELS) } else { (at / taps, at % taps) };
                    let channel = channels.channel(group * CHANNELS + o);
                    *to = channel.weights.get(tap).copied().unwrap_or(0).wrapping_add(bias);
                }
            }
        });
        emit.constant(BLOCK_LABEL, channels.count * BLOCK_BYTES, &mut |block| {
            let (records, shifts) = block.split_at_mut(8 * channels.count);
            for (o, (record, to)) in records.chunks_exact_mut(8).zip(shifts).enumerate() {
                let channel = channels.channel(o);
                let (multiplier, shift) = scaling(channel.multiplier, channel.shift).unwrap_or((0, 1));
                let mut start = channel.start;
                if packing == Packing::Biased {
                    // Of the products of numbers with 128 added, what does not depend on the inputs.
                    let sum: i32 = channel.weights.iter().map(|&w| w as i8 as i32).sum();
                    start = start.wrapping_sub(sum.wrapping_mul(128));
                }
                let (first, second) = record.split_at_mut(4);
                first.copy_from_slice(&start.to_le_bytes());
                second.copy_from_slice(&multiplier.to_le_bytes());
                *to = shift;
            }
        });
    }
}
