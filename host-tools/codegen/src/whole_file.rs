//! Files that are written whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot write: {source}", .path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Writes `bytes` to `path`; what is there already is replaced at once, and stays on an error.
///
/// # Errors
///
/// The file can't be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    // Its folder is the user's to make: a path that is mistyped must not become a new one.
    let file = Staged::new(path, bytes).and_then(Staged::finish);
    file.map_err(|source| failed(path, source))
}

/// Writes files that belong together, and makes the folders they lie in. All are written under other names first, and
/// then renamed in their order, the last one last: where one can't be written, every old file stays. Files that already
/// are as they should be are left alone, so that what is built from them is not built anew.
///
/// # Errors
///
/// A file can't be written.
pub fn write_all<'a>(files: impl IntoIterator<Item = (PathBuf, &'a [u8])>) -> Result<(), WriteError> {
    let mut staged = Vec::new();
    for (path, bytes) in files {
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        let file = folder.and_then(|()| Staged::new(&path, bytes)).map_err(|source| failed(&path, source))?;
        staged.push((path, file));
    }
    for (path, file) in staged {
        file.finish().map_err(|source| failed(&path, source))?;
    }
    Ok(())
}

fn failed(path: &Path, source: io::Error) -> WriteError {
    WriteError { path: path.to_owned(), source }
}

/// A file on its way.
enum Staged<'a> {
    /// It is as it should be.
    Same,
    /// Written beside its place, which it takes in the end.
    Beside(NamedTempFile, PathBuf),
    /// A pipe or a terminal, which must stay what it is; a folder says so in its error.
    Special(PathBuf, &'a [u8]),
}

impl<'a> Staged<'a> {
    fn new(path: &Path, bytes: &'a [u8]) -> io::Result<Staged<'a>> {
        let there = fs::metadata(path).ok();
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            return match there.is_some_and(|there| there.is_dir()) {
                true => Err(io::ErrorKind::IsADirectory.into()),
                false => Ok(Staged::Special(path.to_owned(), bytes)),
            };
        }
        if there.as_ref().is_some_and(|there| there.len() == bytes.len() as u64) && fs::read(path)? == bytes {
            return Ok(Staged::Same);
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
        Ok(Staged::Beside(file, target))
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Staged::Same => Ok(()),
            Staged::Beside(file, target) => file.persist(&target).map(drop).map_err(|error| error.error),
            Staged::Special(path, bytes) => fs::write(path, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn one_that_cannot_be_written_leaves_all_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, blocked] = ["old", "new", "blocked"].map(|name| folder.path().join(name));
        fs::write(&old, "old").unwrap();
        fs::create_dir(&blocked).unwrap();
        let error = write_all([(old.clone(), &b"changed"[..]), (new, b"new"), (blocked.clone(), b"x")]).unwrap_err();
        assert!(error.to_string().contains("blocked: cannot write"), "{error}");
        assert_eq!(fs::read(&old).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["blocked", "old"]);
        // Nor where a file stands in a folder's place.
        let error = write_all([(old.clone(), &b"changed"[..]), (old.join("below"), b"x")]).unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error}");
        assert_eq!(fs::read(&old).unwrap(), b"old");
    }

    #[test]
    fn what_is_the_same_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let [same, changed] = ["a/same", "a/changed"].map(|name| folder.path().join(name));
        write_all([(same.clone(), &b"1"[..]), (changed.clone(), b"2")]).unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        fs::File::options().write(true).open(&same).unwrap().set_modified(long_ago).unwrap();
        write_all([(same.clone(), &b"1"[..]), (changed.clone(), b"3")]).unwrap();
        assert_eq!(fs::metadata(&same).unwrap().modified().unwrap(), long_ago);
        assert_eq!(fs::read(&changed).unwrap(), b"3");
        assert_eq!(names(&folder.path().join("a")), ["changed", "same"]);
    }
}
