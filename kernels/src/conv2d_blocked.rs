//! Convolution and its gradients as products of matrices, for CPUs with wide vectors ([`crate::product`]).
//!
//! Windows, parameters and rows are those of the plain kernels, and scratch. The output overlaps no input. Where
//! groups have few channels plain kernels are chosen.

use kiln_core::{Call, Row};

use crate::arithmetic::F32;
use crate::conv2d::{self, Conv2dParameters};
use crate::conv2d_grad::{self, Conv2dGradParameters};
use crate::gather::{Gathered, Pixels, Seen, Taps, Weights};
use crate::product::{Finish, Lines, Matrix, Outputs, Pitched, Product, multiply, scratch_bytes};
use crate::vector::{Plain, Vector};

/// float32 convolution.
pub const CONV2D_BLOCKED_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(98, 4, 0, check, run::<Plain>) };
/// Its gradient by the image.
pub const CONV2D_INPUT_GRAD_BLOCKED_F32: Row =
    // SAFETY: `check_input` proves that `run_input` stays inside the windows.
    unsafe { Row::new(99, 4, 0, check_input, run_input::<Plain>) };
/// Its gradient by the weights.
pub const CONV2D_WEIGHT_GRAD_BLOCKED_F32: Row =
    // SAFETY: `check_weight` proves that `run_weight` stays inside the windows.
    unsafe { Row::new(100, 4, 0, check_weight, run_weight::<Plain>) };

/// Elements of a product.
fn times(a: u64, b: u64) -> usize {
    usize::try_from(a.saturating_mul(b)).unwrap_or(usize::MAX)
}

/// The elements of a group's window: summed by the forward convolution, columns of the gradient by the weights.
fn filter(p: &Conv2dParameters) -> usize {
    times(p.spatial.kernel[0] as u64 * p.spatial.kernel[1] as u64, p.group_inputs as u64)
}

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return false };
    conv2d::check::<F32>(call)
        && p.group_inputs != 0
        && scratch_bytes(p.group_outputs as usize, filter(p)) <= call.scratch(0).len
}

#[inline(always)]
unsafe fn run<V: Vector>(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let s = &p.spatial;
    let (inputs, outputs, filter) = (p.group_inputs as usize, p.group_outputs as usize, filter(p));
    let width = s.output.width as usize;
    let rows = ((call.rows.begin as usize).wrapping_mul(width), (call.rows.end as usize).wrapping_mul(width));
    for group in 0..p.groups as usize {
        let first = group.wrapping_mul(outputs);
        let weights = call.input(1).ptr.cast::<f32>().cast_const().wrapping_add(first.wrapping_mul(filter));
        let mut finish = Finish::of(&p.epilogue, core::ptr::null());
        if call.input(2).len > 0 {
            finish.bias = call.input(2).ptr.cast::<f32>().cast_const().wrapping_add(first);
        }
        let (window, channels) = (call.input(0), (group.wrapping_mul(inputs), inputs));
        let right = Matrix::dense(weights, filter, outputs, true);
        let output = Pixels::new(call.output(0), &s.output, first);
        // SAFETY: `check` proved that the pixels under all windows of the rows lie inside the image, the weights of
        // all groups, the bias where there is one, and the rows' pixels inside their windows, and that scratch is
        // large enough.
        unsafe {
            if inputs == 1 {
                // What a tap sees of one channel lies side by side.
                let left = Seen { window, spatial: s, channels };
                let product = Product { left, right, output, columns: outputs, depth: filter, finish };
                multiply::<V, true, _, _, _>(&product, rows, call.scratch(0));
            } else {
                let left = Gathered { window, spatial: s, taps: Taps::Under, channels };
                let product = Product { left, right, output, columns: outputs, depth: filter, finish };
                multiply::<V, false, _, _, _>(&product, rows, call.scratch(0));
            }
        }
    }
}

/// Columns and depth of the gradient by the image.
fn input_sizes(p: &Conv2dGradParameters) -> (usize, usize) {
    let (inputs, outputs) = p.per_group();
    (inputs as usize, times(p.taps(), outputs as u64))
}

fn check_input(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dGradParameters>() else { return false };
    let (columns, depth) = input_sizes(p);
    conv2d_grad::check_input(call) && scratch_bytes(columns, depth) <= call.scratch(0).len
}

