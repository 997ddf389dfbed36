//! What `kiln plan --json` prints. Stable: fields may be added, none is renamed, removed or given
//! another meaning while [`FORMAT`] stays. `docs/cli.md` says the same for readers of the JSON.

use serde::Serialize;

use crate::CliError;

/// The version of the JSON.
pub const FORMAT: u32 = 1;

/// A model planned for a board.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PlanReport {
    /// [`FORMAT`].
    pub format: u32,
    /// The model's name.
    pub model: String,
    /// The board's name.
    pub board: String,
    /// The CPU family that kernels were chosen for.
    pub target: String,
    /// The entry that `steps` and `tensors` describe.
    pub entry: String,
    /// Whether RAM and flash are enough.
    pub fits: bool,
    /// RAM.
    pub ram: Ram,
    /// Flash.
    pub flash: Flash,
    /// What was taken out of the model before it was planned.
    pub removed: Removed,
    /// Time of a run, estimated.
    pub time: Time,
    /// Whether no order and no placement needs a smaller arena, with these kernels.
    pub optimal: bool,
    /// Where the arena is fullest; `None` without steps.
    pub peak: Option<Peak>,
    /// What is too small; empty when the model fits.
    pub short: Vec<Short>,
    /// Entries in which values are computed again to fit `ram.limit`; not there where none is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Again>,
    /// What runs in patches to fit `ram.limit`; not there where nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patches: Option<Patches>,
    /// The input that is fed by rows; not there where none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fed: Option<Fed>,
    /// The steps in the order they run.
    pub steps: Vec<Step>,
    /// What lies where, and when.
    pub tensors: Vec<Tensor>,
}

/// RAM, in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Ram {
    /// The arena: inputs, outputs, intermediates and scratch.
    pub arena: u64,
    /// No order and no placement needs a smaller arena than this.
    pub lower_bound: u64,
    /// State kept from run to run.
    pub state: u64,
    /// Inputs and outputs together; part of `arena`.
    pub io: u64,
    /// State and arena with the alignment between them: what the region must have.
    pub total: u64,
    /// What there may be: the region's bytes, or `--ram` where that is less; `None` without limit.
    pub limit: Option<u64>,
    /// The board's region; `None` on a board without regions.
    pub region: Option<String>,
    /// The least `total` to which patches or computing values again were found to bring it, where that is more than `limit`; not there
    /// otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least: Option<u64>,
    /// Whether models that take turns can share the arena, and the state lies apart; not there otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared_arena: bool,
    /// The regions that the plan is spread over, by bank; not there where one holds it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub banks: Vec<Bank>,
}

/// A region of RAM over several of which a plan is spread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Bank {
    /// The board's region.
    pub region: String,
    /// Bytes of the arena that lie there.
    pub arena: u64,
    /// Those and the state, where it lies there.
    pub total: u64,
    /// The region's bytes.
    pub limit: u64,
}

/// What an entry computes again, in place of keeping it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Again {
    /// The entry.
    pub entry: String,
    /// Steps that run a second time.
    pub steps: usize,
    /// Their multiply-accumulates.
    pub macs: u64,
    /// Bytes by which the entry's arena is smaller.
    pub saved: u64,
}

/// The first operators of a model, run patch by patch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Patches {
    /// How many operators.
    pub operators: usize,
    /// The name of the last of them.
    pub last: String,
    /// How many patches.
    pub count: u32,
    /// Rows of the last operator's output in each.
    pub rows: u32,
    /// Whether rows that two patches need are kept; else they are computed twice.
    pub kept: bool,
    /// Multiply-accumulates that a run takes more.
    pub macs: u64,
}

/// An input that is fed by rows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fed {
    /// Its number.
    pub input: usize,
    /// The most bytes that a step asks for.
    pub most: u64,
}

impl From<kiln_passes::Patches> for Patches {
    fn from(from: kiln_passes::Patches) -> Patches {
        let kiln_passes::Patches { operators, last, count, rows, overlap, macs, .. } = from;
        Patches { operators, last, count, rows, kept: overlap == kiln_passes::Overlap::Kept, macs }
    }
}

/// Flash, in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Flash {
    /// Weights as packed, biases, multipliers.
    pub constants: u64,
    /// The plan's records: header, steps, operands, parameters, names, and padding.
    pub plan: u64,
    /// Instructions of the executor and the kernels, estimated; `None` where that was not measured.
    pub code: Option<u64>,
    /// Constants, records and code, as far as it is known: what the region must have.
    pub total: u64,
    /// The region's bytes; `None` on a board without regions.
    pub limit: Option<u64>,
    /// The board's region; `None` on a board without regions.
    pub region: Option<String>,
}

