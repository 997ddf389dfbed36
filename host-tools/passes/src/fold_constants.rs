//! Computing at plan time what does not depend on inputs or state.

use std::sync::Arc;

use kiln_core::DType;
use kiln_ops::{Arg, ArgMut, Effect, Op};
use kiln_planner::graph::{Graph, Node, Source, Value, ValueId};

use crate::PassError;
use crate::error::checked;

/// The most bytes by which folding one node may grow the constants.
pub const MAX_GROWTH: u64 = 64 << 10;

/// The most multiply-accumulates, and bytes read and written, that folding one graph may take, so
/// that no file keeps a host busy for long.
pub const MAX_WORK: u64 = 1 << 26;

/// Turns the results of nodes that read nothing but constants into constants, by the operators'
/// reference kernels.
///
/// Left as they are: nodes without inputs; results that an entry puts out, which need a place in
/// memory; values with dimensions that vary; results that would grow the constants by more than
/// [`MAX_GROWTH`]; whatever is left when [`MAX_WORK`] is used up; and nodes that the reference
/// refuses, or whose int8 operands aren't quantized: planning says what is wrong with those.
///
/// # Errors
///
/// The graph is not valid.
pub fn fold_constants(mut graph: Graph) -> Result<Graph, PassError> {
    graph.validate()?;
    let mut work = MAX_WORK;
    checked("fold_constants", &mut graph, |g| run(g, &mut work))?;
    Ok(graph)
}

/// The pass on a valid graph, within `work`; whether it changed anything.
pub(crate) fn run(graph: &mut Graph, work: &mut u64) -> bool {
    let Graph { values, entries, .. } = graph;
    let mut uses = vec![0u32; values.len()];
    for entry in entries.iter() {
        let read = entry.nodes.iter().flat_map(|n| &n.inputs).chain(&entry.outputs);
        read.chain(entry.assigns.iter().map(|a| &a.value)).for_each(|id| uses[id.index()] += 1);
    }
    let mut changed = false;
    for entry in entries {
        let outputs = &entry.outputs;
        entry.nodes.retain(|node| {
            if outputs.contains(&node.output) {
                return true;
            }
            let Some(data) = fold(values, &uses, node, work) else { return true };
            values[node.output.index()].source = Source::Constant(data);
            node.inputs.iter().for_each(|id| uses[id.index()] -= 1);
            changed = true;
            false
        });
    }
    changed
}

/// The bytes a node computes, where it may be folded.
fn fold(values: &[Value], uses: &[u32], node: &Node, work: &mut u64) -> Option<Arc<[u8]>> {
    let value = |id: ValueId| &values[id.index()];
    let output = value(node.output);
    let mut args = Vec::with_capacity(node.inputs.len());
    for &id in &node.inputs {
        let Value { ty, quant, source: Source::Constant(data), varying, .. } = value(id) else { return None };
        if !varying.is_empty() {
            return None;
        }
        args.push(Arg { ty: *ty, quant: quant.view(), data });
    }
    let bytes = output.ty.bytes()?;
    if args.is_empty() || !output.varying.is_empty() || bytes > MAX_GROWTH.saturating_add(freed(values, uses, node)) {
        return None;
    }
    let bare = |v: &Value| v.ty.dtype == DType::I8 && v.quant.scales.is_empty();
    let moves_bytes = matches!(node.op, Op::Copy(_) | Op::Transpose(_)) || matches!(node.op.effect(), Effect::View(_));
    if !moves_bytes && (bare(output) || node.inputs.iter().any(|&id| bare(value(id)))) {
        return None;
    }
    *work = work.checked_sub(cost(values, node))?;
    let mut data = vec![0; usize::try_from(bytes).ok()?];
    let mut result = ArgMut { ty: output.ty, quant: output.quant.view(), data: &mut data };
    node.op.reference(&args, &mut result).ok()?;
    Some(data.into())
}

/// Bytes of the constants that nobody but `node` reads.
fn freed(values: &[Value], uses: &[u32], node: &Node) -> u64 {
    let mut inputs = node.inputs.clone();
    inputs.sort_unstable();
    let runs = inputs.chunk_by(|a, b| a == b);
    let own = runs.filter(|run| run.first().is_some_and(|id| uses[id.index()] as usize == run.len()));
    let bytes = own.filter_map(|run| values[run.first()?.index()].ty.bytes());
    bytes.fold(0, u64::saturating_add)
}

