//! Writes a firmware crate around a model crate and builds it.

use std::fs;
use std::path::{Path, PathBuf};

use kiln_boards::Board;

pub use crate::package::Optimize;
use crate::package::{
    PackageError, absolute, build, build_in, copy_lock, file_error, release_profile, toml_path, unique_name,
    write_if_changed,
};
use crate::platform::{MEMORY, Platform};
use crate::toolchain::Toolchain;

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
    /// It could not be written or built.
    #[error(transparent)]
    Package(#[from] PackageError),
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
        copy_lock(self.sources, &directory)?;
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
        Ok(build(&directory, self.board, otherwise, program(self.name, self.out))?)
    }

    /// As [`Firmware::build`], with a given toolchain and target directory.
    ///
    /// # Errors
    ///
    /// [`FirmwareError`].
    pub fn build_in(&self, toolchain: &Toolchain, target_directory: &Path) -> Result<PathBuf, FirmwareError> {
        let directory = self.write()?;
        Ok(build_in(&directory, self.board, toolchain, target_directory, program(self.name, self.out))?)
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
                return Err(FirmwareError::Package(PackageError::Name {
                    text: name.to_owned(),
                    place: "a package name",
                    reason: "expected a letter, then letters, digits, `-` and `_`",
                }));
            }
        }
        Ok(platform)
    }

    fn manifest(&self, platform: &Platform) -> Result<String, FirmwareError> {
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
{profile}"#,
            package = unique_name(self.name, self.out)?,
            name = self.name,
            profile = release_profile(self.optimize),
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
}

/// Copies the program `name`, once it is built, to `out/NAME.elf`, and gives that path.
pub(crate) fn program(name: &str, out: &Path) -> impl FnOnce(&Path) -> Result<PathBuf, PackageError> {
    move |built| {
        let built = built.join(name);
        let elf = absolute(out)?.join(format!("{name}.elf"));
        fs::copy(&built, &elf).map_err(file_error(&built))?;
        Ok(elf)
    }
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
