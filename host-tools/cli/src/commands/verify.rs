//! `kiln verify`.

use crate::args::VerifyArgs;
use crate::{CliError, Outcome};

/// Runs the command.
pub fn run(_: &VerifyArgs) -> Result<Outcome, CliError> {
    Err(CliError::BadInput("kiln verify is not part of this build".into()))
}
