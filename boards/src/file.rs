//! From the text of a board file to a checked [`Board`].

use std::path::Path;

use serde::Deserialize;

use crate::{Board, BoardError, Cycles, FirmwareCrate, Isa, MemoryRegion, Run, check, host};

/// File stem and text of every embedded board, in alphabetical order.
const BUILTIN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/boards.rs"));

/// How alike two names must be to be suggested, between 0 and 1.
const CLOSE: f64 = 0.6;

/// The fields of a board file. What the host board leaves out is optional here and demanded of all
/// others when the file is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BoardFile {
    name: String,
    title: String,
    chip: String,
    cpu: String,
    isa: Option<Isa>,
    target: Option<String>,
    target_cpu: Option<String>,
    clock_hz: Option<u64>,
    #[serde(default)]
    memory: Vec<MemoryRegion>,
    run: Run,
    firmware: Option<FirmwareCrate>,
    cycles: Option<Cycles>,
}

impl Board {
    /// The embedded board of this name.
    ///
    /// # Errors
    ///
    /// [`BoardError::Unknown`] with names that are spelled much like it.
    pub fn builtin(name: &str) -> Result<Self, BoardError> {
        match BUILTIN.iter().find(|(stem, _)| *stem == name) {
            Some((stem, text)) => Self::parse(&format!("{stem}.toml"), text),
            None => Err(unknown(name)),
        }
    }

    /// Every embedded board: those that are emulated, then real ones, then the host; each in alphabetical
    /// order.
    ///
    /// # Errors
    ///
    /// The error of the first embedded file that is not right, which this crate's tests exclude.
    pub fn all() -> Result<Vec<Self>, BoardError> {
        let boards = BUILTIN.iter().map(|(stem, text)| Self::parse(&format!("{stem}.toml"), text));
        let mut boards = boards.collect::<Result<Vec<Self>, BoardError>>()?;
        boards.sort_by(|a, b| (a.run.place(), &a.name).cmp(&(b.run.place(), &b.name)));
        Ok(boards)
    }

    /// The board a file describes.
    ///
    /// # Errors
    ///
    /// [`BoardError::Read`], [`BoardError::Syntax`] or [`BoardError::Invalid`], naming the file.
    pub fn from_file(path: &Path) -> Result<Self, BoardError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| BoardError::Read { path: path.to_owned(), source })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// A board by what a user typed: a path if it ends in `.toml` or contains a path separator, or
    /// else the name of an embedded board.
    ///
    /// # Errors
    ///
    /// Those of [`Board::from_file`] and [`Board::builtin`].
    pub fn load(name_or_path: &str) -> Result<Self, BoardError> {
        let is_path = name_or_path.ends_with(".toml") || name_or_path.contains(std::path::is_separator);
        if is_path { Self::from_file(Path::new(name_or_path)) } else { Self::builtin(name_or_path) }
    }

    /// The board described by `text`; `file` is what messages call it.
    fn parse(file: &str, text: &str) -> Result<Self, BoardError> {
        let read: BoardFile = toml::from_str(text).map_err(|error| BoardError::Syntax {
            file: file.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        let missing = |field: &str, expected: &str| BoardError::Invalid {
            file: file.to_owned(),
            field: field.to_owned(),
            problem: format!("is missing: expected {expected}"),
        };
        let on_host = read.run == Run::Host {};
        if !on_host && read.clock_hz.is_none() {
            return Err(missing("clock_hz", "the CPU clock in Hz"));
        }
        let isa = match read.isa {
            Some(isa) => isa,
            None if on_host => host::isa(),
            None => return Err(missing("isa", "a table with `family` and `features`")),
        };
        let target = match read.target {
            Some(target) => target,
            None if on_host => host::TARGET.to_owned(),
            None => return Err(missing("target", "a rustc target triple")),
        };
        let board = Self {
            name: read.name,
            title: read.title,
            chip: read.chip,
            cpu: read.cpu,
            isa,
            target,
            target_cpu: read.target_cpu,
            clock_hz: read.clock_hz,
            memory: read.memory,
            run: read.run,
            firmware: read.firmware,
            cycles: read.cycles,
        };
        match check::problem(&board) {
            None => Ok(board),
            Some((field, problem)) => Err(BoardError::Invalid { file: file.to_owned(), field, problem }),
        }
    }
}

fn unknown(name: &str) -> BoardError {
    let mut close: Vec<(f64, &str)> = BUILTIN
        .iter()
        .map(|(stem, _)| (strsim::normalized_damerau_levenshtein(name, stem), *stem))
        .filter(|(likeness, _)| *likeness >= CLOSE)
        .collect();
    close.sort_by(|a, b| b.0.total_cmp(&a.0));
    BoardError::Unknown {
        name: name.to_owned(),
        close: close.iter().map(|(_, stem)| (*stem).to_owned()).collect(),
        known: BUILTIN.iter().map(|(stem, _)| (*stem).to_owned()).collect(),
    }
}
