//! Gradients of recorded tensors.

use std::sync::atomic::Ordering;

use kiln::{Device, Distribution, Error, Int, Tensor, realize_all};

use crate::reference::Reference;

fn devices() -> [Device; 2] {
    [Device::new(Box::new(Reference::default())), Device::cpu()]
}

#[test]
fn gradients_end_at_parameters_and_skip_what_is_detached() {
    for device in devices() {
        let w = Tensor::<1>::from_slice(&[1.0, 2.0], [2], &device).require_grad();
        let x = Tensor::<1>::from_slice(&[3.0, 4.0], [2], &device);
        let loss = (&w * &x + w.detach() * 10.0).sum();
        let gradients = loss.backward().unwrap();
        assert_eq!(gradients.len(), 1);
        assert_eq!(w.grad(&gradients).unwrap().to_vec().unwrap(), [3.0, 4.0]);
        assert!(x.grad(&gradients).is_none());
        assert_eq!((&x * 2.0).sum().backward().err(), Some(Error::NoParameters));
        assert_eq!((&w * 2.0).backward().err(), Some(Error::NotScalar(vec![2])));
    }
}

#[test]
fn second_derivatives() {
    for device in devices() {
        // f = x^3: f' = 3 x^2, f'' = 6 x.
        let x = Tensor::<0>::full([], 2.0, &device).require_grad();
        let f = x.square() * x.clone();
        let first = x.grad(&f.backward().unwrap()).unwrap();
        let second = x.grad(&first.backward().unwrap()).unwrap();
        assert_eq!(first.into_scalar().unwrap(), 12.0);
        assert_eq!(second.into_scalar().unwrap(), 12.0);
    }
}

/// A small convolutional network's step as a user would write it.
fn step(
    device: &Device,
    w: &mut [Tensor<4>; 2],
    x: &Tensor<4>,
    classes: &Tensor<1, Int>,
    rate: f32,
    look: bool,
) -> f32 {
    let n = x.dims()[0];
    let hidden = x.conv2d(&w[0], None, Default::default()).relu().max_pool2d([2, 2], [2, 2], [0; 4]);
    let kept = Tensor::<4>::random(hidden.dims(), Distribution::Uniform, device).lower_elem(0.8).float() * (1.0 / 0.8);
    let scores = (hidden * kept).conv2d(&w[1], None, Default::default()).reshape([n, 3]);
    let loss = scores.cross_entropy(classes);
    if look {
        assert!(loss.to_string().parse::<f32>().unwrap().is_finite());
    }
    let gradients = loss.backward().unwrap();
    for w in w.iter_mut() {
        let gradient = w.grad(&gradients).unwrap();
        *w = (&*w - &gradient.mul_scalar(rate)).require_grad();
    }
    realize_all(&[&w[0], &w[1], &loss]).unwrap();
    loss.into_scalar().unwrap()
}

fn train(device: &Device, look: bool) -> (Vec<f32>, u64) {
    device.seed(3);
    let images = Tensor::<4>::random([6, 6, 6, 1], Distribution::Normal, device);
    images.realize().unwrap();
    let classes = Tensor::<1, Int>::from_slice(&[0, 1, 2, 0, 1, 2], [6], device);
    let mut w = [
        (Tensor::<4>::random([4, 3, 3, 1], Distribution::Normal, device) * 0.3).require_grad(),
        (Tensor::<4>::random([3, 2, 2, 4], Distribution::Normal, device) * 0.3).require_grad(),
    ];
    realize_all(&[&w[0], &w[1]]).unwrap();
    let (mut losses, mut plans) = (Vec::new(), 0);
    for number in 0..12 {
        // The last batch of an epoch is short.
        let n = if number % 3 == 2 { 2 } else { 6 };
        let rate = 0.1 / (1.0 + number as f32);
        losses.push(step(device, &mut w, &images.narrow(0, 0..n), &classes.narrow(0, 0..n), rate, look));
        if number == 2 {
            plans = device.plans_built();
        }
    }
    assert_eq!(device.plans_built(), plans, "plans were made after warm-up");
    (losses, plans)
}

#[test]
fn training_makes_its_plans_once_and_learns() {
    for device in devices() {
        let (losses, _) = train(&device, false);
        assert!(losses[9] < losses[0], "{losses:?}");
    }
}

#[test]
fn looking_at_the_loss_runs_nothing_twice_and_changes_nothing() {
    let run = |look| {
        let reference = Reference::default();
        let computed = reference.computed.clone();
        let (losses, plans) = train(&Device::new(Box::new(reference)), look);
        (losses, plans, computed.load(Ordering::Relaxed))
    };
    let ((losses, plans, computed), (looked, looked_plans, looked_computed)) = (run(false), run(true));
    assert_eq!(losses, looked);
    // The forward part is a plan of its own then, for each batch size.
    assert_eq!(looked_plans, plans + 2);
    // What has been computed once is read from memory; views of the batch alone are made again.
    assert!(looked_computed <= computed + 12 * 8, "{looked_computed} operators were computed instead of {computed}");
}

#[test]
fn the_cpu_agrees_with_the_reference() {
    let [reference, cpu] = devices();
    let ((a, _), (b, _)) = (train(&reference, false), train(&cpu, false));
    for (a, b) in a.iter().zip(&b) {
        assert!((a - b).abs() <= 1e-4 * a.abs().max(1.0), "{a} {b}");
    }
}
