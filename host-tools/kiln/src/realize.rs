//! From recorded nodes to memory: what is asked for and what is held becomes one graph, planned once for its
//! shape and run.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use kiln_ops::Op;
use kiln_planner::backend::{Handle, Request};
use kiln_planner::graph::{Entry, Graph, Node as GraphNode, Quant, ValueId};

use crate::donate::fate;
use crate::gradients::residuals;
use crate::node::{Definition, Node};
use crate::{Device, Error};

/// Why nodes are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Someone looks at them, and may ask for gradients later.
    Look,
    /// A step of training ends with them.
    Finish,
    /// A step of training ends with them, and gradients of what they were recorded from will not be asked for again.
    Spend,
}

/// Computes `targets`, and every recorded tensor that is held outside and lies on the way.
///
/// What is only looked at may still be differentiated; then what its gradients will need is computed into
/// memory of its own too, so that nothing is computed twice.
pub(crate) fn realize(device: &Device, targets: &[Arc<Node>], purpose: Purpose) -> Result<(), Error> {
    loop {
        let before = device.givings();
        if attempt(device, targets, purpose)? {
            return Ok(());
        }
        // Another thread's run took memory that this one read the definitions of: what it computes has a value when it
        // is done. Without such a run the memory is gone for good.
        if device.givings() == before && before.0 == before.1 {
            return Err(Error::Spent);
        }
        std::thread::yield_now();
    }
}

/// [`realize`], or false where a leaf has no memory.
fn attempt(device: &Device, targets: &[Arc<Node>], purpose: Purpose) -> Result<bool, Error> {
    let part = Part::of(targets, |node| node.state().value.is_some());
    if part.steps.is_empty() {
        return Ok(true);
    }
    let mut wanted: HashSet<u64> = targets.iter().map(|node| node.number).collect();
    if purpose == Purpose::Look {
        let computed = part.steps.iter().map(|step| step.node.number).collect();
        wanted.extend(residuals(device, targets, &computed));
    }
    let outputs: Vec<usize> = (0..part.steps.len())
        .filter(|&i| wanted.contains(&part.steps[i].node.number) || part.steps[i].node.is_held())
        .collect();

    let fate = fate(&part, targets, &outputs, purpose == Purpose::Spend);
    let request = Request { limit: device.memory_budget(), donated: fate.dying };
    let key = part.key(&outputs, &request);
    let cached = device.cache().get(&key);
    let plan = match cached {
        Some(plan) => plan,
        None => {
            let graph = part.graph(&outputs)?;
            let prepared = device.backend().prepare_for(&graph, 0, &request)?;
            device.count_plan(&*prepared);
            device.count_again(prepared.again());
            device.cache().insert(key, prepared)
        }
    };
    let _giving = (!request.donated.is_empty()).then(|| device.give());
    let Some(inputs) = part.inputs(&request.donated) else { return Ok(false) };
    let places: HashSet<*const ()> = inputs.iter().map(place).collect();
    let given: usize = inputs.iter().map(|handle| handle.bytes()).sum();
    let mut plan = plan.lock().unwrap_or_else(PoisonError::into_inner);
    let values = match plan.run_or_return(inputs) {
        Ok(values) => values,
        Err(refused) => {
            part.give_back(refused.inputs);
            return Err(refused.error.into());
        }
    };
    let made: usize = values.iter().filter(|value| !places.contains(&place(value))).map(|value| value.bytes()).sum();
    device.count_run((given + made) as u64 + plan.arena_bytes());
    drop(plan);
    for (&i, value) in outputs.iter().zip(values) {
        part.steps[i].node.realize(value);
    }
    for node in fate.spent {
        node.spend();
    }
    Ok(true)
}

/// Where a tensor's memory is, to tell one from another.
fn place(handle: &Handle) -> *const () {
    Arc::as_ptr(handle).cast()
}

/// The part of what was recorded that is still to be computed.
pub(crate) struct Part {
    /// Nodes that it reads.
    pub(crate) leaves: Vec<Arc<Node>>,
    /// What is to be computed, in an order in which it can be.
    pub(crate) steps: Vec<Step>,
}

pub(crate) struct Step {
    pub(crate) node: Arc<Node>,
    pub(crate) how: How,
}

pub(crate) enum How {
    Scalar(f64),
    Op(Op, Vec<Operand>),
}

/// What a step reads.
#[derive(Clone, Copy)]
pub(crate) enum Operand {
    Leaf(usize),
    Step(usize),
}

impl Part {
    /// Everything that `targets` still need, back to where `is_leaf` says so, or a node has no definition.
    pub(crate) fn of(targets: &[Arc<Node>], is_leaf: impl Fn(&Node) -> bool) -> Part {
        let mut part = Part { leaves: Vec::new(), steps: Vec::new() };
        let mut known: HashMap<u64, Operand> = HashMap::new();
        // Nodes to visit; the second time all that they read is known. The recursion by hand: chains are long.
        let mut open: Vec<(Arc<Node>, bool)> = targets.iter().rev().map(|node| (node.clone(), false)).collect();
        while let Some((node, inputs_known)) = open.pop() {
            if known.contains_key(&node.number) {
                continue;
            }
            let definition = if is_leaf(&node) { None } else { node.state().definition.clone() };
            let how = match definition {
                // A node without a definition has memory.
                None => {
                    known.insert(node.number, Operand::Leaf(part.leaves.len()));
                    part.leaves.push(node);
                    continue;
                }
                Some(Definition::Scalar(value)) => How::Scalar(value),
                Some(Definition::Op(_, inputs)) if !inputs_known => {
                    open.push((node, true));
                    open.extend(
                        inputs.into_iter().rev().filter(|i| !known.contains_key(&i.number)).map(|i| (i, false)),
                    );
                    continue;
                }
                Some(Definition::Op(op, inputs)) => {
                    How::Op(op, inputs.iter().filter_map(|i| known.get(&i.number).copied()).collect())
                }
            };
            known.insert(node.number, Operand::Step(part.steps.len()));
            part.steps.push(Step { node, how });
        }
        part.sort();
        part
    }

