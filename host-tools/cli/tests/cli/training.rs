//! Rows that training needs and operators' references, planned, named in reports, and run on an emulated board.

use std::path::PathBuf;

use kiln_boards::Board;
use kiln_codegen::deploy::Deployment;
use kiln_codegen::emulate::Emulation;
use kiln_codegen::firmware::Mode;
use kiln_codegen::symbols::Elf;
use kiln_codegen::target_of;
use kiln_core::{DType, Shape};
use kiln_ops::{
    Activation, Add, ArgMax, AveragePool2dGrad, Cast, Concat, Conv2d, Conv2dInputGrad, Conv2dWeightGrad, Copy,
    Dequantize, Distribution, Expand, FullyConnected, Function, Fused, LogSoftmax, Map, MatMul, MaxPool2dGrad,
    MaxPool2dPick, Op, Pool2d, PoolKind, Quantize, Random, Reduce, ReduceKind, Scatter, Slice, Softmax, Transpose,
};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};
use kiln_planner::kiln_file::{About, KilnFile};
use kiln_planner::{Choice, Options, plan};
use kiln_target_host::Runner;

use crate::support::{arg, kiln_fine};
use crate::verify::can_emulate;

const BOARD: &str = "mps2-an386";

struct Maker {
    graph: Graph,
}

impl Maker {
    fn new(name: &str) -> Maker {
        let mut graph = Graph::new(name);
        graph.entries.push(Entry { name: "infer".into(), ..Entry::default() });
        Maker { graph }
    }

    fn input(&mut self, name: &str, dtype: DType, dims: &[u32]) -> ValueId {
        let id = self.graph.add_input(name, tensor_type(dtype, dims).unwrap(), Quant::default());
        self.graph.entries[0].inputs.push(id);
        id
    }

    fn node(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let op = op.into();
        let name = format!("{}{}", op.name(), self.graph.entries[0].nodes.len());
        self.graph.add_node(0, name, op, inputs, Quant::default()).unwrap()
    }

    fn output(&mut self, op: impl Into<Op>, inputs: &[ValueId]) {
        let id = self.node(op, inputs);
        self.graph.entries[0].outputs.push(id);
    }

    /// Writes the graph with its plan for the board.
    fn file(self, folder: &tempfile::TempDir) -> PathBuf {
        self.graph.validate().unwrap();
        let target = target_of(&Board::builtin(BOARD).unwrap());
        let bytes = plan(&self.graph, &Options::for_target(target)).unwrap().bytes;
        let path = folder.path().join(format!("{}.kiln", self.graph.name));
        let about = About { model: self.graph.name.clone(), board: BOARD.into(), kiln: "0.1.0".into() };
        let file = KilnFile { graph: Some(self.graph), plans: vec![(target, bytes)], about };
        std::fs::write(&path, file.to_bytes().unwrap()).unwrap();
        path
    }
}

/// A softmax in double precision, for which there is no kernel.
fn double() -> Maker {
    let mut m = Maker::new("double");
    let x = m.input("x", DType::F32, &[3, 5]);
    let wide = m.node(Cast { dtype: DType::F64 }, &[x]);
    let scores = m.node(Softmax { beta: 1.0 }, &[wide]);
    m.output(Cast { dtype: DType::F32 }, &[scores]);
    m
}

