//! Fully connected layers.
//!
//! Windows: vectors, weights `[O, I]` as they are, constants of the outputs (as for convolution); then
//! the output vectors. A row is one vector. Walking up, vectors and outputs ascend; walking down, both
//! are reversed. An output element is written as soon as its sum is complete.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::arithmetic::{Arithmetic, Epilogue, F32, S8, dot};
use crate::vectors;

/// The parameters of [`FULLY_CONNECTED_S8`] and [`FULLY_CONNECTED_F32`], 36 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FullyConnectedParameters {
    /// Elements of an input vector.
    pub inputs: u32,
    /// Elements of an output vector.
    pub outputs: u32,
    /// Bytes from one input vector to the next.
    pub input_pitch: u32,
    /// Bytes from one output vector to the next.
    pub output_pitch: u32,
    /// The weights' zero point, one for all; 0 for float32.
    pub weight_zero: i32,
    /// From sums to outputs; nothing is padded, so `input_zero` is not read.
    pub epilogue: Epilogue,
}

/// int8 fully connected layer.
pub const FULLY_CONNECTED_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(3, 1, 0, check::<S8>, run::<S8>) };
/// float32 fully connected layer.
pub const FULLY_CONNECTED_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(34, 4, 0, check::<F32>, run::<F32>) };

pub(crate) fn check<A: Arithmetic>(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<FullyConnectedParameters>() else { return false };
    let weights = (p.inputs as usize).checked_mul(p.outputs as usize);
    vectors::fit(call.input(0), call.rows.end, p.inputs, p.input_pitch, A::SIZE)
        && vectors::fit(call.output(0), call.rows.end, p.outputs, p.output_pitch, A::SIZE)
        && weights.is_some_and(|n| call.input(1).holds(n, A::SIZE as usize))
        && A::holds(call.input(2), p.outputs)
}

