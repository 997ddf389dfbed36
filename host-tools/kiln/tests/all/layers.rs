//! Layers against numbers that PyTorch 1.13 gives.

use kiln::nn::{Activation, AvgPool2d, BatchNorm, Conv2d, Dropout, Flatten, LayerNorm, Linear, MaxPool2d};
use kiln::{ConvOptions, Device, Module, Tensor};

use crate::reference::Reference;

pub(crate) fn devices() -> [Device; 2] {
    [Device::new(Box::new(Reference::default())), Device::cpu()]
}

/// Within a hundred thousandth of the size of the numbers.
#[track_caller]
pub(crate) fn close<const D: usize>(tensor: &Tensor<D>, expected: &[f32]) {
    let found = tensor.to_vec().unwrap();
    let size = expected.iter().fold(1.0f32, |m, v| m.max(v.abs()));
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * size;
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(near), "{found:?}\nnot {expected:?}");
}

fn numbers(values: &[f32], device: &Device) -> Tensor<1> {
    Tensor::from_slice(values, [values.len()], device)
}

#[test]
fn linear() {
    for device in devices() {
        let mut layer = Linear::new(2, 3, &device);
        layer.weight = Tensor::from_floats([[1.0, 2.0], [3.0, -4.0], [0.5, 0.0]], &device).require_grad();
        layer.bias = Some(numbers(&[0.1, 0.2, 0.3], &device).require_grad());
        let x = Tensor::<3>::from_floats([[[1.0, -1.0]], [[2.0, 3.0]]], &device);
        let y = layer.forward(&x);
        assert_eq!(y.dims(), [2, 1, 3]);
        close(&y, &[-0.9, 7.2, 0.8, 8.1, -5.8, 1.3]);
        let gradients = y.sum().backward().unwrap();
        close(&layer.weight.grad(&gradients).unwrap(), &[3.0, 2.0, 3.0, 2.0, 3.0, 2.0]);
        close(&layer.bias.unwrap().grad(&gradients).unwrap(), &[2.0, 2.0, 2.0]);
    }
}

#[test]
fn conv2d() {
    for device in devices() {
        let weight: Vec<f32> = (0..16).map(|i| i as f32 / 10.0 - 0.7).collect();
        let image: Vec<f32> = (0..18).map(|i| i as f32 / 5.0 - 1.5).collect();
        let x = Tensor::<4>::from_slice(&image, [1, 3, 3, 2], &device);
        let options = ConvOptions { stride: [2, 2], padding: [1; 4], ..ConvOptions::default() };
        let mut layer = Conv2d::with_options([2, 2], [2, 2], options, &device);
        layer.weight = Tensor::from_slice(&weight, [2, 2, 2, 2], &device);
        layer.bias = Some(numbers(&[0.5, -0.25], &device));
        let y = layer.forward(&x);
        assert_eq!(y.dims(), [1, 2, 2, 2]);
        close(&y, &[0.65, -2.34, 1.08, -2.23, 0.6, 1.13, -1.14, 4.51]);

        let options = ConvOptions { dilation: [2, 2], padding: [1; 4], groups: 2, ..ConvOptions::default() };
        let mut grouped = Conv2d::with_options([2, 2], [2, 2], options, &device);
        grouped.weight = layer.weight.narrow(3, 0..1);
        grouped.bias = layer.bias;
        let y = grouped.forward(&x);
        assert_eq!(y.dims(), [1, 3, 3, 2]);
        let expected = [0.49, -0.04, 0.54, 0.19, 0.47, -0.1, 0.92, 0.53, 1.46, 1.35, 0.88, 0.41, 0.45, -0.16, 0.46];
        close(&y, &[&expected[..], &[-0.05, 0.43, -0.22]].concat());
    }
}

#[test]
fn batch_norm_trains_and_evaluates() {
    for device in devices() {
        let mut layer = BatchNorm::new(2, &device);
        layer.weight = numbers(&[1.5, 0.5], &device).require_grad();
        layer.bias = numbers(&[0.1, -0.2], &device).require_grad();
        let x = Tensor::<2>::from_floats([[1.0, -2.0], [3.0, 0.5], [-1.0, 4.0]], &device).require_grad();
        let y = layer.forward(&x);
        close(&y, &[0.1, -0.7756922, 1.9371139, -0.2677285, -1.7371138, 0.4434206]);
        close(&layer.running_mean.get(), &[0.1, 0.0833333]);
        close(&layer.running_var.get(), &[1.3, 1.8083333]);
        let weighed = &y * &Tensor::from_floats([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]], &device);
        let gradients = weighed.sum().backward().unwrap();
        let expected = [-1.8371139, 0.0065235, 0.9185534, -0.0111846, 0.9185604, 0.004661];
        close(&x.grad(&gradients).unwrap(), &expected);
        close(&layer.weight.grad(&gradients).unwrap(), &[-2.449485, 6.163293]);
        close(&layer.bias.grad(&gradients).unwrap(), &[9.0, 13.0]);

        let valid = layer.valid();
        let expected = [1.2840239, -0.9746193, 3.9151878, -0.0450761, -1.3471402, 1.2562842];
        close(&valid.forward(&x.detach()), &expected);
        // Evaluation leaves the statistics; images are normalized like rows.
        close(&valid.running_mean.get(), &[0.1, 0.0833333]);
        close(&valid.forward(&x.detach().reshape([1, 3, 1, 2])), &expected);
    }
}

