//! The commands, one file each.

pub mod boards;
pub mod compile;
pub mod flash;
pub mod inspect;
pub mod plan;
pub mod profile;
pub mod quantize;
pub mod run;
pub mod verify;

use crate::args::Command;
use crate::{CliError, Outcome};

/// Runs a command.
pub fn run(command: &Command) -> Result<Outcome, CliError> {
    match command {
        Command::Plan(args) => plan::run(args),
        Command::Run(args) => run::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Flash(args) => flash::run(args),
        Command::Compile(args) => compile::run(args),
        Command::Quantize(args) => quantize::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Boards => boards::run(),
    }
}
