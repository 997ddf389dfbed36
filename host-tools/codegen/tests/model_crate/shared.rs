//! Crates whose models take turns in one arena, beside each model alone.

use kiln_core::TargetId;
use kiln_planner::graph::Graph;
use kiln_planner::{Options, Planned, plan};

use crate::graphs;
use crate::run::{line, run, runner};
use crate::workspace::Workspace;

/// Uses the crates by turns and prints what comes out, a line each.
const PROGRAM: &str = include_str!("taking_turns.rs");

/// The graphs under names of their own: in one build directory cargo takes crates of one name for the same.
fn renamed() -> [Graph; 6] {
    let mut graphs = graphs::all();
    for (graph, name) in graphs.iter_mut().zip(["single", "stateful", "awkward", "odd", "nothing", "only reset"]) {
        graph.name = format!("turns {name}");
    }
    graphs
}

fn shared(graph: &Graph) -> Planned {
    plan(graph, &Options { shared_arena: true, ..Options::for_target(TargetId::ARMV7EM) }).unwrap()
}

fn alone(graph: &Graph) -> Planned {
    plan(graph, &Options::for_target(TargetId::ARMV7EM)).unwrap()
}

#[test]
fn only_state_makes_a_difference_to_a_plan() {
    for graph in graphs::all() {
        let (shared, alone) = (shared(&graph), alone(&graph));
        let sizes = |planned: &Planned| {
            (planned.state_bytes, planned.arena_bytes, planned.ram_bytes, planned.constants_bytes, planned.operands)
        };
        assert_eq!(sizes(&shared), sizes(&alone), "{}", graph.name);
        assert_eq!(shared.bytes == alone.bytes, shared.state_bytes == 0, "{}", graph.name);
    }
}

#[test]
fn models_that_take_turns_compute_what_each_computes_alone() {
    let mut workspace = Workspace::new();
    let graphs = renamed();
    for graph in &graphs {
        workspace.add_planned(graph, &shared(graph));
    }
    workspace.write(PROGRAM);
    let lints = ["-D", "warnings", "-D", "missing_docs", "-D", "clippy::undocumented_unsafe_blocks"];
    workspace.cargo(&[&["clippy", "--quiet", "--workspace", "--"], &lints[..]].concat());
    let names = ["single", "stateful", "odd", "nothing", "only-reset"].map(|name| format!("turns-{name}-model"));
    workspace.check_format(&names.each_ref().map(String::as_str));
    let printed = workspace.cargo(&["run", "--quiet", "-p", "program"]);

    let [single, stateful, _, odd, ..] = &graphs;
    let [mut one, mut two, mut three] = [single, stateful, odd].map(|graph| runner(&alone(graph)));
    let mut expected = Vec::new();
    for round in 0..6 {
        expected.push(line("single", &run(&mut one, single, "infer", round).0[0]));
        if round == 3 {
            two.reset();
        }
        let (outputs, steps) = run(&mut two, stateful, "infer", round);
        expected.extend(steps.iter().map(|step| line("step", step)));
        expected.extend(outputs.iter().map(|output| line("stateful", output)));
        three.set_extent(0, if round % 2 == 0 { 3 } else { 1 }).unwrap();
        let (mut outputs, _) = run(&mut three, odd, "infer", round);
        outputs[5].truncate(4);
        expected.extend(outputs.iter().map(|output| line("odd", output)));
    }
    for (printed, expected) in printed.lines().zip(&expected) {
        assert_eq!(printed, expected);
    }
    assert_eq!(printed.lines().count(), expected.len());
}

/// What the compiler says of a program in which models do what they must not.
#[test]
fn what_must_not_be_does_not_compile() {
    let mut workspace = Workspace::new();
    let [single, stateful, ..] = renamed();
    for graph in [single, stateful] {
        workspace.add_planned(&graph, &shared(&graph));
    }
    let program = |body: &str| {
        format!(
            "use turns_single_model::kiln_core::{{Bank, Error, largest}};\n\
             const SHARED: usize = largest([turns_single_model::ARENA_BYTES, turns_stateful_model::ARENA_BYTES]);\n\
             fn main() -> Result<(), Error> {{\n    let mut arena = Bank::<SHARED>::new();\n    \
             let mut state = turns_stateful_model::State::new();\n    \
             let mut single = turns_single_model::Parked::new(&mut arena)?;\n    \
             let mut stateful = turns_stateful_model::Parked::new(&mut state, &mut arena)?;\n{body}    Ok(())\n}}\n"
        )
    };
    let cases = [
        // Two at a time.
        (
            "E0499",
            "let mut a = single.attach(&mut arena); let mut b = stateful.attach(&mut arena); a.infer(); b.infer();",
        ),
        // An output that outlives its turn.
        (
            "E0499",
            "let mut a = single.attach(&mut arena); let y = a.infer(); stateful.attach(&mut arena).infer(); dbg!(y);",
        ),
        // An input kept over a run.
        ("E0499", "let mut a = single.attach(&mut arena); let x = a.input_mut(); a.infer(); x[0] = 1;"),
        // The state, which the model keeps.
        ("E0499", "state.bytes_mut()[0] = 1; stateful.attach(&mut arena).infer();"),
        // An arena that is too small.
        ("E0080", "single.attach(&mut Bank::<{ turns_single_model::ARENA_BYTES - 1 }>::new()).infer();"),
    ];
    for (code, body) in cases {
        workspace.write(&program(body));
        let said = workspace.refused(&["build", "--quiet", "-p", "program"]);
        assert!(said.contains(&format!("error[{code}]")), "{body}\n{said}");
    }
    workspace.write(&program("single.attach(&mut arena).infer(); stateful.attach(&mut arena).infer();"));
    workspace.cargo(&["run", "--quiet", "-p", "program"]);
}
