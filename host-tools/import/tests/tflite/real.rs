//! Real models, whole.

use std::collections::BTreeMap;

use kiln_import::tflite::{DType, OpOptions, TfliteFile};

use super::models;

#[test]
fn operators_are_those_the_reference_lists() {
    for model in models() {
        let file = TfliteFile::parse(&model.bytes).unwrap_or_else(|error| panic!("{}: {error}", model.name));
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for operator in file.subgraphs().iter().flat_map(|subgraph| &subgraph.operators) {
            *found.entry(operator.name.to_string()).or_default() += 1;
        }
        let text = std::fs::read_to_string(model.folder.join("io.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let listed = json["ops"].as_object().unwrap();
        let expected: BTreeMap<String, u64> =
            listed.iter().map(|(name, count)| (name.clone(), count.as_u64().unwrap())).collect();
        assert_eq!(found, expected, "{}", model.name);
    }
}

#[test]
fn every_operator_of_the_models_has_its_options_read() {
    for model in models() {
        let file = TfliteFile::parse(&model.bytes).unwrap();
        for operator in file.subgraphs().iter().flat_map(|subgraph| &subgraph.operators) {
            assert_ne!(operator.options, OpOptions::Other, "{}: {}", model.name, operator.name);
        }
    }
}

#[test]
fn inputs_and_outputs_are_those_the_reference_lists() {
    for model in models() {
        let file = TfliteFile::parse(&model.bytes).unwrap();
        let text = std::fs::read_to_string(model.folder.join("io.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (key, indices) in [("inputs", &file.main().inputs), ("outputs", &file.main().outputs)] {
            let listed = json[key].as_array().unwrap();
            assert_eq!(listed.len(), indices.len(), "{}: {key}", model.name);
            for (listed, &index) in listed.iter().zip(indices) {
                let tensor = &file.main().tensors[index];
                let shape: Vec<u64> = listed["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect();
                assert_eq!(tensor.shape.iter().map(|&d| d as u64).collect::<Vec<_>>(), shape, "{}", model.name);
                let dtype = match tensor.dtype {
                    DType::F32 => "float32",
                    DType::I8 => "int8",
                    DType::I16 => "int16",
                    DType::U8 => "uint8",
                    other => panic!("{}: {other}", model.name),
                };
                assert_eq!(listed["dtype"], dtype, "{}", model.name);
                if let Some(scale) = listed.get("scale").and_then(serde_json::Value::as_f64) {
                    let quant = tensor.quant.as_ref().unwrap();
                    assert_eq!(quant.scales, [scale as f32], "{}", model.name);
                    assert_eq!(quant.zero_points, [listed["zero_point"].as_i64().unwrap()], "{}", model.name);
                }
            }
        }
    }
}

#[test]
fn alignment_of_the_bytes_does_not_matter() {
    for model in models() {
        let aligned = TfliteFile::parse(&model.bytes).unwrap();
        for shift in [1, 2, 3, 5, 8] {
            let mut shifted = vec![0; shift];
            shifted.extend_from_slice(&model.bytes);
            assert_eq!(TfliteFile::parse(&shifted[shift..]).as_ref(), Ok(&aligned), "{} shifted {shift}", model.name);
        }
    }
}
