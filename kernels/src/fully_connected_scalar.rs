//! int8 fully connected layers for CPUs that multiply one number at a time, sixteen outputs at a time.
//!
//! Windows: vectors; weights, packed; constants of the outputs; then the output vectors. Rows are vectors. An element of the vector is
//! read once for sixteen outputs, whose weights for it lie side by side; where fewer than sixteen outputs are left, they are
//! computed four at a time, then one by one, with weights packed likewise. A vector is read anew for each of these parts, whose outputs
//! are then written together. Vectors and outputs ascend.
//!
//! Armv6-M reads a byte with its sign only where two registers say, which would take an instruction more for each product; without
//! the sign it has an offset. So weights for it have 128 added, and 128 times the vector's sum is taken off what sums start
//! from.

use kiln_core::{Call, Row};

use crate::arithmetic::{Epilogue, S8};
use crate::fully_connected::{self, FullyConnectedParameters};
use crate::scalar::finish;
use crate::vectors;

/// int8 fully connected layer.
pub const FULLY_CONNECTED_SCALAR_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(24, 1, 0, check, run::<0>) };
/// The same with 128 added to weights.
pub const FULLY_CONNECTED_BIASED_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(28, 1, 0, check, run::<128>) };

/// Outputs computed together.
const OUTPUTS: usize = 16;
/// Outputs computed together where fewer than [`OUTPUTS`] are left.
const FEW: usize = 4;

fn check(call: &Call<'_>) -> bool {
    call.input(2).ptr.addr() & 3 == 0 && fully_connected::check::<S8>(call)
}

/// A vector and what it is multiplied by. Bodies move all that belongs to outputs on.
#[repr(C)]
struct Vector {
    /// The vector.
    x: *const i8,
    /// Its elements, at least 1.
    inputs: usize,
    /// The weights of the next outputs.
    weights: *const i8,
    /// What their sums start from.
    starts: *const i32,
    /// Their multipliers.
    multipliers: *const i32,
    /// A byte an output: what [`crate::scalar::scaling`] shifts by, less 1.
    shifts: *const u8,
    /// Where they go.
    output: *mut u8,
    /// Sixteens of outputs left.
    sixteens: usize,
    /// From sums to outputs.
    epilogue: Epilogue,
    /// Added to every sum.
    offset: i32,
}

unsafe fn run<const EXCESS: i32>(call: &Call<'_>) {
    let Some(p) = call.parameters::<FullyConnectedParameters>() else { return };
    let (inputs, outputs) = (p.inputs as usize, p.outputs as usize);
    for row in call.rows.begin..call.rows.end {
        let starts = call.input(2).ptr.cast::<i32>().cast_const();
        let mut vector = Vector {
            x: vectors::start(call.input(0), row, p.input_pitch).cast(),
            inputs,
            weights: call.input(1).ptr.cast(),
            starts,
            multipliers: starts.wrapping_add(outputs),
            shifts: starts.wrapping_add(outputs.wrapping_mul(2)).cast(),
            output: vectors::start(call.output(0), row, p.output_pitch),
            sixteens: outputs / OUTPUTS,
            epilogue: p.epilogue,
            offset: 0,
        };
        // SAFETY: `check` proved that vector `row` of input and output lies inside its window, that weights and constants are
        // there for every output, and that the constants are aligned.
        unsafe {
            // Planning takes weights with a zero point only where this has to be done anyway.
            if EXCESS != 0 {
                let zero = p.weight_zero.wrapping_add(EXCESS);
                let sum = (0..inputs).fold(0i32, |sum, i| sum.wrapping_add(vector.x.wrapping_add(i).read() as i32));
                vector.offset = sum.wrapping_mul(zero).wrapping_neg();
            }
            if vector.sixteens > 0 {
                sixteens::<EXCESS>(&mut vector);
            }
            let mut sums = [0; FEW];
            for _ in 0..(outputs % OUTPUTS) / FEW {
                few::<EXCESS>(&vector, vector.weights, FEW, &mut sums);
                vector.finish(&sums);
                vector.weights = vector.weights.wrapping_add(inputs.wrapping_mul(FEW));
            }
            for _ in 0..outputs % FEW {
                let w = (0..inputs).map(|i| vector.weights.wrapping_add(i));
                let terms = w.enumerate().map(|(i, w)| product::<EXCESS>(vector.x.wrapping_add(i).read(), w.read()));
                let sum = terms.fold(0i32, i32::wrapping_add);
                vector.finish(&[sum]);
                vector.weights = vector.weights.wrapping_add(inputs);
            }
        }
    }
}

