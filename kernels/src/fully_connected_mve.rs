//! int8 fully connected layers for CPUs with MVE, four outputs at a time.
//!
//! Windows: vectors, weights `[O, I]` as they are, constants of the outputs; then the output vectors. Rows are vectors. Vectors and
//! outputs ascend; a vector is read anew for each four outputs, which are written together. Where outputs do not come in fours, the last
//! four are those up to the end, some of them for the second time.

use kiln_core::{Call, Row};

use crate::arithmetic::{Arithmetic, S8};
use crate::fully_connected::FullyConnectedParameters;
use crate::vectors;

/// int8 fully connected layer.
pub const FULLY_CONNECTED_MVE_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(20, 1, 0, check, run) };

/// Outputs computed together.
const OUTPUTS: usize = 4;

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<FullyConnectedParameters>() else { return false };
    let weights = (p.inputs as usize).checked_mul(p.outputs as usize);
    vectors::fit(call.input(0), call.rows.end, p.inputs, p.input_pitch, 1)
        && vectors::fit(call.output(0), call.rows.end, p.outputs, p.output_pitch, 1)
        && p.inputs != 0
        && p.outputs as usize >= OUTPUTS
        && call.input(2).ptr.addr() & 3 == 0
        && weights.is_some_and(|n| call.input(1).holds(n, 1))
        && S8::holds(call.input(2), p.outputs)
}

/// A vector and what it is multiplied by. The body changes where it has got to.
#[repr(C)]
struct Fours {
    /// The outputs' shifts.
    shifts: *const i8,
    /// Where they go.
    output: *mut u8,
    /// Their multipliers, and what sums start from.
    multipliers: *const i32,
    bias: *const i32,
    /// Where `bias` is behind the last output.
    end: *const i32,
    /// The output's zero point.
    zero: i32,
    /// The vector.
    x: *const i8,
    /// The weights of the first output.
    weights: *const i8,
    /// Elements of the vector, at least 1.
    inputs: usize,
    /// From where the weights of an output are left, a multiple of 16 behind their beginning, to the next one's.
    next: isize,
}

impl Fours {
    /// Goes to outputs `first..end` of vector `row`. They are fours.
    #[inline(never)]
    fn turn_to(&mut self, call: &Call<'_>, p: &FullyConnectedParameters, row: u32, [first, end]: [usize; 2]) {
        let (inputs, outputs) = (p.inputs as usize, p.outputs as usize);
        let block = call.input(2).ptr.cast_const();
        self.shifts = block.cast::<i8>().wrapping_add(outputs.wrapping_mul(8)).wrapping_add(first);
        self.output = vectors::start(call.output(0), row, p.output_pitch).wrapping_add(first);
        self.bias = block.cast::<i32>().wrapping_add(first);
        self.multipliers = self.bias.wrapping_add(outputs);
        self.end = block.cast::<i32>().wrapping_add(end);
        self.x = vectors::start(call.input(0), row, p.input_pitch).cast_const().cast();
        self.weights = call.input(1).ptr.cast_const().cast::<i8>().wrapping_add(first.wrapping_mul(inputs));
    }
}

unsafe fn run(call: &Call<'_>) {
    let Some(p) = call.parameters::<FullyConnectedParameters>() else { return };
    let (inputs, outputs) = (p.inputs as usize, p.outputs as usize);
    let e = &p.epilogue;
    let none = core::ptr::null();
    let mut fours = Fours {
        shifts: none,
        output: core::ptr::null_mut(),
        multipliers: none.cast(),
        bias: none.cast(),
        end: none.cast(),
        zero: e.output_zero,
        x: none,
        weights: none,
        inputs,
        next: inputs.wrapping_sub(inputs.wrapping_add(15) & !15) as isize,
    };
    for row in call.rows.begin..call.rows.end {
        fours.turn_to(call, p, row, [0, outputs & !(OUTPUTS - 1)]);
        // SAFETY: `check` proved that vector `row` of input and output lies inside its window, that weights and constants are
        // there for every output, and that the latter are aligned.
        unsafe {
            multiply(&mut fours);
            if outputs % OUTPUTS != 0 {
                // The last four, some of them for the second time.
                fours.turn_to(call, p, row, [outputs.wrapping_sub(OUTPUTS), outputs]);
                multiply(&mut fours);
            }
            if e.clamps() {
                e.clamp(fours.output.wrapping_sub(outputs), outputs);
            }
        }
    }
}

/// Computes outputs, four by four, and goes past them.
///
/// # Safety
///
/// The vector, weights, and constants aligned to 4 bytes can be read, for some fours of outputs, and these can be written.
#[cfg(not(kiln_mve))]
unsafe fn multiply(fours: &mut Fours) {
    while fours.bias != fours.end {
        let mut outputs = [0; OUTPUTS];
        for output in &mut outputs {
            // SAFETY: the constants of an output; elements of the vector, and their weights.
            unsafe {
                let mut sum = fours.bias.read();
                for i in 0..fours.inputs {
                    let product = fours.x.wrapping_add(i).read() as i32 * fours.weights.wrapping_add(i).read() as i32;
                    sum = sum.wrapping_add(product);
                }
                let (multiplier, shift) = (fours.multipliers.read(), fours.shifts.read() as i32);
                *output = crate::mve::finish(sum, multiplier, shift, fours.zero);
            }
            fours.bias = fours.bias.wrapping_add(1);
            fours.multipliers = fours.multipliers.wrapping_add(1);
            fours.shifts = fours.shifts.wrapping_add(1);
            fours.weights = fours.weights.wrapping_add(fours.inputs);
        }
        // SAFETY: four outputs, as the caller promises.
        unsafe { fours.output.cast::<[i8; OUTPUTS]>().write(outputs) };
        fours.output = fours.output.wrapping_add(OUTPUTS);
    }
}

