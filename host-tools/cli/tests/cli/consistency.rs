//! The JSON keeps the promises of docs/cli.md.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::support::{MODELS, arg, kiln, kiln_fine, model_folder};
use crate::synthetic;

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} is no number in {value}"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is no text in {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is no list in {value}"))
}

fn plan(model: &str, board: &str) -> Value {
    serde_json::from_str(&kiln_fine(["plan", model, "--board", board, "--json"])).unwrap()
}

/// Everything that one report says of itself agrees.
fn check(report: &Value) {
    assert_eq!(number(report, "format"), 1);
    assert!(report["fits"].is_boolean() && report["optimal"].is_boolean());
    let (ram, flash) = (&report["ram"], &report["flash"]);
    let arena = number(ram, "arena");
    assert!(number(ram, "lower_bound") <= arena);
    assert!(number(ram, "total") >= arena + number(ram, "state"));
    assert_eq!(
        number(flash, "total"),
        number(flash, "constants") + number(flash, "plan") + flash["code"].as_u64().unwrap_or(0)
    );

    check_time(report);

    let tensors = list(report, "tensors");
    let names: HashSet<&str> = tensors.iter().map(|t| text(t, "name")).collect();
    assert_eq!(names.len(), tensors.len(), "two tensors of one name");
    let by_name: HashMap<&str, &Value> = tensors.iter().map(|t| (text(t, "name"), t)).collect();
    let in_arena: Vec<&Value> = tensors.iter().filter(|t| text(t, "region") == "arena").collect();
    let end = |t: &Value| number(t, "offset") + number(t, "bytes");
    assert_eq!(in_arena.iter().map(|t| end(t)).max(), Some(arena));
    let io = in_arena.iter().filter(|t| ["input", "output"].contains(&text(t, "kind")));
    assert_eq!(io.map(|t| number(t, "bytes")).sum::<u64>(), number(ram, "io"));
    let constants = tensors.iter().filter(|t| text(t, "region") == "constants");
    assert!(constants.map(end).max().unwrap_or(0) <= number(flash, "constants"));

    let steps = list(report, "steps");
    let mut written = HashSet::new();
    for (index, step) in steps.iter().enumerate() {
        assert_eq!(number(step, "index"), index as u64);
        assert!(!text(step, "op").is_empty() && !text(step, "kernel").is_empty());
        let (inputs, outputs) = (list(step, "inputs"), list(step, "outputs"));
        assert!(!inputs.is_empty() && outputs.len() == 1, "{step}");
        for name in inputs.iter().chain(outputs) {
            let tensor = by_name.get(name.as_str().unwrap()).unwrap_or_else(|| panic!("no tensor {name}"));
            let alive = number(tensor, "first_step")..=number(tensor, "last_step");
            assert!(alive.contains(&(index as u64)), "{name} is not alive at step {index}");
        }
        for name in inputs.iter().map(|n| n.as_str().unwrap()) {
            let known = written.contains(name) || ["input", "constant", "state"].contains(&text(by_name[name], "kind"));
            assert!(known, "step {index} reads {name} before it is written");
        }
        written.insert(outputs[0].as_str().unwrap());
        let scratch =
            in_arena.iter().filter(|t| text(t, "kind") == "scratch" && number(t, "first_step") == index as u64);
        assert_eq!(scratch.map(|t| number(t, "bytes")).sum::<u64>(), number(step, "scratch"));
        check_overlaps(&in_arena, index as u64, inputs, outputs);
    }
    let peak = list(&report["peak"], "tensors");
    let top = peak.iter().map(|name| end(by_name[name.as_str().unwrap()])).max();
    assert_eq!(top, Some(arena), "the peak is not where the arena ends");
}

/// The time follows from its factors, and is there only if they are.
fn check_time(report: &Value) {
    let time = &report["time"];
    let factor = |key: &str| time[key].as_f64();
    let seconds = factor("instructions").zip(factor("cycles_per_instruction")).zip(factor("clock_hz"));
    match (seconds.map(|((instructions, cycles), hertz)| instructions * cycles / hertz), factor("seconds")) {
        (Some(expected), Some(seconds)) => assert!((seconds / expected - 1.0).abs() < 1e-3, "{time}"),
        (expected, seconds) => assert_eq!(expected, seconds, "{time}"),
    }
    assert_eq!(time["error"].is_null(), time["cycles_per_instruction"].is_null());
    let steps: Vec<Option<u64>> = list(report, "steps").iter().map(|step| step["instructions"].as_u64()).collect();
    let sum = steps.iter().copied().sum::<Option<u64>>();
    assert_eq!(sum.is_some(), time["instructions"].is_u64(), "{time}");
    // The rest is the executor's: some hundreds of instructions a step.
    if let Some(sum) = sum {
        let executor = number(time, "instructions") - sum;
        assert!(executor <= 1_000 * steps.len() as u64, "{executor} instructions of {time}");
    }
}