/// An element times a weight as it is packed.
#[inline(always)]
fn product<const EXCESS: i32>(x: i8, w: i8) -> i32 {
    let w = if EXCESS == 0 { w as i32 } else { w as u8 as i32 };
    (x as i32).wrapping_mul(w)
}

/// The sums of products of four outputs whose weights lie side by side, `pitch` from one element's to the next's.
///
/// # Safety
///
/// The vector's elements, and four weights for each, can be read.
#[inline(never)]
unsafe fn few<const EXCESS: i32>(vector: &Vector, weights: *const i8, pitch: usize, sums: &mut [i32; FEW]) {
    let [mut a, mut b, mut c, mut d] = [0i32; FEW];
    let (mut x, mut w) = (vector.x, weights);
    let end = x.wrapping_add(vector.inputs);
    while x != end {
        // SAFETY: as the caller promises.
        unsafe {
            let element = x.read();
            a = a.wrapping_add(product::<EXCESS>(element, w.read()));
            b = b.wrapping_add(product::<EXCESS>(element, w.wrapping_add(1).read()));
            c = c.wrapping_add(product::<EXCESS>(element, w.wrapping_add(2).read()));
            d = d.wrapping_add(product::<EXCESS>(element, w.wrapping_add(3).read()));
        }
        x = x.wrapping_add(1);
        w = w.wrapping_add(pitch);
    }
    *sums = [a, b, c, d];
}

impl Vector {
    /// Makes the next outputs of sums of products.
    ///
    /// # Safety
    ///
    /// There are constants for so many outputs, the words of them aligned, and the outputs can be written.
    #[inline(never)]
    unsafe fn finish(&mut self, sums: &[i32]) {
        for &sum in sums {
            // SAFETY: as the caller promises.
            unsafe {
                let sum = sum.wrapping_add(self.starts.read()).wrapping_add(self.offset);
                let shift = self.shifts.read().wrapping_add(1);
                self.output.write(finish(sum, self.multipliers.read(), shift, &self.epilogue) as u8);
            }
            self.starts = self.starts.wrapping_add(1);
            self.multipliers = self.multipliers.wrapping_add(1);
            self.shifts = self.shifts.wrapping_add(1);
            self.output = self.output.wrapping_add(1);
        }
    }
}

/// Computes all sixteens of outputs.
///
/// # Safety
///
/// For each there are 16 weights an element, and constants, the words of them aligned; the outputs can be written. Neither count
/// is 0.
#[inline(always)]
unsafe fn sixteens<const EXCESS: i32>(vector: &mut Vector) {
    #[cfg(kiln_rv32im)]
    if EXCESS == 0 {
        // SAFETY: the caller's promise.
        return unsafe { rv32::sixteens(vector) };
    }
    for _ in 0..vector.sixteens {
        let mut sums = [[0; FEW]; OUTPUTS / FEW];
        // SAFETY: as the caller promises.
        unsafe {
            sixteen::<EXCESS>(vector, &mut sums);
            vector.finish(sums.as_flattened());
        }
        vector.weights = vector.weights.wrapping_add(vector.inputs.wrapping_mul(OUTPUTS));
    }
}

/// The sums of products of sixteen outputs.
///
/// # Safety
///
/// As for [`sixteens`], for one.
#[inline(always)]
unsafe fn sixteen<const EXCESS: i32>(vector: &Vector, sums: &mut [[i32; FEW]; OUTPUTS / FEW]) {
    #[cfg(kiln_armv6m)]
    if EXCESS != 0 {
        let end = vector.x.wrapping_add(vector.inputs);
        for (half, sums) in sums.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let weights = vector.weights.wrapping_add(half.wrapping_mul(OUTPUTS / 2));
            // SAFETY: the caller's promise.
            unsafe { armv6m::eight(end, vector.inputs.wrapping_neg(), weights.cast(), sums) };
        }
        return;
    }
    for (four, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { few::<EXCESS>(vector, vector.weights.wrapping_add(four.wrapping_mul(FEW)), OUTPUTS, sums) };
    }
}

#[cfg(kiln_armv6m)]
mod armv6m {
    use core::arch::asm;

    use super::FEW;

    /// A weight's product: x in r1, weights in r2.
    macro_rules! product {
        ($at:literal, $sum:literal) => {
            concat!("ldrb r0, [r2, #", $at, "]\nmuls r0, r1, r0\nadd ", $sum, ", r0\n")
        };
    }

    /// Eight outputs of one element: where x ends in r3, how far before that the element is in r4.
    macro_rules! element {
        ($($at:literal),*) => {
            element!(@ $($at)* : "r8" "r9" "r10" "r11" "r12" "r5" "r6" "r7")
        };
        (@ $($at:literal)* : $($sum:literal)*) => {
            concat!("ldrsb r1, [r3, r4]\n", $(product!($at, $sum)),*)
        };
    }

