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

use core::mem::MaybeUninit;

use kiln_core::{Call, Row};

use crate::arithmetic::S8;
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
/// Sums that are open at a time.
const OPEN: usize = if cfg!(kiln_armv6m) { 2 * FEW } else { FEW };

fn check(call: &Call<'_>) -> bool {
    call.input(2).ptr.addr() & 3 == 0 && fully_connected::check::<S8>(call)
}

/// A vector and what it is multiplied by: all that a walk keeps, so that its parts need little stack of their own. Bodies move what
/// belongs to outputs on.
#[repr(C)]
struct Vector<'a> {
    p: &'a FullyConnectedParameters,
    /// The vector.
    x: *const i8,
    /// The weights of the next outputs.
    weights: *const i8,
    /// What their sums start from; as many words behind it are their multipliers as there are outputs.
    starts: *const i32,
    /// A byte an output: what [`crate::scalar::scaling`] shifts by, less 1.
    shifts: *const u8,
    /// Where they go.
    output: *mut u8,
    /// How many outputs are left.
    left: usize,
    /// Added to every sum.
    offset: i32,
    /// Whose vector it is.
    call: &'a Call<'a>,
    /// Sums of products, and outputs made of them that can't be written yet.
    sums: [MaybeUninit<i32>; OPEN],
    outputs: [MaybeUninit<u8>; OUTPUTS - OPEN],
}

unsafe fn run<const EXCESS: i32>(call: &Call<'_>) {
    let Some(p) = call.parameters::<FullyConnectedParameters>() else { return };
    // Anywhere until it begins. Zeroes would call `memset`.
    let nowhere = core::ptr::from_ref(p);
    let mut vector = Vector {
        p,
        x: nowhere.cast(),
        weights: nowhere.cast(),
        starts: nowhere.cast(),
        shifts: nowhere.cast(),
        output: nowhere.cast_mut().cast(),
        left: 0,
        offset: 0,
        call,
        sums: [const { MaybeUninit::uninit() }; OPEN],
        outputs: [const { MaybeUninit::uninit() }; OUTPUTS - OPEN],
    };
    let mut row = call.rows.begin;
    while row < vector.call.rows.end {
        vector.begin(row);
        // SAFETY: `check` proved that vector `row` of input and output lies inside its window, that weights and constants are
        // there for every output, and that the constants are aligned.
        unsafe {
            if EXCESS != 0 {
                vector.take_off(EXCESS);
            }
            #[cfg(kiln_rv32im)]
            if EXCESS == 0 && vector.left >= OUTPUTS {
                rv32::sixteens(&mut vector);
            }
            let mut at = 0;
            while vector.left > 0 {
                vector.sums::<EXCESS>(at);
                at = vector.finish(at);
            }
        }
        row = row.wrapping_add(1);
    }
}

/// An element times a weight as it is packed.
#[inline(always)]
fn product<const EXCESS: i32>(x: i8, w: i8) -> i32 {
    let w = if EXCESS == 0 { w as i32 } else { w as u8 as i32 };
    (x as i32).wrapping_mul(w)
}

/// Four sums, and to each an element's product with one of four weights added.
///
/// # Safety
///
/// The element and the weights can be read.
#[inline(always)]
unsafe fn four<const EXCESS: i32>([a, b, c, d]: [i32; FEW], x: *const i8, w: *const i8) -> [i32; FEW] {
    // SAFETY: as the caller promises.
    unsafe {
        let x = x.read();
        let product = |i: usize| product::<EXCESS>(x, w.wrapping_add(i).read());
        [a.wrapping_add(product(0)), b.wrapping_add(product(1)), c.wrapping_add(product(2)), d.wrapping_add(product(3))]
    }
}

