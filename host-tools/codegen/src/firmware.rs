//! Writes a firmware crate around a model crate and builds it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use kiln_boards::Board;
use kiln_core::crc::crc32;

use crate::platform::{MEMORY, Platform};
use crate::toolchain::{Toolchain, ToolchainError};

/// Variable that names the directory all firmware is built in.
pub const TARGET_DIR_VARIABLE: &str = "KILN_TARGET_DIR";

/// Lines of cargo's output an error shows.
const SHOWN_LINES: usize = 40;

/// Firmware that could not be written or built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FirmwareError {
    /// No firmware can be made for this board.
    #[error("no firmware can be made for board {board}: {reason}")]
    Board {
        /// The board.
        board: String,
        /// Why not.
        reason: &'static str,
    },
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
        /// The crate.
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

/// What firmware does when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Runs every case of its input file and writes the outputs.
    Replay,
    /// The same, and writes what each step wrote.
    Dump,
    /// The same over painted memory, and writes what each run touched of arena and stack.
    Profile,
}

/// A crate the firmware uses, by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathDependency {
    /// The package's name.
    pub package: String,
    /// Its directory.
    pub path: PathBuf,
}

/// A firmware crate to be written and built.
#[derive(Clone, Debug)]
pub struct Firmware<'a> {
    /// The package's name, and that of the ELF file: letters, digits, `-` and `_`.
    pub name: &'a str,
    /// The board it is for.
    pub board: &'a Board,
    /// The model's crate and whatever else the glue uses; Kiln's crate for the board need not be named.
    pub dependencies: &'a [PathDependency],
    /// Rust items between model and firmware. They define `fn model() -> impl Replay`, or for [`Mode::Profile`]
    /// `fn setup() -> impl Setup`, called once; both traits are in scope, and `platform`, Kiln's crate for the
    /// board.
    pub glue: &'a str,
    /// The root of Kiln's source tree.
    pub sources: &'a Path,
    /// The directory everything is written to.
    pub out: &'a Path,
    /// What the compiler optimizes for.
    pub optimize: Optimize,
    /// What it does.
    pub mode: Mode,
}

