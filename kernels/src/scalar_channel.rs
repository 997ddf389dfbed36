//! Output channels as planning packs them for the rows that finish sums with [`crate::scalar::finish`].

use crate::requantize;
use crate::scalar::{SUM_LIMIT, scaling};

/// A channel as it is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Channel<'a> {
    /// What its sum starts from.
    pub(crate) start: i32,
    /// Its weights; none if it gives one value.
    pub(crate) weights: &'a [u8],
    /// See [`scaling`].
    pub(crate) multiplier: i32,
    /// See [`scaling`].
    pub(crate) shift: u8,
}

impl<'a> Channel<'a> {
    /// A channel whose weights, less their zero point, are multiplied by any bytes; `constants` are start, multiplier and shift. `None`
    /// if its sums or its scale are not for [`crate::scalar::finish`]. One that gives the same value for any input, as training leaves
    /// behind with enormous biases and minute scales, needs no weights.
    pub(crate) fn new(
        constants: (i32, i32, i32),
        weights: &'a [u8],
        weight_zero: i32,
        output_zero: i32,
    ) -> Option<Channel<'a>> {
        Self::within(SUM_LIMIT, u8::MAX, constants, weights, weight_zero, output_zero)
    }

    /// The same with sums below `limit` and shifts up to `longest`.
    pub(crate) fn within(
        limit: i64,
        longest: u8,
        (start, multiplier, shift): (i32, i32, i32),
        weights: &'a [u8],
        weight_zero: i32,
        output_zero: i32,
    ) -> Option<Channel<'a>> {
        let sum = |least: i64, most: i64| {
            let product = |&w: &u8| match i64::from(w as i8) - i64::from(weight_zero) {
                w @ ..0 => w * most,
                w => w * least,
            };
            i64::from(start) + weights.iter().map(product).sum::<i64>()
        };
        let reach = [sum(-128, 127), sum(127, -128)];
        if reach.iter().all(|sum| sum.abs() < limit)
            && let Some((multiplier, shift)) = scaling(multiplier, shift)
            && shift <= longest
        {
            return Some(Channel { start, weights, multiplier, shift });
        }
        let values = reach.map(|sum| {
            let scaled = requantize::scale(i32::try_from(sum).ok()?, multiplier, shift);
            Some(requantize::narrow(scaled, output_zero, -128, 127))
        });
        match values {
            // Scaling that shifts no bits out is monotonic: what both ends give all between them give.
            [Some(a), Some(b)] if a == b && shift <= 0 => {
                let (multiplier, shift) = scaling(1 << 30, -2)?;
                Some(Channel { start: (i32::from(a) - output_zero) * 8, weights: &[], multiplier, shift })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_scales_decide() {
        let weights = [127, 0x80];
        let fine = Channel::new((5, 3 << 29, -4), &weights, 0, -3).unwrap();
        assert_eq!(fine, Channel { start: 5, weights: &weights, multiplier: 3 << 29, shift: 5 });
        // A scale of a half and above; sums, and a shift, beyond what is asked for.
        assert_eq!(Channel::new((5, 3 << 29, 0), &weights, 0, 0), None);
        let reach = 5 + 127 * 127 + 128 * 128;
        assert!(Channel::within(reach + 1, 5, (5, 3 << 29, -4), &weights, 0, 0).is_some());
        assert_eq!(Channel::within(reach, 5, (5, 3 << 29, -4), &weights, 0, 0), None);
        assert_eq!(Channel::within(reach + 1, 4, (5, 3 << 29, -4), &weights, 0, 0), None);
    }

    #[test]
    fn one_value_needs_no_weights() {
        let channel = Channel::new((1 << 30, 1 << 30, -25), &[127, 0x80], 0, -3).unwrap();
        assert_eq!(channel.weights, &[] as &[u8]);
        let epilogue = crate::arithmetic::Epilogue { input_zero: 0, output_zero: -3, low: -128, high: 127 };
        // 2^30 / 2 / 2^25, and the zero point.
        assert_eq!(crate::scalar::finish(channel.start, channel.multiplier, channel.shift, &epilogue), 16 - 3);
    }
}
