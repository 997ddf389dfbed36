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

#[cfg(kiln_armv6m)]
mod armv6m;
#[cfg(target_arch = "riscv32")]
mod rv32;

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
    pub(crate) unsafe fn multiply<F: Form>(&mut self, weights: *const u8, block: *const u8, channels: usize) {
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
    /// As for [`Tile::multiply`].
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
    /// As for [`Tile::multiply`]; there is one.
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
