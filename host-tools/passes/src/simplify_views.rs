//! Fewer reshapes. They cost nothing in a plan, but stand between constants and what reads them.

use kiln_ops::{Op, Reshape};
use kiln_planner::graph::{Graph, Node, Source, Value, ValueId};

use crate::PassError;
use crate::error::checked;

/// Simplifies reshapes:
///
/// - one that reads another's result reads what that one reads;
/// - one that changes nothing (shape, quantization, dimensions that vary) goes, and its readers read
///   what it read;
/// - one of a constant becomes a constant that shares the bytes.
///
/// Results that an entry puts out keep their node, and with it their name and place in memory.
///
/// # Errors
///
/// The graph is not valid.
pub fn simplify_views(mut graph: Graph) -> Result<Graph, PassError> {
    graph.validate()?;
    checked("simplify_views", &mut graph, run)?;
    Ok(graph)
}

/// The pass on a valid graph; whether it changed anything.
pub(crate) fn run(graph: &mut Graph) -> bool {
    let mut changed = false;
    let Graph { values, entries, .. } = graph;
    // For each value that need not be read: what to read instead; and for each reshape: what of.
    let mut instead: Vec<Option<ValueId>> = vec![None; values.len()];
    let mut source: Vec<Option<ValueId>> = vec![None; values.len()];
    for entry in entries {
        let outputs = &entry.outputs;
        entry.nodes.retain_mut(|node| {
            changed |= redirect(&mut node.inputs, &instead);
            let Some(input) = reshaped(node) else { return true };
            // Nodes are visited in order, so what `input` is a reshape of is no reshape itself.
            let input = match source[input.index()] {
                Some(first) => {
                    node.inputs = vec![first];
                    changed = true;
                    first
                }
                None => input,
            };
            source[node.output.index()] = Some(input);
            if outputs.contains(&node.output) {
                return true;
            }
            let (from, to) = (&values[input.index()], &values[node.output.index()]);
            if same(from, to) {
                instead[node.output.index()] = Some(input);
            } else if let Source::Constant(data) = &from.source
                && from.varying.is_empty()
                && to.varying.is_empty()
            {
                let data = data.clone();
                values[node.output.index()].source = Source::Constant(data);
                source[node.output.index()] = None;
            } else {
                return true;
            }
            changed = true;
            false
        });
        changed |= redirect(entry.assigns.iter_mut().map(|a| &mut a.value), &instead);
    }
    changed
}

/// What a reshape reads; `None` for other nodes.
fn reshaped(node: &Node) -> Option<ValueId> {
    match (node.op, &node.inputs[..]) {
        (Op::Reshape(Reshape { .. }), &[input]) => Some(input),
        _ => None,
    }
}

/// Whether reading one value is the same as reading the other, which has the same bytes.
fn same(a: &Value, b: &Value) -> bool {
    a.ty == b.ty && a.quant == b.quant && a.varying == b.varying
}

fn redirect<'a>(ids: impl IntoIterator<Item = &'a mut ValueId>, instead: &[Option<ValueId>]) -> bool {
    let mut changed = false;
    for id in ids {
        if let Some(other) = instead[id.index()] {
            *id = other;
            changed = true;
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::DType;
    use kiln_ops::Copy;
    use kiln_planner::graph::{Assign, Entry, Quant, tensor_type};

    fn reshape(dims: &[u32]) -> Reshape {
        Reshape { shape: tensor_type(DType::I8, dims).unwrap().shape }
    }

    fn graph() -> (Graph, ValueId) {
        let mut g = Graph::new("views");
        let x = g.add_input("x", tensor_type(DType::I8, &[2, 3]).unwrap(), Quant::per_tensor(0.5, 1));
        g.entries.push(Entry { name: "infer".into(), inputs: vec![x], ..Entry::default() });
        (g, x)
    }

    #[test]
    fn chains_read_the_first() {
        let (mut g, x) = graph();
        let q = || Quant::per_tensor(0.5, 1);
        let a = g.add_node(0, "a", reshape(&[6]), &[x], q()).unwrap();
        let b = g.add_node(0, "b", reshape(&[3, 2]), &[a], q()).unwrap();
        let c = g.add_node(0, "c", reshape(&[1, 6]), &[b], q()).unwrap();
        g.entries[0].outputs = vec![c];
        let g = simplify_views(g).unwrap();
        assert!(g.entries[0].nodes.iter().all(|n| n.inputs == [x]));
        assert_eq!(simplify_views(g.clone()).unwrap(), g);
    }

    #[test]
    fn a_reshape_to_the_same_shape_goes_unless_it_says_something_new() {
        let (mut g, x) = graph();
        let q = || Quant::per_tensor(0.5, 1);
        let same = g.add_node(0, "same", reshape(&[2, 3]), &[x], q()).unwrap();
        let scaled = g.add_node(0, "scaled", reshape(&[2, 3]), &[x], Quant::per_tensor(0.25, 1)).unwrap();
        let read = g.add_node(0, "read", Copy, &[same], q()).unwrap();
        let read_scaled = g.add_node(0, "read scaled", Copy, &[scaled], q()).unwrap();
        let out = g.add_node(0, "out", reshape(&[2, 3]), &[same], q()).unwrap();
        let state = g.add_state("state", g.value(x).ty, q());
        g.entries[0].outputs = vec![read, read_scaled, out];
        g.entries[0].assigns = vec![Assign { state, value: same }];
        let g = simplify_views(g).unwrap();
        let nodes: Vec<(&str, ValueId)> = g.entries[0].nodes.iter().map(|n| (n.name.as_str(), n.inputs[0])).collect();
        assert_eq!(nodes, [("scaled", x), ("read", x), ("read scaled", scaled), ("out", x)]);
        assert_eq!(g.entries[0].assigns[0].value, x);
        assert_eq!(simplify_views(g.clone()).unwrap(), g);
    }

    #[test]
    fn there_and_back_again_is_nothing() {
        let (mut g, x) = graph();
        let q = || Quant::per_tensor(0.5, 1);
        let there = g.add_node(0, "there", reshape(&[6]), &[x], q()).unwrap();
        let back = g.add_node(0, "back", reshape(&[2, 3]), &[there], q()).unwrap();
        let y = g.add_node(0, "y", Copy, &[back], q()).unwrap();
        g.entries[0].outputs = vec![y];
        let g = simplify_views(g).unwrap();
        assert_eq!(g.entries[0].nodes.last().unwrap().inputs, [x]);
    }

    #[test]
    fn constants_are_reshaped_at_once_and_share_their_bytes() {
        let (mut g, _) = graph();
        let c = g.add_constant("c", tensor_type(DType::I8, &[6]).unwrap(), Quant::default(), vec![1, 2, 3, 4, 5, 6]);
        let a = g.add_node(0, "a", reshape(&[2, 3]), &[c], Quant::default()).unwrap();
        let b = g.add_node(0, "b", reshape(&[3, 2]), &[a], Quant::default()).unwrap();
        let y = g.add_node(0, "y", Copy, &[b], Quant::default()).unwrap();
        let out = g.add_node(0, "out", reshape(&[3, 2]), &[c], Quant::default()).unwrap();
        g.entries[0].outputs = vec![y, out];
        let g = simplify_views(g).unwrap();
        assert_eq!(g.entries[0].nodes.len(), 2);
        assert_eq!(g.constant_data(b).map(<[u8]>::as_ptr), g.constant_data(c).map(<[u8]>::as_ptr));
        assert_eq!(g.value(out).source, Source::Node);
        assert_eq!(simplify_views(g.clone()).unwrap(), g);
    }
}
