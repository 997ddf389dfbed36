//! The gradients of convolution.
//!
//! By the image: windows are the gradient, the weights `[O, KH, KW, C / groups]`; then the gradient by the image. A
//! row is one row of the image. By the weights: windows are the image, the gradient; then the gradient by the
//! weights. A row is one output channel's weights. Each output element has one order of its own in which it is
//! summed, whatever rows a call computes.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Row, Window};

use crate::spatial::Spatial;

/// The parameters of the rows, 92 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Conv2dGradParameters {
    /// The convolution's geometry: its image is the input, its result (and the gradient by it) the output.
    pub spatial: Spatial,
    /// How many images.
    pub images: u32,
    /// Groups of channels.
    pub groups: u32,
}

/// The gradient by the image, float32.
pub const CONV2D_INPUT_GRAD_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(51, 4, 0, check_input, run_input) };
/// The gradient by the weights, float32.
pub const CONV2D_WEIGHT_GRAD_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(52, 4, 0, check_weight, run_weight) };

/// Channels summed together.
const TOGETHER: usize = 8;

impl Conv2dGradParameters {
    /// Channels of a group: of the image, of the gradient.
    pub(crate) fn per_group(&self) -> (u32, u32) {
        let of = |channels: u32| channels.checked_div(self.groups).unwrap_or(0);
        (of(self.spatial.input.channels), of(self.spatial.output.channels))
    }

    pub(crate) fn taps(&self) -> u64 {
        self.spatial.kernel[0] as u64 * self.spatial.kernel[1] as u64
    }

    /// Whether channels make whole groups, and the weights of `outputs` output channels lie inside `window`.
    fn weights_fit(&self, window: Window, outputs: u32) -> bool {
        let (inputs, per_group) = self.per_group();
        let elements = self.taps().saturating_mul(inputs as u64).saturating_mul(outputs as u64);
        inputs != 0
            && per_group != 0
            && inputs.checked_mul(self.groups) == Some(self.spatial.input.channels)
            && per_group.checked_mul(self.groups) == Some(self.spatial.output.channels)
            && elements.saturating_mul(4) <= window.len as u64
    }
}

pub(crate) fn check_input(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dGradParameters>() else { return false };
    let rows = call.rows.end;
    p.images != 0
        && rows as u64 <= p.images as u64 * p.spatial.input.height as u64
        && p.weights_fit(call.input(1), p.spatial.output.channels)
        && p.spatial.check_backwards(rows, &[call.output(0)], call.input(0), 4)
}

pub(crate) fn check_weight(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dGradParameters>() else { return false };
    let Some(rows) = p.images.checked_mul(p.spatial.input.height) else { return false };
    p.images != 0
        && call.rows.end <= p.spatial.output.channels
        && p.weights_fit(call.output(0), call.rows.end)
        && p.spatial.check_backwards(rows, &[call.input(0)], call.input(1), 4)
}

/// Sums of neighbouring channels.
type Sums = [f32; TOGETHER];

/// Adds a factor times the first `n` of the elements at `w`, `step` apart.
///
/// # Safety
///
/// They can be read, aligned.
#[inline(always)]
unsafe fn add(sums: &mut Sums, factor: f32, w: *const f32, n: usize) {
    if n == TOGETHER {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *sum += factor * unsafe { w.wrapping_add(i).read() };
        }
    } else {
        for (i, sum) in sums.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            *sum += factor * unsafe { w.wrapping_add(i).read() };
        }
    }
}

