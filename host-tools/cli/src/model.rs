//! A model planned for a board that it fits.

use std::path::Path;

use kiln_boards::Board;
pub use kiln_build::model_file::{Format, MAX_BYTES, ModelFile};
use kiln_codegen::target_of;
use kiln_planner::graph::Graph;
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
        let file = ModelFile::read(path)?;
        let graph = file.graph()?;
        let planned = file.plan(&graph, &Options::for_target(target_of(board)))?;
        let fit = report(&file.name, &planned, board, None)?;
        if !fit.fits {
            return Err(CliError::Failed(format!("{}: {}", file.path.display(), text::shortage(&fit))));
        }
        Ok(Fitted { file, graph, planned })
    }

    /// Calls the model something else: names in generated code are made from it, and the `.kiln` file is called so.
    ///
    /// # Errors
    ///
    /// It is no name for a file.
    pub fn rename(&mut self, name: &str) -> Result<(), CliError> {
        if name.is_empty() || name.contains(['/', '\\', '\0']) || name.starts_with('.') {
            return Err(CliError::BadInput(format!("--name {name}: give a name such as kws, which is no path")));
        }
        self.file.name = name.to_owned();
        self.graph.name = name.to_owned();
        Ok(())
    }
}
