//! Why a folder can't be verified. That outputs differ is a result, not an error.

use std::path::PathBuf;

/// Why a folder can't be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A file can't be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// `io.json` is not what it should be.
    #[error("{}: {what}", .path.display())]
    IoJson {
        /// The file.
        path: PathBuf,
        /// What is wrong, and with which field.
        what: String,
    },
    /// A file of inputs or outputs has the wrong size.
    #[error("{}: {have} bytes, but {cases} cases of {shape:?} {dtype} take {want}", .path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        have: u64,
        /// The bytes it should have.
        want: u64,
        /// How many cases.
        cases: u64,
        /// The shape of one.
        shape: Vec<u64>,
        /// The element type.
        dtype: &'static str,
    },
    /// The folder's interface is not the model's.
    #[error("{}: {what}", .path.display())]
    Interface {
        /// `io.json`.
        path: PathBuf,
        /// What does not match.
        what: String,
    },
    /// The model could not be read, planned or run.
    #[error("{0}")]
    Model(String),
    /// The board's firmware could not be built or run.
    #[error("{0}")]
    Board(String),
}
