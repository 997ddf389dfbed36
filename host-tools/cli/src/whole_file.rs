//! A file that is written whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use tempfile::Builder;

use crate::CliError;

/// Writes `bytes` to `path`; what is there already is replaced at once, and stays on an error.
///
/// # Errors
///
/// The file can't be written.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    replace(path, bytes).map_err(|source| CliError::File { path: path.to_owned(), action: "write", source })
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let there = fs::metadata(path).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        // A pipe or a terminal must stay what it is; a folder says so in its error.
        return fs::write(path, bytes);
    }
    // Behind a link lies the file that is meant.
    let target = if there.is_some() { fs::canonicalize(path)? } else { path.to_owned() };
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = Builder::new();
    match &there {
        Some(there) => builder.permissions(there.permissions()),
        #[cfg(unix)]
        None => builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)),
        #[cfg(not(unix))]
        None => &mut builder,
    };
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.persist(&target).map_err(|error| error.error)?;
    Ok(())
}
