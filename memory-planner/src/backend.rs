//! What computes: the host's CPU, a GPU, a library. Operators are data, so a back end has no method for each.

use std::any::Any;
use std::sync::Arc;

use kiln_core::{DType, TensorType};
use kiln_ops::Op;

use crate::PlanError;
use crate::graph::Graph;

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

    /// Bytes it needs beyond inputs and outputs.
    fn arena_bytes(&self) -> u64;

    /// The nodes that the CPU computes in the back end's place, with their tensors moved there and back.
    fn routed(&self) -> &[Routed] {
        &[]
    }
}
