//! `kiln quantize`: on a small float32 model made here, and on a trained one whose int8 form others made.

use std::path::{Path, PathBuf};

use kiln_core::{DType, TargetId};
use kiln_import::import_tflite;
use kiln_ops::{Activation, Conv2d, FullyConnected, Op, Reshape, Softmax};
use kiln_planner::graph::{Entry, Graph, Quant, Source, tensor_type};
use kiln_planner::kiln_file::{About, KilnFile};
use kiln_planner::{Options, plan};
use kiln_target_host::Runner;
use tempfile::TempDir;

use crate::exit_codes::{bad, write};
use crate::support::{Ran, arg, kiln, kiln_fine, model_folder};
use crate::synthetic;

/// Elements of an input of the small model.
const ELEMENTS: usize = 32;

fn floats(count: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..count).flat_map(|_| next().to_le_bytes()).collect()
}

/// float32 [1, 4, 4, 2] to the probabilities of four classes.
fn model() -> Vec<u8> {
    let mut g = Graph::new("small");
    let ty = |dims: &[u32]| tensor_type(DType::F32, dims).unwrap();
    let x = g.add_input("x", ty(&[1, 4, 4, 2]), Quant::default());
    g.entries.push(Entry { name: "infer".into(), inputs: vec![x], ..Entry::default() });
    let constant = |g: &mut Graph, name: &str, dims: &[u32], seed| {
        let count = dims.iter().product::<u32>() as usize;
        g.add_constant(name, ty(dims), Quant::default(), floats(count, seed))
    };
    let (w, b) = (constant(&mut g, "conv/w", &[3, 3, 3, 2], 1), constant(&mut g, "conv/b", &[3], 2));
    let conv = Conv2d { strides: [1, 1], dilations: [1, 1], pads: [1; 4], groups: 1, activation: Activation::Relu };
    let add =
        |g: &mut Graph, name: &str, op: Op, inputs: &[_]| g.add_node(0, name, op, inputs, Quant::default()).unwrap();
    let c = add(&mut g, "conv", conv.into(), &[x, w, b]);
    let flat = add(&mut g, "flat", Reshape { shape: ty(&[1, 48]).shape }.into(), &[c]);
    let w = constant(&mut g, "dense/w", &[4, 48], 3);
    let dense = FullyConnected { keep_dims: false, activation: Activation::None };
    let d = add(&mut g, "dense", dense.into(), &[flat, w]);
    let y = add(&mut g, "scores", Softmax { beta: 1.0 }.into(), &[d]);
    g.entries[0].outputs = vec![y];
    let about = About { model: "small".into(), board: "host".into(), kiln: "0.1.0".into() };
    KilnFile { graph: Some(g), plans: Vec::new(), about }.to_bytes().unwrap()
}

/// A folder with the model, and a folder in it with samples in folders called by the class that the
/// float32 model sees in them.
fn labelled(samples: u32) -> (TempDir, String, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, "small.kiln", &model());
    let (sample, output) = (folder.path().join("sample.bin"), folder.path().join("output.bin"));
    let set = folder.path().join("set");
    for number in 0..samples {
        std::fs::write(&sample, floats(ELEMENTS, 100 + number)).unwrap();
        kiln_fine(["run", &model, "--input", &arg(&sample), "--output", &arg(&output)]);
        let scores = std::fs::read(&output).unwrap();
        let scores: Vec<f32> = scores.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let top = (0..4).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
        let place = set.join(top.to_string());
        std::fs::create_dir_all(&place).unwrap();
        std::fs::copy(&sample, place.join(format!("{number}.bin"))).unwrap();
    }
    (folder, model, set)
}

fn run(arguments: &[&str]) -> Ran {
    kiln([&["quantize"][..], arguments].concat())
}

/// As `bad`, where progress comes before the error.
fn refused(ran: &Ran, words: &[&str]) {
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    let error = ran.stderr.split_once("error: ").unwrap().1;
    for word in words {
        assert!(error.contains(word), "no '{word}' in: {}", ran.stderr);
    }
}

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}

