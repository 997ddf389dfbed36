//! Which class a sample belongs to: what `labels.csv`, `labels.txt` or the names of folders say.

use std::collections::HashMap;
use std::path::Path;

use kiln_build::model_file::read_file;

use crate::CliError;

/// The files that list samples with their classes, in the order they are looked for.
pub(super) const LISTS: [&str; 2] = ["labels.csv", "labels.txt"];
/// The file that names the classes, one a line, in the order of the model's outputs.
pub(super) const CLASSES: &str = "classes.txt";
/// The longest such file that is read.
const MOST_BYTES: u64 = 64 << 20;

/// The classes by name: the model's own, or else those of `classes.txt` in the samples' folder.
pub(super) fn class_names(folder: &Path, own: &[String]) -> Result<Vec<String>, CliError> {
    let path = folder.join(CLASSES);
    if !own.is_empty() || !path.is_file() {
        return Ok(own.to_vec());
    }
    Ok(lines(&path)?.into_iter().map(|(_, line)| line).collect())
}

/// The class that a label means: a number as it is, or a class by its name.
pub(super) fn class(label: &str, names: &[String]) -> Option<usize> {
    label.parse().ok().or_else(|| names.iter().position(|name| name == label))
}

/// Lines that are not empty, trimmed, with their numbers from 1.
fn lines(path: &Path) -> Result<Vec<(usize, String)>, CliError> {
    let text = String::from_utf8(read_file(path, MOST_BYTES)?);
    let text = text.map_err(|_| CliError::input(path, "not UTF-8 text; save it as that"))?;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim().to_owned()));
    Ok(lines.filter(|(_, line)| !line.is_empty()).collect())
}

/// A list of samples: the class of each file, by its path below the folder.
pub(super) struct List {
    entries: HashMap<String, (usize, usize)>,
}

impl List {
    /// Reads a folder's list; `None` where it has none.
    pub(super) fn read(folder: &Path, names: &[String]) -> Result<Option<List>, CliError> {
        let Some(path) = LISTS.iter().map(|name| folder.join(name)).find(|path| path.is_file()) else {
            return Ok(None);
        };
        let mut entries = HashMap::new();
        for (index, (number, line)) in lines(&path)?.into_iter().enumerate() {
            let wrong = |what: String| CliError::input(&path, format!("line {number}: {what}"));
            // Paths may have commas in them; labels don't.
            let pair = line.rsplit_once(',').or_else(|| line.rsplit_once(char::is_whitespace));
            let (file, label) = pair.ok_or_else(|| wrong("not a file, a comma and a label".to_owned()))?;
            let (file, label) = (file.trim(), label.trim());
            if index == 0 && file == "file" {
                continue;
            }
            let class = class(label, names).ok_or_else(|| {
                wrong(format!("'{label}' is neither a number nor a class of the model; name the classes in {CLASSES}, one a line, in the order of the model's outputs"))
            })?;
            if entries.insert(file.to_owned(), (class, number)).is_some() {
                return Err(wrong(format!("'{file}' is listed a second time")));
            }
        }
        let list = List { entries };
        match list.entries.iter().filter(|(file, _)| !folder.join(file).is_file()).min_by_key(|(_, (_, line))| *line) {
            Some((file, (_, line))) => {
                Err(CliError::input(&path, format!("line {line}: there is no file '{file}' in the folder")))
            }
            None => Ok(Some(list)),
        }
    }

    /// The class of a file, by its path below the folder.
    pub(super) fn class(&self, file: &str) -> Option<usize> {
        self.entries.get(file).map(|(class, _)| *class)
    }
}
