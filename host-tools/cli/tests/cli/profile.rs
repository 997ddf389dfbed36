//! Counting what a model costs on emulated boards.

use std::env;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::exit_codes::{bad, write};
use crate::support::{Ran, arg, kiln, kiln_fine, model_folder};
use crate::synthetic;

const BOARD: &str = "mps2-an386";

/// What `kiln profile` prints; `None`, after saying why, where emulator or compiler target are missing.
fn profile(model: &str, board: &str, more: &[&str]) -> Option<Ran> {
    let ran = kiln(["profile", model, "--board", board].iter().chain(more));
    let missing = ["is not in PATH", "no installed Rust toolchain", "no linker for"];
    if ran.code == 2 && missing.iter().any(|words| ran.stderr.contains(words)) {
        assert!(env::var_os("KILN_REQUIRE_EMULATION").is_none_or(|value| value != "1"), "{}", ran.stderr);
        // Written past the test harness, which keeps what passing tests print to itself.
        let _ = writeln!(std::io::stdout(), "SKIPPED on board {board}: {}", ran.stderr);
        return None;
    }
    Some(ran)
}

fn measure(model: &str, board: &str) -> Option<Value> {
    let ran = profile(model, board, &["--json"])?;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    adds_up(&report);
    Some(report)
}

/// Steps and executor make the total, and parts their section, each exactly.
fn adds_up(report: &Value) {
    let steps = report["steps"].as_array().unwrap();
    for what in ["instructions", "loads", "stores", "macs"] {
        let of_steps: u64 = steps.iter().map(|step| step[what].as_u64().unwrap()).sum();
        assert_eq!(report["total"][what], json!(of_steps + report["executor"][what].as_u64().unwrap()), "{what}");
    }
    assert!(steps.iter().all(|step| step["instructions"].as_u64().unwrap() > 0));
    let mut flash = 0;
    for section in report["flash"]["sections"].as_array().unwrap() {
        let parts = section["parts"].as_array().unwrap().iter().map(|part| part["bytes"].as_u64().unwrap());
        assert_eq!(section["bytes"], json!(parts.sum::<u64>()), "{section}");
        flash += section["bytes"].as_u64().unwrap();
    }
    assert_eq!(report["flash"]["total"], json!(flash));
    let part = |name: &str| {
        let sections = report["flash"]["sections"].as_array().unwrap();
        let parts = sections.iter().flat_map(|section| section["parts"].as_array().unwrap());
        parts.filter(|part| part["name"] == name).map(|part| part["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    // Every kernel has code, and the plan's parts are as planned.
    for step in steps {
        assert!(part(&format!("kernel: {}", step["kernel"].as_str().unwrap())) > 0, "{step}");
    }
    for name in ["executor", "platform", "plan: constants", "plan: records"] {
        assert!(part(name) > 0, "{name}");
    }
}

fn synthetic(folder: &tempfile::TempDir) -> String {
    write(folder, "synthetic.kiln", &synthetic::file(true, &[]))
}

#[test]
fn every_number_repeats_and_a_comparison_tells_what_grew() {
    let folder = tempfile::tempdir().unwrap();
    let model = synthetic(&folder);
    let Some(report) = measure(&model, BOARD) else { return };
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 5);
    assert_eq!(steps[0]["macs"], 6 * 6 * 2 * 9 * 2);
    let stack = report["stack"]["painted"].as_u64().unwrap();
    assert!((200..1_000).contains(&stack), "{stack}");
    assert_eq!(report["ram"]["arena_end"], report["ram"]["arena"]);

    let old = |change: &dyn Fn(&mut Value)| {
        let mut old = report.clone();
        change(&mut old);
        write(&folder, "old.json", old.to_string().as_bytes())
    };
    let compare = |old: String| profile(&model, BOARD, &["--compare", &old]).unwrap();
    let same = compare(old(&|_| {}));
    assert_eq!(same.code, 0, "{}", same.stderr);
    assert!(!same.stdout.contains('%'), "nothing changed: {}", same.stdout);

    let grown = compare(old(&|old| {
        old["total"]["instructions"] = json!(report["total"]["instructions"].as_u64().unwrap() - 7);
        old["stack"]["painted"] = json!(stack - 8);
        old["ram"]["arena"] = json!(report["ram"]["arena"].as_u64().unwrap() + 8);
        old["steps"][1]["name"] = json!("another");
    }));
    assert_eq!(grown.code, 1, "{}", grown.stderr);
    assert!(grown.stderr.contains("instructions") && grown.stderr.contains(&format!("{} -> {stack}", stack - 8)));
    assert!(!grown.stderr.contains("arena") && !grown.stderr.contains("code"), "{}", grown.stderr);
    assert!(grown.stdout.contains("+7") && grown.stdout.contains("another"), "{}", grown.stdout);
}

#[test]
fn an_arena_is_touched_up_to_its_planned_peak() {
    for model in ["mlperf-kws-dscnn-int8", "mlperf-ic-resnet8-int8"] {
        let Some(folder) = model_folder(model) else { return };
        let path = arg(&folder.join("model.tflite"));
        let Some(report) = measure(&path, BOARD) else { return };
        let plan: Value = serde_json::from_str(&kiln_fine(["plan", &path, "--board", BOARD, "--json"])).unwrap();
        assert_eq!(plan["ram"]["lower_bound"], plan["ram"]["arena"]);
        assert_eq!(report["ram"]["arena_end"], plan["ram"]["lower_bound"], "{model}");
        let macs: u64 = plan["steps"].as_array().unwrap().iter().map(|step| step["macs"].as_u64().unwrap()).sum();
        assert_eq!(report["total"]["macs"], json!(macs));
    }
}

#[test]
fn a_linux_process_is_counted_without_its_stack() {
    let folder = tempfile::tempdir().unwrap();
    let Some(report) = measure(&synthetic(&folder), "qemu-aarch64") else { return };
    assert_eq!(report["stack"]["painted"], Value::Null);
}

#[test]
fn boards_that_are_not_emulated_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = synthetic(&folder);
    bad(&kiln(["profile", &model, "--board", "host"]), &["host", "this computer", "emulated", "`kiln boards`"]);
    bad(&kiln(["profile", &model, "--board", "nrf52840-dk"]), &["nrf52840-dk", "real hardware", "`kiln boards`"]);
    bad(&kiln(["profile", &model, "--device", "cuda"]), &["not timed on a device yet", "--board"]);
    assert_eq!(kiln(["profile", &model]).code, 2);
}

#[test]
fn what_can_not_be_compared_with_is_refused_before_anything_is_built() {
    let folder = tempfile::tempdir().unwrap();
    let model = synthetic(&folder);
    let cost = json!({"instructions": 1, "loads": 1, "stores": 1, "macs": 0, "instructions_per_mac": null});
    let report = json!({
        "format": 1, "model": "synthetic", "board": BOARD, "target": "armv7e-m", "entry": "infer", "total": cost,
        "executor": cost, "steps": [], "stack": {"computed": null, "painted": 1},
        "ram": {"arena": 1, "arena_touched": 1, "arena_end": 1, "state": 0, "total": 1},
        "flash": {"total": 1, "code": 1, "sections": []},
    });
    let with = |key: &str, value: Value| {
        let mut changed = report.clone();
        changed[key] = value;
        changed.to_string()
    };
    let plan = kiln_fine(["plan", &model, "--board", BOARD, "--json"]);
    for (text, words) in [
        ("", "not a report of `kiln profile --json`"),
        ("{", "not a report of `kiln profile --json`"),
        ("[1]", "not a report"),
        (&plan, "not a report"),
        (&with("format", json!(2)), "format 2"),
        (&with("total", json!({"instructions": -1})), "not a report"),
        (&with("board", json!("microbit")), "board 'microbit', not 'mps2-an386'"),
        (&with("model", json!("other")), "model 'other', not 'synthetic'"),
    ] {
        let old = write(&folder, "old.json", text.as_bytes());
        let ran = kiln(["profile", &model, "--board", BOARD, "--compare", &old]);
        bad(&ran, &[&old, words]);
    }
    let missing = arg(Path::new("no/such.json"));
    bad(&kiln(["profile", &model, "--board", BOARD, "--compare", &missing]), &[&missing, "no such file"]);
}
