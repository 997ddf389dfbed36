//! What can be wrong with a model or a board.

use std::io;
use std::path::PathBuf;

use kiln_boards::BoardError;
use kiln_import::ImportError;
use kiln_passes::PassError;
use kiln_planner::PlanError;
use kiln_planner::kiln_file::KilnFileError;

/// A model file that can't be used. Messages name the file, what was expected and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// It can't be read.
    #[error("{}: cannot read: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is there but is no model: empty, a directory, another format.
    #[error("{}: {problem}", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// It can't be imported.
    #[error("{}: {source}", path.display())]
    Import {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ImportError,
    },
    /// As a `.kiln` file, it can't be read or made.
    #[error("{}: {source}{}", path.display(), advice(source))]
    KilnFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KilnFileError,
    },
    /// Its graph can't be cleaned.
    #[error("{}: {source}", path.display())]
    Pass {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PassError,
    },
    /// It can't be planned.
    #[error("{}: {source}", path.display())]
    Plan {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PlanError,
    },
}

/// What to do about a `.kiln` file, where the message does not say so itself.
fn advice(error: &KilnFileError) -> &'static str {
    match error {
        KilnFileError::Version(..) => "",
        _ => "; copy the file again, or compile the model again",
    }
}

/// Why a build script can't plan its model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The model can't be read or planned.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// No such board, or its file is wrong.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// Nothing says for which board the model is to be planned.
    #[error(
        "{}: no board to plan for: call `.board(\"NAME\")` in the build script or set {}=NAME{}",
        model.display(), crate::script::BOARD_VARIABLE, suggested(boards)
    )]
    NoBoard {
        /// The model.
        model: PathBuf,
        /// Names of boards of the target that is built for.
        boards: Vec<String>,
    },
    /// It needs more memory than the board has.
    #[error("{}: the model does not fit board '{board}'{}\n`kiln plan` shows which steps and tensors need it", model.display(), lines(short))]
    DoesNotFit {
        /// The model.
        model: PathBuf,
        /// The board.
        board: String,
        /// What is short, a sentence each.
        short: Vec<String>,
    },
    /// The name is not one that a module can have.
    #[error("the model's name `{name}` can't be a module's: try `{instead}`")]
    Name {
        /// The name that was given.
        name: String,
        /// One like it.
        instead: String,
    },
    /// A variable that cargo sets is missing.
    #[error("{0} is not set: this runs in a build script, by cargo")]
    NoCargo(&'static str),
    /// A file can't be written.
    #[error("{}: cannot write: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn suggested(boards: &[String]) -> String {
    if boards.is_empty() {
        return "; docs/your-board.md describes one of your own".to_owned();
    }
    format!("; boards of this target: {}", boards.join(", "))
}

fn lines(texts: &[String]) -> String {
    texts.iter().map(|text| format!("\n{text}")).collect()
}