    /// Half of sixteen outputs: 54 instructions for two elements. `count` is the negative number of elements; it is not 0.
    #[inline(never)]
    pub(super) unsafe extern "C" fn eight(
        end: *const i8,
        count: usize,
        weights: *const u8,
        sums: &mut [[i32; FEW]; 2],
    ) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                "push {{r3, r4, r5, r6, r7}}",
                "mov r4, r8",
                "mov r5, r9",
                "mov r6, r10",
                "mov r7, r11",
                "push {{r4, r5, r6, r7}}",
                "mov r3, r0",
                "mov r4, r1",
                "movs r5, #0",
                "movs r6, #0",
                "movs r7, #0",
                "mov r8, r5",
                "mov r9, r5",
                "mov r10, r5",
                "mov r11, r5",
                "mov r12, r5",
                // An odd number of elements begins with the second half of a pair.
                "lsls r0, r4, #31",
                "beq 2f",
                "subs r2, r2, #16",
                "b 3f",
                "2:",
                element!("0", "1", "2", "3", "4", "5", "6", "7"),
                "adds r4, r4, #1",
                "3:",
                element!("16", "17", "18", "19", "20", "21", "22", "23"),
                "adds r2, r2, #32",
                "adds r4, r4, #1",
                "bne 2b",
                "ldr r0, [sp, #16]",
                "mov r1, r8",
                "mov r2, r9",
                "mov r3, r10",
                "mov r4, r11",
                "stm r0!, {{r1, r2, r3, r4}}",
                "mov r4, r12",
                "stm r0!, {{r4, r5, r6, r7}}",
                "pop {{r4, r5, r6, r7}}",
                "mov r8, r4",
                "mov r9, r5",
                "mov r10, r6",
                "mov r11, r7",
                "pop {{r3, r4, r5, r6, r7}}",
                inout("r0") end => _,
                inout("r1") count => _,
                inout("r2") weights => _,
                in("r3") sums,
                out("r12") _,
            );
        }
    }
}

#[cfg(kiln_rv32im)]
mod rv32 {
    use core::arch::asm;

    use super::Vector;
    use crate::scalar::{restore, save};

    /// A weight's product: x in t0, weights in t2.
    macro_rules! product {
        ($at:literal, $sum:literal) => {
            concat!("lb t1, ", $at, "(t2)\nmul t1, t1, t0\nadd ", $sum, ", ", $sum, ", t1\n")
        };
    }

    /// Sixteen outputs of one of four elements: x in t3.
    macro_rules! element {
        ($element:literal, $($at:literal)*) => {
            element!(@ $element, $($at)* :
                "a2" "a3" "a4" "a5" "a6" "a7" "s2" "s3" "s4" "s5" "s6" "s7" "s8" "s9" "s10" "s11")
        };
        (@ $element:literal, $($at:literal)* : $($sum:literal)*) => {
            concat!("lb t0, ", $element, "(t3)\n", $(product!($at, $sum)),*)
        };
    }

    /// The output of a sum, one of four whose constants are in t4 and t5: `2 zero + 1` in ra, the bounds in s0 and s1. See
    /// [`crate::scalar`].
    macro_rules! finish {
        ($sum:literal, $word:literal, $byte:literal) => {
            concat!(
                "lw t0, ",
                $word,
                "(t4)\n",
                "lbu t1, ",
                $byte,
                "(t5)\n",
                "slli ",
                $sum,
                ", ",
                $sum,
                ", 2\n",
                "mulh ",
                $sum,
                ", ",
                $sum,
                ", t0\n",
                "addi ",
                $sum,
                ", ",
                $sum,
                ", 1\n",
                "bgtz ",
                $sum,
                ", 8f\n",
                "addi ",
                $sum,
                ", ",
                $sum,
                ", -2\n",
                "8:\n",
                "sra ",
                $sum,
                ", ",
                $sum,
                ", t1\n",
                "add ",
                $sum,
                ", ",
                $sum,
                ", ra\n",
                "srai ",
                $sum,
                ", ",
                $sum,
                ", 1\n",
                "bge ",
                $sum,
                ", s0, 8f\n",
                "mv ",
                $sum,
                ", s0\n",
                "8:\n",
                "bge s1, ",
                $sum,
                ", 8f\n",
                "mv ",
                $sum,
                ", s1\n",
                "8:\n",
                "sb ",
                $sum,
                ", ",
                $byte,
                "(t6)\n",
            )
        };
    }

