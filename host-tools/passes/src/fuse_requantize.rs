//! Pairs of dequantize and quantize become one step in int8, or none.

use std::collections::HashMap;

use kiln_core::DType;
use kiln_ops::{Dequantize, Op, Quantize};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};
use kiln_planner::reference::Evaluator;

use crate::PassError;
use crate::error::checked;

/// All numbers of int8.
const NUMBERS: u32 = 256;

/// Lets a quantize that reads what a dequantize makes of int8 read the int8 itself, where all 256 numbers come out the same;
/// and where they come out as they went in, its readers read that. What the dequantize leaves, if anything reads it,
/// stays.
///
/// # Errors
///
/// The graph is not valid.
pub fn fuse_requantize(mut graph: Graph) -> Result<Graph, PassError> {
    graph.validate()?;
    checked("fuse_requantize", &mut graph, run)?;
    Ok(graph)
}

/// What becomes of a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pair {
    /// Nothing changes.
    None,
    /// One step from int8 to int8.
    One,
    /// Both stay.
    Both,
}

/// The pass on a valid graph; whether it changed anything.
pub(crate) fn run(graph: &mut Graph) -> bool {
    let mut changed = false;
    for number in 0..graph.entries.len() {
        let entry = &graph.entries[number];
        let made: HashMap<ValueId, usize> = entry.nodes.iter().enumerate().map(|(i, node)| (node.output, i)).collect();
        let mut instead: HashMap<ValueId, ValueId> = HashMap::new();
        for index in 0..graph.entries[number].nodes.len() {
            let entry = &graph.entries[number];
            let node = &entry.nodes[index];
            let Some(source) = dequantized(graph, entry, &made, index) else { continue };
            let output = node.output;
            let read = entry.outputs.contains(&output);
            match pair(&graph.value(source).quant, &graph.value(output).quant) {
                Pair::None if !read => {
                    instead.insert(output, source);
                }
                Pair::None | Pair::One => {
                    graph.entries[number].nodes[index].inputs = vec![source];
                    changed = true;
                }
                Pair::Both => {}
            }
        }
        let entry = &mut graph.entries[number];
        let inputs = entry.nodes.iter_mut().flat_map(|node| &mut node.inputs);
        for read in inputs.chain(entry.assigns.iter_mut().map(|assign| &mut assign.value)) {
            // What is read instead may itself be read through another.
            while let Some(&other) = instead.get(read) {
                *read = other;
                changed = true;
            }
        }
    }
    changed
}

/// The int8 value that the quantize at `index` reads by way of a dequantize.
fn dequantized(graph: &Graph, entry: &Entry, made: &HashMap<ValueId, usize>, index: usize) -> Option<ValueId> {
    let node = &entry.nodes[index];
    let (Op::Quantize(_), [real]) = (node.op, &node.inputs[..]) else { return None };
    let source = entry.nodes.get(*made.get(real)?)?;
    let (Op::Dequantize(_), &[source]) = (source.op, &source.inputs[..]) else { return None };
    let int8 = |id: ValueId| graph.value(id).ty.dtype == DType::I8 && graph.value(id).quant.scales.len() == 1;
    (int8(source) && int8(node.output)).then_some(source)
}

/// What numbers of `from` come out as, tried for all of them by the operators' references.
fn pair(from: &Quant, to: &Quant) -> Pair {
    let tried = || {
        let mut graph = Graph::new("numbers");
        let (small, real) = (tensor_type(DType::I8, &[NUMBERS])?, Quant::default());
        let x = graph.add_input("x", small, from.clone());
        graph.entries.push(Entry { name: "all".into(), inputs: vec![x], ..Entry::default() });
        let middle = graph.add_node(0, "dequantize", Dequantize, &[x], real).ok()?;
        let both = graph.add_node(0, "quantize", Quantize, &[middle], to.clone()).ok()?;
        let one = graph.add_node(0, "requantize", Quantize, &[x], to.clone()).ok()?;
        let numbers: Vec<u8> = (0..=u8::MAX).collect();
        let values = Evaluator::new(&graph).run(0, &[&numbers]).ok()?;
        let [both, one] = [both, one].map(|id| values.get(&id));
        Some(match both == Some(&numbers) {
            _ if both != one => Pair::Both,
            true if from == to => Pair::None,
            _ => Pair::One,
        })
    };
    tried().unwrap_or(Pair::Both)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// x, through pairs of dequantize and quantize into each of these.
    fn graph(first: Quant, others: &[Quant]) -> Graph {
        let mut graph = Graph::new("pairs");
        let mut value = graph.add_input("x", tensor_type(DType::I8, &[NUMBERS]).unwrap(), first);
        graph.entries.push(Entry { name: "infer".into(), inputs: vec![value], ..Entry::default() });
        for quant in others {
            let real = graph.add_node(0, "real", Dequantize, &[value], Quant::default()).unwrap();
            value = graph.add_node(0, "small", Quantize, &[real], quant.clone()).unwrap();
        }
        // Something that reads the last one, which may go then.
        let last = graph.add_node(0, "out", kiln_ops::Copy, &[value], graph.value(value).quant.clone()).unwrap();
        graph.entries[0].outputs.push(last);
        graph
    }

    fn outputs(graph: &Graph) -> Vec<u8> {
        let numbers: Vec<u8> = (0..=u8::MAX).collect();
        let values = Evaluator::new(graph).run(0, &[&numbers]).unwrap();
        values[&graph.entries[0].outputs[0]].clone()
    }

    fn left(graph: &Graph) -> Vec<&'static str> {
        graph.entries[0].nodes.iter().map(|node| node.op.name()).collect()
    }

    #[test]
    fn pairs_that_change_nothing_go_and_others_become_one_step() {
        let a = Quant::per_tensor(0.05, -3);
        let clean = |graph: &Graph| crate::clean(graph.clone()).unwrap().graph;
        let same = graph(a.clone(), &[a.clone(), a.clone()]);
        let cleaned = clean(&same);
        assert_eq!(left(&cleaned), ["copy"]);
        assert_eq!(outputs(&cleaned), outputs(&same));
        let mut one = 0;
        for step in 0..40 {
            let other = Quant::per_tensor(0.02 + 0.003 * step as f32, step - 20);
            let changes = graph(a.clone(), &[other]);
            let cleaned = clean(&changes);
            assert_eq!(outputs(&cleaned), outputs(&changes));
            one += usize::from(left(&cleaned) == ["quantize", "copy"]);
        }
        // Where a number lies just between two others, the roundings differ, and the pair stays.
        assert!((20..=40).contains(&one), "{one}");
    }

    #[test]
    fn a_pair_whose_result_is_put_out_keeps_it() {
        let a = Quant::per_tensor(0.05, -3);
        let mut graph = graph(a.clone(), &[a]);
        graph.entries[0].nodes.pop();
        graph.entries[0].outputs = vec![graph.entries[0].nodes[1].output];
        let fused = crate::clean(graph.clone()).unwrap().graph;
        assert_eq!(left(&fused), ["quantize"]);
        assert_eq!(outputs(&fused), outputs(&graph));
    }
}
