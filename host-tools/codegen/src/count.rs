//! What a run costs on an emulated board, counted by Kiln's plugin for QEMU (`ci/qemu-plugin`, which says how).

use std::path::{Path, PathBuf};
use std::{fs, io};

use kiln_boards::{Board, IsaFamily};

use crate::symbols::Elf;

/// The plugin's file, in the directory of the run.
const FILE: &str = "kiln-counts.txt";

/// Counts that could not be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountError {
    /// The firmware has no function that is a run of a model.
    #[error("{} has no function `{RUN}`, which a run is counted by: it is no firmware that Kiln wrote", .elf.display())]
    NoRun {
        /// The firmware.
        elf: PathBuf,
    },
    /// The plugin's file could not be read.
    #[error("cannot use {}: {source}; the emulator must be QEMU 7.1 or later, built with plugins", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of the plugin's file that means nothing.
    #[error("line {line} of {} is not what the plugin writes: `{text}`", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is in it.
        text: String,
    },
}

/// How the name of the function begins that is a run.
const RUN: &str = "kiln_device::replay::run_model";

/// Instructions, and accesses of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions begun. One that an IT block skips counts.
    pub instructions: u64,
    /// Words read; what is smaller than a word counts as one.
    pub loads: u64,
    /// Words written, likewise.
    pub stores: u64,
}

/// The call of a kernel's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedStep {
    /// Where the body begins.
    pub address: u64,
    /// What it cost, from its first instruction to the one it returns with.
    pub counts: Counts,
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedRun {
    /// What it cost, from the first instruction of the function that runs the model to the one it returns with.
    pub counts: Counts,
    /// The bodies that were called, in order.
    pub steps: Vec<CountedStep>,
}

impl CountedRun {
    /// What belongs to no step: the executor that calls them.
    pub fn executor(&self) -> Counts {
        let rest = |part: fn(&Counts) -> u64| {
            part(&self.counts).saturating_sub(self.steps.iter().map(|step| part(&step.counts)).sum())
        };
        Counts { instructions: rest(|c| c.instructions), loads: rest(|c| c.loads), stores: rest(|c| c.stores) }
    }
}

/// Counts the runs of some firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counting {
    arguments: [String; 2],
}

impl Counting {
    /// Counts `elf`, the firmware at `path`, on `board`, with the plugin at `plugin`.
    ///
    /// # Errors
    ///
    /// [`CountError::NoRun`].
    pub fn new(plugin: &Path, board: &Board, elf: &Elf, path: &Path) -> Result<Counting, CountError> {
        let run = elf.symbols.iter().find(|symbol| symbol.name.starts_with(RUN));
        let run = run.ok_or_else(|| CountError::NoRun { elf: path.to_owned() })?.address;
        let rows = elf.kernel_bodies().map(|symbol| symbol.address);
        Ok(Counting::of_functions(plugin, board, elf, run, rows))
    }

    /// As [`Counting::new`], where a run is the function at `run`, and a step is one at any of `rows`.
    pub fn of_functions(
        plugin: &Path,
        board: &Board,
        elf: &Elf,
        run: u64,
        rows: impl IntoIterator<Item = u64>,
    ) -> Counting {
        let word = match board.isa.family {
            IsaFamily::Aarch64 | IsaFamily::X86_64 => 8,
            _ => 4,
        };
        // A comma ends an argument, two are one.
        let plugin = plugin.display().to_string().replace(',', ",,");
        let mut argument = format!("{plugin},out={FILE},word={word},run={run:#x}");
        for row in rows {
            argument.push_str(&format!(",row={row:#x}"));
        }
        // A process may be loaded elsewhere than its file says.
        if board.has_system() {
            argument.push_str(&format!(",code={:#x}", elf.code));
        }
        Counting { arguments: ["-plugin".to_owned(), argument] }
    }

    /// Arguments for the emulator.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// What was counted in a run of the emulator in `directory`, one after another.
    ///
    /// # Errors
    ///
    /// [`CountError`].
    pub fn read(&self, directory: &Path) -> Result<Vec<CountedRun>, CountError> {
        let path = directory.join(FILE);
        let text = fs::read_to_string(&path).map_err(|source| CountError::File { path: path.clone(), source })?;
        parse(&text).map_err(|line| CountError::Line {
            path,
            line: line + 1,
            text: text.lines().nth(line).unwrap_or_default().to_owned(),
        })
    }
}

/// The runs of a file; the error is the number of a line, from 0.
fn parse(text: &str) -> Result<Vec<CountedRun>, usize> {
    let mut runs: Vec<CountedRun> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let parsed = match words[..] {
            ["run", instructions, loads, stores] => {
                counts([instructions, loads, stores]).map(|counts| runs.push(CountedRun { counts, steps: Vec::new() }))
            }
            ["step", address, instructions, loads, stores] => {
                let address = address.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
                let step = address.zip(counts([instructions, loads, stores]));
                let step = step.map(|(address, counts)| CountedStep { address, counts });
                runs.last_mut().zip(step).map(|(run, step)| run.steps.push(step))
            }
            _ => None,
        };
        parsed.ok_or(number)?;
    }
    Ok(runs)
}

fn counts(words: [&str; 3]) -> Option<Counts> {
    let [instructions, loads, stores] = words.map(|word| word.parse().ok());
    Some(Counts { instructions: instructions?, loads: loads?, stores: stores? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_and_what_is_left_is_the_executors() {
        let runs = parse("run 15 7 5\nstep 0x1f0 5 5 3\nstep 0x300 1 1 1\nrun 4 3 2\n").unwrap();
        assert_eq!(runs.len(), 2);
        assert_eq!(runs[0].steps[0].address, 0x1f0);
        assert_eq!(runs[0].executor(), Counts { instructions: 9, loads: 1, stores: 1 });
        assert_eq!(runs[1].executor(), runs[1].counts);
        assert_eq!(parse(""), Ok(vec![]));
    }

    #[test]
    fn damaged_files_are_refused_by_line() {
        for (text, line) in [("step 0x1 1 1 1\n", 0), ("run 1 2 3\nrun 1 2\n", 1), ("run 1 2 3\nstep 10 1 1 1", 1)] {
            assert_eq!(parse(text), Err(line), "{text}");
        }
    }
}
