//! Samples in a folder, or in one file that holds many.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::labels::{self, CLASSES, List, class};
use crate::CliError;
use crate::input::{self, ImageRange, Stack, Wanted, extension};
use crate::report::table::counted;

/// What names of files with samples end in.
const EXTENSIONS: [&str; 5] = ["npy", "png", "wav", "bin", "raw"];

/// One or more samples: a file for each of the model's inputs.
struct Group {
    files: Vec<PathBuf>,
    /// How many samples each of the files holds.
    count: u64,
    class: Option<usize>,
}

/// Samples that were found, not read yet.
pub(crate) struct Samples {
    path: PathBuf,
    groups: Vec<Group>,
    wanted: Vec<Wanted>,
    range: Option<ImageRange>,
    /// What was passed over, for the user to know.
    pub(crate) notes: Vec<String>,
}

/// A sample.
pub(crate) struct Sample<'s> {
    /// The file of its first input.
    pub(crate) file: &'s Path,
    /// The elements of each input.
    pub(crate) inputs: Vec<&'s [u8]>,
    /// Its class, where that is known.
    pub(crate) class: Option<usize>,
}

impl Samples {
    /// Finds the samples of a model that takes `wanted`, whose classes have the names `own`, if any, and
    /// whose output scores `outputs` of them.
    ///
    /// # Errors
    ///
    /// There are none, or files for some inputs are missing, or what says their classes is wrong.
    pub(crate) fn find(
        path: &Path,
        wanted: Vec<Wanted>,
        range: Option<ImageRange>,
        own: &[String],
        outputs: usize,
    ) -> Result<Samples, CliError> {
        let mut samples = Samples { path: path.to_owned(), groups: Vec::new(), wanted, range, notes: Vec::new() };
        if samples.wanted.is_empty() {
            return Err(CliError::input(path, "the model has no inputs that samples could fill"));
        }
        if path.is_dir() {
            samples.search(own, outputs)?;
        } else {
            samples.group(vec![path.to_owned()], None)?;
        }
        if samples.count() == 0 {
            let kinds = EXTENSIONS.map(|e| format!(".{e}")).join(", ");
            return Err(CliError::input(path, format!("no samples in it: files whose names end in {kinds}")));
        }
        Ok(samples)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// Finds what is in the folder and in the folders in it.
    fn search(&mut self, own: &[String], outputs: usize) -> Result<(), CliError> {
        let folder = self.path.clone();
        let (mut files, folders) = list(&folder)?;
        let names = labels::class_names(&folder, own)?;
        let listed = List::read(&folder, &names)?;
        let mut others = files.len();
        files.retain(|file| is_sample(file));
        others -= files.len();
        let mut classes = vec![None; files.len()];
        let mut of_folders = BTreeSet::new();
        for inner in &folders {
            let (inside, _) = list(inner)?;
            let inside: Vec<PathBuf> = inside.into_iter().filter(|file| is_sample(file)).collect();
            if let (false, Some(name)) = (inside.is_empty(), inner.file_name()) {
                let name = name.to_string_lossy().into_owned();
                classes.extend(inside.iter().map(|_| Some(name.clone())));
                of_folders.insert(name);
                files.extend(inside);
            }
        }
        let names = match listed {
            Some(_) => names,
            None => folder_names(&folder, names, &of_folders, outputs)?,
        };
        let mut found: Vec<(PathBuf, Option<usize>)> = Vec::with_capacity(files.len());
        for (file, of_folder) in files.into_iter().zip(classes) {
            let below = file.strip_prefix(&folder).unwrap_or(&file).to_string_lossy().replace('\\', "/");
            let class = match &listed {
                Some(list) => list.class(&below),
                None => of_folder.and_then(|name| class(&name, &names)),
            };
            found.push((file, class));
        }
        let others =
            others - [labels::LISTS[0], labels::LISTS[1], CLASSES].iter().filter(|n| folder.join(n).is_file()).count();
        if others > 0 {
            self.notes.push(format!("{} with other extensions passed over", counted(others, "file")));
        }
        self.by_input(found)
    }

    /// Groups files by the inputs they are for: `NAME.in0.npy`, `NAME.in1.npy`, … where there are several.
    fn by_input(&mut self, found: Vec<(PathBuf, Option<usize>)>) -> Result<(), CliError> {
        if self.wanted.len() == 1 {
            return found.into_iter().try_for_each(|(file, class)| self.group(vec![file], class));
        }
        // A sample's place is its path up to `.inK`.
        let mut places: BTreeMap<PathBuf, (Vec<Option<PathBuf>>, Option<usize>)> = BTreeMap::new();
        let inputs = self.wanted.len();
        for (file, class) in found {
            let problem = || {
                let names = (0..inputs).map(|k| format!("NAME.in{k}.npy")).collect::<Vec<_>>().join(", ");
                CliError::input(
                    &file,
                    format!("the model has {inputs} inputs, so a sample's files must be called {names}"),
                )
            };
            let (name, index) = part(&file).filter(|(_, index)| *index < inputs).ok_or_else(problem)?;
            let (files, _) = places.entry(file.with_file_name(name)).or_insert_with(|| (vec![None; inputs], class));
            if let Some(place) = files.get_mut(index)
                && let Some(other) = place.replace(file.clone())
            {
                return Err(CliError::input(&file, format!("{} is of the same sample and input", other.display())));
            }
        }
        for (place, (files, class)) in places {
            let missing = files.iter().position(Option::is_none);
            if let (Some(missing), Some(file)) = (missing, files.iter().flatten().next()) {
                let problem = format!("there is no '{}.in{missing}.…' beside it for input {missing}", place.display());
                return Err(CliError::input(file, problem));
            }
            self.group(files.into_iter().flatten().collect(), class)?;
        }
        Ok(())
    }

    fn group(&mut self, files: Vec<PathBuf>, class: Option<usize>) -> Result<(), CliError> {
        if files.len() != self.wanted.len() {
            let problem = format!("the model has {} inputs; give a folder with a file for each", self.wanted.len());
            return Err(CliError::input(&self.path, problem));
        }
        let counts = files.iter().zip(&self.wanted).map(|(file, wanted)| input::count(file, wanted));
        let counts = counts.collect::<Result<Vec<u64>, _>>()?;
        let count = counts.first().copied().unwrap_or(0);
        if let (Some(at), Some(first)) = (counts.iter().position(|&c| c != count), files.first()) {
            let problem =
                format!("it has {} where {} has {}", counted(counts[at] as usize, "sample"), first.display(), count);
            return Err(CliError::input(&files[at], problem));
        }
        self.groups.push(Group { files, count, class });
        Ok(())
    }

    /// Reads the samples with these numbers, in ascending order, one after the other.
    ///
    /// # Errors
    ///
    /// A file can't be read or does not fit its input, or `each` refuses a sample.
    pub(crate) fn read(
        &self,
        picked: &Picker,
        said: &mut dyn FnMut(&Path, &str),
        each: &mut dyn FnMut(Sample<'_>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut number = 0;
        for group in &self.groups {
            let numbers = number..number + group.count;
            number = numbers.end;
            if !numbers.clone().any(|n| picked.takes(n)) {
                continue;
            }
            let read = |(file, wanted): (&PathBuf, &Wanted)| Stack::read(file, wanted, self.range);
            let stacks = group.files.iter().zip(&self.wanted).map(read).collect::<Result<Vec<Stack>, _>>()?;
            for (file, stack) in group.files.iter().zip(&stacks) {
                stack.notes.iter().for_each(|note| said(file, note));
            }
            let Some(file) = group.files.first() else { continue };
            for (part, _) in numbers.enumerate().filter(|(_, n)| picked.takes(*n)) {
                let elements = |(stack, wanted): (&'_ Stack, &Wanted)| {
                    let size = wanted.bytes as usize;
                    stack.elements.get(part * size..(part + 1) * size).map(|bytes| bytes.to_vec())
                };
                let inputs = stacks.iter().zip(&self.wanted).map(elements).collect::<Option<Vec<_>>>();
                let inputs = inputs.ok_or_else(|| CliError::input(file, "it has become shorter; try again"))?;
                let class = stacks.first().and_then(|s| s.classes.get(part)).map(|&class| class.into()).or(group.class);
                each(Sample { file, inputs: inputs.iter().map(Vec::as_slice).collect(), class })?;
            }
        }
        Ok(())
    }
}

/// Which samples are taken.
pub(crate) struct Picker {
    /// Of all, taken: evenly spread, as many as `taken`.
    all: u64,
    taken: u64,
    /// Those that are not taken instead.
    others: bool,
}

impl Picker {
    /// All of `all`.
    pub(crate) fn all(all: u64) -> Picker {
        Picker { all, taken: all, others: false }
    }

    /// At most `most`, evenly spread over all.
    pub(crate) fn spread(all: u64, most: Option<u64>) -> Picker {
        Picker { all, taken: most.unwrap_or(all).min(all), others: false }
    }

    /// Those that this one leaves; `None` where it leaves none.
    pub(crate) fn others(&self) -> Option<Picker> {
        (self.taken < self.all).then_some(Picker { others: !self.others, ..*self })
    }

    /// How many it takes.
    pub(crate) fn count(&self) -> u64 {
        if self.others { self.all - self.taken } else { self.taken }
    }

    /// Whether it takes sample `number`: where `number * taken / all` goes up with the next one.
    fn takes(&self, number: u64) -> bool {
        let before = |n: u64| u128::from(n) * u128::from(self.taken) / u128::from(self.all.max(1));
        (before(number + 1) > before(number)) != self.others
    }
}

fn is_sample(file: &Path) -> bool {
    EXTENSIONS.contains(&extension(file).as_str())
}

/// The name, and the number of the input, of `NAME.inK.EXTENSION`.
fn part(file: &Path) -> Option<(PathBuf, usize)> {
    let stem = Path::new(file.file_stem()?);
    let index = stem.extension()?.to_str()?.strip_prefix("in")?.parse().ok()?;
    Some((stem.file_stem()?.into(), index))
}

/// Files and folders in a folder, each sorted by name; hidden ones are passed over.
fn list(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), CliError> {
    let failed = |source| CliError::File { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths.into_iter().partition(|path| !path.is_dir()))
}

/// The classes by which folders are called: numbers, names of classes, or, where nothing names them and
/// there are as many folders as classes, the folders' own names in alphabetical order.
fn folder_names(
    folder: &Path,
    names: Vec<String>,
    folders: &BTreeSet<String>,
    outputs: usize,
) -> Result<Vec<String>, CliError> {
    let Some(unknown) = folders.iter().find(|name| class(name, &names).is_none()) else { return Ok(names) };
    if names.is_empty() && folders.len() == outputs {
        return Ok(folders.iter().cloned().collect());
    }
    let problem = format!(
        "folder '{unknown}' is called neither by a class nor by a class's number; name the classes in {CLASSES}, one a \
         line, in the order of the model's {outputs} outputs"
    );
    Err(CliError::input(folder, problem))
}

#[cfg(test)]
#[path = "samples_tests.rs"]
mod tests;