#[test]
fn layer_norm() {
    for device in devices() {
        let mut layer = LayerNorm::new(3, &device);
        layer.weight = numbers(&[1.5, 0.5, 2.0], &device).require_grad();
        layer.bias = numbers(&[0.1, -0.2, 0.3], &device).require_grad();
        let x = Tensor::<2>::from_floats([[1.0, -2.0, 0.5], [3.0, 0.5, 1.0]], &device).require_grad();
        let y = layer.forward(&x);
        close(&y, &[1.4334974, -0.8984987, 1.3159981, 2.1830862, -0.6629081, -0.6258162]);
        let weighed = &y * &Tensor::from_floats([[1.0, 2.0, 3.0], [3.0, -4.0, 5.0]], &device);
        let gradients = weighed.sum().backward().unwrap();
        let expected = [-1.6899122, -0.3379894, 2.0279014, -1.1793007, -4.7172623, 5.8965626];
        close(&x.grad(&gradients).unwrap(), &expected);
        close(&layer.weight.grad(&gradients).unwrap(), &[5.0551705, 0.90927, -0.7905434]);
        close(&layer.bias.grad(&gradients).unwrap(), &[4.0, -2.0, 8.0]);
    }
}

#[test]
fn activations() {
    for device in devices() {
        let x = numbers(&[-2.0, -0.5, 0.0, 0.75, 3.0], &device);
        let rows = [
            (Activation::Relu, [0.0, 0.0, 0.0, 0.75, 3.0]),
            (Activation::Gelu, [-0.0455001, -0.1542688, 0.0, 0.5800295, 2.9959502]),
            (Activation::Sigmoid, [0.1192029, 0.3775407, 0.5, 0.6791787, 0.9525741]),
            (Activation::Tanh, [-0.9640276, -0.4621172, 0.0, 0.6351489, 0.9950548]),
        ];
        for (activation, expected) in rows {
            close(&activation.forward(&x), &expected);
        }
    }
}

#[test]
fn pools_and_flatten() {
    for device in devices() {
        let image: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let x = Tensor::<4>::from_slice(&image, [1, 4, 4, 1], &device);
        close(&MaxPool2d::new([2, 2]).forward(&x), &[5.0, 7.0, 13.0, 15.0]);
        let mean = AvgPool2d::new([2, 2]).forward(&x);
        close(&mean, &[2.5, 4.5, 10.5, 12.5]);
        assert_eq!(Flatten.forward(&mean).dims(), [1, 4]);
    }
}

#[test]
fn dropout_keeps_the_mean_and_draws_anew() {
    for device in devices() {
        device.seed(5);
        let x = Tensor::<1>::ones([4000], &device);
        let layer = Dropout::new(0.25);
        let (first, second) = (layer.forward(&x).to_vec().unwrap(), layer.forward(&x).to_vec().unwrap());
        assert_ne!(first, second);
        let dropped = first.iter().filter(|v| **v == 0.0).count();
        // Four standard deviations of the binomial distribution.
        assert!((dropped as f64 - 1000.0).abs() < 4.0 * 27.4, "{dropped}");
        assert!(first.iter().all(|v| *v == 0.0 || (v - 4.0 / 3.0).abs() < 1e-6));
    }
}

#[test]
fn initial_weights_are_bounded_as_pytorchs_are() {
    let device = Device::cpu();
    device.seed(1);
    let layer = Linear::new(64, 100, &device);
    let weights = layer.weight.to_vec().unwrap();
    let (low, high) = weights.iter().fold((0f32, 0f32), |(l, h), w| (l.min(*w), h.max(*w)));
    // 1 / sqrt(64), which 6400 numbers come near.
    assert!((-0.125..-0.124).contains(&low) && (0.124..0.125).contains(&high), "{low} {high}");
    let conv = Conv2d::new([4, 8], [3, 3], &device).weight.to_vec().unwrap();
    assert!(conv.iter().all(|w| w.abs() <= 1.0 / 6.0) && conv.iter().any(|w| w.abs() > 0.15));
    device.seed(1);
    assert_eq!(Linear::new(64, 100, &device).weight.to_vec().unwrap(), weights);
}
