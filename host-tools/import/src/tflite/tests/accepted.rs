//! Models that are read, and what comes out.

use super::draft::{BufferDraft, CodeDraft, Draft, OperatorDraft, TensorDraft};
use crate::tflite::schema::{BuiltinOptions, TensorType};
use crate::tflite::{Activation, DType, OpName, OpOptions, Quant, TfliteFile, WeightsFormat};

/// Parses the draft after `edit` and hands it to `check`.
fn read(edit: impl FnOnce(&mut Draft), check: impl FnOnce(&TfliteFile<'_>)) {
    let mut draft = Draft::new();
    edit(&mut draft);
    check(&TfliteFile::parse(&draft.bytes()).unwrap());
}

#[test]
fn a_whole_model() {
    read(
        |_| {},
        |file| {
            assert_eq!(file.description(), "a draft");
            assert_eq!(file.metadata()[0].name, "min_runtime_version");
            assert_eq!(file.metadata()[0].data, [1, 2, 3, 4, 5, 6, 7, 8]);
            let main = file.main();
            assert_eq!((main.name, &main.inputs[..], &main.outputs[..]), ("main", &[0][..], &[3][..]));
            let weights = &main.tensors[1];
            assert_eq!((weights.name, weights.dtype, &weights.shape[..]), ("weights", DType::I8, &[2, 4][..]));
            assert_eq!(weights.data, Some(&[1, 2, 3, 4, 5, 6, 7, 8][..]));
            let quant = Quant { scales: vec![0.25, 0.125], zero_points: vec![0, 0], axis: 0 };
            assert_eq!(weights.quant, Some(quant));
            assert_eq!(main.tensors[0].data, None);
            let operator = &main.operators[0];
            assert_eq!(operator.name, OpName::Builtin { code: 9, name: "FULLY_CONNECTED" });
            assert_eq!(operator.inputs, [Some(0), Some(1), Some(2)]);
            assert_eq!(operator.outputs, [3]);
            let options = OpOptions::FullyConnected {
                activation: Activation::Relu,
                weights_format: WeightsFormat::Default,
                keep_num_dims: false,
                asymmetric_quantize_inputs: false,
            };
            assert_eq!(operator.options, options);
        },
    );
}

#[test]
fn operator_numbers_of_old_new_and_later_files() {
    for (byte, code, name) in
        [(9, 0, "FULLY_CONNECTED"), (9, 9, "FULLY_CONNECTED"), (127, 150, "GELU"), (127, 9999, "BUILTIN:9999")]
    {
        read(
            |draft| draft.codes[0] = CodeDraft { byte, code, custom: None },
            |file| assert_eq!(file.main().operators[0].name.to_string(), name),
        );
    }
}

#[test]
fn a_custom_operator() {
    let custom = |draft: &mut Draft| {
        draft.codes[0] = CodeDraft { byte: 32, code: 32, custom: Some("Signal\u{7}Window") };
        draft.operators[0].options = None;
    };
    read(
        |draft| {
            custom(draft);
            draft.operators[0].custom_options = Some(vec![7, 8]);
        },
        |file| {
            let operator = &file.main().operators[0];
            assert_eq!(operator.name, OpName::Custom("Signal\u{7}Window"));
            assert_eq!(operator.name.to_string(), "CUSTOM:Signal\\u{7}Window");
            assert_eq!(operator.options, OpOptions::Custom(&[7, 8]));
        },
    );
    read(custom, |file| assert_eq!(file.main().operators[0].options, OpOptions::Custom(&[])));
}

#[test]
fn an_omitted_bias() {
    read(
        |draft| draft.operators[0].inputs[2] = -1,
        |file| assert_eq!(file.main().operators[0].inputs, [Some(0), Some(1), None]),
    );
}

#[test]
fn zero_points_left_out_are_zero() {
    for zero_points in [None, Some(Vec::new())] {
        read(
            |draft| draft.tensors[1].quant.as_mut().unwrap().zero_points = zero_points,
            |file| assert_eq!(file.main().tensors[1].quant.as_ref().unwrap().zero_points, [0, 0]),
        );
    }
}

#[test]
fn a_bias_with_the_dimension_of_its_weights() {
    read(
        |draft| draft.tensors[2].quant.as_mut().unwrap().dimension = 3,
        |file| assert_eq!(file.main().tensors[2].quant.as_ref().unwrap().axis, 0),
    );
}

#[test]
fn int4_takes_half_a_byte() {
    for (shape, bytes) in [(vec![2, 4], 4), (vec![3, 3], 5), (vec![1], 1), (vec![], 1), (vec![0, 3], 0)] {
        let elements: i32 = shape.iter().product();
        read(
            |draft| {
                draft.tensors[1].dtype = TensorType::INT4;
                draft.tensors[1].shape = shape;
                draft.tensors[1].quant = None;
                draft.buffers[1].data = Some(vec![0x21; bytes]);
            },
            |file| {
                let tensor = &file.main().tensors[1];
                assert_eq!((tensor.dtype, tensor.elements()), (DType::I4, elements as usize));
                assert_eq!(tensor.data.unwrap().len(), bytes);
            },
        );
    }
}

#[test]
fn an_empty_buffer_is_no_constant() {
    read(
        |draft| {
            draft.buffers.push(BufferDraft { data: Some(Vec::new()), ..BufferDraft::default() });
            draft.tensors[3].buffer = 3;
        },
        |file| assert_eq!(file.main().tensors[3].data, None),
    );
}

#[test]
fn zero_times_anything_is_empty() {
    read(
        |draft| {
            draft.tensors.push(TensorDraft { shape: vec![i32::MAX, i32::MAX, i32::MAX, 0], ..TensorDraft::default() })
        },
        |file| assert_eq!(file.main().tensors[4].elements(), 0),
    );
}

#[test]
fn open_dimensions() {
    read(
        |draft| {
            draft.tensors[0].signature = Some(vec![-1, 4]);
            draft.tensors[3].signature = Some(vec![1, 2]);
        },
        |file| {
            assert_eq!(file.main().tensors[0].shape_signature, Some(vec![None, Some(4)]));
            assert_eq!(file.main().tensors[3].shape_signature, None);
        },
    );
}

#[test]
fn dtypes_without_a_name_here_keep_the_schemas() {
    for (code, name, bits) in
        [(18, "BFLOAT16", Some(16)), (5, "STRING", None), (13, "RESOURCE", None), (99, "type 99", None)]
    {
        read(
            |draft| draft.tensors.push(TensorDraft { dtype: TensorType(code), ..TensorDraft::default() }),
            |file| {
                let dtype = file.main().tensors[4].dtype;
                assert_eq!((dtype, dtype.to_string().as_str(), dtype.bits()), (DType::Other(code), name, bits));
            },
        );
    }
    read(|_| {}, |file| assert_eq!(file.main().tensors[0].dtype.to_string(), "INT8"));
}

#[test]
fn bytes_behind_the_flatbuffer() {
    let mut draft = Draft::new();
    let at = draft.bytes().len() as u64 + 64;
    draft.buffers[1] = BufferDraft { data: None, offset: at, size: 8 };
    draft.codes.push(CodeDraft { byte: 32, code: 32, custom: Some("Mine") });
    draft.tensors.push(TensorDraft { name: "more", ..TensorDraft::default() });
    draft.operators.push(OperatorDraft {
        code: 1,
        inputs: vec![3],
        outputs: vec![4],
        large_custom_options: (at + 8, 2),
        ..OperatorDraft::default()
    });
    // The offsets are vectors' lengths away from where the flatbuffer ends, so place them after writing.
    let length = draft.bytes().len() as u64;
    draft.buffers[1].offset = length;
    draft.operators[1].large_custom_options.0 = length + 8;
    let mut bytes = draft.bytes();
    assert_eq!(bytes.len() as u64, length);
    bytes.extend_from_slice(b"weights!ab");

    let file = TfliteFile::parse(&bytes).unwrap();
    assert_eq!(file.main().tensors[1].data, Some(&b"weights!"[..]));
    assert_eq!(file.main().operators[1].options, OpOptions::Custom(b"ab"));
}

#[test]
fn options_left_out_where_they_say_nothing() {
    let cases = [
        (0, OpOptions::Add { activation: Activation::None, pot_scale_int16: true }),
        (18, OpOptions::Mul { activation: Activation::None }),
        (22, OpOptions::Reshape { new_shape: None }),
        (6, OpOptions::None),
        (53, OpOptions::None),
        (24, OpOptions::Other),
    ];
    for (code, options) in cases {
        read(
            |draft| {
                draft.codes[0] = CodeDraft { byte: code, code: code.into(), custom: None };
                draft.operators[0].options = None;
            },
            |file| assert_eq!(file.main().operators[0].options, options),
        );
    }
}

#[test]
fn options_of_a_later_schema_are_skipped() {
    // An operator whose options are not read, with a union member that the bindings do not have.
    read(
        |draft| {
            draft.codes[0] = CodeDraft { byte: 24, code: 24, custom: None };
            draft.operators[0].options.as_mut().unwrap().0 = BuiltinOptions(255);
        },
        |file| assert_eq!(file.main().operators[0].options, OpOptions::Other),
    );
}

#[test]
fn a_variable_needs_no_writer() {
    read(
        |draft| {
            draft.tensors.push(TensorDraft { name: "state", variable: true, ..TensorDraft::default() });
            draft.operators[0].inputs[0] = 4;
        },
        |file| assert!(file.main().tensors[4].is_variable),
    );
}
