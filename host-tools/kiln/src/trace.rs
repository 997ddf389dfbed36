//! From recorded tensors to a graph with entries: what is exported for a board.

use std::collections::HashMap;
use std::sync::Arc;

use kiln_planner::graph::{Assign, Entry, Graph, Quant, ValueId};

use crate::Error;
use crate::module::{Module, ModulePath, Visitor};
use crate::node::Node;
use crate::realize::Part;
use crate::tensor::{Kind, Recorded, Tensor};

/// A tensor of a graph with its name there.
pub type Named<'a> = (&'a str, &'a dyn Recorded);

/// A graph as it is put together from recorded tensors.
///
/// What is named as an input stands for what the caller will give; what is named as state is kept from run to
/// run; any other tensor that was computed or made before is a constant.
///
/// ```
/// use kiln::{Device, Tensor, Trace};
///
/// let device = Device::cpu();
/// let weights = Tensor::<2>::from_floats([[1.0, 2.0]], &device);
/// let x = Tensor::<2>::zeros([1, 2], &device);
/// let y = x.matmul_transposed(&weights).relu();
/// let graph = Trace::new("neuron").entry("infer", &[("x", &x)], &[("y", &y)], &[])?.finish()?;
/// assert_eq!(graph.entries[0].name, "infer");
/// # Ok::<(), kiln::Error>(())
/// ```
pub struct Trace {
    graph: Graph,
    /// Constants and states by node.
    shared: HashMap<u64, ValueId>,
    /// States with what they are at first.
    states: Vec<(ValueId, Vec<u8>)>,
}

impl Trace {
    /// A graph without entries.
    pub fn new(name: impl Into<String>) -> Trace {
        Trace { graph: Graph::new(name), shared: HashMap::new(), states: Vec::new() }
    }

    /// Makes a tensor state: kept from run to run, at first what it is now, which it is again after `reset`.
    pub fn state(mut self, name: impl Into<String>, tensor: &dyn Recorded) -> Result<Trace, Error> {
        let node = tensor.recorded();
        let data = node.read()?;
        let id = self.graph.add_state(name, node.ty, Quant::default());
        self.shared.insert(node.number, id);
        self.states.push((id, data));
        Ok(self)
    }

    /// Makes every tensor of a module state, parameters and buffers, each under its path after `name`. A training
    /// step's new values are then assigned as [`Changes`](crate::Changes).
    pub fn state_of<M: Module>(self, name: &str, module: &M) -> Result<Trace, Error> {
        let mut add = Add { trace: Ok(self) };
        module.clone().visit(&ModulePath::ROOT.field(name), &mut add);
        add.trace
    }

