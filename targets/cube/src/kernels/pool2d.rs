//! Pools and their gradients: a thread for each element of the result.

use cubecl::prelude::*;
use kiln_ops::{Activation, Pool2d};
use kiln_planner::backend::BackendError;

use crate::gpu::{Buffer, Gpu};

/// Which pool or gradient.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    /// Averages.
    Average,
    /// Maxima.
    Max,
    /// From an average's gradient to the image's.
    AverageGradient,
    /// From image and a maximum's gradient to the image's.
    MaxGradient,
    /// What lies in the second image where the first has its maxima.
    MaxPick,
}

/// A pool's sizes: image `[N, H, W, C]`, result `[N, OH, OW, C]`.
pub(crate) struct Pool {
    kind: Kind,
    clamped: bool,
    layout: Buffer,
    elements: usize,
}

// Places in the layout.
const C: usize = 0;
const H: usize = 1;
const W: usize = 2;
const OH: usize = 3;
const OW: usize = 4;
const KH: usize = 5;
const KW: usize = 6;
const STRIDE_H: usize = 7;
const STRIDE_W: usize = 8;
const PAD_TOP: usize = 9;
const PAD_LEFT: usize = 10;
const LOW: usize = 11;
const HIGH: usize = 12;

impl Pool {
    pub(crate) fn new(gpu: &Gpu, kind: Kind, pool: &Pool2d, [x, y]: [[u32; 4]; 2]) -> Result<Pool, BackendError> {
        let (low, high) = pool.activation.bounds();
        let layout = [
            x[3],
            x[1],
            x[2],
            y[1],
            y[2],
            pool.kernel[0],
            pool.kernel[1],
            pool.strides[0],
            pool.strides[1],
            pool.pads[0],
            pool.pads[1],
            low.to_bits(),
            high.to_bits(),
        ];
        let result = if matches!(kind, Kind::AverageGradient | Kind::MaxGradient) { x } else { y };
        let elements = result.iter().map(|&d| d as usize).product();
        let clamped = pool.activation != Activation::None;
        Ok(Pool { kind, clamped, layout: gpu.write_words(&layout)?, elements })
    }

    pub(crate) fn run(&self, gpu: &Gpu, inputs: &[&Buffer]) -> Result<Buffer, BackendError> {
        let output = gpu.empty(self.elements)?;
        let [x, ..] = inputs else { return Err(gpu.refused("pool2d", "it takes an input")) };
        if self.elements == 0 {
            return Ok(output);
        }
        // What takes one input is given it twice.
        let second = inputs.get(1).unwrap_or(x);
        let (count, dim) = gpu.threads(self.elements);
        let (client, layout) = (gpu.client(), self.layout.arg());
        match self.kind {
            Kind::AverageGradient => average_gradient::launch(client, count, dim, x.arg(), layout, output.arg()),
            Kind::MaxGradient => {
                max_gradient::launch(client, count, dim, x.arg(), second.arg(), layout, output.arg());
            }
            kind => {
                pool::launch(client, count, dim, x.arg(), second.arg(), layout, output.arg(), kind, self.clamped);
            }
        }
        Ok(output)
    }
}

#[cube(launch)]
fn pool(x: &[f32], from: &[f32], layout: &[u32], y: &mut [f32], #[comptime] kind: Kind, #[comptime] clamped: bool) {
    if ABSOLUTE_POS < y.len() {
        let i = ABSOLUTE_POS as u32;
        let c = i % layout[C];
        let ox = i / layout[C] % layout[OW];
        let oy = i / layout[C] / layout[OW] % layout[OH];
        let image = i / layout[C] / layout[OW] / layout[OH] * layout[H];
        let mut result = if comptime!(kind == Kind::Average) {
            let mut sum = 0.0f32;
            let mut count = 0u32;
            for ky in 0..layout[KH] {
                let iy = oy * layout[STRIDE_H] + ky - layout[PAD_TOP];
                for kx in 0..layout[KW] {
                    let ix = ox * layout[STRIDE_W] + kx - layout[PAD_LEFT];
                    if iy < layout[H] && ix < layout[W] {
                        sum += x[(((image + iy) * layout[W] + ix) * layout[C] + c) as usize];
                        count += 1;
                    }
                }
            }
            sum / f32::cast_from(count)
        } else if comptime!(kind == Kind::Max) {
            largest(x, layout, image, oy, ox, c)
        } else {
            from[maximum(x, layout, image, oy, ox, c)]
        };
        if comptime!(clamped) {
            let low = f32::reinterpret(layout[LOW]);
            let high = f32::reinterpret(layout[HIGH]);
            result = select(result < low, low, select(result > high, high, result));
        }
        y[ABSOLUTE_POS] = result;
    }
}

