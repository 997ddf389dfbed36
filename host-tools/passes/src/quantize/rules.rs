//! Which operators have an int8 form, and where their output's quantization comes from.

use kiln_core::DType;
use kiln_ops::{LOG_SOFTMAX_OUTPUT, Op};
use kiln_planner::graph::{Graph, Node, Quant, Source};

/// How a node becomes int8.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Rule {
    /// Weights and bias become int8 and int32; the output has the range that was observed.
    Weighted,
    /// The output has the range that was observed.
    Observed,
    /// The output has its first input's quantization.
    Kept,
    /// A view, which computes nothing: int8 if its input is there as int8, else float32.
    View,
    /// TFLite fixes the output's quantization.
    Fixed(Quant),
    /// int8 already, as what it reads is: its value needs no node.
    Dequantize,
    /// It is of other types, or makes them of float32; it stays as it is.
    Other,
    /// It stays float32; why.
    Float(&'static str),
}

impl Rule {
    /// The rule for a node of `graph`.
    pub(super) fn of(graph: &Graph, node: &Node) -> Rule {
        let real = |id| graph.value(id).ty.dtype == DType::F32;
        if let (Op::Dequantize(_), &[x]) = (node.op, &node.inputs[..])
            && graph.value(x).quant.scales.len() == 1
        {
            return Rule::Dequantize;
        }
        if !real(node.output) || !node.inputs.iter().all(|&id| real(id)) {
            return Rule::Other;
        }
        let constant = |id| matches!(graph.value(id).source, Source::Constant(_));
        match node.op {
            Op::Conv2d(_) | Op::FullyConnected(_) if node.inputs.iter().skip(1).all(|&id| constant(id)) => {
                Rule::Weighted
            }
            Op::Conv2d(_) | Op::FullyConnected(_) => Rule::Float("its weights or bias are not constant"),
            Op::Add(_) => Rule::Observed,
            Op::Pool2d(_) | Op::Transpose(_) | Op::Copy(_) => Rule::Kept,
            Op::Reshape(_) => Rule::View,
            Op::Softmax(_) => Rule::Fixed(Quant::per_tensor(1.0 / 256.0, -128)),
            Op::LogSoftmax(_) => Rule::Fixed(Quant::per_tensor(LOG_SOFTMAX_OUTPUT.0, LOG_SOFTMAX_OUTPUT.1)),
            _ => Rule::Float("the operator has no int8 form"),
        }
    }
}
