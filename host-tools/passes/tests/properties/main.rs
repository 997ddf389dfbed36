//! Random graphs through the passes: they compute the same, and stay what they promise to stay.

mod arrangements;
mod graphs;
mod patches;
mod stretches;

use graphs::{Recipe, build, recipe};
use kiln_core::{TargetId, TensorType};
use kiln_passes::{PassError, drop_dead, fold_constants, simplify_views};
use kiln_planner::graph::{Entry, Graph, Quant, Source, ValueId};
use kiln_planner::reference::Evaluator;
use kiln_planner::solve::Budget;
use kiln_planner::{Options, plan};
use kiln_target_host::Runner;
use proptest::prelude::*;

type Pass = fn(Graph) -> Result<Graph, PassError>;
const PASSES: [Pass; 4] = [fold_constants, simplify_views, drop_dead, clean];

fn clean(graph: Graph) -> Result<Graph, PassError> {
    kiln_passes::clean(graph).map(|cleaned| cleaned.graph)
}

/// Outputs of every entry, in order, run after run: `entry` bytes of input at a time.
type Outputs = Vec<Vec<Vec<u8>>>;

/// Runs all entries twice, so that what the state remembers shows.
const ROUNDS: usize = 2;

fn input(graph: &Graph, id: ValueId, round: usize) -> Vec<u8> {
    let bytes = graph.value(id).ty.bytes().unwrap() as usize;
    (0..bytes).map(|i| (i * 37 + round * 101 + graph.value(id).name.len() * 59) as u8).collect()
}

fn evaluated(graph: &Graph) -> Outputs {
    let mut evaluator = Evaluator::new(graph);
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        for (index, entry) in graph.entries.iter().enumerate() {
            let inputs: Vec<Vec<u8>> = entry.inputs.iter().map(|&id| input(graph, id, round)).collect();
            let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let values = evaluator.run(index, &inputs).unwrap();
            all.push(entry.outputs.iter().map(|id| values[id].clone()).collect());
        }
    }
    all
}

/// The same by a plan; `None` where some node has no kernel.
fn planned(graph: &Graph) -> Option<Outputs> {
    let options = Options { budget: Budget { nodes: 100 }, ..Options::for_target(TargetId::PORTABLE) };
    let planned = plan(graph, &options).ok()?;
    let mut runner = Runner::new(&planned.bytes).unwrap();
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        for entry in &graph.entries {
            let inputs: Vec<Vec<u8>> = entry.inputs.iter().map(|&id| input(graph, id, round)).collect();
            let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            all.push(runner.run(&entry.name, &inputs).unwrap());
        }
    }
    Some(all)
}

/// What callers see of a value: its name, type and quantization.
type Face<'a> = (&'a str, TensorType, &'a Quant);

/// What callers see of a graph: its entries, and what goes in and out.
fn face(graph: &Graph) -> Vec<(&str, Vec<Face<'_>>)> {
    let value = |id: &ValueId| {
        let value = graph.value(*id);
        (value.name.as_str(), value.ty, &value.quant)
    };
    let entry = |e: &Entry| e.inputs.iter().chain(&e.outputs).map(value).collect();
    graph.entries.iter().map(|e| (e.name.as_str(), entry(e))).collect()
}

fn sources(graph: &Graph) -> Vec<bool> {
    let outputs = graph.entries.iter().flat_map(|e| &e.outputs);
    outputs.map(|id| matches!(graph.value(*id).source, Source::Constant(_))).collect()
}

fn check(recipe: &Recipe) {
    let graph = build(recipe);
    let before = evaluated(&graph);
    for pass in PASSES {
        let after = pass(graph.clone()).unwrap();
        after.validate().unwrap();
        assert_eq!(face(&after), face(&graph));
        assert_eq!(sources(&after), sources(&graph), "an output has become a constant");
        assert_eq!(evaluated(&after), before);
        assert_eq!(pass(after.clone()).unwrap(), after, "a second time changes something");
    }
    let after = clean(graph.clone()).unwrap();
    let used = |id: usize| {
        let id = ValueId(id as u32);
        after.entries.iter().any(|e| {
            let nodes = e.nodes.iter().any(|n| n.output == id || n.inputs.contains(&id));
            nodes
                || e.inputs.contains(&id)
                || e.outputs.contains(&id)
                || e.assigns.iter().any(|a| a.state == id || a.value == id)
        })
    };
    assert!((0..after.values.len()).all(used), "a value is left that nobody uses");
    let plans = (planned(&graph), planned(&after));
    assert!(plans.0.is_none() || plans.1.is_some(), "no plan any more");
    assert!([&plans.0, &plans.1].into_iter().flatten().all(|outputs| *outputs == before));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn passes_keep_what_graphs_compute(recipe in recipe()) {
        check(&recipe);
    }
}

/// The random graphs are worth something only if the passes find work in them, and plans exist.
#[test]
fn random_graphs_give_the_passes_work() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut counts = [0; 4];
    let mut plans = 0;
    for _ in 0..100 {
        let graph = build(&recipe().new_tree(&mut runner).unwrap().current());
        for (count, pass) in counts.iter_mut().zip(PASSES) {
            *count += usize::from(pass(graph.clone()).unwrap() != graph);
        }
        plans += usize::from(planned(&clean(graph).unwrap()).is_some());
    }
    assert!(counts.iter().all(|n| *n >= 30) && plans >= 50, "{counts:?}, {plans} plans");
}
