//! What computes: the host's CPU, a GPU, a library. Operators are data, so a back end has no method for each.

use std::any::Any;
use std::sync::Arc;

use kiln_core::{DType, TensorType};
use kiln_ops::Op;

use crate::graph::Graph;
use crate::{Again, PlanError};

/// Memory of a back end that holds a tensor.
pub trait Memory: Send + Sync {
    /// Its bytes.
    fn bytes(&self) -> usize;

    /// Itself, for the back end that made it.
    fn as_any(&self) -> &dyn Any;
}

/// A tensor's memory, shared. Whoever holds the only one may hand it over for reuse.
pub type Handle = Arc<dyn Memory>;

/// Why a back end could not do something.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// There is no memory left.
    #[error("{device} has no memory for {bytes} bytes more; drop tensors or use smaller batches")]
    Memory {
        /// The back end.
        device: String,
        /// The bytes asked for.
        bytes: u64,
    },
    /// Memory of one back end was given to another.
    #[error("a tensor of another device was given to {device}; move it there first")]
    Foreign {
        /// The back end.
        device: String,
    },
    /// The graph can't be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An entry needs more working memory than it may have.
    #[error(
        "the plan needs {need} bytes of working memory beyond what it reads and gives, more than the {limit} allowed on \
         {device}, which can't compute values again; allow more, or use smaller batches"
    )]
    Budget {
        /// The back end.
        device: String,
        /// Bytes needed.
        need: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// Something that should not go wrong.
    #[error("{device} failed: {what}")]
    Failed {
        /// The back end.
        device: String,
        /// What failed.
        what: String,
    },
}

/// Memory in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryInfo {
    /// Bytes that tensors hold now.
    pub tensors: u64,
    /// The most bytes that tensors and a run's arena held at one time.
    pub peak: u64,
}

/// What an entry is prepared for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Bytes that it may need beyond inputs, outputs and constants. To keep within them, values may be computed again.
    pub limit: Option<u64>,
    /// Indices of inputs that are likely to be given with their only handle: outputs may be planned to lie over them.
    pub donated: Vec<usize>,
}

/// A back end.
pub trait Backend: Send + Sync {
    /// What it is, for messages and lists: `cpu, 2 threads`.
    fn name(&self) -> String;

    /// Whether it computes this operator itself.
    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> bool;

    /// A tensor of these bytes.
    fn write(&self, bytes: &[u8]) -> Result<Handle, BackendError>;

    /// A tensor's bytes, when everything it depends on is computed.
    fn read(&self, handle: &Handle) -> Result<Vec<u8>, BackendError>;

    /// Makes an entry of a graph ready to run any number of times.
    fn prepare(&self, graph: &Graph, entry: usize) -> Result<Box<dyn Prepared>, BackendError>;

    /// [`Backend::prepare`] for a limit of memory, and inputs that will be given away. As it stands it ignores what
    /// is given away and refuses what is above the limit.
    fn prepare_for(&self, graph: &Graph, entry: usize, request: &Request) -> Result<Box<dyn Prepared>, BackendError> {
        let prepared = self.prepare(graph, entry)?;
        let need = prepared.arena_bytes();
        match request.limit.filter(|&limit| need > limit) {
            Some(limit) => Err(BackendError::Budget { device: self.name(), need, limit }),
            None => Ok(prepared),
        }
    }

    /// Waits until everything asked for is computed.
    fn synchronize(&self) -> Result<(), BackendError>;

    /// Memory in use.
    fn memory(&self) -> MemoryInfo;
}

/// A node that a back end does not compute itself but leaves to the CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routed {
    /// The node's name.
    pub node: String,
    /// Its operator's name.
    pub op: &'static str,
    /// The element type of its first input.
    pub dtype: DType,
}

/// An entry that is ready to run.
pub trait Prepared: Send {
    /// Runs the entry on its inputs and gives its outputs. An input of which this is the only handle may be
    /// written over.
    fn run(&mut self, inputs: Vec<Handle>) -> Result<Vec<Handle>, BackendError>;

    /// [`Prepared::run`] that gives the inputs back where it fails; nothing is written over then.
    ///
    /// As it stands it keeps a handle of each, so that none is written over.
    fn run_or_return(&mut self, inputs: Vec<Handle>) -> Result<Vec<Handle>, Box<Refused>> {
        let kept = inputs.clone();
        self.run(inputs).map_err(|error| Box::new(Refused { error, inputs: kept }))
    }

    /// Bytes it needs beyond inputs and outputs.
    fn arena_bytes(&self) -> u64;

    /// What it computes again to need no more.
    fn again(&self) -> Again {
        Again::default()
    }

    /// The nodes that the CPU computes in the back end's place, with their tensors moved there and back.
    fn routed(&self) -> &[Routed] {
        &[]
    }
}

/// A run that failed, and what it was to run on.
pub struct Refused {
    /// Why.
    pub error: BackendError,
    /// All inputs, as they were.
    pub inputs: Vec<Handle>,
}
