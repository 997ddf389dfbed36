//! Products of int8 matrices, three positions by two channels at a time, for CPUs with the DSP extension.
//!
//! A pair of channels A and B shares each half of a word of weights: the half is `256 * B + A`. Its low byte,
//! with its sign, is A, which one instruction takes out of both halves; multiplied as it lies, it adds the mixed sum
//! `256 * SB + SA`. So `SB = (mixed - SA) / 256`, exactly while `SB` stays within 24 bits, which planning proves from
//! the weights (`Channels::pair_up`). Two taps cost two multiplying instructions for two channels, and weights stay bytes
//! in flash.
//!
//! Positions are widened to halves first, once for all channels: a word holds two taps of one position, the words of
//! three positions lie side by side. Of each group of four taps the first word has taps 0 and 2, the second 1 and 3.

#[cfg(not(kiln_dsp))]
use crate::dsp::{finish, smlad};
use crate::dsp::{sxtb16, sxtb16_ror8};

/// Positions computed together.
pub(crate) const POSITIONS: usize = 3;
/// Bytes of a group of four taps, widened, of all positions.
pub(crate) const GROUP: usize = 8 * POSITIONS;
/// Bytes of a pair's record: what A and what the mixed sum start from, and both multipliers.
const RECORD: usize = 16;

/// Groups of four taps that a window of `taps` is padded to.
#[inline(always)]
pub(crate) fn groups(taps: usize) -> usize {
    taps.div_ceil(4)
}

/// Three positions and what they are multiplied by. The body of a tile may change where block, shifts and outputs are, and the
/// number of pairs, as it goes through them.
#[repr(C)]
pub(crate) struct Tile {
    /// The positions, widened.
    pub(crate) x: *const i32,
    /// Groups of four taps, at least 1.
    pub(crate) groups: usize,
    /// Two words a pair and group.
    pub(crate) weights: *const i32,
    /// A record a pair.
    pub(crate) block: *const i32,
    /// What [`crate::dsp::scaling`] shifts by, two bytes a pair.
    pub(crate) shifts: *const u8,
    /// Pairs of channels, at least 1.
    pub(crate) pairs: usize,
    /// The output's zero point.
    pub(crate) zero: i32,
    /// Where the outputs of each position go; the same place may stand for several.
    pub(crate) outputs: [*mut u8; POSITIONS],
}

impl Tile {
    /// A tile over constants as `Channels::emit` makes them, which must be aligned to 4 bytes.
    pub(crate) fn new(
        x: *const u8,
        groups: usize,
        weights: *const u8,
        block: *const u8,
        pairs: usize,
        zero: i32,
    ) -> Tile {
        let outputs = [core::ptr::null_mut(); POSITIONS];
        let (x, weights, block) = (x.cast(), weights.cast(), block.cast());
        let mut tile = Tile { x, groups, weights, block, shifts: core::ptr::null(), pairs, zero, outputs };
        tile.rewind(block.cast(), pairs);
        tile
    }

    /// Goes back to the first pair of channels.
    #[inline(always)]
    pub(crate) fn rewind(&mut self, block: *const u8, pairs: usize) {
        self.block = block.cast();
        self.shifts = block.wrapping_add(pairs.wrapping_mul(RECORD));
        self.pairs = pairs;
    }
}

