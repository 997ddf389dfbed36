//! Running a graph's reference kernels node by node: slow, plain, and independent of plans.

use std::collections::HashMap;

use kiln_ops::{Arg, ArgMut};

use crate::graph::{Graph, GraphError, Source, ValueId};

/// Evaluates entries with the operators' references, keeping state from run to run.
pub struct Evaluator<'g> {
    graph: &'g Graph,
    state: HashMap<ValueId, Vec<u8>>,
}

impl<'g> Evaluator<'g> {
    /// An evaluator with all state zero. The graph must be valid.
    pub fn new(graph: &'g Graph) -> Evaluator<'g> {
        Evaluator { graph, state: HashMap::new() }
    }

    /// Runs entry number `entry` on `inputs`, each as long as its type says, and gives every value
    /// it computed, inputs included.
    pub fn run(&mut self, entry: usize, inputs: &[&[u8]]) -> Result<HashMap<ValueId, Vec<u8>>, GraphError> {
        let graph = self.graph;
        let entry = &graph.entries[entry];
        let mut values: HashMap<ValueId, Vec<u8>> = HashMap::new();
        for (&id, data) in entry.inputs.iter().zip(inputs) {
            values.insert(id, data.to_vec());
        }
        for (id, value) in graph.values.iter().enumerate() {
            if value.source == Source::State {
                let zeros = || vec![0; value.ty.bytes().unwrap_or(0) as usize];
                self.state.entry(ValueId(id as u32)).or_insert_with(zeros);
            }
        }
        for node in &entry.nodes {
            let output = graph.value(node.output);
            let mut out = vec![0; output.ty.bytes().unwrap_or(0) as usize];
            let args: Vec<Arg<'_>> = node
                .inputs
                .iter()
                .map(|&id| {
                    let value = graph.value(id);
                    Arg { ty: value.ty, quant: value.quant.view(), data: read(graph, &values, &self.state, id) }
                })
                .collect();
            let mut arg = ArgMut { ty: output.ty, quant: output.quant.view(), data: &mut out };
            node.op.reference(&args, &mut arg).map_err(|error| GraphError::Op {
                entry: entry.name.clone(),
                node: node.name.clone(),
                op: node.op.name(),
                error,
            })?;
            values.insert(node.output, out);
        }
        let assigned: Vec<_> =
            entry.assigns.iter().map(|a| (a.state, read(graph, &values, &self.state, a.value).to_vec())).collect();
        for &id in &entry.outputs {
            if !values.contains_key(&id) {
                values.insert(id, read(graph, &values, &self.state, id).to_vec());
            }
        }
        self.state.extend(assigned);
        Ok(values)
    }
}

fn read<'a>(
    graph: &'a Graph,
    values: &'a HashMap<ValueId, Vec<u8>>,
    state: &'a HashMap<ValueId, Vec<u8>>,
    id: ValueId,
) -> &'a [u8] {
    match &graph.value(id).source {
        Source::Constant(data) => data,
        Source::State => state.get(&id).map_or(&[], |s| s),
        _ => values.get(&id).map_or(&[], |v| v),
    }
}
