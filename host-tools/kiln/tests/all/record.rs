//! What is recorded, planned, kept and forgotten.

use kiln::{Device, Distribution, Int, Tensor};

use crate::reference::Reference;

fn devices() -> [Device; 2] {
    [Device::new(Box::new(Reference::default())), Device::cpu()]
}

#[test]
fn nothing_runs_until_a_value_is_asked_for() {
    for device in devices() {
        let x = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
        let y = (&x + &x) * 3.0;
        assert!(!y.is_realized());
        assert_eq!((device.runs(), device.plans_built()), (0, 0));
        assert_eq!(y.to_vec().unwrap(), [6.0, 12.0, 18.0, 24.0]);
        assert_eq!(y.to_vec().unwrap(), [6.0, 12.0, 18.0, 24.0]);
        assert_eq!((device.runs(), device.plans_built()), (1, 1));
    }
}

#[test]
fn the_same_shape_of_computation_is_the_same_plan() {
    for device in devices() {
        let mut sums = Vec::new();
        for step in 0..20 {
            let x = Tensor::<1>::random([5], Distribution::Normal, &device);
            // Another number, another key of random numbers: inputs of one plan.
            let y = x.mul_scalar(step as f32).exp().sum();
            sums.push(y.into_scalar().unwrap());
        }
        assert_eq!(device.plans_built(), 1);
        assert_eq!(sums[0], 5.0);
        assert!(sums[1..].windows(2).all(|pair| pair[0] != pair[1]), "{sums:?}");
        // Another shape is another plan.
        Tensor::<1>::random([6], Distribution::Normal, &device).mul_scalar(1.0).exp().sum().into_scalar().unwrap();
        assert_eq!(device.plans_built(), 2);
    }
}

#[test]
fn what_is_held_on_the_way_is_computed_with_it() {
    for device in devices() {
        let x = Tensor::<1>::from_slice(&[1.0, 2.0], [2], &device);
        let held = &x * 2.0;
        let sum = (&held + 1.0).sum();
        assert_eq!(sum.into_scalar().unwrap(), 8.0);
        assert!(held.is_realized());
        assert_eq!(held.to_vec().unwrap(), [2.0, 4.0]);
        assert_eq!(device.runs(), 1);
    }
}

#[test]
fn a_seed_begins_random_numbers_anew() {
    let [device, other] = devices();
    let draw = |device: &Device| Tensor::<1>::random([9], Distribution::Uniform, device).to_vec().unwrap();
    device.seed(7);
    let (first, second) = (draw(&device), draw(&device));
    assert_ne!(first, second);
    other.seed(7);
    assert_eq!((draw(&other), draw(&other)), (first, second));
}

#[test]
fn a_million_operations_neither_overflow_the_stack_nor_stay() {
    let device = Device::cpu();
    let mut x = Tensor::<0>::zeros([], &device);
    for _ in 0..1_000_000 {
        x = x.relu();
    }
    drop(x);
    // Tracked chains that branch.
    let parameter = Tensor::<0>::ones([], &device).require_grad();
    let mut y = parameter.clone();
    for _ in 0..100_000 {
        y = &y + &y;
    }
    drop(y);
}

#[test]
fn shapes_that_do_not_go_together_are_named_where_they_are_recorded() {
    let device = Device::cpu();
    fn message(f: impl FnOnce()) -> String {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    }
    let (a, b) = (Tensor::<2>::zeros([2, 3], &device), Tensor::<2>::zeros([4, 5], &device));
    let text = message(|| drop(a.matmul(&b)));
    assert!(text.contains("matmul(float32 [2, 3], float32 [4, 5])") && text.contains("3 and 4"), "{text}");
    let text = message(|| drop(&a + &b));
    assert!(text.contains("add(float32 [2, 3], float32 [4, 5])"), "{text}");
    let other = Tensor::<2>::zeros([2, 3], &Device::cpu());
    let text = message(|| drop(&a + &other));
    assert!(text.contains("two devices"), "{text}");
}

#[test]
fn shapes_change_and_parts_are_taken() {
    for device in devices() {
        let x = Tensor::<1, Int>::arange(0..24, &device).reshape([2, 3, 4]);
        assert_eq!(x.slice([1..2, 0..3, 1..3]).to_vec().unwrap(), [13, 14, 17, 18, 21, 22]);
        assert_eq!(x.slice_step([0..2, 0..3, 0..4], [1, 2, 3]).to_vec().unwrap(), [0, 3, 8, 11, 12, 15, 20, 23]);
        assert_eq!(x.permute([2, 0, 1]).dims(), [4, 2, 3]);
        let y = x.flatten::<2>(0, 1);
        assert_eq!(y.dims(), [6, 4]);
        assert_eq!(y.transpose().narrow(0, 0..1).to_vec().unwrap(), [0, 4, 8, 12, 16, 20]);
        let many: Vec<Tensor<1, Int>> = (0..40).map(|i| Tensor::full([1], i, &device)).collect();
        assert_eq!(Tensor::cat(&many, 0).to_vec().unwrap(), (0..40).collect::<Vec<i32>>());
        let padded = Tensor::<2>::from_floats([[1.0, 2.0]], &device).pad_zeros([1, 0], [0, 1]);
        assert_eq!(padded.to_vec().unwrap(), [0.0, 0.0, 0.0, 1.0, 2.0, 0.0]);
        assert_eq!(format!("{padded:.1}"), "[[0.0, 0.0, 0.0], [1.0, 2.0, 0.0]]");
    }
}

#[test]
fn comparisons_masks_and_reductions() {
    for device in devices() {
        let x = Tensor::<2>::from_floats([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], &device);
        let negative = x.lower_elem(0.0);
        assert_eq!(negative.to_vec().unwrap(), [false, true, false, false, false, true]);
        assert_eq!(x.mask_fill(&negative, 9.0).to_vec().unwrap(), [1.0, 9.0, 3.0, 4.0, 5.0, 9.0]);
        assert_eq!(x.argmax(1).to_vec().unwrap(), [2, 1]);
        assert_eq!(x.max_dim(0).to_vec().unwrap(), [4.0, 5.0, 3.0]);
        assert!((x.mean().into_scalar().unwrap() - 5.0 / 6.0).abs() < 1e-6);
        assert_eq!(x.mean_dims(&[0, 1]).dims(), [1, 1]);
        assert_eq!(x.clamp(-1.0, 2.0).to_vec().unwrap(), [1.0, -1.0, 2.0, 2.0, 2.0, -1.0]);
        let classes = Tensor::<1, Int>::from_slice(&[2, 1], [2], &device);
        let loss = x.cross_entropy(&classes).into_scalar().unwrap();
        let row = |r: [f64; 3], class: usize| r.iter().map(|v| v.exp()).sum::<f64>().ln() - r[class];
        let expected = (row([1.0, -2.0, 3.0], 2) + row([4.0, 5.0, -6.0], 1)) / 2.0;
        assert!((loss as f64 - expected).abs() < 1e-6, "{loss} {expected}");
    }
}
