//! The graph: pure SSA over one operator set. It allocates, so it lives on hosts only.
//!
//! Values are numbered across the whole graph; entries share constants and state. A node computes
//! one value from others of its entry, or from constants and state. Nothing is written twice:
//! state changes by [`Assign`] at the end of an entry, and every read of it inside the entry sees
//! the value from before. So any topological order of the nodes is right.

use std::collections::HashSet;
use std::sync::Arc;

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{Op, OpError, QuantRef};
use serde::{Deserialize, Serialize};

/// The number of a value in its graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Quantization parameters: `real = scale * (value - zero_point)`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Quant {
    /// One scale, or one for each index along `axis`; none when not quantized.
    pub scales: Vec<f32>,
    /// As many zero points.
    pub zero_points: Vec<i32>,
    /// The axis that several scales run along.
    pub axis: usize,
}

impl Quant {
    /// One scale and zero point for the whole tensor.
    pub fn per_tensor(scale: f32, zero_point: i32) -> Quant {
        Quant { scales: vec![scale], zero_points: vec![zero_point], axis: 0 }
    }

    /// The view that operators and kernels take.
    pub fn view(&self) -> QuantRef<'_> {
        QuantRef { scales: &self.scales, zero_points: &self.zero_points, axis: self.axis }
    }
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Source {
    /// An entry's caller writes it.
    Input,
    /// Known bytes, little-endian, dense.
    Constant(Arc<[u8]>),
    /// Kept from run to run; zero at first.
    State,
    /// A node computes it.
    Node,
}

/// A dimension's size at run time: `axis` of a value is extent number `extent` of the graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VaryingDim {
    /// The axis.
    pub axis: u8,
    /// Index into [`Graph::extents`].
    pub extent: u16,
}

/// A value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Value {
    /// Its name: the file's, where one was imported.
    pub name: String,
    /// Element type and shape, varying dimensions at their maximum.
    pub ty: TensorType,
    /// Quantization.
    pub quant: Quant,
    /// Where it comes from.
    pub source: Source,
    /// Dimensions that vary at run time.
    pub varying: Vec<VaryingDim>,
}

/// A dimension that varies at run time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Extent {
    /// Its name, such as `batch`.
    pub name: String,
    /// The largest value; plans are made for it.
    pub max: u32,
}

/// One operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its name, for reports.
    pub name: String,
    /// The operator with its attributes.
    pub op: Op,
    /// What it reads.
    pub inputs: Vec<ValueId>,
    /// What it computes.
    pub output: ValueId,
}

/// A change of state at the end of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Assign {
    /// The state.
    pub state: ValueId,
    /// Its value from the next run on.
    pub value: ValueId,
}

/// Something that can be run by name.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Entry {
    /// `infer`, `train_step`, `reset`, …
    pub name: String,
    /// Values the caller writes before a run.
    pub inputs: Vec<ValueId>,
    /// Values the caller reads after it.
    pub outputs: Vec<ValueId>,
    /// The nodes, in an order in which they could run.
    pub nodes: Vec<Node>,
    /// State changes.
    pub assigns: Vec<Assign>,
}

/// A graph.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Graph {
    /// Its name: the model's.
    pub name: String,
    /// All values.
    pub values: Vec<Value>,
    /// All entries.
    pub entries: Vec<Entry>,
    /// All dimensions that vary.
    pub extents: Vec<Extent>,
    /// Names of the classes that the output of `infer` scores, where the model has them.
    pub labels: Vec<String>,
}

