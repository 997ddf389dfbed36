//! Depthwise convolution: each input channel alone makes `group_outputs` output channels.
//!
//! Windows, parameters and check as for convolution, but the weights are packed `[KH, KW, O]`. The walk is the same
//! too: raster order, channels ascending, or both reversed; one output element written when its sum
//! is complete.

use kiln_core::{Call, Row};

use crate::arithmetic::{Arithmetic, F32, S8, dot, pad};
use crate::conv2d::{Conv2dParameters, check};

/// int8 depthwise convolution.
pub const DEPTHWISE_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(2, 1, 0, check::<S8>, run::<S8>) };
/// float32 depthwise convolution.
pub const DEPTHWISE_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(33, 4, 0, check::<F32>, run::<F32>) };

unsafe fn run<A: Arithmetic>(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let arithmetic = A::new(call.input(2), p.spatial.output.channels, &p.epilogue);
    let weights = call.input(1).ptr.cast::<A::Element>().cast_const();
    let outputs = p.spatial.output.channels as usize;
    let (groups, group_outputs) = (p.groups as usize, p.group_outputs as usize);
    let (down, right) = p.spatial.tap_steps();
    let step = right.checked_div(A::SIZE as usize).unwrap_or(0);
    p.spatial.for_each_pixel(call, |pixel| {
        let before = pixel.columns.first as usize;
        let taps = pixel.columns.end.wrapping_sub(pixel.columns.first) as usize;
        let after = p.spatial.kernel[1].wrapping_sub(pixel.columns.end) as usize;
        let whole = p.spatial.kernel[1] as usize;
        for group in 0..groups {
            let group = call.direction.pick(group, groups);
            let input = pixel.input.wrapping_add(group.wrapping_mul(A::SIZE as usize));
            for o in 0..group_outputs {
                let o = group.wrapping_mul(group_outputs).wrapping_add(call.direction.pick(o, group_outputs));
                let mut w = weights.wrapping_add(o);
                // SAFETY: `check` proved that `o` stays below the output's channels, that the
                // weights have one element for each of them and each tap, and that taps
                // `first..end` of the rows and columns of a window lie inside the input.
                unsafe {
                    let mut sum = arithmetic.start(o);
                    let mut line = input;
                    for ky in 0..p.spatial.kernel[0] {
                        if ky < pixel.rows.first || ky >= pixel.rows.end {
                            sum = pad(&arithmetic, sum, w, outputs, whole);
                            w = w.wrapping_add(whole.wrapping_mul(outputs));
                            continue;
                        }
                        sum = pad(&arithmetic, sum, w, outputs, before);
                        w = w.wrapping_add(before.wrapping_mul(outputs));
                        sum = dot::<A>(sum, line.cast(), step, w, outputs, taps);
                        w = w.wrapping_add(taps.wrapping_mul(outputs));
                        sum = pad(&arithmetic, sum, w, outputs, after);
                        w = w.wrapping_add(after.wrapping_mul(outputs));
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
    use kiln_ops::OpError;

    use crate::conv2d::host::{finish, lag_of, parameters, prepare_block, quantization_suits};
    use crate::table::{Direction, Emit, Kernel, Operation};

    pub(crate) const DEPTHWISE_S8: Kernel = Kernel {
        number: super::DEPTHWISE_S8.number(),
        name: "depthwise_s8",
        row_name: "DEPTHWISE_S8",
        targets: &[],
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| applies(operation, DType::I8) && quantization_suits(operation),
        prepare: |operation, emit| {
            emit.input(0);
            pack(operation, 1, emit)?;
            prepare_block(operation, emit)?;
            finish(operation, DType::I8, emit)
        },
        lag: |operation, input, direction| lag_of(operation, DType::I8, input, direction),
        portable: super::DEPTHWISE_S8,
        native: None,
        work: None,
    };

    pub(crate) const DEPTHWISE_F32: Kernel = Kernel {
        number: super::DEPTHWISE_F32.number(),
        name: "depthwise_f32",
        row_name: "DEPTHWISE_F32",
        targets: &[],
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| applies(operation, DType::F32),
        prepare: |operation, emit| {
            emit.input(0);
            pack(operation, 4, emit)?;
            if operation.inputs.len() > 2 {
                emit.input(2);
            }
            finish(operation, DType::F32, emit)
        },
        lag: |operation, input, direction| lag_of(operation, DType::F32, input, direction),
        portable: super::DEPTHWISE_F32,
        native: None,
        work: None,
    };

    /// One input channel a group, and weights that can be packed now.
    fn applies(operation: &Operation<'_>, dtype: DType) -> bool {
        parameters(operation, dtype).is_some_and(|(_, p)| p.group_inputs == 1)
            && operation.inputs.get(1).is_some_and(|w| w.data.is_some())
    }

    /// Emits the weights as `[KH, KW, O]`.
    fn pack(operation: &Operation<'_>, size: usize, emit: &mut dyn Emit) -> Result<(), OpError> {
        let w = operation.inputs.get(1).ok_or(OpError::Inputs(2, 3, operation.inputs.len()))?;
        let data = w.data.ok_or(OpError::Quantization("depthwise weights must be constant"))?;
        let outputs = w.ty.shape.dim(0) as usize;
        let taps = (data.len() / size).checked_div(outputs).unwrap_or(0);
        emit.constant("weights", data.len(), &mut |packed| {
            for (i, to) in packed.chunks_exact_mut(size).enumerate() {
                let from = (i % outputs * taps + i / outputs) * size;
                to.copy_from_slice(data.get(from..from + size).unwrap_or(&[0; 4][..size]));
            }
        });
        Ok(())
    }
}