/// Computes a tile's outputs, and leaves their pointers behind them.
///
/// # Safety
///
/// `x` has [`GROUP`] readable bytes a group, `weights` 8 a pair and group, `block` and `shifts` 16 and 2 a pair, each output
/// two writable ones a pair; all but the outputs are aligned to 4 bytes. Neither count is 0.
#[cfg(not(kiln_dsp))]
pub(crate) unsafe fn run(tile: &mut Tile) {
    let mut weights = tile.weights;
    for pair in 0..tile.pairs {
        let record = tile.block.wrapping_add(pair.wrapping_mul(RECORD / 4));
        // SAFETY: a pair's record and shifts, its outputs, the words of its groups: as the caller promises.
        unsafe {
            let [start, mixed_start, a_multiplier, b_multiplier] = record.cast::<[i32; 4]>().read();
            let shifts = tile.shifts.wrapping_add(pair.wrapping_mul(2)).cast::<[u8; 2]>().read();
            let [a_divisor, b_divisor] = shifts.map(|shift| 1i32.wrapping_shl(shift as u32));
            let mut sums = [start; POSITIONS];
            let mut mixed = [mixed_start; POSITIONS];
            let mut x = tile.x;
            for _ in 0..tile.groups.wrapping_mul(2) {
                let w = weights.read();
                weights = weights.wrapping_add(1);
                for (sum, mixed) in sums.iter_mut().zip(&mut mixed) {
                    *sum = smlad(x.read(), sxtb16(w), *sum);
                    *mixed = smlad(x.read(), w, *mixed);
                    x = x.wrapping_add(1);
                }
            }
            for ((output, sum), mixed) in tile.outputs.iter().zip(sums).zip(mixed) {
                let b = mixed.wrapping_sub(sum).wrapping_shr(8);
                let output = output.wrapping_add(pair.wrapping_mul(2));
                output.write(finish(sum, a_multiplier, a_divisor, tile.zero) as u8);
                output.wrapping_add(1).write(finish(b, b_multiplier, b_divisor, tile.zero) as u8);
            }
        }
    }
    tile.outputs = tile.outputs.map(|output| output.wrapping_add(tile.pairs.wrapping_mul(2)));
}

/// As above: 17 instructions for the 24 products of a group.
#[cfg(kiln_dsp)]
#[inline(always)]
pub(crate) unsafe fn run(tile: &mut Tile) {
    // SAFETY: the caller's promise.
    unsafe { assembly::tile(tile) }
}

/// Widens `groups` groups of four bytes of each of three positions, which lie `step` bytes apart.
///
/// # Safety
///
/// Each position has four readable bytes a group and the target [`GROUP`] writable ones, aligned to 4 bytes; `groups` is not 0.
#[cfg(not(kiln_dsp))]
pub(crate) unsafe fn widen(first: *const u8, step: isize, to: *mut i32, groups: usize) {
    let mut source = first;
    for position in 0..POSITIONS {
        for group in 0..groups {
            let to = to.wrapping_add(group.wrapping_mul(GROUP / 4).wrapping_add(position));
            // SAFETY: a group of four bytes, and its two words, as the caller promises.
            unsafe {
                let word = source.wrapping_add(group.wrapping_mul(4)).cast::<i32>().read_unaligned();
                to.write(sxtb16(word));
                to.wrapping_add(POSITIONS).write(sxtb16_ror8(word));
            }
        }
        source = source.wrapping_offset(step);
    }
}

/// As above.
#[cfg(kiln_dsp)]
#[inline(always)]
pub(crate) unsafe fn widen(first: *const u8, step: isize, to: *mut i32, groups: usize) {
    // SAFETY: the caller's promise.
    unsafe { assembly::widen(first, step, to, groups) }
}

/// Widens in place: the bytes of the positions, four of each in turn, fill the upper half of what they become.
///
/// # Safety
///
/// `to` has [`GROUP`] bytes a group to be read and written, aligned to 4 bytes.
pub(crate) unsafe fn widen_in_place(to: *mut i32, groups: usize) {
    let mut to = to;
    let mut from = to.wrapping_add(groups.wrapping_mul(POSITIONS)).cast_const();
    for _ in 0..groups {
        // SAFETY: as the caller promises. Group `g` is read from `12 (n + g)` before `24 g` to `24 (g + 1)` is written, which
        // ends no later than where the next one is read. Not as arrays: these went over the stack, four times as many instructions.
        unsafe {
            let (a, b, c) = (from.read(), from.wrapping_add(1).read(), from.wrapping_add(2).read());
            to.write(sxtb16(a));
            to.wrapping_add(1).write(sxtb16(b));
            to.wrapping_add(2).write(sxtb16(c));
            to.wrapping_add(3).write(sxtb16_ror8(a));
            to.wrapping_add(4).write(sxtb16_ror8(b));
            to.wrapping_add(5).write(sxtb16_ror8(c));
        }
        from = from.wrapping_add(POSITIONS);
        to = to.wrapping_add(2 * POSITIONS);
    }
}

#[cfg(kiln_dsp)]
mod assembly {
    //! Both bodies keep all their numbers in registers, which needs every one of the fourteen there are.

    use core::arch::asm;

    use super::Tile;
    use crate::dsp::{extension, finish_in};

