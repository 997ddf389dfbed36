//! Where Kiln's own sources lie, which firmware and generated crates are built from.

use std::path::{Path, PathBuf};

use kiln_boards::Board;
use kiln_planner::Planned;
use kiln_planner::graph::Graph;

use crate::model_crate::package_name;

/// Variable that names the root of Kiln's source tree, for a `kiln` that was moved away from it.
pub const SOURCES_VARIABLE: &str = "KILN_SOURCES";

/// Kiln's sources, which are not where they should be.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error(
    "Kiln's sources are not at {}: set {SOURCES_VARIABLE} to a checkout of Kiln, which firmware is built from",
    .path.display()
)]
pub struct NoSources {
    /// Where they were looked for.
    pub path: PathBuf,
}

/// The root of Kiln's source tree: `KILN_SOURCES`, or where this crate was built.
///
/// # Errors
///
/// There is no checkout of Kiln.
pub fn root() -> Result<PathBuf, NoSources> {
    let root = match std::env::var_os(SOURCES_VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
    };
    let root = root.canonicalize().unwrap_or(root);
    if root.join("core/Cargo.toml").is_file() {
        return Ok(root);
    }
    Err(NoSources { path: root })
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
