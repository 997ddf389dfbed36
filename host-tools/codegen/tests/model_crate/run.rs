//! Generated crates built and run here, beside the executor on the same plan bytes.

use kiln_planner::Planned;
use kiln_planner::graph::Graph;
use kiln_target_host::Runner;

use crate::graphs;
use crate::workspace::Workspace;

/// Uses every crate and prints what comes out, a line each.
const PROGRAM: &str = include_str!("program.rs");

/// Byte `i` of input `number` in a round; the program fills inputs the same way.
fn byte(i: usize, number: usize, round: usize) -> u8 {
    (i * 37 + number * 59 + round * 101) as u8
}

pub(crate) fn line(title: &str, bytes: &[u8]) -> String {
    format!("{title} {bytes:?}")
}

/// Runs an entry and gives its outputs and what its steps wrote.
pub(crate) fn run(runner: &mut Runner, graph: &Graph, entry: &str, round: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let sizes = graph.entry(entry).unwrap().inputs.iter().map(|&id| graph.value(id).ty.bytes().unwrap() as usize);
    let inputs: Vec<Vec<u8>> =
        sizes.enumerate().map(|(number, size)| (0..size).map(|i| byte(i, number, round)).collect()).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    runner.run_recording(entry, &inputs).unwrap()
}

pub(crate) fn runner(planned: &Planned) -> Runner {
    Runner::new(&planned.bytes).unwrap()
}

#[test]
fn generated_crates_compile_cleanly_and_compute_what_their_plans_compute() {
    let mut workspace = Workspace::new();
    let graphs = graphs::all();
    let plans = graphs.each_ref().map(|graph| workspace.add(graph));
    workspace.write(PROGRAM);
    let lints = ["-D", "warnings", "-D", "missing_docs", "-D", "clippy::undocumented_unsafe_blocks"];
    workspace.cargo(&[&["clippy", "--quiet", "--workspace", "--"], &lints[..]].concat());
    workspace.check_format(&["single-model", "stateful-model", "odd-model", "model", "only-reset-model"]);
    let printed = workspace.cargo(&["run", "--quiet", "-p", "program"]);

    let printed: Vec<&str> = printed.lines().collect();
    assert_eq!(printed, expected(&graphs, &plans));
}

/// What the programs print: the executor's results for the same inputs.
pub(crate) fn expected(graphs: &[Graph; 6], plans: &[Planned; 6]) -> Vec<String> {
    let mut expected = Vec::new();
    let [single, stateful, awkward, odd, ..] = graphs;
    let mut here = runner(&plans[0]);
    for round in 0..3 {
        let (outputs, _) = run(&mut here, single, "infer", round);
        expected.push(line("single", &outputs[0]));
    }
    let mut here = runner(&plans[1]);
    for round in 0..6 {
        if round == 3 {
            here.reset();
        }
        let (outputs, steps) = run(&mut here, stateful, "infer", round);
        expected.extend(steps.iter().map(|step| line("step", step)));
        expected.extend(outputs.iter().map(|output| line("stateful", output)));
    }
    let mut here = runner(&plans[2]);
    for (round, name) in ["fn", "train step", "train_step", "Reset", "été \u{202e}"].into_iter().enumerate() {
        let (outputs, _) = run(&mut here, awkward, name, round);
        expected.extend(outputs.iter().map(|output| line("awkward", output)));
    }
    let mut here = runner(&plans[3]);
    for (round, extent) in [3, 1].into_iter().enumerate() {
        here.set_extent(0, extent).unwrap();
        let (outputs, _) = run(&mut here, odd, "infer", round);
        expected.extend(outputs.iter().map(|output| line("odd", output)));
    }
    // Resetting zeroes the state, and only then runs the entry, which puts out what it finds.
    expected.push(line("only reset", &[0; 4]));
    expected
}
