//! A back end that computes every operator with its reference: slow, plain, and independent of kernels and plans.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kiln_core::TensorType;
use kiln_ops::Op;
use kiln_planner::backend::{Backend, BackendError, Handle, Memory, MemoryInfo, Prepared};
use kiln_planner::graph::Graph;
use kiln_planner::reference::Evaluator;

#[derive(Default)]
pub(crate) struct Reference {
    /// How many operators were computed so far.
    pub(crate) computed: Arc<AtomicUsize>,
}

struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn bytes(handle: &Handle) -> Result<&[u8], BackendError> {
    let foreign = BackendError::Foreign { device: "reference".into() };
    handle.as_any().downcast_ref::<Bytes>().map(|b| &b.0[..]).ok_or(foreign)
}

impl Backend for Reference {
    fn name(&self) -> String {
        "reference".into()
    }

    fn supports(&self, _: &Op, _: &[TensorType], _: &TensorType) -> bool {
        true
    }

    fn write(&self, bytes: &[u8]) -> Result<Handle, BackendError> {
        Ok(Arc::new(Bytes(bytes.to_vec())))
    }

    fn read(&self, handle: &Handle) -> Result<Vec<u8>, BackendError> {
        Ok(bytes(handle)?.to_vec())
    }

    fn prepare(&self, graph: &Graph, entry: usize) -> Result<Box<dyn Prepared>, BackendError> {
        Ok(Box::new(Ready { graph: graph.clone(), entry, computed: self.computed.clone() }))
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo::default()
    }
}

struct Ready {
    graph: Graph,
    entry: usize,
    computed: Arc<AtomicUsize>,
}

impl Prepared for Ready {
    fn run(&mut self, inputs: Vec<Handle>) -> Result<Vec<Handle>, BackendError> {
        let inputs = inputs.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
        self.computed.fetch_add(self.graph.entries[self.entry].nodes.len(), Ordering::Relaxed);
        let failed = |what: String| BackendError::Failed { device: "reference".into(), what };
        let values = Evaluator::new(&self.graph).run(self.entry, &inputs).map_err(|e| failed(e.to_string()))?;
        let output = |id| -> Handle { Arc::new(Bytes(Vec::clone(&values[id]))) };
        Ok(self.graph.entries[self.entry].outputs.iter().map(output).collect())
    }

    fn arena_bytes(&self) -> u64 {
        0
    }
}
