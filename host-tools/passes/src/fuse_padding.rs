//! Padding becomes part of the convolution over it.

use kiln_core::DType;
use kiln_ops::{Concat, Op};
use kiln_planner::graph::{Entry, Graph, Node, Source, ValueId};

use crate::PassError;
use crate::error::checked;

/// Makes rows and columns of zeros around an image, which a concatenation puts there, part of the padding of the convolution
/// that alone reads it: converters write them as an operator of their own before a convolution with a stride. The image
/// need not be copied then. A convolution's padding counts as zero, so for int8 every bit stays; float32 needs constant weights that
/// are finite, since zero times others is not zero.
///
/// # Errors
///
/// The graph is not valid.
pub fn fuse_padding(mut graph: Graph) -> Result<Graph, PassError> {
    graph.validate()?;
    checked("fuse_padding", &mut graph, run)?;
    Ok(graph)
}

/// The pass on a valid graph; whether it changed anything.
pub(crate) fn run(graph: &mut Graph) -> bool {
    let mut changed = false;
    for number in 0..graph.entries.len() {
        let count = graph.entries[number].nodes.len();
        for index in 0..count {
            while let Some(node) = unpadded(graph, &graph.entries[number], index) {
                graph.entries[number].nodes[index] = node;
                changed = true;
            }
        }
    }
    changed
}

/// The convolution at `index` over what the image is without its zeros.
fn unpadded(graph: &Graph, entry: &Entry, index: usize) -> Option<Node> {
    let node = entry.nodes.get(index)?;
    let Op::Conv2d(mut conv) = node.op else { return None };
    let [image, weights, ..] = node.inputs[..] else { return None };
    let readers = entry.nodes.iter().flat_map(|node| &node.inputs).filter(|&&read| read == image).count();
    if readers != 1 || entry.outputs.contains(&image) || entry.assigns.iter().any(|assign| assign.value == image) {
        return None;
    }
    let padding = entry.nodes.iter().find(|node| node.output == image)?;
    let Op::Concat(Concat { axis }) = padding.op else { return None };
    // Of height, width: which of the convolution's four.
    let before = match axis {
        1 => 0,
        2 => 1,
        _ => return None,
    };
    let inner = padding.inputs.iter().position(|&part| !is_zeros(graph, part))?;
    let (above, rest) = padding.inputs.split_at(inner);
    let (&source, below) = rest.split_first()?;
    let alike = graph.value(source).quant == graph.value(image).quant;
    let exact = match graph.value(image).ty.dtype {
        DType::I8 => true,
        DType::F32 => graph
            .constant_data(weights)
            .is_some_and(|data| data.as_chunks().0.iter().all(|&bytes| f32::from_le_bytes(bytes).is_finite())),
        _ => false,
    };
    if !alike || !exact || !below.iter().all(|&part| is_zeros(graph, part)) {
        return None;
    }
    let size = |parts: &[ValueId]| -> Option<u32> {
        parts.iter().try_fold(0u32, |sum, &part| sum.checked_add(graph.value(part).ty.shape.dim(axis as usize)))
    };
    for (place, parts) in [(before, above), (before + 2, below)] {
        conv.pads[place] = conv.pads[place].checked_add(size(parts)?)?;
    }
    let mut inputs = node.inputs.clone();
    inputs[0] = source;
    // A rule may allow less padding than there were zeros.
    let same = Op::Conv2d(conv).output(&graph.types(&inputs)).ok()? == graph.value(node.output).ty;
    same.then(|| Node { op: conv.into(), inputs, ..node.clone() })
}

