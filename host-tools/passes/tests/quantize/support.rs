//! Networks with made-up weights, and what running, calibrating and comparing them takes.

use kiln_core::DType;
use kiln_ops::{Activation, Conv2d, FullyConnected, Op};
use kiln_passes::quantize::{Calibration, QuantizeError, QuantizeOptions, Quantized, quantize};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};
use kiln_planner::reference::Evaluator;

/// Numbers that repeat (a 64-bit linear congruential generator, Knuth's constants).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// In -1 .. 1.
    pub(crate) fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(crate) fn many(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next()).collect()
    }
}

pub(crate) fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// An empty graph with one entry and one float32 input.
pub(crate) fn graph(input: &[u32]) -> (Graph, ValueId) {
    let mut graph = Graph::new("net");
    let x = graph.add_input("x", tensor_type(DType::F32, input).unwrap(), Quant::default());
    graph.entries.push(Entry { name: "infer".into(), inputs: vec![x], ..Entry::default() });
    (graph, x)
}

pub(crate) fn constant(graph: &mut Graph, name: &str, dims: &[u32], values: &[f32]) -> ValueId {
    graph.add_constant(name, tensor_type(DType::F32, dims).unwrap(), Quant::default(), bytes(values))
}

pub(crate) fn node(graph: &mut Graph, name: &str, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
    graph.add_node(0, name, op, inputs, Quant::default()).unwrap()
}

pub(crate) fn conv(groups: u32, activation: Activation) -> Conv2d {
    Conv2d { strides: [1, 1], dilations: [1, 1], pads: [1; 4], groups, activation }
}

pub(crate) fn dense(activation: Activation) -> FullyConnected {
    FullyConnected { keep_dims: false, activation }
}

/// Ranges from running the graph on these samples of its only input.
pub(crate) fn calibrated(graph: &Graph, samples: &[Vec<f32>]) -> Result<Calibration, QuantizeError> {
    let mut calibration = Calibration::new(graph);
    for sample in samples {
        let mut values: Vec<_> = Evaluator::new(graph).run(0, &[&bytes(sample)]).unwrap().into_iter().collect();
        values.sort_by_key(|(id, _)| *id);
        values.iter().try_for_each(|(id, data)| calibration.observe(graph, *id, data))?;
    }
    Ok(calibration)
}

pub(crate) fn quantized(graph: &Graph, samples: &[Vec<f32>], options: QuantizeOptions) -> Quantized {
    let quantized = quantize(graph, &calibrated(graph, samples).unwrap(), &options).unwrap();
    quantized.graph.validate().unwrap();
    quantized
}

/// The first output as numbers, for an input that is quantized if the graph's is.
pub(crate) fn run(graph: &Graph, sample: &[f32]) -> Vec<f32> {
    let entry = &graph.entries[0];
    let data = Evaluator::new(graph).run(0, &[&stored(graph, sample)]).unwrap().remove(&entry.outputs[0]).unwrap();
    real(graph, &data)
}

/// A sample as the graph's input stores it.
pub(crate) fn stored(graph: &Graph, sample: &[f32]) -> Vec<u8> {
    let input = graph.value(graph.entries[0].inputs[0]);
    if input.ty.dtype == DType::F32 {
        return bytes(sample);
    }
    let (scale, zero) = (input.quant.scales[0], input.quant.zero_points[0]);
    sample.iter().map(|v| ((v / scale).round() + zero as f32).clamp(-128.0, 127.0) as i8 as u8).collect()
}

/// The numbers that the bytes of the graph's first output stand for.
pub(crate) fn real(graph: &Graph, data: &[u8]) -> Vec<f32> {
    let output = graph.value(graph.entries[0].outputs[0]);
    match output.ty.dtype {
        DType::F32 => floats(data),
        _ => {
            let (scale, zero) = (output.quant.scales[0], output.quant.zero_points[0]);
            data.iter().map(|&b| scale * (i32::from(b as i8) - zero) as f32).collect()
        }
    }
}

/// 10 log10 (signal / noise) of the second graph's output against the first's, over samples.
pub(crate) fn decibels(before: &Graph, after: &Graph, samples: &[Vec<f32>]) -> f64 {
    let (mut signal, mut noise) = (0.0, 0.0);
    for sample in samples {
        for (want, got) in run(before, sample).iter().zip(run(after, sample)) {
            signal += f64::from(*want).powi(2);
            noise += f64::from(got - want).powi(2);
        }
    }
    10.0 * (signal / noise).log10()
}
