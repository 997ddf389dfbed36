//! What the command prints, word for word. After a change that is meant, `cargo insta review` or
//! `INSTA_UPDATE=always cargo test -p kiln-cli` renews the files; their difference shows in the commit.

use crate::support::{MODELS, arg, kiln, kiln_fine, model_folder};
use crate::synthetic;

#[test]
fn plans_of_real_models() {
    for model in MODELS {
        let Some(folder) = model_folder(model) else { return };
        let path = arg(&folder.join("model.tflite"));
        insta::assert_snapshot!(format!("plan-{model}"), kiln_fine(["plan", &path, "--board", "mps2-an386"]));
        insta::assert_snapshot!(
            format!("plan-json-{model}"),
            kiln_fine(["plan", &path, "--board", "mps2-an386", "--json"])
        );
        insta::assert_snapshot!(format!("inspect-{model}"), kiln_fine(["inspect", &path]));
    }
}

#[test]
fn an_unsupported_model() {
    let Some(folder) = model_folder("tflm-mnist-lstm-f32") else { return };
    insta::assert_snapshot!(kiln(["inspect", &arg(&folder.join("model.tflite"))]).stdout);
}

#[test]
fn a_synthetic_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("synthetic.kiln");
    std::fs::write(&path, synthetic::file(true, &[kiln_core::TargetId::ARMV7EM])).unwrap();
    insta::assert_snapshot!("synthetic-plan", kiln_fine(["plan", &arg(&path), "--board", "microbit"]));
    insta::assert_snapshot!("synthetic-inspect", kiln_fine(["inspect", &arg(&path)]));
}

#[test]
fn boards() {
    let list = kiln_fine(["boards"]);
    // The host's line depends on the computer.
    let (host, others): (Vec<&str>, Vec<&str>) = list.lines().partition(|line| line.starts_with("host "));
    assert_eq!(host.len(), 1);
    insta::assert_snapshot!(others.join("\n"));
}
