//! Taking channels out of a graph.

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::Op;
use kiln_planner::graph::{Graph, Node, Quant, Source, Value, ValueId};

use super::bounds::Bounds;
use super::layer::Layer;
use super::ties::{Kept, Stay, reads};

/// Takes out of a graph, whose values are within `bounds`, what is not kept.
pub(super) fn rewrite(graph: &mut Graph, bounds: &Bounds, kept: &Kept) {
    let reads = reads(graph);
    // Layers first: what they lose depends on the types that values have until then.
    for entry in 0..graph.entries.len() {
        for index in 0..graph.entries[entry].nodes.len() {
            let node = graph.entries[entry].nodes[index].clone();
            if let Some(parts) = parts(graph, bounds, kept, &node) {
                graph.entries[entry].nodes[index] = put(graph, node, parts, &reads);
            }
        }
    }
    for (index, value) in graph.values.iter_mut().enumerate() {
        if let Some(stay) = kept.of(ValueId(index as u32)) {
            value.ty = resized(value.ty, value.ty.shape.rank() - 1, stay.resized(value.ty.shape.last()));
        }
    }
    for node in graph.entries.iter_mut().flat_map(|e| &mut e.nodes) {
        if let Op::Reshape(reshape) = &mut node.op {
            reshape.shape = graph.values[node.output.index()].ty.shape;
        }
    }
}

/// What stays of a layer.
struct Parts {
    rows: Vec<usize>,
    columns: usize,
    weights: Vec<u8>,
    bias: Vec<i32>,
    /// One dimension of as many rows: the shape of a bias where there was none.
    bias_shape: Shape,
}

/// What stays of a node that is a layer; `None` for other nodes, and if that is everything.
fn parts(graph: &Graph, bounds: &Bounds, kept: &Kept, node: &Node) -> Option<Parts> {
    let id = *node.inputs.first()?;
    let (x, y) = (kept.of(id), kept.of(node.output));
    if x.is_none() && y.is_none() {
        return None;
    }
    let layer = Layer::of(graph, node)?;
    // A depthwise row has the one column of its own channel.
    let x = x.filter(|_| layer.groups == 1);
    let gone = |column: usize| x.is_some_and(|stay: Stay<'_>| !stay.keeps(column));
    let rows: Vec<usize> = (0..layer.rows).filter(|&row| y.is_none_or(|stay| stay.keeps(row))).collect();
    let columns: Vec<usize> = (0..layer.columns).filter(|&column| !gone(column)).collect();
    let bias = layer.folded_bias(&bounds.of(id), &gone)?;
    let taps = rows.iter().flat_map(|&row| layer.taps_of(row));
    let weights = taps.flat_map(|tap| columns.iter().map(move |&column| tap[column]));
    let (weights, bias) = (weights.collect(), rows.iter().map(|&row| bias[row]).collect());
    let bias_shape = Shape::new(&[rows.len() as u32]).ok()?;
    Some(Parts { rows, columns: columns.len(), weights, bias, bias_shape })
}

/// Puts what stays of a layer into its constants.
fn put(graph: &mut Graph, mut node: Node, parts: Parts, reads: &[u32]) -> Node {
    let count = parts.rows.len() as u32;
    if let Op::Conv2d(conv) = &mut node.op
        && conv.groups > 1
    {
        conv.groups = count;
    }
    let weights = &mut graph.values[node.inputs[1].index()];
    weights.ty = resized(weights.ty, weights.ty.shape.rank() - 1, parts.columns as u32);
    weights.ty = resized(weights.ty, 0, count);
    weights.quant = picked(&weights.quant, &parts.rows);
    weights.source = Source::Constant(parts.weights.into());
    let data: Vec<u8> = parts.bias.iter().flat_map(|bias| bias.to_le_bytes()).collect();
    let Some(bias) = node.inputs.get_mut(2) else {
        if data.iter().any(|&byte| byte != 0) {
            let ty = TensorType::new(DType::I32, parts.bias_shape);
            node.inputs.push(graph.add_constant(format!("{}/bias", node.name), ty, Quant::default(), data));
        }
        return node;
    };
    let old = graph.value(*bias);
    let new = Value {
        ty: resized(old.ty, old.ty.shape.rank() - 1, count),
        quant: picked(&old.quant, &parts.rows),
        source: Source::Constant(data.into()),
        ..old.clone()
    };
    // What others read stays for them.
    if reads[bias.index()] == 1 {
        graph.values[bias.index()] = new;
    } else {
        *bias = ValueId(graph.values.len() as u32);
        graph.values.push(new);
    }
    node
}

/// A type with another size along one axis, which is no larger.
fn resized(ty: TensorType, axis: usize, size: u32) -> TensorType {
    let mut dims = ty.shape.dims().to_vec();
    dims[axis] = size;
    TensorType::new(ty.dtype, Shape::new(&dims).unwrap_or(ty.shape))
}

/// The scales of these rows.
fn picked(quant: &Quant, rows: &[usize]) -> Quant {
    if quant.scales.len() <= 1 {
        return quant.clone();
    }
    Quant {
        scales: rows.iter().map(|&row| quant.scales[row]).collect(),
        zero_points: rows.iter().map(|&row| quant.zero_points[row]).collect(),
        axis: quant.axis,
    }
}