#[inline(always)]
unsafe fn run_input<V: Vector>(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dGradParameters>() else { return };
    let s = &p.spatial;
    let (inputs, outputs) = p.per_group();
    let (inputs, outputs) = (inputs as usize, outputs as usize);
    let (columns, depth) = input_sizes(p);
    let filter = times(p.taps(), inputs as u64);
    let width = s.input.width as usize;
    let rows = ((call.rows.begin as usize).wrapping_mul(width), (call.rows.end as usize).wrapping_mul(width));
    for group in 0..p.groups as usize {
        let first = group.wrapping_mul(outputs);
        let product = Product {
            left: Gathered { window: call.input(0), spatial: s, taps: Taps::Over, channels: (first, outputs) },
            right: Weights {
                start: call.input(1).ptr.cast::<f32>().cast_const().wrapping_add(first.wrapping_mul(filter)),
                inputs,
                outputs,
                filter,
            },
            output: Pixels::new(call.output(0), &s.input, group.wrapping_mul(inputs)),
            columns,
            depth,
            finish: Finish::NONE,
        };
        // SAFETY: `check_input` proved that the results of the windows over the rows' pixels lie inside the
        // gradient, the weights of all groups and the rows' pixels inside their windows, and that scratch is large
        // enough.
        unsafe { multiply::<V, false, _, _, _>(&product, rows, call.scratch(0)) };
    }
}

/// Columns and depth of the gradient by the weights.
fn weight_sizes(p: &Conv2dGradParameters) -> (usize, usize) {
    let (inputs, _) = p.per_group();
    let pixels = (p.spatial.output.height as u64).saturating_mul(p.spatial.output.width as u64);
    (times(p.taps(), inputs as u64), times(pixels, p.images as u64))
}

/// Columns and depth that scratch is needed for: either side of the product may be packed as the right one.
fn weight_scratch(p: &Conv2dGradParameters) -> (usize, usize) {
    let (columns, depth) = weight_sizes(p);
    (columns.max(p.per_group().1 as usize), depth)
}

fn check_weight(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dGradParameters>() else { return false };
    let (columns, depth) = weight_scratch(p);
    conv2d_grad::check_weight(call) && scratch_bytes(columns, depth) <= call.scratch(0).len
}

/// The gradient's pixels where they are not evenly apart, a line for each output channel.
struct Channels<'a> {
    pixels: Pixels<'a>,
}

impl Lines for Channels<'_> {
    #[inline(always)]
    unsafe fn pack<V: Vector>(
        &self,
        (first, count): (usize, usize),
        (from, n): (usize, usize),
        to: *mut f32,
        pitch: usize,
    ) {
        for i in 0..n {
            let pixel = self.pixels.row(from.wrapping_add(i)).wrapping_add(first);
            let to = to.wrapping_add(i);
            for line in 0..count {
                // SAFETY: the caller's promise.
                unsafe { to.wrapping_add(line.wrapping_mul(pitch)).write(pixel.wrapping_add(line).read()) };
            }
        }
    }
}

/// The weights of a group's output channels as an output whose rows are taps and input channels, and whose columns
/// are output channels.
struct Across {
    start: *mut f32,
    /// From one output channel to the next.
    filter: usize,
}

impl Outputs for Across {
    #[inline(always)]
    fn row(&self, row: usize) -> *mut f32 {
        self.start.wrapping_add(row)
    }

    #[inline(always)]
    fn step(&self) -> usize {
        self.filter
    }
}

