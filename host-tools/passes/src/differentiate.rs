//! Differentiation: a pass that adds gradients to an entry.

use std::collections::HashMap;

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{Build, Op, OpError};
use kiln_planner::graph::{Graph, Quant, ValueId};

use crate::PassError;
use crate::backward::{Ran, backward};

/// An entry of a graph as something that operators can be added to.
pub struct EntryBuilder<'g> {
    graph: &'g mut Graph,
    entry: usize,
    scalars: HashMap<(DType, u64), ValueId>,
}

impl<'g> EntryBuilder<'g> {
    /// Adds to entry number `entry` of `graph`.
    pub fn new(graph: &'g mut Graph, entry: usize) -> EntryBuilder<'g> {
        EntryBuilder { graph, entry, scalars: HashMap::new() }
    }

    /// The graph.
    pub fn graph(&mut self) -> &mut Graph {
        self.graph
    }
}

/// A number as the bytes of one element; none where the element type can't hold numbers so simply.
pub fn element(dtype: DType, value: f64) -> Option<Vec<u8>> {
    Some(match dtype {
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::I32 => (value as i32).to_le_bytes().to_vec(),
        DType::Bool => vec![u8::from(value != 0.0)],
        _ => return None,
    })
}

impl Build for EntryBuilder<'_> {
    type Value = ValueId;

    fn ty(&self, value: ValueId) -> TensorType {
        self.graph.value(value).ty
    }

    fn op(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId, OpError> {
        let name = format!("{} {}", op.name(), self.graph.values.len());
        self.graph.try_add_node(self.entry, name, op, inputs, Quant::default())
    }

    fn scalar(&mut self, dtype: DType, value: f64) -> Result<ValueId, OpError> {
        if let Some(&id) = self.scalars.get(&(dtype, value.to_bits())) {
            return Ok(id);
        }
        let data = element(dtype, value).ok_or(OpError::DType(0, dtype))?;
        let ty = TensorType::new(dtype, Shape::SCALAR);
        let id = self.graph.add_constant(format!("{value}"), ty, Quant::default(), data);
        self.scalars.insert((dtype, value.to_bits()), id);
        Ok(id)
    }
}

/// Adds to entry number `entry` the gradients of `of`, which has one element, by each of `wrt`, and gives them in
/// that order: values of the entry, of the type of what they differentiate by. What `of` does not depend on has
/// a gradient of zeros. Nothing else of the graph changes; list the gradients among the entry's outputs, or
/// assign with them, or they are dead.
///
/// The gradients are made of operators that have gradients, so this can be done again.
///
/// # Errors
///
/// [`PassError::Gradient`] where an operator on the way has no gradient, or `of` is no number.
pub fn differentiate(graph: &mut Graph, entry: usize, of: ValueId, wrt: &[ValueId]) -> Result<Vec<ValueId>, PassError> {
    let error = |graph: &Graph, node: String, error: OpError| PassError::Gradient {
        entry: graph.entries[entry].name.clone(),
        node,
        error,
    };
    let ty = graph.value(of).ty;
    if ty.shape.elements() != Some(1) {
        let name = graph.value(of).name.clone();
        return Err(error(graph, name, OpError::Mismatch("elements and 1", ty.shape.elements().unwrap_or(0), 1)));
    }
    let nodes = &graph.entries[entry].nodes;
    let ran: Vec<Ran<ValueId>> =
        nodes.iter().map(|n| Ran { op: n.op, inputs: n.inputs.clone(), output: n.output }).collect();
    let mut b = EntryBuilder::new(graph, entry);
    let seed = b.scalar(ty.dtype, 1.0).and_then(|one| b.reshape(one, ty.shape));
    let seed = match seed {
        Ok(seed) => seed,
        Err(e) => return Err(error(b.graph, "the seed".to_owned(), e)),
    };
    let found = match backward(&mut b, &ran, &[(of, seed)], wrt) {
        Ok(found) => found,
        Err(e) => {
            let node = b.graph.entries[entry].nodes.get(e.index).map_or(String::new(), |n| n.name.clone());
            return Err(error(b.graph, node, e.error));
        }
    };
    let mut gradients = Vec::with_capacity(wrt.len());
    for (gradient, &value) in found.into_iter().zip(wrt) {
        let ty = b.ty(value);
        let zeros = |b: &mut EntryBuilder<'_>| b.scalar(ty.dtype, 0.0).and_then(|zero| b.expand(zero, ty.shape));
        let gradient = match gradient {
            Some(gradient) => Ok(gradient),
            None => zeros(&mut b),
        };
        gradients.push(gradient.map_err(|e| error(b.graph, "zeros".to_owned(), e))?);
    }
    Ok(gradients)
}
