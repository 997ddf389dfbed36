//! Random numbers from a counter: no state, the same on every machine and in any order.

use kiln_core::{DType, Shape, TensorType};

use crate::spatial::counted;
use crate::{Arg, ArgMut, OpError, Operator};

/// What random numbers are like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub enum Distribution {
    /// Evenly in `0 <= x < 1`, multiples of 2^-24.
    Uniform,
    /// The standard normal distribution, by the Box-Muller transform.
    Normal,
}

/// Random float32 numbers. The input is a key of four int32: the seed's two halves, a stream and a counter,
/// read as unsigned. Elements `4 i .. 4 i + 4` come from one block of Philox 4x32-10 (Salmon et al., "Parallel
/// random numbers: as easy as 1, 2, 3", 2011) with key `seed` and counter `(i low, i high, stream, counter)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Random {
    /// The output's shape.
    pub shape: Shape,
    /// What the numbers are like.
    pub distribution: Distribution,
}

/// Rounds of a block.
pub const PHILOX_ROUNDS: usize = 10;

/// One round of Philox 4x32.
#[inline(always)]
pub fn philox_round(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    const FACTORS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    let [first, second] = [counter[0] as u64 * FACTORS[0] as u64, counter[2] as u64 * FACTORS[1] as u64];
    [
        (second >> 32) as u32 ^ counter[1] ^ key[0],
        second as u32,
        (first >> 32) as u32 ^ counter[3] ^ key[1],
        first as u32,
    ]
}

/// The next round's key.
#[inline(always)]
pub fn philox_key(key: [u32; 2]) -> [u32; 2] {
    // The golden ratio and the square root of 3, less 1.
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])]
}

/// One block of Philox 4x32 with 10 rounds.
#[inline(always)]
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..PHILOX_ROUNDS {
        counter = philox_round(counter, key);
        key = philox_key(key);
    }
    counter
}

/// Four numbers of the distribution from a block.
#[inline(always)]
pub fn numbers(block: [u32; 4], distribution: Distribution) -> [f32; 4] {
    let unit = |bits: u32| (bits >> 8) as f32 / (1u32 << 24) as f32;
    match distribution {
        Distribution::Uniform => block.map(unit),
        Distribution::Normal => {
            let pair = |a: u32, b: u32| {
                // In (0, 1], so that the logarithm is finite.
                let radius = libm::sqrtf(-2.0 * libm::logf(1.0 - unit(a)));
                let angle = core::f32::consts::TAU * unit(b);
                [radius * libm::cosf(angle), radius * libm::sinf(angle)]
            };
            let ([a, b], [c, d]) = (pair(block[0], block[1]), pair(block[2], block[3]));
            [a, b, c, d]
        }
    }
}

impl Operator for Random {
    const NAME: &'static str = "random";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [key] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        if key.dtype != DType::I32 {
            return Err(OpError::DType(0, key.dtype));
        }
        if key.shape.dims() != [4] {
            return Err(OpError::Mismatch("elements of a key and 4", key.shape.elements().unwrap_or(u64::MAX), 4));
        }
        Ok(TensorType::new(DType::F32, counted(self.shape.dims())?))
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [key] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let [low, high, stream, counter] = core::array::from_fn(|i| key.i32(i) as u32);
        for block in 0..(y.elements() as u64).div_ceil(4) {
            let bits = philox([block as u32, (block >> 32) as u32, stream, counter], [low, high]);
            for (lane, value) in numbers(bits, self.distribution).into_iter().enumerate() {
                // Beyond the last element nothing is stored.
                y.set_f32(block as usize * 4 + lane, value);
            }
        }
        Ok(())
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        _: &mut B,
        _: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        Ok(crate::build::gradients([None]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;

    /// Known answers of the generator's authors.
    #[test]
    fn blocks_are_the_authors() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(philox(counter, [0xa409_3822, 0x299f_31d0]), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn moments_are_those_of_the_distribution() {
        let ty = TensorType::new(DType::I32, Shape::new(&[4]).unwrap());
        let key: Vec<u8> = [7i32, 0, 1, 0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let quant = QuantRef::default();
        for (distribution, mean, variance) in
            [(Distribution::Uniform, 0.5, 1.0 / 12.0), (Distribution::Normal, 0.0, 1.0)]
        {
            let op = Random { shape: Shape::new(&[99_999]).unwrap(), distribution };
            let out_ty = op.output(&[ty]).unwrap();
            let mut out = vec![0; 399_996];
            op.reference(&[Arg { ty, quant, data: &key }], &mut ArgMut { ty: out_ty, quant, data: &mut out }).unwrap();
            let values: Vec<f64> = out.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap()) as f64).collect();
            let n = values.len() as f64;
            let found = values.iter().sum::<f64>() / n;
            let spread = values.iter().map(|v| (v - found).powi(2)).sum::<f64>() / n;
            assert!((found - mean).abs() < 0.01 && (spread - variance).abs() < 0.02 * variance, "{found} {spread}");
        }
    }
}
