//! A generated package on disk, and its build by cargo.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use kiln_boards::Board;
use kiln_core::crc::crc32;

use crate::toolchain::{Toolchain, ToolchainError};

/// Variable that names the directory all firmware and libraries are built in.
pub const TARGET_DIR_VARIABLE: &str = "KILN_TARGET_DIR";

/// Lines of cargo's output an error shows.
const SHOWN_LINES: usize = 40;

/// A package that could not be written or built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// A name or path that cannot go into a Cargo.toml.
    #[error("`{text}` cannot be used as {place}: {reason}")]
    Name {
        /// The name or path.
        text: String,
        /// What it was to be.
        place: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A file could not be read or written.
    #[error("cannot use {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No toolchain builds for the board.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// Cargo could not be started.
    #[error("cannot run cargo ({toolchain}): {source}")]
    Start {
        /// The toolchain.
        toolchain: String,
        /// Why.
        source: io::Error,
    },
    /// Cargo failed.
    #[error("building {} failed ({toolchain}):\n{output}", .directory.display())]
    Build {
        /// The package.
        directory: PathBuf,
        /// The toolchain.
        toolchain: String,
        /// The last lines cargo printed.
        output: String,
    },
}

/// What the compiler optimizes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimize {
    /// Small code: `opt-level = "s"`.
    Size,
    /// Fast code: `opt-level = 3`.
    Speed,
}

/// The end of every generated manifest: no workspace around it, and the profile that leaves no panic path.
pub(crate) fn release_profile(optimize: Optimize) -> String {
    let opt_level = match optimize {
        Optimize::Size => "\"s\"",
        Optimize::Speed => "3",
    };
    format!(
        r#"# Not part of any workspace around it.
[workspace]

[profile.release]
opt-level = {opt_level}
lto = "fat"
codegen-units = 1
panic = "abort"
# Symbol names cost no flash, and Kiln's checks read them.
strip = "none"
debug = false
"#
    )
}

/// A package's name, another one for every directory. Cargo tells packages that are no dependencies by name and
/// version only, so of two of one name, built in one target directory, it would take the older for the newer.
pub(crate) fn unique_name(name: &str, out: &Path) -> Result<String, PackageError> {
    let crc = crc32(absolute(out)?.as_os_str().as_encoded_bytes());
    Ok(format!("{name}-{crc:08x}"))
}

/// The directory that everything is built in: what [`TARGET_DIR_VARIABLE`] names, or else `otherwise`.
pub(crate) fn target_directory(otherwise: &Path) -> Result<PathBuf, PackageError> {
    let named = env::var_os(TARGET_DIR_VARIABLE).map(PathBuf::from);
    absolute(named.as_deref().unwrap_or(otherwise))
}

/// Builds the package in `directory` for a board with a toolchain that can, in the [`target_directory`], and gives what
/// `take` makes of the directory with the results.
pub(crate) fn build<T>(
    directory: &Path,
    board: &Board,
    otherwise: &Path,
    take: impl FnOnce(&Path) -> Result<T, PackageError>,
) -> Result<T, PackageError> {
    build_in(directory, board, &Toolchain::find(&board.target)?, &target_directory(otherwise)?, take)
}

/// The same with a given toolchain and target directory. Another build in the same target directory waits until `take`
/// is done, so that it cannot replace a file of the same name before.
pub(crate) fn build_in<T>(
    directory: &Path,
    board: &Board,
    toolchain: &Toolchain,
    target_directory: &Path,
    take: impl FnOnce(&Path) -> Result<T, PackageError>,
) -> Result<T, PackageError> {
    fs::create_dir_all(target_directory).map_err(file_error(target_directory))?;
    let _lock = lock(target_directory, |directory| {
        eprintln!("waiting for another build in {}", directory.display());
    })?;

    let cpu = board.target_cpu.as_ref().map(|cpu| format!("-Ctarget-cpu={cpu}"));
    let flags: Vec<&str> = cpu.as_deref().into_iter().collect();
    let mut cargo = toolchain.cargo("build", &flags);
    cargo.args(["--release", "--color", "never"]).arg("--target-dir").arg(target_directory).current_dir(directory);
    run_cargo(cargo, toolchain, directory)?;
    take(&target_directory.join(toolchain.target()).join("release"))
}

