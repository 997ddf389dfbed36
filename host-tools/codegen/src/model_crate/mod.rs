//! Writes a plan as a `no_std` Rust crate with a typed face.
//!
//! The crate holds the plan's bytes unchanged (`plan.bin`), the list of kernels they name, and a
//! struct whose methods know the entries' inputs and outputs by type. `docs/generated-crate.md`
//! freezes what the generated code looks like from outside.

mod glue;
pub(crate) mod names;
pub(crate) mod port;
mod shared;
mod source;
pub(crate) mod text;
mod trial;

use std::path::{Path, PathBuf};

use kiln_planner::Planned;
use kiln_planner::graph::Graph;

use crate::whole_file::{self, WriteError};

pub use glue::replay_glue;
pub use names::{identifier, package_name};
use source::Form;
pub use trial::trial_source;

/// A model crate that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ModelCrateError {
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] WriteError),
    /// The crate's manifest can't name Kiln's sources.
    #[error("{}: the path is not Unicode, so Cargo.toml can't name it; move Kiln's sources elsewhere", .path.display())]
    Sources {
        /// The directory.
        path: PathBuf,
    },
}

/// What a model crate is made of.
pub struct ModelCrate<'a> {
    /// The graph that was planned.
    pub graph: &'a Graph,
    /// Its plan.
    pub planned: &'a Planned,
    /// The board it was planned for, for the documentation.
    pub board: &'a str,
    /// The root of Kiln's source tree.
    pub sources: &'a Path,
}

/// The files of a model crate, relative to its directory.
pub struct Files {
    /// `Cargo.toml`.
    pub manifest: String,
    /// `src/lib.rs`.
    pub lib: String,
    /// `src/plan.bin`.
    pub plan: Vec<u8>,
}

impl Files {
    /// The files with their paths, in the order to write them in: what others are built by comes last.
    pub fn in_order(self) -> [(PathBuf, Vec<u8>); 3] {
        [
            ("src/plan.bin".into(), self.plan),
            ("src/lib.rs".into(), self.lib.into_bytes()),
            ("Cargo.toml".into(), self.manifest.into_bytes()),
        ]
    }
}

impl ModelCrate<'_> {
    /// The package's name: the model's, as Cargo allows it.
    pub fn package(&self) -> String {
        package_name(&self.graph.name)
    }

    /// Writes the crate into `directory`, which is made where it is missing. Files that already
    /// are as they should be are left alone, so that Cargo does not build them anew.
    ///
    /// # Errors
    ///
    /// [`ModelCrateError`].
    pub fn write(&self, directory: &Path) -> Result<(), ModelCrateError> {
        let files = self.files()?.in_order();
        whole_file::write_all(files.iter().map(|(path, bytes)| (directory.join(path), &bytes[..])))?;
        Ok(())
    }

    /// The crate's files.
    ///
    /// # Errors
    ///
    /// The path of Kiln's sources is not Unicode.
    pub fn files(&self) -> Result<Files, ModelCrateError> {
        Ok(Files { manifest: self.manifest()?, lib: self.text(Form::Crate), plan: self.planned.bytes.clone() })
    }

    /// The text of a module that is a crate's `lib.rs` in all but its attributes and dependencies: it expects `kiln_core`
    /// and `kiln_kernels` in scope, and the plan in `plan.bin` beside it. `include_model!` of `kiln-model` includes it.
    pub fn module(&self) -> String {
        self.text(Form::Module)
    }

    fn manifest(&self) -> Result<String, ModelCrateError> {
        let path = |part: &str| {
            let path = self.sources.join(part);
            let text = path.to_str().map(text::toml);
            text.ok_or_else(|| ModelCrateError::Sources { path: self.sources.to_owned() })
        };
        let name = self.package();
        Ok(format!(
            "# Written by Kiln.\n\
             [package]\n\
             name = \"{name}\"\n\
             description = {description}\n\
             version = \"0.1.0\"\n\
             edition = \"2024\"\n\
             publish = false\n\n\
             [dependencies]\n\
             # The executor and the kernels the plan names.\n\
             kiln-core = {{ path = {core} }}\n\
             kiln-kernels = {{ path = {kernels} }}\n\n\
             [features]\n\
             # `defmt::Format` for what `Model::new` can fail with, for firmware that logs over a debug probe.\n\
             defmt = [\"kiln-core/defmt\"]\n",
            description = text::toml(&format!("The model {name}, planned for {}", self.board)),
            core = path("core")?,
            kernels = path("kernels")?,
        ))
    }
}
