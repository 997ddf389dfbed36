//! The training set: points of a sine wave.

/// Twice pi: the largest angle.
pub use std::f64::consts::TAU;

/// A point of the curve.
#[derive(Clone, Copy)]
pub struct Sample {
    /// The angle in radians, `0 ..= 2 pi`.
    pub x: f64,
    /// Its sine.
    pub y: f64,
}

/// Two sets of `count` points each, one to train on and one to test with.
pub fn split(count: usize) -> (Vec<Sample>, Vec<Sample>) {
    let mut random = Random(1);
    let mut set = || {
        let point = |_| {
            let x = TAU * random.unit();
            Sample { x, y: sine(x) }
        };
        (0..count).map(point).collect()
    };
    (set(), set())
}

/// The sine of an angle in `0 ..= 2 pi`, by its Taylor series. The standard library's differs in
/// the last digit from platform to platform, and training would carry that into the weights.
pub fn sine(x: f64) -> f64 {
    // sin x = -sin (x - pi), and the series around 0 converges fast up to pi.
    let x = x - TAU / 2.0;
    let mut term = x;
    let mut sum = x;
    for n in 1..=16 {
        let k = (2 * n) as f64;
        term *= -x * x / (k * (k + 1.0));
        sum += term;
    }
    -sum
}

/// Random numbers by splitmix64 (Steele, Lea and Flood, 2014): the same from the same seed.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0 .. 1`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number in `-1 .. 1`.
    pub fn signed(&mut self) -> f64 {
        2.0 * self.unit() - 1.0
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_the_sine() {
        for i in 0..=1000 {
            let x = TAU * i as f64 / 1000.0;
            assert!((sine(x) - x.sin()).abs() < 1e-12, "at {x}");
        }
    }

    #[test]
    fn sets_cover_the_range_and_differ() {
        let (a, b) = split(1000);
        assert!(a.iter().all(|s| (0.0..TAU).contains(&s.x)));
        assert!(a.iter().any(|s| s.x < 0.1) && a.iter().any(|s| s.x > 6.2));
        assert!(a.iter().zip(&b).all(|(a, b)| a.x != b.x));
    }
}
