//! Bools between the bytes that tensors hold and the words that kernels read.

use cubecl::prelude::*;
use kiln_planner::backend::BackendError;

use crate::gpu::{Buffer, Gpu};

/// A word for each of `elements` bytes.
pub(crate) fn unpack(gpu: &Gpu, packed: &Buffer, elements: usize) -> Result<Buffer, BackendError> {
    let output = gpu.empty(elements)?;
    if elements > 0 {
        let (count, dim) = gpu.threads(elements);
        unpack_bytes::launch(gpu.client(), count, dim, packed.arg(), output.arg());
    }
    Ok(output)
}

/// A byte for each word, four to a word, zeros behind the last.
pub(crate) fn pack(gpu: &Gpu, words: &Buffer) -> Result<Buffer, BackendError> {
    let output = gpu.empty(words.words().div_ceil(4))?;
    if words.words() > 0 {
        let (count, dim) = gpu.threads(output.words());
        pack_words::launch(gpu.client(), count, dim, words.arg(), output.arg());
    }
    Ok(output)
}

#[cube(launch)]
fn unpack_bytes(packed: &[u32], output: &mut [u32]) {
    if ABSOLUTE_POS < output.len() {
        let byte = (packed[ABSOLUTE_POS / 4] >> (ABSOLUTE_POS % 4 * 8) as u32) & 255u32;
        output[ABSOLUTE_POS] = u32::cast_from(byte != 0);
    }
}

#[cube(launch)]
fn pack_words(words: &[u32], output: &mut [u32]) {
    if ABSOLUTE_POS < output.len() {
        let mut word = 0u32;
        for lane in 0..4u32 {
            let at = ABSOLUTE_POS * 4 + lane as usize;
            if at < words.len() && words[at] != 0 {
                word |= 1u32 << (lane * 8);
            }
        }
        output[ABSOLUTE_POS] = word;
    }
}