#[test]
fn the_report() {
    let (_folder, model, set) = labelled(24);
    let text = kiln_fine(["quantize", &model, "--calibration", &arg(&set), "--layers"]);
    insta::assert_snapshot!("quantize", text);
}

#[test]
fn what_is_written_is_a_model_like_any_other() {
    let (folder, model, set) = labelled(12);
    let out = arg(&folder.path().join("int8.kiln"));
    let ran = run(&[&model, "--calibration", &arg(&set), "--board", "mps2-an386", "--out", &out]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(kiln_fine(["inspect", &out]).contains("Made from 'small' for board 'mps2-an386'"));
    assert!(kiln_fine(["plan", &out, "--board", "microbit"]).contains("small on microbit (armv6-m): fits"));
    let (a, b) = (arg(&folder.path().join("a.bin")), arg(&folder.path().join("b.npy")));
    let sample = write(&folder, "x.npy", &npy(&floats(ELEMENTS, 100)));
    kiln_fine(["run", &model, "--input", &sample, "--output", &a]);
    kiln_fine(["run", &out, "--input", &sample, "--output", &b]);
    let want = std::fs::read(a).unwrap();
    let got = std::fs::read(b).unwrap();
    for (want, got) in want.chunks(4).zip(&got[got.len() - 4..]) {
        let got = f32::from(*got as i8 as i16 + 128) / 256.0;
        assert!((f32::from_le_bytes(want.try_into().unwrap()) - got).abs() < 0.06);
    }
    // The same samples give the same file.
    let again = arg(&folder.path().join("again.kiln"));
    run(&[&model, "--calibration", &arg(&set), "--board", "mps2-an386", "--out", &again]);
    assert_eq!(std::fs::read(out).unwrap(), std::fs::read(again).unwrap());
    // float32 outside takes what the first model took.
    let real = arg(&folder.path().join("real.kiln"));
    assert_eq!(run(&[&model, "--calibration", &arg(&set), "--float-io", "--out", &real]).code, 0);
    assert!(kiln_fine(["run", &real, "--input", &sample]).starts_with("scores: float32 [1, 4]"));
}

/// A .npy file of float32 [1, 4, 4, 2].
fn npy(data: &[u8]) -> Vec<u8> {
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4, 4, 2), }\n";
    [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), data].concat()
}

#[test]
fn samples_that_calibration_leaves_are_tested_on() {
    let (folder, model, set) = labelled(20);
    let text = kiln_fine(["quantize", &model, "--calibration", &arg(&set), "--samples", "15"]);
    assert!(
        text.contains("ranges by minmax from 15 samples") && text.contains("On the 5 samples that calibration left")
    );
    let text = kiln_fine(["quantize", &model, "--calibration", &arg(&set), "--samples", "15", "--test", &arg(&set)]);
    assert!(text.contains("On the 20 samples of the test set"), "{text}");
    // Without classes there is agreement, and no accuracy.
    let stack = write(&folder, "many.bin", &floats(ELEMENTS * 8, 5));
    let text = kiln_fine(["quantize", &model, "--calibration", &stack, "--method", "percentile:99.9"]);
    assert!(text.contains("ranges by percentile:99.9 from 8 samples") && text.contains("same class: "), "{text}");
    assert!(!text.contains("accuracy"), "{text}");
}

#[test]
fn too_much_loss_writes_nothing() {
    let (folder, model, set) = labelled(16);
    let out = arg(&folder.path().join("int8.kiln"));
    // Ranges of half the values cost accuracy; the float32 model has 100 % by construction.
    let given = [&model, "--calibration", &arg(&set), "--out", &out, "--method", "percentile:51", "--max-loss"];
    let ran = run(&[&given[..], &["-1"]].concat());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("and --max-loss allows -1") && ran.stderr.contains("nothing was written"),
        "{}",
        ran.stderr
    );
    assert!(ran.stdout.contains("accuracy                    100.00 %") && !exists(&out));
    let ran = run(&[&given[..], &["100"]].concat());
    assert!(ran.code == 0 && exists(&out), "{}", ran.stderr);
}

