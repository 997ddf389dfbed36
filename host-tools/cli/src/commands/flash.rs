//! `kiln flash`.

use crate::args::FlashArgs;
use crate::{CliError, Outcome};

/// Runs the command.
pub fn run(_: &FlashArgs) -> Result<Outcome, CliError> {
    Err(CliError::BadInput("kiln flash is not part of this build".into()))
}
