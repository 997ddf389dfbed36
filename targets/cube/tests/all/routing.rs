//! What there are no kernels for.

use kiln::{Device, Int, Tensor};
use kiln_core::DType;
use kiln_ops::{Activation, Cast, Function, Map, MatMul, Op, Pool2d, PoolKind, Transpose};
use kiln_planner::backend::Backend;
use kiln_planner::graph::{Assign, Entry, Graph, Quant};
use kiln_target_host::Cpu;

use crate::cases::{difference, elements, run, ty};
use crate::cube;

/// float32 in and out, between them float64, which no kernel knows.
fn mixed() -> Graph {
    let mut graph = Graph::new("mixed");
    let x = graph.add_input("x", ty(DType::F32, &[3, 4]), Quant::default());
    graph.entries.push(Entry { name: "run".into(), inputs: vec![x], ..Entry::default() });
    let mut add = |name: &str, op: Op, inputs: &[_]| graph.add_node(0, name, op, inputs, Quant::default()).unwrap();
    let exp = add("exp", Map { function: Function::Exp }.into(), &[x]);
    let wide = add("wide", Cast { dtype: DType::F64 }.into(), &[exp]);
    let turned = add("turned", Transpose::new(&[1, 0]).unwrap().into(), &[wide]);
    let product = add("product", MatMul { transpose_a: false, transpose_b: false }.into(), &[wide, turned]);
    let narrow = add("narrow", Cast { dtype: DType::F32 }.into(), &[product]);
    let root = add("root", Map { function: Function::Sqrt }.into(), &[narrow]);
    let large = add("large", Map { function: Function::Less }.into(), &[x, exp]);
    graph.entries[0].outputs = vec![root, product, large];
    graph.validate().unwrap();
    graph
}

#[test]
fn the_cpu_computes_what_the_gpu_does_not_and_the_plan_says_so() {
    let Some(cube) = cube() else { return };
    let graph = mixed();
    let prepared = cube.prepare(&graph, 0).unwrap();
    let routed: Vec<_> = prepared.routed().iter().map(|node| (&*node.node, node.op, node.dtype)).collect();
    assert_eq!(
        routed,
        [
            ("wide", "cast", DType::F32),
            ("turned", "transpose", DType::F64),
            ("product", "matmul", DType::F64),
            ("narrow", "cast", DType::F64)
        ]
    );
    let inputs = [elements(&ty(DType::F32, &[3, 4]), 5, [-1.0, 1.0])];
    let (got, want) = (run(&cube, &graph, &inputs).unwrap(), run(&Cpu::with_threads(1), &graph, &inputs).unwrap());
    assert!(difference(DType::F32, &got[0], &want[0]) < 1e-5);
    let doubles =
        |bytes: &[u8]| -> Vec<f64> { bytes.chunks(8).map(|c| f64::from_le_bytes(c.try_into().unwrap())).collect() };
    for (got, want) in doubles(&got[1]).into_iter().zip(doubles(&want[1])) {
        assert!((got - want).abs() < 1e-5 * want.abs(), "{got}, not {want}");
    }
    assert_eq!(got[2], want[2]);
}

#[test]
fn a_device_says_what_it_leaves_to_the_cpu() {
    let Some(gpu) = crate::device() else { return };
    let largest = |device: &Device| {
        let distance = (Tensor::<1, Int>::arange(0..40_000, device).float() - 39_000.0).abs();
        let x = -distance.reshape([1, 40_000]);
        x.argmax(1).to_vec().unwrap()
    };
    assert_eq!(gpu.routed(), [""; 0]);
    assert_eq!((largest(&gpu), largest(&Device::cpu())), (vec![39_000], vec![39_000]));
    // Its loop would be too long for some adapters.
    assert_eq!(gpu.routed(), ["arg_max of float32"]);
    assert_eq!(Device::cpu().routed(), [""; 0]);
}

#[test]
fn quantized_nodes_are_the_cpus() {
    let Some(cube) = cube() else { return };
    let mut graph = Graph::new("quantized");
    let quant = Quant::per_tensor(0.1, 3);
    let x = graph.add_input("x", ty(DType::I8, &[1, 4, 4, 2]), quant.clone());
    graph.entries.push(Entry { name: "run".into(), inputs: vec![x], ..Entry::default() });
    let pool =
        Pool2d { kind: PoolKind::Average, kernel: [2, 2], strides: [2, 2], pads: [0; 4], activation: Activation::None };
    let pooled = graph.add_node(0, "pool", pool, &[x], quant).unwrap();
    let real = graph.add_node(0, "real", kiln_ops::Dequantize, &[pooled], Quant::default()).unwrap();
    let relu = Map { function: Function::Abs };
    let out = graph.add_node(0, "abs", relu, &[real], Quant::default()).unwrap();
    graph.entries[0].outputs = vec![out, pooled];
    let inputs = [elements(&ty(DType::I8, &[1, 4, 4, 2]), 8, [-100.0, 100.0])];
    let (got, want) = (run(&cube, &graph, &inputs).unwrap(), run(&Cpu::with_threads(1), &graph, &inputs).unwrap());
    assert_eq!(got, want);
    assert_eq!(cube.prepare(&graph, 0).unwrap().routed().len(), 2);
}

#[test]
fn state_is_kept_from_run_to_run() {
    let Some(cube) = cube() else { return };
    let own = ty(DType::F32, &[3]);
    let mut graph = Graph::new("counter");
    let x = graph.add_input("x", own, Quant::default());
    let state = graph.add_state("sum", own, Quant::default());
    graph.entries.push(Entry { name: "run".into(), inputs: vec![x], ..Entry::default() });
    let sum = graph.add_node(0, "sum", Map { function: Function::Add }, &[state, x], Quant::default()).unwrap();
    graph.entries[0].outputs = vec![state, x];
    graph.entries[0].assigns = vec![Assign { state, value: sum }];
    graph.validate().unwrap();
    let mut prepared = cube.prepare(&graph, 0).unwrap();
    let bytes: Vec<u8> = [1.0f32, 2.0, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    for step in 0..4 {
        let outputs = prepared.run(vec![cube.write(&bytes).unwrap()]).unwrap();
        let want: Vec<u8> = [1.0f32, 2.0, 4.0].iter().flat_map(|v| (v * step as f32).to_le_bytes()).collect();
        assert_eq!(cube.read(&outputs[0]).unwrap(), want);
        // An input that is given out.
        assert_eq!(cube.read(&outputs[1]).unwrap(), bytes);
    }
}

#[test]
fn a_run_with_the_wrong_inputs_is_refused() {
    let Some(cube) = cube() else { return };
    let mut prepared = cube.prepare(&mixed(), 0).unwrap();
    assert!(prepared.run(vec![]).is_err());
    let short = cube.write(&[0; 8]).unwrap();
    let error = prepared.run(vec![short]).err().unwrap().to_string();
    assert!(error.contains("8 bytes"), "{error}");
}
