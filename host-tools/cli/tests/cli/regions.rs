//! Memory in more than one piece: arenas that models share, and plans over several regions of RAM.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{arg, kiln, kiln_fine, model_folder};

fn sine() -> String {
    arg(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sine/model/model.kiln"))
}

/// MPS2+ AN386 with so many bytes of fast RAM, and 1 MiB that is slower.
fn board(directory: &Path, fast: u64) -> PathBuf {
    let path = directory.join("small.toml");
    let file = include_str!("../../../../boards/mps2-an386.toml");
    let file = file.replacen("0x2000_0000\nbytes = 0x40_0000", &format!("0x2000_0000\nbytes = {fast}"), 1);
    let slow =
        "[[memory]]\nname = \"PSRAM\"\nkind = \"ram\"\nstart = 0x2100_0000\nbytes = 0x10_0000\nfast = false\n\n[run]";
    fs::write(&path, file.replacen("[run]", slow, 1)).unwrap();
    path
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&kiln_fine(arguments)).unwrap()
}

#[test]
fn an_arena_to_share_is_named_and_its_crate_written() {
    let alone = json(&["plan", &sine(), "--board", "mps2-an386", "--json"]);
    let shared = json(&["plan", &sine(), "--board", "mps2-an386", "--json", "--shared-arena"]);
    assert_eq!((&alone["ram"]["shared_arena"], &shared["ram"]["shared_arena"]), (&Value::Null, &Value::Bool(true)));
    assert_eq!(alone["ram"]["total"], shared["ram"]["total"]);
    let text = kiln_fine(["plan", &sine(), "--board", "mps2-an386", "--shared-arena"]);
    assert!(text.contains(", for models to share by turns; state 0, apart\n"), "{text}");

    let out = tempfile::tempdir().unwrap();
    let said = kiln_fine(["compile", &sine(), "--board", "mps2-an386", "--shared-arena", "--out", &arg(out.path())]);
    assert!(said.contains("an arena of 28 to share, 0 of state\n"), "{said}");
    let text = fs::read_to_string(out.path().join("src/lib.rs")).unwrap();
    assert!(text.contains("pub struct Parked<'a>") && text.contains("pub fn attach<'s, const N: usize>"), "{text}");
    let both = kiln(["compile", &sine(), "--board", "mps2-an386", "--shared-arena", "--c", "--out", &arg(out.path())]);
    assert_eq!(both.code, 2);
}

#[test]
fn a_plan_that_does_not_fit_the_first_region_is_spread() {
    let Some(folder) = model_folder("mlperf-ic-resnet8-int8") else { return };
    let model = arg(&folder.join("model.tflite"));
    let directory = tempfile::tempdir().unwrap();
    // A region that holds all of it changes nothing but what there is.
    let wide = json(&["plan", &model, "--board", &arg(&board(directory.path(), 0x1_0000)), "--json"]);
    let one = json(&["plan", &model, "--board", "mps2-an386", "--json"]);
    assert_eq!((&wide["ram"]["banks"], &wide["tensors"]), (&Value::Null, &one["tensors"]));

    let small = arg(&board(directory.path(), 0x6000));
    let report = json(&["plan", &model, "--board", &small, "--json"]);
    let banks = report["ram"]["banks"].as_array().unwrap();
    let bytes = |bank: &Value, field: &str| bank[field].as_u64().unwrap();
    assert_eq!(banks.len(), 2);
    assert!(banks.iter().all(|bank| bytes(bank, "total") <= bytes(bank, "limit")));
    assert_eq!(report["ram"]["region"], "DATA + PSRAM");
    let total: u64 = banks.iter().map(|bank| bytes(bank, "total")).sum();
    assert_eq!(report["ram"]["total"].as_u64(), Some(total));
    for tensor in report["tensors"].as_array().unwrap().iter().filter(|tensor| tensor["region"] == "arena") {
        let bank = &banks[tensor["bank"].as_u64().unwrap_or(0) as usize];
        assert!(bytes(tensor, "offset") + bytes(tensor, "bytes") <= bytes(bank, "arena"), "{tensor}");
    }
    let text = kiln_fine(["plan", &model, "--board", &small]);
    assert!(text.contains("\nArena in DATA, ") && text.contains("\nArena in PSRAM, "), "{text}");

    let out = tempfile::tempdir().unwrap();
    kiln_fine(["compile", &model, "--board", &small, "--out", &arg(out.path())]);
    let text = fs::read_to_string(out.path().join("src/lib.rs")).unwrap();
    assert!(text.contains("pub fn new(arena: &'a mut Arena, bank1: &'a mut Bank1)"), "{text}");
    // Within `--ram`, and for the C library, the first region counts.
    assert_eq!(kiln(["plan", &model, "--board", &small, "--ram", "12K"]).code, 1);
    kiln_fine(["compile", &model, "--board", &small, "--c", "--out", &arg(&out.path().join("c"))]);
    let smaller = arg(&board(directory.path(), 0x3000));
    assert_eq!(kiln(["compile", &model, "--board", &smaller, "--c", "--out", &arg(out.path())]).code, 1);
}
