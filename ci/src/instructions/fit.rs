//! Least squares with no figure below zero: more work never takes fewer instructions, so a fit that says so would be
//! wrong for layers that it has not seen.

use kiln_kernels::workload::QUANTITIES;

/// Quantities and what they were counted to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The quantities.
    pub(super) quantities: [f64; QUANTITIES],
    /// Instructions.
    pub(super) instructions: f64,
}

impl Sample {
    /// By which fraction the figures are above what was counted.
    pub(super) fn error(&self, each: &[f64; QUANTITIES]) -> f64 {
        let sum: f64 = each.iter().zip(&self.quantities).map(|(each, quantity)| each * quantity).sum();
        sum / self.instructions - 1.0
    }
}

/// Sweeps over the figures at most; far fewer settle those of real kernels to four digits.
const SWEEPS: usize = 200_000;

/// The figures, none below zero, whose relative errors have the least sum of squares. Relative, so that small layers
/// count as much as large ones. Quantities that are zero in all samples get zero.
pub(super) fn fit(samples: &[Sample]) -> [f64; QUANTITIES] {
    // Normal equations of the samples divided by what was counted, each quantity scaled to length 1.
    let lengths: [f64; QUANTITIES] =
        std::array::from_fn(|i| samples.iter().map(|s| (s.quantities[i] / s.instructions).powi(2)).sum::<f64>().sqrt());
    let scaled = |s: &Sample, i: usize| {
        if lengths[i] > 0.0 { s.quantities[i] / s.instructions / lengths[i] } else { 0.0 }
    };
    let products: [[f64; QUANTITIES]; QUANTITIES] =
        std::array::from_fn(|i| std::array::from_fn(|j| samples.iter().map(|s| scaled(s, i) * scaled(s, j)).sum()));
    let targets: [f64; QUANTITIES] = std::array::from_fn(|i| samples.iter().map(|s| scaled(s, i)).sum());
    // Coordinate descent: each figure in turn to its best, not below zero, given the others.
    let mut figures = [0.0f64; QUANTITIES];
    for _ in 0..SWEEPS {
        let mut moved = 0.0f64;
        for i in (0..QUANTITIES).filter(|&i| lengths[i] > 0.0) {
            let others: f64 = (0..QUANTITIES).filter(|&j| j != i).map(|j| products[i][j] * figures[j]).sum();
            let best = ((targets[i] - others) / products[i][i]).max(0.0);
            moved = moved.max((best - figures[i]).abs());
            figures[i] = best;
        }
        if moved < 1e-9 {
            break;
        }
    }
    std::array::from_fn(|i| if lengths[i] > 0.0 { figures[i] / lengths[i] } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_again_and_never_negative() {
        let figures = [7.5, 0.0, 3.0, 20.0, 0.0, 0.0, 0.0, 0.0, 150.0];
        let sum = |q: &[f64; QUANTITIES]| q.iter().zip(&figures).map(|(a, b)| a * b).sum::<f64>();
        let mut samples = Vec::new();
        for outputs in [10.0, 80.0, 600.0] {
            for taps in [1.0f64, 9.0, 64.0] {
                let quantities =
                    [outputs * taps, 0.0, outputs * taps.sqrt(), outputs, outputs / 10.0, 0.0, 0.0, 0.0, 1.0];
                samples.push(Sample { quantities, instructions: sum(&quantities) });
            }
        }
        let found = fit(&samples);
        for sample in &samples {
            assert!(sample.error(&found).abs() < 1e-3, "{found:?}: {sample:?}");
        }
        assert!((found[0] - 7.5).abs() < 0.05, "{found:?}");
        assert_eq!(found[1], 0.0);
        // The best line through these falls; one that may not falls to nothing.
        let falling = [(1.0, 30.0), (2.0, 20.0), (3.0, 10.0)]
            .map(|(x, instructions)| Sample { quantities: [x, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], instructions });
        let found = fit(&falling);
        assert!(found[0] == 0.0 && found[8] > 10.0, "{found:?}");
        assert_eq!(fit(&[]), [0.0; QUANTITIES]);
    }
}