/// Every row that training adds, each putting out what it computes.
fn training() -> Maker {
    let mut m = Maker::new("training");
    let image = m.input("image", DType::F32, &[1, 6, 6, 4]);
    let weights = m.input("weights", DType::F32, &[8, 3, 3, 4]);
    let gradient = m.input("gradient", DType::F32, &[1, 6, 6, 8]);
    let key = m.input("key", DType::I32, &[4]);
    let conv = Conv2d { strides: [1, 1], dilations: [1, 1], pads: [1; 4], groups: 1, activation: Activation::None };
    m.output(Conv2dInputGrad { conv, size: [6, 6] }, &[gradient, weights]);
    m.output(Conv2dWeightGrad { conv, kernel: [3, 3] }, &[image, gradient]);
    let pool = |kind| Pool2d { kind, kernel: [2, 2], strides: [2, 2], pads: [0; 4], activation: Activation::None };
    let picked = m.node(MaxPool2dPick { pool: pool(PoolKind::Max) }, &[image, image]);
    m.output(MaxPool2dGrad { pool: pool(PoolKind::Max) }, &[image, picked]);
    m.output(AveragePool2dGrad { pool: pool(PoolKind::Average), size: [6, 6] }, &[picked]);
    let matrix = m.node(
        Slice { begin: [0; 8], size: Shape::new(&[8, 3, 3, 1]).unwrap(), step: [1, 1, 1, 2, 1, 1, 1, 1] },
        &[weights],
    );
    m.output(Scatter { begin: [0; 8], shape: Shape::new(&[8, 4, 4, 1]).unwrap(), step: [1; 8] }, &[matrix]);
    let product = m.node(MatMul { transpose_a: false, transpose_b: true }, &[weights, weights]);
    let total = m.node(Reduce { kind: ReduceKind::Sum, axes: 0b010 }, &[product]);
    m.output(Concat { axis: 1 }, &[product, total]);
    m.output(ArgMax { axis: 3 }, &[product]);
    let noise =
        m.node(Random { shape: Shape::new(&[8, 3, 3, 4]).unwrap(), distribution: Distribution::Normal }, &[key]);
    let sum = m.node(Map { function: Function::Add }, &[weights, noise]);
    m.output(Map { function: Function::Tanh }, &[sum]);
    let double = m.node(Map { function: Function::Add }, &[key, key]);
    m.output(Cast { dtype: DType::F32 }, &[double]);
    m
}

/// The operators that [`training`] leaves out.
fn inference(m: &mut Maker) {
    let image = m.input("picture", DType::F32, &[1, 5, 4, 3]);
    let weights = m.input("filter", DType::F32, &[2, 2, 2, 3]);
    let conv =
        Conv2d { strides: [1, 2], dilations: [1, 1], pads: [1, 0, 0, 1], groups: 1, activation: Activation::Relu6 };
    m.output(conv, &[image, weights]);
    let pool =
        Pool2d { kind: PoolKind::Average, kernel: [2, 3], strides: [1, 1], pads: [0; 4], activation: Activation::None };
    m.output(pool, &[image]);
    let matrix = m.input("matrix", DType::F32, &[4, 60]);
    m.output(FullyConnected { keep_dims: false, activation: Activation::None }, &[image, matrix]);
    m.output(LogSoftmax, &[image]);
    m.output(Softmax { beta: 1.0 }, &[image]);
    m.output(Copy, &[image]);
    m.output(Transpose::new(&[2, 0, 3, 1]).unwrap(), &[image]);
    m.output(Expand { shape: Shape::new(&[3, 5, 4, 3]).unwrap() }, &[image]);
    m.output(Add { activation: Activation::Relu }, &[image, image]);
    let quant = Quant::per_tensor(0.01, 3);
    let small = m.graph.add_node(0, "small", Op::from(Quantize), &[image], quant).unwrap();
    m.output(Dequantize, &[small]);
    // |picture|
    let program = [1, 0, 0, 0, Function::Abs as u8, 0, 0, 0];
    let ty = tensor_type(DType::U8, &[8]).unwrap();
    let program = m.graph.add_constant("program", ty, Quant::default(), program.to_vec());
    m.output(Fused { dtype: DType::F32, shape: Shape::new(&[1, 5, 4, 3]).unwrap() }, &[image, program]);
}

