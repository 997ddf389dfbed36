//! Whole networks.

use kiln_core::{DType, TargetId};
use kiln_ops::{Activation, Add, LogSoftmax, Op, Pool2d, PoolKind, Reshape, Softmax, Transpose};
use kiln_passes::quantize::{Method, QuantizeOptions};
use kiln_planner::graph::{Graph, Source, ValueId, tensor_type};
use kiln_planner::reference::Evaluator;
use kiln_planner::{Options, plan};
use kiln_target_host::Runner;

use crate::support::{Numbers, constant, conv, decibels, dense, graph, node, quantized, run, stored};

/// Samples of a network. With a tenth of them, what was not seen goes beyond the ranges that were.
const SAMPLES: usize = 160;

/// Every operator that has an int8 form but log-softmax: two branches that meet in a sum, pools, views, a
/// dense layer. The weights' channels are of very different size.
fn network(seed: u64) -> (Graph, Vec<Vec<f32>>) {
    let mut numbers = Numbers(seed);
    let (mut g, x) = graph(&[1, 6, 5, 3]);
    let layer = |g: &mut Graph, name: &str, dims: [u32; 4], numbers: &mut Numbers| {
        let each = (dims[1] * dims[2] * dims[3]) as usize;
        let sizes = (0..dims[0]).map(|channel| 10f32.powi(channel as i32 % 3 - 1) / (each as f32).sqrt());
        let weights: Vec<f32> = sizes.flat_map(|size| numbers.many(each).into_iter().map(move |w| w * size)).collect();
        let w = constant(g, &format!("{name}/w"), &dims, &weights);
        let b = constant(g, &format!("{name}/b"), &[dims[0]], &numbers.many(dims[0] as usize));
        [w, b]
    };
    let [w, b] = layer(&mut g, "first", [8, 3, 3, 3], &mut numbers);
    let first = node(&mut g, "first", conv(1, Activation::Relu6), &[x, w, b]);
    let [w, b] = layer(&mut g, "depthwise", [8, 3, 3, 1], &mut numbers);
    let depthwise = node(&mut g, "depthwise", conv(8, Activation::None), &[first, w, b]);
    let sum = node(&mut g, "sum", Add { activation: Activation::Relu }, &[first, depthwise]);
    let pool = |kind| Pool2d { kind, kernel: [2, 2], strides: [1, 1], pads: [0; 4], activation: Activation::None };
    let max = node(&mut g, "max", pool(PoolKind::Max), &[sum]);
    let mean = node(&mut g, "mean", pool(PoolKind::Average), &[max]);
    let turned = node(&mut g, "turned", Transpose::new(&[0, 3, 1, 2]).unwrap(), &[mean]);
    let shift = numbers.many(8 * 4 * 3);
    let shift = constant(&mut g, "shift", &[1, 8, 4, 3], &shift);
    let shifted = node(&mut g, "shifted", Add { activation: Activation::None }, &[turned, shift]);
    let flat = node(&mut g, "flat", Reshape { shape: tensor_type(DType::F32, &[1, 96]).unwrap().shape }, &[shifted]);
    let weights: Vec<f32> = numbers.many(5 * 96).iter().map(|w| w * 0.3).collect();
    let (w, b) = (constant(&mut g, "w", &[5, 96], &weights), constant(&mut g, "b", &[5], &numbers.many(5)));
    let y = node(&mut g, "y", dense(Activation::None), &[flat, w, b]);
    g.entries[0].outputs = vec![y];
    g.labels = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
    (g, (0..SAMPLES).map(|_| numbers.many(90)).collect())
}

fn ops(graph: &Graph) -> Vec<&'static str> {
    graph.entries[0].nodes.iter().map(|n| n.op.name()).collect()
}

#[test]
fn outputs_stay_close_on_samples_that_were_not_seen() {
    for seed in 1..=8 {
        let (g, samples) = network(seed);
        let (seen, unseen) = samples.split_at(SAMPLES - 20);
        for method in [Method::MinMax, Method::Percentile(99.99)] {
            let q = quantized(&g, seen, QuantizeOptions { method, float_io: false });
            assert!(q.kept_float.is_empty(), "{:?}", q.kept_float);
            assert_eq!(ops(&q.graph), ops(&g));
            let got = decibels(&g, &q.graph, unseen);
            assert!(got > 30.0, "seed {seed}, {method}: {got} dB");
        }
        // The check can fail: with ranges half as wide it does.
        let q = quantized(&g, seen, QuantizeOptions { method: Method::Percentile(60.0), float_io: false });
        assert!(decibels(&g, &q.graph, unseen) < 20.0);
    }
}

#[test]
fn parameters_follow_the_specification() {
    let (g, samples) = network(3);
    let q = quantized(&g, &samples, QuantizeOptions::default());
    let named = |name: &str| q.graph.values.iter().find(|v| v.name == name).unwrap();
    assert_eq!(q.graph.labels, g.labels);
    for value in &q.graph.values {
        let Source::Constant(data) = &value.source else { continue };
        let channels = match value.name.as_str() {
            "shift" => {
                assert_eq!((value.ty.dtype, value.quant.scales.len()), (DType::I8, 1));
                continue;
            }
            name if name.ends_with('w') => {
                assert_eq!(value.ty.dtype, DType::I8);
                assert!(data.iter().all(|&b| b as i8 != -128), "{name} is not symmetric");
                assert!(
                    data.chunks(data.len() / value.quant.scales.len())
                        .all(|c| c.iter().any(|&b| (b as i8).abs() == 127))
                );
                value.ty.shape.dim(0) as usize
            }
            name => {
                assert_eq!(value.ty.dtype, DType::I32, "{name}");
                let weights = &named(&format!("{}w", name.trim_end_matches('b'))).quant.scales;
                let input =
                    q.graph.entries[0].nodes.iter().find(|n| n.inputs.iter().any(|&id| q.graph.value(id).name == name));
                let input = q.graph.value(input.unwrap().inputs[0]).quant.scales[0];
                assert_eq!(value.quant.scales, weights.iter().map(|w| w * input).collect::<Vec<f32>>());
                weights.len()
            }
        };
        assert_eq!(value.quant.zero_points, vec![0; channels]);
        assert_eq!(value.quant.scales.len(), channels);
    }
    // Behind ReLU nothing is below 0, ReLU6 reaches 6 here, and pools, views and transpositions keep both.
    assert_eq!(named("first").quant.scales, [(6.0 / 255.0) as f32]);
    assert_eq!(named("first").quant.zero_points, [-128]);
    for name in ["max", "mean", "turned"] {
        assert_eq!(named(name).quant, named("sum").quant);
    }
    assert_eq!(named("flat").quant, named("shifted").quant);
}

