//! Why a model file does not become a graph.

use std::fmt;

use kiln_planner::graph::GraphError;

use crate::tflite::TfliteError;

/// An operator that can't be converted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Its number in the file.
    pub index: usize,
    /// Its name in the file's format.
    pub op: String,
    /// The tensor it computes.
    pub tensor: String,
    /// Why.
    pub reason: String,
}

/// Why a model file does not become a graph.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ImportError {
    /// The bytes are not a sound TFLite file.
    #[error(transparent)]
    Tflite(#[from] TfliteError),
    /// Operators or dtypes that Kiln does not have; all of them.
    #[error("{} of the model's operators are not supported:{}", .0.len(), Lines(.0))]
    Unsupported(Vec<Refused>),
    /// An input or output of the model can't be one.
    #[error("{what} '{tensor}': {reason}")]
    Interface {
        /// "input" or "output".
        what: &'static str,
        /// The tensor.
        tensor: String,
        /// Why.
        reason: String,
    },
    /// The file's pieces do not make a valid graph.
    #[error("the model contradicts itself: {0}")]
    Graph(#[from] GraphError),
}

struct Lines<'a>(&'a [Refused]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for r in self.0 {
            write!(f, "\n  operator {} {} computing '{}': {}", r.index, r.op, r.tensor, r.reason)?;
        }
        Ok(())
    }
}