/// Why a graph is not valid.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum GraphError {
    /// A node's operator refuses its inputs.
    #[error("{entry}: node '{node}' ({op}): {error}")]
    Op {
        /// The entry.
        entry: String,
        /// The node.
        node: String,
        /// The operator.
        op: &'static str,
        /// Why.
        error: OpError,
    },
    /// A value is not what it should be.
    #[error("value '{value}': {what}")]
    Value {
        /// The value.
        value: String,
        /// What is wrong with it.
        what: String,
    },
    /// An entry is not what it should be.
    #[error("entry '{entry}': {what}")]
    Entry {
        /// The entry.
        entry: String,
        /// What is wrong with it.
        what: String,
    },
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// The value `id`, which must be this graph's.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The bytes of a constant.
    pub fn constant_data(&self, id: ValueId) -> Option<&[u8]> {
        match &self.value(id).source {
            Source::Constant(data) => Some(data),
            _ => None,
        }
    }

    /// The entry called `name`.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// The number of the entry that inference runs: `infer`, or the first.
    pub fn main_entry(&self) -> Option<usize> {
        let first = (!self.entries.is_empty()).then_some(0);
        self.entries.iter().position(|e| e.name == "infer").or(first)
    }

    fn add(&mut self, name: impl Into<String>, ty: TensorType, quant: Quant, source: Source) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(Value { name: name.into(), ty, quant, source, varying: Vec::new() });
        id
    }

    /// Adds an input; list it in an entry's [`Entry::inputs`].
    pub fn add_input(&mut self, name: impl Into<String>, ty: TensorType, quant: Quant) -> ValueId {
        self.add(name, ty, quant, Source::Input)
    }

    /// Adds state, zero at first.
    pub fn add_state(&mut self, name: impl Into<String>, ty: TensorType, quant: Quant) -> ValueId {
        self.add(name, ty, quant, Source::State)
    }

    /// Adds a constant.
    pub fn add_constant(
        &mut self,
        name: impl Into<String>,
        ty: TensorType,
        quant: Quant,
        data: impl Into<Arc<[u8]>>,
    ) -> ValueId {
        self.add(name, ty, quant, Source::Constant(data.into()))
    }

    /// Adds a value that a node will compute; give it to a [`Node`].
    pub fn add_result(&mut self, name: impl Into<String>, ty: TensorType, quant: Quant) -> ValueId {
        self.add(name, ty, quant, Source::Node)
    }

    /// The types of `ids`.
    pub fn types(&self, ids: &[ValueId]) -> Vec<TensorType> {
        ids.iter().map(|&id| self.value(id).ty).collect()
    }

    /// Adds a node to entry `entry` whose output's type, and dimensions that vary, follow from the operator's
    /// rules.
    pub fn add_node(
        &mut self,
        entry: usize,
        name: impl Into<String>,
        op: impl Into<Op>,
        inputs: &[ValueId],
        quant: Quant,
    ) -> Result<ValueId, GraphError> {
        let (name, op) = (name.into(), op.into());
        self.try_add_node(entry, name.clone(), op, inputs, quant).map_err(|error| GraphError::Op {
            entry: self.entries[entry].name.clone(),
            node: name,
            op: op.name(),
            error,
        })
    }

    /// [`Graph::add_node`] for callers who say themselves which node was refused.
    pub fn try_add_node(
        &mut self,
        entry: usize,
        name: String,
        op: Op,
        inputs: &[ValueId],
        quant: Quant,
    ) -> Result<ValueId, OpError> {
        let types = self.types(inputs);
        let ty = op.output(&types)?;
        let varying = self.varying(&op, &types, inputs)?;
        let output = self.add_result(name.clone(), ty, quant);
        self.values[output.index()].varying = varying;
        self.entries[entry].nodes.push(Node { name, op, inputs: inputs.to_vec(), output });
        Ok(output)
    }

    /// The dimensions of `op`'s output that vary because those of its inputs do, each once.
    fn varying(&self, op: &Op, types: &[TensorType], inputs: &[ValueId]) -> Result<Vec<VaryingDim>, OpError> {
        let mut out = Vec::new();
        for (input, &id) in inputs.iter().enumerate() {
            for varying in &self.value(id).varying {
                let axis = varying.axis as usize;
                let to = op.varies(types, input, axis).ok_or(OpError::Varying(input, axis))?;
                let to = VaryingDim { axis: to as u8, extent: varying.extent };
                if !out.contains(&to) {
                    out.push(to);
                }
            }
        }
        Ok(out)
    }

    /// Checks everything a graph promises: passes run it after each change.
    pub fn validate(&self) -> Result<(), GraphError> {
        if let Some(extent) = self.extents.iter().find(|e| e.max == 0) {
            return Err(GraphError::Value { value: extent.name.clone(), what: "is an extent of at most 0".into() });
        }
        for value in &self.values {
            check_value(value, &self.extents)?;
        }
        let mut names = HashSet::new();
        if let Some(entry) = self.entries.iter().find(|e| !names.insert(&e.name)) {
            return Err(GraphError::Entry { entry: entry.name.clone(), what: "there are two of that name".into() });
        }
        let mut made = vec![false; self.values.len()];
        for entry in &self.entries {
            self.validate_entry(entry, &mut made)?;
        }
        Ok(())
    }

    fn validate_entry(&self, entry: &Entry, made: &mut [bool]) -> Result<(), GraphError> {
        let wrong = |what: String| GraphError::Entry { entry: entry.name.clone(), what };
        let find = |id: ValueId| self.values.get(id.index()).ok_or_else(|| wrong(format!("no value {}", id.0)));
        let mut known = vec![false; self.values.len()];
        for &id in &entry.inputs {
            let value = find(id)?;
            if value.source != Source::Input {
                return Err(wrong(format!("'{}' is listed as an input but is none", value.name)));
            }
            if std::mem::replace(&mut known[id.index()], true) {
                return Err(wrong(format!("input '{}' is listed twice", value.name)));
            }
        }
        let readable = |id: ValueId, known: &[bool]| -> Result<(), GraphError> {
            let value = find(id)?;
            match value.source {
                Source::Constant(_) | Source::State => Ok(()),
                _ if known[id.index()] => Ok(()),
                _ => Err(wrong(format!("'{}' is read before it is known", value.name))),
            }
        };
        for node in &entry.nodes {
            for &id in &node.inputs {
                readable(id, &known)?;
            }
            let output = find(node.output)?;
            if output.source != Source::Node || std::mem::replace(&mut made[node.output.index()], true) {
                return Err(wrong(format!("'{}' is not node '{}''s to compute", output.name, node.name)));
            }
            known[node.output.index()] = true;
            let op = |error| GraphError::Op {
                entry: entry.name.clone(),
                node: node.name.clone(),
                op: node.op.name(),
                error,
            };
            let types = self.types(&node.inputs);
            let ty = node.op.output(&types).map_err(op)?;
            if ty != output.ty {
                return Err(wrong(format!(
                    "'{}' is {} {:?} but node '{}' computes {} {:?}",
                    output.name,
                    output.ty.dtype.name(),
                    output.ty.shape,
                    node.name,
                    ty.dtype.name(),
                    ty.shape
                )));
            }
            let varying = self.varying(&node.op, &types, &node.inputs).map_err(op)?;
            if let Some(dim) = varying.iter().find(|dim| !output.varying.contains(dim)) {
                return Err(wrong(format!(
                    "'{}' does not vary along axis {} with extent '{}', but what node '{}' computes it from does",
                    output.name, dim.axis, self.extents[dim.extent as usize].name, node.name
                )));
            }
        }
        let mut assigned = vec![false; self.values.len()];
        for assign in &entry.assigns {
            readable(assign.value, &known)?;
            let (state, value) = (find(assign.state)?, find(assign.value)?);
            if state.source != Source::State || state.ty != value.ty {
                return Err(wrong(format!("'{}' can't be assigned to '{}'", value.name, state.name)));
            }
            if std::mem::replace(&mut assigned[assign.state.index()], true) {
                return Err(wrong(format!("state '{}' is assigned twice", state.name)));
            }
        }
        entry.outputs.iter().try_for_each(|&id| readable(id, &known))
    }
}