    /// Adds an entry that computes `outputs` from `inputs`, and afterwards assigns to states: pairs of a tensor that
    /// was made [state](Trace::state) and its new value.
    ///
    /// # Errors
    ///
    /// [`Error::Trace`] where an output or a new value does not depend on anything recorded any more, or something
    /// that is no state is assigned to.
    pub fn entry(
        mut self,
        name: impl Into<String>,
        inputs: &[Named<'_>],
        outputs: &[Named<'_>],
        assigns: &[(&dyn Recorded, &dyn Recorded)],
    ) -> Result<Trace, Error> {
        let name = name.into();
        let mut known: HashMap<u64, ValueId> = HashMap::new();
        let mut entry = Entry { name: name.clone(), ..Entry::default() };
        for (input, tensor) in inputs {
            let node = tensor.recorded();
            let id = self.graph.add_input(*input, node.ty, Quant::default());
            if known.insert(node.number, id).is_some() || self.shared.contains_key(&node.number) {
                return Err(Error::Trace { entry: name, what: format!("'{input}' is an input twice, or state") });
            }
            entry.inputs.push(id);
        }
        let new = assigns.iter().map(|(_, value)| value.recorded().clone());
        let targets: Vec<Arc<Node>> = outputs.iter().map(|(_, t)| t.recorded().clone()).chain(new).collect();
        // A parameter that has a value is a constant, however it came by it; a new one is what is computed.
        let is_leaf = |node: &Node| {
            let settled = node.parameter && node.state().value.is_some();
            settled || known.contains_key(&node.number) || self.shared.contains_key(&node.number)
        };
        let part = Part::of(&targets, is_leaf);
        self.compute(&part, &mut known, &mut entry)?;
        let find = |trace: &Trace, node: &Node| known.get(&node.number).or(trace.shared.get(&node.number)).copied();
        for (output, tensor) in outputs {
            let Some(id) = find(&self, tensor.recorded()) else { continue };
            // The caller's name, where the value has none of its own.
            if entry.nodes.iter().any(|n| n.output == id) {
                self.graph.values[id.index()].name = (*output).to_owned();
            }
            entry.outputs.push(id);
        }
        for (state, value) in assigns {
            let state = self.shared.get(&state.recorded().number).copied();
            let is_state = state.filter(|id| self.states.iter().any(|(state, _)| state == id));
            let (Some(state), Some(value)) = (is_state, find(&self, value.recorded())) else {
                return Err(Error::Trace {
                    entry: name,
                    what: "a tensor that was not made state is assigned to".into(),
                });
            };
            entry.assigns.push(Assign { state, value });
        }
        let reached = part.leaves.iter().any(|leaf| known.contains_key(&leaf.number)) || inputs.is_empty();
        if !reached {
            let what = "nothing depends on its inputs: record it again, and export it before it is computed".into();
            return Err(Error::Trace { entry: name, what });
        }
        self.graph.entries.push(entry);
        Ok(self)
    }

    /// Adds what a part computes to an entry.
    fn compute(&mut self, part: &Part, known: &mut HashMap<u64, ValueId>, entry: &mut Entry) -> Result<(), Error> {
        let mut leaves = Vec::with_capacity(part.leaves.len());
        for leaf in &part.leaves {
            let id = match known.get(&leaf.number).or(self.shared.get(&leaf.number)) {
                Some(&id) => id,
                None => {
                    let name = format!("constant {}", self.graph.values.len());
                    let id = self.graph.add_constant(name, leaf.ty, Quant::default(), leaf.read()?);
                    self.shared.insert(leaf.number, id);
                    id
                }
            };
            leaves.push(id);
        }
        let steps = part.add_to(&mut self.graph, entry, &leaves);
        known.extend(part.steps.iter().map(|step| step.node.number).zip(steps));
        Ok(())
    }

    /// The graph: valid, and with an entry `reset` where there is state that is not zero at first.
    pub fn finish(mut self) -> Result<Graph, Error> {
        let mut reset = Entry { name: "reset".into(), ..Entry::default() };
        for (state, data) in std::mem::take(&mut self.states) {
            if data.iter().any(|byte| *byte != 0) {
                let value = self.graph.value(state).clone();
                let name = format!("{} at first", value.name);
                let value = self.graph.add_constant(name, value.ty, Quant::default(), data);
                reset.assigns.push(Assign { state, value });
            }
        }
        if !reset.assigns.is_empty() {
            self.graph.entries.push(reset);
        }
        self.graph.validate()?;
        Ok(self.graph)
    }
}

/// Adds state.
struct Add {
    trace: Result<Trace, Error>,
}

impl Add {
    fn tensor<const D: usize, K: Kind>(&mut self, path: &ModulePath<'_>, tensor: &Tensor<D, K>) {
        let none = Trace::new("");
        let trace = std::mem::replace(&mut self.trace, Ok(none));
        self.trace = trace.and_then(|trace| trace.state(path.to_string(), tensor));
    }
}

impl Visitor for Add {
    fn parameter<const D: usize>(&mut self, path: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        self.tensor(path, tensor);
    }

    fn buffer<const D: usize, K: Kind>(&mut self, path: &ModulePath<'_>, tensor: &mut Tensor<D, K>) {
        self.tensor(path, tensor);
    }
}
