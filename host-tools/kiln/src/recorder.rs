//! Recorded tensors as something that gradients can be added to.

use std::collections::HashMap;
use std::sync::Arc;

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{Build, Op, OpError};

use crate::Device;
use crate::node::Node;

/// Nodes by number, old and new ones.
pub(crate) struct Recorder {
    device: Device,
    nodes: Vec<Arc<Node>>,
    known: HashMap<u64, usize>,
    scalars: HashMap<(DType, u64), usize>,
}

impl Recorder {
    pub(crate) fn new(device: &Device) -> Recorder {
        Recorder { device: device.clone(), nodes: Vec::new(), known: HashMap::new(), scalars: HashMap::new() }
    }

    /// A node's place; the same for the same node.
    pub(crate) fn place(&mut self, node: &Arc<Node>) -> usize {
        *self.known.entry(node.number).or_insert_with(|| {
            self.nodes.push(node.clone());
            self.nodes.len() - 1
        })
    }

    /// The node at a place.
    pub(crate) fn node(&self, place: usize) -> &Arc<Node> {
        &self.nodes[place]
    }

    /// `value` in every element of a type.
    pub(crate) fn filled(&mut self, ty: TensorType, value: f64) -> Result<usize, OpError> {
        let scalar = self.scalar(ty.dtype, value)?;
        self.expand(scalar, ty.shape)
    }
}

impl Build for Recorder {
    type Value = usize;

    fn ty(&self, value: usize) -> TensorType {
        self.nodes[value].ty
    }

    fn op(&mut self, op: Op, inputs: &[usize]) -> Result<usize, OpError> {
        let types: Vec<TensorType> = inputs.iter().map(|&i| self.nodes[i].ty).collect();
        let ty = op.output(&types)?;
        // What gradients are made of is not tracked: its tensors are cut off from what they were computed from,
        // unless a second derivative is asked for.
        let nodes = inputs.iter().map(|&i| self.nodes[i].clone()).collect();
        let node = Node::op(&self.device, ty, op, nodes);
        Ok(self.place(&node))
    }

    fn scalar(&mut self, dtype: DType, value: f64) -> Result<usize, OpError> {
        if let Some(&place) = self.scalars.get(&(dtype, value.to_bits())) {
            return Ok(place);
        }
        kiln_passes::element(dtype, value).ok_or(OpError::DType(0, dtype))?;
        let node = Node::scalar(&self.device, TensorType::new(dtype, Shape::SCALAR), value);
        let place = self.place(&node);
        self.scalars.insert((dtype, value.to_bits()), place);
        Ok(place)
    }
}
