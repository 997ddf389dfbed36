//! Writes a plan as a static library with a C header.
//!
//! The library is the generated crate of [`crate::model_crate`] behind functions of C's calling convention, built for the
//! board's target. It holds that code and what it needs of the compiler's run-time library, and nothing else: no heap, no
//! global variable, no panic path, and no global symbol that does not begin with the model's name, so that a program may
//! link several. `docs/c.md` freezes what the header looks like.

mod archive;
mod face;
mod header;
mod text;
mod wrapper;

use std::fs;
use std::path::Path;

use kiln_boards::Board;
use kiln_planner::Planned;
use kiln_planner::graph::Graph;

use crate::model_crate::{ModelCrate, ModelCrateError, identifier};
use crate::package::{
    Optimize, PackageError, absolute, build, copy_lock, file_error, release_profile, toml_path, unique_name,
    write_if_changed,
};
pub use archive::ArchiveError;
use archive::Reduced;
use face::Face;

/// A library that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CLibraryError {
    /// The model's crate could not be written.
    #[error(transparent)]
    Crate(#[from] ModelCrateError),
    /// The library's crate could not be written or built.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// What the compiler wrote is not what was expected.
    #[error("the library for {target}: {source}")]
    Archive {
        /// The target it was built for.
        target: String,
        /// What is wrong.
        source: ArchiveError,
    },
}

/// A planned model on its way to a C program.
pub struct CLibrary<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Its plan for the board's CPU family.
    pub planned: &'a Planned,
    /// The board.
    pub board: &'a Board,
    /// The root of Kiln's source tree.
    pub sources: &'a Path,
    /// Where crates are written: the model's in `model/`, the library's in `c/`.
    pub out: &'a Path,
    /// Where everything is built, unless the environment's `KILN_TARGET_DIR` names another directory.
    pub build: &'a Path,
    /// What the compiler optimizes for.
    pub optimize: Optimize,
}

/// A library, built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CFiles {
    /// What every name in it begins with: the header is `NAME.h`, the library `libNAME.a`.
    pub name: String,
    /// The header's text.
    pub header: String,
    /// The static library.
    pub library: Vec<u8>,
}

impl CLibrary<'_> {
    /// Writes the crates, builds them and gives the files to hand on.
    ///
    /// # Errors
    ///
    /// [`CLibraryError`].
    pub fn build(&self) -> Result<CFiles, CLibraryError> {
        let model =
            ModelCrate { graph: self.graph, planned: self.planned, board: &self.board.name, sources: self.sources };
        let name = identifier(&self.graph.name);
        let face = Face::new(&name, self.graph, self.planned);
        let directory = self.write(&model, &face)?;
        let archive = build(&directory, self.board, self.build, |built| {
            let path = built.join(format!("lib{name}.a"));
            fs::read(&path).map_err(file_error(&path))
        })?;
        let bad = |source| CLibraryError::Archive { target: self.board.target.clone(), source };
        let Reduced { library, layout } = archive::reduce(&archive, &name).map_err(bad)?;
        Ok(CFiles { header: face.header(self.board, self.planned, layout), name, library })
    }

    /// Writes the model's crate and the library's, and gives the directory of the latter.
    fn write(&self, model: &ModelCrate<'_>, face: &Face<'_>) -> Result<std::path::PathBuf, CLibraryError> {
        let out = absolute(self.out)?;
        let (model_directory, directory) = (out.join("model"), out.join("c"));
        model.write(&model_directory)?;
        let source = directory.join("src");
        fs::create_dir_all(&source).map_err(file_error(&source))?;
        let package = model.package();
        let manifest = format!(
            r#"# Written by Kiln.
[package]
name = "{unique}"
version = "0.1.0"
edition = "2024"
publish = false

[lib]
name = "{name}"
path = "src/lib.rs"
crate-type = ["staticlib"]

[dependencies]
model = {{ package = "{package}", path = {path} }}

{profile}"#,
            unique = unique_name(&format!("{package}-c"), self.out)?,
            name = face.name,
            path = toml_path(&model_directory)?,
            profile = release_profile(self.optimize),
        );
        write_if_changed(&directory.join("Cargo.toml"), manifest.as_bytes())?;
        write_if_changed(&source.join("lib.rs"), face.wrapper().as_bytes())?;
        copy_lock(self.sources, &directory)?;
        Ok(directory)
    }
}
