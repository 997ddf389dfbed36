//! `kiln run` on .npy, .png and .wav files.

use kiln_core::DType;
use kiln_ops::{Activation, Pool2d, PoolKind};
use kiln_planner::graph::{Entry, Graph, Quant, tensor_type};
use kiln_planner::kiln_file::{About, KilnFile};
use tempfile::TempDir;

use crate::exit_codes::{bad, write};
use crate::support::{Ran, arg, kiln, model_folder};
use crate::synthetic;

/// A version 1.0 file as numpy.save writes it, but for the padding.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((text.len() as u16).to_le_bytes());
    file.extend(text.bytes());
    file.extend(data);
    file
}

fn png(width: u32, height: u32, rgb: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(rgb).unwrap();
    file
}

/// Runs a model on one file; its raw output and what was said.
fn run(folder: &TempDir, model: &str, input: &str, more: &[&str]) -> (Vec<u8>, String) {
    let output = arg(&folder.path().join("out.bin"));
    let ran = kiln([&["run", model, "--input", input, "--output", &output][..], more].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    (std::fs::read(output).unwrap(), ran.stderr)
}

#[test]
fn arrays_give_what_raw_elements_give() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, "model.kiln", &synthetic::file(true, &[]));
    let elements = synthetic::input();
    let raw = write(&folder, "in.bin", &elements);
    let (expected, said) = run(&folder, &model, &raw, &[]);
    assert_eq!(said, "");
    let array = write(&folder, "in.NPY", &npy("|i1", "6, 6, 2", &elements));
    assert_eq!(run(&folder, &model, &array, &[]), (expected.clone(), String::new()));
    // The input's scale is 0.5 and its zero point 3.
    let reals = elements.iter().flat_map(|&e| ((f32::from(e as i8) - 3.0) * 0.5).to_le_bytes());
    let array = write(&folder, "floats.npy", &npy("<f4", "1, 6, 6, 2", &reals.collect::<Vec<_>>()));
    let (output, said) = run(&folder, &model, &array, &[]);
    assert_eq!(output, expected);
    assert_eq!(said, format!("{array}: float32 quantized to int8 with scale 0.5 and zero point 3\n"));

    // An output as an array, and that array's bytes.
    let output = arg(&folder.path().join("out.npy"));
    assert_eq!(kiln(["run", &model, "--input", &raw, "--output", &output]).code, 0);
    let file = std::fs::read(&output).unwrap();
    assert!(file.starts_with(b"\x93NUMPY\x01\x00\x76\x00{'descr': '|i1', 'fortran_order': False, 'shape': (1, 3), }"));
    assert_eq!(file[128..], expected);
}

#[test]
fn recordings() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, "model.kiln", &synthetic::file(true, &[]));
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 8_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let record = |name: &str, samples: &[i16]| {
        let path = folder.path().join(name);
        let mut writer = hound::WavWriter::create(&path, spec).unwrap();
        samples.iter().for_each(|&sample| writer.write_sample(sample).unwrap());
        writer.finalize().unwrap();
        arg(&path)
    };
    // With scale 0.5, -1 is stored as 3 - 2, -0.25 as 3 - 1, 0.25 as 3 + 1.
    let samples: Vec<i16> = (0..72).map(|i| [-32768, -8192, 0, 8192][i % 4]).collect();
    let stored: Vec<u8> = (0..72).map(|i| [1, 2, 3, 4][i % 4]).collect();
    let (output, said) = run(&folder, &model, &record("in.wav", &samples), &[]);
    assert_eq!(output, run(&folder, &model, &write(&folder, "in.bin", &stored), &[]).0);
    assert!(said.contains("in.wav: samples at 8000 Hz") && said.contains("quantized to int8"), "{said}");
    let long = record("long.wav", &[0; 100]);
    bad(&kiln(["run", &model, "--input", &long]), &[&long, "input 0 ('x')", "72 elements", "100 samples"]);
}

/// A pool over one pixel: its output is its input, int8 [1, 4, 2, 3].
fn picture_model(scale: f32, zero_point: i32) -> Vec<u8> {
    let mut g = Graph::new("picture");
    g.entries.push(Entry { name: "infer".into(), ..Entry::default() });
    let quant = || Quant::per_tensor(scale, zero_point);
    let x = g.add_input("x", tensor_type(DType::I8, &[1, 4, 2, 3]).unwrap(), quant());
    let pool =
        Pool2d { kind: PoolKind::Max, kernel: [1, 1], strides: [1, 1], pads: [0; 4], activation: Activation::None };
    let y = g.add_node(0, "pool", pool, &[x], quant()).unwrap();
    g.entries[0].inputs = vec![x];
    g.entries[0].outputs = vec![y];
    g.validate().unwrap();
    let about = About { model: "picture".into(), board: "host".into(), kiln: "0.1.0".into() };
    KilnFile { graph: Some(g), plans: Vec::new(), about }.to_bytes().unwrap()
}

