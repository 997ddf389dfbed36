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
/// Bytes of code of a group in the loop over groups.
const GROUP_CODE: usize = 17 * 4;
/// Bytes of a pair's record: what A and what the mixed sum start from, and both multipliers.
const RECORD: usize = 16;

/// Groups of four taps that a window of `taps` is padded to.
#[inline(always)]
pub(crate) fn groups(taps: usize) -> usize {
    taps.div_ceil(4)
}

/// Bytes of an output channel in the block of a layer with windows of `taps`: where weights leave room for them, shifts are among these.
#[inline(always)]
pub(crate) fn channel_bytes(taps: usize) -> usize {
    if taps & 3 == 0 { 9 } else { 8 }
}

/// Three positions and what they are multiplied by.
#[repr(C)]
pub(crate) struct Tile {
    /// The positions, widened. A place of the last group that no tap fills holds 0.
    pub(crate) x: *const i32,
    /// Groups of four taps, or what else a window is made of, at least 1.
    parts: usize,
    /// The words of a pair, part by part: two of each group.
    weights: *const i32,
    /// A record a pair.
    block: *const i32,
    /// Pairs of channels, at least 1.
    pairs: usize,
    /// What [`crate::dsp::scaling`] shifts by, two bytes a pair.
    shifts: *const u8,
    /// The output's zero point.
    zero: i32,
    /// From one pair's shifts to the next's.
    step: usize,
    /// Bytes of code that the first round of a loop over parts leaves out, plus 1, which says that it is of Thumb.
    skip: usize,
    /// Where the outputs of each position go; the same place may stand for several.
    pub(crate) outputs: [*mut u8; POSITIONS],
}

impl Tile {
    /// A tile over constants as `Channels::emit` makes them for `taps` taps, which must be aligned to 4 bytes.
    #[inline(always)]
    pub(crate) fn new(
        x: *const u8,
        taps: usize,
        weights: *const u8,
        block: *const u8,
        pairs: usize,
        zero: i32,
    ) -> Tile {
        let groups = groups(taps);
        // The first group is computed apart, and four in a round.
        let left = if groups == 1 { 4 } else { 1usize.wrapping_sub(groups) & 3 };
        let skip = left.wrapping_mul(GROUP_CODE);
        let mut tile = Tile::of_parts(x, groups, skip, [weights, block], pairs, zero);
        if taps & 3 != 0 {
            // A last place without a tap is the upper half of a pair's last word.
            tile.step = groups.wrapping_mul(8);
            tile.shifts = weights.wrapping_add(tile.step).wrapping_sub(2);
        }
        tile
    }

    /// A tile over windows of so many parts, with shifts behind the block; the loop over parts is entered so many bytes of code behind
    /// its beginning.
    #[inline(always)]
    pub(crate) fn of_parts(
        x: *const u8,
        parts: usize,
        skip: usize,
        [weights, block]: [*const u8; 2],
        pairs: usize,
        zero: i32,
    ) -> Tile {
        let shifts = block.wrapping_add(pairs.wrapping_mul(RECORD));
        let outputs = [core::ptr::null_mut(); POSITIONS];
        let (x, weights, block, skip) = (x.cast(), weights.cast(), block.cast(), skip.wrapping_add(1));
        Tile { x, parts, weights, block, pairs, shifts, zero, step: 2, skip, outputs }
    }
}

/// Computes a tile's outputs.
///
/// # Safety
///
/// `x` has [`GROUP`] readable bytes a group, `weights` 8 a pair and group, `block` 16 a pair and `shifts` 2 at each step, each output
/// two writable ones a pair; all but shifts and outputs are aligned to 4 bytes. Neither count is 0.
#[cfg(not(kiln_dsp))]
pub(crate) unsafe fn run(tile: &Tile) {
    let mut weights = tile.weights;
    for pair in 0..tile.pairs {
        // SAFETY: the words of a pair's groups, as the caller promises.
        unsafe {
            let [mut sums, mut mixed] = tile.starts(pair);
            let mut x = tile.x;
            for _ in 0..tile.parts.wrapping_mul(2) {
                let w = weights.read();
                weights = weights.wrapping_add(1);
                for (sum, mixed) in sums.iter_mut().zip(&mut mixed) {
                    *sum = smlad(x.read(), sxtb16(w), *sum);
                    *mixed = smlad(x.read(), w, *mixed);
                    x = x.wrapping_add(1);
                }
            }
            tile.end(pair, sums, mixed);
        }
    }
}

