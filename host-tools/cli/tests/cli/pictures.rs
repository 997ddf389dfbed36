//! `kiln plan --svg`: the memory map as a picture.

use std::path::{Path, PathBuf};

use kiln_planner::graph::Graph;
use tempfile::TempDir;

use crate::support::{MODELS, arg, kiln, kiln_fine, model_folder};
use crate::{networks, synthetic};

/// The picture in the documentation.
const SHOWN: &str = "../../docs/images/memory-map.svg";

fn write(folder: &TempDir, graph: Graph) -> String {
    let path = folder.path().join(format!("{}.kiln", graph.name));
    std::fs::write(&path, networks::file(graph)).unwrap();
    arg(&path)
}

/// Draws a model and holds the picture against the JSON of the same plan.
fn draw(model: &str, board: &str, to: &Path) -> String {
    let json = kiln_fine(["plan", model, "--board", board, "--json", "--svg", &arg(to)]);
    let svg = std::fs::read_to_string(to).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&json).unwrap();
    let tensors: Vec<&serde_json::Value> =
        plan["tensors"].as_array().unwrap().iter().filter(|t| t["region"] == "arena" && t["bytes"] != 0).collect();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let notes: Vec<&str> = document
        .descendants()
        .filter(|n| n.attribute("class") == Some("bar"))
        .map(|n| n.first_element_child().unwrap().text().unwrap())
        .collect();
    assert_eq!(notes.len(), tensors.len());
    for (note, tensor) in notes.iter().zip(&tensors) {
        let name = tensor["name"].as_str().unwrap();
        assert!(note.contains(name), "no '{name}' in: {note}");
    }
    svg
}

#[test]
fn real_models() {
    let folder = tempfile::tempdir().unwrap();
    for model in MODELS {
        let Some(data) = model_folder(model) else { return };
        draw(&arg(&data.join("model.tflite")), "mps2-an386", &folder.path().join("map.svg"));
    }
}

#[test]
fn a_small_model_word_for_word() {
    let folder = tempfile::tempdir().unwrap();
    let svg = draw(&write(&folder, synthetic::graph()), "microbit", &folder.path().join("map.svg"));
    insta::assert_snapshot!("synthetic-svg", svg);
}

/// Left in cargo's folder for tests' files, to be looked at.
#[test]
fn sixty_steps() {
    let folder = tempfile::tempdir().unwrap();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sixty-steps.svg");
    let svg = draw(&write(&folder, networks::sixty_steps()), "mps2-an386", &path);
    assert_eq!(svg.matches("class=\"step\"").count(), 60);
}

#[test]
fn two_thousand_steps_whose_outputs_all_stay() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, networks::fan(2_000));
    kiln_fine(["plan", &model, "--board", "mps2-an386", "--svg", &arg(&folder.path().join("map.svg"))]);
    let svg = std::fs::read_to_string(folder.path().join("map.svg")).unwrap();
    assert_eq!(svg.matches("class=\"step\"").count(), 2_000);
}

/// With `KILN_WRITE_PICTURES=1` the file is written instead.
#[test]
fn the_picture_in_the_documentation_is_todays() {
    let folder = tempfile::tempdir().unwrap();
    let svg = draw(&write(&folder, networks::keywords()), "mps2-an386", &folder.path().join("map.svg"));
    let shown = Path::new(env!("CARGO_MANIFEST_DIR")).join(SHOWN);
    if std::env::var_os("KILN_WRITE_PICTURES").is_some() {
        std::fs::create_dir_all(shown.parent().unwrap()).unwrap();
        std::fs::write(&shown, svg).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&shown).unwrap_or_default().replace("\r\n", "\n");
    let renew = "KILN_WRITE_PICTURES=1 cargo test -p kiln-cli --test cli documentation";
    assert!(known == svg, "docs/images/memory-map.svg is not what is drawn today; look at it after: {renew}");
}

#[test]
fn it_goes_with_text_and_comes_also_when_the_model_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, synthetic::graph());
    let map = folder.path().join("map.svg");
    let text = kiln_fine(["plan", &model, "--board", "microbit"]);
    assert_eq!(kiln_fine(["plan", &model, "--board", "microbit", "--svg", &arg(&map)]), text);
    let fits = std::fs::read_to_string(&map).unwrap();
    let ran = kiln(["plan", &model, "--board", "microbit", "--ram", "20", "--svg", &arg(&map)]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let short = std::fs::read_to_string(&map).unwrap();
    assert!(!fits.contains("end of RAM") && short.contains("end of RAM") && short.contains("RAM short by"), "{short}");
}

#[test]
fn one_board_and_a_file_that_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, synthetic::graph());
    let bad = |board: &str, path: &str, words: &[&str]| {
        let ran = kiln(["plan", &model, "--board", board, "--svg", path]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
        for word in words {
            assert!(ran.stderr.contains(word), "no '{word}' in: {}", ran.stderr);
        }
    };
    let map = folder.path().join("map.svg");
    bad("all", &arg(&map), &["--svg", "--board all", "one board"]);
    assert!(!map.exists());
    let nowhere = arg(&folder.path().join("no/such/map.svg"));
    bad("microbit", &nowhere, &[&nowhere, "cannot write"]);
    bad("microbit", &arg(folder.path()), &[&arg(folder.path()), "cannot write"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "something was left behind");
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_permissions_kept() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, synthetic::graph());
    let (file, link) = (folder.path().join("file.svg"), folder.path().join("link.svg"));
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&file, &link).unwrap();
    kiln_fine(["plan", &model, "--svg", &arg(&link)]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("<svg"));
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
    // A new file is as readable as any that the user makes.
    let (new, usual) = (folder.path().join("new.svg"), folder.path().join("usual"));
    kiln_fine(["plan", &model, "--svg", &arg(&new)]);
    std::fs::write(&usual, "").unwrap();
    assert_eq!(std::fs::metadata(&new).unwrap().mode(), std::fs::metadata(&usual).unwrap().mode());
    // What is no file is written to, not replaced.
    kiln_fine(["plan", &model, "--svg", "/dev/null"]);
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    if std::path::Path::new("/dev/full").exists() {
        let ran = kiln(["plan", &model, "--svg", "/dev/full"]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("/dev/full: cannot write"), "{}", ran.stderr);
    }
}
