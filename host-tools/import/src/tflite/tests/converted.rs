//! Small models of one operator as graphs, and why some are refused.

use kiln_core::DType;
use kiln_ops::{Op, Transpose};
use kiln_planner::graph::Graph;

use super::draft::{BufferDraft, CodeDraft, Draft, OperatorDraft, QuantDraft, TensorDraft};
use crate::tflite::schema::{BuiltinOperator, TensorType};
use crate::{ImportError, import_tflite};

fn int8(scale: f32, zero: i64) -> Option<QuantDraft> {
    Some(QuantDraft { scales: vec![scale], zero_points: Some(vec![zero]), ..QuantDraft::default() })
}

fn tensor(name: &'static str, dtype: TensorType, shape: &[i32], quant: Option<QuantDraft>) -> TensorDraft {
    TensorDraft { name, dtype, shape: shape.to_vec(), quant, ..TensorDraft::default() }
}

/// `operator` from tensor 0 to tensor 1.
fn model(operator: BuiltinOperator, x: TensorDraft, y: TensorDraft) -> Draft {
    Draft {
        codes: vec![CodeDraft { byte: operator.0.min(127) as i8, code: operator.0, custom: None }],
        buffers: vec![BufferDraft::default()],
        tensors: vec![x, y],
        operators: vec![OperatorDraft { inputs: vec![0], outputs: vec![1], ..OperatorDraft::default() }],
        inputs: vec![0],
        outputs: vec![1],
        metadata: vec![],
        ..Draft::new()
    }
}

/// A transpose of an int8 `[2, 3, 4]` to `shape`.
fn transpose(permutation: &[i32], shape: &[i32]) -> Draft {
    let quant = int8(0.5, 3);
    let x = tensor("x", TensorType::INT8, &[2, 3, 4], quant.clone());
    let mut draft = model(BuiltinOperator::TRANSPOSE, x, tensor("y", TensorType::INT8, shape, quant));
    let data = permutation.iter().flat_map(|axis| axis.to_le_bytes()).collect();
    draft.buffers.push(BufferDraft { data: Some(data), ..BufferDraft::default() });
    let length = permutation.len() as i32;
    draft.tensors.push(TensorDraft { buffer: 1, ..tensor("permutation", TensorType::INT32, &[length], None) });
    draft.operators[0].inputs.push(2);
    draft
}

fn graph(draft: &Draft) -> Graph {
    import_tflite(&draft.bytes(), "small").unwrap()
}

