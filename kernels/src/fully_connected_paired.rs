//! int8 fully connected layers for CPUs with the DSP extension, four outputs at a time.
//!
//! Windows: vectors; weights and constants, packed; then the output vectors. Rows are vectors. Outputs share words of weights in
//! pairs as in [`crate::paired`]; two pairs are multiplied by four elements of the vector as they lie, widened on the way. Vectors and
//! outputs ascend; a vector is read anew for each four outputs, which are written together. Where the number of
//! outputs leaves two over, these come last.

use kiln_core::{Call, Row};

use crate::dsp::{finish, smlad, sxtb16, sxtb16_ror8};
use crate::fully_connected::FullyConnectedParameters;
use crate::vectors;

/// int8 fully connected layer.
pub const FULLY_CONNECTED_PAIRED_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(16, 1, 0, check, run) };

/// Outputs computed together.
const OUTPUTS: usize = 4;

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<FullyConnectedParameters>() else { return false };
    let weights = (p.inputs as usize).checked_mul(p.outputs as usize);
    let aligned = call.input(1).ptr.addr() | call.input(2).ptr.addr();
    vectors::fit(call.input(0), call.rows.end, p.inputs, p.input_pitch, 1)
        && vectors::fit(call.output(0), call.rows.end, p.outputs, p.output_pitch, 1)
        && p.inputs & 3 == 0
        && p.outputs & 1 == 0
        && aligned & 3 == 0
        && weights.is_some_and(|n| call.input(1).holds(n, 1))
        && call.input(2).holds(p.outputs as usize, 9)
}

/// A vector and what it is multiplied by. The body changes what it has gone through.
#[repr(C)]
struct Fours {
    /// The vector.
    x: *const u8,
    /// Groups of four elements, at least 1.
    groups: usize,
    /// Four words a group: two of each pair.
    weights: *const i32,
    /// Starts of both pairs (of A, mixed), then their multipliers.
    block: *const i32,
    /// What [`crate::dsp::scaling`] shifts by.
    shifts: *const u8,
    /// Fours of outputs left, at least 1.
    fours: usize,
    /// The output's zero point.
    zero: i32,
    /// Where the outputs go.
    output: *mut u8,
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<FullyConnectedParameters>() else { return };
    let outputs = p.outputs as usize;
    let e = &p.epilogue;
    for row in call.rows.begin..call.rows.end {
        let output = vectors::start(call.output(0), row, p.output_pitch);
        let block = call.input(2).ptr.cast_const();
        let mut vector = Fours {
            x: vectors::start(call.input(0), row, p.input_pitch),
            groups: p.inputs as usize >> 2,
            weights: call.input(1).ptr.cast_const().cast(),
            block: block.cast(),
            shifts: block.wrapping_add(outputs.wrapping_mul(8)),
            fours: outputs / OUTPUTS,
            zero: e.output_zero,
            output,
        };
        // SAFETY: `check` proved that vector `row` of input and output lies inside its window, that weights and constants are
        // there for every output, and alignments.
        unsafe {
            if vector.fours > 0 {
                fours(&mut vector);
            }
            if outputs & 2 != 0 {
                last_pair(&vector);
            }
            if e.clamps() {
                e.clamp(output, outputs);
            }
        }
    }
}

/// Computes the outputs of a vector but for a last pair, and leaves `vector` at that.
///
/// # Safety
///
/// The vector has four elements a group, and for each four outputs `weights` 16 bytes a group, `block` 32 bytes and `shifts` 4; all
/// three are aligned to 4 bytes. Outputs can be written. No count is 0.
#[cfg(not(kiln_dsp))]
unsafe fn fours(vector: &mut Fours) {
    for _ in 0..vector.fours {
        // SAFETY: as the caller promises.
        unsafe {
            let [mut a, mut mixed_a, mut b, mut mixed_b] = vector.block.cast::<[i32; 4]>().read();
            let multipliers = vector.block.wrapping_add(4).cast::<[i32; 4]>().read();
            for group in 0..vector.groups {
                let word = vector.x.wrapping_add(group.wrapping_mul(4)).cast::<i32>().read_unaligned();
                let (even, odd) = (sxtb16(word), sxtb16_ror8(word));
                let [w0, w1, w2, w3] = vector.weights.cast::<[i32; 4]>().read();
                vector.weights = vector.weights.wrapping_add(4);
                a = smlad(odd, sxtb16(w1), smlad(even, sxtb16(w0), a));
                mixed_a = smlad(odd, w1, smlad(even, w0, mixed_a));
                b = smlad(odd, sxtb16(w3), smlad(even, sxtb16(w2), b));
                mixed_b = smlad(odd, w3, smlad(even, w2, mixed_b));
            }
            let sums = [a, mixed_a.wrapping_sub(a) >> 8, b, mixed_b.wrapping_sub(b) >> 8];
            for (sum, multiplier) in sums.into_iter().zip(multipliers) {
                let divisor = 1i32.wrapping_shl(vector.shifts.read() as u32);
                vector.output.write(finish(sum, multiplier, divisor, vector.zero) as u8);
                vector.shifts = vector.shifts.wrapping_add(1);
                vector.output = vector.output.wrapping_add(1);
            }
            vector.block = vector.block.wrapping_add(8);
        }
    }
}

