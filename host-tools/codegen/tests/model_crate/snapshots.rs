//! What generated crates look like.

use std::path::Path;

use kiln_codegen::model_crate::{Files, ModelCrate, replay_glue};
use kiln_core::TargetId;
use kiln_planner::graph::Graph;
use kiln_planner::{Options, plan};

use crate::graphs;

fn files(graph: &Graph, board: &str) -> Files {
    files_with(graph, board, false)
}

fn files_with(graph: &Graph, board: &str, shared_arena: bool) -> Files {
    let planned = plan(graph, &Options { shared_arena, ..Options::for_target(TargetId::ARMV7EM) }).unwrap();
    let model = ModelCrate { graph, planned: &planned, board, sources: Path::new("/src/kiln") };
    let mut files = model.files().unwrap();
    files.lib = files.lib.replace(concat!("Kiln ", env!("CARGO_PKG_VERSION")), "Kiln VERSION");
    files
}

#[test]
fn single() {
    let files = files(&graphs::single(), "mps2-an386");
    insta::assert_snapshot!("single-manifest", files.manifest);
    insta::assert_snapshot!("single-lib", files.lib);
}

#[test]
fn stateful() {
    insta::assert_snapshot!("stateful-lib", files(&graphs::stateful(), "mps2-an386").lib);
}

#[test]
fn sharing_an_arena() {
    insta::assert_snapshot!("stateful-shared-lib", files_with(&graphs::stateful(), "mps2-an386", true).lib);
}

#[test]
fn glue() {
    let planned = plan(&graphs::stateful(), &Options::for_target(TargetId::ARMV7EM)).unwrap();
    insta::assert_snapshot!("stateful-glue", replay_glue(&planned, "stateful-model").unwrap());
    let nothing = plan(&graphs::empty(), &Options::for_target(TargetId::ARMV7EM)).unwrap();
    assert_eq!(replay_glue(&nothing, "model"), None);
}

#[test]
fn awkward() {
    let files = files(&graphs::awkward(), "my \"board\"\n`");
    insta::assert_snapshot!("awkward-manifest", files.manifest);
    let faces = files.lib.lines().filter(|line| line.contains("pub ") || line.starts_with("//!"));
    insta::assert_snapshot!("awkward-face", faces.collect::<Vec<_>>().join("\n"));
}

#[test]
fn odd() {
    insta::assert_snapshot!("odd-lib", files(&graphs::odd(), "mps2-an386").lib);
}

#[test]
fn lines_are_short_and_end_cleanly() {
    for graph in [graphs::single(), graphs::stateful(), graphs::awkward(), graphs::odd(), graphs::empty()] {
        let Files { lib, manifest, .. } = files(&graph, "board");
        let shared = files_with(&graph, "board", true).lib;
        for line in lib.lines().chain(shared.lines()).chain(manifest.lines()) {
            assert_eq!(line, line.trim_end(), "trailing space");
            assert!(line.chars().count() <= 120, "{} columns: {line}", line.chars().count());
        }
    }
}
