//! The network in floating point: dense layers with ReLU between them.

use crate::data::Random;

/// Neurons from the input to the output.
const WIDTHS: [usize; 4] = [1, 16, 16, 1];

/// A dense layer.
pub struct Layer {
    /// Weights, one row an output.
    pub weights: Vec<f64>,
    /// Biases, one an output.
    pub biases: Vec<f64>,
    /// How many inputs it has.
    pub inputs: usize,
}

impl Layer {
    fn new(inputs: usize, outputs: usize, random: &mut Random) -> Layer {
        // He's initialization, with a uniform distribution of the same variance.
        let limit = (6.0 / inputs as f64).sqrt();
        let weights = (0..inputs * outputs).map(|_| limit * random.signed()).collect();
        Layer { weights, biases: vec![0.0; outputs], inputs }
    }

    /// How many outputs it has.
    pub fn outputs(&self) -> usize {
        self.biases.len()
    }

    /// Weights times `x` plus biases.
    fn run(&self, x: &[f64]) -> Vec<f64> {
        let rows = self.weights.chunks(self.inputs).zip(&self.biases);
        rows.map(|(row, bias)| row.iter().zip(x).fold(*bias, |sum, (w, x)| sum + w * x)).collect()
    }
}

/// The network.
pub struct Network {
    /// Its layers; all but the last are followed by ReLU.
    pub layers: Vec<Layer>,
}

impl Network {
    /// A network not trained yet.
    pub fn new(random: &mut Random) -> Network {
        let mut layers: Vec<Layer> = WIDTHS.windows(2).map(|w| Layer::new(w[0], w[1], random)).collect();
        // The first layer's inputs are all positive: let its kinks spread over the whole range.
        let first = &mut layers[0];
        for (bias, weight) in first.biases.iter_mut().zip(&first.weights) {
            *bias = -weight * crate::data::TAU * random.unit();
        }
        Network { layers }
    }

    /// The input and what every layer makes of it, after ReLU.
    pub fn activations(&self, x: f64) -> Vec<Vec<f64>> {
        let mut all = vec![vec![x]];
        for (index, layer) in self.layers.iter().enumerate() {
            let mut y = layer.run(&all[index]);
            if index + 1 < self.layers.len() {
                y.iter_mut().for_each(|y| *y = y.max(0.0));
            }
            all.push(y);
        }
        all
    }

    /// The output for an input.
    pub fn run(&self, x: f64) -> f64 {
        self.activations(x)[self.layers.len()][0]
    }
}
