//! What a C program sees of a model: one list, from which the header and the functions behind it are written.

use kiln_core::DType;
use kiln_planner::graph::{Graph, Value};
use kiln_planner::{Planned, PlannedEntry};

use crate::model_crate::names::Names;
use crate::model_crate::port::Side;

/// Names that functions and types of every model have, so that no entry's may be the same.
const OWN: [&str; 3] = ["init", "model", "align"];

/// A model, as C sees it.
pub(super) struct Face<'a> {
    /// What every name begins with.
    pub name: &'a str,
    /// The graph.
    pub graph: &'a Graph,
    /// Inputs and outputs, entry by entry.
    pub ports: Vec<Port<'a>>,
    /// The entries that have a function, in order.
    pub entries: Vec<Entry<'a>>,
    /// The functions that set a dimension: in C, in the model's crate, and the largest value.
    pub extents: Vec<(String, String, u32)>,
}

/// An input or output.
pub(super) struct Port<'a> {
    /// Its function, without the model's name before it.
    pub name: String,
    /// Its accessor in the model's crate.
    pub rust: String,
    /// Its side.
    pub side: Side,
    /// The value.
    pub value: &'a Value,
}

/// An entry that can be run.
pub(super) struct Entry<'a> {
    /// Its function, without the model's name before it.
    pub name: String,
    /// Its method in the model's crate.
    pub rust: String,
    /// The entry.
    pub planned: &'a PlannedEntry,
}

impl<'a> Face<'a> {
    pub(super) fn new(name: &'a str, graph: &'a Graph, planned: &'a Planned) -> Face<'a> {
        let (mut c, mut rust) = (Names::apart_from(&planned.entries, &OWN), Names::new(&planned.entries));
        let extents = graph.extents.iter().map(|e| (c.extent(&e.name), rust.extent(&e.name), e.max)).collect();
        let mut face = Face { name, graph, ports: Vec::new(), entries: Vec::new(), extents };
        for ((planned, c), rust) in planned.entries.iter().zip(c.entries).zip(rust.entries) {
            face.ports(Side::Input, &planned.inputs, c.inputs, rust.inputs);
            face.ports(Side::Output, &planned.outputs, c.outputs, rust.outputs);
            if let (Some(name), Some(rust)) = (c.method, rust.method) {
                face.entries.push(Entry { name, rust, planned });
            }
        }
        face
    }
}

impl Face<'_> {
    fn ports(&mut self, side: Side, values: &[kiln_planner::graph::ValueId], c: Vec<String>, rust: Vec<String>) {
        let graph = self.graph;
        let ports = values.iter().zip(c.into_iter().zip(rust));
        self.ports.extend(ports.map(|(&id, (name, rust))| Port { name, rust, side, value: graph.value(id) }));
    }
}

impl Port<'_> {
    /// The C type of an element, and how many elements there are.
    pub(super) fn element(&self) -> (&'static str, u64) {
        let ty = self.value.ty;
        let name = match ty.dtype {
            DType::F32 => "float",
            DType::F64 => "double",
            DType::I8 => "int8_t",
            DType::I16 => "int16_t",
            DType::I32 => "int32_t",
            DType::I64 => "int64_t",
            // Half-precision numbers as their bits; packed and boolean ones as bytes.
            DType::F16 | DType::BF16 | DType::U16 => "uint16_t",
            DType::U32 => "uint32_t",
            DType::U64 => "uint64_t",
            DType::U8 | DType::Bool | DType::I4 => "uint8_t",
        };
        (name, ty.bytes().unwrap_or(0) / ty.dtype.align() as u64)
    }

    /// The scale and zero point, where there is one of each.
    pub(super) fn quantization(&self) -> Option<(f32, i32)> {
        match (&self.value.quant.scales[..], &self.value.quant.zero_points[..]) {
            (&[scale], &[zero_point]) => Some((scale, zero_point)),
            _ => None,
        }
    }
}
