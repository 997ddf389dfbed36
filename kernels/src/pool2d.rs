//! Average and maximum pools.
//!
//! Windows: image; then the output image. A row is one output image row; images of a batch follow one
//! another. Walking up, pixels go in raster order and channels ascend; walking down, both are reversed.
//! Each output element is written after the taps of its channel were read. Padding takes no part.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::arithmetic::{Epilogue, clamp};
use crate::requantize::narrow;
use crate::spatial::Spatial;

/// The parameters of the pools, 100 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PoolParameters {
    /// Geometry.
    pub spatial: Spatial,
    /// The bounds; zero points are not read.
    pub epilogue: Epilogue,
}

/// int8 average.
pub const AVERAGE_POOL_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(4, 1, 0, check::<AverageS8>, run::<AverageS8>) };
/// int8 maximum.
pub const MAX_POOL_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(5, 1, 0, check::<MaxS8>, run::<MaxS8>) };
/// float32 average.
pub const AVERAGE_POOL_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(35, 4, 0, check::<AverageF32>, run::<AverageF32>) };
/// float32 maximum.
pub const MAX_POOL_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(36, 4, 0, check::<MaxF32>, run::<MaxF32>) };

/// From the taps of a window to one output.
pub(crate) trait Reduce {
    type Element: Copy;
    type State: Copy;
    /// What the number of taps is to its outputs.
    type Taps: Copy;
    const SIZE: u32;
    const START: Self::State;
    fn taps(count: u32) -> Self::Taps;
    /// The same for states that may not be of so many taps.
    fn any_taps(count: u32) -> Self::Taps {
        Self::taps(count)
    }
    fn take(state: Self::State, x: Self::Element) -> Self::State;
    fn finish(state: Self::State, taps: Self::Taps, bounds: &Epilogue) -> Self::Element;
}

pub(crate) struct AverageS8;

/// The most taps whose sum one product of 32 bits divides exactly: half of their number added, it is at most 128.5 times that number, of
/// which 128.5 times the square has to be below 2^24.
const MULTIPLIED: u32 = 361;

/// `2^24 / taps`, and what is above it; 0 where that is not exact enough.
#[inline(always)]
fn inverse(taps: u32) -> u32 {
    if taps > MULTIPLIED { 0 } else { (1u32 << 24).checked_div(taps).unwrap_or(0).wrapping_add(1) }
}

/// `sum / taps`, halves away from zero: by [`inverse`] unless that is 0.
#[inline(always)]
fn mean(sum: i32, taps: u32, inverse: u32) -> i32 {
    let rounded = sum.unsigned_abs().wrapping_add(taps >> 1);
    let mean = match inverse {
        0 => rounded.checked_div(taps).unwrap_or(0),
        inverse => rounded.wrapping_mul(inverse) >> 24,
    };
    if sum < 0 { (mean as i32).wrapping_neg() } else { mean as i32 }
}

impl Reduce for AverageS8 {
    type Element = i8;
    type State = i32;
    /// The number, and its inverse.
    type Taps = (u32, u32);
    const SIZE: u32 = 1;
    const START: i32 = 0;

    #[inline(always)]
    fn taps(count: u32) -> (u32, u32) {
        // Other CPUs divide in one instruction.
        (count, if cfg!(kiln_armv6m) { inverse(count) } else { 0 })
    }

    #[inline(always)]
    fn any_taps(count: u32) -> (u32, u32) {
        (count, 0)
    }

    #[inline(always)]
    fn take(state: i32, x: i8) -> i32 {
        state.wrapping_add(x as i32)
    }

    #[inline(always)]
    fn finish(state: i32, (taps, inverse): (u32, u32), bounds: &Epilogue) -> i8 {
        narrow(mean(state, taps, inverse), 0, bounds.low, bounds.high)
    }
}

struct MaxS8;

impl Reduce for MaxS8 {
    type Element = i8;
    type State = i32;
    type Taps = ();
    const SIZE: u32 = 1;
    const START: i32 = i8::MIN as i32;

    fn taps(_: u32) {}

    #[inline(always)]
    fn take(state: i32, x: i8) -> i32 {
        state.max(x as i32)
    }

    #[inline(always)]
    fn finish(state: i32, (): (), bounds: &Epilogue) -> i8 {
        narrow(state, 0, bounds.low, bounds.high)
    }
}

fn clamp_to(x: f32, bounds: &Epilogue) -> f32 {
    clamp(x, f32::from_bits(bounds.low as u32), f32::from_bits(bounds.high as u32))
}

pub(crate) struct AverageF32;

impl Reduce for AverageF32 {
    type Element = f32;
    type State = f32;
    type Taps = f32;
    const SIZE: u32 = 4;
    const START: f32 = 0.0;

    #[inline(always)]
    fn taps(count: u32) -> f32 {
        count as f32
    }

    #[inline(always)]
    fn take(state: f32, x: f32) -> f32 {
        state + x
    }

    #[inline(always)]
    fn finish(state: f32, taps: f32, bounds: &Epilogue) -> f32 {
        clamp_to(state / taps, bounds)
    }
}

struct MaxF32;

impl Reduce for MaxF32 {
    type Element = f32;
    type State = f32;
    type Taps = ();
    const SIZE: u32 = 4;
    const START: f32 = f32::NEG_INFINITY;

    fn taps(_: u32) {}

    #[inline(always)]
    fn take(state: f32, x: f32) -> f32 {
        if x > state { x } else { state }
    }

