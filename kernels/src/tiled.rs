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
/// Words behind those of the taps: room for sums.
pub(crate) const ROOM: usize = POSITIONS * CHANNELS;

/// Two positions and what they are multiplied by. The body of a form goes through weights, records, shifts, groups and outputs.
#[repr(C)]
pub(crate) struct Tile<'a> {
    /// The positions, a word a tap; then [`ROOM`].
    pub(crate) x: *mut i32,
    /// Taps, at least 1.
    pub(crate) taps: usize,
    /// Weights, a byte a tap and channel.
    weights: *const u8,
    /// What a channel's sum starts from, and its multiplier.
    records: *const [i32; 2],
    /// What [`crate::scalar::scaling`] shifts by, a byte a channel.
    shifts: *const u8,
    /// Fours of channels left.
    groups: usize,
    /// Where the outputs of each position go; both may be the same place.
    pub(crate) outputs: [*mut u8; POSITIONS],
    /// What the sums of each position have too much, whatever the channel.
    excess: [i32; POSITIONS],
    epilogue: &'a Epilogue,
}

impl<'a> Tile<'a> {
    /// A tile over `taps` words at `x`.
    #[inline(always)]
    pub(crate) fn new(x: *mut i32, taps: usize, epilogue: &'a Epilogue) -> Tile<'a> {
        let (records, outputs) = (core::ptr::null(), [core::ptr::null_mut(); POSITIONS]);
        let (weights, shifts) = (core::ptr::null(), core::ptr::null());
        Tile { x, taps, weights, records, shifts, groups: 0, outputs, excess: [0; POSITIONS], epilogue }
    }

    /// Computes the outputs of two positions over constants as `host::emit` makes them.
    ///
    /// # Safety
    ///
    /// `x` has a word a tap and [`ROOM`]; `weights` has a byte a tap and channel, `block` 9 bytes a channel, each output one; `block` is
    /// aligned to 4 bytes.
    #[inline(never)]
    pub(crate) unsafe fn run<F: Form>(&mut self, weights: *const u8, block: *const u8, channels: usize) {
        (self.weights, self.records) = (weights, block.cast());
        self.shifts = block.wrapping_add(channels.wrapping_mul(8));
        self.groups = channels >> 2;
        // SAFETY: as the caller promises.
        unsafe {
            self.excess = F::excess(self.x, self.taps);
            if self.groups > 0 {
                F::fours(self);
            }
            for _ in 0..channels & 3 {
                let sums = F::sums_of_one(self.x, self.taps, self.weights);
                self.weights = self.weights.wrapping_add(self.taps);
                self.finish_one(sums);
            }
        }
    }

    /// Computes the outputs of fours of channels in plain Rust.
    ///
    /// # Safety
    ///
    /// As for [`Tile::run`].
    #[inline(always)]
    unsafe fn fours(&mut self, sums: impl Fn(*const i32, usize, *const u8) -> [[i32; POSITIONS]; CHANNELS]) {
        while self.groups > 0 {
            let [a, b, c, d] = sums(self.x, self.taps, self.weights);
            // SAFETY: four of the channels.
            unsafe {
                self.finish_one(a);
                self.finish_one(b);
                self.finish_one(c);
                self.finish_one(d);
            }
            self.weights = self.weights.wrapping_add(self.taps.wrapping_mul(CHANNELS));
            self.groups = self.groups.wrapping_sub(1);
        }
    }

    /// Scales the sums of the next channel.
    ///
    /// # Safety
    ///
    /// There is a channel left.
    #[inline(never)]
    unsafe fn finish_one(&mut self, [first, second]: [i32; POSITIONS]) {
        // SAFETY: the channel's record, its shift, its outputs.
        unsafe {
            let [start, multiplier] = self.records.read();
            let shift = self.shifts.read();
            let output = |sum: i32, excess: i32| {
                finish(sum.wrapping_sub(excess).wrapping_add(start), multiplier, shift, self.epilogue) as u8
            };
            let (first, second) = (output(first, self.excess[0]), output(second, self.excess[1]));
            self.outputs[0].write(first);
            self.outputs[1].write(second);
        }
        (self.records, self.shifts) = (self.records.wrapping_add(1), self.shifts.wrapping_add(1));
        self.outputs = [self.outputs[0].wrapping_add(1), self.outputs[1].wrapping_add(1)];
    }
}

/// How numbers are multiplied.
pub(crate) trait Form {
    /// A word of two positions.
    fn word(a: u8, b: u8) -> i32;

