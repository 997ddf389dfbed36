//! Convolution and its gradients, directly: a thread for each element of the result.

use cubecl::prelude::*;
use kiln_ops::{Activation, Conv2d};
use kiln_planner::backend::BackendError;

use super::LONG;
use crate::gpu::{Buffer, Gpu};
use crate::library;

/// Which of the three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Of image, weights and perhaps a bias.
    Forward,
    /// Of gradient and weights, to the image's.
    InputGradient,
    /// Of image and gradient, to the weights'.
    WeightGradient,
}

/// A convolution's sizes: image `[N, H, W, C]`, weights `[O, KH, KW, C / groups]`, result `[N, OH, OW, O]`.
pub(crate) struct Convolution {
    kind: Kind,
    clamped: bool,
    layout: Buffer,
    elements: usize,
    /// How many parts a gradient by the weights is the sum of.
    parts: usize,
}

/// How many rows of images and their windows a thread adds up for a gradient by weights, and how many such parts make
/// it: more where rows are many, but not more memory than is worth it.
fn weight_parts(w: [u32; 4], y: [u32; 4]) -> [usize; 2] {
    let [rows, columns] = [y[0] as usize * y[1] as usize, y[2] as usize + 1];
    let weights: usize = w.iter().map(|&d| d as usize).product();
    let most = (MOST_PARTIAL / weights.max(1)).clamp(1, LONG);
    let parts = (rows * columns).div_ceil(LONG).clamp(1, most).min(rows.max(1));
    let each = rows.div_ceil(parts).max(1);
    [each, rows.div_ceil(each).max(1)]
}

/// The most elements of all parts of a gradient by weights.
const MOST_PARTIAL: usize = 1 << 22;

/// The words of all parts of a gradient by weights of type `w` through a result of type `y`; none where there is one.
pub(crate) fn weight_scratch(w: [u32; 4], y: [u32; 4]) -> usize {
    let [_, parts] = weight_parts(w, y);
    if parts > 1 { parts * w.iter().map(|&d| d as usize).product::<usize>() } else { 0 }
}

/// How many rounds of its loops a thread takes for the gradient by weights of type `w` through a result of type `y`.
pub(crate) fn weight_rounds(w: [u32; 4], y: [u32; 4]) -> u64 {
    let [each, _] = weight_parts(w, y);
    each as u64 * (u64::from(y[2]) + 1)
}

// Places in the layout.
const H: usize = 1;
const W: usize = 2;
const C: usize = 3;
const OH: usize = 4;
const OW: usize = 5;
const O: usize = 6;
const KH: usize = 7;
const KW: usize = 8;
const PER_GROUP: usize = 9;
const STRIDE_H: usize = 10;
const STRIDE_W: usize = 11;
const DILATION_H: usize = 12;
const DILATION_W: usize = 13;
const PAD_TOP: usize = 14;
const PAD_LEFT: usize = 15;
/// Output channels of a group.
const GROUP: usize = 16;
const LOW: usize = 17;
const HIGH: usize = 18;
/// Rows of images of a part of a gradient by weights.
const ROWS: usize = 19;

impl Convolution {
    pub(crate) fn new(
        gpu: &Gpu,
        kind: Kind,
        conv: &Conv2d,
        [x, w, y]: [[u32; 4]; 3],
    ) -> Result<Convolution, BackendError> {
        let (low, high) = conv.activation.bounds();
        let [rows, parts] = weight_parts(w, y);
        let layout = [
            x[0],
            x[1],
            x[2],
            x[3],
            y[1],
            y[2],
            y[3],
            w[1],
            w[2],
            w[3],
            conv.strides[0],
            conv.strides[1],
            conv.dilations[0],
            conv.dilations[1],
            conv.pads[0],
            conv.pads[1],
            (w[0] / conv.groups.max(1)).max(1),
            low.to_bits(),
            high.to_bits(),
            rows as u32,
        ];
        let result = match kind {
            Kind::Forward => y,
            Kind::InputGradient => x,
            Kind::WeightGradient => w,
        };
        let elements = result.iter().map(|&d| d as usize).product();
        let clamped = conv.activation != Activation::None;
        Ok(Convolution { kind, clamped, layout: gpu.write_words(&layout)?, elements, parts })
    }

    /// Computes it; a bias is the third input.
    pub(crate) fn run(&self, gpu: &Gpu, inputs: &[&Buffer]) -> Result<Buffer, BackendError> {
        let parts = if self.kind == Kind::WeightGradient { self.parts } else { 1 };
        let output = gpu.empty(parts * self.elements)?;
        let [a, b, ..] = inputs else { return Err(gpu.refused("conv2d", "it takes two inputs")) };
        if self.elements == 0 {
            return Ok(output);
        }
        let (count, dim) = gpu.threads(parts * self.elements);
        let (client, layout) = (gpu.client(), self.layout.arg());
        match self.kind {
            Kind::Forward => {
                let bias = inputs.get(2);
                // Without a bias any buffer takes its place, unread.
                let (biased, bias) = (bias.is_some(), bias.unwrap_or(b).arg());
                forward::launch(client, count, dim, a.arg(), b.arg(), bias, layout, output.arg(), biased, self.clamped);
            }
            Kind::InputGradient => input_gradient::launch(client, count, dim, a.arg(), b.arg(), layout, output.arg()),
            Kind::WeightGradient => {
                let weights = self.elements as u32;
                weight_gradient::launch(client, count, dim, a.arg(), b.arg(), layout, output.arg(), weights);
                if parts > 1 {
                    return library::sum(gpu, &output, [1, parts, self.elements]);
                }
            }
        }
        Ok(output)
    }
}

