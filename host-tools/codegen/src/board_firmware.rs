//! Firmware for real boards: a board's own firmware crate, with a model put into it.
//!
//! The crates lie in `boards/`, each an example that can be copied and built by itself. Here such a crate is copied
//! into a build directory, and what depends on model and board is put in place of what the example has:
//! the dependency `model`, the module `trial` with the outputs it expects, and the linker script with the board's
//! memory.

use std::fs;
use std::path::{Path, PathBuf};

use kiln_boards::Board;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use crate::deploy::{DeployError, Deployment};
use crate::firmware::{FirmwareError, program};
use crate::model_crate::trial_source;
use crate::package::{PackageError, absolute, build, copy_if_newer, file_error, unique_name, write_if_changed};
use crate::platform::{MEMORY, Platform};
use crate::ramp::Ramp;

const MANIFEST: &str = "Cargo.toml";
const LOCK: &str = "Cargo.lock";

/// The module that depends on the model, and the outputs it expects.
const TRIAL: &str = "src/trial.rs";
const EXPECTED: &str = "src/expected.bin";

/// What is written anew for every model; a model compiled into the example, and what cargo built there.
const NOT_COPIED: [&str; 6] = [MANIFEST, MEMORY, TRIAL, EXPECTED, "model", "target"];

/// A model and the outputs this computer computed, on their way into a board's firmware crate.
pub struct BoardFirmware<'a> {
    deployment: &'a Deployment<'a>,
    expected: Vec<u8>,
}

impl<'a> BoardFirmware<'a> {
    /// Firmware for the deployment's board that knows what its model should make of a [`Ramp`].
    ///
    /// # Errors
    ///
    /// [`DeployError::Run`] for a plan this computer can't run.
    pub fn new(deployment: &'a Deployment<'a>) -> Result<Self, DeployError> {
        Ok(Self { deployment, expected: Ramp::run(deployment.graph, deployment.planned)?.outputs })
    }

    /// Where the board's firmware crate lies; `None` for a board without one.
    pub fn template(sources: &Path, board: &Board) -> Option<PathBuf> {
        board.firmware.as_ref().map(|krate| sources.join("boards").join(&krate.name))
    }

    /// Writes the model's crate to `out/model` and the firmware to `out/firmware`, builds it and returns the ELF
    /// file's path, `out/BOARD.elf`.
    ///
    /// # Errors
    ///
    /// [`DeployError`]; for a failed build with the last lines cargo printed.
    pub fn build(&self) -> Result<PathBuf, DeployError> {
        self.build_changed(|trial| trial)
    }

    /// [`BoardFirmware::build`] with the module `trial` changed on the way: how the checks of firmware are
    /// themselves checked.
    pub fn build_changed(&self, change: impl Fn(String) -> String) -> Result<PathBuf, DeployError> {
        let Deployment { board, sources, out, build: otherwise, .. } = *self.deployment;
        let template = Self::template(sources, board).ok_or_else(|| self.refused("it has no firmware crate"))?;
        let (package, model) = self.deployment.write_model()?;
        let mut files = self.written_files()?;
        for (_, bytes) in files.iter_mut().filter(|(name, _)| *name == TRIAL) {
            *bytes = change(String::from_utf8_lossy(bytes).into_owned()).into_bytes();
        }
        let directory = self.write(&template, &package, &model, &files).map_err(FirmwareError::from)?;
        Ok(build(&directory, board, otherwise, program(&board.name, out)).map_err(FirmwareError::from)?)
    }

