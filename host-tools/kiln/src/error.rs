//! What can go wrong after an operation was recorded.

use kiln_ops::OpError;
use kiln_planner::backend::BackendError;

/// What can go wrong with data, memory and gradients.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The recorded graph is not valid: a defect of Kiln.
    #[error("the recorded graph: {0}; please report this")]
    Graph(#[from] kiln_planner::graph::GraphError),
    /// A gradient that does not exist was asked for.
    #[error("{op} can't be differentiated: {error}")]
    Gradient {
        /// The operator.
        op: &'static str,
        /// Why not.
        error: OpError,
    },
    /// `backward` of more than one number.
    #[error("backward needs a tensor of one element; this one has the shape {0:?}: take its sum or mean first")]
    NotScalar(Vec<u32>),
    /// `backward` of a tensor that depends on no tensor that requires a gradient.
    #[error("nothing that this tensor was computed from requires a gradient; call require_grad on the parameters")]
    NoParameters,
    /// A gradient through what was given away.
    #[error(
        "a step of an optimizer took the gradients by value and the memory of what they were computed from with them: \
         call backward of everything before the step, or give the step &gradients"
    )]
    Spent,
    /// Recorded tensors that make no entry of a graph.
    #[error("entry '{entry}': {what}")]
    Trace {
        /// The entry.
        entry: String,
        /// What is wrong.
        what: String,
    },
    /// A graph that a pass does not take.
    #[error(transparent)]
    Pass(#[from] kiln_passes::PassError),
    /// A graph that can't be planned for a board.
    #[error(transparent)]
    Plan(kiln_planner::PlanError),
    /// A graph that can't be made int8.
    #[error("quantization: {0}")]
    Quantize(#[from] kiln_passes::quantize::QuantizeError),
    /// Numbers that are not as many as an exported network takes, or of another type.
    #[error("the network's inputs: {0}")]
    Numbers(String),
    /// Numbers that an exported network does not take or give.
    #[error("{op}: {error}; please report this")]
    Convert {
        /// What was to be done with them.
        op: &'static str,
        /// Why it can't.
        error: OpError,
    },
    /// An exported network that does not run.
    #[error(transparent)]
    Run(#[from] kiln_target_host::RunError),
    /// A graph with nothing to run.
    #[error("the graph has no entry; add one with Trace::entry")]
    NoEntry,
    /// A network that is too large for a board.
    #[error("{model} does not fit {board}: {}", .short.join("; "))]
    TooLarge {
        /// The graph's name.
        model: String,
        /// The board's.
        board: String,
        /// What there is too little of, a sentence each.
        short: Vec<String>,
    },
    /// Kiln's own sources, which crates are built from.
    #[error(transparent)]
    Sources(#[from] kiln_codegen::sources::NoSources),
    /// Recorded cases that don't go with their model.
    #[error("recorded cases: {0}")]
    Cases(String),
    /// A file that can't be written.
    #[error("{}: {what}", .path.display())]
    Write {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        what: String,
    },
}

impl From<kiln_codegen::whole_file::WriteError> for Error {
    fn from(error: kiln_codegen::whole_file::WriteError) -> Error {
        Error::Write { path: error.path, what: format!("cannot write: {}", error.source) }
    }
}