/// What was taken out of the model because no output depends on it, whatever the inputs are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Removed {
    /// Multiply-accumulates of a run.
    pub macs: u64,
    /// Bytes of weights and biases, as they are in the model.
    pub constant_bytes: u64,
}

/// Time of a run, estimated.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Time {
    /// Instructions of a run; `None` where a kernel was not measured on the CPU family.
    pub instructions: Option<u64>,
    /// The board's clock cycles for an instruction; `None` where its file does not say.
    pub cycles_per_instruction: Option<f64>,
    /// The clock that seconds are meant at; `None` where they are not known on this board.
    pub clock_hz: Option<u64>,
    /// By which fraction a run may take more or less time than `seconds`; `None` where the board's file does not say.
    pub error: Option<f64>,
    /// Instructions times cycles over the clock; `None` where one of them is not known.
    pub seconds: Option<f64>,
}

/// Where the arena is fullest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Peak {
    /// The step's index.
    pub step: usize,
    /// The tensors in the arena then, largest first, by name.
    pub tensors: Vec<String>,
}

/// A region that is too small.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Short {
    /// `ram` or `flash`.
    pub memory: &'static str,
    /// The board's region; `None` when `--ram` is the limit of a board without regions.
    pub region: Option<String>,
    /// Bytes needed.
    pub needed: u64,
    /// Bytes there are.
    pub limit: u64,
}

/// A step: one call of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Step {
    /// Its position in the order.
    pub index: usize,
    /// The operator.
    pub op: &'static str,
    /// The graph node's name.
    pub name: String,
    /// The kernel.
    pub kernel: &'static str,
    /// Multiply-accumulates.
    pub macs: u64,
    /// Instructions, estimated, without the executor's; `None` where the kernel was not measured on the CPU family.
    pub instructions: Option<u64>,
    /// Names of the tensors it reads, in the kernel's order, packed constants included.
    pub inputs: Vec<String>,
    /// Names of the tensors it writes.
    pub outputs: Vec<String>,
    /// Bytes of scratch.
    pub scratch: u64,
}

/// A tensor in memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tensor {
    /// Its name, unique in the report.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Where it lies.
    pub region: Region,
    /// The bank, where the plan is spread over several: [`Ram::banks`]. 0 is left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub bank: u8,
    /// Bytes from the region's first byte, or the bank's.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The first step at which its bytes must be left alone.
    pub first_step: usize,
    /// The last one.
    pub last_step: usize,
    /// Element type; `None` for scratch and packed constants.
    pub dtype: Option<&'static str>,
    /// Dimensions, outermost first; `None` for scratch and packed constants.
    pub shape: Option<Vec<u32>>,
}

/// A region of memory that offsets count from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Region {
    /// The arena, in RAM behind the state.
    Arena,
    /// The state, at the start of RAM.
    State,
    /// The plan's constants, in flash.
    Constants,
}

/// What a tensor is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Written by the caller before a run.
    Input,
    /// Read by the caller after a run.
    Output,
    /// Between steps.
    Intermediate,
    /// Working memory of one step.
    Scratch,
    /// Kept from run to run.
    State,
    /// Known when the plan is made.
    Constant,
}

impl Kind {
    /// The word that JSON and tables use.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Input => "input",
            Kind::Output => "output",
            Kind::Intermediate => "intermediate",
            Kind::Scratch => "scratch",
            Kind::State => "state",
            Kind::Constant => "constant",
        }
    }
}

/// A model planned for every board.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AllBoards {
    /// [`FORMAT`].
    pub format: u32,
    /// The model's name.
    pub model: String,
    /// One report a board.
    pub boards: Vec<PlanReport>,
}

fn is_zero(bank: &u8) -> bool {
    *bank == 0
}

/// A report as the text that is printed.
///
/// # Errors
///
/// None that is expected: reports have no key that is no text.
pub fn to_text(report: &impl Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(report).map_err(|e| CliError::Stdout(e.into()))?;
    // JSON allows DEL and the C1 controls as they are, but terminals obey them.
    let one = |c: char| if c.is_control() && c != '\n' { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    Ok(text.chars().map(one).collect::<String>() + "\n")
}
