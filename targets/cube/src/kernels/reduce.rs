//! Reductions, and where the largest element is: a thread for each result. Sums of float32 come from the library.

use cubecl::prelude::*;
use kiln_planner::backend::BackendError;

use super::position;
use crate::gpu::{Buffer, Gpu};
use crate::library;

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    /// The largest float32, or NaN where there is one.
    MaxFloat,
    /// The smallest float32, or NaN where there is one.
    MinFloat,
    /// The sum of float32.
    SumFloat,
    /// The sum of int32, wrapped around.
    SumInteger,
    /// The largest int32.
    MaxInteger,
    /// The smallest int32.
    MinInteger,
}

/// What is longer is reduced in parts, each by a thread of its own, and then the parts: nothing waits for one thread,
/// and long sums of float32 lose less.
pub(crate) const LONG: usize = 4096;

/// A reduction of some axes.
pub(crate) struct Reduction {
    kind: Kind,
    layout: Buffer,
    rank: usize,
    /// How many results there are.
    elements: usize,
    /// How many parts make one, and how long each is.
    parts: usize,
    part: usize,
    /// That of the parts, where there are several; sums of float32 are the library's.
    rest: Option<Box<Reduction>>,
}

impl Reduction {
    /// The reduction to a tensor of these dimensions, whose axes have the strides `outer` in the input, of `inner`
    /// dimensions with strides.
    pub(crate) fn new(
        gpu: &Gpu,
        kind: Kind,
        outer: [&[u32]; 2],
        inner: [&[u32]; 2],
    ) -> Result<Reduction, BackendError> {
        let product = |dims: &[u32]| dims.iter().map(|&d| d as usize).product::<usize>();
        let (elements, count) = (product(outer[0]), product(inner[0]));
        let part = if count > LONG { LONG.max(count.isqrt() + 1) } else { count.max(1) };
        let parts = count.div_ceil(part).max(1);
        let rest = if parts > 1 && kind != Kind::SumFloat {
            let (each, apart) = ([elements as u32], [parts as u32]);
            Some(Box::new(Reduction::new(gpu, kind, [&each, &apart], [&apart, &[1]])?))
        } else {
            None
        };
        let layout = gpu.write_words(&[&[count as u32], outer[0], outer[1], inner[0], inner[1]].concat())?;
        Ok(Reduction { kind, layout, rank: outer[0].len(), elements, parts, part, rest })
    }

    pub(crate) fn run(&self, gpu: &Gpu, input: &Buffer) -> Result<Buffer, BackendError> {
        let output = gpu.empty(self.elements * self.parts)?;
        if self.elements > 0 {
            let (count, dim) = gpu.threads(self.elements * self.parts);
            let launch = match self.kind {
                Kind::MaxFloat | Kind::MinFloat => reduce_floats::launch,
                Kind::SumFloat => sum_floats::launch,
                _ => reduce_integers::launch,
            };
            let (parts, part) = (self.parts as u32, self.part as u32);
            let (input, layout) = (input.arg(), self.layout.arg());
            launch(gpu.client(), count, dim, input, layout, output.arg(), parts, part, self.kind, self.rank);
        }
        match &self.rest {
            Some(rest) => rest.run(gpu, &output),
            None if self.parts > 1 => library::sum(gpu, &output, [self.elements, self.parts, 1]),
            None => Ok(output),
        }
    }
}

/// The index of the largest element, the first of several. `layout`: how many elements there are along the axis and
/// how far apart, the output's dimensions, the strides of its axes in the input.
pub(crate) fn arg_max(
    gpu: &Gpu,
    integer: bool,
    input: &Buffer,
    layout: &Buffer,
    rank: usize,
    elements: usize,
) -> Result<Buffer, BackendError> {
    let output = gpu.empty(elements)?;
    if elements > 0 {
        let (count, dim) = gpu.threads(elements);
        largest::launch(gpu.client(), count, dim, input.arg(), layout.arg(), output.arg(), integer, rank);
    }
    Ok(output)
}

/// The first element that this thread reduces. `layout`: how many elements are reduced to one, the output's dimensions,
/// the strides of its axes in the input, the dimensions of what is reduced, the strides of those.
#[cube]
fn start(layout: &[u32], parts: u32, #[comptime] rank: usize) -> usize {
    position(layout, 1usize, comptime!(1 + rank), ABSOLUTE_POS / parts as usize, rank)
}