/// As above: 17 instructions for the 16 products of a group.
#[cfg(kiln_dsp)]
#[inline(always)]
unsafe fn fours(vector: &mut Fours) {
    // SAFETY: the caller's promise.
    unsafe { assembly::fours(vector) }
}

/// Computes the last pair.
///
/// # Safety
///
/// As for [`fours`], for two outputs.
#[inline(never)]
unsafe fn last_pair(vector: &Fours) {
    // SAFETY: as the caller promises.
    unsafe {
        let [mut sum, mut mixed, a_multiplier, b_multiplier] = vector.block.cast::<[i32; 4]>().read();
        let [a_shift, b_shift] = vector.shifts.cast::<[u8; 2]>().read();
        for group in 0..vector.groups {
            let word = vector.x.wrapping_add(group.wrapping_mul(4)).cast::<i32>().read_unaligned();
            let [even, odd] = vector.weights.cast::<[i32; 2]>().wrapping_add(group).read();
            sum = smlad(sxtb16_ror8(word), sxtb16(odd), smlad(sxtb16(word), sxtb16(even), sum));
            mixed = smlad(sxtb16_ror8(word), odd, smlad(sxtb16(word), even, mixed));
        }
        let b = mixed.wrapping_sub(sum).wrapping_shr(8);
        let a = finish(sum, a_multiplier, 1i32.wrapping_shl(a_shift as u32), vector.zero);
        let b = finish(b, b_multiplier, 1i32.wrapping_shl(b_shift as u32), vector.zero);
        vector.output.cast::<[u8; 2]>().write([a as u8, b as u8]);
    }
}

#[cfg(kiln_dsp)]
mod assembly {
    use core::arch::asm;

    use super::Fours;
    use crate::dsp::{extension, finish_in};

    /// Four elements: x in r12, its end in r3, weights in lr; sums of A and mixed ones in r4 and r5, of the second pair in r6 and r7.
    macro_rules! group {
        () => {
            "ldr r0, [r12], #4
            ldm lr!, {{r8, r9, r10, r11}}
            sxtb16 r1, r0
            sxtb16 r2, r0, ror #8
            smlad r5, r1, r8, r5
            sxtb16 r8, r8
            smlad r7, r1, r10, r7
            sxtb16 r10, r10
            smlad r5, r2, r9, r5
            sxtb16 r9, r9
            smlad r7, r2, r11, r7
            sxtb16 r11, r11
            smlad r4, r1, r8, r4
            smlad r6, r1, r10, r6
            smlad r4, r2, r9, r4
            smlad r6, r2, r11, r6
            "
        };
    }

    /// [`crate::dsp::finish`] of one sum: what is shifted by is the last byte of r2, all that a shift looks at; the zero point is in
    /// r12, 1 in r3.
    macro_rules! finish {
        ($sum:literal, $multiplier:literal) => {
            concat!("lsl r0, r3, r2\n", finish_in!($sum, $multiplier, "r0", "r12"))
        };
    }

