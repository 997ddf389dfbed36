//! `--ram` and `--feed`: patches, and an input that comes by rows.

use std::fs;
use std::path::Path;

use kiln_boards::Board;
use serde_json::Value;

use crate::support::{arg, kiln, kiln_fine, model_folder};
use crate::verify::can_emulate;

const BOARD: &str = "mps2-an386";

fn planned(model: &str, more: &[&str]) -> Value {
    let text = kiln_fine(["plan", model, "--board", BOARD, "--json"].iter().chain(more));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn patches_and_rows_save_memory_and_keep_every_bit() {
    // The first computes rows twice, the second keeps them; so do the others, up to an average, and over residual sums.
    let ways = [(&["--ram", "31000"][..], 31_000), (&["--ram", "24000", "--feed"], 24_000)];
    patched("mlperf-vww-mobilenet-int8", &ways, 6);
    patched("mlperf-kws-dscnn-int8", &[(&["--ram", "5500"], 5_500)], 5);
    patched("mlperf-ic-resnet8-int8", &[(&["--ram", "20000"], 20_000)], 14);
    patched("mlperf-ic-resnet8-f32", &[(&["--ram", "75000"], 75_000)], 12);
}

fn patched(model: &str, ways: &[(&[&str], u64)], cases: usize) {
    let Some(folder) = model_folder(model) else { return };
    let model = arg(&folder.join("model.tflite"));
    let plain = planned(&model, &[]);
    assert!(plain.get("patches").is_none() && plain.get("fed").is_none());
    let whole = plain["ram"]["total"].as_u64().unwrap();
    for &(more, limit) in ways {
        let report = planned(&model, more);
        let total = report["ram"]["total"].as_u64().unwrap();
        assert!(total <= limit && limit < whole, "{total} bytes of {whole}");
        let patches = &report["patches"];
        let text = kiln_fine(["plan", &model, "--board", BOARD].iter().chain(more));
        let count = format!("in {} patches", patches["count"]);
        assert!(text.contains(&count) && text.contains(" multiply-accumulates more\n"), "{text}");
        assert_eq!(patches["kept"], patches["macs"] == 0, "{text}");
        assert_eq!(text.contains("the input comes by rows"), more.contains(&"--feed"), "{text}");
        let verify = |board: &str| {
            let folder = arg(&folder);
            kiln_fine(["verify", &folder, "--board", board].iter().chain(more))
        };
        assert!(verify("host").ends_with(&format!("{cases} cases on host: all as they should be\n")));
        if can_emulate(&Board::builtin(BOARD).unwrap()) {
            assert!(verify(BOARD).ends_with("all as they should be\n"));
        }
    }
    let short = kiln(["plan", &model, "--board", BOARD, "--ram", "3000"]);
    assert_eq!(short.code, 1);
    assert!(short.stderr.contains("Patches, or computing values again, would bring it to "), "{}", short.stderr);
}

/// The board with so many bytes of RAM.
fn small(directory: &Path, ram: u64) -> String {
    let path = directory.join("small.toml");
    let file = include_str!("../../../../boards/mps2-an386.toml");
    fs::write(&path, file.replacen("0x2000_0000\nbytes = 0x40_0000", &format!("0x2000_0000\nbytes = {ram}"), 1))
        .unwrap();
    arg(&path)
}

#[test]
fn the_stack_has_its_place() {
    let (Some(kws), Some(ic)) = (model_folder("mlperf-kws-dscnn-int8"), model_folder("mlperf-ic-resnet8-int8")) else {
        return;
    };
    if !can_emulate(&Board::builtin(BOARD).unwrap()) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // The arena alone would fit, and runs would overwrite it from above.
    let tight = small(directory.path(), 9_216);
    let model = arg(&kws.join("model.tflite"));
    let refused = [vec!["verify", kws.to_str().unwrap()], vec!["profile", &model], vec!["flash", &model, "--dry-run"]];
    for command in refused {
        let ran = kiln(command.iter().chain(&["--board", tight.as_str()]));
        let said = "of 9216 bytes: the plan takes 8800, data of the firmware beside it 0, and the stack up to ";
        assert!(ran.code == 2 && ran.stderr.contains(said), "{command:?}: {}", ran.stderr);
    }
    let enough = small(directory.path(), 9_728);
    assert!(kiln_fine(["verify", &arg(&kws), "--board", &enough]).ends_with("all as they should be\n"));
    // What is made to fit leaves a part of the region.
    let less = small(directory.path(), 24 << 10);
    let report: Value =
        serde_json::from_str(&kiln_fine(["plan", &arg(&ic.join("model.tflite")), "--board", &less, "--json"])).unwrap();
    assert!(report["patches"].is_object() && report["ram"]["total"].as_u64().unwrap() <= 20 << 10, "{report}");
    assert!(kiln_fine(["verify", &arg(&ic), "--board", &less]).ends_with("all as they should be\n"));
    let none = kiln(["plan", &arg(&ic.join("model.tflite")), "--board", "microbit"]);
    assert!(none.code == 1 && none.stderr.contains(" for the stack: --ram "), "{}", none.stderr);
    // An input that comes by rows lies beside the arena where it comes from a file.
    let fed = ["verify", &arg(&ic), "--board", "microbit", "--ram", "16K", "--feed"].map(str::to_owned);
    let ran = kiln(&fed);
    assert!(ran.code == 2 && ran.stderr.contains("beside it 3072"), "{}", ran.stderr);
}

#[test]
fn what_can_not_be_fed_is_said() {
    let without = kiln(["plan", "model.tflite", "--feed"]);
    assert!(without.code == 2 && without.stderr.contains("--ram"), "{}", without.stderr);
    let Some(folder) = model_folder("mlperf-ad-autoencoder-int8") else { return };
    let model = arg(&folder.join("model.tflite"));
    for command in [&["plan"][..], &["compile", "--out", "nowhere"]] {
        let ran = kiln(command.iter().chain(&[model.as_str(), "--board", BOARD, "--ram", "5000", "--feed"]));
        assert!(ran.code == 2 && ran.stderr.contains("leave out --feed"), "{}", ran.stderr);
    }
    let c = kiln(["compile", &model, "--board", BOARD, "--out", "nowhere", "--c", "--ram", "5000", "--feed"]);
    assert!(c.code == 2 && c.stderr.contains("--c"), "{}", c.stderr);
}
