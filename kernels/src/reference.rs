//! Operators' references as rows: what runs where no kernel is made for an operation.
//!
//! Windows: the operator's inputs; then the output. There is one row, the whole output. Slow, plain, and linked
//! only by plans that use it; the output overlaps nothing.
//!
//! Parameters are words: how many inputs; the operator's attributes ([`kiln_ops::Words`]); then for each input and
//! for the output its dtype, rank and eight dimensions, the axis of its quantization, how many scales, how many zero
//! points, the scales, the zero points.

use kiln_core::zerocopy::{FromBytes, IntoBytes};
use kiln_core::{Call, DType, MAX_OPERANDS, Row, Shape, TensorType, Window};
use kiln_ops::{Arg, ArgMut, Coded, Op, QuantRef, Reader, Words};

/// The first number of these rows; the opcode is added.
const FIRST: u16 = 0x8000;

/// The most taps of a pool's window, which no tensor bounds.
const MOST_TAPS: u64 = 1 << 16;

/// An operand as the parameters have it.
#[derive(Clone, Copy)]
struct Operand<'a> {
    ty: TensorType,
    quant: QuantRef<'a>,
}

impl<'a> Operand<'a> {
    const NONE: Operand<'static> = Operand {
        ty: TensorType::new(DType::U8, Shape::SCALAR),
        quant: QuantRef { scales: &[], zero_points: &[], axis: 0 },
    };

    fn read(from: &mut Reader<'a>) -> Option<Operand<'a>> {
        let ty = TensorType::read(from)?;
        let [axis, scales, zero_points] = <[u32; 3]>::read(from)?;
        let scales = <[f32]>::ref_from_bytes(from.take(scales as usize)?.as_bytes()).ok()?;
        let zero_points = <[i32]>::ref_from_bytes(from.take(zero_points as usize)?.as_bytes()).ok()?;
        Some(Operand { ty, quant: QuantRef { scales, zero_points, axis: axis as usize } })
    }

    /// Its bytes, if there are some, which bounds every dimension, and `window` holds them.
    fn bytes(&self, window: Window) -> Option<usize> {
        self.ty.bytes().filter(|&bytes| bytes > 0 && bytes <= window.len as u64).map(|bytes| bytes as usize)
    }
}

/// An operation as the parameters have it.
struct Operation<'a, O> {
    op: O,
    inputs: [Operand<'a>; MAX_OPERANDS],
    count: usize,
    output: Operand<'a>,
}

