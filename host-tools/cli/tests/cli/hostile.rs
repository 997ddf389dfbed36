//! Files whose checksums are right and whose contents are not: nothing panics, nothing hangs.

use std::path::PathBuf;

use kiln_cli::model::{Format, ModelFile};
use kiln_core::{Error, TargetId};
use kiln_planner::Options;
use kiln_planner::kiln_file::{About, KilnFile};
use kiln_target_host::{RunError, Runner};

use crate::exit_codes::write;
use crate::support::{arg, kiln};
use crate::synthetic::{self, reseal};

/// Numbers that repeat (a 64-bit linear congruential generator, Knuth's constants).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn model(bytes: Vec<u8>) -> ModelFile {
    ModelFile { path: PathBuf::from("hostile.kiln"), name: "hostile".into(), format: Format::Kiln, bytes }
}

#[test]
fn any_changed_byte_is_noticed() {
    let whole = synthetic::file(true, &[TargetId::PORTABLE]);
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x20;
        // The minor version may grow: readers pass over what they do not know.
        assert!(at == 6 || at == 7 || KilnFile::from_bytes(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn changed_graphs_plan_or_are_refused() {
    let whole = synthetic::file(true, &[]);
    let mut numbers = Numbers(1);
    let (mut planned, mut refused) = (0, 0);
    for _ in 0..4_000 {
        let mut changed = whole.clone();
        for _ in 0..1 + numbers.below(3) {
            let at = 16 + numbers.below(changed.len() - 16);
            changed[at] = numbers.below(256) as u8;
        }
        reseal(&mut changed);
        let file = model(changed);
        match file.graph().and_then(|graph| file.plan(&graph, &Options::for_target(TargetId::ARMV7EM))) {
            Ok(plan) => match Runner::new(&plan.bytes) {
                Ok(_) => planned += 1,
                // Bounds of a dimension that varies are judged by the session.
                Err(RunError::Plan(Error::Extent(_))) => refused += 1,
                Err(error) => panic!("the planner's records do not load: {error}"),
            },
            Err(_) => refused += 1,
        }
    }
    assert!(planned > 100 && refused > 100, "{planned} planned, {refused} refused: too one-sided to say anything");
}

/// A file in which every name is 100 KB long, and each another one.
fn long_names() -> KilnFile {
    let mut graph = synthetic::graph();
    let mut count = 0;
    let mut long = |name: &mut String| {
        count += 1;
        *name = format!("{count}{}", "long ".repeat(20_000));
    };
    graph.values.iter_mut().for_each(|value| long(&mut value.name));
    graph.entries.iter_mut().flat_map(|entry| &mut entry.nodes).for_each(|node| long(&mut node.name));
    graph.labels.iter_mut().for_each(&mut long);
    long(&mut graph.name);
    let mut about = About::default();
    for name in [&mut about.model, &mut about.board, &mut about.kiln] {
        long(name);
    }
    KilnFile { graph: Some(graph), plans: Vec::new(), about }
}

#[test]
fn names_as_long_as_a_book_are_not_printed_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = long_names();
    let model = write(&folder, "good.kiln", &file.to_bytes().unwrap());
    let input = write(&folder, "in.bin", &synthetic::input());
    let output = arg(&folder.path().join("out.bin"));
    let out = arg(&folder.path().join("out"));
    write(&folder, "floats.npy", b"no array");
    let floats = arg(&folder.path().join("floats.npy"));
    let plan = kiln_planner::plan(file.graph.as_ref().unwrap(), &Options::for_target(TargetId::PORTABLE)).unwrap();
    file.plans.push((TargetId::PORTABLE, plan.bytes));
    let planned = write(&folder, "planned.kiln", &file.to_bytes().unwrap());
    // A value that says another type than its node computes.
    let graph = file.graph.as_mut().unwrap();
    let last = graph.entries[0].outputs[0];
    graph.values[last.index()].ty = kiln_planner::graph::tensor_type(kiln_core::DType::I8, &[3, 1]).unwrap();
    let broken = write(&folder, "broken.kiln", &file.to_bytes().unwrap());
    let description = serde_json::json!({
        "model": {"file": "good.kiln"}, "reference": "r", "check": {"kind": "exact"},
        "inputs": [{"name": "x".repeat(100_000), "dtype": "int8", "shape": [1]}],
        "outputs": [{"name": "y".repeat(100_000), "dtype": "int8", "shape": [1, 3]}],
        "groups": [{"name": "g".repeat(100_000), "cases": 1, "inputs": [{"file": "one"}],
                    "outputs": {"r": [{"file": "three"}]}}]
    });
    write(&folder, "io.json", description.to_string().as_bytes());
    write(&folder, "one", &[0]);
    write(&folder, "three", &[0; 3]);
    let folder = arg(folder.path());
    let runs: &[(&[&str], i32)] = &[
        (&["plan", &model], 0),
        (&["plan", &model, "--board", "microbit", "--ram", "10"], 1),
        (&["plan", &model, "--board", "all"], 0),
        (&["inspect", &model], 0),
        (&["inspect", &planned], 0),
        (&["run", &model, "--input", &input], 0),
        (&["run", &model, "--input", &input, "--output", &output], 0),
        (&["run", &model], 2),
        (&["run", &model, "--input", &model], 2),
        (&["run", &model, "--input", &floats], 2),
        (&["plan", &broken], 2),
        (&["inspect", &broken], 2),
        (&["verify", &folder], 2),
        (&["compile", &model, "--board", "microbit", "--out", &out], 0),
    ];
    for (args, code) in runs {
        let ran = kiln(*args);
        assert_eq!(ran.code, *code, "{args:?}: {}", &ran.stderr[..ran.stderr.len().min(2_000)]);
        let longest = ran.stdout.lines().chain(ran.stderr.lines()).map(str::len).max().unwrap_or(0);
        assert!(longest < 1_200, "{args:?} printed a line of {longest} bytes");
    }
}
