//! How two models that should say the same differ.

use std::collections::HashMap;

use kiln_planner::graph::ValueId;

use crate::values::top;

/// Signal and noise of a tensor over all samples.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Noise {
    signal: f64,
    noise: f64,
    absolute: f64,
    largest: f64,
    count: u64,
}

impl Noise {
    /// Adds the elements of one run: as they should be, and as they are.
    pub(crate) fn add(&mut self, want: &[f64], got: &[f64]) {
        for (want, got) in want.iter().zip(got) {
            let error = (got - want).abs();
            self.signal += want * want;
            self.noise += error * error;
            self.absolute += error;
            self.largest = self.largest.max(error);
            self.count += 1;
        }
    }

    /// The signal-to-quantization-noise ratio in decibels, 10 log10 (sum of squares / sum of squared errors);
    /// infinite without any error, `None` without any signal.
    pub(crate) fn decibels(&self) -> Option<f64> {
        (self.signal > 0.0).then(|| 10.0 * (self.signal / self.noise).log10())
    }

    /// The largest error.
    pub(crate) fn largest(&self) -> f64 {
        self.largest
    }

    /// The mean of all errors' sizes.
    pub(crate) fn mean(&self) -> f64 {
        self.absolute / self.count.max(1) as f64
    }
}

/// The noise of each tensor, by its number in the float32 graph.
pub(crate) type Layers = HashMap<ValueId, Noise>;

/// What two models said of the same samples.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Scores {
    /// Samples compared.
    pub(crate) samples: u64,
    /// Those of them whose class is known.
    pub(crate) labelled: u64,
    /// How many the first model got right.
    pub(crate) right_before: u64,
    /// How many the second got right.
    pub(crate) right_after: u64,
    /// How many they agree on.
    pub(crate) agree: u64,
    /// For each output.
    pub(crate) outputs: Vec<Noise>,
}

impl Scores {
    /// Adds a sample: the outputs of both, as numbers, and its class.
    pub(crate) fn add(&mut self, before: &[Vec<f64>], after: &[Vec<f64>], class: Option<usize>) {
        self.samples += 1;
        self.outputs.resize(before.len(), Noise::default());
        for (noise, (before, after)) in self.outputs.iter_mut().zip(before.iter().zip(after)) {
            noise.add(before, after);
        }
        let [before, after] = [before, after].map(|outputs| outputs.first().and_then(|output| top(output)));
        self.agree += u64::from(before == after);
        if class.is_some() {
            self.labelled += 1;
            self.right_before += u64::from(before == class);
            self.right_after += u64::from(after == class);
        }
    }

    /// The percentages that both got right; `None` where no class is known.
    pub(crate) fn accuracies(&self) -> Option<(f64, f64)> {
        let percent = |right: u64| 100.0 * right as f64 / self.labelled as f64;
        (self.labelled > 0).then(|| (percent(self.right_before), percent(self.right_after)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_in_decibels() {
        let mut noise = Noise::default();
        noise.add(&[3.0, -4.0], &[3.0, -4.5]);
        noise.add(&[0.0], &[0.0]);
        // 25 to 1/4 is a hundred.
        assert_eq!(noise.decibels(), Some(20.0));
        assert_eq!((noise.largest(), noise.mean()), (0.5, 0.5 / 3.0));
        let mut exact = Noise::default();
        exact.add(&[1.0], &[1.0]);
        assert_eq!(exact.decibels(), Some(f64::INFINITY));
        assert_eq!(Noise::default().decibels(), None);
    }

    #[test]
    fn classes_are_counted() {
        let mut scores = Scores::default();
        let output = |values: &[f64]| vec![values.to_vec()];
        scores.add(&output(&[0.1, 0.9]), &output(&[0.2, 0.8]), Some(1));
        scores.add(&output(&[0.1, 0.9]), &output(&[0.6, 0.4]), Some(1));
        scores.add(&output(&[0.1, 0.9]), &output(&[0.6, 0.4]), Some(0));
        scores.add(&output(&[0.1, 0.9]), &output(&[0.6, 0.4]), None);
        assert_eq!(scores.accuracies(), Some((200.0 / 3.0, 200.0 / 3.0)));
        assert_eq!((scores.samples, scores.labelled, scores.agree), (4, 3, 1));
        assert_eq!(Scores::default().accuracies(), None);
    }
}
