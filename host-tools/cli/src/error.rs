//! What a command ends with.

use std::io;
use std::path::PathBuf;

use kiln_boards::BoardError;
use kiln_build::ModelError;
use kiln_codegen::sources::NoSources;
use kiln_codegen::whole_file::WriteError;
use kiln_passes::quantize::QuantizeError;
use kiln_target_host::RunError;

/// The exit code for a model that does not fit, or a result that differs.
pub(crate) const NO: u8 = 1;
/// The exit code for input that can't be used.
pub(crate) const BAD_INPUT: u8 = 2;

/// What a command that could do its work found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It fits, or nothing differs: exit code 0.
    Fine,
    /// It does not fit, or something differs, and the command has said so: exit code 1.
    No,
}

impl Outcome {
    /// The process's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Fine => 0,
            Outcome::No => NO,
        }
    }
}

/// Why a command can't do its work. Messages name the file, what was expected and what to do.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A file can't be read.
    #[error("{}: cannot read: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A result can't be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Kiln's own sources are needed and not there.
    #[error(transparent)]
    Sources(#[from] NoSources),
    /// A file is there but is not what it should be: an empty one, a directory, another format.
    #[error("{}: {problem}", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A model file can't be read, imported or planned.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A model can't be quantized.
    #[error("{}: {source}", path.display())]
    Quantize {
        /// The file: the model, or the sample that showed it.
        path: PathBuf,
        /// Why.
        source: QuantizeError,
    },
    /// A plan can't be run.
    #[error("{}: {source}", path.display())]
    Run {
        /// The file the plan is in or was made from.
        path: PathBuf,
        /// Why.
        source: RunError,
    },
    /// No such board, or its file is wrong.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// Anything else that is wrong with what was given, said in a sentence: exit code 2.
    #[error("{0}")]
    BadInput(String),
    /// A sentence about something that does not fit or differs: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// Standard output can't be written, for another reason than a reader that has gone away.
    #[error("cannot write the result to standard output: {0}")]
    Stdout(io::Error),
}

impl CliError {
    /// An error about what is in a file.
    pub fn input(path: impl Into<PathBuf>, problem: impl Into<String>) -> CliError {
        CliError::Input { path: path.into(), problem: problem.into() }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Failed(_) => NO,
            _ => BAD_INPUT,
        }
    }
}