/// Why the one operator is refused.
fn refusal(draft: &Draft) -> String {
    match import_tflite(&draft.bytes(), "small") {
        Err(ImportError::Unsupported(list)) => list[0].reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_activation_that_is_refused_is_called_as_in_the_schema() {
    use crate::tflite::schema::{ActivationFunctionType, BuiltinOptions, FullyConnectedOptions as Options};
    let mut draft = Draft::new();
    let options = |b: &mut super::draft::Builder| {
        let fused_activation_function = ActivationFunctionType::SIGN_BIT;
        let args = crate::tflite::schema::FullyConnectedOptionsArgs { fused_activation_function, ..Default::default() };
        Options::create(b, &args).as_union_value()
    };
    draft.operators[0].options = Some((BuiltinOptions::FullyConnectedOptions, options));
    assert_eq!(refusal(&draft), "the fused activation SIGN_BIT is not supported yet");
}

#[test]
fn a_transpose() {
    let graph = graph(&transpose(&[2, 0, 1], &[4, 2, 3]));
    let node = &graph.entries[0].nodes[0];
    assert_eq!(node.op, Op::from(Transpose::new(&[2, 0, 1]).unwrap()));
    assert_eq!(node.inputs, graph.entries[0].inputs);
    assert_eq!(graph.value(node.output).ty.shape.dims(), [4, 2, 3]);
}

#[test]
fn transposes_that_are_refused() {
    for permutation in [[0, 1, 1], [0, 1, 3], [0, 1, -1]] {
        assert!(refusal(&transpose(&permutation, &[2, 3, 4])).contains("not a permutation"));
    }
    assert!(refusal(&transpose(&[1, 0], &[3, 2, 4])).contains("int32 [2] for 3 dimensions"));
    let mut draft = transpose(&[1, 0, 2], &[3, 2, 4]);
    draft.tensors[1].quant = int8(0.25, 3);
    assert!(refusal(&draft).contains("differ in scale"));
    let mut draft = transpose(&[1, 0, 2], &[3, 2, 4]);
    draft.tensors[2].buffer = 0;
    draft.inputs.push(2);
    assert!(refusal(&draft).contains("not constant"));
}

#[test]
fn quantizations() {
    let float = || tensor("float", TensorType::FLOAT32, &[1, 4], None);
    let quantized = |scale| tensor("int8", TensorType::INT8, &[1, 4], int8(scale, -1));
    for (operator, x, y, name, dtype) in [
        (BuiltinOperator::QUANTIZE, float(), quantized(0.5), "quantize", DType::I8),
        (BuiltinOperator::QUANTIZE, quantized(0.5), quantized(0.25), "quantize", DType::I8),
        (BuiltinOperator::DEQUANTIZE, quantized(0.5), float(), "dequantize", DType::F32),
        (BuiltinOperator::LOG_SOFTMAX, float(), float(), "log_softmax", DType::F32),
    ] {
        let graph = graph(&model(operator, x, y));
        let node = &graph.entries[0].nodes[0];
        assert_eq!((node.op.name(), graph.value(node.output).ty.dtype), (name, dtype));
    }
    let wide = tensor("wide", TensorType::INT16, &[1, 4], int8(0.5, 0));
    assert!(refusal(&model(BuiltinOperator::QUANTIZE, float(), wide)).contains("says int16"));
}

#[test]
fn an_int8_log_softmax_has_one_output_scale() {
    let draft = |scale, zero| {
        let int8 = |name, scale, zero| tensor(name, TensorType::INT8, &[1, 4], int8(scale, zero));
        model(BuiltinOperator::LOG_SOFTMAX, int8("x", 0.1, 4), int8("y", scale, zero))
    };
    assert_eq!(graph(&draft(0.0625, 127)).entries[0].nodes[0].op.name(), "log_softmax");
    assert!(refusal(&draft(0.125, 127)).contains("scale of 1/16"));
    assert!(refusal(&draft(0.0625, 0)).contains("zero point of 127"));
}

#[test]
fn dynamic_range_quantization_is_named() {
    let mut draft = Draft::new();
    for tensor in [0, 3] {
        draft.tensors[tensor].dtype = TensorType::FLOAT32;
        draft.tensors[tensor].quant = None;
    }
    assert!(refusal(&draft).contains("dynamic-range quantization"));
}

/// Padding of an int8 `[1, 2, 3, 1]` to `shape`.
fn pad(paddings: &[i32], shape: &[i32], to: Option<QuantDraft>) -> Draft {
    let quant = int8(0.5, 3);
    let x = tensor("x", TensorType::INT8, &[1, 2, 3, 1], quant);
    let mut draft = model(BuiltinOperator::PAD, x, tensor("y", TensorType::INT8, shape, to));
    let data = paddings.iter().flat_map(|size| size.to_le_bytes()).collect();
    draft.buffers.push(BufferDraft { data: Some(data), ..BufferDraft::default() });
    let length = paddings.len() as i32 / 2;
    draft.tensors.push(TensorDraft { buffer: 1, ..tensor("paddings", TensorType::INT32, &[length, 2], None) });
    draft.operators[0].inputs.push(2);
    draft
}

#[test]
fn padding_puts_zeros_around() {
    let padded = graph(&pad(&[0, 0, 1, 0, 0, 2, 0, 0], &[1, 3, 5, 1], int8(0.5, 3)));
    let values = kiln_planner::reference::Evaluator::new(&padded).run(0, &[&[10, 11, 12, 13, 14, 15]]).unwrap();
    let y = &values[&padded.entries[0].outputs[0]];
    assert_eq!(y, &[3, 3, 3, 3, 3, 10, 11, 12, 3, 3, 13, 14, 15, 3, 3]);
    // None at all is a copy.
    let none = graph(&pad(&[0; 8], &[1, 2, 3, 1], int8(0.5, 3)));
    assert!(matches!(none.entries[0].nodes[0].op, Op::Copy(_)));
}

#[test]
fn padding_that_is_none_is_refused() {
    let other = refusal(&pad(&[0, 0, 1, 0, 0, 0, 0, 0], &[1, 3, 3, 1], int8(0.25, 3)));
    assert!(other.contains("scale"), "{other}");
    let negative = refusal(&pad(&[0, 0, -1, 0, 0, 0, 0, 0], &[1, 1, 3, 1], int8(0.5, 3)));
    assert!(negative.contains("no sizes"), "{negative}");
    let few = refusal(&pad(&[0, 0, 1, 0], &[1, 3, 3, 1], int8(0.5, 3)));
    assert!(few.contains("4 paddings for 4 dimensions"), "{few}");
    let huge = refusal(&pad(&[0, 0, i32::MAX, 0, 0, 0, 0, 0], &[1, 3, 3, 1], int8(0.5, 3)));
    assert!(huge.contains("more than"), "{huge}");
    let wrong = refusal(&pad(&[0, 0, 1, 0, 0, 0, 0, 0], &[1, 4, 3, 1], int8(0.5, 3)));
    assert!(wrong.contains("but the file says"), "{wrong}");
}