impl<'a, O: Coded> Operation<'a, O> {
    fn read(call: &Call<'a>) -> Option<Operation<'a, O>> {
        let mut from = Reader::new(call.parameters::<[u32]>()?);
        let count = from.word()? as usize;
        let op = O::read(&mut from)?;
        let mut inputs = [Operand::NONE; MAX_OPERANDS];
        for input in inputs.get_mut(..count)? {
            *input = Operand::read(&mut from)?;
        }
        let output = Operand::read(&mut from)?;
        from.is_done().then_some(Operation { op, inputs, count, output })
    }
}

/// Whether no byte lies in both windows.
fn apart(a: Window, b: Window) -> bool {
    let (a, b) = ((a.ptr.addr(), a.len), (b.ptr.addr(), b.len));
    a.0.saturating_add(a.1) <= b.0 || b.0.saturating_add(b.1) <= a.0
}

/// The taps of an operator's window that its tensors do not bound.
fn taps(op: Op) -> u64 {
    let [height, width] = match op {
        Op::Pool2d(pool) => pool.kernel,
        Op::AveragePool2dGrad(grad) => grad.pool.kernel,
        Op::MaxPool2dGrad(grad) => grad.pool.kernel,
        Op::MaxPool2dPick(pick) => pick.pool.kernel,
        _ => [1, 1],
    };
    height as u64 * width as u64
}

fn check<O: Coded>(call: &Call<'_>) -> bool {
    let Some(operation) = Operation::<O>::read(call) else { return false };
    let mut types = [operation.output.ty; MAX_OPERANDS];
    let Some(types) = types.get_mut(..operation.count) else { return false };
    for (ty, input) in types.iter_mut().zip(&operation.inputs) {
        *ty = input.ty;
    }
    let output = call.output(0);
    let holds =
        |(i, input): (usize, &Operand<'_>)| input.bytes(call.input(i)).is_some() && apart(call.input(i), output);
    call.rows.end <= 1
        && operation.output.bytes(output).is_some()
        && operation.inputs.iter().take(operation.count).enumerate().all(holds)
        && taps(operation.op.into()) <= MOST_TAPS
        && operation.op.output(types) == Ok(operation.output.ty)
}

unsafe fn run<O: Coded>(call: &Call<'_>) {
    let Some(operation) = Operation::<O>::read(call) else { return };
    if call.rows.begin >= call.rows.end {
        return;
    }
    let empty = Arg { ty: Operand::NONE.ty, quant: Operand::NONE.quant, data: &[] };
    let mut args = [empty; MAX_OPERANDS];
    for (i, (arg, input)) in args.iter_mut().zip(&operation.inputs).take(operation.count).enumerate() {
        let window = call.input(i);
        let Some(bytes) = input.bytes(window) else { return };
        // SAFETY: `check` proved that the bytes lie inside the window and none of them in the output's, so
        // nothing writes to them while this refers to them.
        let data = unsafe { core::slice::from_raw_parts(window.ptr.cast_const(), bytes) };
        *arg = Arg { ty: input.ty, quant: input.quant, data };
    }
    let Some(args) = args.get(..operation.count) else { return };
    let Some(bytes) = operation.output.bytes(call.output(0)) else { return };
    // SAFETY: as above; nothing else refers to the output's bytes.
    let data = unsafe { core::slice::from_raw_parts_mut(call.output(0).ptr, bytes) };
    let mut output = ArgMut { ty: operation.output.ty, quant: operation.output.quant, data };
    // What a reference refuses beyond the operator's rule (quantization, a broken program), planning has asked
    // it; in another plan the output keeps what it held.
    let _ = operation.op.reference(args, &mut output);
}

/// Makes the rows public and, on hosts, the list of their table entries.
macro_rules! references {
    ($($row:ident => $op:ident, $name:literal;)*) => {
        /// The rows, named after their operators.
        pub mod rows {
            use super::*;

            $(
                #[doc = concat!("The reference of `", stringify!($op), "`.")]
                pub const $row: Row =
                    // SAFETY: `check` proves that every operand's bytes lie inside its window and the output's in none
                    // of the inputs'; the reference itself is safe code over slices of them.
                    unsafe { Row::new(FIRST + <kiln_ops::$op as Coded>::CODE, 1, 0, check::<kiln_ops::$op>, run::<kiln_ops::$op>) };
            )*
        }

        /// Their table entries.
        #[cfg(feature = "host")]
        pub(crate) const ALL: &[crate::table::Kernel] = &[$(
            crate::table::Kernel {
                number: rows::$row.number(),
                name: concat!("reference: ", $name),
                row_name: concat!("reference::", stringify!($row)),
                targets: &[],
                directions: &[crate::table::Direction::Up],
                applies: host::applies::<kiln_ops::$op>,
                prepare: host::prepare::<kiln_ops::$op>,
                lag: |_, _, _| None,
                portable: rows::$row,
                native: None,
                work: None,
            },
        )*];
    };
}

references! {
    CONV2D => Conv2d, "conv2d";
    FULLY_CONNECTED => FullyConnected, "fully_connected";
    POOL2D => Pool2d, "pool2d";
    SOFTMAX => Softmax, "softmax";
    COPY => Copy, "copy";
    TRANSPOSE => Transpose, "transpose";
    QUANTIZE => Quantize, "quantize";
    DEQUANTIZE => Dequantize, "dequantize";
    LOG_SOFTMAX => LogSoftmax, "log_softmax";
    MATMUL => MatMul, "matmul";
    REDUCE => Reduce, "reduce";
    ARG_MAX => ArgMax, "arg_max";
    EXPAND => Expand, "expand";
    SLICE => Slice, "slice";
    SCATTER => Scatter, "scatter";
    CONCAT => Concat, "concat";
    CAST => Cast, "cast";
    RANDOM => Random, "random";
    CONV2D_INPUT_GRAD => Conv2dInputGrad, "conv2d_input_grad";
    CONV2D_WEIGHT_GRAD => Conv2dWeightGrad, "conv2d_weight_grad";
    AVERAGE_POOL2D_GRAD => AveragePool2dGrad, "average_pool2d_grad";
    MAX_POOL2D_GRAD => MaxPool2dGrad, "max_pool2d_grad";
    MAX_POOL2D_PICK => MaxPool2dPick, "max_pool2d_pick";
    AVERAGE_POOL2D_PART => AveragePool2dPart, "average_pool2d_part";
    ADD => Add, "add";
    MAP => Map, "map";
    FUSED => Fused, "fused";
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
mod host {
    use kiln_ops::{OpError, Writer};

    use super::*;
    use crate::lowering;
    use crate::table::{self, Emit};

    /// The most words that a step's parameters have.
    const MOST: usize = u16::MAX as usize / 4;

    /// The parameters as they grow.
    struct Buffer {
        words: [u32; MOST],
        used: usize,
    }

    impl Writer for Buffer {
        fn word(&mut self, word: u32) {
            if let Some(place) = self.words.get_mut(self.used) {
                *place = word;
            }
            self.used += 1;
        }
    }

    /// How many words an operand takes beyond what its type has, which is below 16.
    fn quantization(operand: &table::Operand<'_>) -> usize {
        operand.quant.scales.len() + operand.quant.zero_points.len()
    }

    /// Whether the reference computes what the operator means, which of quantized arithmetic it does not check
    /// in full: one scale for each int8 tensor; for weights also one for each output channel, and no zero point.
    fn is_quantized_as_it_should(operation: &table::Operation<'_>) -> bool {
        let int8 = |o: &&table::Operand<'_>| o.ty.dtype == DType::I8;
        let plain = |o: &table::Operand<'_>| lowering::per_tensor(&o.quant);
        let all = operation.inputs.iter().chain([&operation.output]);
        match operation.op {
            Op::Conv2d(_) | Op::FullyConnected(_) => {
                let mut others = operation.inputs.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, o)| o);
                let weights = operation.inputs.get(1).filter(int8).is_none_or(|w| {
                    let scales = w.quant.scales.len() as u64;
                    let channels = w.ty.shape.dim(0) as u64;
                    (scales == 1 || scales == channels) && w.quant.zero_points.iter().all(|&zero| zero == 0)
                });
                weights && others.by_ref().chain([&operation.output]).filter(int8).all(plain)
            }
            Op::Add(_) | Op::Quantize(_) => all.filter(int8).all(plain),
            // Every case that has a meaning in int8 has a kernel.
            Op::Pool2d(_) | Op::AveragePool2dPart(_) | Op::Softmax(_) | Op::LogSoftmax(_) => {
                all.filter(int8).count() == 0
            }
            _ => true,
        }
    }

    /// Whether the reference refuses nothing: asked for an output of the same rank without elements, where only
    /// what it checks before it computes is left.
    fn accepts<O: Coded>(op: O, operation: &table::Operation<'_>) -> bool {
        let mut args = [Arg { ty: operation.output.ty, quant: QuantRef::default(), data: &[] }; MAX_OPERANDS];
        let Some(args) = args.get_mut(..operation.inputs.len()) else { return false };
        for (arg, input) in args.iter_mut().zip(operation.inputs) {
            *arg = Arg { ty: input.ty, quant: input.quant, data: input.data.unwrap_or(&[]) };
        }
        let y = &operation.output;
        let none = [0u32; kiln_core::MAX_RANK];
        let shape = none.get(..y.ty.shape.rank()).and_then(|dims| Shape::new(dims).ok()).unwrap_or(Shape::SCALAR);
        let ty = TensorType::new(y.ty.dtype, shape);
        op.reference(args, &mut ArgMut { ty, quant: y.quant, data: &mut [] }).is_ok()
    }

    pub(super) fn applies<O: Coded>(operation: &table::Operation<'_>) -> bool {
        let Ok(op) = O::try_from(operation.op) else { return false };
        let operands = operation.inputs.iter().chain([&operation.output]);
        let words = operands.map(|o| 16 + quantization(o)).fold(64, usize::saturating_add);
        words <= MOST
            && taps(operation.op) <= MOST_TAPS
            && lowering::is_consistent(operation)
            && is_quantized_as_it_should(operation)
            && accepts(op, operation)
    }

    pub(super) fn prepare<O: Coded>(operation: &table::Operation<'_>, emit: &mut dyn Emit) -> Result<(), OpError> {
        let Ok(op) = O::try_from(operation.op) else { return Err(OpError::TooLarge) };
        let mut buffer = Buffer { words: [0; MOST], used: 0 };
        buffer.word(operation.inputs.len() as u32);
        op.write(&mut buffer);
        for operand in operation.inputs.iter().chain([&operation.output]) {
            let QuantRef { scales, zero_points, axis } = operand.quant;
            operand.ty.write(&mut buffer);
            [axis as u32, scales.len() as u32, zero_points.len() as u32].write(&mut buffer);
            scales.iter().for_each(|scale| scale.write(&mut buffer));
            zero_points.iter().for_each(|&zero| buffer.word(zero as u32));
        }
        let words = buffer.words.get(..buffer.used).ok_or(OpError::TooLarge)?;
        (0..operation.inputs.len()).for_each(|input| emit.input(input));
        emit.parameters(words.as_bytes());
        emit.rows(1);
        Ok(())
    }
}