/// As above: 17 instructions for the 24 products of a group.
#[cfg(kiln_dsp)]
#[inline(always)]
pub(crate) unsafe fn run(tile: &Tile) {
    // SAFETY: the caller's promise.
    unsafe { assembly::tile(tile) }
}

#[cfg(not(kiln_dsp))]
impl Tile {
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    pub(crate) fn weights(&self) -> *const i32 {
        self.weights
    }

    pub(crate) fn pairs(&self) -> usize {
        self.pairs
    }

    /// What the sums of A and the mixed ones start from.
    ///
    /// # Safety
    ///
    /// There is a record of the pair.
    pub(crate) unsafe fn starts(&self, pair: usize) -> [[i32; POSITIONS]; 2] {
        // SAFETY: as the caller promises.
        let starts = unsafe { self.block.wrapping_add(pair.wrapping_mul(RECORD / 4)).cast::<[i32; 2]>().read() };
        starts.map(|start| [start; POSITIONS])
    }

    /// Writes the outputs of a pair.
    ///
    /// # Safety
    ///
    /// There are a record and shifts of the pair, and its outputs can be written.
    pub(crate) unsafe fn end(&self, pair: usize, sums: [i32; POSITIONS], mixed: [i32; POSITIONS]) {
        let record = self.block.wrapping_add(pair.wrapping_mul(RECORD / 4));
        // SAFETY: as the caller promises.
        unsafe {
            let [a_multiplier, b_multiplier] = record.wrapping_add(2).cast::<[i32; 2]>().read();
            let shifts = self.shifts.wrapping_add(pair.wrapping_mul(self.step)).cast::<[u8; 2]>().read();
            let [a_divisor, b_divisor] = shifts.map(|shift| 1i32.wrapping_shl(shift as u32));
            for ((output, sum), mixed) in self.outputs.iter().zip(sums).zip(mixed) {
                let b = mixed.wrapping_sub(sum).wrapping_shr(8);
                let output = output.wrapping_add(pair.wrapping_mul(2));
                output.write(finish(sum, a_multiplier, a_divisor, self.zero) as u8);
                output.wrapping_add(1).write(finish(b, b_multiplier, b_divisor, self.zero) as u8);
            }
        }
    }
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
pub(crate) mod assembly {
    //! Both bodies keep all their numbers in registers, which needs every one of the fourteen there are.

    use core::arch::asm;

    use super::Tile;
    use crate::dsp::{extension, finish_in};

    /// A word of weights times three positions, to sums of A and mixed ones that begin with those in other registers.
    macro_rules! multiply {
        (
            $w:literal, [$x0:literal, $x1:literal, $x2:literal],
            [$a0:literal, $a1:literal, $a2:literal], [$m0:literal, $m1:literal, $m2:literal]
        ) => {
            concat!(
                concat!("smlad r9, ", $x2, ", ", $w, ", ", $m2, "\n"),
                concat!("smlad r8, ", $x1, ", ", $w, ", ", $m1, "\n"),
                concat!("smlad r7, ", $x0, ", ", $w, ", ", $m0, "\n"),
                concat!("sxtb16 ", $w, ", ", $w, "\n"),
                concat!("smlad r6, ", $x2, ", ", $w, ", ", $a2, "\n"),
                concat!("smlad r5, ", $x1, ", ", $w, ", ", $a1, "\n"),
                concat!("smlad r4, ", $x0, ", ", $w, ", ", $a0, "\n"),
            )
        };
    }

    /// Two taps.
    macro_rules! half {
        ($w:literal, $a:tt, $m:tt) => {
            concat!("ldm r12!, {{r0, r1, r2}}\n", multiply!($w, ["r0", "r1", "r2"], $a, $m))
        };
        ($w:literal) => {
            half!($w, ["r4", "r5", "r6"], ["r7", "r8", "r9"])
        };
    }

