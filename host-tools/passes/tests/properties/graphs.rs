//! Random graphs: two entries that share constants and state, and a third that puts the state out.

use kiln_core::{DType, TensorType};
use kiln_ops::{Activation, Add, Copy, FullyConnected, Reshape, Softmax};
use kiln_planner::graph::{Assign, Entry, Graph, Quant, ValueId, tensor_type};
use proptest::prelude::*;

/// Shapes of twelve elements; every value has one of them.
const SHAPES: [&[u32]; 5] = [&[12], &[1, 12], &[3, 4], &[2, 6], &[1, 2, 2, 3]];

/// An operation: which, what of, and what else it asks.
type Instruction = [u8; 4];

/// What a graph is made by.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    entries: [Vec<Instruction>; 2],
    outputs: [Vec<u8>; 2],
    assigned: [Option<u8>; 2],
}

/// Recipes of up to ten instructions an entry.
pub(crate) fn recipe() -> impl Strategy<Value = Recipe> {
    let entry = || prop::collection::vec(any::<Instruction>(), 0..10);
    let outputs = || prop::collection::vec(any::<u8>(), 0..4);
    let assigned = || prop::option::of(any::<u8>());
    ([entry(), entry()], [outputs(), outputs()], [assigned(), assigned()])
        .prop_map(|(entries, outputs, assigned)| Recipe { entries, outputs, assigned })
}

fn ty(dims: &[u32]) -> TensorType {
    tensor_type(DType::I8, dims).unwrap()
}

fn quant(choice: u8) -> Quant {
    [Quant::per_tensor(0.5, 3), Quant::per_tensor(0.5, 3), Quant::per_tensor(0.25, -7)][choice as usize % 3].clone()
}

fn bytes(seed: u8, count: usize) -> Vec<u8> {
    (0..count).map(|i| (i as u8).wrapping_mul(29).wrapping_add(seed.wrapping_mul(83))).collect()
}

/// The graph of a recipe; valid, whatever the recipe.
pub(crate) fn build(recipe: &Recipe) -> Graph {
    let mut g = Graph::new("random");
    let constant = g.add_constant("constant", ty(SHAPES[2]), quant(0), bytes(1, 12));
    let state = g.add_state("state", ty(SHAPES[3]), quant(0));
    for (number, instructions) in recipe.entries.iter().enumerate() {
        let input = g.add_input(format!("input {number}"), ty(SHAPES[number]), quant(0));
        g.entries.push(Entry { name: format!("entry {number}"), inputs: vec![input], ..Entry::default() });
        // Constants twice: so that there is something to fold.
        let mut pool = vec![constant, input, constant, state];
        for instruction in instructions {
            let id = apply(&mut g, number, &pool, *instruction);
            pool.push(id);
        }
        let outputs = recipe.outputs[number].iter().map(|pick| pool[*pick as usize % pool.len()]);
        g.entries[number].outputs = outputs.collect();
        if let Some(pick) = recipe.assigned[number] {
            let value = pool[pick as usize % pool.len()];
            let value = shaped(&mut g, number, value, SHAPES[3]);
            g.entries[number].assigns = vec![Assign { state, value }];
        }
    }
    g.entries.push(Entry { name: "peek".into(), outputs: vec![state], ..Entry::default() });
    g.validate().unwrap();
    g
}

/// `value` under the shape `dims`.
fn shaped(g: &mut Graph, entry: usize, value: ValueId, dims: &[u32]) -> ValueId {
    if g.value(value).ty.shape.dims() == dims {
        return value;
    }
    let quant = g.value(value).quant.clone();
    g.add_node(entry, "shaped", Reshape { shape: ty(dims).shape }, &[value], quant).unwrap()
}

fn apply(g: &mut Graph, entry: usize, pool: &[ValueId], [op, first, second, extra]: Instruction) -> ValueId {
    let pick = |choice: u8| pool[choice as usize % pool.len()];
    let a = pick(first);
    let (dims, own) = (g.value(a).ty.shape, g.value(a).quant.clone());
    let name = format!("node {}", g.values.len());
    match op % 8 {
        0 => g.add_constant(name, ty(SHAPES[extra as usize % 5]), quant(second), bytes(extra, 12)),
        1 | 2 => {
            let shape = ty(SHAPES[extra as usize % 5]).shape;
            let quant = if second % 4 == 0 { quant(second / 4) } else { own };
            g.add_node(entry, name, Reshape { shape }, &[a], quant).unwrap()
        }
        3 | 4 => {
            let b = shaped(g, entry, pick(second), dims.dims());
            let activation = if extra % 2 == 0 { Activation::None } else { Activation::Relu };
            g.add_node(entry, name, Add { activation }, &[a, b], quant(extra / 2)).unwrap()
        }
        5 => {
            let n = dims.last();
            let weights = bytes(extra, (n * n) as usize);
            let w = g.add_constant(format!("{name}/weights"), ty(&[n, n]), Quant::per_tensor(0.01, 0), weights);
            let dense = FullyConnected { keep_dims: true, activation: Activation::None };
            g.add_node(entry, name, dense, &[a, w], quant(extra)).unwrap()
        }
        6 => g.add_node(entry, name, Copy, &[a], own).unwrap(),
        _ => g.add_node(entry, name, Softmax { beta: 1.0 }, &[a], Quant::per_tensor(1.0 / 256.0, -128)).unwrap(),
    }
}
