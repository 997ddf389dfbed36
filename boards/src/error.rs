//! What can be wrong with a board name or file.

use std::path::PathBuf;

/// A board could not be found or read. Each message says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BoardError {
    /// No embedded board has this name.
    #[error(
        "no board is called `{name}`; {}; a board of your own is given as the path of its .toml file",
        suggestion(close, known)
    )]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Names of boards that are spelled much like it, the closest first.
        close: Vec<String>,
        /// All names.
        known: Vec<String>,
    },
    /// The file could not be read.
    #[error("cannot read the board file {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML, or a field is missing, unknown or of the wrong type.
    #[error("{file}: {message}")]
    Syntax {
        /// The file.
        file: String,
        /// Line, field and what was expected, over several lines.
        message: String,
    },
    /// The fields can be read but contradict each other or the machine.
    #[error("{file}: `{field}` {problem}")]
    Invalid {
        /// The file.
        file: String,
        /// The field, as a path: `memory.DATA.bytes`.
        field: String,
        /// What is wrong and what was expected.
        problem: String,
    },
}

fn suggestion(close: &[String], known: &[String]) -> String {
    if close.is_empty() {
        format!("the boards are {}", known.join(", "))
    } else {
        format!("did you mean {}?", close.join(" or "))
    }
}
