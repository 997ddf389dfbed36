//! Models that are refused, and what they are told.

use super::draft::{BufferDraft, Builder, CodeDraft, Draft};
use crate::tflite::schema::*;
use crate::tflite::{TfliteError, TfliteFile};

/// The message for the draft after `edit`.
#[track_caller]
fn refused(edit: impl FnOnce(&mut Draft), message: &str) {
    let mut draft = Draft::new();
    edit(&mut draft);
    let error = TfliteFile::parse(&draft.bytes()).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn what_is_not_tflite() {
    let message = |bytes: &[u8]| TfliteFile::parse(bytes).unwrap_err().to_string();
    assert_eq!(message(b""), "the file is empty; export or download it again");
    assert_eq!(message(b"TFL3"), "the file has 4 bytes, too few for a TFLite model; export or download it again");
    assert_eq!(
        message(b"version https://git-lfs.github.com/spec/v1\n"),
        "not a TFLite file: bytes 4 to 7 are \"ion \", expected \"TFL3\"; \
         this is a Git LFS pointer: fetch the model itself with `git lfs pull`"
    );
    assert!(message(b"PK\x03\x04\x14\0\0\0\x08\0").ends_with("take the .tflite file out of it"));
    assert!(message(b"<!DOCTYPE html>").ends_with("this is a web page: download the model itself"));
    assert!(message(b"\x1c\0\0\0TFL2____").contains("are \"TFL2\", expected \"TFL3\"; this schema is too old"));
    assert_eq!(
        message(b"\x08\x07\x12\x05\x1b[2J\x0a\x00"),
        "not a TFLite file: bytes 4 to 7 are \"\\x1b[2J\", expected \"TFL3\"; \
         choose a file that the TFLite converter wrote"
    );
}

#[test]
fn damage_names_the_field() {
    assert_eq!(
        TfliteFile::parse(b"\xff\0\0\0TFL3").unwrap_err().to_string(),
        "the file (8 bytes) is damaged or cut short: Type `i32` at position 255 is unaligned; \
         export or download it again"
    );
    let mut bytes = Draft::new().bytes();
    let at = bytes.windows(7).position(|window| window == b"weights").unwrap();
    bytes[at] = 0xff;
    let error = TfliteFile::parse(&bytes).unwrap_err();
    assert!(matches!(error, TfliteError::Damaged { .. }));
    let message = error.to_string();
    assert!(message.contains("Utf8 error") && message.contains("while verifying table field `name`"), "{message}");
}

#[test]
fn model() {
    refused(
        |draft| draft.version = 2,
        "schema version 2, expected 3; convert the model again with a current TFLite converter",
    );
    refused(|draft| draft.subgraphs = 0, "the model has no subgraph, so nothing to run; export it again");
    refused(
        |draft| draft.codes[0] = CodeDraft { byte: 32, code: 32, custom: None },
        "operator code 0: a custom operator has no name; export the model again",
    );
    refused(
        |draft| draft.metadata[0].1 = 3,
        "metadata 0 (\"min_runtime_version\"): buffer 3, but there are 3; the file is damaged, export it again",
    );
}

#[test]
fn indices() {
    refused(
        |draft| draft.tensors[1].buffer = 3,
        "tensor 1 (\"weights\"): buffer 3, but there are 3; the file is damaged, export it again",
    );
    refused(
        |draft| draft.operators[0].code = 1,
        "operator 0 of subgraph 0: operator code 1, but there are 1; the file is damaged, export it again",
    );
    refused(
        |draft| draft.operators[0].inputs[1] = 4,
        "operator 0 (FULLY_CONNECTED): input tensor 4, but there are 4; the file is damaged, export it again",
    );
    refused(
        |draft| draft.operators[0].inputs[1] = -2,
        "operator 0 (FULLY_CONNECTED): input tensor -2, but there are 4; the file is damaged, export it again",
    );
    refused(
        |draft| draft.operators[0].outputs[0] = -1,
        "operator 0 (FULLY_CONNECTED): output tensor -1, but there are 4; the file is damaged, export it again",
    );
    refused(
        |draft| draft.outputs[0] = 9,
        "subgraph 0: output tensor 9, but there are 4; the file is damaged, export it again",
    );
    refused(
        |draft| draft.operators[0].inputs[1] = -1,
        "operator 0 (FULLY_CONNECTED): input 1 is omitted (-1), but this operator needs it; export the model again",
    );
}

#[test]
fn shapes_and_sizes() {
    refused(
        |draft| draft.tensors[0].shape[1] = -4,
        "tensor 0 (\"input\"): dimension 1 is -4, expected 0 or more; export the model again",
    );
    refused(
        |draft| draft.tensors[0].shape = vec![i32::MAX; 3],
        "tensor 0 (\"input\"): INT8 of shape [2147483647, 2147483647, 2147483647] is too large to address; \
         export the model again",
    );
    refused(
        |draft| draft.tensors[0].signature = Some(vec![-1, -1, 4]),
        "tensor 0 (\"input\"): the shape has rank 2, its signature rank 3; export the model again",
    );
    refused(
        |draft| draft.tensors[0].signature = Some(vec![-1, -2]),
        "tensor 0 (\"input\"): dimension 1 of the signature is -2, expected -1 or more; export the model again",
    );
    for length in [1, 7, 9] {
        refused(
            |draft| draft.buffers[1].data = Some(vec![0; length]),
            &format!(
                "tensor 1 (\"weights\"): {length} bytes of data, but INT8 of shape [2, 4] takes 8; \
                 export the model again"
            ),
        );
    }
}

#[test]
fn bytes_outside_the_file() {
    for (offset, size) in [(100_000, 8), (8, u64::MAX), (u64::MAX, 1), (2, 1 << 40)] {
        let mut draft = Draft::new();
        draft.buffers[1] = BufferDraft { data: None, offset, size };
        let bytes = draft.bytes();
        let found = TfliteFile::parse(&bytes).unwrap_err().to_string();
        let expected = format!(
            "buffer 1: {size} bytes at offset {offset} lie outside the file's {} bytes; export or download it again",
            bytes.len()
        );
        assert_eq!(found, expected);
    }
}

#[test]
fn quantization() {
    fn quant(draft: &mut Draft, tensor: usize) -> &mut super::draft::QuantDraft {
        draft.tensors[tensor].quant.as_mut().unwrap()
    }
    let again = "quantize and export the model again";
    refused(
        |draft| quant(draft, 1).scales.push(1.0),
        &format!("tensor 1 (\"weights\"): 3 scales for dimension 0 of shape [2, 4], expected 1 or 2; {again}"),
    );
    refused(
        |draft| quant(draft, 1).dimension = 2,
        &format!("tensor 1 (\"weights\"): quantized dimension 2, but the shape is [2, 4]; {again}"),
    );
    refused(
        |draft| quant(draft, 1).dimension = -1,
        &format!("tensor 1 (\"weights\"): quantized dimension -1, but the shape is [2, 4]; {again}"),
    );
    refused(
        |draft| quant(draft, 1).zero_points = Some(vec![0]),
        &format!("tensor 1 (\"weights\"): 2 scales but 1 zero points; {again}"),
    );
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        refused(
            |draft| quant(draft, 1).scales[1] = scale,
            &format!("tensor 1 (\"weights\"): scale {scale}, expected a finite number above 0; {again}"),
        );
    }
    refused(
        |draft| quant(draft, 0).zero_points = Some(vec![128]),
        &format!("tensor 0 (\"input\"): zero point 128, but INT8 holds -128 to 127; {again}"),
    );
}

