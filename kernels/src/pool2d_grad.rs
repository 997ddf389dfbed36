//! The gradients of pools, and what lies where a maximum pool found its maxima.
//!
//! Windows: for the average's gradient the gradient; for the maximum's the image, then the gradient; for picks the
//! image, then what is picked from; then the output. A row is one row of the output image. Of several equal
//! maxima in a window the first counts. Pixels go in raster order and channels ascend; walking down, which only
//! picks can, both are reversed.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row};

use crate::spatial::Spatial;

/// The parameters of the rows, 88 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PoolGradParameters {
    /// The pool's geometry: its image is the input, its result the output.
    pub spatial: Spatial,
    /// How many images.
    pub images: u32,
}

/// The gradient of an average pool, float32.
pub const AVERAGE_POOL_GRAD_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(53, 4, 0, check_average, run_average) };
/// The gradient of a maximum pool, float32.
pub const MAX_POOL_GRAD_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(54, 4, 0, check_max, run_max) };
/// What lies where a maximum pool found its maxima, float32.
pub const MAX_POOL_PICK_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(55, 4, 0, check_pick, run_pick) };

impl PoolGradParameters {
    fn channels_agree(&self) -> bool {
        self.spatial.input.channels == self.spatial.output.channels
    }

    /// Whether `rows` are rows of the image.
    fn has_rows(&self, rows: u32, height: u32) -> bool {
        self.images != 0 && rows as u64 <= self.images as u64 * height as u64
    }
}

fn check_average(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<PoolGradParameters>() else { return false };
    let rows = call.rows.end;
    p.channels_agree()
        && p.has_rows(rows, p.spatial.input.height)
        && p.spatial.check_backwards(rows, &[call.output(0)], call.input(0), 4)
}

fn check_max(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<PoolGradParameters>() else { return false };
    let rows = call.rows.end;
    p.channels_agree()
        && p.has_rows(rows, p.spatial.input.height)
        && p.spatial.check_backwards(rows, &[call.output(0), call.input(0)], call.input(1), 4)
}

fn check_pick(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<PoolGradParameters>() else { return false };
    let rows = call.rows.end;
    let Some(images) = rows.checked_add(p.spatial.output.height.saturating_sub(1)) else { return false };
    let images = images.checked_div(p.spatial.output.height).unwrap_or(0);
    p.channels_agree()
        && p.has_rows(rows, p.spatial.output.height)
        && p.spatial.check(call, 4)
        && p.spatial.input.fits(call.input(1), images, 4)
}

/// Calls `visit` with every pixel of the image in the rows of a call and each window that covers it, in raster order;
/// the first time for a pixel with none.
#[inline(always)]
fn for_each_window(call: &Call<'_>, s: &Spatial, mut visit: impl FnMut([u32; 3], Option<[u32; 2]>)) {
    for row in call.rows.begin..call.rows.end {
        let image = row.checked_div(s.input.height).unwrap_or(0);
        let y = row.wrapping_sub(image.wrapping_mul(s.input.height));
        for x in 0..s.input.width {
            visit([image, y, x], None);
            let (rows, columns) = (s.windows_over(0, y), s.windows_over(1, x));
            for oy in (rows.0..rows.1).filter(|&oy| s.tap_on(0, oy, y).is_some()) {
                for ox in (columns.0..columns.1).filter(|&ox| s.tap_on(1, ox, x).is_some()) {
                    visit([image, y, x], Some([oy, ox]));
                }
            }
        }
    }
}

unsafe fn run_average(call: &Call<'_>) {
    let Some(p) = call.parameters::<PoolGradParameters>() else { return };
    let s = &p.spatial;
    let channels = s.input.channels as usize;
    for_each_window(call, s, |[image, y, x], window| {
        let to = s.input.pixel(call.output(0), image, y, x).cast::<f32>();
        let Some([oy, ox]) = window else {
            // SAFETY: `check_average` proved that the pixel's channels lie inside the output.
            (0..channels).for_each(|c| unsafe { to.wrapping_add(c).write(0.0) });
            return;
        };
        let (rows, columns) = (s.row_taps(oy), s.column_taps(ox));
        let taps = rows.end.wrapping_sub(rows.first).wrapping_mul(columns.end.wrapping_sub(columns.first));
        let d = s.output.pixel(call.input(0), image, oy, ox).cast::<f32>().cast_const();
        for c in 0..channels {
            let to = to.wrapping_add(c);
            // SAFETY: as above; and the window's pixel lies inside the gradient.
            unsafe { to.write(to.read() + d.wrapping_add(c).read() / taps as f32) };
        }
    });
}