/// The sums for channels `first..first + n` of an image's pixel: of one group, or where groups have one channel
/// each, of several.
///
/// # Safety
///
/// `check_input` accepted the call; the pixel and its channels exist.
#[inline(never)]
unsafe fn input_sums(
    call: &Call<'_>,
    p: &Conv2dGradParameters,
    [image, y, x]: [u32; 3],
    first: usize,
    n: usize,
) -> Sums {
    let mut sums = [0.0; TOGETHER];
    let s = &p.spatial;
    let (inputs, outputs) = p.per_group();
    let (inputs, outputs) = (inputs as usize, outputs as usize);
    let group = first.checked_div(inputs).unwrap_or(0);
    let channel = first.wrapping_sub(group.wrapping_mul(inputs));
    let filter = (p.taps() as usize).wrapping_mul(inputs);
    let first_output = group.wrapping_mul(outputs);
    let (rows, columns) = (s.windows_over(0, y), s.windows_over(1, x));
    for oy in rows.0..rows.1 {
        let Some(ky) = s.tap_on(0, oy, y) else { continue };
        for ox in columns.0..columns.1 {
            let Some(kx) = s.tap_on(1, ox, x) else { continue };
            let tap = (ky as usize).wrapping_mul(s.kernel[1] as usize).wrapping_add(kx as usize);
            let d = s.output.pixel(call.input(0), image, oy, ox).cast::<f32>().wrapping_add(first_output);
            let w = call.input(1).ptr.cast::<f32>().cast_const().wrapping_add(first_output.wrapping_mul(filter));
            let w = w.wrapping_add(tap.wrapping_mul(inputs)).wrapping_add(channel);
            // SAFETY: `check_input` proved that the window's pixel lies inside the gradient, and the filters of
            // all output channels inside the weights.
            unsafe {
                if inputs == 1 {
                    for (i, sum) in sums.iter_mut().enumerate().take(n) {
                        for o in i.wrapping_mul(outputs)..i.wrapping_add(1).wrapping_mul(outputs) {
                            *sum += d.wrapping_add(o).read() * w.wrapping_add(o.wrapping_mul(filter)).read();
                        }
                    }
                } else {
                    for o in 0..outputs {
                        let factor = d.wrapping_add(o).read();
                        add(&mut sums, factor, w.wrapping_add(o.wrapping_mul(filter)), n);
                    }
                }
            }
        }
    }
    sums
}

unsafe fn run_input(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dGradParameters>() else { return };
    let s = &p.spatial;
    let (inputs, _) = p.per_group();
    let channels = s.input.channels as usize;
    for row in call.rows.begin..call.rows.end {
        let image = row.checked_div(s.input.height).unwrap_or(0);
        let y = row.wrapping_sub(image.wrapping_mul(s.input.height));
        for x in 0..s.input.width {
            let to = s.input.pixel(call.output(0), image, y, x).cast::<f32>();
            let mut first = 0usize;
            while first < channels {
                // As many channels as their group still has; groups of one channel go together.
                let inputs = inputs as usize;
                let within = first.checked_rem(inputs).unwrap_or(0);
                let end = if inputs == 1 { channels.wrapping_sub(first) } else { inputs.wrapping_sub(within) };
                let n = TOGETHER.min(end);
                // SAFETY: the pixel is one of the image's, which `check_input` proved to lie in the output.
                unsafe {
                    let sums = input_sums(call, p, [image, y, x], first, n);
                    for (i, &sum) in sums.iter().enumerate().take(n) {
                        to.wrapping_add(first).wrapping_add(i).write(sum);
                    }
                }
                first = first.wrapping_add(n);
            }
        }
    }
}

/// Calls `each` with the pixels of image and gradient that meet at a tap, in the order of the gradient's. Between
/// rows it calls `next`.
#[inline(always)]
fn meetings(
    call: &Call<'_>,
    p: &Conv2dGradParameters,
    [ky, kx]: [u32; 2],
    mut each: impl FnMut(*const f32, *const f32),
    mut next: impl FnMut(),
) {
    let s = &p.spatial;
    // Sums stay within 32 bits: `axis_is_sound`.
    let at = |axis: usize, o: u32, k: u32, size: u32| {
        let of = |pair: &[u32; 2]| if axis == 0 { pair[0] } else { pair[1] };
        let moved = o.wrapping_mul(of(&s.strides)).wrapping_add(k.wrapping_mul(of(&s.dilations)));
        moved.checked_sub(of(&s.pads)).filter(|&at| at < size)
    };
    for image in 0..p.images {
        for oy in 0..s.output.height {
            let Some(iy) = at(0, oy, ky, s.input.height) else { continue };
            for ox in 0..s.output.width {
                let Some(ix) = at(1, ox, kx, s.input.width) else { continue };
                let x = s.input.pixel(call.input(0), image, iy, ix).cast::<f32>().cast_const();
                each(x, s.output.pixel(call.input(1), image, oy, ox).cast::<f32>().cast_const());
            }
            next();
        }
    }
}