#[test]
fn what_is_not_supported() {
    refused(
        |draft| draft.tensors[1].quant.as_mut().unwrap().blockwise = true,
        "tensor 1 (\"weights\"): custom, blockwise or multi-axis quantization is not supported; \
         quantize the model per tensor or per channel",
    );
    refused(
        |draft| draft.tensors[1].sparse = true,
        "tensor 1 (\"weights\"): sparse storage is not supported; export the model with dense weights",
    );
    refused(
        |draft| draft.tensors[1].external = 1,
        "tensor 1 (\"weights\"): weights in another file are not supported; export the model as a single file",
    );
}

#[test]
fn order_of_reads_and_writes() {
    let again = "the file is damaged, export it again";
    refused(
        |draft| draft.operators[0].inputs[0] = 3,
        &format!(
            "operator 0 (FULLY_CONNECTED): tensor 3 (\"output\") is read before any operator has written it; {again}"
        ),
    );
    refused(
        |draft| draft.operators.push(draft.operators[0].clone()),
        &format!("operator 1 (FULLY_CONNECTED): tensor 3 (\"output\") is written twice; {again}"),
    );
    refused(
        |draft| draft.operators[0].outputs[0] = 2,
        &format!("operator 0 (FULLY_CONNECTED): tensor 2 (\"bias\") is written but has constant data; {again}"),
    );
    refused(
        |draft| draft.operators[0].outputs[0] = 0,
        &format!("operator 0 (FULLY_CONNECTED): tensor 0 (\"input\") is written but is an input; {again}"),
    );
    refused(|draft| draft.inputs.push(0), &format!("subgraph 0: tensor 0 (\"input\") is an input twice; {again}"));
    refused(
        |draft| draft.inputs.push(1),
        &format!("subgraph 0: tensor 1 (\"weights\") is an input but has constant data; {again}"),
    );
    refused(
        |draft| draft.operators.clear(),
        &format!("subgraph 0: tensor 3 (\"output\") is an output but no operator writes it; {again}"),
    );
}

