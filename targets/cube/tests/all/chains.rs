//! Chains of functions that are made at random.

use kiln_core::{DType, TensorType};
use kiln_ops::{Function, Fused, Program};
use kiln_planner::graph::{Entry, Graph, Node, Quant};
use kiln_target_host::Cpu;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::cases::{difference, elements, run, ty};
use crate::cube;

/// What gives numbers. None has jumps, and none but the products grows: a last bit more or less stays one.
const SMOOTH: [Function; 11] = [
    Function::Add,
    Function::Sub,
    Function::Min,
    Function::Max,
    Function::Neg,
    Function::Abs,
    Function::Mul,
    Function::Tanh,
    Function::Sigmoid,
    Function::Sin,
    Function::Erf,
];

const COMPARISONS: [Function; 3] = [Function::Less, Function::LessEqual, Function::Equal];

/// The shapes that inputs of an output of shape `[3, 4, 5]` have.
const SHAPES: [&[u32]; 6] = [&[3, 4, 5], &[5], &[4, 1], &[3, 1, 5], &[], &[1, 1, 1]];

/// An instruction before it is known what it can read: its kind, and where its operands are found.
type Draft = (u8, u8, [u8; 3]);

/// A chain, and what it reads.
#[derive(Debug)]
struct Chain {
    inputs: Vec<TensorType>,
    program: Vec<u8>,
    dtype: DType,
}

/// Makes a program of drafts: operands that are numbers or truth, as functions want them; truth compares inputs and
/// immediates only, which both sides have bit for bit.
fn chain(shapes: &[(u8, bool)], immediates: &[f32], drafts: &[Draft]) -> Chain {
    let mut inputs = vec![ty(DType::F32, SHAPES[0])];
    inputs.extend(shapes.iter().map(|&(shape, truth)| {
        ty(if truth { DType::Bool } else { DType::F32 }, SHAPES[shape as usize % SHAPES.len()])
    }));
    let (mut numbers, mut truths): (Vec<u8>, Vec<u8>) = Default::default();
    for (i, input) in inputs.iter().enumerate() {
        if input.dtype == DType::Bool { truths.push(i as u8) } else { numbers.push(i as u8) }
    }
    numbers.extend((0..immediates.len()).map(|i| (inputs.len() + i) as u8));
    let given = numbers.clone();
    let mut instructions: Vec<[u8; 4]> = Vec::new();
    let mut dtype = DType::F32;
    for &(kind, which, picks) in drafts {
        let own = (inputs.len() + immediates.len() + instructions.len()) as u8;
        let pick = |of: &[u8], i: usize| of[picks[i] as usize % of.len()];
        let (function, operands) = match kind % 8 {
            0 if !truths.is_empty() => {
                let logic = [Function::And, Function::Or, Function::Not][which as usize % 3];
                (logic, [pick(&truths, 0), pick(&truths, 1), 0])
            }
            1 => (COMPARISONS[which as usize % 3], [pick(&given, 0), pick(&given, 1), 0]),
            2 | 3 if !truths.is_empty() => (Function::Select, [pick(&truths, 0), pick(&numbers, 1), pick(&numbers, 2)]),
            _ => (SMOOTH[which as usize % SMOOTH.len()], [pick(&numbers, 0), pick(&numbers, 1), 0]),
        };
        let truth = matches!(function, Function::And | Function::Or | Function::Not) || COMPARISONS.contains(&function);
        if truth {
            truths.push(own)
        } else {
            numbers.push(own)
        }
        dtype = if truth { DType::Bool } else { DType::F32 };
        instructions.push([function as u8, operands[0], operands[1], operands[2]]);
    }
    let mut program = vec![instructions.len() as u8, immediates.len() as u8, 0, 0];
    program.extend(immediates.iter().flat_map(|value| value.to_le_bytes()));
    program.extend(instructions.concat());
    assert!(Program::new(&program, inputs.len()).is_some());
    Chain { inputs, program, dtype }
}

impl Chain {
    fn graph(&self) -> Graph {
        let mut graph = Graph::new("chain");
        let inputs: Vec<_> = (self.inputs.iter().enumerate())
            .map(|(i, ty)| graph.add_input(format!("{i}"), *ty, Quant::default()))
            .collect();
        let bytes = ty(DType::U8, &[self.program.len() as u32]);
        let program = graph.add_constant("program", bytes, Quant::default(), self.program.clone());
        let out = ty(self.dtype, SHAPES[0]);
        let output = graph.add_result("output", out, Quant::default());
        let op = Fused { dtype: out.dtype, shape: out.shape }.into();
        let read = inputs.iter().copied().chain([program]).collect();
        let nodes = vec![Node { name: "chain".into(), op, inputs: read, output }];
        graph.entries.push(Entry { name: "run".into(), inputs, outputs: vec![output], nodes, assigns: vec![] });
        graph.validate().unwrap();
        graph
    }
}

#[test]
fn random_chains_compute_what_the_host_does() {
    let Some(cube) = cube() else { return };
    let host = Cpu::with_threads(1);
    let drafts = vec((any::<u8>(), any::<u8>(), any::<[u8; 3]>()), 1..24);
    let all = (vec(any::<(u8, bool)>(), 0..6), vec(-2.0f32..2.0, 0..4), drafts, any::<u64>());
    // The same chains each time: a last bit can be more than the tolerance allows in one of very many.
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner =
        TestRunner::new_with_rng(config, proptest::test_runner::TestRng::deterministic_rng(Default::default()));
    let result = runner.run(&all, |(shapes, immediates, drafts, seed)| {
        let chain = chain(&shapes, &immediates, &drafts);
        let graph = chain.graph();
        let types = chain.inputs.iter().zip(0..);
        let inputs: Vec<Vec<u8>> = types.map(|(ty, i)| elements(ty, seed.wrapping_add(i), [-1.5, 1.5])).collect();
        let (got, want) = (run(&cube, &graph, &inputs), run(&host, &graph, &inputs));
        let (got, want) = (got.map_err(|e| TestCaseError::fail(e.to_string()))?, want.unwrap());
        let off = difference(chain.dtype, &got[0], &want[0]);
        prop_assert!(off <= 1e-4, "{off:e}");
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
