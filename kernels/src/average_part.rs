//! The average of an image, some rows at a time.
//!
//! Windows: the rows of an image; the sums above them, but for the first rows; then the sums of both, or the average. A row of the call is
//! an image. Channels ascend: of each, the sum above and then every pixel is read before its output is written.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::arithmetic::Epilogue;
use crate::pool2d::{AverageF32, AverageS8, Reduce};
use crate::vectors;

/// The parameters of partial averages, 36 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AveragePartParameters {
    /// Elements of a pixel.
    pub channels: u32,
    /// Pixels of these rows, which lie behind one another.
    pub pixels: u32,
    /// Pixels of all rows.
    pub taps: u32,
    /// Whether there are sums above: 0 or 1.
    pub above: u32,
    /// Whether the average is computed: 0 or 1.
    pub last: u32,
    /// The bounds; zero points are not read.
    pub epilogue: Epilogue,
}

/// int8, with sums of int32.
pub const AVERAGE_PART_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(60, 4, 0, check::<AverageS8>, run::<AverageS8>) };
/// float32.
pub const AVERAGE_PART_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(61, 4, 0, check::<AverageF32>, run::<AverageF32>) };

/// Bytes of a sum, of every kind.
const SUM: u32 = 4;

impl AveragePartParameters {
    fn output_size<R: Reduce>(&self) -> u32 {
        if self.last != 0 { R::SIZE } else { SUM }
    }
}

fn check<R: Reduce>(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<AveragePartParameters>() else { return false };
    let Some(length) = p.pixels.checked_mul(p.channels) else { return false };
    let fits = |window, length: u32, size: u32| {
        let pitch = length.checked_mul(size);
        pitch.is_some_and(|pitch| vectors::fit(window, call.rows.end, length, pitch, size))
    };
    fits(call.input(0), length, R::SIZE)
        && (p.above == 0 || fits(call.input(1), p.channels, SUM))
        && fits(call.output(0), p.channels, p.output_size::<R>())
}

unsafe fn run<R: Reduce>(call: &Call<'_>) {
    let Some(p) = call.parameters::<AveragePartParameters>() else { return };
    let (channels, size) = (p.channels, R::SIZE);
    let pixel = channels.wrapping_mul(size);
    let taps = R::any_taps(p.taps);
    for row in call.rows.begin..call.rows.end {
        let mut first = vectors::start(call.input(0), row, pixel.wrapping_mul(p.pixels));
        let mut above = vectors::start(call.input(1), row, channels.wrapping_mul(SUM)).cast::<R::State>();
        let mut output = vectors::start(call.output(0), row, channels.wrapping_mul(p.output_size::<R>()));
        for _ in 0..channels {
            // SAFETY: `check` proved that there is a sum for each channel, if there are any.
            let mut sum = if p.above != 0 { unsafe { above.read() } } else { R::START };
            let mut x = first;
            for _ in 0..p.pixels {
                // SAFETY: `check` proved that the channels of all pixels lie inside the input.
                sum = R::take(sum, unsafe { x.cast::<R::Element>().read() });
                x = x.wrapping_add(pixel as usize);
            }
            // SAFETY: `check` proved that there is an output for each channel, of the kind that is written.
            unsafe {
                if p.last != 0 {
                    output.cast::<R::Element>().write(R::finish(sum, taps, &p.epilogue));
                } else {
                    output.cast::<R::State>().write(sum);
                }
            }
            first = first.wrapping_add(size as usize);
            above = above.wrapping_add(1);
            output = output.wrapping_add(p.output_size::<R>() as usize);
        }
    }
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;
    use kiln_ops::{Activation, Op};

    use super::*;
    use crate::lowering;
    use crate::table::{Direction, Kernel, Operation};

    /// The kernel of a row.
    macro_rules! part {
        ($row:ident, $name:literal, $dtype:ident) => {
            pub(crate) const $row: Kernel = Kernel {
                number: super::$row.number(),
                name: $name,
                row_name: stringify!($row),
                targets: &[],
                directions: &[Direction::Up],
                applies: |operation| parameters(operation, DType::$dtype).is_some(),
                prepare: |operation, emit| {
                    lowering::emit_call(emit, operation.inputs.len(), parameters(operation, DType::$dtype))
                },
                lag: |operation, input, _| lag(operation, DType::$dtype, input),
                portable: super::$row,
                native: None,
                work: None,
            };
        };
    }

    part!(AVERAGE_PART_S8, "average_part_s8", I8);
    part!(AVERAGE_PART_F32, "average_part_f32", F32);

    /// The parameters, and the number of images.
    fn parameters(operation: &Operation<'_>, dtype: DType) -> Option<(AveragePartParameters, u32)> {
        let Op::AveragePool2dPart(op) = operation.op else { return None };
        let x = operation.inputs.first().filter(|x| x.ty.dtype == dtype)?;
        if !lowering::is_consistent(operation) {
            return None;
        }
        // Only bounds need the scale.
        let bounded = op.last && dtype == DType::I8 && op.activation != Activation::None;
        if bounded && !lowering::per_tensor(&operation.output.quant) {
            return None;
        }
        let [images, height, width, channels] = lowering::nhwc(&x.ty)?;
        // What rows compute distances with.
        x.ty.bytes().filter(|&bytes| bytes <= u64::from(u32::MAX))?;
        channels.checked_mul(SUM)?;
        let parameters = AveragePartParameters {
            channels,
            pixels: height.checked_mul(width)?,
            taps: op.taps,
            above: operation.inputs.len().saturating_sub(1) as u32,
            last: op.last.into(),
            epilogue: lowering::epilogue(op.activation, &x.quant, &operation.output),
        };
        Some((parameters, images))
    }

    /// What must lie between the output and an input: after an output that ends `written` bytes from its first, no input byte is read any more
    /// that lies less than `read` from its first. Both grow evenly with images and with channels, so the first and the last decide.
    fn lag(operation: &Operation<'_>, dtype: DType, input: usize) -> Option<u64> {
        let (p, images) = parameters(operation, dtype)?;
        let channels = i128::from(p.channels);
        let output = i128::from(operation.output.ty.dtype.bits() / 8);
        let [image, element] = match input {
            0 => [i128::from(p.pixels) * channels, 1].map(|n| n * i128::from(dtype.bits() / 8)),
            1 => [channels, 1].map(|n| n * i128::from(SUM)),
            _ => return None,
        };
        let after = |number: i128, channel: i128| {
            let read = number * image + channel * element;
            let written = (number * channels + channel) * output;
            written - read
        };
        let last = i128::from(images) - 1;
        let within = [0, last].into_iter().flat_map(|number| [1, channels - 1].map(|channel| (number, channel)));
        let within = within.filter(|&(_, channel)| (1..channels).contains(&channel));
        let next = [1, last].into_iter().filter(|number| (1..=last).contains(number)).map(|number| (number, 0));
        let most = within.chain(next).map(|(number, channel)| after(number, channel)).max().unwrap_or(0);
        u64::try_from(most.max(0)).ok()
    }
}
