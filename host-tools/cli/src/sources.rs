//! Where Kiln's own sources lie, which firmware and generated crates are built from.

use std::path::{Path, PathBuf};

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

/// Where the firmware called `name` is written, inside the source tree's own build directory.
pub fn firmware_directory(root: &Path, name: &str) -> PathBuf {
    root.join("target/kiln").join(name)
}

/// Where all firmware is built.
pub fn firmware_build(root: &Path) -> PathBuf {
    root.join("target/kiln/build")
}