#[inline(always)]
unsafe fn run_weight<V: Vector>(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dGradParameters>() else { return };
    let s = &p.spatial;
    let (inputs, outputs) = p.per_group();
    let (inputs, outputs) = (inputs as usize, outputs as usize);
    let (filter, depth) = weight_sizes(p);
    let scratch = call.scratch(0);
    let end = call.rows.end as usize;
    let mut row = call.rows.begin as usize;
    while row < end {
        // The rows of the call that belong to one group.
        let group = row.checked_div(outputs).unwrap_or(0);
        let first = group.wrapping_mul(outputs);
        let last = first.wrapping_add(outputs).min(end);
        let (begin, count) = (row.wrapping_sub(first), last.wrapping_sub(row));
        let channels = (group.wrapping_mul(inputs), inputs);
        let pixels = Pixels::new(call.input(1), &s.output, first);
        let start = call.output(0).ptr.cast::<f32>().wrapping_add(first.wrapping_mul(filter));
        let image = Gathered { window: call.input(0), spatial: s, taps: Taps::Under, channels };
        let output = Pitched { start, pitch: filter };
        let rows = (begin, begin.wrapping_add(count));
        // SAFETY: `check_weight` proved that all pixels of image and gradient lie inside their windows, and the
        // filters of the rows' channels inside the output, and that scratch is large enough for either side.
        unsafe {
            match pixels.pitch() {
                // An image of one channel is packed as it lies where its taps are the rows, and so is the gradient.
                Some(pitch) if inputs == 1 => {
                    let left = Seen { window: call.input(0), spatial: s, channels };
                    let right = Matrix { start: pixels.start().wrapping_add(begin), down: pitch, right: 1 };
                    let output = Across { start: start.wrapping_add(begin.wrapping_mul(filter)), filter };
                    let product = Product { left, right, output, columns: count, depth, finish: Finish::NONE };
                    multiply::<V, false, _, _, _>(&product, (0, filter), scratch);
                }
                Some(pitch) => {
                    let left = Matrix { start: pixels.start(), down: pitch, right: 1 };
                    let product = Product { left, right: image, output, columns: filter, depth, finish: Finish::NONE };
                    multiply::<V, true, _, _, _>(&product, rows, scratch);
                }
                None => {
                    let left = Channels { pixels };
                    let product = Product { left, right: image, output, columns: filter, depth, finish: Finish::NONE };
                    multiply::<V, false, _, _, _>(&product, rows, scratch);
                }
            }
        }
        row = last;
    }
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{DType, TargetId};
    use kiln_ops::OpError;

    use super::*;
    use crate::table::{Direction, Kernel, Operation};
    use crate::vector::native;

    /// Columns below which most of a tile would be idle.
    const FEWEST: usize = 3;

    /// A kernel like a plain one, for the columns that `sizes` finds, with scratch for those and the depth of `scratch`.
    macro_rules! blocked {
        ($row:ident, $name:literal, $plain:path, $check:ident, $run:ident, $sizes:ident, $scratch:ident) => {
            pub(crate) const $row: Kernel = Kernel {
                number: super::$row.number(),
                name: $name,
                row_name: stringify!($row),
                targets: &[TargetId::X86_64_V3],
                directions: &[Direction::Up],
                applies: |operation| $sizes(operation).is_some_and(|(columns, _)| columns >= FEWEST),
                prepare: |operation, emit| {
                    let (columns, depth) = $scratch(operation).ok_or(OpError::TooLarge)?;
                    emit.scratch(scratch_bytes(columns, depth) as u64);
                    ($plain.prepare)(operation, emit)
                },
                lag: |_, _, _| None,
                portable: super::$row,
                native: native!(super::$row, $check, $run),
                work: None,
            };
        };
    }

    blocked!(CONV2D_BLOCKED_F32, "conv2d_blocked_f32", conv2d::host::CONV2D_F32, check, run, forward, forward);
    blocked!(
        CONV2D_INPUT_GRAD_BLOCKED_F32,
        "conv2d_input_grad_blocked_f32",
        conv2d_grad::host::CONV2D_INPUT_GRAD_F32,
        check_input,
        run_input,
        by_input,
        by_input
    );
    blocked!(
        CONV2D_WEIGHT_GRAD_BLOCKED_F32,
        "conv2d_weight_grad_blocked_f32",
        conv2d_grad::host::CONV2D_WEIGHT_GRAD_F32,
        check_weight,
        run_weight,
        by_weights,
        scratch_by_weights
    );

    fn forward(operation: &Operation<'_>) -> Option<(usize, usize)> {
        let (_, p) = conv2d::host::parameters(operation, DType::F32)?;
        Some((p.group_outputs as usize, filter(&p)))
    }

    fn by_input(operation: &Operation<'_>) -> Option<(usize, usize)> {
        conv2d_grad::host::by_input(operation).map(|p| input_sizes(&p))
    }

    fn by_weights(operation: &Operation<'_>) -> Option<(usize, usize)> {
        conv2d_grad::host::by_weights(operation).map(|p| weight_sizes(&p))
    }

    fn scratch_by_weights(operation: &Operation<'_>) -> Option<(usize, usize)> {
        conv2d_grad::host::by_weights(operation).map(|p| weight_scratch(&p))
    }
}