/// What the reference kernel's loops come to.
fn cost(values: &[Value], node: &Node) -> u64 {
    let types: Vec<_> = node.inputs.iter().map(|id| values[id.index()].ty).collect();
    let output = values[node.output.index()].ty;
    let cost = node.op.cost(&types, &output);
    let taps = match node.op {
        // Additions and comparisons, which its cost does not count.
        Op::Pool2d(pool) => {
            let [h, w] = pool.kernel.map(u64::from);
            output.shape.elements().unwrap_or(u64::MAX).saturating_mul(h.saturating_mul(w))
        }
        _ => 0,
    };
    cost.macs.saturating_add(cost.bytes).saturating_add(taps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ops::{Activation, Add, Copy, FullyConnected};
    use kiln_planner::graph::{Assign, Entry, Extent, Quant, VaryingDim, tensor_type};

    fn graph() -> Graph {
        let mut g = Graph::new("fold");
        g.entries.push(Entry { name: "infer".into(), ..Entry::default() });
        g
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn chains_of_constants_become_one() {
        let mut g = graph();
        let ty = tensor_type(DType::F32, &[2]).unwrap();
        let add = Add { activation: Activation::None };
        let a = g.add_constant("a", ty, Quant::default(), floats(&[1.0, 2.0]));
        let x = g.add_input("x", ty, Quant::default());
        let b = g.add_node(0, "b", add, &[a, a], Quant::default()).unwrap();
        let c = g.add_node(0, "c", add, &[b, a], Quant::default()).unwrap();
        let y = g.add_node(0, "y", add, &[x, c], Quant::default()).unwrap();
        g.entries[0].inputs = vec![x];
        g.entries[0].outputs = vec![y];
        let g = fold_constants(g).unwrap();
        assert_eq!(g.entries[0].nodes.len(), 1);
        assert_eq!(g.constant_data(c), Some(&floats(&[3.0, 6.0])[..]));
        assert_eq!(g.value(c).name, "c");
    }

    #[test]
    fn outputs_state_and_varying_values_stay() {
        let mut g = graph();
        let ty = tensor_type(DType::I8, &[3]).unwrap();
        g.extents.push(Extent { name: "batch".into(), max: 3 });
        let c = g.add_constant("c", ty, Quant::default(), vec![1, 2, 3]);
        let state = g.add_state("state", ty, Quant::default());
        let y = g.add_node(0, "y", Copy, &[c], Quant::default()).unwrap();
        let s = g.add_node(0, "s", Copy, &[state], Quant::default()).unwrap();
        let v = g.add_node(0, "v", Copy, &[c], Quant::default()).unwrap();
        g.values[v.index()].varying.push(VaryingDim { axis: 0, extent: 0 });
        let z = g.add_node(0, "z", Copy, &[v], Quant::default()).unwrap();
        g.entries[0].outputs = vec![y, s, z];
        assert_eq!(fold_constants(g.clone()).unwrap(), g);
        // Assigned, though, a constant is as good as a result.
        g.entries[0].outputs = vec![s];
        g.entries[0].assigns = vec![Assign { state, value: y }];
        g.values.iter_mut().for_each(|value| value.varying.clear());
        assert_eq!(fold_constants(g).unwrap().entries[0].nodes.len(), 1);
    }

    #[test]
    fn constants_do_not_grow_beyond_the_limit() {
        // A column times a row: small operands, a large product.
        let product = |rows: u32, columns: u32| {
            let mut g = graph();
            let ty = |dims: &[u32]| tensor_type(DType::F32, dims).unwrap();
            let x = g.add_constant("x", ty(&[rows, 1]), Quant::default(), vec![0; rows as usize * 4]);
            let w = g.add_constant("w", ty(&[columns, 1]), Quant::default(), vec![0; columns as usize * 4]);
            let dense = FullyConnected { keep_dims: false, activation: Activation::None };
            let p = g.add_node(0, "p", dense, &[x, w], Quant::default()).unwrap();
            let y = g.add_node(0, "y", Copy, &[p], Quant::default()).unwrap();
            g.entries[0].outputs = vec![y];
            // Both stay in use, so that folding frees nothing.
            let keep = [x, w].map(|id| g.add_node(0, "kept", Copy, &[id], Quant::default()).unwrap());
            g.entries[0].outputs.extend(keep);
            fold_constants(g).unwrap().entries[0].nodes.len()
        };
        assert_eq!(product(128, 128), 3);
        assert_eq!(product(128, 129), 4);
    }

    #[test]
    fn large_constants_are_folded_where_they_are_freed() {
        let mut g = graph();
        let ty = tensor_type(DType::I8, &[1 << 20]).unwrap();
        let c = g.add_constant("c", ty, Quant::default(), vec![7; 1 << 20]);
        let d = g.add_node(0, "d", Copy, &[c], Quant::default()).unwrap();
        let y = g.add_node(0, "y", Copy, &[d], Quant::default()).unwrap();
        g.entries[0].outputs = vec![y];
        assert_eq!(fold_constants(g.clone()).unwrap().entries[0].nodes.len(), 1);
        g.entries[0].outputs.push(c);
        assert_eq!(fold_constants(g).unwrap().entries[0].nodes.len(), 2);
    }

    #[test]
    fn work_is_bounded() {
        let mut g = graph();
        let ty = tensor_type(DType::I8, &[1 << 20]).unwrap();
        let mut value = g.add_constant("c", ty, Quant::default(), vec![7; 1 << 20]);
        for index in 0..100 {
            value = g.add_node(0, index.to_string(), Copy, &[value], Quant::default()).unwrap();
        }
        g.entries[0].outputs = vec![value];
        // Each copy reads and writes a mebibyte, and 64 of them may be touched.
        assert_eq!(fold_constants(g).unwrap().entries[0].nodes.len(), 100 - 32);
    }

    #[test]
    fn what_planning_would_refuse_is_left_to_it() {
        let mut g = graph();
        let ty = tensor_type(DType::I8, &[2]).unwrap();
        let c = g.add_constant("c", ty, Quant::default(), vec![1, 2]);
        let dense = FullyConnected { keep_dims: false, activation: Activation::None };
        let w = g.add_constant("w", tensor_type(DType::I8, &[2, 2]).unwrap(), Quant::default(), vec![1; 4]);
        let d = g.add_node(0, "d", dense, &[c, w], Quant::default()).unwrap();
        let y = g.add_node(0, "y", Copy, &[d], Quant::default()).unwrap();
        g.entries[0].outputs = vec![y];
        assert_eq!(fold_constants(g.clone()).unwrap(), g);
    }
}