impl Firmware<'_> {
    /// Writes the crate to `out/firmware` and returns that directory. Files that already are as
    /// they should be are left alone.
    ///
    /// # Errors
    ///
    /// [`FirmwareError`].
    pub fn write(&self) -> Result<PathBuf, FirmwareError> {
        let platform = self.check()?;
        let directory = absolute(self.out)?.join("firmware");
        let source = directory.join("src");
        fs::create_dir_all(&source).map_err(file_error(&source))?;
        write_if_changed(&directory.join("Cargo.toml"), self.manifest(&platform)?.as_bytes())?;
        write_if_changed(&directory.join(MEMORY), platform.memory_x(self.board).as_bytes())?;
        write_if_changed(&directory.join("build.rs"), platform.build_rs().as_bytes())?;
        write_if_changed(&source.join("main.rs"), self.main_rs(&platform).as_bytes())?;
        self.copy_lock(&directory)?;
        Ok(directory)
    }

    /// Writes and builds the crate and returns the path of the ELF file, `out/NAME.elf`.
    /// Dependencies are built in the directory `KILN_TARGET_DIR` names, or else in `otherwise`.
    ///
    /// # Errors
    ///
    /// [`FirmwareError`]; for a failed build with the last lines cargo printed.
    pub fn build(&self, otherwise: &Path) -> Result<PathBuf, FirmwareError> {
        let directory = self.write()?;
        build_crate(&directory, self.board, self.name, &absolute(self.out)?, otherwise)
    }

    /// As [`Firmware::build`], with a given toolchain and target directory.
    ///
    /// # Errors
    ///
    /// [`FirmwareError`].
    pub fn build_in(&self, toolchain: &Toolchain, target_directory: &Path) -> Result<PathBuf, FirmwareError> {
        let directory = self.write()?;
        build_in(&directory, toolchain, self.board, self.name, &absolute(self.out)?, target_directory)
    }

    fn check(&self) -> Result<Platform, FirmwareError> {
        let board = |reason| FirmwareError::Board { board: self.board.name.clone(), reason };
        if self.board.is_host() {
            return Err(board("programs for the host run without firmware"));
        }
        let platform = Platform::of(self.board)
            .ok_or_else(|| board("there is start-up code for Cortex-M, 32-bit RISC-V and Linux only"))?;
        let good = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        };
        let packages = self.dependencies.iter().map(|dependency| dependency.package.as_str());
        for name in [self.name].into_iter().chain(packages) {
            if !good(name) {
                return Err(FirmwareError::Name {
                    text: name.to_owned(),
                    place: "a package name",
                    reason: "expected a letter, then letters, digits, `-` and `_`",
                });
            }
        }
        Ok(platform)
    }

    fn manifest(&self, platform: &Platform) -> Result<String, FirmwareError> {
        let opt_level = match self.optimize {
            Optimize::Size => "\"s\"",
            Optimize::Speed => "3",
        };
        let path = toml_path(&absolute(self.sources)?.join(platform.directory))?;
        let mut dependencies = format!("{} = {{ path = {path}, features = [\"emulation\"] }}\n", platform.package);
        for PathDependency { package, path } in self.dependencies {
            dependencies += &format!("{package} = {{ path = {} }}\n", toml_path(&absolute(path)?)?);
        }
        Ok(format!(
            r#"# Written by Kiln.
[package]
name = "{package}"
version = "0.1.0"
edition = "2024"
publish = false

[[bin]]
name = "{name}"
path = "src/main.rs"

[dependencies]
{dependencies}
# Not part of any workspace around it.
[workspace]

[profile.release]
opt-level = {opt_level}
lto = "fat"
codegen-units = 1
panic = "abort"
# Symbol names cost no flash, and the firmware's checks read them.
strip = "none"
debug = false
"#,
            package = package_in(self.name, self.out)?,
            name = self.name
        ))
    }

    fn main_rs(&self, platform: &Platform) -> String {
        let (run, kind, make) = match self.mode {
            Mode::Replay => ("replay_and_exit", "Replay", "model"),
            Mode::Dump => ("dump_and_exit", "Replay", "model"),
            Mode::Profile => ("profile_and_exit", "Setup", "setup"),
        };
        format!(
            r#"//! Written by Kiln: runs a model over the cases of a file.
#![no_std]
#![no_main]

use {krate} as platform;

// What one kind of firmware does not use, another does.
#[allow(unused_imports, dead_code)]
mod glue {{
    use super::platform::{{self, Replay, Setup}};

{glue}

    #[inline(always)]
    pub(crate) fn ready() -> impl {kind} {{
        {make}()
    }}
}}

// SAFETY: nothing else is called so, and start-up code calls it once.
#[unsafe(export_name = "main")]
extern "C" fn start() -> ! {{
    platform::{run}(&mut glue::ready())
}}
"#,
            krate = platform.krate(),
            glue = self.glue
        )
    }

    /// Starts from the versions Kiln itself was tested with. Cargo drops what is not needed.
    fn copy_lock(&self, directory: &Path) -> Result<(), FirmwareError> {
        copy_if_newer(&self.sources.join("Cargo.lock"), &directory.join("Cargo.lock"))
    }
}

/// Locks a target directory until the file is dropped. Where another build has it, `waiting` is told before
/// that one's end is waited for.
fn lock(directory: &Path, waiting: impl FnOnce(&Path)) -> Result<fs::File, FirmwareError> {
    let path = directory.join(".kiln-lock");
    let file = fs::File::create(&path).map_err(file_error(&path))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(fs::TryLockError::WouldBlock) => waiting(directory),
        Err(fs::TryLockError::Error(source)) => return Err(FirmwareError::File { path, source }),
    }
    file.lock().map_err(file_error(&path))?;
    Ok(file)
}

/// The name of the package called `name` in `out`, another one for every directory. Cargo tells packages that are no
/// dependencies by name and version only, so of two firmware crates of one name, built in one target directory, it
/// would take the older for the newer.
pub(crate) fn package_in(name: &str, out: &Path) -> Result<String, FirmwareError> {
    let directory = absolute(out)?;
    let crc = crc32(directory.as_os_str().as_encoded_bytes());
    Ok(format!("{name}-{crc:08x}"))
}

