//! What a model makes of a ramp: how firmware is tried without a file of inputs.

use kiln_core::{DType, TensorType};
use kiln_planner::graph::Graph;
use kiln_planner::{Planned, PlannedEntry};
use kiln_target_host::{RunError, Runner};

/// What goes into the main entry and what comes out of it, the bytes of one tensor after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ramp {
    /// For every input, byte i is i mod 256 - 128: what published figures are measured on. As float32 such bytes would be no numbers here and
    /// there, so there element i is (i mod 256 - 128) / 128.
    pub inputs: Vec<u8>,
    /// What this computer computes from them.
    pub outputs: Vec<u8>,
}

impl Ramp {
    /// Runs the plan's main entry on this computer; empty where it has none.
    ///
    /// # Errors
    ///
    /// [`RunError`], for a plan this computer can't run.
    pub fn run(graph: &Graph, planned: &Planned) -> Result<Self, RunError> {
        let Some(entry) = planned.main_entry() else { return Ok(Self { inputs: vec![], outputs: vec![] }) };
        let inputs = inputs(graph, entry);
        let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let outputs = Runner::new(&planned.bytes)?.run(&entry.name, &slices)?.concat();
        Ok(Self { inputs: inputs.concat(), outputs })
    }
}

/// Bytes for every input of an entry.
pub fn inputs(graph: &Graph, entry: &PlannedEntry) -> Vec<Vec<u8>> {
    entry.inputs.iter().map(|&id| ramp(&graph.value(id).ty)).collect()
}

fn ramp(ty: &TensorType) -> Vec<u8> {
    let byte = |i: u64| (i as u8).wrapping_sub(128);
    match ty.dtype {
        DType::F32 => {
            let element = |i| (f32::from(byte(i) as i8) / 128.0).to_le_bytes();
            (0..ty.shape.elements().unwrap_or(0)).flat_map(element).collect()
        }
        _ => (0..ty.bytes().unwrap_or(0)).map(byte).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ramp_begins_at_the_least_value_and_wraps() {
        let of = |dtype| ramp(&kiln_planner::graph::tensor_type(dtype, &[258]).unwrap());
        let bytes: Vec<i8> = of(DType::I8).into_iter().map(|byte| byte as i8).collect();
        assert_eq!((bytes[0], bytes[128], bytes[255], bytes[256], bytes.len()), (-128, 0, 127, -128, 258));
        let bytes = of(DType::F32);
        let number = |i: usize| f32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap());
        assert_eq!(
            [number(0), number(128), number(192), number(256), number(257)],
            [-1.0, 0.0, 0.5, -1.0, -0.992_187_5]
        );
    }
}