#[test]
fn plans_compute_what_the_references_do() {
    for seed in [5, 6] {
        let (g, samples) = network(seed);
        let q = quantized(&g, &samples[..8], QuantizeOptions { float_io: seed == 6, ..QuantizeOptions::default() });
        let planned = plan(&q.graph, &Options::for_target(TargetId::PORTABLE)).unwrap();
        let mut runner = Runner::new(&planned.bytes).unwrap();
        for sample in &samples {
            let input = stored(&q.graph, sample);
            let want = Evaluator::new(&q.graph).run(0, &[&input]).unwrap();
            assert_eq!(runner.run("infer", &[&input]).unwrap(), [want[&q.graph.entries[0].outputs[0]].clone()]);
        }
    }
}

#[test]
fn float_inputs_and_outputs_only_add_conversions() {
    let (g, samples) = network(4);
    let inside = quantized(&g, &samples, QuantizeOptions::default()).graph;
    let outside = quantized(&g, &samples, QuantizeOptions { float_io: true, ..QuantizeOptions::default() }).graph;
    let types = |graph: &Graph| {
        let entry = &graph.entries[0];
        [entry.inputs[0], entry.outputs[0]].map(|id| (graph.value(id).name.clone(), graph.value(id).ty.dtype))
    };
    assert_eq!(types(&inside), [("x".into(), DType::I8), ("y".into(), DType::I8)]);
    assert_eq!(types(&outside), [("x".into(), DType::F32), ("y".into(), DType::F32)]);
    assert_eq!(ops(&outside).len(), ops(&inside).len() + 2);
    for sample in &samples {
        assert_eq!(run(&inside, sample), run(&outside, sample));
    }
}

/// The classes' probabilities, or their logarithms, under the scale that TFLite fixes.
#[test]
fn softmax_has_fixed_scales() {
    // With the mean error that logits a few of their steps off lead to.
    let ends: [(Op, (f32, i32), f32); 2] =
        [(Softmax { beta: 1.0 }.into(), (1.0 / 256.0, -128), 0.01), (LogSoftmax.into(), (16.0 / 256.0, 127), 0.1)];
    for (op, (scale, zero_point), most) in ends {
        let (mut g, samples) = network(2);
        let y = g.entries[0].outputs[0];
        g.entries[0].outputs = vec![node(&mut g, "scores", op, &[y])];
        let q = quantized(&g, &samples, QuantizeOptions::default());
        let output = q.graph.value(q.graph.entries[0].outputs[0]);
        assert_eq!((output.quant.scales[0], output.quant.zero_points[0]), (scale, zero_point));
        // What is below the least that the scale holds, -15.94, is cut off there.
        let least = scale * (-128 - zero_point) as f32;
        let pairs = samples.iter().flat_map(|sample| run(&g, sample).into_iter().zip(run(&q.graph, sample)));
        let errors: Vec<f32> = pairs.map(|(want, got)| (want.max(least) - got).abs()).collect();
        let mean = errors.iter().sum::<f32>() / errors.len() as f32;
        assert!(mean < most, "{}: {mean}", op.name());
    }
}

#[test]
fn what_has_no_int8_form_stays_float_between_conversions() {
    // A product of two computed tensors, between layers.
    let mut numbers = Numbers(9);
    let (mut g, x) = graph(&[4, 4]);
    let layer = |g: &mut Graph, name: &str, from: ValueId, numbers: &mut Numbers| {
        let w = constant(g, &format!("{name}/w"), &[4, 4], &numbers.many(16));
        node(g, name, dense(Activation::None), &[from, w])
    };
    let a = layer(&mut g, "a", x, &mut numbers);
    let b = layer(&mut g, "b", x, &mut numbers);
    let product = node(&mut g, "product", dense(Activation::None), &[a, b]);
    let flat = node(&mut g, "flat", Reshape { shape: tensor_type(DType::F32, &[2, 8]).unwrap().shape }, &[product]);
    let back = node(&mut g, "back", Reshape { shape: tensor_type(DType::F32, &[4, 4]).unwrap().shape }, &[flat]);
    let y = layer(&mut g, "y", back, &mut numbers);
    g.entries[0].outputs = vec![y];
    let samples: Vec<Vec<f32>> = (0..16).map(|_| numbers.many(16)).collect();
    let q = quantized(&g, &samples, QuantizeOptions::default());
    let kept: Vec<&str> = q.kept_float.iter().map(|kept| kept.node.as_str()).collect();
    assert_eq!(kept, ["product"]);
    let [dense, view, to, from] = ["fully_connected", "reshape", "quantize", "dequantize"];
    assert_eq!(ops(&q.graph), [dense, dense, from, from, dense, view, view, to, dense]);
    assert!(decibels(&g, &q.graph, &samples) > 25.0);
}
