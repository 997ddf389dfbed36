//! `kiln compile`.

use crate::args::CompileArgs;
use crate::{CliError, Outcome};

/// Runs the command.
pub fn run(_: &CompileArgs) -> Result<Outcome, CliError> {
    Err(CliError::BadInput("kiln compile is not part of this build".into()))
}