/// Weights of one tap: of `ROWS` output channels from `o` on, `n` input channels from `channel` on.
///
/// # Safety
///
/// `check_weight` accepted the call; the channels exist, outputs of one group.
#[inline(always)]
unsafe fn weight_tile<const ROWS: usize>(
    call: &Call<'_>,
    p: &Conv2dGradParameters,
    tap: [u32; 2],
    o: usize,
    channel: usize,
    n: usize,
) -> [Sums; ROWS] {
    let (mut all, part) = ([[0.0; TOGETHER]; ROWS], core::cell::Cell::new([[0.0; TOGETHER]; ROWS]));
    let each = |x: *const f32, d: *const f32| {
        let mut sums: [Sums; ROWS] = part.get();
        for (i, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `check_weight` proved that the pixels' channels lie inside image and gradient.
            unsafe { add(sums, d.wrapping_add(o).wrapping_add(i).read(), x.wrapping_add(channel), n) };
        }
        part.set(sums);
    };
    // The sums of a row are added up by themselves, so that errors grow with the rows.
    let next = || {
        let row: [Sums; ROWS] = part.replace([[0.0; TOGETHER]; ROWS]);
        for (all, row) in all.iter_mut().flatten().zip(row.iter().flatten()) {
            *all += row;
        }
    };
    meetings(call, p, tap, each, next);
    all
}

/// Weights of one tap of `n` output channels from `o` on, where groups have one input channel.
///
/// # Safety
///
/// As for [`weight_tile`], but for groups.
#[inline(never)]
unsafe fn depthwise(call: &Call<'_>, p: &Conv2dGradParameters, tap: [u32; 2], o: usize, n: usize) -> Sums {
    let (_, outputs) = p.per_group();
    let (mut all, part) = ([0.0; TOGETHER], core::cell::Cell::new([0.0; TOGETHER]));
    let mut channels = [0usize; TOGETHER];
    for (i, channel) in channels.iter_mut().enumerate().take(n) {
        *channel = o.wrapping_add(i).checked_div(outputs as usize).unwrap_or(0);
    }
    let each = |x: *const f32, d: *const f32| {
        let mut sums: Sums = part.get();
        for (i, (sum, &channel)) in sums.iter_mut().zip(&channels).enumerate().take(n) {
            // SAFETY: as in `weight_tile`.
            *sum += unsafe { x.wrapping_add(channel).read() * d.wrapping_add(o).wrapping_add(i).read() };
        }
        part.set(sums);
    };
    let next = || {
        for (all, row) in all.iter_mut().zip(part.replace([0.0; TOGETHER])) {
            *all += row;
        }
    };
    meetings(call, p, tap, each, next);
    all
}