/// As above: 10 instructions for 64 products, 28 for four outputs.
#[cfg(kiln_mve)]
#[inline(always)]
unsafe fn multiply(fours: &mut Fours) {
    // SAFETY: the caller's promise.
    unsafe { assembly::multiply(fours) }
}

#[cfg(kiln_mve)]
mod assembly {
    use core::arch::asm;

    use super::Fours;
    use crate::mve::{extension, narrow, scale};

    /// What is multiplied stays in r11; the elements' number in r12. The loop leaves out the last vectors' lanes beyond them.
    #[inline(never)]
    pub(super) unsafe extern "C" fn multiply(fours: *mut Fours) {
        // SAFETY: the registers that a compiler may want back are pushed and popped; the rest is said below.
        unsafe {
            asm!(
                extension!(),
                "push {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                "mov r11, r0",
                "ldr r12, [r11, #32]",
                "ldrd r1, r3, [r11, #24]",
                "1:",
                "add r5, r3, r12",
                "add r7, r5, r12",
                "add r9, r7, r12",
                "ldr r2, [r11, #12]",
                "ldm r2!, {{r4, r6, r8, r10}}",
                "dlstp.8 lr, r12",
                "2:",
                "vldrb.8 q0, [r1], #16",
                "vldrb.8 q1, [r3], #16",
                "vldrb.8 q2, [r5], #16",
                "vmladava.s8 r4, q0, q1",
                "vldrb.8 q3, [r7], #16",
                "vmladava.s8 r6, q0, q2",
                "vldrb.8 q1, [r9], #16",
                "vmladava.s8 r8, q0, q3",
                "vmladava.s8 r10, q0, q1",
                "letp lr, 2b",
                "vmov q0[2], q0[0], r4, r8",
                "vmov q0[3], q0[1], r6, r10",
                // Shifts in r0, the output in r3, multipliers in r4; where it ends in r6, the zero point in r7.
                "mov r10, r2",
                "ldm r11, {{r0, r2, r4, r5, r6, r7}}",
                "mov r8, #1",
                "vldrw.32 q1, [r4], #16",
                "vldrb.s32 q2, [r0], #4",
                scale!("q0", "q1", "q2", "r8"),
                narrow!("q0", "r7"),
                "vstrb.32 q0, [r2], #4",
                "mov r5, r10",
                "stm r11, {{r0, r2, r4, r5}}",
                "ldr r1, [r11, #24]",
                "ldr r3, [r11, #36]",
                "add r3, r9, r3",
                "cmp r5, r6",
                "bne 1b",
                "pop {{r4, r5, r6, r7, r8, r9, r10, r11}}",
                inout("r0") fours => _,
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
    use kiln_core::DType;
    use kiln_ops::OpError;

    use super::*;
    use crate::fully_connected::host::{channel, finish, parameters, quantization_suits};
    use crate::table::{Direction, Kernel, Operation};
    use crate::workload::Workload;
    use crate::{lag, mve};

    pub(crate) const FULLY_CONNECTED_MVE_S8: Kernel = Kernel {
        number: super::FULLY_CONNECTED_MVE_S8.number(),
        name: "fully_connected_mve_s8",
        row_name: "FULLY_CONNECTED_MVE_S8",
        targets: mve::TARGETS,
        directions: &[Direction::Up],
        applies: |operation| {
            let Some((p, _)) = parameters(operation, DType::I8) else { return false };
            p.weight_zero == 0
                && p.outputs as usize >= OUTPUTS
                && quantization_suits(operation)
                && mve::can_scale(p.outputs, |o| channel(operation, o))
        },
        prepare: |operation, emit| {
            let (p, _) = parameters(operation, DType::I8).ok_or(OpError::TooLarge)?;
            emit.input(0);
            emit.input(1);
            mve::emit_block(emit, p.outputs, |o| channel(operation, o));
            finish(operation, DType::I8, emit)
        },
        lag: |operation, input, _| {
            let (p, rows) = parameters(operation, DType::I8).filter(|_| input == 0)?;
            Some(lag::vectors_in_parts(rows, p.inputs, p.outputs, OUTPUTS as u32))
        },
        portable: super::FULLY_CONNECTED_MVE_S8,
        native: None,
        work: Some(work),
    };

    /// Blocks of sixteen elements times fours of outputs, those, and vectors.
    fn work(operation: &Operation<'_>) -> Option<Workload> {
        const BLOCK: u32 = 16;
        let (p, rows) = parameters(operation, DType::I8)?;
        let outputs = f64::from(rows) * f64::from(p.outputs.div_ceil(OUTPUTS as u32));
        let products = outputs * f64::from(p.inputs.div_ceil(BLOCK));
        Some(Workload { products, outputs, vectors: f64::from(rows), ..Workload::default() })
    }
}
