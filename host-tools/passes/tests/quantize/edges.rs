//! Ranges, constants and graphs out of the ordinary.

use kiln_core::DType;
use kiln_ops::{Activation, Add, Copy, Dequantize, Quantize};
use kiln_passes::quantize::{Calibration, QuantizeError, QuantizeOptions, check, quantize};
use kiln_planner::graph::{Assign, Entry, Extent, Graph, Quant, Source, VaryingDim, tensor_type};

use crate::support::{Numbers, calibrated, constant, decibels, dense, graph, node, quantized, run};

/// A dense layer of two inputs and two outputs.
fn layer(weights: [f32; 4], bias: Option<[f32; 2]>, activation: Activation) -> Graph {
    let (mut g, x) = graph(&[1, 2]);
    let w = constant(&mut g, "w", &[2, 2], &weights);
    let b = bias.map(|bias| constant(&mut g, "b", &[2], &bias));
    let inputs: Vec<_> = [x, w].into_iter().chain(b).collect();
    let y = node(&mut g, "y", dense(activation), &inputs);
    g.entries[0].outputs = vec![y];
    g
}

fn quant(graph: &Graph, name: &str) -> (f32, i32) {
    let value = graph.values.iter().find(|v| v.name == name).unwrap();
    (value.quant.scales[0], value.quant.zero_points[0])
}

#[test]
fn ranges_of_one_side_take_in_zero() {
    let g = layer([1.0, 0.0, 0.0, 1.0], None, Activation::None);
    let q = quantized(&g, &[vec![5.0, 6.0], vec![5.5, 5.1]], QuantizeOptions::default()).graph;
    assert_eq!(quant(&q, "x"), ((6.0 / 255.0) as f32, -128));
    assert!(run(&q, &[5.0, 6.0]).iter().zip([5.0, 6.0]).all(|(got, want)| (got - want).abs() < 0.03));
    let q = quantized(&g, &[vec![-5.0, -6.0]], QuantizeOptions::default()).graph;
    assert_eq!(quant(&q, "x"), ((6.0 / 255.0) as f32, 127));
}

#[test]
fn activations_and_channels_of_zeros() {
    let g = layer([0.0; 4], None, Activation::None);
    let q = quantized(&g, &[vec![0.0, 0.0]], QuantizeOptions::default()).graph;
    assert_eq!([quant(&q, "x"), quant(&q, "y")], [(1.0, 0); 2]);
    assert_eq!(run(&q, &[3.0, -4.0]), [0.0, 0.0]);
    // A channel without weights still has its bias.
    let g = layer([1.0, 2.0, 0.0, 0.0], Some([0.25, -0.75]), Activation::None);
    let q = quantized(&g, &[vec![1.0, -1.0], vec![-1.0, 1.0]], QuantizeOptions::default()).graph;
    assert!((run(&q, &[0.5, 0.5])[1] + 0.75).abs() < 0.01);
}

/// What calibration never saw saturates; it does not wrap round.
#[test]
fn outputs_far_beyond_their_range_saturate() {
    // For the sample both outputs are all but 0, for other inputs they are large.
    let g = layer([1.0, 1.0, 1e6, 1e6], None, Activation::None);
    let samples = [vec![1.0, -1.0], vec![-1.0, 1.0]];
    let q = quantized(&g, &samples, QuantizeOptions::default()).graph;
    for (input, sign) in [([1.0, 1.0], 1.0f32), ([-1.0, -1.0], -1.0)] {
        let got = run(&q, &input);
        assert!(got.iter().all(|v| v.signum() == sign), "{got:?}");
    }
    let (mut g, x) = graph(&[1, 2]);
    let minus = constant(&mut g, "minus", &[1, 2], &[-1.0, 1.0]);
    let sum = node(&mut g, "sum", Add { activation: Activation::None }, &[x, minus]);
    g.entries[0].outputs = vec![sum];
    let q = quantized(&g, &[vec![1.0, -1.0]], QuantizeOptions::default()).graph;
    let got = run(&q, &[-1.0, 1.0]);
    assert!(got[0] < 0.0 && got[1] > 0.0, "{got:?}");
}

#[test]
fn huge_and_tiny_numbers() {
    let mut numbers = Numbers(7);
    for (size, weights) in [(1e30f32, 1e-5f32), (1e-12, 1e5), (1e15, 1e15), (1e-25, 1.0)] {
        let g = layer([1.0, -0.5, 0.25, 2.0].map(|w| w * weights), None, Activation::None);
        let samples: Vec<Vec<f32>> = (0..8).map(|_| numbers.many(2).iter().map(|v| v * size).collect()).collect();
        let q = quantized(&g, &samples, QuantizeOptions::default()).graph;
        // Below 2^-60 a step nothing is left but zeros.
        if size > 1e-15 {
            assert!(decibels(&g, &q, &samples) > 30.0, "{size}");
        }
    }
    let g = layer([1e30; 4], Some([1.0; 2]), Activation::None);
    let calibration = calibrated(&g, &[vec![1e7, 1e7]]).unwrap();
    assert!(quantize(&g, &calibration, &QuantizeOptions::default()).is_ok());
    // A range that is float32, whose bias' scale is not.
    let (g, mut calibration) = (layer([f32::MAX; 4], Some([0.0; 2]), Activation::None), Calibration::new(&g));
    let data = |value: f32| value.to_le_bytes().repeat(2);
    for id in [g.entries[0].inputs[0], g.entries[0].outputs[0]] {
        calibration.observe(&g, id, &data(1e6)).unwrap();
    }
    let error = quantize(&g, &calibration, &QuantizeOptions::default()).unwrap_err();
    assert_eq!(error, QuantizeError::TooLarge("w".into()));
}