    /// Writes the firmware's crate with the model's in place of the example's, and returns its directory.
    fn write(
        &self,
        template: &Path,
        package: &str,
        model: &Path,
        files: &[(&'static str, Vec<u8>)],
    ) -> Result<PathBuf, PackageError> {
        let Deployment { board, out, .. } = *self.deployment;
        let directory = absolute(out)?.join("firmware");
        copy(template, &directory, Path::new(""))?;
        let manifest = template.join(MANIFEST);
        let text = fs::read_to_string(&manifest).map_err(file_error(&manifest))?;
        let name = unique_name(&board.name, out)?;
        let text = instantiate(&text, &name, &board.name, package, &absolute(model)?)?;
        write_if_changed(&directory.join(MANIFEST), text.as_bytes())?;
        for (name, bytes) in files {
            write_if_changed(&directory.join(name), bytes)?;
        }
        Ok(directory)
    }

    /// The files of the firmware crate that Kiln writes, by their paths in it, with the manifest apart. With the
    /// model that a crate comes with, they are those in the repository.
    ///
    /// # Errors
    ///
    /// A board without start-up code or clock, and [`DeployError::NoEntry`].
    pub fn written_files(&self) -> Result<[(&'static str, Vec<u8>); 3], DeployError> {
        let Deployment { graph, planned, board, .. } = *self.deployment;
        let platform =
            Platform::of(board).ok_or_else(|| self.refused("its target is of no kind that firmware is for"))?;
        let clock = board.clock_hz.and_then(|hz| u32::try_from(hz).ok());
        let clock = clock.ok_or_else(|| self.refused("its clock_hz is no number of 32 bits"))?;
        let trial = trial_source(graph, planned, clock).ok_or(DeployError::NoEntry)?;
        let memory = platform.memory_x(board);
        Ok([(MEMORY, memory.into_bytes()), (TRIAL, trial.into_bytes()), (EXPECTED, self.expected.clone())])
    }

    fn refused(&self, reason: &'static str) -> FirmwareError {
        FirmwareError::Board { board: self.deployment.board.name.clone(), reason }
    }
}

/// A crate's manifest with another package name, binary and model.
fn instantiate(text: &str, package: &str, binary: &str, model: &str, path: &Path) -> Result<String, PackageError> {
    let bad = |reason| PackageError::Name { text: binary.to_owned(), place: "a firmware crate", reason };
    let path = path.to_str().ok_or_else(|| PackageError::Name {
        text: path.display().to_string(),
        place: "a path in Cargo.toml",
        reason: "it is not UTF-8",
    })?;
    let mut manifest: DocumentMut = text.parse().map_err(|_| bad("its Cargo.toml can't be read"))?;
    let own = manifest.get_mut("package").and_then(|package| package.as_table_like_mut()?.get_mut("name"));
    *own.ok_or_else(|| bad("its Cargo.toml has no package name"))? = value(package);
    let all = manifest.get_mut("dependencies").and_then(Item::as_table_like_mut);
    let dependency = all.and_then(|all| all.get_mut("model")?.as_table_like_mut());
    let dependency = dependency.ok_or_else(|| bad("its Cargo.toml has no dependency `model = { … }`"))?;
    dependency.insert("package", value(model));
    dependency.insert("path", value(path));
    let mut bin = Table::new();
    bin.insert("name", value(binary));
    bin.insert("path", value("src/main.rs"));
    manifest.insert("bin", Item::ArrayOfTables(ArrayOfTables::from_iter([bin])));
    Ok(manifest.to_string())
}

/// Copies the files of a firmware crate that are the same for all models, leaving those alone that are as they should
/// be.
fn copy(from: &Path, to: &Path, within: &Path) -> Result<(), PackageError> {
    let (from_here, to_here) = (from.join(within), to.join(within));
    fs::create_dir_all(&to_here).map_err(file_error(&to_here))?;
    for entry in fs::read_dir(&from_here).map_err(file_error(&from_here))? {
        let entry = entry.map_err(file_error(&from_here))?;
        let path = within.join(entry.file_name());
        if NOT_COPIED.iter().any(|other| path == Path::new(other)) {
            continue;
        }
        let (source, target) = (from.join(&path), to.join(&path));
        if source.is_dir() {
            copy(from, to, &path)?;
        } else if path == Path::new(LOCK) {
            // Cargo adds the model to it.
            copy_if_newer(&source, &target)?;
        } else {
            write_if_changed(&target, &fs::read(&source).map_err(file_error(&source))?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_gets_the_model_and_keeps_the_rest() {
        let text = "[package]\nname = \"demo\" # mine\n\n[dependencies]\n# The model.\n\
                    model = { package = \"sine-model\", path = \"model\", features = [\"defmt\"] }\nhal = \"=1.2.3\"\n";
        let new = instantiate(text, "demo-0123", "demo", "kws-model", Path::new("/a \"b\"/model")).unwrap();
        for part in [
            "name = \"demo-0123\"",
            "# The model.",
            "package = \"kws-model\"",
            "features = [\"defmt\"]",
            "hal = \"=1.2.3\"",
            "[[bin]]\nname = \"demo\"\npath = \"src/main.rs\"",
        ] {
            assert!(new.contains(part), "no {part} in {new}");
        }
        let read: DocumentMut = new.parse().unwrap();
        assert_eq!(read["dependencies"]["model"]["path"].as_str(), Some("/a \"b\"/model"));
    }

    #[test]
    fn a_manifest_without_a_place_for_the_model_is_refused() {
        for (text, word) in
            [("[", "can't be read"), ("[package]\n", "no package name"), ("[package]\nname = \"x\"", "`model")]
        {
            let error = instantiate(text, "x", "x", "m", Path::new("m")).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn firmware_crates_of_all_boards_are_there() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let templates: Vec<PathBuf> =
            Board::all().unwrap().iter().filter_map(|board| BoardFirmware::template(&sources, board)).collect();
        assert!(templates.len() >= 3);
        for template in templates {
            for file in [MANIFEST, LOCK, MEMORY, TRIAL, EXPECTED, "build.rs", "src/main.rs"] {
                assert!(template.join(file).is_file(), "{} has no {file}", template.display());
            }
        }
    }
}
