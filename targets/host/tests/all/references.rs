//! Every operator through its reference as a step of a plan: the same bytes as the reference by itself.

use std::collections::BTreeSet;

use kiln_core::{DType, Shape};
use kiln_ops::{
    Activation, Add, ArgMax, AveragePool2dGrad, AveragePool2dPart, Cast, Concat, Conv2d, Conv2dInputGrad,
    Conv2dWeightGrad, Copy, Dequantize, Distribution, Expand, FullyConnected, Function, Fused, LogSoftmax, Map, MatMul,
    MaxPool2dGrad, MaxPool2dPick, Op, Pool2d, PoolKind, Quantize, Random as RandomOp, Reduce, ReduceKind, Scatter,
    Slice, Softmax, Transpose,
};
use kiln_planner::graph::{Graph, Quant, ValueId};
use kiln_planner::reference::Evaluator;
use kiln_planner::{Choice, Options, Planned, plan};
use kiln_target_host::Runner;

use crate::support::{Random, graph, input, options, ty};

/// A graph of one node over inputs of these types; int8 has one scale.
fn single(op: Op, inputs: &[(DType, &[u32])], program: Option<&[u8]>) -> Graph {
    let mut graph = graph(&["infer"]);
    let quant = |dtype: DType| if dtype == DType::I8 { Quant::per_tensor(0.05, 3) } else { Quant::default() };
    let mut values: Vec<ValueId> = Vec::new();
    for (i, &(dtype, dims)) in inputs.iter().enumerate() {
        // Weights have no zero point.
        let weights = i == 1 && matches!(op, Op::Conv2d(_) | Op::FullyConnected(_)) && dtype == DType::I8;
        let quant = if weights { Quant::per_tensor(0.02, 0) } else { quant(dtype) };
        values.push(input(&mut graph, 0, &format!("x{i}"), ty(dtype, dims), &quant));
    }
    if let Some(program) = program {
        let ty = ty(DType::U8, &[program.len() as u32]);
        values.push(graph.add_constant("program", ty, Quant::default(), program.to_vec()));
    }
    let types: Vec<_> = values.iter().map(|&v| graph.value(v).ty).collect();
    let dtype = op.output(&types).unwrap().dtype;
    let y = graph.add_node(0, "y", op, &values, quant(dtype)).unwrap();
    graph.entries[0].outputs.push(y);
    graph.validate().unwrap();
    graph
}

/// `max(x0 * 3 + x1, 0)`.
fn program() -> Vec<u8> {
    let mut bytes = vec![3, 2, 0, 0];
    bytes.extend([3f32, 0.0].iter().flat_map(|v| v.to_le_bytes()));
    let functions = [Function::Mul, Function::Add, Function::Max].map(|f| f as u8);
    bytes.extend([functions[0], 0, 2, 0, functions[1], 4, 1, 0, functions[2], 5, 3, 0]);
    bytes
}

