//! Kiln's own checks, apart from its tests: what firmware contains, what may depend on what, and
//! budgets. `kiln-ci CHECK` runs one; `ci/test.sh` runs them all.

pub mod bare_metal;
pub mod boards;
pub mod budgets;
pub mod code_sizes;
pub mod dependencies;
pub mod firmware;
pub mod instructions;
pub mod sweep;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kiln_planner::graph::Graph;

/// The root of the source tree.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().unwrap_or(root)
}

/// A shared model's graph as the importer gives it.
pub fn imported(data: &Path, model: &str) -> Result<Graph> {
    let path = data.join("models").join(model).join("model.tflite");
    let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(kiln_import::import_tflite(&bytes, model)?)
}

/// The folder of shared models: `KILN_DATA`, by default `../shared/data`. Where it is missing, says that the check is
/// skipped.
pub fn data() -> Option<PathBuf> {
    let path = std::env::var_os("KILN_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    let there = path.join("models").is_dir();
    if !there {
        println!("skipped: no models at KILN_DATA (default ../shared/data)");
    }
    there.then_some(path)
}
