//! Rows that training needs and operators' references, planned, named in reports, and run on an emulated board.

use std::path::PathBuf;

use kiln_boards::Board;
use kiln_codegen::target_of;
use kiln_core::{DType, Shape};
use kiln_ops::{
    Activation, ArgMax, AveragePool2dGrad, Cast, Concat, Conv2d, Conv2dInputGrad, Conv2dWeightGrad, Distribution,
    Function, Map, MatMul, MaxPool2dGrad, MaxPool2dPick, Op, Pool2d, PoolKind, Random, Reduce, ReduceKind, Scatter,
    Slice, Softmax,
};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};
use kiln_planner::kiln_file::{About, KilnFile};
use kiln_planner::{Options, plan};

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

/// Builds firmware, which must hold nothing that panics, and demands this computer's bytes of it.
fn runs_on_a_board(maker: Maker) {
    let folder = tempfile::tempdir().unwrap();
    let path = maker.file(&folder);
    if !can_emulate(&Board::builtin(BOARD).unwrap()) {
        return;
    }
    let text = kiln_fine(["flash", &arg(&path), "--board", BOARD]);
    println!("{text}");
    assert!(text.contains("no allocator, no panic"), "{text}");
    assert!(text.contains("equal this computer's, byte for byte"), "{text}");
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
    runs_on_a_board(double());
}

#[test]
fn training_rows_run_on_a_board() {
    runs_on_a_board(training());
}