/// Which of the taps of a window of one channel has the first largest element: bytes from the window's first tap.
///
/// # Safety
///
/// The taps can be read, `rows` rows of `columns`, `down` and `right` bytes apart; there is one.
#[inline(always)]
unsafe fn largest(first: *const u8, rows: u32, columns: u32, (down, right): (usize, usize)) -> usize {
    // SAFETY: the caller's promise.
    let (mut best, mut place) = (unsafe { first.cast::<f32>().read() }, 0usize);
    let mut line = 0usize;
    for _ in 0..rows {
        let mut at = line;
        for _ in 0..columns {
            // SAFETY: the caller's promise.
            let x = unsafe { first.wrapping_add(at).cast::<f32>().read() };
            if x > best {
                (best, place) = (x, at);
            }
            at = at.wrapping_add(right);
        }
        line = line.wrapping_add(down);
    }
    place
}

pub(crate) unsafe fn run_max(call: &Call<'_>) {
    let Some(p) = call.parameters::<PoolGradParameters>() else { return };
    let s = &p.spatial;
    let channels = s.input.channels as usize;
    for_each_window(call, s, |[image, y, x], window| {
        let to = s.input.pixel(call.output(0), image, y, x).cast::<f32>();
        let Some([oy, ox]) = window else {
            // SAFETY: `check_max` proved that the pixel's channels lie inside the output.
            (0..channels).for_each(|c| unsafe { to.wrapping_add(c).write(0.0) });
            return;
        };
        let (rows, columns) = (s.row_taps(oy), s.column_taps(ox));
        let first = s.input.pixel(call.input(0), image, rows.at, columns.at).cast_const();
        // Where this pixel is among the window's.
        let own = (y.wrapping_sub(rows.at) as usize)
            .wrapping_mul(s.input.row_pitch as usize)
            .wrapping_add((x.wrapping_sub(columns.at) as usize).wrapping_mul(s.input.pixel_pitch as usize));
        let d = s.output.pixel(call.input(1), image, oy, ox).cast::<f32>().cast_const();
        let counts = (rows.end.wrapping_sub(rows.first), columns.end.wrapping_sub(columns.first));
        let mut c = 0usize;
        while c < channels {
            let n = TOGETHER.min(channels.wrapping_sub(c));
            let (to, d) = (to.wrapping_add(c), d.wrapping_add(c));
            let first = first.wrapping_add(c.wrapping_mul(4));
            // SAFETY: as above; the window covers this pixel, so it has taps, and they lie inside the image; its
            // own pixel lies inside the gradient.
            unsafe {
                // A count that is known makes vector code.
                if n == TOGETHER {
                    add_where_largest(first, counts, s.tap_steps(), own, TOGETHER, d, to);
                } else {
                    add_where_largest(first, counts, s.tap_steps(), own, n, d, to);
                }
            }
            c = c.wrapping_add(n);
        }
    });
}

/// Channels compared together. Nothing but speed depends on it.
const TOGETHER: usize = if cfg!(target_pointer_width = "64") { 8 } else { 1 };

/// Adds to `n` channels at `to` those at `d` where [`largest`] would find `own`.
///
/// # Safety
///
/// As for [`largest`], for `n` neighbouring channels, at most [`TOGETHER`]; they can be read at `d`, and written at
/// `to`.
#[inline(always)]
unsafe fn add_where_largest(
    first: *const u8,
    (rows, columns): (u32, u32),
    (down, right): (usize, usize),
    own: usize,
    n: usize,
    d: *const f32,
    to: *mut f32,
) {
    let (mut best, mut found) = ([0f32; TOGETHER], [0u32; TOGETHER]);
    for (i, (best, found)) in best.iter_mut().zip(&mut found).enumerate().take(n) {
        // SAFETY: the caller's promise, here and below.
        *best = unsafe { first.cast::<f32>().wrapping_add(i).read() };
        *found = u32::from(own == 0);
    }
    let mut line = 0usize;
    for _ in 0..rows {
        let mut at = line;
        for _ in 0..columns {
            let is_own = u32::from(at == own);
            let x = first.wrapping_add(at).cast::<f32>();
            for (i, (best, found)) in best.iter_mut().zip(&mut found).enumerate().take(n) {
                // SAFETY: as above.
                let x = unsafe { x.wrapping_add(i).read() };
                let larger = x > *best;
                *best = if larger { x } else { *best };
                *found = if larger { is_own } else { *found };
            }
            at = at.wrapping_add(right);
        }
        line = line.wrapping_add(down);
    }
    for (i, &found) in found.iter().enumerate().take(n) {
        // SAFETY: as above.
        unsafe {
            let (to, d) = (to.wrapping_add(i), d.wrapping_add(i).read());
            let sum = to.read();
            to.write(if found != 0 { sum + d } else { sum });
        }
    }
}

