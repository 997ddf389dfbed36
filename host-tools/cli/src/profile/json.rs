//! What `kiln profile --json` prints and `--compare` reads. Stable: fields may be added, none is renamed, removed
//! or given another meaning while [`FORMAT`] stays. `docs/cli.md` says the same for readers of the JSON.

use std::path::Path;

use kiln_build::model_file::read_file;
use serde::{Deserialize, Serialize};

use crate::CliError;

/// The version of the JSON.
pub const FORMAT: u32 = 1;

/// The largest report that is read.
const MAX_BYTES: u64 = 64 << 20;

/// A model measured on a board.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProfileReport {
    /// [`FORMAT`].
    pub format: u32,
    /// The model's name.
    pub model: String,
    /// The board's name.
    pub board: String,
    /// The CPU family that kernels were chosen for.
    pub target: String,
    /// The entry that was run.
    pub entry: String,
    /// The whole run.
    pub total: Cost,
    /// What of it belongs to no step.
    pub executor: Cost,
    /// The steps in the order they run.
    pub steps: Vec<Step>,
    /// Bytes of stack.
    pub stack: Stack,
    /// Bytes of RAM.
    pub ram: Ram,
    /// Bytes of flash.
    pub flash: Flash,
}

/// What something costs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// Instructions.
    pub instructions: u64,
    /// Words read.
    pub loads: u64,
    /// Words written.
    pub stores: u64,
    /// Multiply-accumulates of the graph.
    pub macs: u64,
    /// Instructions a multiply-accumulate, to two decimals; `None` where there are no multiply-accumulates.
    pub instructions_per_mac: Option<f64>,
}

/// A step: one call of a kernel.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Its position in the order.
    pub index: usize,
    /// The operator.
    pub op: String,
    /// The graph node's name.
    pub name: String,
    /// The kernel.
    pub kernel: String,
    /// What it costs.
    #[serde(flatten)]
    pub cost: Cost,
}

/// Bytes of stack a run uses beyond its caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stack {
    /// The deepest path through the linked program; `None` where it was not computed.
    pub computed: Option<u64>,
    /// What painted memory showed; `None` where the system gives the stack.
    pub painted: Option<u64>,
}

/// Bytes of RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ram {
    /// The plan's arena: inputs, outputs, intermediates and scratch.
    pub arena: u64,
    /// Bytes of it that were written, by the caller or in the run.
    pub arena_touched: u64,
    /// Offset behind the last of them.
    pub arena_end: u64,
    /// State kept from run to run.
    pub state: u64,
    /// All variables of the firmware, arena and state among them; without the stack.
    pub total: u64,
}

/// Bytes of flash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Flash {
    /// All sections together.
    pub total: u64,
    /// Instructions that an application pays for: those of `total` that are not the platform's.
    pub code: u64,
    /// The sections, in address order.
    pub sections: Vec<Section>,
}

/// A section of the firmware that lies in flash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its bytes: those of `parts` together.
    pub bytes: u64,
    /// Whose they are, the largest first.
    pub parts: Vec<Part>,
}

/// What belongs together in a section.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// What it is.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
}

impl ProfileReport {
    /// Reads a report that was written earlier.
    ///
    /// # Errors
    ///
    /// The file can't be read, or is no report of this format.
    pub fn read(path: &Path) -> Result<ProfileReport, CliError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let bytes = read_file(path, MAX_BYTES)?;
        let wrong = |e: serde_json::Error| {
            CliError::input(path, format!("not a report of `kiln profile --json` ({e}); write one with that"))
        };
        let Head { format } = serde_json::from_slice(&bytes).map_err(wrong)?;
        if format != FORMAT {
            let problem = format!(
                "it has format {format}, and this kiln compares with format {FORMAT}; write it again with this kiln"
            );
            return Err(CliError::input(path, problem));
        }
        serde_json::from_slice(&bytes).map_err(wrong)
    }

    /// Whether this measured the same thing. The error says what else it measured.
    pub fn same_kind(&self, model: &str, board: &str) -> Result<(), String> {
        for (what, old, new) in [("model", self.model.as_str(), model), ("board", self.board.as_str(), board)] {
            if old != new {
                return Err(format!(
                    "it measured {what} '{old}', not '{new}': compare with a report on the same model and board"
                ));
            }
        }
        Ok(())
    }
}
