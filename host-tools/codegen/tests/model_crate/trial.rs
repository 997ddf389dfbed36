//! The module `trial` of boards' firmware, built and run here with the crates it tries.

use kiln_codegen::model_crate::{package_name, trial_source};
use kiln_codegen::ramp::Ramp;

use crate::graphs;
use crate::workspace::Workspace;

#[test]
fn there_is_no_trial_of_a_model_that_only_resets() {
    let graph = graphs::only_reset();
    let planned = Workspace::new().add(&graph);
    assert_eq!(trial_source(&graph, &planned, 1), None);
}

#[test]
fn a_trial_finds_the_first_byte_that_differs_and_nothing_else() {
    let mut workspace = Workspace::new();
    let graphs = [graphs::single(), graphs::stateful(), graphs::awkward(), graphs::odd()];
    let (mut main, mut calls, mut files, mut expected) = (String::new(), String::new(), Vec::new(), Vec::new());
    for (number, graph) in graphs.iter().enumerate() {
        let planned = workspace.add(graph);
        let krate = package_name(&graph.name).replace('-', "_");
        let source = trial_source(graph, &planned, 1_000_000).unwrap();
        // What firmware calls its one model, here for each module another.
        let source = source.replacen("\nuse ", &format!("\nuse {krate} as model;\nuse "), 1);
        let outputs = Ramp::run(graph, &planned).unwrap().outputs;
        let mut wrong = outputs.clone();
        let last = wrong.len() - 1;
        wrong[last] ^= 0x80;
        let right_and_wrong = [
            (outputs.clone(), "None".to_owned()),
            (wrong.clone(), format!("{last} {} {}", outputs[last], wrong[last])),
        ];
        for (variant, (bytes, line)) in right_and_wrong.into_iter().enumerate() {
            let name = format!("m{number}_{variant}");
            main += &format!("mod {name} {{ pub mod trial; }}\n");
            calls += &format!(
                "    let mut model = {name}::trial::model(Box::leak(Box::default())).unwrap();\n    \
                 for _ in 0..2 {{\n        {name}::trial::fill(&mut model);\n        \
                 {name}::trial::run(&mut model, &mut ());\n        \
                 show({name}::trial::difference(&model).map(|d| (d.at, d.found, d.expected)), {name}::trial::CLOCK_HZ);\n    }}\n"
            );
            files.push((format!("{name}/trial.rs"), source.clone().into_bytes()));
            files.push((format!("{name}/expected.bin"), bytes));
            // State is forgotten between runs, so the second is like the first.
            expected.extend([line.clone(), line]);
        }
    }
    main += "fn show(difference: Option<(usize, u8, u8)>, clock: u32) {\n    assert_eq!(clock, 1_000_000);\n    \
             match difference {\n        None => println!(\"None\"),\n        \
             Some((at, found, expected)) => println!(\"{at} {found} {expected}\"),\n    }\n}\n";
    workspace.write(&format!("{main}fn main() {{\n{calls}}}\n"));
    files.iter().for_each(|(path, bytes)| workspace.write_source(path, bytes));
    workspace.cargo(&["clippy", "--quiet", "-p", "program", "--", "-D", "warnings"]);
    let printed = workspace.cargo(&["run", "--quiet", "-p", "program"]);
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}