#[test]
fn what_can_not_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, "small.kiln", &model());
    let stack = write(&folder, "many.bin", &floats(ELEMENTS * 4, 5));
    let with = |more: &[&str]| run(&[&[&model, "--calibration"][..], more].concat());
    bad(&with(&[&stack, "--method", "mean"]), &["'mean' is no way to choose ranges", "percentile:99.9"]);
    bad(&with(&[&stack, "--samples", "0"]), &["--samples"]);
    bad(&with(&[&arg(&folder.path().join("missing"))]), &["missing", "cannot read"]);
    refused(
        &with(&[&write(&folder, "short.bin", &[0; 12])]),
        &["short.bin", "float32 [1, 4, 4, 2], 128 bytes, but the file has 12"],
    );
    let empty = tempfile::tempdir().unwrap();
    bad(&with(&[&arg(empty.path())]), &["no samples in it"]);
    let mut nan = floats(ELEMENTS, 1);
    nan[4..8].copy_from_slice(&f32::NAN.to_le_bytes());
    refused(&with(&[&write(&folder, "nan.bin", &nan)]), &["nan.bin: tensor 'x': element 1 is NaN"]);
    refused(&with(&[&stack, "--test", &arg(&folder.path().join("nan.bin"))]), &["nan.bin: element 1 is not a number"]);
    let wide = folder.path().join("wide");
    std::fs::create_dir_all(wide.join("7")).unwrap();
    std::fs::write(wide.join("7/a.bin"), floats(ELEMENTS, 1)).unwrap();
    refused(&with(&[&arg(&wide)]), &["its class is 7, and the model's output has 4"]);
    let int8 = write(&folder, "int8.kiln", &synthetic::file(true, &[]));
    bad(&run(&[&int8, "--calibration", &stack]), &["int8.kiln: nothing in it can be quantized", "is not float32"]);
    // The report comes first here: only the runs show that no sample has a class.
    let ran = with(&[&stack, "--max-loss", "1"]);
    assert!(ran.code == 2 && ran.stderr.contains("--max-loss needs samples whose classes are known"), "{}", ran.stderr);
}

#[test]
fn a_board_that_is_too_small() {
    let (folder, model, set) = labelled(4);
    let board =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../boards/microbit.toml")).unwrap();
    let small: String = board
        .lines()
        .map(|line| match line.starts_with("bytes") {
            true => "bytes = 64\n".to_owned(),
            false => format!("{line}\n"),
        })
        .collect();
    let small = write(&folder, "small.toml", small.as_bytes());
    let out = arg(&folder.path().join("int8.kiln"));
    let ran = run(&[&model, "--calibration", &arg(&set), "--board", &small, "--out", &out]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("does not fit board") && !exists(&out), "{}", ran.stderr);
}

/// CIFAR-10 images, and MLPerf Tiny's ResNet in float32 and as quantized by its authors.
struct Resnet {
    real: PathBuf,
    int8: PathBuf,
    images: Vec<u8>,
}

/// A record of CIFAR-10: a byte with the class, then planes of red, green and blue.
const RECORD: usize = 3073;

impl Resnet {
    fn find() -> Option<Resnet> {
        let real = model_folder("mlperf-ic-resnet8-f32")?;
        let images = std::fs::read(real.join("../../datasets/cifar10/test500-exact.bin")).unwrap();
        // All of them take a minute without optimization; of those a tenth, spread over all classes.
        let step = if cfg!(debug_assertions) { 10 } else { 1 };
        let images: Vec<u8> = images.chunks(RECORD).step_by(step).flatten().copied().collect();
        let int8 = model_folder("mlperf-ic-resnet8-int8")?.join("model.tflite");
        Some(Resnet { real: real.join("model.tflite"), int8, images })
    }

