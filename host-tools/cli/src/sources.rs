//! Where Kiln's own sources lie, which firmware and generated crates are built from.

use std::path::{Path, PathBuf};

use kiln_boards::Board;
use kiln_codegen::model_crate::package_name;
use kiln_planner::Planned;
use kiln_planner::graph::Graph;

/// Variable that names the root of Kiln's source tree, for a `kiln` that was moved away from it.
pub const SOURCES_VARIABLE: &str = "KILN_SOURCES";

/// The root of Kiln's source tree: `KILN_SOURCES`, or where this command was built.
pub fn root() -> Result<PathBuf, String> {
    let root = match std::env::var_os(SOURCES_VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
    };
    let root = root.canonicalize().unwrap_or(root);
    if root.join("core/Cargo.toml").is_file() {
        return Ok(root);
    }
    Err(format!(
        "Kiln's sources are not at {}: set {SOURCES_VARIABLE} to a checkout of Kiln, which firmware is built from",
        root.display()
    ))
}

/// Where a model's firmware for a board is written, inside the source tree's own build directory. The
/// plan's checksum is part of the name: models that are called the same, and built at the same time, must
/// not share files.
pub fn firmware_directory(root: &Path, graph: &Graph, planned: &Planned, board: &Board) -> PathBuf {
    let sum = kiln_core::crc::crc32(&planned.bytes);
    root.join("target/kiln").join(format!("{}-{}-{sum:08x}", package_name(&graph.name), board.name))
}

/// Where all firmware is built.
pub fn firmware_build(root: &Path) -> PathBuf {
    root.join("target/kiln/build")
}