    /// Makes `n` words.
    ///
    /// # Safety
    ///
    /// There are `n` bytes at `a` and at `b`, and `n` words at `to`.
    unsafe fn words(a: *const u8, b: *const u8, to: *mut i32, n: usize);

    /// Computes the outputs of fours of channels and leaves `tile` behind them.
    ///
    /// # Safety
    ///
    /// As for [`Tile::run`]; there is one.
    unsafe fn fours(tile: &mut Tile<'_>);

    /// Sums of one channel.
    ///
    /// # Safety
    ///
    /// There are `taps` words at `x` and as many weights.
    unsafe fn sums_of_one(x: *const i32, taps: usize, weights: *const u8) -> [i32; POSITIONS];

    /// What the sums of each position have too much, whatever the channel.
    ///
    /// # Safety
    ///
    /// There are `taps` words at `x`.
    unsafe fn excess(x: *const i32, taps: usize) -> [i32; POSITIONS];
}

/// Makes `n` words in plain Rust.
///
/// # Safety
///
/// As for [`Form::words`].
#[inline(always)]
unsafe fn words<F: Form>(a: *const u8, b: *const u8, to: *mut i32, n: usize) {
    for i in 0..n {
        // SAFETY: one of the bytes of each position, and its word.
        unsafe { to.wrapping_add(i).write(F::word(a.wrapping_add(i).read(), b.wrapping_add(i).read())) };
    }
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

/// Bytes as they are.
pub(crate) struct Signed;

/// What keeps the lower half of two products from being negative: `2 * 127 * 128`.
const LEAST: i32 = 0x7f00;

impl Form for Signed {
    #[inline(always)]
    fn word(a: u8, b: u8) -> i32 {
        (b as i8 as i32).wrapping_shl(16).wrapping_add(a as i8 as i32)
    }

    #[cfg(not(target_arch = "riscv32"))]
    #[inline(never)]
    unsafe fn words(a: *const u8, b: *const u8, to: *mut i32, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { words::<Signed>(a, b, to, n) }
    }

    #[cfg(target_arch = "riscv32")]
    #[inline(always)]
    unsafe fn words(a: *const u8, b: *const u8, to: *mut i32, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { rv32::words(a, b, to, n) }
    }

    #[cfg(not(target_arch = "riscv32"))]
    #[inline(never)]
    unsafe fn fours(tile: &mut Tile<'_>) {
        let sums = |x: *const i32, taps: usize, weights: *const u8| {
            let (mut x, mut weights) = (x, weights.cast::<[i8; CHANNELS]>());
            let start = Open { mixed: added(taps).wrapping_neg(), upper: 0 };
            let (mut a, mut b, mut c, mut d) = (start, start, start, start);
            // SAFETY: words and weights of a last tap, if taps are odd in number, then of two at a time.
            unsafe {
                if taps & 1 != 0 {
                    let (x0, w) = (x.read(), weights.read());
                    a.add_signed(two(x0, w[0], 0, 0));
                    b.add_signed(two(x0, w[1], 0, 0));
                    c.add_signed(two(x0, w[2], 0, 0));
                    d.add_signed(two(x0, w[3], 0, 0));
                    (x, weights) = (x.wrapping_add(1), weights.wrapping_add(1));
                }
                for _ in 0..taps >> 1 {
                    let [x0, x1] = x.cast::<[i32; 2]>().read();
                    let [w0, w1] = weights.cast::<[[i8; CHANNELS]; 2]>().read();
                    a.add_signed(two(x0, w0[0], x1, w1[0]));
                    b.add_signed(two(x0, w0[1], x1, w1[1]));
                    c.add_signed(two(x0, w0[2], x1, w1[2]));
                    d.add_signed(two(x0, w0[3], x1, w1[3]));
                    (x, weights) = (x.wrapping_add(2), weights.wrapping_add(2));
                }
            }
            [a.both(), b.both(), c.both(), d.both()]
        };
        // SAFETY: the caller's promise.
        unsafe { tile.fours(sums) }
    }

    /// 38 instructions for the 16 products of two taps.
    #[cfg(target_arch = "riscv32")]
    #[inline(always)]
    unsafe fn fours(tile: &mut Tile<'_>) {
        // SAFETY: the caller's promise.
        unsafe { rv32::fours(tile, added(tile.taps).wrapping_neg()) }
    }

    #[inline(never)]
    unsafe fn sums_of_one(x: *const i32, taps: usize, weights: *const u8) -> [i32; POSITIONS] {
        let (mut x, mut weights) = (x, weights.cast::<i8>());
        let mut open = Open { mixed: added(taps).wrapping_neg(), upper: 0 };
        // SAFETY: as above.
        unsafe {
            if taps & 1 != 0 {
                open.add_signed(two(x.read(), weights.read(), 0, 0));
                (x, weights) = (x.wrapping_add(1), weights.wrapping_add(1));
            }
            for _ in 0..taps >> 1 {
                let ([x0, x1], [w0, w1]) = (x.cast::<[i32; 2]>().read(), weights.cast::<[i8; 2]>().read());
                open.add_signed(two(x0, w0, x1, w1));
                (x, weights) = (x.wrapping_add(2), weights.wrapping_add(2));
            }
        }
        open.both()
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
    #[inline(always)]
    fn word(a: u8, b: u8) -> i32 {
        (a as i32 | (b as i32).wrapping_shl(16)) ^ 0x0080_0080
    }

    #[cfg(not(kiln_armv6m))]
    #[inline(never)]
    unsafe fn words(a: *const u8, b: *const u8, to: *mut i32, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { words::<Biased>(a, b, to, n) }
    }

    #[cfg(kiln_armv6m)]
    #[inline(always)]
    unsafe fn words(a: *const u8, b: *const u8, to: *mut i32, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { armv6m::words(a, b, to, n) }
    }

    #[cfg(not(kiln_armv6m))]
    #[inline(never)]
    unsafe fn fours(tile: &mut Tile<'_>) {
        let sums = |x: *const i32, taps: usize, weights: *const u8| {
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
            [a.both(), b.both(), c.both(), d.both()]
        };
        // SAFETY: the caller's promise.
        unsafe { tile.fours(sums) }
    }

    /// 41 instructions for the 16 products of two taps.
    #[cfg(kiln_armv6m)]
    #[inline(always)]
    unsafe fn fours(tile: &mut Tile<'_>) {
        // SAFETY: the caller's promise.
        unsafe { armv6m::fours(tile) }
    }

    #[inline(never)]
    unsafe fn sums_of_one(x: *const i32, taps: usize, weights: *const u8) -> [i32; POSITIONS] {
        let mut open = Open::NONE;
        for tap in 0..taps {
            // SAFETY: the word and the weight of a tap.
            let (x, w) = unsafe { (x.wrapping_add(tap).read() as u32, weights.wrapping_add(tap).read()) };
            open.add_unsigned(x.wrapping_mul(w as u32));
        }
        open.both()
    }

    #[inline(never)]
    unsafe fn excess(x: *const i32, taps: usize) -> [i32; POSITIONS] {
        let (mut x, mut left) = (x, taps);
        let [mut first, mut second] = [0u32; POSITIONS];
        while left > 0 {
            // So many bytes of a position stay within its half.
            let mut n = left.min(256);
            left = left.wrapping_sub(n);
            let mut both = 0u32;
            // SAFETY: so many of the caller's words.
            unsafe {
                while n >= 4 {
                    let [a, b, c, d] = x.cast::<[u32; 4]>().read();
                    both = both.wrapping_add(a).wrapping_add(b).wrapping_add(c).wrapping_add(d);
                    (x, n) = (x.wrapping_add(4), n.wrapping_sub(4));
                }
                while n > 0 {
                    both = both.wrapping_add(x.read() as u32);
                    (x, n) = (x.wrapping_add(1), n.wrapping_sub(1));
                }
            }
            first = first.wrapping_add(both & 0xffff);
            second = second.wrapping_add(both.wrapping_shr(16));
        }
        [first.wrapping_shl(7) as i32, second.wrapping_shl(7) as i32]
    }
}

#[cfg(target_arch = "riscv32")]
mod rv32 {
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
}

#[cfg(kiln_armv6m)]
mod armv6m {
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
