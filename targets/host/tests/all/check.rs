//! What a plan's tensors promise, checked from the report alone.

use std::collections::HashMap;

use kiln_core::Direction;
use kiln_kernels::table::{Operand, Operation};
use kiln_ops::Effect;
use kiln_planner::graph::{Graph, ValueId};
use kiln_planner::{Planned, PlannedStep, PlannedTensor, Region};

/// Tensors that are needed at the same step share no byte, unless one is the output of that step,
/// the other an input that is not needed afterwards, and the row's lag allows what they do.
pub(crate) fn no_overlap_unproven(graph: &Graph, planned: &Planned) {
    for (number, entry) in planned.entries.iter().enumerate() {
        let roots = roots(graph, number);
        let in_ram = |t: &&PlannedTensor| matches!(t.region, Region::Arena | Region::Scratch) && t.bytes > 0;
        let tensors: Vec<&PlannedTensor> = entry.tensors.iter().filter(in_ram).collect();
        for (i, a) in tensors.iter().enumerate() {
            assert!(a.bank > 0 || a.offset >= planned.state_bytes);
            assert!(a.offset + a.bytes <= planned.banks[a.bank as usize]);
            for b in &tensors[i + 1..] {
                let together = a.first_step <= b.last_step && b.first_step <= a.last_step;
                let shared = a.bank == b.bank && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
                if !together || !shared {
                    continue;
                }
                let (input, output) = if a.last_step <= b.first_step { (a, b) } else { (b, a) };
                let step = &entry.steps[output.first_step];
                let what = format!("'{}' and '{}' in step '{}'", input.name, output.name, step.name);
                assert_eq!(input.last_step, output.first_step, "{what} share bytes for longer");
                assert!(may_overlap(graph, &roots, step, input, output), "{what} share bytes\n{graph:#?}");
            }
        }
        assert!(entry.lower_bound <= entry.arena);
        assert_eq!(entry.optimal, entry.lower_bound == entry.arena);
    }
}

/// The value whose bytes each view shows.
fn roots(graph: &Graph, entry: usize) -> HashMap<ValueId, ValueId> {
    let mut roots: HashMap<ValueId, ValueId> = HashMap::new();
    for node in &graph.entries[entry].nodes {
        if let Effect::View(i) = node.op.effect() {
            let from = node.inputs[i];
            roots.insert(node.output, roots.get(&from).copied().unwrap_or(from));
        }
    }
    roots
}

fn may_overlap(
    graph: &Graph,
    roots: &HashMap<ValueId, ValueId>,
    step: &PlannedStep,
    input: &PlannedTensor,
    output: &PlannedTensor,
) -> bool {
    if output.value != Some(step.output) || step.node.is_none() {
        return false;
    }
    let operand = |id: ValueId| {
        let value = graph.value(id);
        Operand { ty: value.ty, quant: value.quant.view(), data: graph.constant_data(id) }
    };
    let inputs: Vec<Operand<'_>> = step.inputs.iter().map(|&id| operand(id)).collect();
    let operation = Operation { op: step.op, inputs: &inputs, output: operand(step.output) };
    let root = |id: &ValueId| Some(roots.get(id).copied().unwrap_or(*id));
    let mut roles = step.inputs.iter().enumerate().filter(|(_, id)| root(id) == input.value).peekable();
    roles.peek().is_some()
        && step.kernel.directions.contains(&step.direction)
        && roles.all(|(index, _)| {
            let lag = (step.kernel.lag)(&operation, index, step.direction);
            lag.is_some_and(|lag| match step.direction {
                Direction::Up => output.offset + lag <= input.offset,
                Direction::Down => output.offset + output.bytes >= input.offset + input.bytes + lag,
            })
        })
}
