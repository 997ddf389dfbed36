//! What is written: the model as a `.kiln` file, and a folder of cases that `kiln verify` replays.

use std::path::Path;

use anyhow::Context as _;
use kiln::{CaseGroup, Cases, Runtime};
use kiln_core::{DType, TensorType};
use kiln_ops::{Activation, FullyConnected};
use kiln_planner::graph::{Entry, Graph, Quant, tensor_type};

use crate::integer;
use crate::quantize::{IntegerModel, Quantization};

/// Cases in the folder, spread evenly over all inputs.
const CASES: usize = 64;

/// The model as Kiln's graph: one entry, `infer`, from int8 `[1, 1]` to int8 `[1, 1]`.
pub fn graph(model: &IntegerModel) -> anyhow::Result<Graph> {
    let mut graph = Graph::new("sine");
    let angle = graph.add_input("angle", ty(DType::I8, &[1, 1])?, quant(model.input));
    graph.entries.push(Entry { name: "infer".into(), inputs: vec![angle], ..Entry::default() });
    let mut value = angle;
    for (index, layer) in model.layers.iter().enumerate() {
        let (inputs, outputs) = (layer.inputs as u32, layer.biases.len() as u32);
        let name = format!("dense{index}");
        let weights = graph.add_constant(
            format!("{name}/weights"),
            ty(DType::I8, &[outputs, inputs])?,
            Quant::per_tensor(layer.weight_scale, 0),
            layer.weights.iter().map(|w| *w as u8).collect::<Vec<u8>>(),
        );
        let bias = graph.add_constant(
            format!("{name}/bias"),
            ty(DType::I32, &[outputs])?,
            Quant::per_tensor(layer.bias_scale, 0),
            layer.biases.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<u8>>(),
        );
        let activation = if layer.relu { Activation::Relu } else { Activation::None };
        let dense = FullyConnected { keep_dims: false, activation };
        value = graph.add_node(0, name, dense, &[value, weights, bias], quant(layer.output))?;
    }
    graph.values[value.index()].name = "sine".into();
    graph.entries[0].outputs = vec![value];
    graph.validate()?;
    Ok(graph)
}

fn ty(dtype: DType, dims: &[u32]) -> anyhow::Result<TensorType> {
    tensor_type(dtype, dims).with_context(|| format!("a tensor of {} dimensions", dims.len()))
}

fn quant(q: Quantization) -> Quant {
    Quant::per_tensor(q.scale, q.zero_point)
}

/// Writes the folder: the model, the cases' inputs, and the outputs that `integer` computes for them.
pub fn write(directory: &Path, model: &IntegerModel, graph: &Graph) -> anyhow::Result<()> {
    let last = CASES - 1;
    let inputs = (0..CASES).map(|case| ((case * 255 + last / 2) / last) as i16 - 128);
    let group = CaseGroup {
        name: "grid",
        origin: &format!("{CASES} values spread evenly over -128 ..= 127"),
        inputs: inputs.map(|x| vec![vec![x as i8 as u8]]).collect(),
        classes: None,
    };
    let plain = Runtime {
        name: "plain",
        what: "src/integer.rs of this example: plain integer arithmetic",
        run: &|inputs| vec![vec![integer::run(model, inputs[0][0] as i8) as u8]],
    };
    let licence = Some("MIT OR Apache-2.0");
    Cases { graph, licence, runtime: Some(plain), groups: &[group] }.write(directory)?;
    Ok(())
}
