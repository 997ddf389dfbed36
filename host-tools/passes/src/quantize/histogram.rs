//! How often values of each size occur, in bounded memory and whatever their order.

/// Bits of a float32 that a bin does not look at: sign, exponent and six bits of the fraction are left, so
/// that a bin is at most 1/64 as wide as the values in it are large.
const IGNORED: u32 = 17;
/// Bins for the finite values of one sign.
const BINS: usize = (f32::INFINITY.to_bits() >> IGNORED) as usize;

/// Counts in bins that widen with the size of their values, as floating point does: outliers do not
/// coarsen what is known of the rest.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    low: f32,
    high: f32,
    count: u64,
    /// By magnitude, from 0 on; empty before the first value of that sign.
    positive: Vec<u64>,
    negative: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { low: f32::INFINITY, high: f32::NEG_INFINITY, count: 0, positive: Vec::new(), negative: Vec::new() }
    }
}

impl Histogram {
    /// Counts a finite value.
    pub(super) fn add(&mut self, value: f32) {
        self.low = self.low.min(value);
        self.high = self.high.max(value);
        self.count += 1;
        let side = if value < 0.0 { &mut self.negative } else { &mut self.positive };
        if side.is_empty() {
            side.resize(BINS, 0);
        }
        if let Some(bin) = side.get_mut((value.abs().to_bits() >> IGNORED) as usize) {
            *bin += 1;
        }
    }

    /// The least and the greatest value; `None` before the first.
    pub(super) fn extremes(&self) -> Option<(f64, f64)> {
        (self.count > 0).then_some((self.low.into(), self.high.into()))
    }

    /// The least and the greatest value when the given fraction of all values is cut off at either end, to
    /// the far edge of the bin that is reached; `None` before the first value.
    pub(super) fn without_tails(&self, fraction: f64) -> Option<(f64, f64)> {
        let (low, high) = self.extremes()?;
        // At least one value stays, whatever the fraction.
        let cut = ((fraction * self.count as f64) as u64).min((self.count - 1) / 2);
        // From either end inwards; bins have their far edge outwards on the side they start from, and are
        // left by their inner edge on the other.
        let up = outer(&self.negative).rev().map(|(edge, n)| (-edge, n)).chain(inner(&self.positive));
        let down = outer(&self.positive).rev().chain(inner(&self.negative).map(|(edge, n)| (-edge, n)));
        Some((beyond(up, cut).map_or(low, |edge| edge.max(low)), beyond(down, cut).map_or(high, |edge| edge.min(high))))
    }
}

/// The edge of the first bin at which more than `cut` values have passed.
fn beyond(mut bins: impl Iterator<Item = (f64, u64)>, cut: u64) -> Option<f64> {
    let mut passed = 0;
    let found = bins.find(|&(_, count)| {
        passed += count;
        passed > cut
    });
    found.map(|(edge, _)| edge)
}

/// A magnitude where bin `index` begins.
fn edge(index: usize) -> f64 {
    f64::from(f32::from_bits((index as u32) << IGNORED).min(f32::MAX))
}

/// Bins with the edge that is farther from 0.
fn outer(bins: &[u64]) -> impl DoubleEndedIterator<Item = (f64, u64)> + '_ {
    bins.iter().enumerate().map(|(index, &count)| (edge(index + 1), count))
}

/// Bins with the edge that is nearer to 0.
fn inner(bins: &[u64]) -> impl Iterator<Item = (f64, u64)> + '_ {
    bins.iter().enumerate().map(|(index, &count)| (edge(index), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = f32>) -> Histogram {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|value| histogram.add(value));
        histogram
    }

    #[test]
    fn tails_are_cut_by_count() {
        let histogram = of((-500..500).map(|i| i as f32 + 0.5));
        assert_eq!(histogram.extremes(), Some((-499.5, 499.5)));
        assert_eq!(histogram.without_tails(0.0), Some((-499.5, 499.5)));
        let (low, high) = histogram.without_tails(0.05).unwrap();
        // The 50 least and the 50 greatest are gone; the edge lies less than a bin of 4 away.
        assert!((-453.5..=-449.5).contains(&low) && (449.5..=453.5).contains(&high), "{low}..{high}");
        // All values of one sign, and a tail that reaches over 0.
        let (low, high) = of((100..200).map(|i| i as f32)).without_tails(0.1).unwrap();
        assert!((108.0..=110.0).contains(&low) && (189.0..=192.0).contains(&high), "{low}..{high}");
        let (low, _) = of((-5..95).map(|i| i as f32)).without_tails(0.2).unwrap();
        assert!((14.75..=15.0).contains(&low), "{low}");
    }

    #[test]
    fn outliers_do_not_coarsen_the_rest() {
        let mut values: Vec<f32> = (0..10_000).map(|i| i as f32 / 10_000.0).collect();
        values.push(1e30);
        let last = of(values.iter().copied()).without_tails(0.000_5).unwrap();
        assert_eq!(last, of(values.iter().rev().copied()).without_tails(0.000_5).unwrap());
        assert!(last.0 < 0.000_51 && (0.999..=1.016).contains(&last.1), "{last:?}");
    }

    #[test]
    fn zeros_and_the_ends_of_float32() {
        assert_eq!(Histogram::default().extremes(), None);
        assert_eq!(Histogram::default().without_tails(0.1), None);
        assert_eq!(of([0.0, -0.0, 0.0]).without_tails(0.2), Some((0.0, 0.0)));
        assert_eq!(of([3.0]).without_tails(0.49), Some((3.0, 3.0)));
        let ends = [f32::MIN, f32::MAX, f32::from_bits(1), -f32::from_bits(1)];
        assert_eq!(of(ends).without_tails(0.0), Some((f64::from(f32::MIN), f64::from(f32::MAX))));
        // Mostly zero, as behind ReLU: the lower end stays 0.
        let (low, high) = of((0..100).map(|i| if i < 60 { 0.0 } else { i as f32 })).without_tails(0.01).unwrap();
        assert!(low == 0.0 && (98.0..=99.0).contains(&high), "{low}..{high}");
    }
}