    /// On the stack: where the loop of four groups is entered, the arguments.
    #[inline(never)]
    pub(super) unsafe extern "C" fn fours(vector: *mut Fours) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                extension!(),
                "push {{r0, r4, r5, r6, r7, r8, r9, r10, r11}}",
                "ldrd r2, lr, [r0, #4]",
                // Groups, of 64 bytes of code each, that the first round leaves out.
                "rsb r2, r2, #0",
                "and r2, r2, #3",
                "adr r3, 2f",
                "add r2, r3, r2, lsl #6",
                "add r2, r2, #1",
                "push {{r2}}",
                "1:",
                "ldr r2, [sp, #4]",
                "ldr r0, [r2, #12]",
                "ldm r0!, {{r4, r5, r6, r7}}",
                "str r0, [r2, #12]",
                "ldrd r12, r3, [r2]",
                "add r3, r12, r3, lsl #2",
                "ldr pc, [sp]",
                // The addresses of labels are right only in a section that is aligned.
                ".p2align 2",
                "2:",
                group!(),
                group!(),
                group!(),
                group!(),
                "cmp r12, r3",
                "bne 2b",
                "sub r5, r5, r4",
                "sub r7, r7, r6",
                "asr r5, r5, #8",
                "asr r7, r7, #8",
                "ldr r1, [sp, #4]",
                "ldrd r0, r3, [r1, #12]",
                "ldm r0!, {{r8, r9, r10, r11}}",
                "ldr r2, [r3], #4",
                "strd r0, r3, [r1, #12]",
                "ldr r12, [r1, #24]",
                "mov r3, #1",
                finish!("r4", "r8"),
                "lsr r2, r2, #8",
                finish!("r5", "r9"),
                "lsr r2, r2, #8",
                finish!("r6", "r10"),
                "lsr r2, r2, #8",
                finish!("r7", "r11"),
                "ldr r0, [r1, #28]",
                "bfi r4, r5, #8, #8",
                "bfi r6, r7, #8, #8",
                "strh r4, [r0], #2",
                "strh r6, [r0], #2",
                "str r0, [r1, #28]",
                "ldr r0, [r1, #20]",
                "subs r0, r0, #1",
                "str r0, [r1, #20]",
                "bne 1b",
                // Where the weights of a last pair begin.
                "str lr, [r1, #8]",
                "add sp, sp, #8",
                "pop {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                inout("r0") vector => _,
                out("r1") _,
                out("r2") _,
                out("r3") _,
                out("r12") _,
                out("lr") _,
            );
        }
    }
}

/// How planning chooses and prepares the row.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{DType, TargetId};
    use kiln_ops::OpError;

    use super::*;
    use crate::fully_connected::host::{channel, finish, parameters, quantization_suits};
    use crate::lag;
    use crate::paired::host::Channels;
    use crate::table::{Direction, Kernel, Operation};

    pub(crate) const FULLY_CONNECTED_PAIRED_S8: Kernel = Kernel {
        number: super::FULLY_CONNECTED_PAIRED_S8.number(),
        name: "fully_connected_paired_s8",
        row_name: "FULLY_CONNECTED_PAIRED_S8",
        // With MVE there is row 20; what that leaves, layers of up to three outputs, is not worth this one's code.
        targets: &[TargetId::ARMV7EM, TargetId::ARMV8M],
        directions: &[Direction::Up],
        applies: |operation| {
            let suits = parameters(operation, DType::I8).is_some_and(|(p, _)| p.weight_zero == 0 && p.inputs & 3 == 0);
            suits && quantization_suits(operation) && channels(operation, |channels| channels.pair_up()) == Some(true)
        },
        prepare: |operation, emit| {
            emit.input(0);
            channels(operation, |channels| channels.emit_fours(emit)).ok_or(OpError::TooLarge)?;
            finish(operation, DType::I8, emit)
        },
        lag: |operation, input, _| {
            let (p, rows) = parameters(operation, DType::I8).filter(|_| input == 0)?;
            Some(lag::vectors_in_parts(rows, p.inputs, p.outputs, OUTPUTS as u32))
        },
        portable: super::FULLY_CONNECTED_PAIRED_S8,
        native: None,
        work: None,
    };

    /// Does something with the outputs of a layer with constant weights.
    fn channels<R>(operation: &Operation<'_>, with: impl FnOnce(&Channels<'_>) -> R) -> Option<R> {
        let w = operation.inputs.get(1)?;
        let constants = |o: usize| channel(operation, o);
        let zero = operation.output.quant.zero_point(0);
        Some(with(&Channels { count: w.ty.shape.dim(0) as usize, weights: w.data?, constants: &constants, zero }))
    }
}