    /// Four elements of sixteen outputs take 199 instructions, an output up to 17 more.
    #[inline(never)]
    pub(super) unsafe extern "C" fn sixteens(vector: *mut Vector) {
        // SAFETY: the registers that a compiler may want back are stored and loaded; the rest is said below.
        unsafe {
            asm!(
                save!(),
                "lw t3, 0(a0)",
                "lw a1, 4(a0)",
                // Where a number of elements that is no multiple of 4 enters the loop: so many elements earlier.
                "neg t0, a1",
                "andi t0, t0, 3",
                "sw t0, 52(sp)",
                "add a1, a1, t3",
                "lw t2, 8(a0)",
                "lw t4, 16(a0)",
                "lw t5, 20(a0)",
                "lw t6, 24(a0)",
                "lw ra, 36(a0)",
                "slli ra, ra, 1",
                "addi ra, ra, 1",
                "lw s0, 40(a0)",
                "lw s1, 44(a0)",
                "1:",
                "lw t0, 12(a0)",
                "lw a2, 0(t0)",
                "lw a3, 4(t0)",
                "lw a4, 8(t0)",
                "lw a5, 12(t0)",
                "lw a6, 16(t0)",
                "lw a7, 20(t0)",
                "lw s2, 24(t0)",
                "lw s3, 28(t0)",
                "lw s4, 32(t0)",
                "lw s5, 36(t0)",
                "lw s6, 40(t0)",
                "lw s7, 44(t0)",
                "lw s8, 48(t0)",
                "lw s9, 52(t0)",
                "lw s10, 56(t0)",
                "lw s11, 60(t0)",
                "addi t0, t0, 64",
                "sw t0, 12(a0)",
                "lw t3, 0(a0)",
                "lw t0, 52(sp)",
                "beqz t0, 2f",
                "sub t3, t3, t0",
                "slli t1, t0, 4",
                "sub t2, t2, t1",
                "addi t0, t0, -2",
                "bltz t0, 3f",
                "beqz t0, 4f",
                "j 5f",
                "2:",
                element!("0", "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11" "12" "13" "14" "15"),
                "3:",
                element!("1", "16" "17" "18" "19" "20" "21" "22" "23" "24" "25" "26" "27" "28" "29" "30" "31"),
                "4:",
                element!("2", "32" "33" "34" "35" "36" "37" "38" "39" "40" "41" "42" "43" "44" "45" "46" "47"),
                "5:",
                element!("3", "48" "49" "50" "51" "52" "53" "54" "55" "56" "57" "58" "59" "60" "61" "62" "63"),
                "addi t2, t2, 64",
                "addi t3, t3, 4",
                "bne t3, a1, 2b",
                "jal t3, 6f",
                "mv a2, a6",
                "mv a3, a7",
                "mv a4, s2",
                "mv a5, s3",
                "jal t3, 6f",
                "mv a2, s4",
                "mv a3, s5",
                "mv a4, s6",
                "mv a5, s7",
                "jal t3, 6f",
                "mv a2, s8",
                "mv a3, s9",
                "mv a4, s10",
                "mv a5, s11",
                "jal t3, 6f",
                "lw t0, 28(a0)",
                "addi t0, t0, -1",
                "sw t0, 28(a0)",
                "bnez t0, 1b",
                "j 7f",
                // Four outputs.
                "6:",
                finish!("a2", "0", "0"),
                finish!("a3", "4", "1"),
                finish!("a4", "8", "2"),
                finish!("a5", "12", "3"),
                "addi t4, t4, 16",
                "addi t5, t5, 4",
                "addi t6, t6, 4",
                "jr t3",
                // What is left begins here.
                "7:",
                "sw t2, 8(a0)",
                "sw t4, 16(a0)",
                "sw t5, 20(a0)",
                "sw t6, 24(a0)",
                restore!(),
                inout("a0") vector => _,
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
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{DType, TargetId};
    use kiln_ops::OpError;

    use super::*;
    use crate::fully_connected::host::{channel, finish, parameters, quantization_suits};
    use crate::lag;
    use crate::lowering::{BLOCK_BYTES, BLOCK_LABEL};
    use crate::scalar_channel::Channel;
    use crate::table::{Direction, Emit, Kernel, Operation};

    pub(crate) const FULLY_CONNECTED_SCALAR_S8: Kernel = Kernel {
        number: super::FULLY_CONNECTED_SCALAR_S8.number(),
        name: "fully_connected_scalar_s8",
        row_name: "FULLY_CONNECTED_SCALAR_S8",
        targets: &[TargetId::ARMV7M, TargetId::RV32IMC],
        directions: &[Direction::Up],
        applies: |operation| {
            parameters(operation, DType::I8).is_some_and(|(p, _)| p.weight_zero == 0) && applies(operation)
        },
        prepare: |operation, emit| prepare(operation, 0, emit),
        lag: |operation, input, _| lag_of(operation, input),
        portable: super::FULLY_CONNECTED_SCALAR_S8,
        native: None,
        work: None,
    };

    pub(crate) const FULLY_CONNECTED_BIASED_S8: Kernel = Kernel {
        number: super::FULLY_CONNECTED_BIASED_S8.number(),
        name: "fully_connected_biased_s8",
        row_name: "FULLY_CONNECTED_BIASED_S8",
        targets: &[TargetId::ARMV6M],
        directions: &[Direction::Up],
        applies,
        prepare: |operation, emit| prepare(operation, 0x80, emit),
        lag: |operation, input, _| lag_of(operation, input),
        portable: super::FULLY_CONNECTED_BIASED_S8,
        native: None,
        work: None,
    };

    /// The fewest products that are worth the row's code, which is twice the plain row's. A network that sorts into classes ends in a
    /// layer of that size, and has no other.
    const PRODUCTS: usize = 1024;

    /// Whether the layer is worth it, and every output has a scale and sums that [`crate::scalar::finish`] takes. Up to three outputs are
    /// faster one by one, from weights as they lie.
    fn applies(operation: &Operation<'_>) -> bool {
        parameters(operation, DType::I8).is_some_and(|(p, _)| {
            let (inputs, outputs) = (p.inputs as usize, p.outputs as usize);
            outputs >= FEW
                && inputs.saturating_mul(outputs) >= PRODUCTS
                && (0..outputs).all(|o| output(operation, o).is_some())
        })
    }

    /// Output `o` as it is packed.
    fn output<'a>(operation: &Operation<'a>, o: usize) -> Option<Channel<'a>> {
        if !quantization_suits(operation) {
            return None;
        }
        let w = operation.inputs.get(1)?;
        let inputs = w.ty.shape.dim(1) as usize;
        let weights = w.data?.get(o * inputs..(o + 1) * inputs)?;
        let (w_zero, zero) = (w.quant.zero_point(0), operation.output.quant.zero_point(0));
        Channel::new(channel(operation, o), weights, w_zero, zero)
    }

    /// How many outputs are computed with output `o`, and the first of them.
    fn part(outputs: usize, o: usize) -> (usize, usize) {
        [OUTPUTS, FEW].into_iter().find(|size| o < outputs / size * size).map_or((1, o), |size| (size, o / size * size))
    }

    fn prepare(operation: &Operation<'_>, flip: u8, emit: &mut dyn Emit) -> Result<(), OpError> {
        let (p, _) = parameters(operation, DType::I8).ok_or(OpError::TooLarge)?;
        let (inputs, outputs) = (p.inputs as usize, p.outputs as usize);
        emit.input(0);
        let none = p.weight_zero as u8;
        emit.constant("weights", inputs * outputs, &mut |packed| {
            for o in 0..outputs {
                let (size, first) = part(outputs, o);
                let to = packed.iter_mut().skip(first * inputs + (o - first)).step_by(size);
                let channel = output(operation, o);
                let weights = channel.iter().flat_map(|channel| channel.weights).chain(core::iter::repeat(&none));
                to.zip(weights).take(inputs).for_each(|(to, &weight)| *to = weight ^ flip);
            }
        });
        emit.constant(BLOCK_LABEL, BLOCK_BYTES * outputs, &mut |block| {
            let (words, shifts) = block.split_at_mut(8 * outputs);
            let (starts, multipliers) = words.split_at_mut(4 * outputs);
            let words = starts.chunks_exact_mut(4).zip(multipliers.chunks_exact_mut(4));
            for (o, ((start, multiplier), shift)) in words.zip(shifts).enumerate() {
                let Some(channel) = output(operation, o) else { continue };
                start.copy_from_slice(&channel.start.to_le_bytes());
                multiplier.copy_from_slice(&channel.multiplier.to_le_bytes());
                *shift = channel.shift - 1;
            }
        });
        finish(operation, DType::I8, emit)
    }

    fn lag_of(operation: &Operation<'_>, input: usize) -> Option<u64> {
        let (p, rows) = parameters(operation, DType::I8).filter(|_| input == 0)?;
        // The outputs before the last part are a multiple of it.
        let (last, _) = part(p.outputs as usize, p.outputs as usize - 1);
        Some(lag::vectors_in_parts(rows, p.inputs, p.outputs, last as u32))
    }
}
