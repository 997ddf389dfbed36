//! From recorded nodes to memory: what is asked for and what is held becomes one graph, planned once for its
//! shape and run.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use kiln_ops::Op;
use kiln_planner::backend::Handle;
use kiln_planner::graph::{Entry, Graph, Node as GraphNode, Quant, ValueId};

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
}

/// Computes `targets`, and every recorded tensor that is held outside and lies on the way.
///
/// What is only looked at may still be differentiated; then what its gradients will need is computed into
/// memory of its own too, so that nothing is computed twice.
pub(crate) fn realize(device: &Device, targets: &[Arc<Node>], purpose: Purpose) -> Result<(), Error> {
    let part = Part::of(targets, |node| node.state().value.is_some());
    if part.steps.is_empty() {
        return Ok(());
    }
    let mut wanted: HashSet<u64> = targets.iter().map(|node| node.number).collect();
    if purpose == Purpose::Look {
        let computed = part.steps.iter().map(|step| step.node.number).collect();
        wanted.extend(residuals(device, targets, &computed));
    }
    let outputs: Vec<usize> = (0..part.steps.len())
        .filter(|&i| wanted.contains(&part.steps[i].node.number) || part.steps[i].node.is_held())
        .collect();

    let key = part.key(&outputs);
    let cached = device.cache().get(&key);
    let plan = match cached {
        Some(plan) => plan,
        None => {
            let graph = part.graph(&outputs)?;
            let prepared = device.backend().prepare(&graph, 0)?;
            device.count_plan(&*prepared);
            device.cache().insert(key, prepared)
        }
    };
    let inputs: Vec<Handle> = part.leaves.iter().filter_map(|node| node.state().value.clone()).collect();
    let given: usize = inputs.iter().map(|handle| handle.bytes()).sum();
    let mut plan = plan.lock().unwrap_or_else(PoisonError::into_inner);
    let values = plan.run(inputs)?;
    let made: usize = values.iter().map(|handle| handle.bytes()).sum();
    device.count_run((given + made) as u64 + plan.arena_bytes());
    drop(plan);
    for (&i, value) in outputs.iter().zip(values) {
        part.steps[i].node.realize(value);
    }
    Ok(())
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
        part
    }

    /// Bytes that are equal exactly where the same plan does.
    fn key(&self, outputs: &[usize]) -> Vec<u8> {
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
        outputs.iter().for_each(|&i| number(&mut key, i));
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
        Ok(kiln_passes::fuse_elementwise(graph))
    }
}
