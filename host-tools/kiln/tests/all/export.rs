//! What was recorded, as the layers that boards have, and what is written of them.

use std::path::Path;

use kiln::boards::Board;
use kiln::{Arrays, CaseGroup, Cases, Device, Distribution, Error, Export, Runtime, Tensor, Trace};
use kiln_ops::{Activation, Op};
use kiln_passes::recognize_layers;
use kiln_planner::graph::Graph;
use kiln_planner::reference::Evaluator;

fn run(graph: &Graph, image: &[f32]) -> Vec<f32> {
    let bytes: Vec<u8> = image.iter().flat_map(|v| v.to_le_bytes()).collect();
    let values = Evaluator::new(graph).run(0, &[&bytes]).unwrap();
    values[&graph.entries[0].outputs[0]].chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

#[test]
fn a_recorded_network_becomes_layers() {
    let device = Device::cpu();
    device.seed(2);
    fn draw<const D: usize>(dims: [usize; D], device: &Device) -> Tensor<D> {
        let drawn = Tensor::<D>::random(dims, Distribution::Normal, device) * 0.4;
        drawn.realize().unwrap();
        drawn
    }
    let x = draw([1, 8, 8, 3], &device);
    // A convolution with batch normalization, a second one added to it, a pool, two fully connected layers.
    let conv = x.conv2d(&draw([4, 3, 3, 3], &device), Some(&draw([4], &device)), Default::default());
    let (mean, variance) =
        (draw([4], &device).reshape([1, 1, 1, 4]), draw([4], &device).square().reshape([1, 1, 1, 4]));
    let (gamma, beta) = (draw([4], &device).reshape([1, 1, 1, 4]), draw([4], &device).reshape([1, 1, 1, 4]));
    let normal = (conv - mean) / variance.add_scalar(1e-3).sqrt() * gamma + beta;
    let other = x.conv2d(&draw([4, 3, 3, 3], &device), None, Default::default());
    let sum = (normal.relu() + other).clamp(0.0, 6.0);
    let pooled = sum.max_pool2d([2, 2], [2, 2], [0; 4]).reshape([1, 36]);
    let hidden = (pooled.matmul(&draw([36, 10], &device)) + draw([10], &device).reshape([1, 10])).relu();
    let scores = hidden.matmul_transposed(&draw([5, 10], &device)) * 0.5;
    let y = scores.softmax();

    let graph = Trace::new("net").entry("infer", &[("x", &x)], &[("y", &y)], &[]).unwrap().finish().unwrap();
    let layers = recognize_layers(graph.clone()).unwrap();
    let ops: Vec<&str> = layers.entries[0].nodes.iter().map(|n| n.op.name()).collect();
    let expected = ["conv2d", "conv2d", "add", "pool2d", "reshape", "fully_connected", "fully_connected", "softmax"];
    assert_eq!(ops, expected);
    let activations: Vec<Activation> = (layers.entries[0].nodes.iter())
        .filter_map(|n| match n.op {
            Op::Conv2d(op) => Some(op.activation),
            Op::Add(op) => Some(op.activation),
            Op::FullyConnected(op) => Some(op.activation),
            _ => Option::None,
        })
        .collect();
    use Activation::{Relu, Relu6};
    // In the order in which the layers' last operations were recorded.
    assert_eq!(activations, [Activation::None, Relu, Relu6, Relu, Activation::None]);

    let image = x.to_vec().unwrap();
    let recorded = y.to_vec().unwrap();
    for (a, b) in run(&layers, &image).iter().zip(&recorded) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

/// `inputs` numbers times a matrix with as many rows as columns.
fn product(inputs: usize, device: &Device) -> Export {
    let weights = Tensor::<2>::ones([inputs, inputs], device);
    weights.realize().unwrap();
    let x = Tensor::<2>::zeros([1, inputs], device);
    let y = x.matmul_transposed(&weights);
    Export::new(Trace::new("a/b").entry("infer", &[("x", &x)], &[("y", &y)], &[]).unwrap().finish().unwrap()).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn a_crate_that_does_not_fit_is_not_written() {
    let device = Device::cpu();
    let folder = tempfile::tempdir().unwrap();
    let sources = kiln::sources().unwrap();
    let board = Board::builtin("microbit").unwrap();
    let path = folder.path().join("crate");
    // 256 KiB of flash, and 4 bytes for each of 90,000 weights.
    let error = product(300, &device).write_crate(&board, &sources, &path).unwrap_err();
    assert!(matches!(&error, Error::TooLarge { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("a/b does not fit microbit: flash region") && text.contains("too few"), "{text}");
    assert!(!path.exists());

    product(30, &device).write_crate(&board, &sources, &path).unwrap();
    assert_eq!(names(&path), ["Cargo.toml", "a_b.kiln", "src"]);
    assert_eq!(names(&path.join("src")), ["lib.rs", "plan.bin"]);
    // Written again, what is the same is not touched, so that nothing is built anew.
    let manifest = path.join("Cargo.toml");
    let before = std::fs::metadata(&manifest).unwrap().modified().unwrap();
    product(30, &device).write_crate(&board, &sources, &path).unwrap();
    assert_eq!(std::fs::metadata(&manifest).unwrap().modified().unwrap(), before);
}

#[test]
fn numbers_that_a_network_does_not_take_are_refused() {
    let network = product(2, &Device::cpu());
    assert_eq!(network.stored(&[&[1.0, -2.0]]).unwrap(), [[0, 0, 128, 63, 0, 0, 0, 192]]);
    let error = |inputs: &[&[f32]]| network.stored(inputs).unwrap_err().to_string();
    assert_eq!(error(&[&[1.0]]), "the network's inputs: 'x' is float32 [1, 2], but 1 numbers were given");
    assert_eq!(error(&[]), "the network's inputs: 1 are needed, 0 were given");
    assert!(network.runner().unwrap().run(&[&[1.0, 2.0, 3.0]]).is_err());
}

#[test]
fn cases_begin_with_fresh_state() {
    let device = Device::cpu();
    let sum = Tensor::<1>::zeros([1], &device);
    let x = Tensor::<1>::zeros([1], &device);
    sum.realize().unwrap();
    let next = sum.clone() + x.clone();
    let trace = Trace::new("sum").state("sum", &sum).unwrap();
    let graph = trace.entry("infer", &[("x", &x)], &[("y", &next)], &[(&sum, &next)]).unwrap().finish().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let inputs = [1.0f32, 2.0].map(|x| vec![x.to_le_bytes().to_vec()]).to_vec();
    let groups = [CaseGroup { name: "g", inputs, ..CaseGroup::default() }];
    Cases { graph: &graph, licence: None, runtime: None, groups: &groups }.write(folder.path()).unwrap();
    let outputs = std::fs::read(folder.path().join("g.out0.references.bin")).unwrap();
    assert_eq!(outputs, [1.0f32.to_le_bytes(), 2.0f32.to_le_bytes()].concat());
    let io = std::fs::read_to_string(folder.path().join("io.json")).unwrap();
    assert!(io.contains(r#""state": "reset-per-case""#), "{io}");
}

/// What a runtime is.
type Program<'a> = dyn Fn(&[Vec<u8>]) -> Arrays + 'a;

#[test]
fn cases_that_do_not_go_with_their_model_are_refused() {
    let network = product(2, &Device::cpu());
    let folder = tempfile::tempdir().unwrap();
    let inputs = || vec![network.stored(&[&[1.0, 2.0]]).unwrap()];
    let good = || CaseGroup { name: "g", origin: "here", inputs: inputs(), classes: Some(vec![1]) };
    let write = |groups: &[CaseGroup<'_>], run: Option<&Program<'_>>| {
        let runtime = run.map(|run| Runtime { name: "other", what: "another program", run });
        Cases { graph: network.graph(), licence: None, runtime, groups }.write(folder.path())
    };
    let error = |group: CaseGroup<'_>| write(&[group], None).unwrap_err().to_string();
    let short = error(CaseGroup { inputs: vec![vec![vec![0; 7]]], ..good() });
    assert_eq!(short, "recorded cases: group 'g': case 0: 'x' is float32 [1, 2], but has 7 bytes");
    assert!(error(CaseGroup { inputs: vec![vec![]], ..good() }).contains("0 tensors where the model has 1"));
    assert!(error(CaseGroup { inputs: vec![], ..good() }).contains("has no cases"));
    assert!(error(CaseGroup { name: "../g", ..good() }).contains("not a plain file name"));
    assert!(error(CaseGroup { classes: Some(vec![2]), ..good() }).contains("class 2 is none of the 2 elements"));
    assert!(error(CaseGroup { classes: Some(vec![]), ..good() }).contains("classes of 0"));
    let twice = write(&[good(), good()], None).unwrap_err().to_string();
    assert!(twice.contains("two groups are called 'g'"), "{twice}");
    let few = write(&[good()], Some(&|_| vec![vec![0; 4]])).unwrap_err().to_string();
    assert!(few.contains("'y' is float32 [1, 2], but has 4 bytes"), "{few}");
    assert!(names(folder.path()).is_empty());

    write(&[good()], Some(&|inputs| inputs.to_vec())).unwrap();
    assert_eq!(names(folder.path()), ["g.in0.bin", "g.out0.other.bin", "io.json", "model.kiln"]);
}