    /// Puts the steps in the order they were recorded in: forward, backward, update, where planning begins its search.
    fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.steps.len()).collect();
        order.sort_by_key(|&i| self.steps[i].node.number);
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
        self.steps.sort_by_key(|step| step.node.number);
        for step in &mut self.steps {
            let How::Op(_, inputs) = &mut step.how else { continue };
            for input in inputs {
                if let Operand::Step(i) = input {
                    *i = place[*i];
                }
            }
        }
    }

    /// The leaves' memory: what is `donated` with the leaf's handle. None where one has none.
    fn inputs(&self, donated: &[usize]) -> Option<Vec<Handle>> {
        let mut inputs = Vec::with_capacity(self.leaves.len());
        for (index, leaf) in self.leaves.iter().enumerate() {
            let mut state = leaf.state();
            match if donated.contains(&index) { state.value.take() } else { state.value.clone() } {
                Some(value) => inputs.push(value),
                None => {
                    drop(state);
                    self.give_back(inputs);
                    return None;
                }
            }
        }
        Some(inputs)
    }

    /// Gives leaves their memory again.
    fn give_back(&self, inputs: Vec<Handle>) {
        for (leaf, value) in self.leaves.iter().zip(inputs) {
            leaf.state().value = Some(value);
        }
    }

    /// Bytes that are equal exactly where the same plan does.
    fn key(&self, outputs: &[usize], request: &Request) -> Vec<u8> {
        let mut key = Vec::with_capacity(32 * self.steps.len());
        let number = |key: &mut Vec<u8>, value: usize| key.extend((value as u32).to_le_bytes());
        number(&mut key, self.leaves.len());
        for leaf in &self.leaves {
            key.push(leaf.ty.dtype as u8);
            key.push(leaf.ty.shape.rank() as u8);
            leaf.ty.shape.dims().iter().for_each(|&d| number(&mut key, d as usize));
        }
        number(&mut key, self.steps.len());
        for step in &self.steps {
            match &step.how {
                How::Scalar(value) => {
                    key.extend([0, step.node.ty.dtype as u8]);
                    key.extend(value.to_bits().to_le_bytes());
                }
                How::Op(op, inputs) => {
                    key.extend([1, inputs.len() as u8]);
                    key = postcard::to_extend(op, key).unwrap_or_default();
                    for input in inputs {
                        match *input {
                            Operand::Leaf(i) => number(&mut key, i),
                            Operand::Step(i) => number(&mut key, self.leaves.len() + i),
                        }
                    }
                }
            }
        }
        number(&mut key, outputs.len());
        outputs.iter().chain(&request.donated).for_each(|&i| number(&mut key, i));
        key.extend(request.limit.unwrap_or(u64::MAX).to_le_bytes());
        key
    }

    /// Adds all steps to an entry of a graph, given the values of the leaves there, and gives the steps' own.
    pub(crate) fn add_to(&self, graph: &mut Graph, entry: &mut Entry, leaves: &[ValueId]) -> Vec<ValueId> {
        let mut values: Vec<ValueId> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let ty = step.node.ty;
            let value = match &step.how {
                How::Scalar(number) => {
                    let bytes = kiln_passes::element(ty.dtype, *number).unwrap_or_default();
                    graph.add_constant(format!("{number}"), ty, Quant::default(), bytes)
                }
                How::Op(op, inputs) => {
                    let name = format!("{} {}", op.name(), graph.values.len());
                    let output = graph.add_result(name.clone(), ty, Quant::default());
                    let inputs = inputs.iter().map(|input| match *input {
                        Operand::Leaf(i) => leaves[i],
                        Operand::Step(i) => values[i],
                    });
                    entry.nodes.push(GraphNode { name, op: *op, inputs: inputs.collect(), output });
                    output
                }
            };
            values.push(value);
        }
        values
    }

    /// The graph that computes `outputs`, ready to be planned.
    fn graph(&self, outputs: &[usize]) -> Result<Graph, Error> {
        let mut graph = Graph::new("recorded");
        let leaves: Vec<ValueId> = (self.leaves.iter().enumerate())
            .map(|(i, leaf)| graph.add_input(format!("input {i}"), leaf.ty, Quant::default()))
            .collect();
        let mut entry = Entry { name: "run".into(), inputs: leaves.clone(), ..Entry::default() };
        let values = self.add_to(&mut graph, &mut entry, &leaves);
        entry.outputs = outputs.iter().map(|&i| values[i]).collect();
        graph.entries.push(entry);
        graph.validate()?;
        Ok(kiln_passes::fuse_elementwise(kiln_passes::fuse_activations(graph)))
    }
}
