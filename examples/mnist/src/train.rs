//! Training, and what it goes on from.

use anyhow::Result;
use kiln::optim::{Adam, AdamConfig, Optimizer, schedule};
use kiln::{Counter, Device, Module, RandomState};

use crate::data::Images;
use crate::model::Cnn;

/// Images a step.
pub const BATCH: usize = 64;
/// The learning rate at first; it goes down to 0 along a cosine.
const LEARNING_RATE: f64 = 2e-3;
/// Images are moved by up to as many pixels, so that the network learns that their place does not matter.
const SHIFT: i32 = 1;

/// Everything that training goes on from: saved between epochs, and then the same as if it had never stopped.
#[derive(Module, Clone, Debug)]
pub struct Training {
    /// The network.
    pub model: Cnn,
    optimizer: Adam,
    /// Epochs done.
    pub epochs: Counter,
    seed: Counter,
    random: RandomState,
}

impl Training {
    /// Training from the beginning.
    pub fn new(seed: u64, device: &Device) -> Training {
        device.seed(seed);
        let model = Cnn::new(device);
        let optimizer = Adam::new(AdamConfig::default(), &model);
        Training { model, optimizer, epochs: Counter(0), seed: Counter(seed), random: device.random_state() }
    }

    /// Steps an epoch.
    pub fn steps(images: &Images) -> usize {
        images.len().div_ceil(BATCH)
    }

    /// One epoch of `epochs`; `step` is told the loss of each. Gives the mean loss.
    pub fn epoch(&mut self, images: &Images, epochs: u64, device: &Device, mut step: impl FnMut(f32)) -> Result<f32> {
        device.set_random_state(self.random);
        // Another order each epoch, which seed and epoch alone decide.
        let mut random = fastrand::Rng::with_seed(self.seed.0.wrapping_mul(1 << 20).wrapping_add(self.epochs.0));
        let mut order: Vec<usize> = (0..images.len()).collect();
        random.shuffle(&mut order);
        let steps = Training::steps(images) as u64;
        let mut sum = 0.0;
        for (number, batch) in order.chunks(BATCH).enumerate() {
            let shift = || [random.i32(-SHIFT..=SHIFT), random.i32(-SHIFT..=SHIFT)];
            let (pixels, digits) = images.batch(batch, shift, device);
            let loss = self.model.forward(&pixels).cross_entropy(&digits);
            let gradients = loss.backward()?;
            let rate = LEARNING_RATE * schedule::cosine(self.epochs.0 * steps + number as u64, epochs * steps, 0.0);
            self.optimizer.step(rate, &mut self.model, gradients)?;
            let loss = loss.into_scalar()?;
            sum += loss * batch.len() as f32;
            step(loss);
        }
        self.epochs.0 += 1;
        self.random = device.random_state();
        Ok(sum / images.len() as f32)
    }
}

/// The part of `images` that a network reads correctly.
pub fn accuracy(model: &Cnn, images: &Images, device: &Device) -> Result<f64> {
    const AT_ONCE: usize = 500;
    let model = model.valid();
    let numbers: Vec<usize> = (0..images.len()).collect();
    let mut right = 0;
    for batch in numbers.chunks(AT_ONCE) {
        let (pixels, _) = images.batch(batch, || [0, 0], device);
        let read = model.forward(&pixels).argmax(1).to_vec()?;
        right += read.iter().zip(images.digits(batch)).filter(|(read, digit)| **read == *digit).count();
    }
    Ok(right as f64 / images.len() as f64)
}
