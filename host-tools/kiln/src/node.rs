//! What a tensor is: an operator over others, or memory, or both.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kiln_core::TensorType;
use kiln_ops::Op;
use kiln_planner::backend::Handle;

use crate::realize::{Purpose, realize};
use crate::{Device, Error};

/// How a node is computed.
#[derive(Clone)]
pub(crate) enum Definition {
    /// An operator over other nodes.
    Op(Op, Vec<Arc<Node>>),
    /// A number that is part of the graph.
    Scalar(f64),
}

/// What is known of a node.
#[derive(Default)]
pub(crate) struct State {
    /// How it is computed; forgotten once it has a value and no gradient can be asked for through it.
    pub definition: Option<Definition>,
    /// Its memory, once it is computed.
    pub value: Option<Handle>,
    /// A gradient could be asked for through it, until the memory it was computed from was given away.
    pub spent: bool,
}

/// A recorded tensor.
pub(crate) struct Node {
    pub number: u64,
    pub ty: TensorType,
    pub device: Device,
    /// A gradient may be asked for through it.
    pub tracked: bool,
    /// A gradient may be asked for by it, and none goes further back.
    pub parameter: bool,
    /// How many tensors outside are this one.
    handles: AtomicUsize,
    state: Mutex<State>,
}

impl Node {
    fn new(device: &Device, ty: TensorType, tracked: bool, parameter: bool, state: State) -> Arc<Node> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Arc::new(Node {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            ty,
            device: device.clone(),
            tracked,
            parameter,
            handles: AtomicUsize::new(0),
            state: Mutex::new(state),
        })
    }

    /// A node with memory.
    pub(crate) fn leaf(device: &Device, ty: TensorType, value: Handle) -> Arc<Node> {
        Node::new(device, ty, false, false, State { value: Some(value), ..State::default() })
    }

    /// A number that is part of the graph.
    pub(crate) fn scalar(device: &Device, ty: TensorType, value: f64) -> Arc<Node> {
        let definition = Some(Definition::Scalar(value));
        Node::new(device, ty, false, false, State { definition, ..State::default() })
    }

    /// An operator over other nodes, of which there is at least one.
    pub(crate) fn op(device: &Device, ty: TensorType, op: Op, inputs: Vec<Arc<Node>>) -> Arc<Node> {
        let tracked = inputs.iter().any(|node| node.tracked);
        let definition = Some(Definition::Op(op, inputs));
        Node::new(device, ty, tracked, false, State { definition, ..State::default() })
    }

    /// The same value, through which no gradient goes; by which one may be asked for if it is a parameter.
    pub(crate) fn cut(self: &Arc<Node>, parameter: bool) -> Arc<Node> {
        let value = self.state().value.clone();
        let definition = match value {
            Some(_) => None,
            None => {
                let same = kiln_ops::Reshape { shape: self.ty.shape };
                Some(Definition::Op(same.into(), vec![self.clone()]))
            }
        };
        Node::new(&self.device, self.ty, parameter, parameter, State { definition, value, spent: false })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its bytes, computed if need be.
    pub(crate) fn read(self: &Arc<Node>) -> Result<Vec<u8>, Error> {
        realize(&self.device, std::slice::from_ref(self), Purpose::Look)?;
        let value = self.state().value.clone();
        // `realize` gave it one.
        value.map_or(Ok(Vec::new()), |value| Ok(self.device.backend().read(&value)?))
    }

    /// Takes on its memory. The definition goes unless a gradient may need it.
    pub(crate) fn realize(&self, value: Handle) {
        let mut state = self.state();
        state.value = Some(value);
        let forgotten = if self.tracked && !self.parameter { None } else { state.definition.take() };
        drop(state);
        if let Some(Definition::Op(_, inputs)) = forgotten {
            drop_all(inputs);
        }
    }

    /// Forgets how it was computed: no gradient goes through it any more.
    pub(crate) fn spend(&self) {
        let mut state = self.state();
        state.spent = true;
        let forgotten = state.definition.take();
        drop(state);
        if let Some(Definition::Op(_, inputs)) = forgotten {
            drop_all(inputs);
        }
    }

    /// Whether a tensor outside is this node.
    pub(crate) fn is_held(&self) -> bool {
        self.handles.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(Definition::Op(_, inputs)) = state.definition.take() {
            drop_all(inputs);
        }
    }
}

/// Drops nodes and what only they keep alive, one after another: a chain may be longer than a stack is deep.
fn drop_all(mut nodes: Vec<Arc<Node>>) {
    while let Some(node) = nodes.pop() {
        if let Some(mut last) = Arc::into_inner(node) {
            let state = last.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            if let Some(Definition::Op(_, inputs)) = state.definition.take() {
                nodes.extend(inputs);
            }
        }
    }
}

/// A tensor's hold on its node.
pub(crate) struct Held(Arc<Node>);

impl Held {
    pub(crate) fn new(node: Arc<Node>) -> Held {
        node.handles.fetch_add(1, Ordering::Relaxed);
        Held(node)
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.0
    }
}

impl Clone for Held {
    fn clone(&self) -> Held {
        Held::new(self.0.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.handles.fetch_sub(1, Ordering::Relaxed);
    }
}
