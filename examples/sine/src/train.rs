//! Training on the squared error by Adam with weight decay (Loshchilov and Hutter, 2019).

use crate::data::{Random, Sample};
use crate::network::{Layer, Network};

/// Samples whose gradients are averaged before a step.
const BATCH: usize = 32;
/// Length of the first steps; it falls to nothing by the last epoch.
const RATE: f64 = 0.01;
/// How fast weights shrink by themselves: smaller ones lose less when they are quantized.
const DECAY: f64 = 0.005;

/// A network trained `epochs` times over `samples`.
pub fn train(samples: &[Sample], epochs: usize) -> Network {
    let mut random = Random(6);
    let mut network = Network::new(&mut random);
    let mut adam = Adam::new(&network);
    let mut order = samples.to_vec();
    for epoch in 0..epochs {
        random.shuffle(&mut order);
        let rate = RATE * (1.0 - epoch as f64 / epochs as f64);
        for batch in order.chunks(BATCH) {
            let gradient = gradient(&network, batch);
            adam.step(&mut network, &gradient, rate);
        }
    }
    network
}

/// Derivatives of the mean of `(output - y)^2 / 2` by every parameter, in the order of [`parameters`].
fn gradient(network: &Network, batch: &[Sample]) -> Vec<f64> {
    let mut sums: Vec<Vec<f64>> =
        network.layers.iter().flat_map(|l| [vec![0.0; l.weights.len()], vec![0.0; l.biases.len()]]).collect();
    for sample in batch {
        let activations = network.activations(sample.x);
        let mut error = vec![activations[network.layers.len()][0] - sample.y];
        for (index, layer) in network.layers.iter().enumerate().rev() {
            let x = &activations[index];
            for (o, e) in error.iter().enumerate() {
                for (i, x) in x.iter().enumerate() {
                    sums[2 * index][o * layer.inputs + i] += e * x;
                }
                sums[2 * index + 1][o] += e;
            }
            error = back(layer, &error, x);
        }
    }
    sums.concat().iter().map(|sum| sum / batch.len() as f64).collect()
}

/// The error of a layer's inputs: the transposed weights times that of its outputs, where the ReLU
/// before them let something through.
fn back(layer: &Layer, error: &[f64], inputs: &[f64]) -> Vec<f64> {
    let of_input = |(i, x): (usize, &f64)| {
        let all = error.iter().enumerate();
        let sum = all.fold(0.0, |sum, (o, e)| sum + e * layer.weights[o * layer.inputs + i]);
        if *x > 0.0 { sum } else { 0.0 }
    };
    inputs.iter().enumerate().map(of_input).collect()
}

/// All parameters: each layer's weights, then its biases.
fn parameters(network: &mut Network) -> impl Iterator<Item = &mut f64> {
    network.layers.iter_mut().flat_map(|l| l.weights.iter_mut().chain(&mut l.biases))
}

/// Running means of gradients and of their squares.
struct Adam {
    mean: Vec<f64>,
    square: Vec<f64>,
    /// `beta^t`: what the running means still lack.
    lacking: [f64; 2],
}

impl Adam {
    const BETA: [f64; 2] = [0.9, 0.999];

    fn new(network: &Network) -> Adam {
        let count = network.layers.iter().map(|l| l.weights.len() + l.outputs()).sum();
        Adam { mean: vec![0.0; count], square: vec![0.0; count], lacking: [1.0; 2] }
    }

    fn step(&mut self, network: &mut Network, gradient: &[f64], rate: f64) {
        let [b1, b2] = Adam::BETA;
        self.lacking = [self.lacking[0] * b1, self.lacking[1] * b2];
        let moments = self.mean.iter_mut().zip(&mut self.square);
        for ((p, g), (mean, square)) in parameters(network).zip(gradient).zip(moments) {
            *mean = b1 * *mean + (1.0 - b1) * g;
            *square = b2 * *square + (1.0 - b2) * g * g;
            let (mean, square) = (*mean / (1.0 - self.lacking[0]), *square / (1.0 - self.lacking[1]));
            *p -= rate * (mean / (square.sqrt() + 1e-8) + DECAY * *p);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_agree_with_finite_differences() {
        let mut network = Network::new(&mut Random(5));
        let (batch, _) = crate::data::split(7);
        let loss = |n: &Network| {
            batch.iter().map(|s| (n.run(s.x) - s.y) * (n.run(s.x) - s.y) / 2.0).sum::<f64>() / batch.len() as f64
        };
        let exact = gradient(&network, &batch);
        for (index, exact) in exact.iter().enumerate() {
            let mut at = |change: f64| {
                let place = parameters(&mut network).nth(index).unwrap();
                let before = std::mem::replace(place, 0.0);
                *place = before + change;
                let loss = loss(&network);
                *parameters(&mut network).nth(index).unwrap() = before;
                loss
            };
            let numeric = (at(1e-6) - at(-1e-6)) / 2e-6;
            assert!((numeric - exact).abs() < 1e-6, "parameter {index}: {exact}, numerically {numeric}");
        }
    }
}
