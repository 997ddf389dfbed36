//! Layers as boards have them, out of what was recorded: matrix products with weights become fully connected
//! layers, and what follows a layer channel by channel goes into it.

use std::collections::HashMap;

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{Activation, Add, FullyConnected, Function, Op};
use kiln_planner::graph::{Entry, Graph, Node, Quant, ValueId};

use crate::{PassError, clean};

/// Rewrites the float32 layers of every entry:
///
/// - a product of a matrix with constant weights becomes a fully connected layer;
/// - a constant for each channel that is added to a layer's result, or multiplies it, goes into the layer's weights
///   and bias: so batch normalization, once it does nothing but that, disappears;
/// - a `max(x, 0)` and a `min(x, 6)` behind it become the activation of the layer, pool or sum before;
/// - a sum of two computed tensors of one shape becomes an `add`.
///
/// Nothing happens where something else reads what lies between. Sums are rounded in another order, so results
/// differ in the last bits; that is why [`clean`] does not do this.
///
/// # Errors
///
/// The graph is not valid.
pub fn recognize_layers(graph: Graph) -> Result<Graph, PassError> {
    let mut graph = clean(graph)?.graph;
    for index in 0..graph.entries.len() {
        let mut entry = std::mem::take(&mut graph.entries[index]);
        let nodes = std::mem::take(&mut entry.nodes);
        let mut layers =
            Layers { uses: uses(&entry, &nodes), graph: &mut graph, nodes: Vec::new(), made: HashMap::new() };
        for node in nodes {
            layers.push(node);
        }
        entry.nodes = layers.nodes;
        graph.entries[index] = entry;
    }
    // Reshapes that stood between are gone, and with them constants that nobody reads.
    Ok(clean(graph)?.graph)
}

/// The part of [`recognize_layers`] that changes no bit: a `max(x, 0)` and a `min(x, 6)` behind a layer, pool or sum
/// become its activation, where nothing else reads what lies between.
pub fn fuse_activations(mut graph: Graph) -> Graph {
    for index in 0..graph.entries.len() {
        let mut entry = std::mem::take(&mut graph.entries[index]);
        let nodes = std::mem::take(&mut entry.nodes);
        let mut layers =
            Layers { uses: uses(&entry, &nodes), graph: &mut graph, nodes: Vec::new(), made: HashMap::new() };
        for node in nodes {
            let taken = match node.op {
                Op::Map(map) if layers.is_float(&node) => layers.activation(&node, map.function),
                _ => None,
            };
            if taken.is_none() {
                layers.add(node);
            }
        }
        entry.nodes = layers.nodes;
        graph.entries[index] = entry;
    }
    graph
}

/// How often each value is read.
fn uses(entry: &Entry, nodes: &[Node]) -> HashMap<ValueId, usize> {
    let mut uses = HashMap::new();
    let read = nodes.iter().flat_map(|n| &n.inputs).chain(&entry.outputs);
    for &id in read.chain(entry.assigns.iter().map(|a| &a.value)) {
        *uses.entry(id).or_insert(0) += 1;
    }
    uses
}

/// An entry's nodes as they are rewritten, in their order.
struct Layers<'g> {
    graph: &'g mut Graph,
    nodes: Vec<Node>,
    /// The node that computes each value.
    made: HashMap<ValueId, usize>,
    uses: HashMap<ValueId, usize>,
}

