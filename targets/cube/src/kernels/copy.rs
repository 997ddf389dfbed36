//! Elements copied to where they belong: transposed, repeated, cut out, put together.

use cubecl::prelude::*;
use kiln_planner::backend::BackendError;

use super::position;
use crate::gpu::{Buffer, Gpu};

/// Copies elements of a shape from places in `input` to places in `output`. `layout`: how many elements, the first
/// one's place in the input and in the output, the dimensions, the strides in the input, those in the output.
pub(crate) fn copy(gpu: &Gpu, input: &Buffer, output: &Buffer, layout: &Buffer, rank: usize, elements: usize) {
    if elements > 0 {
        let (count, dim) = gpu.threads(elements);
        copy_words::launch(gpu.client(), count, dim, input.arg(), layout.arg(), output.arg(), rank);
    }
}

/// Memory of `words` words, all the same.
pub(crate) fn fill(gpu: &Gpu, word: u32, words: usize) -> Result<Buffer, BackendError> {
    let output = gpu.empty(words)?;
    if words > 0 {
        let (count, dim) = gpu.threads(words);
        fill_words::launch(gpu.client(), count, dim, output.arg(), word);
    }
    Ok(output)
}

#[cube(launch)]
fn copy_words(input: &[u32], layout: &[u32], output: &mut [u32], #[comptime] rank: usize) {
    if ABSOLUTE_POS < layout[0] as usize {
        let from = position(layout, 3usize, comptime!(3 + rank), ABSOLUTE_POS, rank);
        let to = position(layout, 3usize, comptime!(3 + 2 * rank), ABSOLUTE_POS, rank);
        output[layout[2] as usize + to] = input[layout[1] as usize + from];
    }
}

#[cube(launch)]
fn fill_words(output: &mut [u32], word: u32) {
    if ABSOLUTE_POS < output.len() {
        output[ABSOLUTE_POS] = word;
    }
}
