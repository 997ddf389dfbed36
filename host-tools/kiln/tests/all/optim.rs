//! Optimizers against numbers that PyTorch 1.13 gives.

use kiln::optim::{Adam, AdamConfig, AdamW, Optimizer, Sgd, SgdConfig};
use kiln::{Device, Gradients, Module, Tensor};

use crate::layers::{close, devices};

#[derive(Module, Clone, Debug)]
struct Two {
    w: Tensor<1>,
    b: Tensor<2>,
    untouched: Tensor<1>,
}

fn two(device: &Device) -> Two {
    Two {
        w: Tensor::from_floats([1.0, -2.0, 0.5], device).require_grad(),
        b: Tensor::from_floats([[0.3, -0.1]], device).require_grad(),
        untouched: Tensor::from_floats([9.0], device).require_grad(),
    }
}

/// `sum(w^2 a) + sum(b^3) sum(w)`.
fn loss(two: &Two) -> Tensor<0> {
    let a = Tensor::from_floats([1.0, 0.5, 2.0], two.w.device());
    (two.w.square() * a).sum() + (two.b.square() * two.b.clone()).sum() * two.w.sum()
}

/// Five steps at 0.1, 0.1 / 2, …; the first builds every plan.
fn five<O: Optimizer>(two: &mut Two, mut optimizer: O, clip: impl Fn(Gradients) -> Gradients) {
    let device = two.w.device().clone();
    let mut plans = 0;
    for step in 0..5 {
        let gradients = clip(loss(two).backward().unwrap());
        optimizer.step(0.1 / (1.0 + step as f64), two, &gradients).unwrap();
        assert!(two.w.is_realized() && two.b.is_realized());
        if step == 0 {
            plans = device.plans_built();
        }
    }
    assert_eq!((device.plans_built(), plans), (plans, 1));
    assert_eq!(two.untouched.to_vec().unwrap(), [9.0]);
}

fn check<O: Optimizer>(make: impl Fn(&Two) -> O, clip: impl Fn(Gradients) -> Gradients, w: [f32; 3], b: [f32; 2]) {
    for device in devices() {
        let mut two = two(&device);
        let optimizer = make(&two);
        five(&mut two, optimizer, &clip);
        close(&two.w, &w);
        close(&two.b, &b);
    }
}

#[test]
fn sgd() {
    let sgd = |momentum, nesterov, weight_decay| {
        move |two: &Two| Sgd::new(SgdConfig { momentum, nesterov, weight_decay }, two)
    };
    let no = |g| g;
    check(sgd(0.0, false, 0.0), no, [0.606983, -1.585786, 0.1671699], [0.3439352, -0.0957491]);
    check(sgd(0.9, false, 0.0), no, [0.2507256, -1.1938168, -0.1012238], [0.3949051, -0.0912166]);
    check(sgd(0.9, true, 0.05), no, [0.0795546, -0.9090943, -0.1201929], [0.4542969, -0.08406]);
}

#[test]
fn adam() {
    let no = |g| g;
    let plain = AdamConfig::default();
    check(|two| Adam::new(plain, two), no, [0.7724086, -1.7723663, 0.2741686], [0.5240038, 0.0859482]);
    let all = AdamConfig { beta1: 0.8, beta2: 0.95, epsilon: 1e-3, weight_decay: 0.05 };
    check(|two| Adam::new(all, two), no, [0.7728748, -1.7727919, 0.2751667], [0.5249478, 0.0567206]);
    let decay = AdamConfig { weight_decay: 0.05, ..plain };
    check(|two| AdamW::new(decay, two), no, [0.7620413, -1.7506164, 0.2695374], [0.5198234, 0.0864295]);
}

#[test]
fn clipping() {
    let sgd = |two: &Two| Sgd::new(SgdConfig::default(), two);
    let (w, b) = ([0.9333032, -1.9342438, 0.4349222], [0.3048361, -0.099471]);
    check(sgd, |g| g.clip_norm(0.5), w, b);
    let (w, b) = ([0.9086667, -1.9086667, 0.4086667], [0.3357071, -0.0964456]);
    check(sgd, |g| g.clip_value(0.4), w, b);
}

#[test]
fn the_loss_that_is_held_is_computed_with_the_step() {
    for device in devices() {
        let mut two = two(&device);
        let mut optimizer = Sgd::new(SgdConfig::default(), &two);
        let loss = loss(&two);
        optimizer.step(0.1, &mut two, loss.backward().unwrap()).unwrap();
        assert!(loss.is_realized());
        assert_eq!(device.runs(), 1);
    }
}

#[test]
fn a_parameter_in_two_places_stays_one() {
    for device in devices() {
        let w = Tensor::<1>::from_floats([1.0, 2.0], &device).require_grad();
        let mut tied = (w.clone(), w);
        let mut optimizer = Sgd::new(SgdConfig { momentum: 0.9, ..SgdConfig::default() }, &tied);
        for _ in 0..2 {
            let gradients = (&tied.0 * &tied.1).sum().backward().unwrap();
            assert_eq!(gradients.len(), 1);
            optimizer.step(0.1, &mut tied, &gradients).unwrap();
        }
        // g = 2 w: 1, then 1 - 0.2, then 0.8 - 0.1 (0.9 * 2 + 1.6).
        close(&tied.0, &[0.46, 0.92]);
        close(&tied.1, &[0.46, 0.92]);
    }
}
