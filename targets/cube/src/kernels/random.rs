//! Random numbers from a counter: the blocks are those of [`kiln_ops::philox`], bit for bit.

use cubecl::prelude::*;
use kiln_planner::backend::BackendError;

use crate::gpu::{Buffer, Gpu};

/// `elements` numbers for a key of four words.
pub(crate) fn random(gpu: &Gpu, key: &Buffer, elements: usize, normal: bool) -> Result<Buffer, BackendError> {
    let output = gpu.empty(elements)?;
    if elements > 0 {
        let (count, dim) = gpu.threads(elements.div_ceil(4));
        blocks::launch(gpu.client(), count, dim, key.arg(), output.arg(), normal);
    }
    Ok(output)
}

#[cube(launch)]
fn blocks(key: &[u32], output: &mut [f32], #[comptime] normal: bool) {
    let start = ABSOLUTE_POS * 4;
    if start < output.len() {
        let mut c0 = ABSOLUTE_POS as u32;
        // A buffer has fewer elements than the counter's low word counts.
        let mut c1 = 0u32;
        let mut c2 = key[2];
        let mut c3 = key[3];
        let mut k0 = key[0];
        let mut k1 = key[1];
        for _ in 0..10u32 {
            let high0 = c0.mul_hi(0xD251_1F53u32);
            let low0 = c0 * 0xD251_1F53u32;
            let high1 = c2.mul_hi(0xCD9E_8D57u32);
            let low1 = c2 * 0xCD9E_8D57u32;
            c0 = high1 ^ c1 ^ k0;
            c1 = low1;
            c2 = high0 ^ c3 ^ k1;
            c3 = low0;
            k0 += 0x9E37_79B9u32;
            k1 += 0xBB67_AE85u32;
        }
        if comptime!(normal) {
            pair(output, start, c0, c1);
            pair(output, start + 2, c2, c3);
        } else {
            put(output, start, unit(c0));
            put(output, start + 1, unit(c1));
            put(output, start + 2, unit(c2));
            put(output, start + 3, unit(c3));
        }
    }
}

#[cube]
fn put(output: &mut [f32], at: usize, value: f32) {
    if at < output.len() {
        output[at] = value;
    }
}

/// In `0 <= x < 1`.
#[cube]
fn unit(bits: u32) -> f32 {
    f32::cast_from(bits >> 8) / 16777216.0f32
}

/// Two normal numbers by the Box-Muller transform.
#[cube]
fn pair(output: &mut [f32], at: usize, a: u32, b: u32) {
    // In (0, 1], so that the logarithm is finite.
    let radius = (-2.0f32 * (1.0f32 - unit(a)).ln()).sqrt();
    let angle = 6.283_185_5f32 * unit(b);
    put(output, at, radius * angle.cos());
    put(output, at + 1, radius * angle.sin());
}
