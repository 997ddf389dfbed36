//! A small model made here, so that the command is tested where the reference data is missing.

use kiln_core::{DType, TargetId};
use kiln_ops::{Activation, Add, Conv2d, FullyConnected, Pool2d, PoolKind, Reshape, Softmax};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};
use kiln_planner::kiln_file::{About, KilnFile};
use kiln_planner::{Options, plan};

/// Bytes of the model's input, int8 [1, 6, 6, 2].
pub(crate) const INPUT_BYTES: usize = 72;
/// Bytes of its output, int8 [1, 3].
pub(crate) const OUTPUT_BYTES: usize = 3;

/// A convolution beside a shortcut, their sum, a pool, a reshape, a dense layer, a softmax: six
/// nodes, five steps.
pub(crate) fn graph() -> Graph {
    let mut g = Graph::new("synthetic");
    g.entries.push(Entry { name: "infer".into(), ..Entry::default() });
    let ty = |dtype, dims: &[u32]| tensor_type(dtype, dims).unwrap();
    let quant = || Quant::per_tensor(0.5, 3);
    let x = g.add_input("x", ty(DType::I8, &[1, 6, 6, 2]), quant());
    let (w, b) = weights(&mut g, "conv", &[2, 3, 3, 2], 2);
    let conv =
        Conv2d { strides: [1, 1], dilations: [1, 1], pads: [1, 1, 1, 1], groups: 1, activation: Activation::Relu };
    let c = g.add_node(0, "conv", conv, &[x, w, b], quant()).unwrap();
    let sum = g.add_node(0, "sum", Add { activation: Activation::None }, &[x, c], quant()).unwrap();
    let pool =
        Pool2d { kind: PoolKind::Average, kernel: [3, 3], strides: [3, 3], pads: [0; 4], activation: Activation::None };
    let p = g.add_node(0, "pool", pool, &[sum], quant()).unwrap();
    let flat = Reshape { shape: ty(DType::I8, &[1, 8]).shape };
    let f = g.add_node(0, "flat", flat, &[p], quant()).unwrap();
    let (w, b) = weights(&mut g, "dense", &[3, 8], 3);
    let dense = FullyConnected { keep_dims: false, activation: Activation::None };
    let d = g.add_node(0, "dense", dense, &[f, w, b], quant()).unwrap();
    let s = g.add_node(0, "scores", Softmax { beta: 1.0 }, &[d], Quant::per_tensor(1.0 / 256.0, -128)).unwrap();
    g.entries[0].inputs = vec![x];
    g.entries[0].outputs = vec![s];
    g.labels = ["left", "middle", "right"].map(String::from).to_vec();
    g.validate().unwrap();
    g
}

pub(crate) fn weights(g: &mut Graph, name: &str, dims: &[u32], outputs: u32) -> (ValueId, ValueId) {
    let ty = tensor_type(DType::I8, dims).unwrap();
    let data: Vec<u8> = (0..ty.bytes().unwrap()).map(|i| (i * 37 % 251) as u8).collect();
    let w = g.add_constant(format!("{name}/weights"), ty, Quant::per_tensor(0.02, 0), data);
    let bias: Vec<u8> = (0..outputs as i32).flat_map(|i| (i * 50 - 40).to_le_bytes()).collect();
    let ty = tensor_type(DType::I32, &[outputs]).unwrap();
    let b = g.add_constant(format!("{name}/bias"), ty, Quant::per_tensor(0.01, 0), bias);
    (w, b)
}

/// A `.kiln` file with plans for these targets.
pub(crate) fn file(with_graph: bool, targets: &[TargetId]) -> Vec<u8> {
    let graph = graph();
    let plans = targets.iter().map(|&t| (t, plan(&graph, &Options::for_target(t)).unwrap().bytes)).collect();
    let about = About { model: "synthetic".into(), board: "mps2-an386".into(), kiln: "0.1.0".into() };
    KilnFile { graph: with_graph.then_some(graph), plans, about }.to_bytes().unwrap()
}

/// Writes the checksum that a changed file's bytes ask for.
pub(crate) fn reseal(bytes: &mut [u8]) {
    let sum = kiln_core::crc::crc32(&bytes[16..]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// An input.
pub(crate) fn input() -> Vec<u8> {
    (0..INPUT_BYTES).map(|i| (i * 73 % 256) as u8).collect()
}