    /// A group of four taps, 17 instructions of 4 bytes: x in r12, weights in lr; sums of A in r4 to r6, mixed ones in r7 to r9.
    macro_rules! group {
        () => {
            concat!("ldrd r10, r11, [lr], #8\n", half!("r10"), half!("r11"))
        };
    }

    /// A pair's first group: sums are what they start from, in r4 and r7.
    macro_rules! first_group {
        () => {
            concat!("ldrd r10, r11, [lr], #8\n", half!("r10", ["r4", "r4", "r4"], ["r7", "r7", "r7"]), half!("r11"),)
        };
    }

    /// A sum whose zero point is the least output: what is negative becomes that, however it is rounded.
    macro_rules! finish_positive {
        ($sum:literal, $multiplier:literal, $divisor:literal) => {
            concat!(
                concat!("smmlar ", $sum, ", ", $sum, ", ", $multiplier, ", ", $sum, "\n"),
                concat!("smmlar ", $sum, ", ", $sum, ", ", $divisor, ", r11\n"),
                concat!("ssat ", $sum, ", #8, ", $sum, "\n"),
            )
        };
    }

    /// Begins a tile, whose address is in r0: pushes registers and makes the frame. `$parts` puts the end of x into r3, of which the
    /// beginning is in r4 and the parts in r7; `$finish` the address where sums are finished into r8, knowing the zero point, in r5.
    /// Label 3 is the loop over parts. On the stack: the record's multipliers; minus what the outputs of pairs to come take; shifts; the
    /// end of x; x; the zero point; from shifts to shifts; where the loop is entered; where sums are finished; the outputs' ends, less
    /// one pair's.
    macro_rules! frame {
        ($parts:literal, $finish:literal) => {
            concat!(
                "push {{r4, r5, r6, r7, r8, r9, r10, r11}}
                sub sp, sp, #48
                ldm r0!, {{r4, r7, lr}}
                ",
                $parts,
                "ldm r0, {{r0, r1, r2, r5, r6, r7, r9, r10, r11}}
                add r0, r0, #8
                lsl r1, r1, #1
                sub r12, r1, #2
                rsb r1, r1, #0
                add r9, r9, r12
                add r10, r10, r12
                add r11, r11, r12
                adr r12, 3f
                add r7, r7, r12
                ",
                $finish,
                "stm sp, {{r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11}}\n",
            )
        };
    }

    /// Takes B's sums out of the mixed ones. Then multipliers are in r10 and r12, divisors in r0 and r2, the zero point in r11, where
    /// the outputs go in r1.
    macro_rules! separate {
        () => {
            "sub r7, r7, r4
            sub r8, r8, r5
            sub r9, r9, r6
            asr r7, r7, #8
            asr r8, r8, #8
            asr r9, r9, #8
            ldm sp, {{r0, r1, r2, r3, r10, r11, r12}}
            ldrh r3, [r2]
            add r2, r2, r12
            ldrd r10, r12, [r0], #16
            adds r1, r1, #2
            stm sp, {{r0, r1, r2}}
            mov r2, #1
            lsl r0, r2, r3
            lsr r3, r3, #8
            lsl r2, r2, r3
            "
        };
    }

    /// Finishes the sums.
    macro_rules! finish_all {
        () => {
            concat!(
                finish_in!("r4", "r10", "r0", "r11"),
                finish_in!("r5", "r10", "r0", "r11"),
                finish_in!("r6", "r10", "r0", "r11"),
                finish_in!("r7", "r12", "r2", "r11"),
                finish_in!("r8", "r12", "r2", "r11"),
                finish_in!("r9", "r12", "r2", "r11"),
            )
        };
    }

