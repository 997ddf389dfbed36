//! Training steps on images of digits.

use anyhow::Result;
use kiln::optim::{Adam, AdamConfig, Optimizer};
use kiln::{ConvOptions, Device, Distribution, Int, Tensor, realize_all};
use mnist::model::Cnn;

/// Images of a step.
pub const BATCH: usize = 64;

/// A training step of a small network: two convolutions, each with ReLU and a max-pool, and a fully connected layer.
pub struct Plain {
    images: Tensor<4>,
    classes: Tensor<1, Int>,
    convolutions: [Tensor<4>; 2],
    weights: Tensor<2>,
}

impl Plain {
    pub fn new(device: &Device, batch: usize) -> Result<Plain> {
        let random = |dims: [usize; 4]| Tensor::<4>::random(dims, Distribution::Normal, device) * 0.1;
        let step = Plain {
            images: random([batch, 28, 28, 1]),
            classes: classes(batch, device),
            convolutions: [random([16, 3, 3, 1]).require_grad(), random([32, 3, 3, 16]).require_grad()],
            weights: (Tensor::<2>::random([10, 800], Distribution::Normal, device) * 0.1).require_grad(),
        };
        realize_all(&[&step.images, &step.classes, &step.convolutions[0], &step.convolutions[1], &step.weights])?;
        Ok(step)
    }

    pub fn run(&mut self) -> Result<()> {
        let n = self.classes.dims()[0];
        let mut h = self.images.clone();
        for w in &self.convolutions {
            h = h.conv2d(w, None, ConvOptions::default()).relu().max_pool2d([2, 2], [2, 2], [0; 4]);
        }
        let loss = h.reshape([n, 800]).matmul_transposed(&self.weights).cross_entropy(&self.classes);
        let gradients = loss.backward()?;
        for w in &mut self.convolutions {
            let d = w.grad(&gradients).expect("it is a parameter");
            *w = (&*w - &d.mul_scalar(0.01)).require_grad();
        }
        let d = self.weights.grad(&gradients).expect("it is a parameter");
        self.weights = (&self.weights - &d.mul_scalar(0.01)).require_grad();
        realize_all(&[&self.convolutions[0], &self.convolutions[1], &self.weights, &loss])?;
        anyhow::ensure!(loss.into_scalar()?.is_finite(), "the loss is not finite");
        Ok(())
    }
}

/// A training step of `examples/mnist`: its network, with biases and dropout, and Adam.
pub struct Example {
    images: Tensor<4>,
    classes: Tensor<1, Int>,
    network: Cnn,
    optimizer: Adam,
}

impl Example {
    pub fn new(device: &Device, batch: usize) -> Result<Example> {
        let network = Cnn::new(device);
        let images = Tensor::<4>::random([batch, 28, 28, 1], Distribution::Uniform, device);
        realize_all(&[&images])?;
        let optimizer = Adam::new(AdamConfig::default(), &network);
        Ok(Example { images, classes: classes(batch, device), network, optimizer })
    }

    pub fn run(&mut self) -> Result<()> {
        let loss = self.network.forward(&self.images).cross_entropy(&self.classes);
        let gradients = loss.backward()?;
        self.optimizer.step(2e-3, &mut self.network, &gradients)?;
        anyhow::ensure!(loss.into_scalar()?.is_finite(), "the loss is not finite");
        Ok(())
    }
}

fn classes(batch: usize, device: &Device) -> Tensor<1, Int> {
    let classes: Vec<i32> = (0..batch as i32).map(|i| i % 10).collect();
    Tensor::from_slice(&classes, [batch], device)
}