/// A convolution's options with everything 1 but what `edit` sets.
fn conv(b: &mut Builder, edit: fn(&mut Conv2DOptionsArgs)) -> flatbuffers::WIPOffset<flatbuffers::UnionWIPOffset> {
    let mut args = Conv2DOptionsArgs { stride_h: 1, stride_w: 1, ..Conv2DOptionsArgs::default() };
    edit(&mut args);
    Conv2DOptions::create(b, &args).as_union_value()
}

#[test]
fn options() {
    fn conv_2d(options: super::draft::Options) -> impl FnOnce(&mut Draft) {
        move |draft| {
            draft.codes[0] = CodeDraft { byte: 3, code: 3, custom: None };
            draft.operators[0].options = Some((BuiltinOptions::Conv2DOptions, options));
        }
    }
    refused(
        conv_2d(|b| conv(b, |args| args.stride_w = 0)),
        "operator 0 (CONV_2D): stride_w is 0, expected 1 or more; export the model again",
    );
    refused(
        conv_2d(|b| conv(b, |args| args.dilation_h_factor = -1)),
        "operator 0 (CONV_2D): dilation_h_factor is -1, expected 1 or more; export the model again",
    );
    refused(
        conv_2d(|b| conv(b, |args| args.padding = Padding(2))),
        "operator 0 (CONV_2D): padding 2 is not known; export the model again",
    );
    refused(
        conv_2d(|b| conv(b, |args| args.fused_activation_function = ActivationFunctionType(6))),
        "operator 0 (CONV_2D): activation 6 is not known; export the model again",
    );
    refused(
        |draft| draft.codes[0] = CodeDraft { byte: 3, code: 3, custom: None },
        "operator 0 (CONV_2D): FullyConnectedOptions in place of Conv2DOptions; export the model again",
    );
    refused(
        |draft| draft.operators[0].options = None,
        "operator 0 (FULLY_CONNECTED): FullyConnectedOptions is missing; export the model again",
    );
    refused(
        |draft| {
            draft.codes[0] = CodeDraft { byte: 25, code: 25, custom: None };
            draft.operators[0].options = Some((BuiltinOptions::SoftmaxOptions, |b| {
                SoftmaxOptions::create(b, &SoftmaxOptionsArgs { beta: f32::NAN }).as_union_value()
            }));
        },
        "operator 0 (SOFTMAX): beta is NaN; export the model again",
    );
    refused(
        |draft| {
            draft.codes[0] = CodeDraft { byte: 127, code: 129, custom: None };
            draft.operators[0].options = Some((BuiltinOptions::CallOnceOptions, |b| {
                CallOnceOptions::create(b, &CallOnceOptionsArgs { init_subgraph_index: 1 }).as_union_value()
            }));
        },
        "operator 0 (CALL_ONCE): subgraph 1, but there are 1; the file is damaged, export it again",
    );
}

#[test]
fn no_byte_of_a_draft_can_be_changed_or_cut_into_a_panic() {
    let whole = Draft::new().bytes();
    for at in 0..whole.len() {
        let _ = TfliteFile::parse(&whole[..at]);
        let mut bytes = whole.clone();
        for value in 0..=u8::MAX {
            bytes[at] = value;
            let _ = TfliteFile::parse(&bytes);
        }
    }
}
