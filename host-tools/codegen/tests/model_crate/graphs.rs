//! Graphs to generate crates from.

use kiln_core::{DType, TensorType};
use kiln_ops::{Activation, Add, Copy, FullyConnected, Reshape, Softmax};
use kiln_planner::graph::{Assign, Entry, Extent, Graph, Quant, ValueId, VaryingDim, tensor_type};

fn ty(dtype: DType, dims: &[u32]) -> TensorType {
    tensor_type(dtype, dims).unwrap()
}

fn quant() -> Quant {
    Quant::per_tensor(0.5, 3)
}

const SUM: Add = Add { activation: Activation::None };

fn entry(g: &mut Graph, name: &str, inputs: &[ValueId]) -> usize {
    g.entries.push(Entry { name: name.into(), inputs: inputs.to_vec(), ..Entry::default() });
    g.entries.len() - 1
}

/// One input, one output, two dense layers.
pub(crate) fn single() -> Graph {
    let mut g = Graph::new("single");
    let x = g.add_input("features", ty(DType::I8, &[1, 6]), quant());
    entry(&mut g, "infer", &[x]);
    let mut value = x;
    for (index, (rows, columns)) in [(8, 6), (3, 8)].into_iter().enumerate() {
        let data: Vec<u8> = (0..rows * columns).map(|i| (i * 37 % 251) as u8).collect();
        let w = g.add_constant(format!("w{index}"), ty(DType::I8, &[rows, columns]), Quant::per_tensor(0.02, 0), data);
        let dense = FullyConnected { keep_dims: false, activation: Activation::Relu };
        value = g.add_node(0, format!("dense{index}"), dense, &[value, w], quant()).unwrap();
    }
    g.entries[0].outputs = vec![value];
    g.labels = ["left", "middle", "right"].map(String::from).to_vec();
    g.validate().unwrap();
    g
}

/// Two inputs, two outputs, state that accumulates from run to run, and `reset`, which gives the
/// state a value other than zero.
pub(crate) fn stateful() -> Graph {
    let mut g = Graph::new("Stateful model");
    let ty = ty(DType::I8, &[1, 4]);
    let (a, b) = (g.add_input("a", ty, quant()), g.add_input("b", ty, quant()));
    let state = g.add_state("seen", ty, quant());
    let start = g.add_constant("start", ty, quant(), vec![1, 2, 3, 250]);
    entry(&mut g, "infer", &[a, b]);
    let sum = g.add_node(0, "sum", SUM, &[a, b], quant()).unwrap();
    let total = g.add_node(0, "total", SUM, &[sum, state], quant()).unwrap();
    let scores =
        g.add_node(0, "scores", Softmax { beta: 1.0 }, &[total], Quant::per_tensor(1.0 / 256.0, -128)).unwrap();
    g.entries[0].outputs = vec![total, scores];
    g.entries[0].assigns = vec![Assign { state, value: total }];
    let reset = entry(&mut g, "reset", &[]);
    g.entries[reset].assigns = vec![Assign { state, value: start }];
    g.labels = (0..9).map(|i| format!("class {i}")).collect();
    g.validate().unwrap();
    g
}

/// Names as nobody would choose them, for everything that has one.
pub(crate) const AWKWARD: [&str; 14] = [
    "",
    "infer",
    "fn",
    "train step",
    "train_step",
    "Reset",
    "session",
    "new",
    "input",
    "1st",
    "été \u{202e}",
    "a`b\"c\\d\n//! #![std]",
    "*/ unsafe { }",
    "entry_infer",
];

/// An entry for each of [`AWKWARD`], with inputs, outputs, labels and extents of those names.
pub(crate) fn awkward() -> Graph {
    let mut g = Graph::new("a \"name\"\n` \\u{41} 模型");
    let ty = ty(DType::I8, &[1, 4]);
    for name in AWKWARD {
        let x = g.add_input(name, ty, quant());
        let index = entry(&mut g, name, &[x]);
        let y = g.add_node(index, name, SUM, &[x, x], quant()).unwrap();
        let z = g.add_node(index, name, SUM, &[y, x], quant()).unwrap();
        g.entries[index].outputs = if index.is_multiple_of(2) { vec![z] } else { vec![z, y] };
    }
    g.labels = AWKWARD.map(String::from).to_vec();
    g.extents = ["", "infer", "fn"].map(|name| Extent { name: name.into(), max: 4 }).to_vec();
    g.validate().unwrap();
    g
}

/// Outputs that nothing computes, of other types, of no elements; a dimension that varies; and a
/// scale that looks like pi.
pub(crate) fn odd() -> Graph {
    let mut g = Graph::new("odd");
    let float = ty(DType::F32, &[2, 2]);
    let one_batch = |mut ty: TensorType| {
        ty.shape = kiln_core::Shape::new(&[3, 4]).unwrap();
        ty
    };
    let x = g.add_input("x", float, Quant::default());
    let batch = g.add_input("batch", one_batch(ty(DType::I8, &[])), Quant::per_tensor(std::f32::consts::PI, 0));
    let state = g.add_state("state", ty(DType::I32, &[3]), Quant::default());
    let numbers: Vec<u8> = [1.5f32, -2.0, 3.25, 1e-9].iter().flat_map(|v| v.to_le_bytes()).collect();
    let constant = g.add_constant("constant", float, Quant::default(), numbers);
    let none = g.add_constant("nothing", ty(DType::I16, &[0]), Quant::default(), Vec::new());
    g.extents = vec![Extent { name: "batch".into(), max: 3 }];
    entry(&mut g, "infer", &[x, batch]);
    let sum = g.add_node(0, "sum", SUM, &[x, constant], Quant::default()).unwrap();
    let flat = Reshape { shape: ty(DType::F32, &[4]).shape };
    let view = g.add_node(0, "view", flat, &[constant], Quant::default()).unwrap();
    let again = g.add_node(0, "again", Copy, &[batch], Quant::per_tensor(std::f32::consts::PI, 0)).unwrap();
    for id in [batch, again] {
        g.values[id.index()].varying = vec![VaryingDim { axis: 0, extent: 0 }];
    }
    g.entries[0].outputs = vec![sum, constant, view, x, state, again, none];
    let idle = entry(&mut g, "idle", &[]);
    assert_eq!(idle, 1);
    g.validate().unwrap();
    g
}

/// Nothing to run.
pub(crate) fn empty() -> Graph {
    Graph::new("")
}

/// `reset` alone.
pub(crate) fn only_reset() -> Graph {
    let mut g = Graph::new("only reset");
    let state = g.add_state("state", ty(DType::I8, &[4]), quant());
    let start = g.add_constant("start", ty(DType::I8, &[4]), quant(), vec![1, 2, 3, 4]);
    let reset = entry(&mut g, "reset", &[]);
    g.entries[reset].outputs = vec![state];
    g.entries[reset].assigns = vec![Assign { state, value: start }];
    g.validate().unwrap();
    g
}

/// Every graph here.
pub(crate) fn all() -> [Graph; 6] {
    [single(), stateful(), awkward(), odd(), empty(), only_reset()]
}
