//! `kiln compile`: what it writes, and that nothing half-written stays.

use std::fs;
use std::path::Path;

use kiln::Export;
use kiln_boards::Board;

use crate::support::{arg, kiln, kiln_fine};

fn model() -> String {
    arg(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sine/model/model.kiln"))
}

/// Every file below a directory, with its contents.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((arg(&path), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_crate_is_written_whole() {
    let out = tempfile::tempdir().unwrap();
    kiln_fine(["compile", &model(), "--board", "mps2-an386", "--name", "wave", "--out", &arg(out.path())]);
    let names: Vec<String> =
        files(out.path()).into_iter().map(|(name, _)| name.replace(&arg(out.path()), "")).collect();
    assert_eq!(names, ["/Cargo.toml", "/src/lib.rs", "/src/plan.bin", "/wave.kiln"]);
    assert!(fs::read_to_string(out.path().join("Cargo.toml")).unwrap().contains("name = \"wave-model\""));
}

#[test]
fn the_host_library_writes_the_same_crate() {
    let board = Board::builtin("mps2-an386").unwrap();
    let network = Export::new(crate::synthetic::graph()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [model, compiled, written] = ["model.kiln", "compiled", "written"].map(|name| folder.path().join(name));
    network.write(&board, &model).unwrap();
    kiln_fine(["compile", &arg(&model), "--board", "mps2-an386", "--out", &arg(&compiled)]);
    network.write_crate(&board, &kiln::sources().unwrap(), &written).unwrap();
    let below = |directory: &Path| -> Vec<(String, Vec<u8>)> {
        files(directory).into_iter().map(|(name, bytes)| (name.replace(&arg(directory), ""), bytes)).collect()
    };
    let (compiled, written) = (below(&compiled), below(&written));
    assert_eq!(compiled.len(), 4);
    for ((name, compiled), (other, written)) in compiled.iter().zip(&written) {
        assert_eq!(name, other);
        assert!(compiled == written, "{name}");
    }
}

/// The attack: something in the way of one of the files, which comes to light when others are written already.
#[test]
fn a_file_that_cannot_be_written_leaves_an_earlier_crate_as_it_was() {
    for blocked in ["Cargo.toml", "src/lib.rs", "src/plan.bin", "model.kiln", "sine.kiln"] {
        let out = tempfile::tempdir().unwrap();
        let compile = |board| kiln(["compile", &model(), "--board", board, "--out", &arg(out.path())]);
        assert_eq!(compile("microbit").code, 0);
        let path = out.path().join(blocked);
        if !path.is_file() {
            continue;
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let before = files(out.path());
        let ran = compile("mps2-an386");
        assert_eq!(ran.code, 2, "{blocked}");
        assert!(ran.stderr.contains(blocked) && ran.stderr.contains("cannot write"), "{}", ran.stderr);
        assert!(files(out.path()) == before, "{blocked}: something was written");
    }
}
