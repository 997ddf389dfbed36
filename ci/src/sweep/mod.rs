//! Layers of random shapes on emulated boards: equal to the operators' references in every byte, and nowhere slower than
//! with the kernels that run on every CPU.

mod shapes;

use anyhow::{Context, Result, ensure};
use kiln_boards::Board;
use kiln_codegen::deploy::Deployment;
use kiln_codegen::profile::profile;
use kiln_codegen::{plugin, target_of};
use kiln_planner::graph::Graph;
use kiln_planner::reference::Evaluator;
use kiln_planner::solve::Budget;
use kiln_planner::{Choice, Options, plan};

/// How many layers.
const LAYERS: usize = 200;
/// What they follow from.
const SEED: u64 = 20;

/// Runs the layers on each of the boards named, or on one of every CPU family.
pub fn run(names: &[String]) -> Result<()> {
    let mut boards = crate::instructions::boards()?;
    if !names.is_empty() {
        boards.retain(|board| names.contains(&board.name));
        ensure!(!boards.is_empty(), "no such board");
    }
    let graphs = shapes::graphs(LAYERS, SEED)?;
    let mut wrong = Vec::new();
    for board in boards {
        let (mut layers, mut fast, mut plain) = (0, 0, 0);
        for graph in &graphs {
            let want = expected(graph)?;
            let tuned = measured(graph, &board, Choice::All)?;
            let slow = measured(graph, &board, Choice::Plain)?;
            let each = tuned.into_iter().zip(slow).zip(&want).zip(&graph.entries[0].nodes);
            for (((tuned, slow), want), node) in each {
                let layer = format!("{} on {}: {}", tuned.kernel, board.name, node.name);
                for layer in [&tuned, &slow].into_iter().filter(|layer| layer.output != *want) {
                    let how = difference(&layer.output, want);
                    wrong.push(format!("\n  {} on {}: {}: {how}", layer.kernel, board.name, node.name));
                }
                let (cost, plain_cost) = (tuned.instructions, slow.instructions);
                // Of one kernel in two plans, the places of operands and constants differ: a few instructions.
                if tuned.kernel != slow.kernel && cost > plain_cost {
                    wrong.push(format!("\n  {layer}: {cost} instructions, and {plain_cost} with {}", slow.kernel));
                }
                layers += 1;
                fast += cost;
                plain += plain_cost;
            }
        }
        ensure!(layers == LAYERS, "{} ran {layers} layers, not {LAYERS}", board.name);
        let gain = plain as f64 / fast as f64;
        println!("{}: {layers} layers, {fast} instructions, {plain} with plain kernels: {gain:.2} times", board.name);
    }
    ensure!(wrong.is_empty(), "{} findings:{}", wrong.len(), wrong.concat());
    Ok(())
}

/// What a layer took and gave.
struct Measured {
    kernel: &'static str,
    instructions: u64,
    output: Vec<u8>,
}

/// Runs a graph's layers; in the graph's order.
fn measured(graph: &Graph, board: &Board, choice: Choice) -> Result<Vec<Measured>> {
    // Where the layers lie does not matter, so nothing is searched for.
    let options = Options { budget: Budget { nodes: 0 }, choice, ..Options::for_target(target_of(board)) };
    let planned = plan(graph, &options)?;
    let root = crate::root();
    let out = root.join("target/ci-sweep").join(format!("{}-{}-{choice:?}", graph.name, board.name));
    let build = root.join("target/kiln/build");
    let plugin = plugin::build(&root, &build)?;
    let directory = tempfile::tempdir()?;
    let deployment = Deployment { graph, planned: &planned, board, sources: &root, out: &out, build: &build };
    let inputs = inputs(graph).concat();
    let profile = profile(&deployment, &plugin, directory.path(), &inputs)
        .with_context(|| format!("{} on {}", graph.name, board.name))?;
    let steps = &planned.main_entry().context("nothing to run")?.steps;
    let mut rest = profile.outputs.as_slice();
    let mut layers = Vec::new();
    for (index, &id) in graph.entries[0].outputs.iter().enumerate() {
        let bytes = graph.value(id).ty.bytes().unwrap_or(0) as usize;
        let (output, after) = rest.split_at_checked(bytes).context("outputs are missing")?;
        rest = after;
        let mut counted = steps.iter().zip(&profile.run.steps).filter(|(step, _)| step.node == Some(index));
        let (step, counted) = counted.next().context("a layer was not run")?;
        let (kernel, instructions) = (step.kernel.name, counted.counts.instructions);
        layers.push(Measured { kernel, instructions, output: output.to_vec() });
    }
    Ok(layers)
}

/// What the references give.
fn expected(graph: &Graph) -> Result<Vec<Vec<u8>>> {
    let inputs = inputs(graph);
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut values = Evaluator::new(graph).run(0, &inputs)?;
    let outputs = graph.entries[0].outputs.iter();
    outputs.map(|id| values.remove(id).context("an output was not computed")).collect()
}

/// Inputs with all values of int8, extremes more often than others.
fn inputs(graph: &Graph) -> Vec<Vec<u8>> {
    let entry = &graph.entries[0];
    let fill = |(number, &id): (usize, _)| {
        let bytes = graph.value(id).ty.bytes().unwrap_or(0) as usize;
        let value = |i: usize| match (i * 31 + number) % 97 {
            0 => 0x80,
            1 => 0x7f,
            _ => (i * 97 + number * 13) as u8,
        };
        (0..bytes).map(value).collect()
    };
    entry.inputs.iter().enumerate().map(fill).collect()
}

fn difference(found: &[u8], want: &[u8]) -> String {
    let differ = found.iter().zip(want).filter(|(a, b)| a != b).count();
    let first = found.iter().zip(want).position(|(a, b)| a != b).unwrap_or(0);
    let at = |bytes: &[u8]| bytes.get(first).map_or(0, |&byte| byte as i8);
    format!("{differ} of {} bytes, the first at {first}: {}, not {}", want.len(), at(found), at(want))
}
