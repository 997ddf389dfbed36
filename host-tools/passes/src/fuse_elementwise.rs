//! Chains of functions of each element as one operator.

use std::collections::{HashMap, HashSet};

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{Fused, MAX_INPUTS, MAX_VALUES, Op};
use kiln_planner::graph::{Entry, Graph, Node, Quant, Source, ValueId};

/// Makes one [`Fused`] operator of functions ([`Map`](kiln_ops::Map)) that feed one another, with the repetitions and
/// the casts of truth to numbers between them. What more than one node reads, or an entry gives out, stays a value
/// of its own, so nothing is computed twice. Every function still rounds by itself: not a bit changes.
///
/// Run it after differentiation: chains have no gradient.
pub fn fuse_elementwise(mut graph: Graph) -> Graph {
    for entry in 0..graph.entries.len() {
        fuse_entry(&mut graph, entry);
    }
    graph
}

fn fuse_entry(graph: &mut Graph, index: usize) {
    let entry = std::mem::take(&mut graph.entries[index]);
    let made: HashMap<ValueId, usize> = entry.nodes.iter().enumerate().map(|(i, n)| (n.output, i)).collect();
    let uses = uses(&entry);
    let mut absorbed: HashSet<usize> = HashSet::new();
    let mut replaced: HashMap<usize, Node> = HashMap::new();
    // From the last to the first, so that a chain is taken from its end.
    for i in (0..entry.nodes.len()).rev() {
        let node = &entry.nodes[i];
        if absorbed.contains(&i) || !matches!(node.op, Op::Map(_)) || !is_floating(graph, node) {
            continue;
        }
        let shape = graph.value(node.output).ty.shape;
        let mut chain = Chain::new(graph, &entry, &made, &uses, shape);
        if chain.take(i).is_some() && chain.instructions.len() > 1 {
            let Chain { inputs, immediates, instructions, taken, .. } = chain;
            let (node, own) = (node.clone(), taken);
            let program = program(&inputs, &immediates, &instructions);
            let ty = TensorType::new(DType::U8, Shape::new(&[program.len() as u32]).unwrap_or(Shape::SCALAR));
            let constant = graph.add_constant(format!("{} (program)", node.name), ty, Quant::default(), program);
            let dtype = graph.value(node.output).ty.dtype;
            let inputs = inputs.into_iter().chain([constant]).collect();
            replaced.insert(i, Node { op: Fused { dtype, shape }.into(), inputs, ..node });
            absorbed.extend(own.into_iter().filter(|&own| own != i));
        }
    }
    let mut nodes = Vec::with_capacity(entry.nodes.len());
    for (i, node) in entry.nodes.into_iter().enumerate() {
        if !absorbed.contains(&i) {
            nodes.push(replaced.remove(&i).unwrap_or(node));
        }
    }
    graph.entries[index] = Entry { nodes, ..entry };
}

/// How often each value is read: by nodes, as an output, as a new state.
fn uses(entry: &Entry) -> HashMap<ValueId, usize> {
    let mut uses = HashMap::new();
    let read = entry.nodes.iter().flat_map(|n| &n.inputs).chain(&entry.outputs);
    for &id in read.chain(entry.assigns.iter().map(|a| &a.value)) {
        *uses.entry(id).or_insert(0) += 1;
    }
    uses
}

/// Whether a node computes with float32 and truth only.
fn is_floating(graph: &Graph, node: &Node) -> bool {
    let fits = |id: &ValueId| {
        let value = graph.value(*id);
        matches!(value.ty.dtype, DType::F32 | DType::Bool) && value.varying.is_empty()
    };
    node.inputs.iter().chain([&node.output]).all(fits)
}

/// A value of a chain, before it is known how many inputs and immediates come before results.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Operand {
    Input(usize),
    Immediate(usize),
    Result(usize),
}

/// A chain as it grows from its end.
struct Chain<'a> {
    graph: &'a Graph,
    entry: &'a Entry,
    made: &'a HashMap<ValueId, usize>,
    uses: &'a HashMap<ValueId, usize>,
    /// The shape of what it computes.
    shape: Shape,
    inputs: Vec<ValueId>,
    immediates: Vec<f32>,
    instructions: Vec<(u8, Vec<Operand>)>,
    /// The nodes that it does without.
    taken: Vec<usize>,
}

