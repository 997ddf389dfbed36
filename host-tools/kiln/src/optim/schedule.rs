//! Learning rates over time: numbers to multiply a learning rate by, given the number of steps (or epochs) done.

use std::f64::consts::PI;

/// 1, always.
pub fn constant(_done: u64) -> f64 {
    1.0
}

/// Times `factor` after every `every` steps; always 1 if `every` is 0.
pub fn step(done: u64, every: u64, factor: f64) -> f64 {
    done.checked_div(every).map_or(1.0, |times| factor.powf(times as f64))
}

/// From 1 down to `last` in `total` steps along half a cosine (Loshchilov and Hutter, 2017), `last` afterwards.
pub fn cosine(done: u64, total: u64, last: f64) -> f64 {
    if done >= total {
        return last;
    }
    last + (1.0 - last) * 0.5 * (1.0 + (PI * done as f64 / total as f64).cos())
}

/// In equal parts up to 1, which step number `steps` has: `1 / steps` for the first.
pub fn warm_up(done: u64, steps: u64) -> f64 {
    if done >= steps { 1.0 } else { (done + 1) as f64 / steps as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors() {
        assert_eq!([0, 9, 10, 25].map(|n| step(n, 10, 0.5)), [1.0, 1.0, 0.5, 0.25]);
        assert_eq!((step(7, 0, 0.5), constant(7)), (1.0, 1.0));
        assert_eq!([0, 100, 101].map(|n| cosine(n, 100, 0.1)), [1.0, 0.1, 0.1]);
        assert!((cosine(50, 100, 0.1) - 0.55).abs() < 1e-12);
        assert_eq!([0, 1, 3, 4, 9].map(|n| warm_up(n, 4)), [0.25, 0.5, 1.0, 1.0, 1.0]);
        assert_eq!((warm_up(0, 0), cosine(0, 0, 0.0)), (1.0, 0.0));
    }
}