impl<'a> Vector<'a> {
    /// Makes it vector `row`. Its own function, so that nothing it needs is on the stack when the work is done.
    #[inline(never)]
    fn begin(&mut self, row: u32) {
        let (call, p) = (self.call, self.p);
        self.left = p.outputs as usize;
        self.x = vectors::start(call.input(0), row, p.input_pitch).cast();
        self.weights = call.input(1).ptr.cast();
        self.starts = call.input(2).ptr.cast();
        self.shifts = self.starts.wrapping_add(self.left.wrapping_mul(2)).cast();
        self.output = vectors::start(call.output(0), row, p.output_pitch);
    }

    /// Takes the weights' zero point and `excess` times the vector's sum off what sums start from.
    ///
    /// # Safety
    ///
    /// The vector can be read.
    #[inline(never)]
    unsafe fn take_off(&mut self, excess: i32) {
        let mut sum = 0i32;
        for i in 0..self.p.inputs as usize {
            // SAFETY: one of the elements.
            sum = sum.wrapping_add(unsafe { self.x.wrapping_add(i).read() } as i32);
        }
        self.offset = sum.wrapping_mul(self.p.weight_zero.wrapping_add(excess)).wrapping_neg();
    }

    /// How many outputs come next: sixteen, or four where fewer are left, or one.
    #[inline(always)]
    fn size(&self) -> usize {
        match self.left {
            OUTPUTS.. => OUTPUTS,
            FEW.. => FEW,
            _ => 1,
        }
    }

    /// The sums of products of outputs from number `at` of the next ones on, whose weights for an element lie side by side: as many as
    /// there is room for.
    ///
    /// # Safety
    ///
    /// The vector's elements, and so many weights for each, can be read.
    #[inline(always)]
    unsafe fn sums<const EXCESS: i32>(&mut self, at: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            #[cfg(kiln_armv6m)]
            if EXCESS != 0 && self.left >= OUTPUTS {
                return armv6m::eight(self, at);
            }
            self.few::<EXCESS>(at);
        }
    }

    /// As above, of four outputs, or of one if there is no more.
    ///
    /// # Safety
    ///
    /// The vector's elements, and so many weights for each, can be read.
    #[inline(never)]
    unsafe fn few<const EXCESS: i32>(&mut self, at: usize) {
        let size = self.size();
        let mut sums = [0i32; FEW];
        let (mut x, mut w) = (self.x, self.weights.wrapping_add(at));
        let end = x.wrapping_add(self.p.inputs as usize);
        // SAFETY: as the caller promises.
        unsafe {
            if size == 1 {
                while x != end {
                    sums = [sums[0].wrapping_add(product::<EXCESS>(x.read(), w.read())), 0, 0, 0];
                    x = x.wrapping_add(1);
                    w = w.wrapping_add(1);
                }
            } else if self.p.inputs & 1 != 0 {
                sums = four::<EXCESS>(sums, x, w);
                x = x.wrapping_add(1);
                w = w.wrapping_add(size);
            }
            while x != end {
                sums = four::<EXCESS>(sums, x, w);
                w = w.wrapping_add(size);
                sums = four::<EXCESS>(sums, x.wrapping_add(1), w);
                w = w.wrapping_add(size);
                x = x.wrapping_add(2);
            }
        }
        self.sums.iter_mut().zip(sums).for_each(|(to, sum)| _ = to.write(sum));
    }

    /// Outputs from number `at` of the next ones on, of their sums of products. Only with the last of them others are written: they may
    /// lie where the vector does. The number to go on from; 0 after the last.
    ///
    /// # Safety
    ///
    /// There are sums and constants for them, the words of them aligned; the outputs can be written.
    #[inline(never)]
    unsafe fn finish(&mut self, at: usize) -> usize {
        let size = self.size();
        let mut next = at.wrapping_add(OPEN);
        let kept = self.outputs.as_mut_ptr().cast::<u8>();
        // SAFETY: as the caller promises.
        unsafe {
            let mut to = kept.wrapping_add(at);
            if next >= size {
                next = 0;
                // Volatile, so that no call of `memcpy` is made of it.
                for at in 0..at {
                    self.output.wrapping_add(at).write_volatile(kept.wrapping_add(at).read());
                }
                to = self.output.wrapping_add(at);
                self.output = self.output.wrapping_add(size);
                self.weights = self.weights.wrapping_add((self.p.inputs as usize).wrapping_mul(size));
                self.left = self.left.wrapping_sub(size);
            }
            for sum in 0..size.min(OPEN) {
                let sum = self.sums.as_ptr().cast::<i32>().wrapping_add(sum).read();
                let sum = sum.wrapping_add(self.starts.read()).wrapping_add(self.offset);
                let multiplier = self.starts.wrapping_add(self.p.outputs as usize).read();
                let shift = self.shifts.read().wrapping_add(1);
                self.starts = self.starts.wrapping_add(1);
                self.shifts = self.shifts.wrapping_add(1);
                to.write(finish(sum, multiplier, shift, &self.p.epilogue) as u8);
                to = to.wrapping_add(1);
            }
        }
        next
    }
}

