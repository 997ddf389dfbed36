//! The `kiln` command.
//!
//! Results go to standard output, progress and errors to standard error. Exit codes: 0 fine, 1 does
//! not fit or differs, 2 bad input. `docs/cli.md` has every command, flag and JSON field.

#![allow(clippy::result_large_err, reason = "an error is made once, and ends the command")]

pub mod args;
mod byte_count;
pub mod commands;
pub mod console;
mod error;
pub mod input;
pub mod inspect;
pub mod model;
mod output_files;
pub mod profile;
pub mod quantize;
pub mod report;
mod values;
pub mod verify;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

pub use error::{CliError, Outcome};

/// Runs the command with these arguments, the program's name first, and gives its exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match args::Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come as "errors" with code 0; nothing can be done if printing fails.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { error::BAD_INPUT } else { 0 });
        }
    };
    match commands::run(&cli.command) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => {
            console::progress(&format!("error: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}
