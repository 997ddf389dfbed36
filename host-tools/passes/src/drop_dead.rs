//! Dropping what nobody needs.

use kiln_planner::graph::{Entry, Graph, ValueId};

use crate::PassError;
use crate::error::checked;

/// Drops nodes whose result nobody needs, then values that nobody uses; the rest is numbered anew,
/// in the same order. Inputs of entries stay, read or not: callers fill them. State that is assigned
/// stays, and so does what it is assigned.
///
/// # Errors
///
/// The graph is not valid.
pub fn drop_dead(mut graph: Graph) -> Result<Graph, PassError> {
    graph.validate()?;
    checked("drop_dead", &mut graph, run)?;
    Ok(graph)
}

/// The pass on a valid graph; whether it changed anything.
pub(crate) fn run(graph: &mut Graph) -> bool {
    let mut used = vec![false; graph.values.len()];
    let mut changed = false;
    for entry in &mut graph.entries {
        changed |= drop_nodes(entry, &mut used);
    }
    if used.iter().all(|used| *used) {
        return changed;
    }
    let mut numbers = vec![ValueId(0); used.len()];
    let kept = numbers.iter_mut().zip(&used).filter(|(_, used)| **used);
    for (next, (number, _)) in kept.enumerate() {
        *number = ValueId(next as u32);
    }
    let mut keep = used.iter();
    graph.values.retain(|_| keep.next().is_some_and(|used| *used));
    for entry in &mut graph.entries {
        values_of(entry).for_each(|id| *id = numbers[id.index()]);
    }
    true
}

/// Drops an entry's dead nodes, and marks the values that the entry uses.
fn drop_nodes(entry: &mut Entry, used: &mut [bool]) -> bool {
    let assigned = entry.assigns.iter().flat_map(|a| [a.state, a.value]);
    for id in entry.inputs.iter().chain(&entry.outputs).copied().chain(assigned) {
        used[id.index()] = true;
    }
    let before = entry.nodes.len();
    // From the last node to the first: a node's readers all come after it.
    let mut live: Vec<bool> = Vec::with_capacity(before);
    for node in entry.nodes.iter().rev() {
        let needed = used[node.output.index()];
        if needed {
            node.inputs.iter().for_each(|id| used[id.index()] = true);
        }
        live.push(needed);
    }
    let mut keep = live.iter().rev();
    entry.nodes.retain(|_| keep.next().is_some_and(|live| *live));
    entry.nodes.len() != before
}

/// Every mention of a value in an entry.
fn values_of(entry: &mut Entry) -> impl Iterator<Item = &mut ValueId> {
    let nodes = entry.nodes.iter_mut().flat_map(|n| n.inputs.iter_mut().chain([&mut n.output]));
    let assigns = entry.assigns.iter_mut().flat_map(|a| [&mut a.state, &mut a.value]);
    entry.inputs.iter_mut().chain(&mut entry.outputs).chain(nodes).chain(assigns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::DType;
    use kiln_ops::Copy;
    use kiln_planner::graph::{Assign, Quant, tensor_type};

    #[test]
    fn dead_chains_go_and_what_is_left_is_numbered_anew() {
        let mut g = Graph::new("dead");
        let ty = tensor_type(DType::I8, &[4]).unwrap();
        let quant = Quant::default;
        g.entries.push(Entry { name: "infer".into(), ..Entry::default() });
        g.add_constant("unused", ty, quant(), vec![0; 4]);
        let x = g.add_input("x", ty, quant());
        let idle = g.add_input("idle", ty, quant());
        let unused_state = g.add_state("unused state", ty, quant());
        let state = g.add_state("state", ty, quant());
        let dead = g.add_node(0, "dead", Copy, &[x], quant()).unwrap();
        g.add_node(0, "deader", Copy, &[dead], quant()).unwrap();
        let next = g.add_node(0, "next", Copy, &[x], quant()).unwrap();
        let y = g.add_node(0, "y", Copy, &[x], quant()).unwrap();
        g.entries[0].inputs = vec![x, idle];
        g.entries[0].outputs = vec![y];
        g.entries[0].assigns = vec![Assign { state, value: next }];
        assert_eq!(g.value(unused_state).name, "unused state");

        let g = drop_dead(g).unwrap();
        let names: Vec<&str> = g.values.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(names, ["x", "idle", "state", "next", "y"]);
        let nodes: Vec<&str> = g.entries[0].nodes.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(nodes, ["next", "y"]);
        assert_eq!(g.entries[0].assigns, [Assign { state: ValueId(2), value: ValueId(3) }]);
        assert_eq!(
            (&g.entries[0].inputs[..], &g.entries[0].outputs[..]),
            (&[ValueId(0), ValueId(1)][..], &[ValueId(4)][..])
        );
        assert_eq!(drop_dead(g.clone()).unwrap(), g);
    }

    #[test]
    fn what_another_entry_needs_stays() {
        let mut g = Graph::new("shared");
        let ty = tensor_type(DType::I8, &[2]).unwrap();
        let c = g.add_constant("c", ty, Quant::default(), vec![1, 2]);
        for name in ["a", "b"] {
            g.entries.push(Entry { name: name.into(), ..Entry::default() });
        }
        g.add_node(0, "dead", Copy, &[c], Quant::default()).unwrap();
        let y = g.add_node(1, "y", Copy, &[c], Quant::default()).unwrap();
        g.entries[1].outputs = vec![y];
        let g = drop_dead(g).unwrap();
        assert!(g.entries[0].nodes.is_empty());
        assert_eq!(g.entries[1].nodes[0].inputs, [ValueId(0)]);
        assert_eq!(g.values.len(), 2);
    }

    #[test]
    fn graphs_that_are_not_valid_are_refused() {
        let mut g = Graph::new("wrong");
        g.entries.push(Entry { outputs: vec![ValueId(7)], ..Entry::default() });
        assert!(matches!(drop_dead(g), Err(PassError::Invalid(_))));
    }
}