unsafe fn run_weight(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dGradParameters>() else { return };
    let (inputs, outputs) = p.per_group();
    let (inputs, outputs) = (inputs as usize, outputs as usize);
    let [height, width] = p.spatial.kernel;
    let filter = (p.taps() as usize).wrapping_mul(inputs);
    let end = call.rows.end as usize;
    let mut o = call.rows.begin as usize;
    let place = |o: usize, ky: u32, kx: u32, channel: usize| {
        let tap = (ky as usize).wrapping_mul(width as usize).wrapping_add(kx as usize);
        let at = o.wrapping_mul(filter).wrapping_add(tap.wrapping_mul(inputs)).wrapping_add(channel);
        call.output(0).ptr.cast::<f32>().wrapping_add(at)
    };
    while o < end {
        let left = end.wrapping_sub(o);
        let within = outputs.wrapping_sub(o.checked_rem(outputs).unwrap_or(0));
        let tall = left.min(within) >= 4;
        let rows = if inputs == 1 {
            TOGETHER.min(left)
        } else if tall {
            4
        } else {
            1
        };
        let group = o.checked_div(outputs).unwrap_or(0);
        for (ky, kx) in (0..height).flat_map(|ky| (0..width).map(move |kx| (ky, kx))) {
            // SAFETY: `check_weight` proved that the filters of these output channels lie inside the output; image
            // and gradient have the channels of their groups.
            unsafe {
                if inputs == 1 {
                    let sums = depthwise(call, p, [ky, kx], o, rows);
                    for (i, &sum) in sums.iter().enumerate().take(rows) {
                        place(o.wrapping_add(i), ky, kx, 0).write(sum);
                    }
                    continue;
                }
                let mut channel = 0usize;
                while channel < inputs {
                    let n = TOGETHER.min(inputs.wrapping_sub(channel));
                    let at = group.wrapping_mul(inputs).wrapping_add(channel);
                    let store = |i: usize, sums: &Sums| {
                        for (k, &sum) in sums.iter().enumerate().take(n) {
                            place(o.wrapping_add(i), ky, kx, channel).wrapping_add(k).write(sum);
                        }
                    };
                    if tall {
                        let tile = weight_tile::<4>(call, p, [ky, kx], o, at, n);
                        tile.iter().enumerate().for_each(|(i, sums)| store(i, sums));
                    } else {
                        let tile = weight_tile::<1>(call, p, [ky, kx], o, at, n);
                        tile.iter().enumerate().for_each(|(i, sums)| store(i, sums));
                    }
                    channel = channel.wrapping_add(n);
                }
            }
        }
        o = o.wrapping_add(rows);
    }
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{DType, TensorType};
    use kiln_ops::{Conv2d, Op, OpError};

    use super::*;
    use crate::lowering;
    use crate::table::{Direction, Kernel, Operation};

    pub(crate) const CONV2D_INPUT_GRAD_F32: Kernel = Kernel {
        number: super::CONV2D_INPUT_GRAD_F32.number(),
        name: "conv2d_input_grad_f32",
        row_name: "CONV2D_INPUT_GRAD_F32",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| by_input(operation).is_some(),
        prepare: |operation, emit| {
            let p = by_input(operation).ok_or(OpError::TooLarge)?;
            let rows = lowering::image_rows(&operation.output.ty).ok_or(OpError::TooLarge)?;
            lowering::emit_call(emit, 2, Some((p, rows)))
        },
        // What a row reads reaches across several rows either way.
        lag: |_, _, _| None,
        portable: super::CONV2D_INPUT_GRAD_F32,
        native: None,
        work: None,
    };

    pub(crate) const CONV2D_WEIGHT_GRAD_F32: Kernel = Kernel {
        number: super::CONV2D_WEIGHT_GRAD_F32.number(),
        name: "conv2d_weight_grad_f32",
        row_name: "CONV2D_WEIGHT_GRAD_F32",
        targets: &[],
        directions: &[Direction::Up],
        applies: |operation| by_weights(operation).is_some(),
        prepare: |operation, emit| {
            let p = by_weights(operation).ok_or(OpError::TooLarge)?;
            lowering::emit_call(emit, 2, Some((p, p.spatial.output.channels)))
        },
        // Everything is read for every weight.
        lag: |_, _, _| None,
        portable: super::CONV2D_WEIGHT_GRAD_F32,
        native: None,
        work: None,
    };

    fn parameters(conv: &Conv2d, x: &TensorType, w: &TensorType, y: &TensorType) -> Option<Conv2dGradParameters> {
        lowering::image_rows(x)?;
        let images = *x.shape.dims().first()?;
        Some(Conv2dGradParameters { spatial: lowering::spatial(x, y, &conv.window(w))?, images, groups: conv.groups })
    }

    pub(crate) fn by_input(operation: &Operation<'_>) -> Option<Conv2dGradParameters> {
        let (Op::Conv2dInputGrad(op), [d, w]) = (operation.op, operation.inputs) else { return None };
        let sound = lowering::is_sound(operation, DType::F32);
        sound.then(|| parameters(&op.conv, &operation.output.ty, &w.ty, &d.ty))?
    }

    pub(crate) fn by_weights(operation: &Operation<'_>) -> Option<Conv2dGradParameters> {
        let (Op::Conv2dWeightGrad(op), [x, d]) = (operation.op, operation.inputs) else { return None };
        let sound = lowering::is_sound(operation, DType::F32);
        sound.then(|| parameters(&op.conv, &x.ty, &operation.output.ty, &d.ty))?
    }
}
