//! Random numbers, small graphs, and the comparison of a plan's run with the graph's reference.

use kiln_core::{DType, TargetId, TensorType};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};
use kiln_planner::reference::Evaluator;
use kiln_planner::solve::Budget;
use kiln_planner::{Options, Planned, plan};
use kiln_target_host::Runner;

/// Seeded random numbers.
pub(crate) struct Random(oorandom::Rand64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(oorandom::Rand64::new(seed as u128))
    }

    /// A number of `low..=high`.
    pub(crate) fn range(&mut self, low: u32, high: u32) -> u32 {
        low + self.0.rand_range(0..u64::from(high - low) + 1) as u32
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.rand_range(0..n.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: u32) -> bool {
        self.range(1, n) == 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A number of `-1.0..1.0`.
    pub(crate) fn real(&mut self) -> f32 {
        (self.0.rand_float() * 2.0 - 1.0) as f32
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.rand_u64()
    }

    /// Elements of a tensor: any bytes, or reals between -1 and 1.
    pub(crate) fn elements(&mut self, ty: &TensorType) -> Vec<u8> {
        let n = ty.shape.elements().unwrap() as usize;
        match ty.dtype {
            DType::F32 => (0..n).flat_map(|_| self.real().to_le_bytes()).collect(),
            DType::F64 => (0..n).flat_map(|_| f64::from(self.real()).to_le_bytes()).collect(),
            DType::Bool => (0..n).map(|_| u8::from(self.one_in(2))).collect(),
            DType::I32 => (0..n).flat_map(|_| ((self.real() * 3000.0) as i32).to_le_bytes()).collect(),
            _ => (0..ty.bytes().unwrap()).map(|_| self.word() as u8).collect(),
        }
    }
}

pub(crate) fn ty(dtype: DType, dims: &[u32]) -> TensorType {
    tensor_type(dtype, dims).unwrap()
}

/// A graph with empty entries of these names.
pub(crate) fn graph(entries: &[&str]) -> Graph {
    let mut graph = Graph::new("test");
    graph.entries = entries.iter().map(|name| Entry { name: (*name).into(), ..Entry::default() }).collect();
    graph
}

/// Adds an input to an entry.
pub(crate) fn input(graph: &mut Graph, entry: usize, name: &str, ty: TensorType, quant: &Quant) -> ValueId {
    let id = graph.add_input(name, ty, quant.clone());
    graph.entries[entry].inputs.push(id);
    id
}

pub(crate) fn options(overlap: bool) -> Options {
    // Under Miri it is not the search that is of interest.
    let nodes = if cfg!(miri) { 20 } else { 3000 };
    Options { budget: Budget { nodes }, overlap, ..Options::for_target(TargetId::ARMV7EM) }
}

/// A plan beside the reference of its graph.
pub(crate) struct Pair<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) planned: Planned,
    runner: Runner,
    reference: Evaluator<'g>,
}

impl<'g> Pair<'g> {
    pub(crate) fn new(graph: &'g Graph, overlap: bool) -> Pair<'g> {
        let planned = plan(graph, &options(overlap)).unwrap_or_else(|e| panic!("{e}\n{graph:#?}"));
        let runner = Runner::new(&planned.bytes).unwrap_or_else(|e| panic!("{e}\n{graph:#?}"));
        let mut pair = Pair { graph, planned, runner, reference: Evaluator::new(graph) };
        pair.reset_reference();
        pair
    }

    fn reset_reference(&mut self) {
        self.reference = Evaluator::new(self.graph);
        if let Some(entry) = self.graph.entries.iter().position(|e| e.name == "reset") {
            self.reference.run(entry, &[]).unwrap();
        }
    }

    pub(crate) fn reset(&mut self) {
        self.runner.reset();
        self.reset_reference();
    }

    /// Runs entry number `entry` on `inputs` in both, and compares what every step and the entry
    /// gave. Answers the outputs.
    pub(crate) fn run(&mut self, entry: usize, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let graph = self.graph;
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let want = self.reference.run(entry, &inputs).unwrap();
        let name = &graph.entries[entry].name;
        let (outputs, steps) = self.runner.run_recording(name, &inputs).unwrap();
        let planned = &self.planned.entries[entry];
        assert_eq!(steps.len(), planned.steps.len());
        for (number, (step, got)) in planned.steps.iter().zip(&steps).enumerate() {
            if step.node.is_some() {
                let what = || format!("{name}: step {number} '{}' of {graph:#?}", step.name);
                compare(graph.value(step.output).ty.dtype, got, &want[&step.output], what);
            }
        }
        assert_eq!(outputs.len(), graph.entries[entry].outputs.len());
        for (number, (&id, got)) in graph.entries[entry].outputs.iter().zip(&outputs).enumerate() {
            let what = || format!("{name}: output {number} of {graph:#?}");
            compare(graph.value(id).ty.dtype, got, &want[&id], what);
        }
        outputs
    }
}

/// Integers are equal; floats close, as sums and exponentials may be rounded differently.
pub(crate) fn compare(dtype: DType, got: &[u8], want: &[u8], what: impl Fn() -> String) {
    assert_eq!(got.len(), want.len(), "{}", what());
    if dtype != DType::F32 {
        assert!(got == want, "{} differs: {got:?}, not {want:?}", what());
        return;
    }
    for (i, (got, want)) in reals(got).into_iter().zip(reals(want)).enumerate() {
        let close = (got - want).abs() <= 1e-4 * (1.0 + want.abs());
        assert!(close, "{} differs at {i}: {got}, not {want}", what());
    }
}

pub(crate) fn reals(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

pub(crate) fn bytes_of(reals: &[f32]) -> Vec<u8> {
    reals.iter().flat_map(|r| r.to_le_bytes()).collect()
}