/// Builds firmware, which must hold nothing that panics, and demands this computer's bytes of it.
fn runs_on_a_board(graph: &Graph, choice: Choice) {
    let board = Board::builtin(BOARD).unwrap();
    if !can_emulate(&board) {
        return;
    }
    let planned = plan(graph, &Options { choice, ..Options::for_target(target_of(&board)) }).unwrap();
    let root = kiln_codegen::sources::root().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let build = kiln_codegen::sources::firmware_build(&root);
    let deployment =
        Deployment { graph, planned: &planned, board: &board, sources: &root, out: folder.path(), build: &build };
    let path = deployment.build(Mode::Replay).unwrap();
    let elf = Elf::read(&path).unwrap();
    assert_eq!(elf.forbidden(), []);
    println!("{}, {choice:?} kernels: {} bytes of code", graph.name, elf.kiln_code_bytes());

    let mut number = 0u32;
    let mut next = || {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (number >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let inputs: Vec<Vec<u8>> = graph.entries[0]
        .inputs
        .iter()
        .map(|&id| (0..graph.value(id).ty.shape.elements().unwrap()).flat_map(|_| next().to_le_bytes()).collect())
        .collect();
    let replayed = Emulation::new(&board, &path, folder.path()).replay(&inputs.concat()).unwrap();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let here = Runner::new(&planned.bytes).unwrap().run("infer", &inputs).unwrap();
    assert!(replayed.outputs == here.concat(), "{BOARD} computes something else");
}

#[test]
fn reports_name_references() {
    let folder = tempfile::tempdir().unwrap();
    let path = double().file(&folder);
    let text = kiln_fine(["plan", &arg(&path), "--board", BOARD]);
    assert!(text.contains("reference: softmax") && text.contains("reference: cast"), "{text}");
    let text = kiln_fine(["inspect", &arg(&path)]);
    assert!(text.contains("reference: softmax"), "{text}");
    let path = training().file(&folder);
    let text = kiln_fine(["plan", &arg(&path), "--board", BOARD]);
    assert!(text.contains("map_math_f32") && !text.contains("reference"), "{text}");
}

#[test]
fn references_run_on_a_board() {
    runs_on_a_board(&double().graph, Choice::All);
    let mut all = training();
    inference(&mut all);
    runs_on_a_board(&all.graph, Choice::References);
}

#[test]
fn training_rows_run_on_a_board() {
    runs_on_a_board(&training().graph, Choice::All);
}

/// Values made one after the other, and read in the reverse order: like activations of a training step.
fn there_and_back(name: &str) -> Maker {
    let mut m = Maker::new(name);
    let mut values = vec![m.input("x", DType::F32, &[64, 64])];
    for _ in 0..9 {
        values.push(m.node(Map { function: Function::Tanh }, &[values[values.len() - 1]]));
    }
    let mut back = values[9];
    for &value in values[1..9].iter().rev() {
        back = m.node(Map { function: Function::Mul }, &[back, value]);
    }
    m.output(Map { function: Function::Neg }, &[back]);
    m
}

#[test]
fn a_plan_within_less_ram_computes_values_again() {
    let folder = tempfile::tempdir().unwrap();
    let model = arg(&there_and_back("back").file(&folder));
    let json = |ram: &[&str], code: i32| -> serde_json::Value {
        let ran = crate::support::kiln(["plan", &model, "--json"].iter().chain(ram));
        assert_eq!(ran.code, code, "{}", ran.stderr);
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let plain = json(&[], 0);
    let unaided = plain["ram"]["total"].as_u64().unwrap();
    assert!(plain.get("again").is_none() && plain["ram"].get("least").is_none());
    let ram = (unaided * 6 / 10).to_string();
    let small = json(&["--ram", &ram], 0);
    assert!(small["ram"]["total"].as_u64().unwrap() <= unaided * 6 / 10);
    let again = &small["again"][0];
    let steps = small["steps"].as_array().unwrap();
    let named = steps.iter().filter(|step| step["name"].as_str().unwrap().ends_with(" (again)")).count();
    assert_eq!(again["steps"], named);
    assert_eq!(again["saved"].as_u64().unwrap(), unaided - small["ram"]["arena"].as_u64().unwrap());
    assert_eq!(again["entry"], "infer");
    let text = kiln_fine(["plan", &model, "--ram", &ram]);
    assert!(text.contains(&format!("Again  {named} steps of 'infer'")), "{text}");

    // What is called reachable is.
    let least = json(&["--ram", "100"], 1)["ram"]["least"].as_u64().unwrap();
    assert!(json(&["--ram", &least.to_string()], 0)["ram"]["total"].as_u64().unwrap() <= least);
    let ran = crate::support::kiln(["plan", &model, "--ram", "100"]);
    assert!(ran.stderr.contains("computing values again, would bring it to"), "{}", ran.stderr);
}