/// Locks a target directory until the file is dropped. Where another build has it, `waiting` is told before
/// that one's end is waited for.
fn lock(directory: &Path, waiting: impl FnOnce(&Path)) -> Result<fs::File, PackageError> {
    let path = directory.join(".kiln-lock");
    let file = fs::File::create(&path).map_err(file_error(&path))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(fs::TryLockError::WouldBlock) => waiting(directory),
        Err(fs::TryLockError::Error(source)) => return Err(PackageError::File { path, source }),
    }
    file.lock().map_err(file_error(&path))?;
    Ok(file)
}

pub(crate) fn run_cargo(mut cargo: Command, toolchain: &Toolchain, directory: &Path) -> Result<(), PackageError> {
    let output = cargo.output().map_err(|source| PackageError::Start { toolchain: toolchain.describe(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    let text = text.concat();
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines.get(lines.len().saturating_sub(SHOWN_LINES)..).unwrap_or(&lines);
    Err(PackageError::Build {
        directory: directory.to_owned(),
        toolchain: toolchain.describe(),
        output: shown.join("\n"),
    })
}

/// Starts from the versions Kiln itself was tested with. Cargo drops what is not needed.
pub(crate) fn copy_lock(sources: &Path, directory: &Path) -> Result<(), PackageError> {
    copy_if_newer(&sources.join("Cargo.lock"), &directory.join("Cargo.lock"))
}

/// Copies a file over one that is older or missing. Where there is nothing to copy, nothing happens.
pub(crate) fn copy_if_newer(from: &Path, to: &Path) -> Result<(), PackageError> {
    let modified = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    let Some(source_time) = modified(from) else {
        return Ok(());
    };
    if modified(to).is_none_or(|time| time < source_time) {
        let text = fs::read_to_string(from).map_err(file_error(from))?;
        fs::write(to, text).map_err(file_error(to))?;
    }
    Ok(())
}

/// Writes a file unless it is as it should be, so that cargo does not build it anew.
pub(crate) fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<(), PackageError> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::write(path, bytes).map_err(file_error(path))
}

pub(crate) fn file_error(path: &Path) -> impl FnOnce(io::Error) -> PackageError {
    let path = path.to_owned();
    |source| PackageError::File { path, source }
}

pub(crate) fn absolute(path: &Path) -> Result<PathBuf, PackageError> {
    std::path::absolute(path).map_err(file_error(path))
}

/// A path as a TOML string.
pub(crate) fn toml_path(path: &Path) -> Result<String, PackageError> {
    let bad = |reason| PackageError::Name { text: path.display().to_string(), place: "a path in Cargo.toml", reason };
    let text = path.to_str().ok_or_else(|| bad("it is not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(bad("it contains control characters"));
    }
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_build_says_what_it_waits_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let (tell, told) = std::sync::mpsc::channel();
        let first = lock(path, |_| panic!("nobody else builds here")).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| lock(path, |directory| tell.send(directory.to_owned()).unwrap()).is_ok());
            assert_eq!(told.recv().unwrap(), path);
            assert!(!second.is_finished());
            drop(first);
            assert!(second.join().unwrap());
        });
        drop(lock(path, |_| panic!("both are done")).unwrap());
    }

    #[test]
    fn paths_are_quoted() {
        let quoted = toml_path(Path::new(r#"/a "b"\c"#)).unwrap();
        assert_eq!(quoted, r#""/a \"b\"\\c""#);
        assert!(toml_path(Path::new("/a\nb")).is_err());
    }
}
