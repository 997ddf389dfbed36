//! What is asked and what is answered: steps, buffers, the budget, the solution, the errors.

use std::fmt;

/// Index of a step in [`Problem::steps`].
pub type StepId = usize;
/// Index of a buffer in [`Problem::buffers`].
pub type BufferId = usize;

/// Most buffers and scratch areas together, and most steps, that one problem may have.
///
/// Conflicts are kept as pairs, so memory grows with the square of this.
pub const MAX_ITEMS: usize = 4096;

/// Steps to be ordered and buffers to be placed in one arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// The steps, in any order; an edge runs from the producer of a buffer to each of its readers.
    pub steps: Vec<Step>,
    /// The buffers the steps read and write.
    pub buffers: Vec<Buffer>,
}

/// A range of bytes that one step writes (or the caller, before the first step) and others read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Bytes; a buffer of 0 bytes conflicts with nothing and is put at offset 0.
    pub size: u64,
    /// The offset is a multiple of this power of two.
    pub align: u64,
    /// Bytes after the end that a kernel may read: inside the arena, but free to hold anything.
    pub tail: u64,
    /// Who writes it.
    pub source: Source,
    /// Stays live to the end: outputs of the network, and inputs that must survive the run.
    pub keep: bool,
}

/// Who writes a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Written by the caller, so all of these are live together when the first step starts.
    Input,
    /// Written by this step, which lists it among its outputs.
    Step(StepId),
}

/// One kernel call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Buffers read; one may appear several times.
    pub inputs: Vec<BufferId>,
    /// Buffers written, each live together with every input and every other output.
    pub outputs: Vec<BufferId>,
    /// Working memory, live during this step only.
    pub scratch: Option<Scratch>,
    /// Pairs that may share bytes if this step is the last reader of the input.
    pub overlaps: Vec<Overlap>,
    /// Steps that must run earlier although no buffer says so.
    pub after: Vec<StepId>,
}

/// Working memory of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// Bytes.
    pub size: u64,
    /// The offset is a multiple of this power of two.
    pub align: u64,
}

/// Permission to place an output over an input that dies in the same step.
///
/// With neither `up` nor `down` it permits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The input, one of the step's inputs; no permission while it is kept or read later.
    pub input: BufferId,
    /// The output, one of the step's outputs.
    pub output: BufferId,
    /// The kernel walks upward: `offset(output) + up <= offset(input)` is enough.
    pub up: Option<u64>,
    /// The kernel walks downward: `end(output) >= end(input) + down` is enough, as long as
    /// `offset(output) >= offset(input)` (offsets stay comparable, which the search needs).
    pub down: Option<u64>,
}

/// How much the search may do, counted in search nodes and never in seconds, so that the
/// answer is the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Search nodes over all phases; 0 gives the greedy answer.
    pub nodes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { nodes: 200_000 }
    }
}

/// First and last position in the order at which a buffer is live, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Position of the producer; 0 for what the caller writes.
    pub first: usize,
    /// Position of the last reader; the last position for what is kept.
    pub last: usize,
}

/// An order, a place for everything, and what is known about how good it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// All steps, in the order they run.
    pub order: Vec<StepId>,
    /// Offset of each buffer.
    pub offsets: Vec<u64>,
    /// Offset of each step's scratch, where it has some.
    pub scratch_offsets: Vec<Option<u64>>,
    /// When each buffer is live.
    pub live: Vec<Live>,
    /// Bytes of the arena.
    pub arena: u64,
    /// No order and no placement needs fewer bytes than this.
    pub lower_bound: u64,
    /// `arena == lower_bound`: proven best over all orders and placements.
    pub optimal: bool,
    /// Search nodes used.
    pub nodes: u64,
}

/// Why a problem cannot be solved: it contradicts itself, or its numbers are too large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SolveError {
    /// More steps, or more buffers and scratch areas, than [`MAX_ITEMS`].
    TooMany {
        /// Steps in the problem.
        steps: usize,
        /// Buffers and scratch areas in the problem.
        items: usize,
    },
    /// A step names a buffer that does not exist.
    NoSuchBuffer {
        /// The step.
        step: StepId,
        /// The buffer it names.
        buffer: BufferId,
        /// How many there are.
        buffers: usize,
    },
    /// `after` or [`Source::Step`] names a step that does not exist.
    NoSuchStep {
        /// The step named.
        step: StepId,
        /// How many there are.
        steps: usize,
    },
    /// An alignment that is not a power of two.
    Alignment {
        /// The buffer, or `None` for the scratch of `step`.
        buffer: Option<BufferId>,
        /// The step of the scratch.
        step: Option<StepId>,
        /// The alignment.
        align: u64,
    },
    /// A buffer's source and the steps' outputs disagree, or a step lists an output twice.
    Producer {
        /// The buffer.
        buffer: BufferId,
        /// The step its source names, if any.
        source: Option<StepId>,
        /// How many times steps list it as an output.
        listed: usize,
    },
    /// An overlap names a buffer that is not an input, or not an output, of its step.
    OverlapOutside {
        /// The step.
        step: StepId,
        /// The overlap's input.
        input: BufferId,
        /// The overlap's output.
        output: BufferId,
    },
    /// The steps wait for each other; one of them is named.
    Cycle {
        /// A step on, or behind, the cycle.
        step: StepId,
        /// How many steps can never run.
        blocked: usize,
    },
    /// An order that was given does not have each step once, after all that it waits for.
    Order {
        /// The first step that can't run where it stands, or that is not there.
        step: StepId,
    },
    /// Sizes, tails and alignments add up to more than 2^62 bytes.
    Overflow {
        /// The buffer or, past the last one, the scratch at which the sum leaves the range.
        item: usize,
    },
}

impl fmt::Display for SolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooMany { steps, items } => write!(
                f,
                "{steps} steps with {items} buffers and scratch areas; at most {MAX_ITEMS} of each \
                 can be planned at once"
            ),
            Self::NoSuchBuffer { step, buffer, buffers } => {
                write!(f, "step {step} names buffer {buffer}, but there are {buffers}")
            }
            Self::NoSuchStep { step, steps } => {
                write!(f, "step {step} is named, but there are {steps}")
            }
            Self::Alignment { buffer, step, align } => {
                match (buffer, step) {
                    (Some(buffer), _) => write!(f, "buffer {buffer}")?,
                    (None, Some(step)) => write!(f, "the scratch of step {step}")?,
                    (None, None) => write!(f, "a buffer")?,
                }
                write!(f, " has alignment {align}, which is not a power of two")
            }
            Self::Producer { buffer, source, listed } => {
                match source {
                    Some(step) => write!(f, "buffer {buffer} is said to come from step {step}")?,
                    None => write!(f, "buffer {buffer} is said to be an input")?,
                }
                write!(f, ", but steps list it as an output {listed} times")
            }
            Self::OverlapOutside { step, input, output } => {
                write!(f, "step {step} lets output {output} overlap input {input}, but does not have both")
            }
            Self::Cycle { step, blocked } => {
                write!(f, "{blocked} steps wait for each other, step {step} among them")
            }
            Self::Order { step } => write!(f, "the order given lacks step {step}, or runs it too early"),
            Self::Overflow { item } => {
                write!(f, "sizes add up to more than 2^62 bytes at item {item}")
            }
        }
    }
}

impl std::error::Error for SolveError {}
