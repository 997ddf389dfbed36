//! Activations that convolutions, fully connected layers, pools and sums apply to their result.

/// A clamp applied to an operator's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub enum Activation {
    /// None.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `min(max(x, -1), 1)`.
    ReluN1To1,
}

impl Activation {
    /// Lower and upper bound in real numbers.
    pub const fn bounds(self) -> (f32, f32) {
        match self {
            Activation::None => (f32::NEG_INFINITY, f32::INFINITY),
            Activation::Relu => (0.0, f32::INFINITY),
            Activation::Relu6 => (0.0, 6.0),
            Activation::ReluN1To1 => (-1.0, 1.0),
        }
    }

    /// The bounds in a quantized type that holds `low..=high`: TFLite's
    /// `CalculateActivationRangeQuantized` (`zero_point + round(bound / scale)`, ties away from
    /// zero, within the type).
    pub fn quantized_bounds(self, scale: f32, zero_point: i32, low: i32, high: i32) -> (i32, i32) {
        let quantize = |real: f32| {
            let steps = real / scale;
            let half = if steps >= 0.0 { 0.5 } else { -0.5 };
            // Adding a half in double precision is exact for every float; the cast truncates and
            // saturates.
            zero_point.saturating_add((steps as f64 + half) as i32)
        };
        let (min, max) = self.bounds();
        let min = if min.is_finite() { quantize(min).max(low) } else { low };
        let max = if max.is_finite() { quantize(max).min(high) } else { high };
        (min, max)
    }

    /// Clamps a double; NaN passes through.
    pub fn apply_f64(self, x: f64) -> f64 {
        let (low, high) = self.bounds();
        if x < low as f64 {
            low as f64
        } else if x > high as f64 {
            high as f64
        } else {
            x
        }
    }

    /// Clamps a real number; NaN passes through.
    pub fn apply(self, x: f32) -> f32 {
        let (low, high) = self.bounds();
        if x < low {
            low
        } else if x > high {
            high
        } else {
            x
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_in_int8() {
        assert_eq!(Activation::Relu.quantized_bounds(0.1, -128, -128, 127), (-128, 127));
        assert_eq!(Activation::Relu6.quantized_bounds(0.1, -20, -128, 127), (-20, 40));
        assert_eq!(Activation::ReluN1To1.quantized_bounds(0.4, 3, -128, 127), (0, 6));
        assert_eq!(Activation::None.quantized_bounds(0.1, 7, -128, 127), (-128, 127));
    }
}