    /// A group of four taps: x in r12, weights in lr; sums of A in r4 to r6, mixed ones in r7 to r9.
    macro_rules! group {
        () => {
            "ldm r12!, {{r0, r1, r2}}
            ldrd r10, r11, [lr], #8
            sxtb16 r3, r10
            smlad r4, r0, r3, r4
            smlad r5, r1, r3, r5
            smlad r6, r2, r3, r6
            smlad r7, r0, r10, r7
            smlad r8, r1, r10, r8
            smlad r9, r2, r10, r9
            ldm r12!, {{r0, r1, r2}}
            sxtb16 r3, r11
            smlad r4, r0, r3, r4
            smlad r5, r1, r3, r5
            smlad r6, r2, r3, r6
            smlad r7, r0, r11, r7
            smlad r8, r1, r11, r8
            smlad r9, r2, r11, r9
            "
        };
    }

    /// On the stack: x, its end, the end of its first groups (the number modulo 4 that the loop of four leaves), the pair's record
    /// and shifts, the tile.
    #[inline(never)]
    pub(super) unsafe extern "C" fn tile(tile: *mut Tile) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                extension!(),
                "push {{r0, r4, r5, r6, r7, r8, r9, r10, r11}}",
                "ldrd r1, r2, [r0]",
                "and r3, r2, #3",
                "add r3, r3, r3, lsl #1",
                "add r3, r1, r3, lsl #3",
                "add r2, r2, r2, lsl #1",
                "add r2, r1, r2, lsl #3",
                "ldr lr, [r0, #8]",
                "ldrd r4, r5, [r0, #12]",
                "push {{r1, r2, r3, r4, r5}}",
                // A pair: its sums begin with what the record says.
                "1:",
                "ldr r12, [sp]",
                "ldrd r3, r0, [sp, #8]",
                "ldrd r4, r7, [r0]",
                "mov r5, r4",
                "mov r6, r4",
                "mov r8, r7",
                "mov r9, r7",
                "cmp r12, r3",
                "beq 3f",
                "2:",
                group!(),
                "ldr r3, [sp, #8]",
                "cmp r12, r3",
                "bne 2b",
                "ldr r3, [sp, #4]",
                "cmp r12, r3",
                "beq 4f",
                "3:",
                group!(),
                group!(),
                group!(),
                group!(),
                "ldr r3, [sp, #4]",
                "cmp r12, r3",
                "bne 3b",
                // B's sums out of the mixed ones.
                "4:",
                "sub r7, r7, r4",
                "sub r8, r8, r5",
                "sub r9, r9, r6",
                "asr r7, r7, #8",
                "asr r8, r8, #8",
                "asr r9, r9, #8",
                // Multipliers in r1 and r2, divisors in r11 and r10, the zero point in r0.
                "ldrd r0, r12, [sp, #12]",
                "ldrd r1, r2, [r0, #8]",
                "add r0, r0, #16",
                "ldrb r11, [r12], #1",
                "ldrb r10, [r12], #1",
                "strd r0, r12, [sp, #12]",
                "ldr r3, [sp, #20]",
                "mov r12, #1",
                "lsl r11, r12, r11",
                "lsl r10, r12, r10",
                "ldr r0, [r3, #24]",
                finish_in!("r4", "r1", "r11", "r0"),
                finish_in!("r5", "r1", "r11", "r0"),
                finish_in!("r6", "r1", "r11", "r0"),
                finish_in!("r7", "r2", "r10", "r0"),
                finish_in!("r8", "r2", "r10", "r0"),
                finish_in!("r9", "r2", "r10", "r0"),
                "bfi r4, r7, #8, #8",
                "bfi r5, r8, #8, #8",
                "bfi r6, r9, #8, #8",
                "add r3, r3, #20",
                "ldm r3, {{r0, r1, r2, r7, r8}}",
                "strh r4, [r2], #2",
                "strh r5, [r7], #2",
                "strh r6, [r8], #2",
                "subs r0, r0, #1",
                "stm r3, {{r0, r1, r2, r7, r8}}",
                "bne 1b",
                "add sp, sp, #24",
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