/// A window's largest element; NaN is passed over.
#[cube]
fn largest(x: &[f32], layout: &[u32], image: u32, oy: u32, ox: u32, c: u32) -> f32 {
    // Minus infinity, which is no literal.
    let mut word = 0xff80_0000u32;
    for ky in 0..layout[KH] {
        let iy = oy * layout[STRIDE_H] + ky - layout[PAD_TOP];
        for kx in 0..layout[KW] {
            let ix = ox * layout[STRIDE_W] + kx - layout[PAD_LEFT];
            if iy < layout[H] && ix < layout[W] {
                let next = x[(((image + iy) * layout[W] + ix) * layout[C] + c) as usize];
                if next > f32::reinterpret(word) {
                    word = u32::reinterpret(next);
                }
            }
        }
    }
    f32::reinterpret(word)
}

/// Where a window has its maximum, the first of several.
#[cube]
fn maximum(x: &[f32], layout: &[u32], image: u32, oy: u32, ox: u32, c: u32) -> usize {
    let mut best = 0u32;
    let mut value = 0.0f32;
    let mut any = false;
    for ky in 0..layout[KH] {
        let iy = oy * layout[STRIDE_H] + ky - layout[PAD_TOP];
        for kx in 0..layout[KW] {
            let ix = ox * layout[STRIDE_W] + kx - layout[PAD_LEFT];
            if iy < layout[H] && ix < layout[W] {
                let at = ((image + iy) * layout[W] + ix) * layout[C] + c;
                let next = x[at as usize];
                if !any || next > value {
                    best = at;
                    value = next;
                    any = true;
                }
            }
        }
    }
    best as usize
}

#[cube(launch)]
fn average_gradient(d: &[f32], layout: &[u32], x: &mut [f32]) {
    if ABSOLUTE_POS < x.len() {
        let i = ABSOLUTE_POS as u32;
        let c = i % layout[C];
        let ix = i / layout[C] % layout[W];
        let iy = i / layout[C] / layout[W] % layout[H];
        let n = i / layout[C] / layout[W] / layout[H];
        let mut sum = 0.0f32;
        for ky in 0..layout[KH] {
            let from_y = iy + layout[PAD_TOP] - ky;
            let oy = from_y / layout[STRIDE_H];
            for kx in 0..layout[KW] {
                let from_x = ix + layout[PAD_LEFT] - kx;
                let ox = from_x / layout[STRIDE_W];
                if oy < layout[OH]
                    && oy * layout[STRIDE_H] == from_y
                    && ox < layout[OW]
                    && ox * layout[STRIDE_W] == from_x
                {
                    // The taps of that window inside the image.
                    let rows = inside(oy * layout[STRIDE_H], layout[KH], layout[PAD_TOP], layout[H]);
                    let columns = inside(ox * layout[STRIDE_W], layout[KW], layout[PAD_LEFT], layout[W]);
                    let at = ((n * layout[OH] + oy) * layout[OW] + ox) * layout[C] + c;
                    sum += d[at as usize] / f32::cast_from(rows * columns);
                }
            }
        }
        x[ABSOLUTE_POS] = sum;
    }
}

/// How many taps of a window that begins at `start` of the padded image lie inside the image.
#[cube]
fn inside(start: u32, kernel: u32, pad: u32, size: u32) -> u32 {
    let first = select(start > pad, start, pad);
    let end = start + kernel;
    let last = select(end < pad + size, end, pad + size);
    select(last > first, last - first, 0u32)
}

#[cube(launch)]
fn max_gradient(image: &[f32], d: &[f32], layout: &[u32], x: &mut [f32]) {
    if ABSOLUTE_POS < x.len() {
        let i = ABSOLUTE_POS as u32;
        let c = i % layout[C];
        let ix = i / layout[C] % layout[W];
        let iy = i / layout[C] / layout[W] % layout[H];
        let n = i / layout[C] / layout[W] / layout[H];
        let mut sum = 0.0f32;
        for ky in 0..layout[KH] {
            let from_y = iy + layout[PAD_TOP] - ky;
            let oy = from_y / layout[STRIDE_H];
            for kx in 0..layout[KW] {
                let from_x = ix + layout[PAD_LEFT] - kx;
                let ox = from_x / layout[STRIDE_W];
                if oy < layout[OH]
                    && oy * layout[STRIDE_H] == from_y
                    && ox < layout[OW]
                    && ox * layout[STRIDE_W] == from_x
                {
                    let best = maximum(image, layout, n * layout[H], oy, ox, c);
                    if best == ABSOLUTE_POS {
                        let at = ((n * layout[OH] + oy) * layout[OW] + ox) * layout[C] + c;
                        sum += d[at as usize];
                    }
                }
            }
        }
        x[ABSOLUTE_POS] = sum;
    }
}
