//! What is written: the model as a `.kiln` file, and a folder of cases that `kiln verify` replays.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use kiln_core::{DType, TensorType};
use kiln_ops::{Activation, FullyConnected};
use kiln_planner::graph::{Entry, Graph, Quant, tensor_type};
use kiln_planner::kiln_file::{About, KilnFile};

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

/// Writes the folder: the model, the cases' inputs, and the outputs they must give.
pub fn write(directory: &Path, model: &IntegerModel, graph: Graph) -> anyhow::Result<()> {
    let about = About { model: graph.name.clone(), board: "any".into(), kiln: env!("CARGO_PKG_VERSION").into() };
    // No plans: they follow from the graph, and differ from board to board.
    let file = KilnFile { graph: Some(graph), plans: Vec::new(), about }.to_bytes()?;
    let last = CASES - 1;
    let inputs: Vec<i8> =
        (0..CASES).map(|case| ((case * 255 + last / 2) / last) as i16 - 128).map(|x| x as i8).collect();
    let outputs: Vec<i8> = inputs.iter().map(|x| integer::run(model, *x)).collect();
    let bytes = |values: &[i8]| values.iter().map(|v| *v as u8).collect::<Vec<u8>>();

    fs::create_dir_all(directory).with_context(|| format!("{}", directory.display()))?;
    let put = |name: &str, bytes: &[u8]| {
        let path = directory.join(name);
        fs::write(&path, bytes).with_context(|| format!("{}", path.display()))
    };
    put("model.kiln", &file)?;
    put("grid.in0.bin", &bytes(&inputs))?;
    put("grid.out0.plain.bin", &bytes(&outputs))?;
    put("io.json", io_json(file.len(), model).as_bytes())
}

fn io_json(bytes: usize, model: &IntegerModel) -> String {
    let tensor = |name: &str, q: Quantization| {
        let (scale, zero) = (q.scale, q.zero_point);
        format!(r#"{{"name": "{name}", "dtype": "int8", "shape": [1, 1], "scale": {scale}, "zero_point": {zero}}}"#)
    };
    let (angle, sine) = (tensor("angle", model.input), tensor("sine", model.output));
    format!(
        r#"{{
  "name": "sine",
  "format": "kiln",
  "model": {{"file": "model.kiln", "bytes": {bytes}}},
  "licence": "MIT OR Apache-2.0",
  "reference": "plain",
  "runtimes": {{"plain": "src/integer.rs of this example: plain integer arithmetic"}},
  "state": "stateless",
  "check": {{"kind": "exact"}},
  "inputs": [{angle}],
  "outputs": [{sine}],
  "groups": [
    {{
      "name": "grid",
      "origin": "{CASES} values spread evenly over -128 ..= 127",
      "cases": {CASES},
      "inputs": [{{"file": "grid.in0.bin", "dtype": "int8", "shape": [{CASES}, 1, 1]}}],
      "outputs": {{"plain": [{{"file": "grid.out0.plain.bin", "dtype": "int8", "shape": [{CASES}, 1, 1]}}]}}
    }}
  ]
}}
"#
    )
}