#[test]
fn numbers_that_are_none_are_named() {
    let g = layer([1.0; 4], None, Activation::None);
    let error = calibrated(&g, &[vec![f32::NAN, 0.0]]).unwrap_err();
    assert!(error.to_string().starts_with("tensor 'x': element 0 is NaN; the sample"), "{error}");
    // Finite inputs whose sum is not.
    let error = calibrated(&g, &[vec![f32::MAX, f32::MAX]]).unwrap_err();
    assert!(error.to_string().starts_with("tensor 'y': element 0 is inf; the sample"), "{error}");
    let good = calibrated(&g, &[vec![0.5, 0.0]]).unwrap();
    for (weights, bias, name) in [([f32::INFINITY; 4], [0.0; 2], "w"), ([1.0; 4], [f32::NAN; 2], "b")] {
        let g = layer(weights, Some(bias), Activation::None);
        let mut calibration = good.clone();
        let y = g.entries[0].outputs[0];
        calibration.observe(&g, y, &[0; 8]).unwrap();
        let error = quantize(&g, &calibration, &QuantizeOptions::default()).unwrap_err();
        let said = error.to_string();
        assert!(
            said.starts_with(&format!("tensor '{name}': element 0 is ")) && said.contains("export it again"),
            "{said}"
        );
    }
}

#[test]
fn what_was_not_observed_is_named() {
    let g = layer([1.0; 4], None, Activation::None);
    let error = quantize(&g, &Calibration::new(&g), &QuantizeOptions::default()).unwrap_err();
    assert_eq!(error, QuantizeError::Unobserved("x".into()));
    let mut calibration = Calibration::new(&g);
    calibration.observe(&g, g.entries[0].inputs[0], &[0; 8]).unwrap();
    let error = quantize(&g, &calibration, &QuantizeOptions::default()).unwrap_err();
    assert_eq!(error, QuantizeError::Unobserved("y".into()));
}

#[test]
fn graphs_that_cannot_be_quantized() {
    let mut g = layer([1.0; 4], None, Activation::None);
    g.entries.push(Entry { name: "reset".into(), ..Entry::default() });
    assert_eq!(check(&g), Err(QuantizeError::Entries(2)));
    let (mut g, x) = graph(&[1, 2]);
    g.entries[0].outputs = vec![x];
    assert!(matches!(check(&g), Err(QuantizeError::Nothing(_))));
    let q = quantized(&layer([1.0; 4], None, Activation::None), &[vec![1.0; 2]], QuantizeOptions::default()).graph;
    let error = check(&q).unwrap_err().to_string();
    assert_eq!(error, "nothing in it can be quantized: fully_connected 'y' is not float32");
}

#[test]
fn parts_that_are_int8_already_are_kept() {
    let (mut g, x) = graph(&[1, 2]);
    let of = Quant::per_tensor(0.125, 5);
    let stored = g.add_node(0, "stored", Quantize, &[x], of.clone()).unwrap();
    let back = node(&mut g, "back", Dequantize, &[stored]);
    let w = constant(&mut g, "w", &[2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let y = node(&mut g, "y", dense(Activation::None), &[back, w]);
    g.entries[0].outputs = vec![y, back];
    let q = quantized(&g, &[vec![1.0, -1.0]], QuantizeOptions { float_io: true, ..QuantizeOptions::default() });
    let names: Vec<&str> = q.graph.entries[0].nodes.iter().map(|n| n.op.name()).collect();
    // The layer reads what was quantized before, under the scale it had.
    assert_eq!(names, ["quantize", "fully_connected", "dequantize", "dequantize"]);
    assert_eq!(quant(&q.graph, "stored"), (0.125, 5));
    assert!(q.kept_float.is_empty());
}

#[test]
fn state_and_varying_dimensions_stay() {
    let mut g = Graph::new("net");
    g.extents.push(Extent { name: "batch".into(), max: 3 });
    let ty = tensor_type(DType::F32, &[3, 2]).unwrap();
    let x = g.add_input("x", ty, Quant::default());
    let state = g.add_state("state", ty, Quant::default());
    g.entries.push(Entry { name: "infer".into(), inputs: vec![x], ..Entry::default() });
    let sum = node(&mut g, "sum", Add { activation: Activation::None }, &[x, state]);
    let y = node(&mut g, "y", Copy, &[sum]);
    for id in [x, sum, y] {
        g.values[id.index()].varying = vec![VaryingDim { axis: 0, extent: 0 }];
    }
    g.entries[0].outputs = vec![y];
    g.entries[0].assigns = vec![Assign { state, value: sum }];
    let mut calibration = Calibration::new(&g);
    for (id, value) in [(x, 1.0f32), (sum, 2.0)] {
        calibration.observe(&g, id, &value.to_le_bytes().repeat(6)).unwrap();
    }
    let q = quantize(&g, &calibration, &QuantizeOptions::default()).unwrap().graph;
    let assign = q.entries[0].assigns[0];
    assert!(q.value(assign.state).source == Source::State && q.value(assign.state).ty == ty);
    assert_eq!(q.value(assign.value).ty, ty);
    assert_eq!(q.value(q.entries[0].outputs[0]).varying, g.value(y).varying);
    assert_eq!(q.extents, g.extents);
    // The state's range is that of what it is assigned.
    let read = q.entries[0].nodes.iter().find(|n| n.name == "state/quantize").unwrap();
    assert_eq!(q.value(read.output).quant, Quant::per_tensor((2.0 / 255.0) as f32, -128));
}