/// At one step, only its output and its inputs may lie over each other.
fn check_overlaps(in_arena: &[&Value], step: u64, inputs: &[Value], outputs: &[Value]) {
    let alive = in_arena.iter().filter(|t| (number(t, "first_step")..=number(t, "last_step")).contains(&step));
    let alive: Vec<_> = alive.collect();
    for (i, a) in alive.iter().enumerate() {
        for b in &alive[i + 1..] {
            let end = |t: &Value| number(t, "offset") + number(t, "bytes");
            if number(a, "offset") < end(b) && number(b, "offset") < end(a) {
                let (a, b) = (&a["name"], &b["name"]);
                let pair = |x, y| inputs.contains(x) && outputs.contains(y);
                assert!(pair(a, b) || pair(b, a), "{a} and {b} overlap at step {step}");
            }
        }
    }
}

#[test]
fn real_models() {
    for model in MODELS {
        let Some(folder) = model_folder(model) else { return };
        let report = plan(&arg(&folder.join("model.tflite")), "mps2-an386");
        check(&report);
        assert_eq!((text(&report, "board"), text(&report, "target")), ("mps2-an386", "armv7e-m"));
        assert_eq!(report["optimal"], true, "{model}");
        assert_eq!(report["fits"], true);
    }
}

/// About half of this network is dead; what was removed and what is left is the whole.
#[test]
fn what_is_dead_is_removed_and_told() {
    let Some(folder) = model_folder("mlperf-vww-mobilenet-int8") else { return };
    let path = arg(&folder.join("model.tflite"));
    let report = plan(&path, "mps2-an386");
    check(&report);
    let removed = number(&report["removed"], "macs");
    let left: u64 = list(&report, "steps").iter().map(|step| number(step, "macs")).sum();
    assert_eq!(removed + left, 7_489_664);
    assert!(left < 3_800_000, "{left} multiply-accumulates are left");
    let constants = number(&report["flash"], "constants");
    assert!(constants <= 48_000, "{constants} bytes of constants");
    let bytes = number(&report["removed"], "constant_bytes");
    // The model's own weights and biases; packed, they take a little more.
    assert!((180_000..=219_072 - 34_000).contains(&bytes), "{bytes} bytes removed");
    let text = kiln_fine(["plan", &path, "--board", "mps2-an386"]);
    assert!(text.contains("\n       dead: 3,7"), "{text}");
    assert!(kiln_fine(["verify", &arg(&folder)]).contains("all as they should be"));

    let Some(folder) = model_folder("mlperf-kws-dscnn-int8") else { return };
    let path = arg(&folder.join("model.tflite"));
    assert_eq!(plan(&path, "mps2-an386")["removed"], json!({"macs": 0, "constant_bytes": 0}));
    assert!(!kiln_fine(["plan", &path, "--board", "mps2-an386"]).contains("dead"));
}

#[test]
fn a_synthetic_model() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("synthetic.kiln");
    std::fs::write(&model, synthetic::file(true, &[])).unwrap();
    let report = plan(&arg(&model), "microbit");
    check(&report);
    let steps = list(&report, "steps");
    let ops: Vec<&str> = steps.iter().map(|s| text(s, "op")).collect();
    assert_eq!(ops, ["conv2d", "add", "pool2d", "fully_connected", "softmax"], "a reshape takes no step");
    // The dense layer reads the pool's tensor, of which the reshape is a view.
    assert_eq!(steps[3]["inputs"][0], "pool");
    assert_eq!(number(&steps[0], "macs"), 6 * 6 * 2 * 3 * 3 * 2);
    assert_eq!(number(&report["ram"], "io"), (synthetic::INPUT_BYTES + synthetic::OUTPUT_BYTES) as u64);
    assert_eq!(number(&report["ram"], "limit"), 16_384);
}

#[test]
fn all_boards_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("synthetic.kiln");
    std::fs::write(&model, synthetic::file(true, &[])).unwrap();
    let all = plan(&arg(&model), "all");
    assert_eq!(number(&all, "format"), 1);
    let boards = list(&all, "boards");
    assert!(boards.len() >= 4 && boards.iter().any(|b| text(b, "board") == "microbit"));
    boards.iter().for_each(check);
    let table = kiln_fine(["plan", &arg(&model), "--board", "all"]);
    for board in boards {
        let line = table.lines().find(|line| line.starts_with(&format!("{} ", text(board, "board")))).unwrap();
        assert!(line.ends_with("fits"), "{line}");
        // A time with its error, or none at all.
        assert_eq!(line.contains('±'), board["time"]["seconds"].is_f64(), "{line}");
        assert_eq!(line.contains('—'), board["time"]["seconds"].is_null(), "{line}");
    }
}

#[test]
fn a_model_that_does_not_fit_says_what_is_short() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("synthetic.kiln");
    std::fs::write(&model, synthetic::file(true, &[])).unwrap();
    let ran = kiln(["plan", &arg(&model), "--board", "microbit", "--ram", "20", "--json"]);
    assert_eq!(ran.code, 1);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["fits"], false);
    let short = &list(&report, "short")[0];
    assert_eq!((text(short, "memory"), text(short, "region")), ("ram", "RAM"));
    assert_eq!((number(short, "limit"), number(short, "needed")), (20, number(&report["ram"], "total")));
    for needed in ["synthetic.kiln", "microbit", "RAM region RAM", "20 available", "step 1", "add 'sum'", "conv"] {
        assert!(ran.stderr.contains(needed), "{needed} is missing in {}", ran.stderr);
    }
}