/// The most bytes a value can have: sums over all values of a graph then stay within 64 bits.
const MAX_VALUE_BYTES: u64 = 1 << 40;

fn check_value(value: &Value, extents: &[Extent]) -> Result<(), GraphError> {
    let wrong = |what: String| Err(GraphError::Value { value: value.name.clone(), what });
    let Some(bytes) = value.ty.bytes().filter(|&b| b <= MAX_VALUE_BYTES) else {
        return wrong("its size is more than any memory's".into());
    };
    if let Source::Constant(data) = &value.source
        && data.len() as u64 != bytes
    {
        return wrong(format!("has {} bytes of data where its type takes {bytes}", data.len()));
    }
    let quant = &value.quant;
    if quant.scales.len() != quant.zero_points.len() {
        return wrong(format!("has {} scales and {} zero points", quant.scales.len(), quant.zero_points.len()));
    }
    if quant.scales.len() > 1 && quant.scales.len() != value.ty.shape.dim(quant.axis) as usize {
        return wrong(format!("has {} scales along an axis of {}", quant.scales.len(), value.ty.shape.dim(quant.axis)));
    }
    if quant.scales.iter().any(|s| !s.is_finite() || *s <= 0.0) {
        return wrong("has a scale that is not a positive number".into());
    }
    for (index, varying) in value.varying.iter().enumerate() {
        if varying.axis as usize >= value.ty.shape.rank() {
            return wrong(format!("has no dimension {} that could vary", varying.axis));
        }
        if value.varying.iter().take(index).any(|v| v.axis == varying.axis) {
            return wrong(format!("lists what varies more often than dimension {} can", varying.axis));
        }
        let max = extents.get(varying.extent as usize).map(|e| e.max);
        if max != Some(value.ty.shape.dim(varying.axis as usize)) {
            return wrong(format!("dimension {} is not its extent's maximum", varying.axis));
        }
    }
    Ok(())
}

/// A dense type, for tests and importers that know their dimensions fit.
pub fn tensor_type(dtype: DType, dims: &[u32]) -> Option<TensorType> {
    Some(TensorType::new(dtype, Shape::new(dims).ok()?))
}
