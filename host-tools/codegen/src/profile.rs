//! Measures a model on an emulated board: instructions, loads and stores of each step, stack and arena.

use std::path::{Path, PathBuf};

use kiln_device::profile::{ARENA_RECORD, PATTERNS, STACK_RECORD};
use kiln_device::stack::MARGIN;

use crate::count::{CountError, CountedRun, Counting};
use crate::deploy::{DeployError, Deployment};
use crate::emulate::{EmulateError, Emulation};
use crate::firmware::Mode;
use crate::stack::{StackError, stack_of};
use crate::symbols::{Elf, SymbolsError};

/// A model that could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The firmware could not be made.
    #[error(transparent)]
    Deploy(#[from] DeployError),
    /// The firmware could not be read.
    #[error(transparent)]
    Symbols(#[from] SymbolsError),
    /// The firmware did not run.
    #[error("{source}{}", plugin_advice(source))]
    Emulate {
        /// Why.
        source: EmulateError,
    },
    /// The counts could not be had.
    #[error(transparent)]
    Count(#[from] CountError),
    /// The image does not say how deep its stack gets.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// A run used more stack than was computed.
    #[error("{} used {painted} bytes of stack where at most {computed} were computed; report this", .elf.display())]
    StackBound {
        /// The firmware.
        elf: PathBuf,
        /// Bytes as painting shows them.
        painted: u64,
        /// Bytes that were computed.
        computed: u64,
    },
    /// The counts are not of the runs and steps that there were.
    #[error(
        "{} ran {runs} times with {steps} steps each, but {counted_runs} runs and in the first of them \
         {counted_steps} calls of kernels were counted; report this", .elf.display()
    )]
    Steps {
        /// The firmware.
        elf: PathBuf,
        /// Runs there were.
        runs: usize,
        /// Steps of the plan.
        steps: usize,
        /// Runs that were counted.
        counted_runs: usize,
        /// Calls of kernels in the first of them.
        counted_steps: usize,
    },
    /// Two runs over the same input differ.
    #[error("{} ran twice over one input, and {what} differ; report this", .elf.display())]
    NotRepeatable {
        /// The firmware.
        elf: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// The firmware did not write the records it should.
    #[error("{} wrote no record of {what} for case {case}; report this", .elf.display())]
    Record {
        /// The firmware.
        elf: PathBuf,
        /// What is missing.
        what: &'static str,
        /// For which case.
        case: u32,
    },
}

fn plugin_advice(error: &EmulateError) -> &'static str {
    match error {
        EmulateError::Failed { output, .. } if output.contains("plugin") => {
            "\ncounting needs QEMU 7.1 or later, built with plugins"
        }
        _ => "",
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The firmware.
    pub elf: Elf,
    /// The run: its counts, and those of each of the plan's steps.
    pub run: CountedRun,
    /// Bytes of stack that the run used beyond its caller's, as far as painting shows; `None` where it can't be
    /// painted.
    pub stack: Option<u64>,
    /// Bytes of stack that any run can use at most, from the linked image; `None` where the system gives the stack.
    pub stack_bound: Option<u64>,
    /// What was touched of the plan's arena.
    pub arena: Touched,
    /// The outputs, one after another.
    pub outputs: Vec<u8>,
}

/// What was written of painted memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// How many bytes.
    pub bytes: u64,
    /// Up to where: offset behind the last one.
    pub end: u64,
}

/// Builds firmware and runs it over `inputs`, those of one case one after another, once with each pattern the arena
/// is painted with. `directory` is for the run's files; `plugin` is [the plugin](crate::plugin::build).
///
/// # Errors
///
/// [`ProfileError`].
pub fn profile(
    deployment: &Deployment<'_>,
    plugin: &Path,
    directory: &Path,
    inputs: &[u8],
) -> Result<Profile, ProfileError> {
    let steps = deployment.planned.main_entry().map_or(0, |entry| entry.steps.len());
    let path = deployment.build(Mode::Profile)?;
    let elf = Elf::read(&path)?;
    let counting = Counting::new(plugin, deployment.board, &elf, &path)?;
    let emulation = Emulation { arguments: counting.arguments(), ..Emulation::new(deployment.board, &path, directory) };
    let replayed =
        emulation.replay(&inputs.repeat(PATTERNS.len())).map_err(|source| ProfileError::Emulate { source })?;

    let runs = counting.read(directory)?;
    let Some(run) = runs.first().filter(|run| runs.len() == PATTERNS.len() && run.steps.len() == steps) else {
        return Err(ProfileError::Steps {
            elf: path,
            runs: PATTERNS.len(),
            steps,
            counted_runs: runs.len(),
            counted_steps: runs.first().map_or(0, |run| run.steps.len()),
        });
    };
    let (outputs, again) = replayed.outputs.split_at(replayed.outputs.len() / PATTERNS.len());
    let differs = |what| Err(ProfileError::NotRepeatable { elf: path.clone(), what });
    if runs.iter().any(|other| other != run) {
        return differs("what they cost");
    }
    if outputs != again {
        return differs("their outputs");
    }
    let record = |case, step, what| {
        let found = replayed.steps.iter().find(|record| (record.case, record.step) == (case, step));
        let missing = || ProfileError::Record { elf: path.clone(), what, case };
        found.map(|record| record.bytes.as_slice()).ok_or_else(missing)
    };
    // Before the arena lies the state.
    let state = deployment.planned.ram_bytes.saturating_sub(deployment.planned.arena_bytes) as usize;
    let mut stack = None;
    let mut arenas = Vec::new();
    for (case, pattern) in (0..).zip(PATTERNS) {
        let used = record(case, STACK_RECORD, "the stack")?;
        stack = stack.max(used.first_chunk().map(|bytes| u64::from(u32::from_le_bytes(*bytes))));
        let ram = record(case, ARENA_RECORD, "the arena")?;
        arenas.push((pattern, ram.get(state..).unwrap_or_default()));
    }
    let stack_bound = match stack {
        Some(painted) => {
            let computed = stack_of(&path, "kiln_device::replay::run_model")?.bytes;
            // Painting can't tell less than its margin.
            if painted > computed.max(MARGIN as u64) {
                return Err(ProfileError::StackBound { elf: path, painted, computed });
            }
            Some(computed)
        }
        None => None,
    };
    Ok(Profile { run: run.clone(), stack, stack_bound, arena: touched(&arenas), outputs: outputs.to_vec(), elf })
}

/// What differs, in any of the memories, from the pattern that was painted there.
fn touched(painted: &[(u8, &[u8])]) -> Touched {
    let mut touched = Touched::default();
    for offset in 0..painted.iter().map(|(_, bytes)| bytes.len()).max().unwrap_or(0) {
        if painted.iter().any(|(pattern, bytes)| bytes.get(offset).is_some_and(|byte| byte != pattern)) {
            touched = Touched { bytes: touched.bytes + 1, end: offset as u64 + 1 };
        }
    }
    touched
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_equals_one_pattern_is_told_by_the_other() {
        let [a, b] = PATTERNS;
        // Written: 0, then the first pattern, then nothing, then the second pattern, then nothing.
        let first = [0, a, a, b, a];
        let second = [0, a, b, b, b];
        assert_eq!(touched(&[(a, &first), (b, &second)]), Touched { bytes: 3, end: 4 });
        assert_eq!(touched(&[(a, &[a; 4]), (b, &[b; 4])]), Touched::default());
        assert_eq!(touched(&[]), Touched::default());
    }
}
