//! Weights and biases: symmetric int8 with a scale for each output channel, and int32.

use kiln_planner::graph::Quant;

use super::QuantizeError;
use super::affine::LEAST_SCALE;

/// How much real outputs may exceed what the output's int8 can hold: 2^29 steps. Requantization of larger
/// ones would overflow where its multiplier is more than 1.
const MOST_STEPS: f64 = (1u64 << 29) as f64;

/// A layer with float32 weights: what is known of it and of its input.
pub(super) struct Layer<'a> {
    /// The weights' name.
    pub(super) name: &'a str,
    /// Weights, output channel outermost.
    pub(super) weights: &'a [f32],
    /// One for each output channel.
    pub(super) bias: Option<&'a [f32]>,
    /// How many output channels.
    pub(super) channels: usize,
    /// The input's scale and zero point.
    pub(super) input: (f32, i32),
}

/// Weights and bias as integers.
pub(super) struct Integers {
    pub(super) weights: Vec<u8>,
    pub(super) weights_quant: Quant,
    pub(super) bias: Option<(Vec<u8>, Quant)>,
}

impl Layer<'_> {
    fn channel(&self, index: usize) -> (&[f32], f64) {
        let each = self.weights.len() / self.channels.max(1);
        let weights = self.weights.get(index * each..(index + 1) * each).unwrap_or(&[]);
        let bias = self.bias.and_then(|bias| bias.get(index)).map_or(0.0, |&b| b.into());
        (weights, bias)
    }

    /// How far an input value can be from its zero point.
    fn reach(&self) -> f64 {
        let zero = f64::from(self.input.1);
        (127.0 - zero).max(zero + 128.0)
    }

    /// The least scale an output may have, so that no input whatever overflows in requantization.
    pub(super) fn least_output_scale(&self) -> f64 {
        let largest = self.reach() * f64::from(self.input.0);
        let most = (0..self.channels).map(|index| {
            let (weights, bias) = self.channel(index);
            bias.abs() + weights.iter().map(|w| f64::from(w.abs())).sum::<f64>() * largest
        });
        most.fold(0.0, f64::max) / MOST_STEPS
    }

    /// The integers for an output of this scale. The scale of a channel is its largest weight / 127, or
    /// more where the bias, or the largest sum that any input leads to, would not fit an int32.
    ///
    /// # Errors
    ///
    /// A scale would be larger than a float32.
    pub(super) fn integers(&self, output_scale: f32) -> Result<Integers, QuantizeError> {
        let too_large = || QuantizeError::TooLarge(self.name.to_owned());
        let (mut weights, mut scales) = (Vec::with_capacity(self.weights.len()), Vec::with_capacity(self.channels));
        let (mut biases, mut bias_scales) = (Vec::new(), Vec::with_capacity(self.channels));
        for index in 0..self.channels {
            let (of_channel, bias) = self.channel(index);
            let largest = of_channel.iter().fold(0f32, |most, w| most.max(w.abs()));
            let mut scale = match largest {
                // Nothing but a bias: a thousandth of an output's step is fine enough for it.
                0.0 => f64::from(output_scale) / f64::from(self.input.0) / 1024.0,
                _ => f64::from(largest) / 127.0,
            };
            loop {
                let narrow = scale.max(LEAST_SCALE) as f32;
                let bias_scale = self.input.0 * narrow;
                if !narrow.is_finite() || !bias_scale.is_finite() {
                    return Err(too_large());
                }
                let quantized = |w: &f32| (f64::from(*w) / f64::from(narrow)).round().clamp(-127.0, 127.0);
                let rounded = (bias / f64::from(bias_scale)).round();
                let most = rounded.abs() + of_channel.iter().map(|w| quantized(w).abs()).sum::<f64>() * self.reach();
                if most > f64::from(i32::MAX) {
                    scale *= (most / f64::from(i32::MAX)).max(1.01);
                    continue;
                }
                weights.extend(of_channel.iter().map(|w| quantized(w) as i8 as u8));
                biases.extend((rounded as i32).to_le_bytes());
                scales.push(narrow);
                bias_scales.push(bias_scale);
                break;
            }
        }
        let symmetric = |scales: Vec<f32>| Quant { zero_points: vec![0; scales.len()], scales, axis: 0 };
        let bias = self.bias.map(|_| (biases, symmetric(bias_scales)));
        Ok(Integers { weights, weights_quant: symmetric(scales), bias })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer<'a>(weights: &'a [f32], bias: Option<&'a [f32]>, channels: usize, input: (f32, i32)) -> Layer<'a> {
        Layer { name: "w", weights, bias, channels, input }
    }

    fn biases(integers: &Integers) -> Vec<i32> {
        let (data, _) = integers.bias.as_ref().unwrap();
        data.chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn each_channel_has_its_scale() {
        let weights = [127.0, -63.5, 1.0, 127.0 / 8.0, 0.0, -63.5 / 8.0].map(|w| w / 64.0);
        let integers = layer(&weights, Some(&[1.0, -0.5]), 2, (0.5, -128)).integers(0.1).unwrap();
        assert_eq!(integers.weights_quant.scales, [1.0 / 64.0, 1.0 / 512.0]);
        // -63.5 lies between two; ties go away from 0.
        assert_eq!(integers.weights.iter().map(|&w| w as i8).collect::<Vec<_>>(), [127, -64, 1, 127, 0, -64]);
        assert_eq!(biases(&integers), [128, -512]);
        assert_eq!(integers.bias.unwrap().1.scales, [1.0 / 128.0, 1.0 / 1024.0]);
    }

    #[test]
    fn a_channel_of_zeros_keeps_its_bias() {
        let integers = layer(&[0.0; 4], Some(&[3.0, 0.0]), 2, (0.5, 0)).integers(0.1).unwrap();
        assert_eq!(integers.weights, [0; 4]);
        for (bias, (scale, real)) in
            biases(&integers).iter().zip(integers.bias.unwrap().1.scales.iter().zip([3.0, 0.0]))
        {
            assert!((*bias as f32 * scale - real).abs() < 0.001 * 0.1, "{bias} * {scale}");
        }
    }

    #[test]
    fn sums_and_biases_fit_an_int32() {
        // A bias 2^40 times the product of input scale and largest weight.
        let (tiny, large) = ([1e-6f32, -1e-6], [1e6f32]);
        let integers = layer(&tiny, Some(&large), 1, (0.01, -128)).integers(5000.0).unwrap();
        let (bias, scale) = (biases(&integers)[0], integers.bias.unwrap().1.scales[0]);
        assert!((f64::from(bias) * f64::from(scale) / 1e6 - 1.0).abs() < 1e-6, "{bias} * {scale}");
        // Taps enough to overflow: 100,000 * 127 * 255 > 2^31.
        let wide = vec![1.0f32; 100_000];
        let integers = layer(&wide, None, 1, (1.0, -128)).integers(1e5).unwrap();
        let sum: i64 = integers.weights.iter().map(|&w| i64::from(w as i8) * 255).sum();
        assert!(sum <= i64::from(i32::MAX) && sum > i64::from(i32::MAX) / 2, "{sum}");
        assert!(integers.bias.is_none());
    }

    #[test]
    fn what_no_scale_holds_is_refused() {
        let error = layer(&[f32::MAX], Some(&[0.0]), 1, (1e5, 0)).integers(1.0);
        assert!(matches!(error, Err(QuantizeError::TooLarge(name)) if name == "w"));
    }

    #[test]
    fn outputs_may_not_be_too_fine() {
        // 100 * (1 + 2) * 255 at most, where calibration may have seen nothing but 0.
        let least = layer(&[1.0, -2.0], Some(&[100.0]), 1, (100.0, -128)).least_output_scale();
        assert_eq!(least, (100.0 + 100.0 * 3.0 * 255.0) / MOST_STEPS);
    }
}
