//! Gradients of what was recorded.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kiln_ops::{Effect, Function, Op, OpError, Reshape};
use kiln_passes::{Ran, backward};

use crate::node::{Definition, Node};
use crate::recorder::Recorder;
use crate::tensor::{Float, Tensor, record, shape_of};
use crate::{Device, Error};

/// The gradients of a number by the parameters it was computed from.
pub struct Gradients {
    /// Not held as a tensor holds its node: what nobody looks at need not be kept in memory.
    /// In the order of the parameters' numbers, so that what goes over all of them is the same plan each time.
    by_parameter: BTreeMap<u64, Arc<Node>>,
    of: Arc<Node>,
}

impl Gradients {
    /// The gradients of `loss`.
    pub(crate) fn of(loss: &Arc<Node>) -> Result<Gradients, Error> {
        if loss.ty.shape.elements() != Some(1) {
            return Err(Error::NotScalar(loss.ty.shape.dims().to_vec()));
        }
        let (recorder, parameters, gradients) = differentiate(&loss.device, std::slice::from_ref(loss))?;
        if parameters.is_empty() {
            return Err(Error::NoParameters);
        }
        let pairs = parameters.iter().zip(gradients);
        let found = |(parameter, gradient): (&Arc<Node>, Option<usize>)| {
            Some((parameter.number, recorder.node(gradient?).clone()))
        };
        Ok(Gradients { by_parameter: pairs.filter_map(found).collect(), of: loss.clone() })
    }

    /// The gradient by `parameter`; none where the number does not depend on it, or it requires none.
    pub fn get<const D: usize>(&self, parameter: &Tensor<D, Float>) -> Option<Tensor<D, Float>> {
        self.by_parameter.get(&parameter.node().number).map(|node| Tensor::from_node(node.clone()))
    }

    /// The number that these are the gradients of, as long as a tensor outside holds it: to be computed with what
    /// the gradients are used for, rather than once more afterwards.
    pub(crate) fn of_held(&self) -> Option<&Arc<Node>> {
        Some(&self.of).filter(|node| node.is_held())
    }

    /// Where they live.
    pub(crate) fn device(&self) -> &Device {
        &self.of.device
    }

    /// Every element kept within `-bound..=bound`.
    pub fn clip_value(self, bound: f32) -> Gradients {
        self.map(|gradient| gradient.clamp(-bound, bound))
    }

    /// All of them scaled so that the square root of the sum of all squares is at most `largest`, as by PyTorch's
    /// `clip_grad_norm_`: times `min(1, largest / (norm + 1e-6))`.
    pub fn clip_norm(self, largest: f32) -> Gradients {
        let Some(norm) = self.norm() else { return self };
        let largest = Tensor::from_slice(&[largest], [], self.device());
        let factor = (largest / norm.with_constant(Function::Add, 1e-6)).with_constant(Function::Min, 1.0);
        self.map(|gradient| gradient.with_inner(Function::Mul, &factor))
    }

    /// The square root of the sum of all squares; none without gradients.
    pub fn norm(&self) -> Option<Tensor<0>> {
        let squares = self.by_parameter.values().map(|node| flat(node).square().sum());
        squares.reduce(|sum, square| sum + square).map(|sum| sum.sqrt())
    }

    /// Each gradient through `change`, which is given it as one row.
    fn map(self, change: impl Fn(Tensor<1>) -> Tensor<1>) -> Gradients {
        let changed = |(number, node): (u64, Arc<Node>)| {
            let back = Reshape { shape: node.ty.shape };
            let row = change(flat(&node));
            (number, Node::op(&row.node().device, node.ty, back.into(), vec![row.node().clone()]))
        };
        Gradients { by_parameter: self.by_parameter.into_iter().map(changed).collect(), of: self.of }
    }

    /// How many parameters have one.
    pub fn len(&self) -> usize {
        self.by_parameter.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.by_parameter.is_empty()
    }
}

