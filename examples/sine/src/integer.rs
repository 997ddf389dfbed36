//! The quantized network in plain integer arithmetic: what the int8 model must put out.
//!
//! Written from TFLite's quantization specification and sharing nothing with Kiln, so that the
//! model's folder tests Kiln instead of repeating it. A layer sums products in int32, scales by
//! `input scale * weight scale / output scale` as a 31-bit fraction and a power of two, rounding
//! after each of the two ("double rounding"), adds the zero point and clamps.

use crate::quantize::{IntegerLayer, IntegerModel};

/// The model's output for an input.
pub fn run(model: &IntegerModel, input: i8) -> i8 {
    let mut values = vec![i64::from(input)];
    let mut quantization = model.input;
    for layer in &model.layers {
        values = run_layer(layer, quantization.scale, quantization.zero_point, &values);
        quantization = layer.output;
    }
    values[0] as i8
}

fn run_layer(layer: &IntegerLayer, scale: f32, zero_point: i32, inputs: &[i64]) -> Vec<i64> {
    // TFLite multiplies the two scales in single precision where weights have one scale only.
    let factor = f64::from(scale * layer.weight_scale) / f64::from(layer.output.scale);
    let (fraction, exponent) = fraction(factor);
    let zero = i64::from(layer.output.zero_point);
    let low = if layer.relu { zero.max(-128) } else { -128 };
    let rows = layer.weights.chunks(layer.inputs).zip(&layer.biases);
    let output = |(row, bias): (&[i8], &i32)| {
        let products = row.iter().zip(inputs).map(|(w, x)| i64::from(*w) * (x - i64::from(zero_point)));
        let sum = i64::from(*bias) + products.sum::<i64>();
        let scaled = round_shift(high_multiply(sum << exponent.max(0), fraction), (-exponent).max(0));
        (scaled + zero).clamp(low, 127)
    };
    rows.map(output).collect()
}

/// A positive factor as `fraction / 2^31 * 2^exponent`, with the fraction in `2^30 .. 2^31`.
fn fraction(mut factor: f64) -> (i64, i32) {
    let mut exponent = 0;
    while factor >= 1.0 {
        factor /= 2.0;
        exponent += 1;
    }
    while factor < 0.5 {
        factor *= 2.0;
        exponent -= 1;
    }
    match (factor * (1i64 << 31) as f64).round() as i64 {
        // Rounded up to one.
        fraction if fraction == 1 << 31 => (fraction / 2, exponent + 1),
        fraction => (fraction, exponent),
    }
}

/// `a * fraction / 2^31`, to the nearest integer, halves up.
fn high_multiply(a: i64, fraction: i64) -> i64 {
    (a * fraction + (1 << 30)) >> 31
}

/// `a / 2^by`, to the nearest integer, halves away from zero.
fn round_shift(a: i64, by: i32) -> i64 {
    if by == 0 {
        return a;
    }
    a.signum() * ((a.abs() + (1 << (by - 1))) >> by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_where_the_specification_says() {
        assert_eq!([3, 1, -1, -3].map(|a| high_multiply(a, 1 << 30)), [2, 1, 0, -1]);
        assert_eq!([3, 1, -1, -3].map(|a| round_shift(a, 1)), [2, 1, -1, -2]);
        assert_eq!(round_shift(-7, 0), -7);
    }

    #[test]
    fn fractions_stand_for_their_factor() {
        assert_eq!(fraction(1.0), (1 << 30, 1));
        assert_eq!(fraction(0.75), (3 << 29, 0));
        assert_eq!(fraction(1.0 - 1e-16), (1 << 30, 1));
        let (fraction, exponent) = fraction(0.001);
        assert_eq!(exponent, -9);
        assert!((fraction as f64 / f64::from(1u32 << 31) / 512.0 - 0.001).abs() < 1e-12);
    }
}