unsafe fn run<A: Arithmetic>(call: &Call<'_>) {
    let Some(p) = call.parameters::<FullyConnectedParameters>() else { return };
    let arithmetic = A::new(call.input(2), p.outputs, &p.epilogue);
    let weights = call.input(1).ptr.cast::<A::Element>().cast_const();
    let (n, outputs) = (p.inputs as usize, p.outputs as usize);
    let count = call.rows.end.saturating_sub(call.rows.begin) as usize;
    for row in 0..count {
        let row = call.rows.begin.wrapping_add(call.direction.pick(row, count) as u32);
        let x = vectors::start(call.input(0), row, p.input_pitch).cast::<A::Element>().cast_const();
        let y = vectors::start(call.output(0), row, p.output_pitch).cast::<A::Element>();
        // SAFETY: `check` proved that vector `row` of input and output lies inside its window, and
        // that weights and constants are there for every output.
        unsafe {
            let offset = A::offset(x, n, p.weight_zero);
            for o in 0..outputs {
                let o = call.direction.pick(o, outputs);
                let w = weights.wrapping_add(o.wrapping_mul(n));
                let sum = dot::<A>(A::plus(arithmetic.start(o), offset), x, 1, w, 1, n);
                y.wrapping_add(o).write(arithmetic.finish(sum, o));
            }
        }
    }
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;
    use kiln_ops::{Op, OpError, output_multiplier};

    use super::*;
    use crate::table::{Direction, Emit, Kernel, Operation};
    use crate::{lag, lowering};

    pub(crate) const FULLY_CONNECTED_S8: Kernel = Kernel {
        number: super::FULLY_CONNECTED_S8.number(),
        name: "fully_connected_s8",
        row_name: "FULLY_CONNECTED_S8",
        targets: &[],
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| parameters(operation, DType::I8).is_some() && quantization_suits(operation),
        prepare: |operation, emit| {
            emit.input(0);
            emit.input(1);
            prepare_block(operation, emit)?;
            finish(operation, DType::I8, emit)
        },
        lag: |operation, input, _| lag_of(operation, DType::I8, input),
        portable: super::FULLY_CONNECTED_S8,
        native: None,
        work: None,
    };

    pub(crate) const FULLY_CONNECTED_F32: Kernel = Kernel {
        number: super::FULLY_CONNECTED_F32.number(),
        name: "fully_connected_f32",
        row_name: "FULLY_CONNECTED_F32",
        targets: &[],
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| parameters(operation, DType::F32).is_some(),
        prepare: |operation, emit| {
            for index in 0..operation.inputs.len() {
                emit.input(index);
            }
            finish(operation, DType::F32, emit)
        },
        lag: |operation, input, _| lag_of(operation, DType::F32, input),
        portable: super::FULLY_CONNECTED_F32,
        native: None,
        work: None,
    };

    /// The parameters and the number of vectors.
    pub(crate) fn parameters(operation: &Operation<'_>, dtype: DType) -> Option<(FullyConnectedParameters, u32)> {
        let Op::FullyConnected(op) = operation.op else { return None };
        if !lowering::is_sound(operation, dtype) {
            return None;
        }
        let (x, w) = (operation.inputs.first()?, operation.inputs.get(1)?);
        let (outputs, inputs) = (w.ty.shape.dim(0), w.ty.shape.dim(1));
        let size = dtype.bits() / 8;
        let parameters = FullyConnectedParameters {
            inputs,
            outputs,
            input_pitch: inputs.checked_mul(size)?,
            output_pitch: outputs.checked_mul(size)?,
            weight_zero: if dtype == DType::I8 { w.quant.zero_point(0) } else { 0 },
            epilogue: lowering::epilogue(op.activation, &x.quant, &operation.output),
        };
        let rows = x.ty.shape.elements()?.checked_div(inputs as u64)?;
        Some((parameters, u32::try_from(rows).ok()?))
    }

    /// The parameters of a float32 layer.
    pub(crate) fn float(operation: &Operation<'_>) -> Option<FullyConnectedParameters> {
        parameters(operation, DType::F32).map(|(p, _)| p)
    }

    /// As for convolution, but weights may have a zero point if it is the same for all.
    pub(crate) fn quantization_suits(operation: &Operation<'_>) -> bool {
        let [x, w, bias @ ..] = operation.inputs else { return false };
        let per_output = w.quant.scales.len() == w.ty.shape.dim(0) as usize && w.quant.axis == 0;
        lowering::per_tensor(&x.quant)
            && lowering::per_tensor(&operation.output.quant)
            && (w.quant.scales.len() == 1 || per_output)
            && w.quant.zero_points.iter().all(|&zero| zero == w.quant.zero_point(0))
            && w.data.is_some()
            && bias.iter().all(|b| b.data.is_some())
    }

    /// What output `o` starts from, its multiplier and its shift. The weights are constant.
    pub(crate) fn channel(operation: &Operation<'_>, o: usize) -> (i32, i32, i32) {
        let [x, w, bias @ ..] = operation.inputs else { return (0, 0, 0) };
        let inputs = w.ty.shape.dim(1) as usize;
        let weights = w.data.and_then(|data| data.get(o * inputs..(o + 1) * inputs)).unwrap_or(&[]);
        let (x_zero, w_zero) = (x.quant.zero_point(0), w.quant.zero_point(0));
        let start = lowering::folded_bias(bias.first(), o, x_zero, weights, w_zero);
        let (multiplier, shift) = output_multiplier(&x.quant, &w.quant, &operation.output.quant, o);
        (start, multiplier, shift)
    }

    fn prepare_block(operation: &Operation<'_>, emit: &mut dyn Emit) -> Result<(), OpError> {
        let [_, w, ..] = operation.inputs else {
            return Err(OpError::Inputs(2, 3, operation.inputs.len()));
        };
        if w.data.is_none() {
            return Err(OpError::Quantization("int8 weights must be constant"));
        }
        lowering::emit_block(emit, w.ty.shape.dim(0), |o| channel(operation, o));
        Ok(())
    }

    pub(crate) fn finish(operation: &Operation<'_>, dtype: DType, emit: &mut dyn Emit) -> Result<(), OpError> {
        let (parameters, rows) = parameters(operation, dtype).ok_or(OpError::TooLarge)?;
        emit.parameters(parameters.as_bytes());
        emit.rows(rows);
        Ok(())
    }

    /// A walk down mirrors the walk up, so both lag the same.
    fn lag_of(operation: &Operation<'_>, dtype: DType, input: usize) -> Option<u64> {
        let (p, rows) = parameters(operation, dtype).filter(|_| input == 0)?;
        Some(lag::vectors(rows, p.input_pitch, p.output_pitch, dtype.bits() / 8))
    }
}
