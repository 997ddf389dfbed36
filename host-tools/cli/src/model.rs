//! A model planned for a board that it fits.

use std::path::Path;

use kiln_boards::Board;
use kiln_build::ModelError;
use kiln_build::model_file::is_file_name;
pub use kiln_build::model_file::{Format, MAX_BYTES, ModelFile};
use kiln_codegen::target_of;
use kiln_passes::Removed;
use kiln_planner::graph::Graph;
use kiln_planner::kiln_file::{About, KilnFile};
use kiln_planner::{Options, Planned};

use crate::CliError;
use crate::report::{report, text};

/// A model planned for a board that it fits.
pub struct Fitted {
    /// The file.
    pub file: ModelFile,
    /// Its graph, cleaned.
    pub graph: Graph,
    /// The plan for the board's CPU family.
    pub planned: Planned,
}

impl Fitted {
    /// Reads and plans a model.
    ///
    /// # Errors
    ///
    /// The file can't be read or planned, or the plan does not fit the board: which region is
    /// short, by how much, and what is to blame.
    pub fn read(path: &Path, board: &Board) -> Result<Fitted, CliError> {
        Fitted::read_with(path, board, &Options::for_target(target_of(board)))
    }

    /// The same, planned with `options` for the board: in several regions of RAM, for instance.
    ///
    /// # Errors
    ///
    /// As for [`Fitted::read`].
    pub fn read_with(path: &Path, board: &Board, options: &Options) -> Result<Fitted, CliError> {
        let file = ModelFile::read(path)?;
        let graph = file.graph()?;
        let planned = file.plan(&graph, options)?;
        check_fit(&file, &planned, board)?;
        Ok(Fitted { file, graph, planned })
    }

    /// Calls the model something else: names in generated code are made from it, and the `.kiln` file is called so.
    ///
    /// # Errors
    ///
    /// It is no name for a file.
    pub fn rename(&mut self, name: &str) -> Result<(), CliError> {
        if !is_file_name(name) {
            return Err(CliError::BadInput(format!("--name {name}: give a name such as kws, which is no path")));
        }
        self.file.name = name.to_owned();
        self.graph.name = name.to_owned();
        Ok(())
    }

    /// The bytes of a `.kiln` file with the plan and, if asked for, the graph; `path` is what errors call it.
    ///
    /// # Errors
    ///
    /// The file's format can't hold it.
    pub fn kiln_bytes(&self, board: &Board, with_graph: bool, path: &Path) -> Result<Vec<u8>, CliError> {
        let (model, board) = (self.file.name.clone(), board.name.clone());
        let kiln = KilnFile {
            graph: with_graph.then(|| self.graph.clone()),
            plans: vec![(self.planned.target, self.planned.bytes.clone())],
            about: About { model, board, kiln: env!("CARGO_PKG_VERSION").to_string() },
        };
        Ok(kiln.to_bytes().map_err(|source| ModelError::KilnFile { path: path.to_owned(), source })?)
    }
}

/// Refuses a plan that does not fit a board: which region is short, by how much, and what is to blame.
pub(crate) fn check_fit(file: &ModelFile, planned: &Planned, board: &Board) -> Result<(), CliError> {
    // What was removed is no part of why it does not fit.
    let fit = report(&file.name, planned, Removed::default(), board, None)?;
    if fit.fits {
        return Ok(());
    }
    Err(CliError::Failed(format!("{}: {}", file.path.display(), text::shortage(&fit))))
}
