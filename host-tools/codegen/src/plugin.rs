//! The plugin with which an emulator counts: built from Kiln's sources, once.

use std::env;
use std::path::{Path, PathBuf};

use crate::package::{PackageError, run_cargo, target_directory};
use crate::toolchain::Toolchain;

/// Its package, and the directory of that in Kiln's source tree.
const PACKAGE: &str = "kiln-qemu-plugin";
const DIRECTORY: &str = "ci/qemu-plugin";

/// Builds the plugin, where that was not done before, and returns its path. `sources` is the root of Kiln's source
/// tree; it is built in the directory `KILN_TARGET_DIR` names, or else in `otherwise`.
///
/// # Errors
///
/// [`PackageError`]: there is no toolchain for this computer, or the build failed.
pub fn build(sources: &Path, otherwise: &Path) -> Result<PathBuf, PackageError> {
    let toolchain = Toolchain::host()?;
    let target_directory = target_directory(otherwise)?;
    let mut cargo = toolchain.cargo("build", &[]);
    cargo.args(["--release", "--locked", "--color", "never", "--package", PACKAGE]);
    cargo.arg("--target-dir").arg(&target_directory).current_dir(sources);
    // It is small: optimizing the standard library along with it takes ten times as long and changes nothing.
    cargo.env("CARGO_PROFILE_RELEASE_LTO", "off");
    run_cargo(cargo, &toolchain, &sources.join(DIRECTORY))?;
    let file = format!("{}{}{}", env::consts::DLL_PREFIX, PACKAGE.replace('-', "_"), env::consts::DLL_SUFFIX);
    Ok(target_directory.join(toolchain.target()).join("release").join(file))
}