/// One graph for each operator, and for some more than one element type.
fn graphs() -> Vec<Graph> {
    let (f32, f64, i8, i32, bool) = (DType::F32, DType::F64, DType::I8, DType::I32, DType::Bool);
    let conv =
        Conv2d { strides: [2, 1], dilations: [1, 2], pads: [1, 2, 0, 1], groups: 2, activation: Activation::None };
    let pool = |kind| Pool2d { kind, kernel: [3, 2], strides: [2, 1], pads: [1; 4], activation: Activation::None };
    let (average, max) = (pool(PoolKind::Average), pool(PoolKind::Max));
    let (image, weights, result): (&[u32], &[u32], &[u32]) = (&[2, 6, 7, 4], &[6, 3, 2, 2], &[2, 3, 8, 6]);
    let pooled: &[u32] = &[2, 3, 8, 4];
    let shape = |dims: &[u32]| Shape::new(dims).unwrap();
    let mut all = Vec::new();
    let mut add = |op: Op, inputs: &[(DType, &[u32])]| all.push(single(op, inputs, None));
    for dtype in [f32, f64] {
        add(conv.into(), &[(dtype, image), (dtype, weights), (dtype, &[6])]);
        let dense = FullyConnected { keep_dims: true, activation: Activation::Relu };
        add(dense.into(), &[(dtype, &[2, 3, 5]), (dtype, &[4, 5])]);
        add(average.into(), &[(dtype, image)]);
        add(max.into(), &[(dtype, image)]);
        add(Softmax { beta: 0.7 }.into(), &[(dtype, &[3, 9])]);
        add(LogSoftmax.into(), &[(dtype, &[3, 9])]);
        add(Add { activation: Activation::Relu6 }.into(), &[(dtype, &[2, 7]), (dtype, &[2, 7])]);
        add(MatMul { transpose_a: true, transpose_b: false }.into(), &[(dtype, &[2, 5, 3]), (dtype, &[2, 5, 4])]);
        add(Reduce { kind: ReduceKind::Sum, axes: 0b101 }.into(), &[(dtype, &[3, 4, 5])]);
        add(Reduce { kind: ReduceKind::Max, axes: 0b010 }.into(), &[(dtype, &[3, 4, 5])]);
        add(ArgMax { axis: 1 }.into(), &[(dtype, &[3, 4, 5])]);
        add(Conv2dInputGrad { conv, size: [6, 7] }.into(), &[(dtype, result), (dtype, weights)]);
        add(Conv2dWeightGrad { conv, kernel: [3, 2] }.into(), &[(dtype, image), (dtype, result)]);
        add(AveragePool2dGrad { pool: average, size: [6, 7] }.into(), &[(dtype, pooled)]);
        add(MaxPool2dGrad { pool: max }.into(), &[(dtype, image), (dtype, pooled)]);
        add(MaxPool2dPick { pool: max }.into(), &[(dtype, image), (dtype, image)]);
        add(Map { function: Function::Tanh }.into(), &[(dtype, &[5, 3])]);
        add(Map { function: Function::Select }.into(), &[(bool, &[3]), (dtype, &[5, 1]), (dtype, &[3])]);
    }
    for dtype in [f32, f64, i8, DType::F16] {
        add(Copy.into(), &[(dtype, &[3, 5])]);
        add(Transpose::new(&[2, 0, 1]).unwrap().into(), &[(dtype, &[3, 5, 2])]);
        add(Expand { shape: shape(&[4, 3, 5]) }.into(), &[(dtype, &[3, 1])]);
        let (begin, step) = ([1, 0, 1, 0, 0, 0, 0, 0], [2, 1, 3, 1, 1, 1, 1, 1]);
        add(Slice { begin, size: shape(&[2, 3, 2]), step }.into(), &[(dtype, &[5, 3, 6])]);
        add(Scatter { begin, shape: shape(&[5, 3, 6]), step }.into(), &[(dtype, &[2, 3, 2])]);
        add(Concat { axis: 1 }.into(), &[(dtype, &[2, 3]), (dtype, &[2, 1]), (dtype, &[2, 4])]);
    }
    add(conv.into(), &[(i8, image), (i8, weights), (i32, &[6])]);
    add(FullyConnected { keep_dims: false, activation: Activation::None }.into(), &[(i8, &[2, 6]), (i8, &[3, 6])]);
    add(Add { activation: Activation::None }.into(), &[(i8, &[9]), (i8, &[9])]);
    let part = |last| Op::from(AveragePool2dPart { taps: 30, last, activation: Activation::Relu });
    add(part(false), &[(f32, &[2, 3, 4, 5])]);
    add(part(true), &[(f32, &[2, 3, 4, 5]), (f32, &[2, 1, 1, 5])]);
    add(Quantize.into(), &[(f32, &[3, 7])]);
    add(Dequantize.into(), &[(i8, &[3, 7])]);
    add(Cast { dtype: f64 }.into(), &[(i32, &[11])]);
    add(Cast { dtype: DType::U8 }.into(), &[(f32, &[11])]);
    for distribution in [Distribution::Uniform, Distribution::Normal] {
        add(RandomOp { shape: shape(&[3, 5]), distribution }.into(), &[(i32, &[4])]);
    }
    let fused = Fused { dtype: f32, shape: shape(&[4, 3]) };
    all.push(single(fused.into(), &[(f32, &[4, 3]), (f32, &[3])], Some(&program())));
    all
}

/// Runs a plan and demands the reference's bytes.
fn same(graph: &Graph, planned: &Planned, random: &mut Random) {
    let mut runner = Runner::new(&planned.bytes).unwrap();
    let mut evaluator = Evaluator::new(graph);
    let entry = &graph.entries[0];
    let data: Vec<Vec<u8>> = entry.inputs.iter().map(|&id| random.elements(&graph.value(id).ty)).collect();
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let want = evaluator.run(0, &data).unwrap();
    let (outputs, _) = runner.run_recording("infer", &data).unwrap();
    for (id, got) in entry.outputs.iter().zip(&outputs) {
        assert!(*got == want[id], "{got:?} is not {:?}: {graph:#?}", want[id]);
    }
}

#[test]
fn every_operator_runs_through_its_reference() {
    let mut seen = BTreeSet::new();
    for graph in graphs() {
        let planned = plan(&graph, &Options { choice: Choice::References, ..options(true) }).unwrap();
        for step in &planned.entries[0].steps {
            assert_eq!(step.kernel.name, format!("reference: {}", step.op.name()));
            assert_eq!(step.kernel.number, 0x8000 + step.op.code());
            seen.insert(step.op.name());
        }
        for seed in 0..if cfg!(miri) { 1 } else { 20 } {
            same(&graph, &planned, &mut Random::new(seed));
        }
    }
    let all: BTreeSet<&str> = Op::ALL.iter().map(|(_, name)| *name).filter(|&name| name != "reshape").collect();
    assert_eq!(seen, all);
}

/// Without being asked to, planning takes a reference only where it has nothing else.
#[test]
fn what_has_no_kernel_falls_back() {
    let mut fell_back = 0;
    for graph in graphs() {
        let planned = plan(&graph, &options(true)).unwrap();
        let double = graph.values.iter().any(|v| v.ty.dtype == DType::F64);
        for step in &planned.entries[0].steps {
            let reference = step.kernel.number >= 0x8000;
            fell_back += u32::from(reference);
            assert!(reference || !double || moves(step.op), "{} of float64", step.kernel.name);
        }
    }
    assert!(fell_back > 15);
}

fn moves(op: Op) -> bool {
    matches!(op, Op::Copy(_) | Op::Transpose(_) | Op::Expand(_) | Op::Slice(_) | Op::Scatter(_) | Op::Concat(_))
}