#[cube(launch)]
fn forward(
    x: &[f32],
    w: &[f32],
    bias: &[f32],
    layout: &[u32],
    y: &mut [f32],
    #[comptime] biased: bool,
    #[comptime] clamped: bool,
) {
    if ABSOLUTE_POS < y.len() {
        let i = ABSOLUTE_POS as u32;
        let o = i % layout[O];
        let ox = i / layout[O] % layout[OW];
        let oy = i / layout[O] / layout[OW] % layout[OH];
        let n = i / layout[O] / layout[OW] / layout[OH];
        let per_group = layout[PER_GROUP];
        let first = o / layout[GROUP] * per_group;
        let mut sum = 0.0f32;
        for ky in 0..layout[KH] {
            // Before the image a coordinate is negative, and so larger than any.
            let iy = oy * layout[STRIDE_H] + ky * layout[DILATION_H] - layout[PAD_TOP];
            if iy < layout[H] {
                for kx in 0..layout[KW] {
                    let ix = ox * layout[STRIDE_W] + kx * layout[DILATION_W] - layout[PAD_LEFT];
                    if ix < layout[W] {
                        let at_x = ((n * layout[H] + iy) * layout[W] + ix) * layout[C] + first;
                        let at_w = ((o * layout[KH] + ky) * layout[KW] + kx) * per_group;
                        for k in 0..per_group {
                            sum += x[(at_x + k) as usize] * w[(at_w + k) as usize];
                        }
                    }
                }
            }
        }
        if comptime!(biased) {
            sum += bias[o as usize];
        }
        if comptime!(clamped) {
            let low = f32::reinterpret(layout[LOW]);
            let high = f32::reinterpret(layout[HIGH]);
            sum = select(sum < low, low, select(sum > high, high, sum));
        }
        y[ABSOLUTE_POS] = sum;
    }
}

#[cube(launch)]
fn input_gradient(d: &[f32], w: &[f32], layout: &[u32], x: &mut [f32]) {
    if ABSOLUTE_POS < x.len() {
        let i = ABSOLUTE_POS as u32;
        let c = i % layout[C];
        let ix = i / layout[C] % layout[W];
        let iy = i / layout[C] / layout[W] % layout[H];
        let n = i / layout[C] / layout[W] / layout[H];
        let per_group = layout[PER_GROUP];
        let k = c % per_group;
        let first = c / per_group * layout[GROUP];
        let mut sum = 0.0f32;
        for ky in 0..layout[KH] {
            // Where the window began, times the stride; negative ones are larger than any.
            let from_y = iy + layout[PAD_TOP] - ky * layout[DILATION_H];
            let oy = from_y / layout[STRIDE_H];
            if oy < layout[OH] && oy * layout[STRIDE_H] == from_y {
                for kx in 0..layout[KW] {
                    let from_x = ix + layout[PAD_LEFT] - kx * layout[DILATION_W];
                    let ox = from_x / layout[STRIDE_W];
                    if ox < layout[OW] && ox * layout[STRIDE_W] == from_x {
                        let at_d = ((n * layout[OH] + oy) * layout[OW] + ox) * layout[O];
                        for in_group in 0..layout[GROUP] {
                            let o = first + in_group;
                            let at_w = ((o * layout[KH] + ky) * layout[KW] + kx) * per_group + k;
                            sum += d[(at_d + o) as usize] * w[at_w as usize];
                        }
                    }
                }
            }
        }
        x[ABSOLUTE_POS] = sum;
    }
}

/// Parts `[parts, O, KH, KW, C / groups]` of the gradient.
#[cube(launch)]
fn weight_gradient(x: &[f32], d: &[f32], layout: &[u32], w: &mut [f32], weights: u32) {
    if ABSOLUTE_POS < w.len() {
        let part = ABSOLUTE_POS as u32 / weights;
        let i = ABSOLUTE_POS as u32 % weights;
        let per_group = layout[PER_GROUP];
        let k = i % per_group;
        let kx = i / per_group % layout[KW];
        let ky = i / per_group / layout[KW] % layout[KH];
        let o = i / per_group / layout[KW] / layout[KH];
        let c = o / layout[GROUP] * per_group + k;
        let rows = layout[0] * layout[OH];
        let from = part * layout[ROWS];
        let to = select(from + layout[ROWS] < rows, from + layout[ROWS], rows);
        let mut sum = 0.0f32;
        for row in from..to {
            let n = row / layout[OH];
            let iy = row % layout[OH] * layout[STRIDE_H] + ky * layout[DILATION_H] - layout[PAD_TOP];
            if iy < layout[H] {
                for ox in 0..layout[OW] {
                    let ix = ox * layout[STRIDE_W] + kx * layout[DILATION_W] - layout[PAD_LEFT];
                    if ix < layout[W] {
                        let at_x = ((n * layout[H] + iy) * layout[W] + ix) * layout[C] + c;
                        let at_d = (row * layout[OW] + ox) * layout[O] + o;
                        sum += x[at_x as usize] * d[at_d as usize];
                    }
                }
            }
        }
        w[ABSOLUTE_POS] = sum;
    }
}
