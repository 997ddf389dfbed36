//! 2-D convolution with any groups, strides, dilations and padding.
//!
//! Windows: image, weights `[O, KH, KW, I / groups]` as they are, constants of the output channels
//! (int8: bias, multipliers, shifts; float32: the bias, or an empty window); then the output image. A
//! row is one output image row; images of a batch follow one another. Walking up, pixels go in raster
//! order and channels ascend; walking down, both are reversed. An output element is written as soon
//! as its sum is complete.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::arithmetic::{Arithmetic, Epilogue, F32, S8, dot, pad};
use crate::spatial::Spatial;

/// The parameters of [`CONV2D_S8`], [`CONV2D_F32`] and the depthwise rows, 112 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Conv2dParameters {
    /// Geometry.
    pub spatial: Spatial,
    /// Groups.
    pub groups: u32,
    /// Input channels of a group.
    pub group_inputs: u32,
    /// Output channels of a group.
    pub group_outputs: u32,
    /// From sums to outputs.
    pub epilogue: Epilogue,
}

/// int8 convolution.
pub const CONV2D_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(1, 1, 0, check::<S8>, run::<S8>) };
/// float32 convolution.
pub const CONV2D_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(32, 4, 0, check::<F32>, run::<F32>) };

/// Whether geometry, groups, weights (`O * KH * KW * I / groups` elements in any order) and constants
/// fit their windows.
pub(crate) fn check<A: Arithmetic>(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return false };
    let s = &p.spatial;
    let outputs = s.output.channels;
    let weights = (outputs as usize)
        .checked_mul(s.kernel[0] as usize)
        .and_then(|n| n.checked_mul(s.kernel[1] as usize))
        .and_then(|n| n.checked_mul(p.group_inputs as usize));
    s.check(call, A::SIZE)
        && p.groups as u64 * p.group_inputs as u64 == s.input.channels as u64
        && p.groups as u64 * p.group_outputs as u64 == outputs as u64
        && weights.is_some_and(|n| call.input(1).holds(n, A::SIZE as usize))
        && A::holds(call.input(2), outputs)
}