/// How far from there element `k` is.
#[cube]
fn inside(layout: &[u32], k: usize, #[comptime] rank: usize) -> usize {
    position(layout, comptime!(1 + 2 * rank), comptime!(1 + 3 * rank), k, rank)
}

/// The elements of this thread's part.
#[cube]
fn range(layout: &[u32], parts: u32, part: u32) -> (usize, usize) {
    let from = ABSOLUTE_POS as u32 % parts * part;
    let count = layout[0];
    let to = select(from + part < count, from + part, count);
    (from as usize, to as usize)
}

#[cube(launch)]
fn sum_floats(
    input: &[u32],
    layout: &[u32],
    output: &mut [u32],
    parts: u32,
    part: u32,
    #[comptime] _kind: Kind,
    #[comptime] rank: usize,
) {
    if ABSOLUTE_POS < output.len() {
        let start = start(layout, parts, rank);
        let (from, to) = range(layout, parts, part);
        let mut sum = 0.0f32;
        for k in from..to {
            sum += f32::reinterpret(input[start + inside(layout, k, rank)]);
        }
        output[ABSOLUTE_POS] = u32::reinterpret(sum);
    }
}

#[cube(launch)]
fn reduce_floats(
    input: &[u32],
    layout: &[u32],
    output: &mut [u32],
    parts: u32,
    part: u32,
    #[comptime] kind: Kind,
    #[comptime] rank: usize,
) {
    if ABSOLUTE_POS < output.len() {
        let start = start(layout, parts, rank);
        let (from, to) = range(layout, parts, part);
        // The bits of minus infinity and infinity, which are no literals.
        let first = match comptime!(kind) {
            Kind::MaxFloat => 0xff80_0000u32,
            _ => 0x7f80_0000u32,
        };
        let mut word = first.runtime();
        let mut nan = false;
        for k in from..to {
            let next = input[start + inside(layout, k, rank)];
            let value = f32::reinterpret(next);
            let best = f32::reinterpret(word);
            let better = match comptime!(kind) {
                Kind::MaxFloat => value > best,
                _ => value < best,
            };
            // Once it is NaN nothing is larger: as NumPy does.
            if value.is_nan() || (!nan && better) {
                word = next;
                nan = value.is_nan();
            }
        }
        output[ABSOLUTE_POS] = word;
    }
}

#[cube(launch)]
fn reduce_integers(
    input: &[u32],
    layout: &[u32],
    output: &mut [u32],
    parts: u32,
    part: u32,
    #[comptime] kind: Kind,
    #[comptime] rank: usize,
) {
    if ABSOLUTE_POS < output.len() {
        let start = start(layout, parts, rank);
        let (from, to) = range(layout, parts, part);
        let first = match comptime!(kind) {
            Kind::MaxInteger => 0x8000_0000u32,
            Kind::MinInteger => 0x7fff_ffffu32,
            _ => 0u32,
        };
        let mut result = i32::reinterpret(first.runtime());
        for k in from..to {
            let next = input[start + inside(layout, k, rank)];
            let value = i32::reinterpret(next);
            result = match comptime!(kind) {
                Kind::MaxInteger => select(value > result, value, result),
                Kind::MinInteger => select(value < result, value, result),
                _ => result + value,
            };
        }
        output[ABSOLUTE_POS] = u32::reinterpret(result);
    }
}

#[cube(launch)]
fn largest(input: &[u32], layout: &[u32], output: &mut [u32], #[comptime] integer: bool, #[comptime] rank: usize) {
    if ABSOLUTE_POS < output.len() {
        let start = position(layout, 2usize, comptime!(2 + rank), ABSOLUTE_POS, rank);
        let count = layout[0] as usize;
        let stride = layout[1] as usize;
        let mut best = 0usize;
        for k in 1..count {
            let next = input[start + k * stride];
            let word = input[start + best * stride];
            let larger = if comptime!(integer) {
                i32::reinterpret(next) > i32::reinterpret(word)
            } else {
                f32::reinterpret(next) > f32::reinterpret(word)
            };
            if larger {
                best = k;
            }
        }
        output[ABSOLUTE_POS] = best as u32;
    }
}