    /// The percentage of images that the authors' int8 model gets right.
    fn accuracy_of_the_authors(&self) -> f64 {
        let graph = import_tflite(&std::fs::read(&self.int8).unwrap(), "int8").unwrap();
        let planned = plan(&graph, &Options::for_target(TargetId::PORTABLE)).unwrap();
        let mut runner = Runner::new(&planned.bytes).unwrap();
        let right = self.images.chunks(RECORD).filter(|record| {
            let pixel = |at: usize| (0..3).map(move |plane| 1 + plane * 1024 + at);
            // Its input has scale 1 and zero point -128.
            let input: Vec<u8> = (0..1024).flat_map(pixel).map(|at| record[at].wrapping_sub(128)).collect();
            let output = runner.run("infer", &[&input]).unwrap().remove(0);
            let top = (0..10).rev().max_by_key(|&class| output[class] as i8);
            top == Some(record[0].into())
        });
        100.0 * right.count() as f64 / (self.images.len() / RECORD) as f64
    }
}

/// The two percentages of the line "accuracy".
fn accuracies(report: &str) -> [f64; 2] {
    let line = report.lines().find(|line| line.starts_with("accuracy")).unwrap();
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
    [numbers.next().unwrap(), numbers.next().unwrap()]
}

#[test]
fn a_trained_network_keeps_its_accuracy() {
    let Some(net) = Resnet::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let images = write(&folder, "images.bin", &net.images);
    // In points; one image of the fifty is two.
    let (samples, most) = if cfg!(debug_assertions) { ("20", 2.0) } else { ("100", 1.0) };
    for method in ["minmax", "percentile:99.99"] {
        let text = kiln_fine([
            "quantize",
            &arg(&net.real),
            "--calibration",
            &images,
            "--test",
            &images,
            "--image-range",
            "0..255",
            "--samples",
            samples,
            "--method",
            method,
        ]);
        let [before, after] = accuracies(&text);
        if !cfg!(debug_assertions) {
            // As published with the images.
            assert_eq!(before, 87.8);
        }
        assert!((before - after).abs() <= most, "{method}: {before} % became {after} %");
        // The authors' own took ranges from least to greatest.
        let authors = net.accuracy_of_the_authors();
        let as_theirs = method != "minmax" || (authors - after).abs() <= most;
        assert!(as_theirs, "{after} %, where the authors' int8 model has {authors} %");
    }
}

/// The authors quantized the same weights, with TensorFlow's converter.
#[test]
fn weights_are_those_of_tensorflows_converter() {
    let Some(net) = Resnet::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let images = write(&folder, "images.bin", &net.images[..RECORD * 5]);
    let out = arg(&folder.path().join("int8.kiln"));
    let range = ["--image-range", "0..255", "--out", &out];
    kiln_fine([&["quantize", &arg(&net.real), "--calibration", &images][..], &range].concat());
    let ours = KilnFile::from_bytes(&std::fs::read(&out).unwrap()).unwrap().graph.unwrap();
    let theirs = import_tflite(&std::fs::read(&net.int8).unwrap(), "int8").unwrap();
    let convolutions = |graph: &Graph| {
        let nodes = graph.entries[0].nodes.iter().filter(|n| matches!(n.op, Op::Conv2d(_)));
        nodes.map(|n| graph.value(n.inputs[1]).clone()).collect::<Vec<_>>()
    };
    let (ours, theirs) = (convolutions(&ours), convolutions(&theirs));
    assert_eq!((ours.len(), theirs.len()), (9, 9));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!((ours.ty, &ours.quant.scales), (theirs.ty, &theirs.quant.scales));
        let (Source::Constant(a), Source::Constant(b)) = (&ours.source, &theirs.source) else { panic!("not constant") };
        let off: Vec<u8> = a.iter().zip(b.iter()).map(|(&a, &b)| (a as i8).abs_diff(b as i8)).collect();
        // Their quotients are of single precision: close to a half, some are rounded the other way.
        assert!(off.iter().all(|&off| off <= 1) && off.iter().filter(|&&off| off > 0).count() <= 2);
    }
}