unsafe fn run<A: Arithmetic>(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let arithmetic = A::new(call.input(2), p.spatial.output.channels, &p.epilogue);
    let weights = call.input(1).ptr.cast::<A::Element>().cast_const();
    let size = A::SIZE as usize;
    let depth = p.group_inputs as usize;
    let (groups, group_outputs) = (p.groups as usize, p.group_outputs as usize);
    let filter = (p.spatial.kernel[0] as usize).wrapping_mul(p.spatial.kernel[1] as usize).wrapping_mul(depth);
    let (down, right) = p.spatial.tap_steps();
    // Where taps follow one another without a gap, all of a window row is one run.
    let dense = right == depth.wrapping_mul(size);
    p.spatial.for_each_pixel(call, |pixel| {
        let taps = pixel.columns.end.wrapping_sub(pixel.columns.first) as usize;
        let (runs, length) = if dense { (1, taps.wrapping_mul(depth)) } else { (taps, depth) };
        let before = (pixel.columns.first as usize).wrapping_mul(depth);
        let after = (p.spatial.kernel[1].wrapping_sub(pixel.columns.end) as usize).wrapping_mul(depth);
        let whole = (p.spatial.kernel[1] as usize).wrapping_mul(depth);
        for group in 0..groups {
            let group = call.direction.pick(group, groups);
            let input = pixel.input.wrapping_add(group.wrapping_mul(depth.wrapping_mul(size)));
            for o in 0..group_outputs {
                let o = group.wrapping_mul(group_outputs).wrapping_add(call.direction.pick(o, group_outputs));
                let mut w = weights.wrapping_add(o.wrapping_mul(filter));
                // SAFETY: `check` proved that `o` stays below the output's channels, that the
                // weights have `whole` elements for each of them and each kernel row, and that
                // taps `first..end` of the rows and columns of a window lie inside the input.
                unsafe {
                    let mut sum = arithmetic.start(o);
                    let mut line = input;
                    for ky in 0..p.spatial.kernel[0] {
                        if ky < pixel.rows.first || ky >= pixel.rows.end {
                            sum = pad(&arithmetic, sum, w, 1, whole);
                            w = w.wrapping_add(whole);
                            continue;
                        }
                        sum = pad(&arithmetic, sum, w, 1, before);
                        w = w.wrapping_add(before);
                        let mut x = line;
                        for _ in 0..runs {
                            sum = dot::<A>(sum, x.cast(), 1, w, 1, length);
                            x = x.wrapping_add(right);
                            w = w.wrapping_add(length);
                        }
                        sum = pad(&arithmetic, sum, w, 1, after);
                        w = w.wrapping_add(after);
                        line = line.wrapping_add(down);
                    }
                    pixel.output.cast::<A::Element>().wrapping_add(o).write(arithmetic.finish(sum, o));
                }
            }
        }
    });
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;
    use kiln_ops::{Conv2d, Op, OpError, channel_multiplier};

    use super::*;
    use crate::table::{Direction, Emit, Kernel, Operation};
    use crate::{lag, lowering};

    pub(crate) const CONV2D_S8: Kernel = Kernel {
        number: super::CONV2D_S8.number(),
        name: "conv2d_s8",
        row_name: "CONV2D_S8",
        targets: &[],
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| parameters(operation, DType::I8).is_some() && quantization_suits(operation),
        prepare: |operation, emit| {
            emit.input(0);
            emit.input(1);
            prepare_block(operation, emit)?;
            finish(operation, DType::I8, emit)
        },
        lag: |operation, input, direction| lag_of(operation, DType::I8, input, direction),
        portable: super::CONV2D_S8,
        native: None,
        work: None,
    };

    pub(crate) const CONV2D_F32: Kernel = Kernel {
        number: super::CONV2D_F32.number(),
        name: "conv2d_f32",
        row_name: "CONV2D_F32",
        targets: &[],
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| parameters(operation, DType::F32).is_some(),
        prepare: |operation, emit| {
            for index in 0..operation.inputs.len() {
                emit.input(index);
            }
            finish(operation, DType::F32, emit)
        },
        lag: |operation, input, direction| lag_of(operation, DType::F32, input, direction),
        portable: super::CONV2D_F32,
        native: None,
        work: None,
    };

    /// The parameters of a convolution of `dtype`, if it is one.
    pub(crate) fn parameters(operation: &Operation<'_>, dtype: DType) -> Option<(Conv2d, Conv2dParameters)> {
        let Op::Conv2d(op) = operation.op else { return None };
        if !lowering::is_sound(operation, dtype) {
            return None;
        }
        let (x, w) = (operation.inputs.first()?, operation.inputs.get(1)?);
        let spatial = lowering::spatial(&x.ty, &operation.output.ty, &op.window(&w.ty))?;
        lowering::image_rows(&operation.output.ty)?;
        let parameters = Conv2dParameters {
            spatial,
            groups: op.groups,
            group_inputs: w.ty.shape.last(),
            group_outputs: w.ty.shape.dim(0) / op.groups,
            epilogue: lowering::epilogue(op.activation, &x.quant, &operation.output),
        };
        Some((op, parameters))
    }

    /// One scale for image and output, one or one a channel for constant weights, whose zero points
    /// are 0.
    pub(crate) fn quantization_suits(operation: &Operation<'_>) -> bool {
        let [x, w, bias @ ..] = operation.inputs else { return false };
        let outputs = w.ty.shape.dim(0) as usize;
        let per_channel = w.quant.scales.len() == outputs && w.quant.axis == 0;
        lowering::per_tensor(&x.quant)
            && lowering::per_tensor(&operation.output.quant)
            && (w.quant.scales.len() == 1 || per_channel)
            && w.quant.zero_points.iter().all(|&zero| zero == 0)
            && w.data.is_some()
            && bias.iter().all(|b| b.data.is_some())
    }

    /// What output channel `o` starts from, its multiplier and its shift. The weights are constant.
    pub(crate) fn channel(operation: &Operation<'_>, o: usize) -> (i32, i32, i32) {
        let [x, w, bias @ ..] = operation.inputs else { return (0, 0, 0) };
        let data = w.data.unwrap_or(&[]);
        let each = data.len().checked_div(w.ty.shape.dim(0) as usize).unwrap_or(0);
        let weights = data.get(o * each..(o + 1) * each).unwrap_or(&[]);
        let start = lowering::folded_bias(bias.first(), o, x.quant.zero_point(0), weights, 0);
        let (multiplier, shift) = channel_multiplier(&x.quant, &w.quant, &operation.output.quant, o);
        (start, multiplier, shift)
    }

    /// Emits the constants of the output channels.
    pub(crate) fn prepare_block(operation: &Operation<'_>, emit: &mut dyn Emit) -> Result<(), OpError> {
        let [_, w, ..] = operation.inputs else {
            return Err(OpError::Inputs(2, 3, operation.inputs.len()));
        };
        if w.data.is_none() {
            return Err(OpError::Quantization("int8 weights must be constant"));
        }
        lowering::emit_block(emit, w.ty.shape.dim(0), |o| channel(operation, o));
        Ok(())
    }

    /// Emits parameters and rows.
    pub(crate) fn finish(operation: &Operation<'_>, dtype: DType, emit: &mut dyn Emit) -> Result<(), OpError> {
        let (_, parameters) = parameters(operation, dtype).ok_or(OpError::TooLarge)?;
        emit.parameters(parameters.as_bytes());
        emit.rows(lowering::image_rows(&operation.output.ty).ok_or(OpError::TooLarge)?);
        Ok(())
    }

    /// The lag of the image; the weights are read to the end.
    pub(crate) fn lag_of(operation: &Operation<'_>, dtype: DType, input: usize, direction: Direction) -> Option<u64> {
        let (_, p) = parameters(operation, dtype).filter(|_| input == 0)?;
        let images = operation.output.ty.shape.dim(0);
        let groups = [p.groups, p.group_inputs, p.group_outputs];
        Some(lag::windows(&p.spatial, images, groups, dtype.bits() / 8, direction))
    }
}