    /// 13 instructions for the 12 bytes of a group.
    #[inline(never)]
    pub(super) unsafe extern "C" fn widen(first: *const u8, step: isize, to: *mut i32, groups: usize) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                extension!(),
                "push {{r4, r5, r6, r7, r8}}",
                "add r12, r0, r1",
                "add r1, r12, r1",
                "1:",
                "ldr r4, [r0], #4",
                "ldr r5, [r12], #4",
                "ldr r6, [r1], #4",
                "sxtb16 r7, r4",
                "sxtb16 r8, r5",
                "sxtb16 lr, r6",
                "sxtb16 r4, r4, ror #8",
                "sxtb16 r5, r5, ror #8",
                "sxtb16 r6, r6, ror #8",
                "stm r2!, {{r7, r8, lr}}",
                "stm r2!, {{r4, r5, r6}}",
                "subs r3, r3, #1",
                "bne 1b",
                "pop {{r4, r5, r6, r7, r8}}",
                inout("r0") first => _,
                inout("r1") step => _,
                inout("r2") to => _,
                inout("r3") groups => _,
                out("r12") _,
                out("lr") _,
            );
        }
    }
}

/// What planning packs.
#[cfg(feature = "host")]
pub(crate) mod host {
    use super::{RECORD, groups};
    use crate::dsp::scaling;
    use crate::lowering::{BLOCK_BYTES, BLOCK_LABEL};
    use crate::table::Emit;