#[test]
fn pictures() {
    let folder = tempfile::tempdir().unwrap();
    let rgb: Vec<u8> = (0..24).map(|i| i * 11).collect();
    let picture = write(&folder, "in.png", &png(2, 4, &rgb));
    let shifted: Vec<u8> = rgb.iter().map(|byte| byte ^ 0x80).collect();
    let model = write(&folder, "bytes.kiln", &picture_model(1.0, -128));
    let (output, said) = run(&folder, &model, &picture, &[]);
    assert_eq!(output, shifted);
    assert!(said.contains(&format!("{picture}: the picture's bytes are taken as numbers 0..255")), "{said}");
    let model = write(&folder, "unit.kiln", &picture_model(1.0 / 255.0, -128));
    let (output, said) = run(&folder, &model, &picture, &[]);
    assert_eq!(output, shifted);
    assert!(said.contains("0..1 (byte / 255): 0 is the least"), "{said}");
    // The user overrules it: (byte / 127.5 - 1) * 255 - 128, clamped below.
    let (output, said) = run(&folder, &model, &picture, &["--image-range", "-1..1"]);
    let expected = rgb.iter().map(|&b| ((f64::from(b) * 2.0 - 255.0).round() - 128.0).clamp(-128.0, 127.0) as i8 as u8);
    assert_eq!(output, expected.collect::<Vec<_>>());
    assert!(said.contains("as --image-range says") && said.contains("12 of 24 elements"), "{said}");

    let small = write(&folder, "small.png", &png(2, 3, &rgb[..18]));
    bad(&kiln(["run", &model, "--input", &small]), &[&small, "2 wide and 4 high", "2 wide and 3 high"]);
    let unclear = write(&folder, "unclear.kiln", &picture_model(1.0 / 255.0, 40));
    bad(&kiln(["run", &unclear, "--input", &picture]), &[&picture, "int8 [1, 4, 2, 3]", "give --image-range"]);
}

#[test]
fn a_picture_for_a_real_model() {
    let Some(data) = model_folder("mlperf-ic-resnet8-int8") else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = arg(&data.join("model.tflite"));
    let rgb: Vec<u8> = (0..32 * 32 * 3).map(|i| (i * 7 % 253) as u8).collect();
    let picture = write(&folder, "in.png", &png(32, 32, &rgb));
    let raw = write(&folder, "in.bin", &rgb.iter().map(|byte| byte ^ 0x80).collect::<Vec<_>>());
    let (output, said) = run(&folder, &model, &picture, &[]);
    assert_eq!(output, run(&folder, &model, &raw, &[]).0);
    assert!(said.contains("taken as numbers 0..255"), "{said}");
}

#[test]
fn files_that_do_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, "model.kiln", &synthetic::file(true, &[]));
    let run = |input: &str| -> Ran { kiln(["run", &model, "--input", input]) };
    let elements = synthetic::input();
    for (name, bytes, words) in [
        ("empty.npy", Vec::new(), ["not a .npy file", "numpy.save"]),
        ("shape.npy", npy("|i1", "2, 6, 6", &elements), ["int8 [1, 6, 6, 2]", "reshape"]),
        ("dtype.npy", npy("|u1", "6, 6, 2", &elements), ["dtype is uint8", ".astype('int8')"]),
        ("short.npy", npy("|i1", "6, 6, 2", &elements[1..]), ["71 bytes of data", "numpy.save"]),
        ("raw.png", elements.clone(), ["pictures fit inputs [1, height, width, 1 or 3]", ".npy or raw"]),
        ("raw.wav", elements.clone(), ["not a readable WAV file", "again"]),
    ] {
        let path = write(&folder, name, &bytes);
        bad(&run(&path), &[&path, words[0], words[1]]);
    }
    let missing = arg(&folder.path().join("missing.npy"));
    bad(&run(&missing), &[&missing, "no such file"]);
    let huge = folder.path().join("huge.npy");
    std::fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    bad(&run(&arg(&huge)), &["huge.npy", "1099511627776 bytes, more than"]);
    let raw = write(&folder, "in.bin", &elements);
    bad(&kiln(["run", &model, "--input", &raw, "--image-range", "0..1"]), &["--image-range", "leave it out"]);
    let ran = kiln(["run", &model, "--input", &raw, "--image-range", "0..2"]);
    assert!(ran.code == 2 && ran.stderr.contains("-1..1"), "{}", ran.stderr);
}