impl<'a> Chain<'a> {
    fn new(
        graph: &'a Graph,
        entry: &'a Entry,
        made: &'a HashMap<ValueId, usize>,
        uses: &'a HashMap<ValueId, usize>,
        shape: Shape,
    ) -> Chain<'a> {
        let (inputs, immediates, instructions, taken) = Default::default();
        Chain { graph, entry, made, uses, shape, inputs, immediates, instructions, taken }
    }

    /// Adds a node's function, and what feeds it as far as it can be; `None` where there is no room.
    fn take(&mut self, index: usize) -> Option<Operand> {
        let node = &self.entry.nodes[index];
        let Op::Map(map) = node.op else { return None };
        let mut operands = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            operands.push(self.operand(input)?);
        }
        self.taken.push(index);
        self.instructions.push((map.function as u8, operands));
        self.fits().then_some(Operand::Result(self.instructions.len() - 1))
    }

    /// Where a value that the chain reads comes from.
    fn operand(&mut self, id: ValueId) -> Option<Operand> {
        if let Some(index) = self.inner(id) {
            let before = (self.inputs.len(), self.immediates.len(), self.instructions.len(), self.taken.len());
            let node = &self.entry.nodes[index];
            let found = match node.op {
                Op::Map(_) => self.take(index),
                // Only another look at the same elements.
                _ => {
                    self.taken.push(index);
                    self.operand(node.inputs[0])
                }
            };
            if found.is_some() {
                return found;
            }
            self.inputs.truncate(before.0);
            self.immediates.truncate(before.1);
            self.instructions.truncate(before.2);
            self.taken.truncate(before.3);
        }
        if let Some(number) = immediate(self.graph, id) {
            let same = self.immediates.iter().position(|v| v.to_bits() == number.to_bits());
            let at = same.unwrap_or_else(|| {
                self.immediates.push(number);
                self.immediates.len() - 1
            });
            return self.fits().then_some(Operand::Immediate(at));
        }
        let same = self.inputs.iter().position(|&input| input == id);
        let at = same.unwrap_or_else(|| {
            self.inputs.push(id);
            self.inputs.len() - 1
        });
        self.fits().then_some(Operand::Input(at))
    }

    /// The node that computes a value, if nothing else reads the value and the node can be part of the chain.
    fn inner(&self, id: ValueId) -> Option<usize> {
        let index = *self.made.get(&id).filter(|_| self.uses.get(&id) == Some(&1))?;
        let node = &self.entry.nodes[index];
        let good = match node.op {
            Op::Map(_) => self.graph.value(id).ty.shape == self.shape,
            Op::Expand(_) => true,
            Op::Cast(cast) => cast.dtype == DType::F32 && self.graph.value(node.inputs[0]).ty.dtype == DType::Bool,
            _ => false,
        };
        (good && is_floating(self.graph, node)).then_some(index)
    }

    fn fits(&self) -> bool {
        // Immediates and instructions are counted in a byte each.
        self.inputs.len() <= MAX_INPUTS
            && self.inputs.len() + self.immediates.len() + self.instructions.len() <= MAX_VALUES
    }
}

/// A scalar constant's number.
fn immediate(graph: &Graph, id: ValueId) -> Option<f32> {
    let value = graph.value(id);
    match &value.source {
        Source::Constant(data) if value.ty.shape.elements() == Some(1) && value.ty.dtype == DType::F32 => {
            Some(f32::from_le_bytes(data[..].try_into().ok()?))
        }
        _ => None,
    }
}

/// The chain's bytes, as [`Program`](kiln_ops::Program) reads them.
fn program(inputs: &[ValueId], immediates: &[f32], instructions: &[(u8, Vec<Operand>)]) -> Vec<u8> {
    let mut bytes = vec![instructions.len() as u8, immediates.len() as u8, 0, 0];
    immediates.iter().for_each(|v| bytes.extend(v.to_le_bytes()));
    for (function, operands) in instructions {
        let mut row = [*function, 0, 0, 0];
        for (place, operand) in row[1..].iter_mut().zip(operands) {
            let number = match *operand {
                Operand::Input(i) => i,
                Operand::Immediate(i) => inputs.len() + i,
                Operand::Result(i) => inputs.len() + immediates.len() + i,
            };
            *place = number as u8;
        }
        bytes.extend(row);
    }
    bytes
}
