//! From operations to parameters and constants: what the kernels' host sides share.

use kiln_core::{DType, MAX_OPERANDS, TensorType};
use kiln_ops::{Activation, OpError, QuantRef, Window2d};
use zerocopy::{Immutable, IntoBytes};

use crate::arithmetic::Epilogue;
use crate::spatial::{Image, Spatial};
use crate::table::{Emit, Operand, Operation};

/// Bytes of a channel in the block "bias, multipliers, shifts".
pub(crate) const BLOCK_BYTES: usize = 9;
/// What reports call that block.
pub(crate) const BLOCK_LABEL: &str = "bias, multipliers, shifts";

/// Whether the operator's own rule holds, no operand is empty, and constants have the bytes their types say.
pub(crate) fn is_consistent(operation: &Operation<'_>) -> bool {
    let mut types = [operation.output.ty; MAX_OPERANDS];
    let Some(given) = types.get_mut(..operation.inputs.len()) else { return false };
    for (ty, operand) in given.iter_mut().zip(operation.inputs) {
        *ty = operand.ty;
        let bytes = operand.ty.bytes();
        if bytes == Some(0) || operand.data.is_some_and(|d| bytes != Some(d.len() as u64)) {
            return false;
        }
    }
    operation.output.ty.bytes().is_some_and(|b| b > 0) && operation.op.output(given) == Ok(operation.output.ty)
}

/// Whether an operation is consistent, and its first input and its output are `dtype`.
pub(crate) fn is_sound(operation: &Operation<'_>, dtype: DType) -> bool {
    operation.output.ty.dtype == dtype
        && operation.inputs.first().is_some_and(|x| x.ty.dtype == dtype)
        && is_consistent(operation)
}

/// Emits what most kernels take: the first `inputs` inputs as they lie, parameters, and rows.
pub(crate) fn emit_call<P: IntoBytes + Immutable>(
    emit: &mut dyn Emit,
    inputs: usize,
    call: Option<(P, u32)>,
) -> Result<(), OpError> {
    let (parameters, rows) = call.ok_or(OpError::TooLarge)?;
    for input in 0..inputs {
        emit.input(input);
    }
    emit.parameters(parameters.as_bytes());
    emit.rows(rows);
    Ok(())
}

/// The elements of a vector along the innermost dimension and the number of vectors, of a sound operation
/// whose output has its input's shape.
pub(crate) fn vectors(operation: &Operation<'_>, dtype: DType) -> Option<(u32, u32)> {
    if !is_sound(operation, dtype) {
        return None;
    }
    let shape = &operation.output.ty.shape;
    shape.last().checked_mul(dtype.bits() / 8)?;
    Some((shape.last(), u32::try_from(shape.outer()?).ok()?))
}

/// Four dimensions.
pub(crate) fn nhwc(ty: &TensorType) -> Option<[u32; 4]> {
    ty.shape.dims().try_into().ok()
}

/// The dense image of a tensor.
fn image(ty: &TensorType) -> Option<Image> {
    let [_, height, width, channels] = nhwc(ty)?;
    let pixel_pitch = channels.checked_mul(ty.dtype.bits() / 8)?;
    let row_pitch = pixel_pitch.checked_mul(width)?;
    let image_pitch = row_pitch.checked_mul(height)?;
    Some(Image { height, width, channels, image_pitch, row_pitch, pixel_pitch })
}

/// The geometry of a window over dense images.
pub(crate) fn spatial(input: &TensorType, output: &TensorType, window: &Window2d) -> Option<Spatial> {
    let spatial = Spatial {
        input: image(input)?,
        output: image(output)?,
        kernel: window.kernel,
        strides: window.strides,
        dilations: window.dilations,
        pads: [window.pads[0], window.pads[1]],
        ring_rows: 0,
    };
    let sound = spatial.axis_is_sound(0, spatial.input.height, spatial.output.height)
        && spatial.axis_is_sound(1, spatial.input.width, spatial.output.width);
    sound.then_some(spatial)
}

/// How many image rows a tensor has: one row of every image of the batch.
pub(crate) fn image_rows(output: &TensorType) -> Option<u32> {
    let [n, h, _, _] = nhwc(output)?;
    n.checked_mul(h)
}

/// One scale.
pub(crate) fn per_tensor(quant: &QuantRef<'_>) -> bool {
    quant.scales.len() == 1 && quant.zero_points.len() <= 1
}

/// Zero points and bounds for a dtype.
pub(crate) fn epilogue(activation: Activation, input: &QuantRef<'_>, output: &Operand<'_>) -> Epilogue {
    if output.ty.dtype == DType::I8 {
        let output_zero = output.quant.zero_point(0);
        let (low, high) = activation.quantized_bounds(output.quant.scale(0), output_zero, -128, 127);
        Epilogue { input_zero: input.zero_point(0), output_zero, low, high }
    } else {
        let (low, high) = activation.bounds();
        Epilogue { input_zero: 0, output_zero: 0, low: low.to_bits() as i32, high: high.to_bits() as i32 }
    }
}

/// Emits the block of `channels` channels, for each the bias, the multiplier and the shift.
pub(crate) fn emit_block(emit: &mut dyn Emit, channels: u32, channel: impl Fn(usize) -> (i32, i32, i32)) {
    let n = channels as usize;
    emit.constant(BLOCK_LABEL, n * BLOCK_BYTES, &mut |block| {
        let (bias, rest) = block.split_at_mut(4 * n);
        let (multipliers, shifts) = rest.split_at_mut(4 * n);
        let words = bias.chunks_exact_mut(4).zip(multipliers.chunks_exact_mut(4));
        for (o, ((bias, multiplier), shift)) in words.zip(shifts).enumerate() {
            let (b, m, s) = channel(o);
            bias.copy_from_slice(&b.to_le_bytes());
            multiplier.copy_from_slice(&m.to_le_bytes());
            // `quantize_multiplier` keeps shifts within -31 ..= 30.
            *shift = s as i8 as u8;
        }
    });
}

/// A bias with the input's zero point folded in: what the sum starts from when taps are multiplied as
/// they lie. `weights` are the channel's own.
pub(crate) fn folded_bias(
    bias: Option<&Operand<'_>>,
    o: usize,
    input_zero: i32,
    weights: &[u8],
    weight_zero: i32,
) -> i32 {
    let bias = bias.and_then(|b| b.data?.get(4 * o..4 * o + 4)?.try_into().ok()).map_or(0, i32::from_le_bytes);
    weights.iter().fold(bias, |sum, &w| {
        let weight = (w as i8 as i32).wrapping_sub(weight_zero);
        sum.wrapping_sub(input_zero.wrapping_mul(weight))
    })
}
