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

/// Why a graph can't be planned.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The graph breaks its own rules.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Some nodes have no kernel for the target; all of them.
    #[error("no kernel computes {} of the model's operations:{}", .0.len(), Lines(.0))]
    Unsupported(Vec<Unsupported>),
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