/// Builds the firmware crate in `directory` and copies the program `name` to `out/NAME.elf`. Dependencies are built in
/// the directory `KILN_TARGET_DIR` names, or else in `otherwise`.
pub(crate) fn build_crate(
    directory: &Path,
    board: &Board,
    name: &str,
    out: &Path,
    otherwise: &Path,
) -> Result<PathBuf, FirmwareError> {
    let toolchain = Toolchain::find(&board.target)?;
    let named = env::var_os(TARGET_DIR_VARIABLE).map(PathBuf::from);
    let target_directory = absolute(named.as_deref().unwrap_or(otherwise))?;
    build_in(directory, &toolchain, board, name, out, &target_directory)
}

fn build_in(
    directory: &Path,
    toolchain: &Toolchain,
    board: &Board,
    name: &str,
    out: &Path,
    target_directory: &Path,
) -> Result<PathBuf, FirmwareError> {
    fs::create_dir_all(target_directory).map_err(file_error(target_directory))?;
    // Held until the ELF is copied, so that another build of the same name cannot replace it
    // in between.
    let _lock = lock(target_directory, |directory| {
        eprintln!("waiting for another build in {}", directory.display());
    })?;

    let cpu = board.target_cpu.as_ref().map(|cpu| format!("-Ctarget-cpu={cpu}"));
    let flags: Vec<&str> = cpu.as_deref().into_iter().collect();
    let mut cargo = toolchain.cargo("build", &flags);
    cargo.args(["--release", "--color", "never"]).arg("--target-dir").arg(target_directory).current_dir(directory);
    run_cargo(cargo, toolchain, directory)?;

    let built = target_directory.join(toolchain.target()).join("release").join(name);
    let elf = out.join(format!("{name}.elf"));
    fs::copy(&built, &elf).map_err(file_error(&built))?;
    Ok(elf)
}

/// Copies a file over one that is older or missing. Where there is nothing to copy, nothing happens.
pub(crate) fn copy_if_newer(from: &Path, to: &Path) -> Result<(), FirmwareError> {
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

pub(crate) fn run_cargo(mut cargo: Command, toolchain: &Toolchain, directory: &Path) -> Result<(), FirmwareError> {
    let output = cargo.output().map_err(|source| FirmwareError::Start { toolchain: toolchain.describe(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    let text = text.concat();
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines.get(lines.len().saturating_sub(SHOWN_LINES)..).unwrap_or(&lines);
    Err(FirmwareError::Build {
        directory: directory.to_owned(),
        toolchain: toolchain.describe(),
        output: shown.join("\n"),
    })
}

pub(crate) fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<(), FirmwareError> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::write(path, bytes).map_err(file_error(path))
}

pub(crate) fn file_error(path: &Path) -> impl FnOnce(io::Error) -> FirmwareError {
    let path = path.to_owned();
    |source| FirmwareError::File { path, source }
}

pub(crate) fn absolute(path: &Path) -> Result<PathBuf, FirmwareError> {
    std::path::absolute(path).map_err(file_error(path))
}

/// A path as a TOML string.
fn toml_path(path: &Path) -> Result<String, FirmwareError> {
    let bad = |reason| FirmwareError::Name { text: path.display().to_string(), place: "a path in Cargo.toml", reason };
    let text = path.to_str().ok_or_else(|| bad("it is not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(bad("it contains control characters"));
    }
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn firmware<'a>(board: &'a Board, name: &'a str) -> Firmware<'a> {
        Firmware {
            name,
            board,
            dependencies: &[],
            glue: "",
            sources: Path::new("."),
            out: Path::new("."),
            optimize: Optimize::Size,
            mode: Mode::Replay,
        }
    }

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

    #[test]
    fn what_cannot_be_built_is_refused_before_a_file_is_written() {
        let host = Board::builtin("host").unwrap();
        let message = firmware(&host, "demo").write().unwrap_err().to_string();
        assert!(message.contains("board host"), "{message}");
        let board = Board::builtin("mps2-an386").unwrap();
        for name in ["", "1st", "a b", "a\"b", "../x"] {
            let message = firmware(&board, name).write().unwrap_err().to_string();
            assert!(message.contains("package name"), "{message}");
        }
    }
}
