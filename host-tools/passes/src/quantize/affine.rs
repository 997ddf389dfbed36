//! Scales and zero points of activations.

use kiln_planner::graph::Quant;

use super::Range;

/// The smallest scale that is given, 2^-60: the product of two, which a bias has, is then still a normal
/// float32.
pub(super) const LEAST_SCALE: f64 = 1.0 / (1u64 << 60) as f64;

/// The int8 values spread evenly over `range`, widened to take in 0, which one of them stands for
/// exactly. A range of nothing but 0 says nothing about a scale: it becomes 1. `None` where the scale would
/// not be a float32.
///
/// The zero point is rounded from whichever end loses less by it, as TFLite's
/// `GetAsymmetricQuantizationParams` does; up to half a step at one end can be cut off by that.
pub fn affine(range: Range) -> Option<Quant> {
    let (low, high) = (range.low.min(0.0), range.high.max(0.0));
    if low == high {
        return Some(Quant::per_tensor(1.0, 0));
    }
    let scale = ((high - low) / 255.0).max(LEAST_SCALE) as f32;
    if !scale.is_finite() {
        return None;
    }
    let wide = f64::from(scale);
    let (from_low, from_high) = (-128.0 - low / wide, 127.0 - high / wide);
    let error = |end: f64, offset: f64| offset.abs() + (end / wide).abs();
    let zero_point = if error(low, -128.0) < error(high, 127.0) { from_low } else { from_high };
    Some(Quant::per_tensor(scale, zero_point.round().clamp(-128.0, 127.0) as i32))
}

/// The nearest int8 for `real`, ties away from zero.
pub(super) fn nearest(real: f32, quant: &Quant) -> i8 {
    let (scale, zero_point) = (quant.view().scale(0), quant.view().zero_point(0));
    ((f64::from(real) / f64::from(scale)).round() + f64::from(zero_point)).clamp(-128.0, 127.0) as i8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(low: f64, high: f64) -> (f32, i32) {
        let quant = affine(Range { low, high }).unwrap();
        (quant.scales[0], quant.zero_points[0])
    }

    #[test]
    fn as_tflite_chooses_them() {
        // The ranges that TFLite's converter writes into models, and what it makes of them.
        assert_eq!(params(0.0, 255.0), (1.0, -128));
        assert_eq!(params(-127.5, 127.5), (1.0, -1));
        assert_eq!(params(0.0, 6.0), ((6.0 / 255.0) as f32, -128));
        assert_eq!(params(-1.0, 0.0), ((1.0 / 255.0) as f32, 127));
    }

    #[test]
    fn ranges_are_covered_and_zero_is_exact() {
        for (low, high) in [(0.0, 6.0), (-1.0, 1.0), (-3.7, 0.4), (2.0, 5.0), (-7.0, -2.0), (-1e30, 3e37), (0.0, 1e-7)]
        {
            let range = Range { low, high };
            let quant = affine(range).unwrap();
            assert_eq!(i32::from(nearest(0.0, &quant)), quant.zero_points[0]);
            let scale = f64::from(quant.scales[0]);
            for step in 0..=100 {
                let real = low + (high - low) * f64::from(step) / 100.0;
                let back = scale * f64::from(i32::from(nearest(real as f32, &quant)) - quant.zero_points[0]);
                // Half a step of rounding, and half a step that rounding the zero point cuts off an end.
                assert!((back - real).abs() <= scale * 1.001, "{real} in {low}..{high} became {back}");
            }
        }
    }

    #[test]
    fn ranges_without_width_and_beyond_float32() {
        assert_eq!(params(0.0, 0.0), (1.0, 0));
        assert_eq!(params(5.0, 5.0), ((5.0 / 255.0) as f32, -128));
        assert_eq!(params(-1e-40, 0.0), (LEAST_SCALE as f32, 127));
        let most = f64::from(f32::MAX);
        assert!(affine(Range { low: -most, high: most }).is_some());
        assert_eq!(affine(Range { low: 0.0, high: most * 256.0 }), None);
    }
}