    /// Stores the outputs and goes to the next pair, at label 1, or ends the tile.
    macro_rules! store {
        () => {
            "bfi r4, r7, #8, #8
            bfi r5, r8, #8, #8
            bfi r6, r9, #8, #8
            ldrd r0, r2, [sp, #36]
            ldr r3, [sp, #44]
            strh r4, [r0, r1]
            strh r5, [r2, r1]
            strh r6, [r3, r1]
            bne 1b
            add sp, sp, #48
            pop {{r4, r5, r6, r7, r8, r9, r10, r11}}
            "
        };
    }

    pub(crate) use {finish_all, frame, multiply, separate, store};

    #[inline(never)]
    pub(super) unsafe extern "C" fn tile(tile: *const Tile) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                extension!(),
                frame!(
                    "add r3, r7, r7, lsl #1\nadd r3, r4, r3, lsl #3\n",
                    "adr r8, 5f\nadr r12, 6f\ncmn r5, #128\nit ne\nmovne r8, r12\nadd r8, r8, #1\n"
                ),
                "1:",
                "ldm sp, {{r0, r1, r2, r3, r12}}",
                "ldrd r4, r7, [r0, #-8]",
                first_group!(),
                "ldr pc, [sp, #28]",
                // The addresses of labels are right only in a section that is aligned.
                ".p2align 2",
                "3:",
                group!(),
                group!(),
                group!(),
                group!(),
                "cmp r12, r3",
                "bne 3b",
                separate!(),
                "ldr pc, [sp, #32]",
                "6:",
                finish_all!(),
                "b 7f",
                // The zero point is -128.
                "5:",
                finish_positive!("r4", "r10", "r0"),
                finish_positive!("r5", "r10", "r0"),
                finish_positive!("r6", "r10", "r0"),
                finish_positive!("r7", "r12", "r2"),
                finish_positive!("r8", "r12", "r2"),
                finish_positive!("r9", "r12", "r2"),
                "7:",
                store!(),
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
    use super::{RECORD, channel_bytes, groups};
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
            self.put_words_of(pair, words, &|number| number / 2 * 4 + number % 2);
        }

        /// A word for each tap that `first` gives for its number and the second tap after that.
        fn put_words_of(
            &self,
            pair: usize,
            words: &mut dyn Iterator<Item = &mut [u8]>,
            first: &dyn Fn(usize) -> usize,
        ) {
            let (a, b) = (self.channel(2 * pair), self.channel(2 * pair + 1));
            for (number, to) in words.enumerate() {
                let first = first(number);
                for (to, tap) in to.chunks_exact_mut(2).zip([first, first + 2]) {
                    let weight = |channel: &Channel<'_>| channel.weights.get(tap).copied().unwrap_or(0);
                    to.copy_from_slice(&(half(weight(&a), weight(&b)) as i16).to_le_bytes());
                }
            }
        }

        /// A pair's weights, and its shifts where the last place has no tap.
        fn put_weights(&self, pair: usize, packed: &mut [u8]) {
            self.put_words(pair, &mut packed.chunks_exact_mut(4));
            if let (false, Some(last)) = (self.taps().is_multiple_of(4), packed.last_chunk_mut::<2>()) {
                *last = self.pair(pair).2;
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
                for (pair, weights) in packed.chunks_exact_mut(bytes).enumerate() {
                    self.put_weights(pair, weights);
                }
            });
            self.emit_block(emit, channel_bytes(self.taps()));
        }

        /// Emits weights and block for windows of three columns: the taps of two channels of each column in turn, then of the next two,
        /// then of the next row.
        pub(crate) fn emit_columns(&self, emit: &mut dyn Emit, depth: usize) {
            let bytes = self.taps() * 2;
            emit.constant("weights", self.count / 2 * bytes, &mut |packed| {
                for (pair, weights) in packed.chunks_exact_mut(bytes).enumerate() {
                    let tap = |number: usize| {
                        let (block, column) = (number / 3, number % 3);
                        let (row, block) = (block / (depth / 2), block % (depth / 2));
                        (row * 3 + column) * depth + block / 2 * 4 + block % 2
                    };
                    self.put_words_of(pair, &mut weights.chunks_exact_mut(4), &tap);
                }
            });
            self.emit_block(emit, BLOCK_BYTES);
        }

        /// Emits a record for each pair, then its shifts if there is room for them.
        fn emit_block(&self, emit: &mut dyn Emit, bytes: usize) {
            emit.constant(BLOCK_LABEL, self.count * bytes, &mut |block| {
                let (records, shifts) = block.split_at_mut(self.count / 2 * RECORD);
                for (number, record) in records.chunks_exact_mut(RECORD).enumerate() {
                    let (starts, multipliers, _) = self.pair(number);
                    put(record, starts.into_iter().chain(multipliers));
                }
                for (number, to) in shifts.chunks_exact_mut(2).enumerate() {
                    to.copy_from_slice(&self.pair(number).2);
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