#[cfg(kiln_armv6m)]
mod armv6m {
    use core::arch::asm;

    use super::Vector;

    /// A weight's product: x in r1, weights in r2.
    macro_rules! product {
        ($at:literal, $sum:literal) => {
            concat!("ldrb r0, [r2, #", $at, "]\nmuls r0, r1, r0\nadd ", $sum, ", r0\n")
        };
    }

    /// Eight outputs of one element of two: where x ends in r3, a byte more in r5, how far before that the elements are in r4.
    macro_rules! element {
        ($end:literal, $($at:literal),*) => {
            element!(@ $end, $($at)* : "r8" "r9" "r10" "r11" "r12" "lr" "r6" "r7")
        };
        (@ $end:literal, $($at:literal)* : $($sum:literal)*) => {
            concat!("ldrsb r1, [", $end, ", r4]\n", $(product!($at, $sum)),*)
        };
    }

    /// The sums of half of sixteen outputs: 53 instructions for two elements. There is an element.
    #[inline(never)]
    pub(super) unsafe extern "C" fn eight(vector: *mut Vector<'_>, at: usize) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                "push {{r0, r4, r5, r6, r7}}",
                "mov r4, r8",
                "mov r5, r9",
                "mov r6, r10",
                "mov r7, r11",
                "push {{r4, r5, r6, r7}}",
                "ldr r2, [r0, #8]",
                "adds r2, r2, r1",
                "ldr r3, [r0, #4]",
                "ldr r4, [r0]",
                "ldr r4, [r4]",
                "adds r3, r3, r4",
                "rsbs r4, r4, #0",
                "adds r5, r3, #1",
                "movs r6, #0",
                "movs r7, #0",
                "mov r8, r6",
                "mov r9, r6",
                "mov r10, r6",
                "mov r11, r6",
                "mov r12, r6",
                "mov lr, r6",
                // An odd number of elements begins with the second half of a pair.
                "lsls r0, r4, #31",
                "beq 2f",
                "subs r2, r2, #16",
                "subs r4, r4, #1",
                "b 3f",
                "2:",
                element!("r3", "0", "1", "2", "3", "4", "5", "6", "7"),
                "3:",
                element!("r5", "16", "17", "18", "19", "20", "21", "22", "23"),
                "adds r2, r2, #32",
                "adds r4, r4, #2",
                "bne 2b",
                "ldr r0, [sp, #16]",
                "adds r0, r0, #{sums}",
                "mov r1, r8",
                "mov r2, r9",
                "mov r3, r10",
                "mov r4, r11",
                "stm r0!, {{r1, r2, r3, r4}}",
                "mov r4, r12",
                "mov r5, lr",
                "stm r0!, {{r4, r5, r6, r7}}",
                "pop {{r4, r5, r6, r7}}",
                "mov r8, r4",
                "mov r9, r5",
                "mov r10, r6",
                "mov r11, r7",
                "pop {{r0, r4, r5, r6, r7}}",
                sums = const core::mem::offset_of!(Vector<'_>, sums),
                inout("r0") vector => _,
                inout("r1") at => _,
                out("r2") _,
                out("r3") _,
                out("r12") _,
                out("lr") _,
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
                "a2" "a3" "a4" "a5" "s0" "s1" "a6" "a7" "s2" "s3" "s4" "s5" "s6" "s7" "s8" "s9")
        };
        (@ $element:literal, $($at:literal)* : $($sum:literal)*) => {
            concat!("lb t0, ", $element, "(t3)\n", $(product!($at, $sum)),*)
        };
    }

    /// The output of a sum, one of four whose constants are in t4 and t5: `2 zero + 1` in t3, the bounds in s10 and s11. See
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
                ", t3\n",
                "srai ",
                $sum,
                ", ",
                $sum,
                ", 1\n",
                "bge ",
                $sum,
                ", s10, 8f\n",
                "mv ",
                $sum,
                ", s10\n",
                "8:\n",
                "bge s11, ",
                $sum,
                ", 8f\n",
                "mv ",
                $sum,
                ", s11\n",
                "8:\n",
                "sb ",
                $sum,
                ", ",
                $byte,
                "(t6)\n",
            )
        };
    }

    /// All sixteens of outputs. Four elements of one take 199 instructions, an output up to 17 more.
    #[inline(never)]
    pub(super) unsafe extern "C" fn sixteens(vector: *mut Vector<'_>) {
        // SAFETY: the registers that a compiler may want back are stored and loaded; the rest is said below.
        unsafe {
            asm!(
                save!(),
                "lw a2, 0(a0)",
                "lw a1, 0(a2)",
                // Where a number of elements that is no multiple of 4 enters the loop: so many elements earlier.
                "neg t0, a1",
                "andi t0, t0, 3",
                "sw t0, 52(sp)",
                "lw t3, 4(a0)",
                "add a1, a1, t3",
                "lw t2, 8(a0)",
                "lw t5, 16(a0)",
                "lw t6, 20(a0)",
                // The multipliers are behind all starts.
                "lw a3, 4(a2)",
                "slli a3, a3, 2",
                "lw a4, 12(a0)",
                "add t4, a3, a4",
                "lw a3, 24(a2)",
                "slli a3, a3, 1",
                "addi a3, a3, 1",
                "sw a3, 56(sp)",
                "lw s10, 28(a2)",
                "lw s11, 32(a2)",
                "1:",
                "lw a5, 12(a0)",
                "addi a2, a5, 64",
                "sw a2, 12(a0)",
                "lw a2, 0(a5)",
                "lw a3, 4(a5)",
                "lw a4, 8(a5)",
                "lw s0, 16(a5)",
                "lw s1, 20(a5)",
                "lw a6, 24(a5)",
                "lw a7, 28(a5)",
                "lw s2, 32(a5)",
                "lw s3, 36(a5)",
                "lw s4, 40(a5)",
                "lw s5, 44(a5)",
                "lw s6, 48(a5)",
                "lw s7, 52(a5)",
                "lw s8, 56(a5)",
                "lw s9, 60(a5)",
                "lw a5, 12(a5)",
                "lw t3, 4(a0)",
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
                "lw t3, 56(sp)",
                "jal 6f",
                "mv a2, s0",
                "mv a3, s1",
                "mv a4, a6",
                "mv a5, a7",
                "jal 6f",
                "mv a2, s2",
                "mv a3, s3",
                "mv a4, s4",
                "mv a5, s5",
                "jal 6f",
                "mv a2, s6",
                "mv a3, s7",
                "mv a4, s8",
                "mv a5, s9",
                "jal 6f",
                "lw a2, 24(a0)",
                "addi a2, a2, -16",
                "sw a2, 24(a0)",
                "addi a2, a2, -16",
                "bgez a2, 1b",
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
                "ret",
                // What is left begins here.
                "7:",
                "sw t2, 8(a0)",
                "sw t5, 16(a0)",
                "sw t6, 20(a0)",
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
