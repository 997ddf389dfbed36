//! Steps shared among threads.

use kiln::{ConvOptions, Device, Distribution, Tensor, realize_all};

/// Losses and gradients of a network whose steps are large enough to be shared.
fn compute(threads: usize) -> Vec<Vec<u32>> {
    let device = Device::cpu_threads(threads);
    device.seed(11);
    let normal = |dims: [usize; 4]| Tensor::<4>::random(dims, Distribution::Normal, &device);
    let images = normal([9, 29, 31, 5]);
    let w = [normal([24, 3, 3, 5]).require_grad(), normal([20, 3, 3, 24]).require_grad()];
    let last = Tensor::<2>::random([700, 980], Distribution::Normal, &device).require_grad();
    realize_all(&[&images, &w[0], &w[1], &last]).unwrap();
    let options = ConvOptions { padding: [1; 4], stride: [2, 2], ..ConvOptions::default() };
    let h = images.conv2d(&w[0], None, ConvOptions::default()).relu().max_pool2d([2, 2], [2, 2], [0; 4]);
    let h = h.conv2d(&w[1], None, options).tanh();
    let scores = h.reshape([9, 980]).matmul_transposed(&last);
    let loss = scores.square().mean();
    let gradients = loss.backward().unwrap();
    let by: Vec<Tensor<4>> = w.iter().map(|w| w.grad(&gradients).unwrap()).collect();
    let by_last = last.grad(&gradients).unwrap();
    realize_all(&[&scores, &loss, &by[0], &by[1], &by_last]).unwrap();
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<u32>>();
    let all = [scores.to_vec(), by[0].to_vec(), by[1].to_vec(), by_last.to_vec(), loss.to_vec()];
    all.map(|values| bits(values.unwrap())).into()
}

#[test]
fn any_number_of_threads_computes_the_same_bits() {
    let one = compute(1);
    assert!(one.iter().flatten().all(|bits| f32::from_bits(*bits).is_finite()));
    for threads in [2, 3, 7] {
        assert!(compute(threads) == one, "{threads} threads compute other numbers than one");
    }
}
