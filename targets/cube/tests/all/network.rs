//! The network of the example that reads digits, on two devices.

use kiln::optim::{Adam, AdamConfig, Optimizer, Sgd, SgdConfig};
use kiln::{Device, Error, Kind, Module, ModulePath, Tensor, Visitor, realize_all};

use crate::cases::noise;

#[path = "../../../../examples/mnist/src/model.rs"]
#[allow(unreachable_pub, reason = "it is public in its own crate")]
mod model;
use model::Cnn;

/// Images and digits, the same on every device.
pub(crate) fn batch(number: u64, images: usize, device: &Device) -> (Tensor<4>, Tensor<1, kiln::Int>) {
    let mut noise = noise(number + 1);
    let pixels: Vec<f32> = (0..images * 28 * 28).map(|_| noise().max(0.0) as f32).collect();
    let digits: Vec<i32> = (0..images).map(|i| ((i as u64 + number) % 10) as i32).collect();
    (Tensor::from_slice(&pixels, [images, 28, 28, 1], device), Tensor::from_slice(&digits, [images], device))
}

/// The same network on both devices, whose random numbers go on alike.
pub(crate) fn twins(gpu: &Device, host: &Device) -> Result<[Cnn; 2], Error> {
    host.seed(3);
    let model = Cnn::new(host);
    let twin = model.to_device(gpu)?;
    gpu.seed(4);
    host.seed(4);
    Ok([twin, model])
}

fn largest(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).map(|(got, want)| f64::from((got - want).abs())).fold(0.0, f64::max)
}

/// The largest difference of the scores, and that of the loss, of a forward pass with dropout.
pub(crate) fn forward(gpu: &Device, host: &Device) -> Result<[f64; 2], Error> {
    let pass = |model: &Cnn, device: &Device| -> Result<(Vec<f32>, f32), Error> {
        let (images, digits) = batch(0, 9, device);
        let scores = model.forward(&images);
        let loss = scores.cross_entropy(&digits);
        realize_all(&[&scores, &loss])?;
        Ok((scores.to_vec()?, loss.into_scalar()?))
    };
    let [twin, model] = twins(gpu, host)?;
    let ((scores, loss), (host_scores, host_loss)) = (pass(&twin, gpu)?, pass(&model, host)?);
    Ok([largest(&scores, &host_scores), f64::from((loss - host_loss).abs())])
}

/// Every parameter's numbers.
struct Numbers(Vec<f32>, Option<Error>);

impl Visitor for Numbers {
    fn parameter<const D: usize>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        match tensor.to_vec() {
            Ok(numbers) => self.0.extend(numbers),
            Err(error) => self.1 = Some(error),
        }
    }

    fn buffer<const D: usize, K: Kind>(&mut self, _: &ModulePath<'_>, _: &mut Tensor<D, K>) {}
}

fn numbers(mut model: Cnn) -> Result<Vec<f32>, Error> {
    let mut numbers = Numbers(Vec::new(), None);
    model.visit(&ModulePath::ROOT, &mut numbers);
    numbers.1.map_or(Ok(numbers.0), Err)
}

/// Which optimizer trains.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Update {
    Sgd,
    Adam,
}

/// Trains for some steps; gives the losses and the parameters.
pub(crate) fn train(
    mut model: Cnn,
    update: Update,
    steps: u64,
    images: usize,
    device: &Device,
    mut after: impl FnMut(u64),
) -> Result<(Vec<f32>, Vec<f32>), Error> {
    let mut adam = Adam::new(AdamConfig::default(), &model);
    let mut sgd = Sgd::new(SgdConfig { momentum: 0.9, ..SgdConfig::default() }, &model);
    let mut losses = Vec::new();
    for step in 0..steps {
        let (pixels, digits) = batch(step % 4, images, device);
        let loss = model.forward(&pixels).cross_entropy(&digits);
        let gradients = loss.backward()?;
        match update {
            Update::Sgd => sgd.step(0.05, &mut model, &gradients)?,
            Update::Adam => adam.step(2e-3, &mut model, &gradients)?,
        }
        losses.push(loss.into_scalar()?);
        drop((pixels, digits, gradients));
        after(step);
    }
    Ok((losses, numbers(model)?))
}

/// The largest differences of losses and of parameters after some steps of training on both devices.
pub(crate) fn training(gpu: &Device, host: &Device, update: Update, steps: u64) -> Result<[f64; 2], Error> {
    let [twin, model] = twins(gpu, host)?;
    let (losses, parameters) = train(twin, update, steps, 16, gpu, |_| {})?;
    let (host_losses, host_parameters) = train(model, update, steps, 16, host, |_| {})?;
    Ok([largest(&losses, &host_losses), largest(&parameters, &host_parameters)])
}
