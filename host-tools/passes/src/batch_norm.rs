//! Batch normalization, folded into the layer before it.

/// A trained batch normalization, one element a channel: `y = gamma (x - mean) / sqrt(variance + epsilon) +
/// beta` (Ioffe and Szegedy 2015, algorithm 2).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BatchNorm<'a> {
    /// Factor.
    pub gamma: &'a [f32],
    /// Added at the end.
    pub beta: &'a [f32],
    /// Mean over the training set.
    pub mean: &'a [f32],
    /// Variance over the training set.
    pub variance: &'a [f32],
    /// Keeps the divisor from 0.
    pub epsilon: f32,
}

/// Why a batch normalization can't be folded.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum BatchNormError {
    /// A parameter has another number of elements than there are channels.
    #[error("{what} has {have} elements for {channels} output channels")]
    Count {
        /// Which.
        what: &'static str,
        /// Its elements.
        have: usize,
        /// The channels.
        channels: usize,
    },
    /// Weights that do not divide by the channels.
    #[error("{0} weights do not divide by {1} output channels")]
    Weights(usize, usize),
    /// A variance and epsilon whose sum is not a positive number, or a parameter that is not finite.
    #[error("channel {0}: the variance plus epsilon is not a positive number, or a parameter is not finite")]
    Channel(usize),
}

/// The weights and bias of a convolution or fully connected layer that compute what the layer and a batch
/// normalization behind it compute: `w' = w s`, `b' = (b - mean) s + beta` with `s = gamma / sqrt(variance +
/// epsilon)`. There must be nothing between the two, no activation either. Weights are
/// `[O, ...]`, output channel outermost, as the graph has them for grouped and depthwise convolutions too.
/// No bias counts as zeros.
///
/// # Errors
///
/// The numbers of elements do not match, or a channel's factor is not finite.
pub fn fold_batch_norm(
    weights: &[f32],
    bias: Option<&[f32]>,
    norm: &BatchNorm<'_>,
) -> Result<(Vec<f32>, Vec<f32>), BatchNormError> {
    let channels = norm.gamma.len();
    let parameters = [("beta", norm.beta), ("mean", norm.mean), ("variance", norm.variance)];
    for (what, have) in parameters.into_iter().chain(bias.map(|b| ("bias", b))) {
        if have.len() != channels {
            return Err(BatchNormError::Count { what, have: have.len(), channels });
        }
    }
    if channels == 0 || !weights.len().is_multiple_of(channels) {
        return Err(BatchNormError::Weights(weights.len(), channels));
    }
    let each = weights.len() / channels;
    let (mut folded, mut biases) = (Vec::with_capacity(weights.len()), Vec::with_capacity(channels));
    for channel in 0..channels {
        let of = |values: &[f32]| values.get(channel).map_or(0.0, |&v| f64::from(v));
        let divisor = (of(norm.variance) + f64::from(norm.epsilon)).sqrt();
        let factor = of(norm.gamma) / divisor;
        let offset = (bias.map_or(0.0, of) - of(norm.mean)) * factor + of(norm.beta);
        if divisor <= 0.0 || ![divisor, factor, offset].iter().all(|v| v.is_finite()) {
            return Err(BatchNormError::Channel(channel));
        }
        let own = weights.iter().skip(channel * each).take(each);
        folded.extend(own.map(|&w| (f64::from(w) * factor) as f32));
        biases.push(offset as f32);
    }
    Ok((folded, biases))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::{DType, Shape, TensorType};
    use kiln_ops::{Activation, Arg, ArgMut, Conv2d, FullyConnected, Op, QuantRef};

    fn series(seed: u32, count: usize) -> Vec<f32> {
        let mut state = seed;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    fn computed(op: Op, x: (&[u32], &[f32]), w: (&[u32], &[f32]), b: &[f32]) -> Vec<f32> {
        let bytes = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let ty = |dims: &[u32]| TensorType::new(DType::F32, Shape::new(dims).unwrap());
        let types = [ty(x.0), ty(w.0), ty(&[b.len() as u32])];
        let data = [bytes(x.1), bytes(w.1), bytes(b)];
        let quant = QuantRef::default();
        let args: Vec<Arg<'_>> = types.iter().zip(&data).map(|(&ty, data)| Arg { ty, quant, data }).collect();
        let out = op.output(&types).unwrap();
        let mut y = vec![0; out.bytes().unwrap() as usize];
        op.reference(&args, &mut ArgMut { ty: out, quant, data: &mut y }).unwrap();
        y.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn the_layer_computes_what_layer_and_norm_did() {
        let conv =
            |groups| Conv2d { strides: [1, 1], dilations: [1, 1], pads: [1; 4], groups, activation: Activation::None };
        let dense = FullyConnected { keep_dims: false, activation: Activation::None };
        let cases: [(Op, &[u32], &[u32]); 3] = [
            (conv(1).into(), &[1, 5, 4, 3], &[6, 3, 3, 3]),
            (conv(6).into(), &[1, 5, 4, 6], &[6, 3, 3, 1]),
            (dense.into(), &[2, 7], &[6, 7]),
        ];
        let count = |dims: &[u32]| dims.iter().product::<u32>() as usize;
        let (gamma, beta, mean) = (series(1, 6), series(2, 6), series(3, 6));
        let variance: Vec<f32> = series(4, 6).iter().map(|v| v * v * 2.0).collect();
        let norm = BatchNorm { gamma: &gamma, beta: &beta, mean: &mean, variance: &variance, epsilon: 1e-3 };
        for (op, x, w) in cases {
            let (input, weights, bias) = (series(5, count(x)), series(6, count(w)), series(7, 6));
            let before = computed(op, (x, &input), (w, &weights), &bias);
            let want = before.iter().enumerate().map(|(i, &y)| {
                let c = i % 6;
                gamma[c] * (y - mean[c]) / (variance[c] + 1e-3).sqrt() + beta[c]
            });
            let (folded, biases) = fold_batch_norm(&weights, Some(&bias), &norm).unwrap();
            let got = computed(op, (x, &input), (w, &folded), &biases);
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() <= 1e-5 * (1.0 + want.abs()), "{got} should be {want}");
            }
            let (_, without) = fold_batch_norm(&weights, None, &norm).unwrap();
            let (_, zeros) = fold_batch_norm(&weights, Some(&[0.0; 6]), &norm).unwrap();
            assert_eq!(without, zeros);
        }
    }

    #[test]
    fn what_does_not_match_is_refused() {
        let one = [1.0f32];
        let norm = BatchNorm { gamma: &one, beta: &one, mean: &one, variance: &one, epsilon: 0.0 };
        let two = [1.0f32; 2];
        let short = BatchNorm { beta: &two, ..norm };
        let error = fold_batch_norm(&two, None, &short).unwrap_err();
        assert_eq!(error, BatchNormError::Count { what: "beta", have: 2, channels: 1 });
        let wide = BatchNorm { gamma: &two, beta: &two, mean: &two, variance: &two, epsilon: 0.0 };
        assert_eq!(fold_batch_norm(&[1.0; 3], None, &wide), Err(BatchNormError::Weights(3, 2)));
        for variance in [[0.0f32], [-1.0], [f32::NAN], [f32::INFINITY]] {
            let norm = BatchNorm { variance: &variance, ..norm };
            assert_eq!(fold_batch_norm(&one, None, &norm), Err(BatchNormError::Channel(0)));
        }
    }
}