    /// The channels of a layer.
    pub(crate) struct Channels<'a> {
        /// How many.
        pub(crate) count: usize,
        /// Their weights, channel by channel.
        pub(crate) weights: &'a [u8],
        /// What a channel's sum starts from, its multiplier and its shift.
        pub(crate) constants: &'a dyn Fn(usize) -> (i32, i32, i32),
        /// The output's zero point.
        pub(crate) zero: i32,
    }

    /// A channel as it is packed.
    pub(crate) struct Channel<'a> {
        pub(crate) start: i32,
        /// Empty for a channel that gives one value.
        pub(crate) weights: &'a [u8],
        pub(crate) multiplier: i32,
        pub(crate) shift: i32,
    }

    impl Channels<'_> {
        /// Weights of a channel.
        pub(crate) fn taps(&self) -> usize {
            self.weights.len().checked_div(self.count).unwrap_or(0)
        }

        /// The least and the largest sum of channel `o`, whatever is multiplied.
        pub(crate) fn reach(&self, start: i32, weights: &[u8]) -> (i64, i64) {
            let sum = |least: i64, most: i64| {
                let product = |&w: &u8| if (w as i8) < 0 { w as i8 as i64 * most } else { w as i8 as i64 * least };
                start as i64 + weights.iter().map(product).sum::<i64>()
            };
            (sum(-128, 127), sum(127, -128))
        }

        /// Channel `o`. One that gives the same value for any input, as training leaves behind with enormous biases and minute
        /// scales, needs no weights.
        pub(crate) fn channel(&self, o: usize) -> Channel<'_> {
            let taps = self.taps();
            let weights = self.weights.get(o * taps..(o + 1) * taps).unwrap_or(&[]);
            let (start, multiplier, shift) = (self.constants)(o);
            let (low, high) = self.reach(start, weights);
            let value = |sum: i64| {
                let sum = i32::try_from(sum).ok()?;
                let scaled = crate::requantize::scale(sum, multiplier, shift);
                Some(crate::requantize::narrow(scaled, self.zero, -128, 127))
            };
            match (value(low), value(high)) {
                // Scaling that shifts no bits out is monotonic: what both ends give all between them give.
                (Some(a), Some(b)) if a == b && shift <= 0 => {
                    let start = (i32::from(a) - self.zero) * 8;
                    Channel { start, weights: &[], multiplier: 1 << 30, shift: -2 }
                }
                _ => Channel { start, weights, multiplier, shift },
            }
        }

        /// Whether they can be computed in pairs: sums of B within 24 bits for any input, halves within 16 bits, scales that
        /// have a short form.
        pub(crate) fn pair_up(&self) -> bool {
            self.count > 0 && self.count.is_multiple_of(2) && (0..self.count / 2).all(|pair| self.fits(pair))
        }

        fn fits(&self, pair: usize) -> bool {
            let (a, b) = (self.channel(2 * pair), self.channel(2 * pair + 1));
            let (low, high) = self.reach(b.start, b.weights);
            scaling(a.multiplier, a.shift).is_some()
                && scaling(b.multiplier, b.shift).is_some()
                && a.weights.iter().zip(b.weights).all(|(&a, &b)| i16::try_from(half(a, b)).is_ok())
                && low >= -(1 << 23)
                && high < 1 << 23
        }

        /// The halves of a pair's weights, a word for taps 0 and 2 of a group, then one for 1 and 3.
        fn put_words(&self, pair: usize, words: &mut dyn Iterator<Item = &mut [u8]>) {
            let (a, b) = (self.channel(2 * pair), self.channel(2 * pair + 1));
            for (number, to) in words.enumerate() {
                let first = number / 2 * 4 + number % 2;
                for (to, tap) in to.chunks_exact_mut(2).zip([first, first + 2]) {
                    let weight = |channel: &Channel<'_>| channel.weights.get(tap).copied().unwrap_or(0);
                    to.copy_from_slice(&(half(weight(&a), weight(&b)) as i16).to_le_bytes());
                }
            }
        }

        /// A pair's two starts, its two multipliers, and its two shifts.
        fn pair(&self, pair: usize) -> ([i32; 2], [i32; 2], [u8; 2]) {
            let (a, b) = (self.channel(2 * pair), self.channel(2 * pair + 1));
            let [a_scale, b_scale] = [&a, &b].map(|c| scaling(c.multiplier, c.shift).unwrap_or((0, 0)));
            let mixed = b.start.wrapping_mul(256).wrapping_add(a.start);
            ([a.start, mixed], [a_scale.0, b_scale.0], [a_scale.1, b_scale.1])
        }

        /// Emits weights and block for [`Tile`](super::Tile)s.
        pub(crate) fn emit(&self, emit: &mut dyn Emit) {
            let bytes = groups(self.taps()) * 8;
            emit.constant("weights", self.count / 2 * bytes, &mut |packed| {
                for (pair, words) in packed.chunks_exact_mut(bytes).enumerate() {
                    self.put_words(pair, &mut words.chunks_exact_mut(4));
                }
            });
            emit.constant(BLOCK_LABEL, self.count * BLOCK_BYTES, &mut |block| {
                let (records, shifts) = block.split_at_mut(self.count / 2 * RECORD);
                for (number, (record, to)) in
                    records.chunks_exact_mut(RECORD).zip(shifts.chunks_exact_mut(2)).enumerate()
                {
                    let (starts, multipliers, shifts) = self.pair(number);
                    put(record, starts.into_iter().chain(multipliers));
                    to.copy_from_slice(&shifts);
                }
            });
        }

        /// Emits weights and block for two pairs at a time: words and records of both in turn; a last pair alone.
        pub(crate) fn emit_fours(&self, emit: &mut dyn Emit) {
            let bytes = groups(self.taps()) * 8;
            emit.constant("weights", self.count / 2 * bytes, &mut |packed| {
                for (four, words) in packed.chunks_mut(2 * bytes).enumerate() {
                    if words.len() == bytes {
                        self.put_words(2 * four, &mut words.chunks_exact_mut(4));
                        continue;
                    }
                    for odd in [0, 1] {
                        let own = words.chunks_exact_mut(8).skip(odd).step_by(2);
                        self.put_words(2 * four + odd, &mut own.flat_map(|group| group.chunks_exact_mut(4)));
                    }
                }
            });
            emit.constant(BLOCK_LABEL, self.count * BLOCK_BYTES, &mut |block| {
                let (records, shifts) = block.split_at_mut(self.count / 2 * RECORD);
                for (number, (record, to)) in records.chunks_mut(2 * RECORD).zip(shifts.chunks_mut(4)).enumerate() {
                    let pairs = [2 * number, 2 * number + 1]
                        .map(|pair| if 2 * pair < self.count { Some(self.pair(pair)) } else { None });
                    let pairs = pairs.into_iter().flatten();
                    put(
                        record,
                        pairs.clone().flat_map(|(starts, ..)| starts).chain(pairs.clone().flat_map(|(_, m, _)| m)),
                    );
                    to.iter_mut().zip(pairs.flat_map(|(.., shifts)| shifts)).for_each(|(to, shift)| *to = shift);
                }
            });
        }
    }

    /// Words, little-endian.
    fn put(to: &mut [u8], words: impl Iterator<Item = i32>) {
        for (to, word) in to.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn half(a: u8, b: u8) -> i32 {
        256 * (b as i8 as i32) + a as i8 as i32
    }
}
