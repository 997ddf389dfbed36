//! What was recorded, as the layers that boards have.

use kiln::{Device, Distribution, Tensor, Trace};
use kiln_ops::{Activation, Op};
use kiln_passes::recognize_layers;
use kiln_planner::graph::Graph;
use kiln_planner::reference::Evaluator;

fn run(graph: &Graph, image: &[f32]) -> Vec<f32> {
    let bytes: Vec<u8> = image.iter().flat_map(|v| v.to_le_bytes()).collect();
    let values = Evaluator::new(graph).run(0, &[&bytes]).unwrap();
    values[&graph.entries[0].outputs[0]].chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

#[test]
fn a_recorded_network_becomes_layers() {
    let device = Device::cpu();
    device.seed(2);
    fn draw<const D: usize>(dims: [usize; D], device: &Device) -> Tensor<D> {
        let drawn = Tensor::<D>::random(dims, Distribution::Normal, device) * 0.4;
        drawn.realize().unwrap();
        drawn
    }
    let x = draw([1, 8, 8, 3], &device);
    // A convolution with batch normalization, a second one added to it, a pool, two fully connected layers.
    let conv = x.conv2d(&draw([4, 3, 3, 3], &device), Some(&draw([4], &device)), Default::default());
    let (mean, variance) =
        (draw([4], &device).reshape([1, 1, 1, 4]), draw([4], &device).square().reshape([1, 1, 1, 4]));
    let (gamma, beta) = (draw([4], &device).reshape([1, 1, 1, 4]), draw([4], &device).reshape([1, 1, 1, 4]));
    let normal = (conv - mean) / variance.add_scalar(1e-3).sqrt() * gamma + beta;
    let other = x.conv2d(&draw([4, 3, 3, 3], &device), None, Default::default());
    let sum = (normal.relu() + other).clamp(0.0, 6.0);
    let pooled = sum.max_pool2d([2, 2], [2, 2], [0; 4]).reshape([1, 36]);
    let hidden = (pooled.matmul(&draw([36, 10], &device)) + draw([10], &device).reshape([1, 10])).relu();
    let scores = hidden.matmul_transposed(&draw([5, 10], &device)) * 0.5;
    let y = scores.softmax();

    let graph = Trace::new("net").entry("infer", &[("x", &x)], &[("y", &y)], &[]).unwrap().finish().unwrap();
    let layers = recognize_layers(graph.clone()).unwrap();
    let ops: Vec<&str> = layers.entries[0].nodes.iter().map(|n| n.op.name()).collect();
    let expected = ["conv2d", "conv2d", "add", "pool2d", "reshape", "fully_connected", "fully_connected", "softmax"];
    assert_eq!(ops, expected);
    let activations: Vec<Activation> = (layers.entries[0].nodes.iter())
        .filter_map(|n| match n.op {
            Op::Conv2d(op) => Some(op.activation),
            Op::Add(op) => Some(op.activation),
            Op::FullyConnected(op) => Some(op.activation),
            _ => Option::None,
        })
        .collect();
    use Activation::{Relu, Relu6};
    // In the order in which the layers' last operations were recorded.
    assert_eq!(activations, [Activation::None, Relu, Relu6, Relu, Activation::None]);

    let image = x.to_vec().unwrap();
    let recorded = y.to_vec().unwrap();
    for (a, b) in run(&layers, &image).iter().zip(&recorded) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}