unsafe fn run_pick(call: &Call<'_>) {
    let Some(p) = call.parameters::<PoolGradParameters>() else { return };
    let s = &p.spatial;
    let channels = s.output.channels as usize;
    s.for_each_pixel(call, |pixel| {
        let rows = pixel.rows.end.wrapping_sub(pixel.rows.first);
        let columns = pixel.columns.end.wrapping_sub(pixel.columns.first);
        // The same place in the other image.
        let from = pixel.input.addr().wrapping_sub(call.input(0).ptr.addr());
        for channel in 0..channels {
            let channel = call.direction.pick(channel, channels);
            let offset = channel.wrapping_mul(4);
            let picked = if rows == 0 || columns == 0 {
                0.0
            } else {
                // SAFETY: `check_pick` proved that the window's taps lie inside both images.
                unsafe {
                    let place = largest(pixel.input.wrapping_add(offset), rows, columns, s.tap_steps());
                    let at = from.wrapping_add(offset).wrapping_add(place);
                    call.input(1).ptr.wrapping_add(at).cast::<f32>().read()
                }
            };
            // SAFETY: `check_pick` proved that the pixel's channels lie inside the output.
            unsafe { pixel.output.cast::<f32>().wrapping_add(channel).write(picked) };
        }
    });
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{DType, TensorType};
    use kiln_ops::{Op, Pool2d};

    use super::*;
    use crate::pool2d_wide::max_grad;
    use crate::table::{Direction, Kernel, Operation};
    use crate::vector::native;
    use crate::{lag, lowering};

    /// The kernel of a row over so many inputs.
    macro_rules! pool {
        ($row:ident, $name:literal, $inputs:literal, $directions:expr, $parameters:ident, $lag:expr, $native:expr) => {
            pub(crate) const $row: Kernel = Kernel {
                number: super::$row.number(),
                name: $name,
                row_name: stringify!($row),
                targets: &[],
                directions: $directions,
                applies: |operation| $parameters(operation).is_some(),
                prepare: |operation, emit| {
                    lowering::emit_call(
                        emit,
                        $inputs,
                        $parameters(operation).zip(lowering::image_rows(&operation.output.ty)),
                    )
                },
                lag: $lag,
                portable: super::$row,
                native: $native,
                work: None,
            };
        };
    }

    // What a row of a gradient reads reaches across several rows either way.
    pool!(AVERAGE_POOL_GRAD_F32, "average_pool_grad_f32", 1, &[Direction::Up], average, |_, _, _| None, None);
    pool!(
        MAX_POOL_GRAD_F32,
        "max_pool_grad_f32",
        2,
        &[Direction::Up],
        max,
        |_, _, _| None,
        native!(super::MAX_POOL_GRAD_F32, check_max, max_grad)
    );
    pool!(
        MAX_POOL_PICK_F32,
        "max_pool_pick_f32",
        2,
        &[Direction::Up, Direction::Down],
        pick,
        |operation, input, direction| {
            let p = pick(operation).filter(|_| input < 2)?;
            Some(lag::windows(&p.spatial, p.images, [p.spatial.output.channels, 1, 1], 4, direction))
        },
        None
    );

    fn parameters(
        operation: &Operation<'_>,
        pool: &Pool2d,
        x: &TensorType,
        y: &TensorType,
    ) -> Option<PoolGradParameters> {
        if !lowering::is_sound(operation, DType::F32) {
            return None;
        }
        lowering::image_rows(x)?;
        Some(PoolGradParameters { spatial: lowering::spatial(x, y, &pool.window())?, images: *x.shape.dims().first()? })
    }

    fn average(operation: &Operation<'_>) -> Option<PoolGradParameters> {
        let (Op::AveragePool2dGrad(op), [d]) = (operation.op, operation.inputs) else { return None };
        parameters(operation, &op.pool, &operation.output.ty, &d.ty)
    }

    fn max(operation: &Operation<'_>) -> Option<PoolGradParameters> {
        let (Op::MaxPool2dGrad(op), [x, d]) = (operation.op, operation.inputs) else { return None };
        parameters(operation, &op.pool, &x.ty, &d.ty)
    }

    fn pick(operation: &Operation<'_>) -> Option<PoolGradParameters> {
        let (Op::MaxPool2dPick(op), [x, _]) = (operation.op, operation.inputs) else { return None };
        parameters(operation, &op.pool, &x.ty, &operation.output.ty)
    }
}