    #[inline(always)]
    fn finish(state: f32, (): (), bounds: &Epilogue) -> f32 {
        clamp_to(state, bounds)
    }
}

fn check<R: Reduce>(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<PoolParameters>() else { return false };
    p.spatial.check(call, R::SIZE) && p.spatial.input.channels == p.spatial.output.channels
}

/// [`check`] of int8 pools.
pub(crate) fn check_s8(call: &Call<'_>) -> bool {
    check::<MaxS8>(call)
}

unsafe fn run<R: Reduce>(call: &Call<'_>) {
    let Some(p) = call.parameters::<PoolParameters>() else { return };
    let (down, right) = p.spatial.tap_steps();
    let channels = p.spatial.output.channels as usize;
    p.spatial.for_each_pixel(call, |pixel| {
        let rows = pixel.rows.end.wrapping_sub(pixel.rows.first);
        let columns = pixel.columns.end.wrapping_sub(pixel.columns.first);
        let taps = R::taps(rows.wrapping_mul(columns));
        for channel in 0..channels {
            let channel = call.direction.pick(channel, channels);
            let mut state = R::START;
            let mut line = pixel.input.wrapping_add(channel.wrapping_mul(R::SIZE as usize));
            for _ in 0..rows {
                let mut x = line;
                for _ in 0..columns {
                    // SAFETY: `check` proved that the taps of a window that `rows` and `columns`
                    // count lie inside the input.
                    state = R::take(state, unsafe { x.cast::<R::Element>().read() });
                    x = x.wrapping_add(right);
                }
                line = line.wrapping_add(down);
            }
            let output = pixel.output.cast::<R::Element>().wrapping_add(channel);
            // SAFETY: `check` proved that the pixel's channels lie inside the output.
            unsafe { output.write(R::finish(state, taps, &p.epilogue)) };
        }
    });
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::DType;
    use kiln_ops::{Activation, Op, OpError, PoolKind};

    use super::*;
    use crate::pool2d_wide::max;
    use crate::table::{Direction, Emit, Kernel, Operation};
    use crate::vector::native;
    use crate::{lag, lowering};

    /// The kernel of a row.
    macro_rules! pool {
        ($row:ident, $name:literal, $kind:ident, $dtype:ident, $native:expr) => {
            pub(crate) const $row: Kernel = Kernel {
                number: super::$row.number(),
                name: $name,
                row_name: stringify!($row),
                targets: &[],
                directions: &[Direction::Up, Direction::Down],
                applies: |operation| parameters(operation, PoolKind::$kind, DType::$dtype).is_some(),
                prepare: |operation, emit| prepare(operation, PoolKind::$kind, DType::$dtype, emit),
                lag: |operation, input, direction| {
                    let p = parameters(operation, PoolKind::$kind, DType::$dtype).filter(|_| input == 0)?;
                    let images = operation.output.ty.shape.dim(0);
                    let channels = p.spatial.output.channels;
                    Some(lag::windows(&p.spatial, images, [channels, 1, 1], DType::$dtype.bits() / 8, direction))
                },
                portable: super::$row,
                native: $native,
                work: None,
            };
        };
    }

    pool!(AVERAGE_POOL_S8, "average_pool_s8", Average, I8, None);
    pool!(MAX_POOL_S8, "max_pool_s8", Max, I8, None);
    pool!(AVERAGE_POOL_F32, "average_pool_f32", Average, F32, None);
    pool!(MAX_POOL_F32, "max_pool_f32", Max, F32, native!(super::MAX_POOL_F32, check::<MaxF32>, max));

    /// The geometry of an int8 pool.
    pub(crate) fn spatial_s8(operation: &Operation<'_>) -> Option<Spatial> {
        let Op::Pool2d(op) = operation.op else { return None };
        parameters(operation, op.kind, DType::I8).map(|p| p.spatial)
    }

    fn parameters(operation: &Operation<'_>, kind: PoolKind, dtype: DType) -> Option<PoolParameters> {
        let Op::Pool2d(op) = operation.op else { return None };
        if op.kind != kind || !lowering::is_sound(operation, dtype) {
            return None;
        }
        // Only bounds need the scale.
        let bounded = dtype == DType::I8 && op.activation != Activation::None;
        if bounded && !lowering::per_tensor(&operation.output.quant) {
            return None;
        }
        let x = operation.inputs.first()?;
        lowering::image_rows(&operation.output.ty)?;
        Some(PoolParameters {
            spatial: lowering::spatial(&x.ty, &operation.output.ty, &op.window())?,
            epilogue: lowering::epilogue(op.activation, &x.quant, &operation.output),
        })
    }

    fn prepare(operation: &Operation<'_>, kind: PoolKind, dtype: DType, emit: &mut dyn Emit) -> Result<(), OpError> {
        let parameters = parameters(operation, kind, dtype);
        lowering::emit_call(emit, 1, parameters.zip(lowering::image_rows(&operation.output.ty)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_divides_exactly() {
        for taps in (1..=if cfg!(miri) { 3 } else { MULTIPLIED as i32 + 1 }).rev() {
            for sum in -128 * taps..=127 * taps {
                let half = if sum > 0 { taps / 2 } else { -(taps / 2) };
                assert_eq!(mean(sum, taps as u32, inverse(taps as u32)), (sum + half) / taps, "{sum} / {taps}");
            }
        }
    }
}