impl Layers<'_> {
    fn push(&mut self, node: Node) {
        let taken = match node.op {
            Op::MatMul(_) => self.fully_connected(&node),
            Op::Map(map) if self.is_float(&node) => match map.function {
                Function::Add | Function::Sub | Function::Mul | Function::Div => {
                    self.per_channel(&node, map.function).or_else(|| self.sum(&node, map.function))
                }
                Function::Max | Function::Min => self.activation(&node, map.function),
                _ => None,
            },
            _ => None,
        };
        if taken.is_none() {
            self.add(node);
        }
    }

    fn add(&mut self, node: Node) {
        self.made.insert(node.output, self.nodes.len());
        self.nodes.push(node);
    }

    fn is_float(&self, node: &Node) -> bool {
        node.inputs.iter().chain([&node.output]).all(|&id| self.graph.value(id).ty.dtype == DType::F32)
    }

    /// The elements of a float32 constant.
    fn constant(&self, id: ValueId) -> Option<Vec<f32>> {
        let data = self.graph.constant_data(id).filter(|_| self.graph.value(id).ty.dtype == DType::F32)?;
        Some(data.chunks_exact(4).map(|c| c.try_into().map_or(0.0, f32::from_le_bytes)).collect())
    }

    fn new_constant(&mut self, name: String, dims: &[u32], values: &[f32]) -> ValueId {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let shape = Shape::new(dims).unwrap_or(Shape::SCALAR);
        self.graph.add_constant(name, TensorType::new(DType::F32, shape), Quant::default(), data)
    }

    /// The one before `id`, if nothing else reads that and `wanted` takes it.
    fn before(&self, id: ValueId, wanted: impl Fn(&Op) -> bool) -> Option<usize> {
        let index = *self.made.get(&id).filter(|_| self.uses.get(&id) == Some(&1))?;
        wanted(&self.nodes[index].op).then_some(index)
    }

    /// Lets the node at `index` compute what `node` did.
    fn replace(&mut self, index: usize, node: &Node) {
        let old = &mut self.nodes[index];
        self.made.remove(&old.output);
        old.output = node.output;
        self.made.insert(node.output, index);
        // What was read between must still come first: the node moves to its reader's place.
        let moved = self.nodes.remove(index);
        self.made.values_mut().filter(|at| **at > index).for_each(|at| *at -= 1);
        self.made.insert(moved.output, self.nodes.len());
        self.nodes.push(moved);
    }

    /// A product with constant weights.
    fn fully_connected(&mut self, node: &Node) -> Option<()> {
        let Op::MatMul(op) = node.op else { return None };
        let &[x, w] = &node.inputs[..] else { return None };
        let (x_ty, w_ty) = (self.graph.value(x).ty, self.graph.value(w).ty);
        if op.transpose_a || x_ty.shape.rank() != 2 || x_ty.dtype != DType::F32 || self.constant(x).is_some() {
            return None;
        }
        let weights = self.constant(w)?;
        let (rows, columns) = (w_ty.shape.dim(0) as usize, w_ty.shape.dim(1) as usize);
        let w = if op.transpose_b {
            w
        } else {
            let turned: Vec<f32> = (0..rows * columns).map(|i| weights[i % rows * columns + i / rows]).collect();
            let name = format!("{} (transposed)", self.graph.value(w).name);
            self.new_constant(name, &[columns as u32, rows as u32], &turned)
        };
        let op = FullyConnected { keep_dims: true, activation: Activation::None };
        self.add(Node { op: op.into(), inputs: vec![x, w], ..node.clone() });
        Some(())
    }

    /// A constant for each channel of the layer before.
    fn per_channel(&mut self, node: &Node, function: Function) -> Option<()> {
        let &[a, b] = &node.inputs[..] else { return None };
        // Which input is computed, and whether it comes first.
        let (x, constant, first) = match (self.constant(a).is_some(), self.constant(b).is_some()) {
            (false, true) => (a, b, true),
            (true, false) => (b, a, false),
            _ => return None,
        };
        let layer = self.before(x, |op| match op {
            Op::Conv2d(conv) => conv.activation == Activation::None,
            Op::FullyConnected(dense) => dense.activation == Activation::None,
            _ => false,
        })?;
        let inputs = self.nodes[layer].inputs.clone();
        let channels = self.graph.value(inputs[1]).ty.shape.dim(0) as usize;
        let (x_ty, ty) = (self.graph.value(x).ty, self.graph.value(node.output).ty);
        if ty != x_ty || x_ty.shape.last() as usize != channels {
            return None;
        }
        let values = self.constant(constant)?;
        let own = self.graph.value(constant).ty.shape;
        // One for all, or one a channel along the innermost axis.
        let by_channel = match values.len() {
            1 => vec![values[0]; channels],
            n if n == channels && own.last() as usize == channels => values,
            _ => return None,
        };
        let weights = self.constant(inputs[1])?;
        let bias = match inputs.get(2) {
            Some(&bias) => self.constant(bias)?,
            None => vec![0.0; channels],
        };
        let (factors, offsets): (Vec<f32>, Vec<f32>) = by_channel
            .iter()
            .map(|&v| match (function, first) {
                (Function::Add, _) => (1.0, v),
                (Function::Sub, true) => (1.0, -v),
                (Function::Sub, false) => (-1.0, v),
                (Function::Mul, _) => (v, 0.0),
                _ => (1.0 / v, 0.0),
            })
            .unzip();
        // A constant divided by the layer's result is no layer.
        if (function == Function::Div && !first) || factors.iter().chain(&offsets).any(|v| !v.is_finite()) {
            return None;
        }
        let each = weights.len() / channels.max(1);
        let weights: Vec<f32> = weights.iter().enumerate().map(|(i, w)| w * factors[i / each.max(1)]).collect();
        let bias: Vec<f32> = (0..channels).map(|o| bias[o] * factors[o] + offsets[o]).collect();
        let name = self.graph.value(node.output).name.clone();
        let dims = self.graph.value(inputs[1]).ty.shape;
        let w = self.new_constant(format!("{name} (weights)"), dims.dims(), &weights);
        let b = self.new_constant(format!("{name} (bias)"), &[channels as u32], &bias);
        self.nodes[layer].inputs = vec![inputs[0], w, b];
        self.replace(layer, node);
        Some(())
    }

    /// A sum of two computed tensors.
    fn sum(&mut self, node: &Node, function: Function) -> Option<()> {
        let &[a, b] = &node.inputs[..] else { return None };
        let computed = |id: ValueId| self.graph.constant_data(id).is_none();
        let same = self.graph.value(a).ty == self.graph.value(b).ty;
        if function != Function::Add || !same || !computed(a) || !computed(b) {
            return None;
        }
        self.add(Node { op: Add { activation: Activation::None }.into(), ..node.clone() });
        Some(())
    }

    /// A bound of the result before.
    fn activation(&mut self, node: &Node, function: Function) -> Option<()> {
        let &[a, b] = &node.inputs[..] else { return None };
        let (x, bound) = if self.constant(b).is_some() { (a, b) } else { (b, a) };
        let bounds = self.constant(bound)?;
        let bound = *bounds.first().filter(|first| bounds.iter().all(|v| v == *first))?;
        let bounded = |before: Activation| match (function, before) {
            (Function::Max, Activation::None) if bound == 0.0 => Some(Activation::Relu),
            (Function::Min, Activation::Relu) if bound == 6.0 => Some(Activation::Relu6),
            _ => None,
        };
        let layer = self.before(x, |op| activation_of(op).and_then(bounded).is_some())?;
        if self.graph.value(x).ty != self.graph.value(node.output).ty {
            return None;
        }
        let new = activation_of(&self.nodes[layer].op).and_then(bounded)?;
        match &mut self.nodes[layer].op {
            Op::Conv2d(op) => op.activation = new,
            Op::FullyConnected(op) => op.activation = new,
            Op::Pool2d(op) => op.activation = new,
            Op::Add(op) => op.activation = new,
            _ => return None,
        }
        self.replace(layer, node);
        Some(())
    }
}

fn activation_of(op: &Op) -> Option<Activation> {
    match op {
        Op::Conv2d(op) => Some(op.activation),
        Op::FullyConnected(op) => Some(op.activation),
        Op::Pool2d(op) => Some(op.activation),
        Op::Add(op) => Some(op.activation),
        _ => None,
    }
}
