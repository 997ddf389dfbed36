//! From the trained network to what a board runs.

use anyhow::Result;
use kiln::{Device, Export, Module, Tensor, Trace};

use crate::data::{Images, SIDE};
use crate::model::Cnn;

/// Images that ranges are taken from.
const CALIBRATION: usize = 500;

/// How often each form of the network is right, on the test images.
#[derive(Clone, Copy, Debug)]
pub struct Accuracies {
    /// As it was trained, float32.
    pub float: f64,
    /// As it is written, int8.
    pub int8: f64,
}

/// The network as a graph: one image to the probabilities of the digits.
pub fn graph(model: &Cnn, device: &Device) -> Result<Export> {
    let image = Tensor::<4>::zeros([1, SIDE, SIDE, 1], device);
    let digits = model.valid().forward(&image).softmax();
    let mut graph = Trace::new("digits").entry("infer", &[("image", &image)], &[("digits", &digits)], &[])?.finish()?;
    graph.labels = (0..10).map(|digit| digit.to_string()).collect();
    Ok(Export::new(graph)?)
}

/// Quantizes the network by training images, and compares both forms on test images.
pub fn quantized(model: &Cnn, (training, test): (&Images, &Images), device: &Device) -> Result<(Export, Accuracies)> {
    let float = graph(model, device)?;
    let samples: Vec<Vec<f32>> = (0..training.len().min(CALIBRATION)).map(|i| training.pixels(i)).collect();
    let int8 = float.quantize(samples.iter().map(|pixels| vec![&pixels[..]]), &Default::default())?;
    let part = |network| Ok::<_, anyhow::Error>(right(network, test)? as f64 / test.len().max(1) as f64);
    let accuracies = Accuracies { float: part(&float)?, int8: part(&int8)? };
    Ok((int8, accuracies))
}

/// How many of `images` an exported network reads correctly.
pub fn right(network: &Export, images: &Images) -> Result<usize> {
    let mut runner = network.runner()?;
    let mut right = 0;
    for number in 0..images.len() {
        let scores = runner.run(&[&images.pixels(number)])?.concat();
        let best = (0..scores.len()).fold(0, |best, i| if scores[i] > scores[best] { i } else { best });
        right += usize::from(images.digits(&[number]) == [best as i32]);
    }
    Ok(right)
}
