//! From floating point to int8, by the rules TFLite's converter follows: weights symmetric with
//! one scale a tensor, activations by the range they take over the training set, biases in int32
//! under the product of both scales.

use crate::data::Sample;
use crate::network::{Layer, Network};

/// What integers of a tensor stand for: `real = scale * (value - zero_point)`.
#[derive(Clone, Copy, Debug)]
pub struct Quantization {
    /// Distance between neighbouring values.
    pub scale: f32,
    /// The value that stands for 0.
    pub zero_point: i32,
}

impl Quantization {
    /// The int8 values spread evenly over `low ..= high`, widened to take in 0, which must be exact.
    fn over(low: f64, high: f64) -> Quantization {
        let (low, high) = (low.min(0.0), high.max(0.0));
        let scale = ((high - low) / 255.0) as f32;
        let zero_point = (-128.0 - low / f64::from(scale)).round() as i32;
        Quantization { scale, zero_point: zero_point.clamp(-128, 127) }
    }

    /// The number that `value` stands for.
    pub fn real(self, value: i8) -> f64 {
        f64::from(self.scale) * f64::from(i32::from(value) - self.zero_point)
    }

    /// The value that comes closest to `real`.
    pub fn nearest(self, real: f64) -> i8 {
        ((real / f64::from(self.scale)).round() + f64::from(self.zero_point)).clamp(-128.0, 127.0) as i8
    }
}

/// A quantized layer.
pub struct IntegerLayer {
    /// Weights, one row an output; their zero point is 0.
    pub weights: Vec<i8>,
    /// Their scale.
    pub weight_scale: f32,
    /// Biases.
    pub biases: Vec<i32>,
    /// Their scale: that of the inputs times that of the weights.
    pub bias_scale: f32,
    /// How many inputs it has.
    pub inputs: usize,
    /// What its outputs stand for.
    pub output: Quantization,
    /// Whether ReLU follows.
    pub relu: bool,
}

/// The quantized network.
pub struct IntegerModel {
    /// What its input stands for.
    pub input: Quantization,
    /// Its layers.
    pub layers: Vec<IntegerLayer>,
    /// What its output stands for.
    pub output: Quantization,
}

/// Quantizes `network`, with ranges as they occur for `samples`.
pub fn quantize(network: &Network, samples: &[Sample]) -> IntegerModel {
    let mut ranges = vec![(0f64, 0f64); network.layers.len() + 1];
    for sample in samples {
        for (range, values) in ranges.iter_mut().zip(network.activations(sample.x)) {
            *range = values.iter().fold(*range, |(low, high), v| (low.min(*v), high.max(*v)));
        }
    }
    // The whole of the input's range, whatever the samples hit of it.
    ranges[0] = (0.0, crate::data::TAU);
    let values: Vec<Quantization> = ranges.iter().map(|(low, high)| Quantization::over(*low, *high)).collect();
    let last = network.layers.len();
    let layers = network.layers.iter().enumerate().map(|(i, l)| layer(l, values[i], values[i + 1], i + 1 < last));
    IntegerModel { input: values[0], layers: layers.collect(), output: values[last] }
}

fn layer(layer: &Layer, input: Quantization, output: Quantization, relu: bool) -> IntegerLayer {
    let largest = layer.weights.iter().fold(0.0, |m: f64, w| m.max(w.abs()));
    let weight_scale = (largest / 127.0) as f32;
    let bias_scale = input.scale * weight_scale;
    IntegerLayer {
        weights: layer.weights.iter().map(|w| (w / f64::from(weight_scale)).round() as i8).collect(),
        weight_scale,
        biases: layer.biases.iter().map(|b| (b / f64::from(bias_scale)).round() as i32).collect(),
        bias_scale,
        inputs: layer.inputs,
        output,
        relu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_covered_and_zero_is_exact() {
        for (low, high) in [(0.0, 6.0), (-1.0, 1.0), (-3.7, 0.4), (2.0, 5.0)] {
            let q = Quantization::over(low, high);
            assert_eq!(q.real(q.nearest(0.0)), 0.0);
            let half = f64::from(q.scale) * 0.501;
            for step in 0..=100 {
                let real = low + (high - low) * f64::from(step) / 100.0;
                // Rounding the zero point may cut off half a step at one end.
                assert!((q.real(q.nearest(real)) - real).abs() <= 2.0 * half, "{real} in {low}..{high}");
            }
        }
    }
}
