//! Files that a command is told to write, beside those that it reads.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::CliError;

/// What a path leads to, however it is written: the same for two names of one file.
#[derive(PartialEq, Eq)]
enum Place {
    /// A file that is there: device and number, so that links are seen through.
    #[cfg(unix)]
    Known(u64, u64),
    /// A file that is there, by its path without links.
    #[cfg(not(unix))]
    Known(PathBuf),
    /// One that is not there yet: its folder, without links, and its name.
    New(PathBuf, OsString),
}

impl Place {
    /// `None` where nothing is kept: a pipe, a terminal, a folder that is missing.
    fn of(path: &Path) -> Option<Place> {
        match std::fs::metadata(path) {
            #[cfg(unix)]
            Ok(there) => {
                use std::os::unix::fs::MetadataExt;
                there.is_file().then(|| Place::Known(there.dev(), there.ino()))
            }
            #[cfg(not(unix))]
            Ok(there) => there.is_file().then(|| path.canonicalize().ok().map(Place::Known))?,
            Err(_) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                Some(Place::New(folder.canonicalize().ok()?, path.file_name()?.to_owned()))
            }
        }
    }
}

/// Whether what is written to `path` stays there, rather than going through a pipe or to a terminal.
pub(crate) fn is_kept(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|there| there.is_file())
}

/// Refuses outputs that lie over a file that is read, which `inputs` names with a word each, or over each other.
///
/// # Errors
///
/// The first such output, and what it collides with.
pub(crate) fn check(inputs: &[(&str, &Path)], outputs: &[PathBuf]) -> Result<(), CliError> {
    let read: Vec<_> = inputs.iter().map(|(word, path)| (*word, *path, Place::of(path))).collect();
    let mut written: Vec<(&Path, Option<Place>)> = Vec::new();
    for path in outputs {
        let place = Place::of(path);
        if place.is_some() {
            if let Some((word, input, _)) = read.iter().find(|(.., other)| *other == place) {
                let input = input.display();
                let problem = format!("--output would replace the {word} {input}; give the output a file of its own");
                return Err(CliError::input(path, problem));
            }
            if let Some((other, _)) = written.iter().find(|(_, other)| *other == place) {
                let other = other.display();
                let problem = format!("--output gives this file twice (also as {other}); give each output its own");
                return Err(CliError::input(path, problem));
            }
        }
        written.push((path, place));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_by_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("in"), "in").unwrap();
        std::fs::hard_link(at("in"), at("hard")).unwrap();
        std::fs::create_dir(at("sub")).unwrap();
        let mut names = vec!["in", "hard", "sub/../in", "./in"];
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(at("in"), at("soft")).unwrap();
            names.push("soft");
        }
        if cfg!(not(unix)) {
            // Links of this kind have paths of their own.
            names.retain(|name| *name != "hard");
        }
        let input = at("in");
        for name in names {
            let error = check(&[("input", &input)], &[at(name)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("replace the input"), "{error}");
            assert!(check(&[], &[at("in"), at(name)]).unwrap_err().to_string().contains("twice"), "{name}");
        }
        assert!(check(&[], &[at("new"), at("sub/../new")]).unwrap_err().to_string().contains("twice"));
        assert!(check(&[("model", &input)], &[at("new"), at("sub/new"), at("sub/in")]).is_ok());
        if cfg!(unix) {
            assert!(check(&[], &["/dev/null".into(), "/dev/null".into()]).is_ok());
        }
    }
}