/// Whether a value is a constant of nothing but zeros, as its quantization has them.
fn is_zeros(graph: &Graph, id: ValueId) -> bool {
    let value = graph.value(id);
    let Source::Constant(data) = &value.source else { return false };
    match value.ty.dtype {
        DType::I8 => {
            let zero = value.quant.zero_points.first().copied().unwrap_or(0);
            value.quant.zero_points.len() <= 1 && data.iter().all(|&byte| i32::from(byte as i8) == zero)
        }
        DType::F32 => data.as_chunks().0.iter().all(|&bytes| u32::from_le_bytes(bytes) == 0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ops::{Activation, Conv2d};
    use kiln_planner::graph::{Quant, tensor_type};
    use kiln_planner::reference::Evaluator;

    /// A convolution over an image with so many rows and columns around it, of `fill`.
    fn graph(dtype: DType, around: [u32; 4], fill: i8) -> Graph {
        let mut graph = Graph::new("padded");
        let real = dtype == DType::F32;
        let quant = if real { Quant::default() } else { Quant::per_tensor(0.05, -3) };
        let x = graph.add_input("x", tensor_type(dtype, &[1, 5, 6, 2]).unwrap(), quant.clone());
        graph.entries.push(Entry { name: "infer".into(), inputs: vec![x], ..Entry::default() });
        let mut value = x;
        for (axis, sizes) in [(1, [around[0], around[2]]), (2, [around[1], around[3]])] {
            let mut parts = Vec::new();
            for (place, size) in sizes.into_iter().enumerate() {
                if size > 0 {
                    let mut dims = graph.value(value).ty.shape.dims().to_vec();
                    dims[axis] = size;
                    let ty = tensor_type(dtype, &dims).unwrap();
                    let data = vec![if real { 0 } else { fill as u8 }; ty.bytes().unwrap() as usize];
                    parts.push(graph.add_constant("zeros", ty, quant.clone(), data));
                }
                if place == 0 {
                    parts.push(value);
                }
            }
            value = graph.add_node(0, "pad", Concat { axis: axis as u8 }, &parts, quant.clone()).unwrap();
        }
        let weights: Vec<u8> = match real {
            true => (0..36).flat_map(|i| (i as f32 / 9.0 - 2.0).to_le_bytes()).collect(),
            false => (0..36u8).map(|i| i.wrapping_mul(89)).collect(),
        };
        let of = if real { Quant::default() } else { Quant::per_tensor(0.01, 0) };
        let weights = graph.add_constant("w", tensor_type(dtype, &[2, 3, 3, 2]).unwrap(), of, weights);
        let conv =
            Conv2d { strides: [2; 2], dilations: [1; 2], pads: [0, 1, 0, 0], groups: 1, activation: Activation::None };
        let y = graph.add_node(0, "conv", conv, &[value, weights], quant).unwrap();
        graph.entries[0].outputs.push(y);
        graph
    }

    fn output(graph: &Graph) -> Vec<u8> {
        let ty = graph.value(graph.entries[0].inputs[0]).ty;
        let input: Vec<u8> = match ty.dtype {
            DType::F32 => (0..60).flat_map(|i| (i as f32 * 0.37 - 9.0).to_le_bytes()).collect(),
            _ => (0..60u8).map(|i| i.wrapping_mul(37)).collect(),
        };
        let values = Evaluator::new(graph).run(0, &[&input]).unwrap();
        values[&graph.entries[0].outputs[0]].clone()
    }

    #[test]
    fn zeros_around_an_image_become_padding() {
        for dtype in [DType::I8, DType::F32] {
            for around in [[1, 1, 1, 1], [0, 0, 1, 1], [2, 0, 0, 1], [0, 1, 1, 0]] {
                let graph = graph(dtype, around, -3);
                let cleaned = crate::clean(graph.clone()).unwrap().graph;
                let nodes = &cleaned.entries[0].nodes;
                let [Op::Conv2d(conv)] = nodes.iter().map(|node| node.op).collect::<Vec<_>>()[..] else {
                    panic!("{around:?}: {nodes:?}");
                };
                // One column of padding was there before.
                assert_eq!(conv.pads, [around[0], around[1] + 1, around[2], around[3]]);
                assert_eq!(output(&cleaned), output(&graph), "{around:?}");
            }
        }
    }

    #[test]
    fn what_is_not_zero_or_read_elsewhere_stays() {
        let other = graph(DType::I8, [1; 4], 0);
        assert_eq!(crate::clean(other.clone()).unwrap().graph.entries[0].nodes.len(), 3);
        let mut seen = graph(DType::I8, [1; 4], -3);
        let padded = seen.entries[0].nodes[1].output;
        seen.entries[0].outputs.push(padded);
        assert_eq!(crate::clean(seen).unwrap().graph.entries[0].nodes.len(), 3);
    }
}