/// A gradient as one row.
fn flat(node: &Arc<Node>) -> Tensor<1> {
    let elements = node.ty.shape.elements().unwrap_or(0) as usize;
    record(Reshape { shape: shape_of(&[elements]) }, &[node])
}

type Differentiated = (Recorder, Vec<Arc<Node>>, Vec<Option<usize>>);

/// The gradients of the sum of all elements of `targets` by every parameter on the way.
fn differentiate(device: &Device, targets: &[Arc<Node>]) -> Result<Differentiated, Error> {
    let (order, parameters) = tracked(targets);
    if order.iter().any(|node| node.state().spent) {
        return Err(Error::Spent);
    }
    let mut recorder = Recorder::new(device);
    let mut ran = Vec::with_capacity(order.len());
    for node in &order {
        let definition = node.state().definition.clone();
        if let Some(Definition::Op(op, inputs)) = definition {
            let inputs = inputs.iter().map(|input| recorder.place(input)).collect();
            ran.push(Ran { op, inputs, output: recorder.place(node) });
        }
    }
    let fail = |op: &'static str, error: OpError| Error::Gradient { op, error };
    let mut seeds = Vec::new();
    for target in targets.iter().filter(|t| t.tracked) {
        let seed = recorder.filled(target.ty, 1.0).map_err(|e| fail("the seed", e))?;
        seeds.push((recorder.place(target), seed));
    }
    let wrt: Vec<usize> = parameters.iter().map(|node| recorder.place(node)).collect();
    let found = backward(&mut recorder, &ran, &seeds, &wrt);
    let gradients = found.map_err(|e| fail(ran.get(e.index).map_or("the seed", |r| r.op.name()), e.error))?;
    Ok((recorder, parameters, gradients))
}

/// The nodes through which gradients of `targets` go, in an order in which they could be computed, and the
/// parameters that they end at.
fn tracked(targets: &[Arc<Node>]) -> (Vec<Arc<Node>>, Vec<Arc<Node>>) {
    let (mut order, mut parameters) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    let mut done = HashSet::new();
    let mut open: Vec<(Arc<Node>, bool)> = targets.iter().rev().map(|node| (node.clone(), false)).collect();
    while let Some((node, inputs_done)) = open.pop() {
        if !node.tracked || done.contains(&node.number) {
            continue;
        }
        if node.parameter {
            done.insert(node.number);
            parameters.push(node);
        } else if inputs_done {
            done.insert(node.number);
            order.push(node);
        } else if seen.insert(node.number) {
            let definition = node.state().definition.clone();
            open.push((node, true));
            if let Some(Definition::Op(_, inputs)) = definition {
                open.extend(inputs.into_iter().rev().map(|input| (input, false)));
            }
        }
    }
    (order, parameters)
}

/// The nodes among `computed`, on the way to `targets`, that their gradients will read. What costs nothing to make
/// again, views and repetitions, is looked through.
pub(crate) fn residuals(device: &Device, targets: &[Arc<Node>], computed: &HashSet<u64>) -> HashSet<u64> {
    let mut needed = HashSet::new();
    if !targets.iter().any(|node| node.tracked && !node.parameter) {
        return needed;
    }
    // What can't be differentiated will be said when a gradient is asked for.
    let Ok((recorder, _, gradients)) = differentiate(device, targets) else { return needed };
    let mut open: Vec<Arc<Node>> = gradients.into_iter().flatten().map(|place| recorder.node(place).clone()).collect();
    let mut seen = HashSet::new();
    while let Some(node) = open.pop() {
        if !seen.insert(node.number) {
            continue;
        }
        let definition = node.state().definition.clone();
        let Some(Definition::Op(op, inputs)) = definition else { continue };
        let free = op.effect() != Effect::Fresh || matches!(op, Op::Expand(_));
        if computed.contains(&node.number) && !free {
            needed.insert(node.number);
        } else {
            open.extend(inputs);
        }
    }
    needed
}
