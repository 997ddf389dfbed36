//! Why a graph can't be planned.

use std::fmt;

use crate::graph::GraphError;
use crate::solve::SolveError;

/// A node no kernel computes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsupported {
    /// The node.
    pub node: String,
    /// Its operator.
    pub op: &'static str,
    /// What kernels were asked for: dtypes and shapes.
    pub operands: String,
}

/// A tensor alive where the arena is fullest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blame {
    /// The tensor.
    pub tensor: String,
    /// Its bytes.
    pub bytes: u64,
}

/// How much memory is missing, and what takes it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "entry '{entry}' may take {limit} bytes of memory and needs {least} even where values are computed again, {unaided} \
     without; state takes {state} of them, and the arena is fullest at step {step}, {name}:{}; allow it {least} bytes or \
     more, or use smaller batches",
    Tensors(.tensors)
)]
pub struct Shortage {
    /// The entry.
    pub entry: String,
    /// Bytes of state and arena that it may take.
    pub limit: u64,
    /// The least limit that was found to be reached.
    pub least: u64,
    /// Bytes of state and arena that it takes where nothing is computed again.
    pub unaided: u64,
    /// Bytes of state.
    pub state: u64,
    /// The step where the smallest arena found is fullest, counted in the order they run.
    pub step: usize,
    /// That step's operator and name.
    pub name: String,
    /// What is alive there, largest first.
    pub tensors: Vec<Blame>,
}

/// How many tensors are named.
const NAMED: usize = 6;

struct Tensors<'a>(&'a [Blame]);

impl fmt::Display for Tensors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, blame) in self.0.iter().take(NAMED).enumerate() {
            write!(f, "{} {} ({} bytes)", if index == 0 { "" } else { "," }, blame.tensor, blame.bytes)?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

/// Why a graph can't be planned.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The graph breaks its own rules.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Some nodes have no kernel for the target; all of them.
    #[error("no kernel computes {} of the model's operations:{}", .0.len(), Lines(.0))]
    Unsupported(Vec<Unsupported>),
    /// An entry needs more memory than it may have, however much is computed again.
    #[error(transparent)]
    Ram(Box<Shortage>),
    /// The memory problem can't be posed.
    #[error("planning memory: {0}")]
    Solve(#[from] SolveError),
    /// A number does not fit the plan format.
    #[error("{what} is {value}, more than a plan can hold ({limit})")]
    TooLarge {
        /// What.
        what: &'static str,
        /// How much there is.
        value: u64,
        /// How much there may be.
        limit: u64,
    },
}

struct Lines<'a>(&'a [Unsupported]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for u in self.0 {
            write!(f, "\n  {} '{}': {}", u.op, u.node, u.operands)?;
        }
        Ok(())
    }
}
