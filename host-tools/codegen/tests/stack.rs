//! The computed stack against the stack that emulated firmware uses.
//!
//! Needs a toolchain for the boards' targets and the emulator. Where one is missing the test says so and passes,
//! unless `KILN_REQUIRE_EMULATION=1`.

use std::env;
use std::io::Write as _;
use std::path::Path;

use kiln_boards::{Board, Run};
use kiln_codegen::deploy::Deployment;
use kiln_codegen::emulate::Emulation;
use kiln_codegen::firmware::Mode;
use kiln_codegen::stack::{PAINTED_RUN, PAINTED_SET_UP, painted, stack_of};
use kiln_codegen::symbols::Elf;
use kiln_codegen::target_of;
use kiln_codegen::toolchain::Toolchain;
use kiln_core::{DType, TensorType};
use kiln_ops::{Activation, Add, Conv2d, FullyConnected, Softmax};
use kiln_planner::graph::{Assign, Entry, Graph, Quant, ValueId, tensor_type};
use kiln_planner::{Options, plan};

/// How far the computed figure may be above the measured one: what lies on the deepest path and no run of the models
/// here happens to take, such as the slow way of a division.
const MARGIN: u64 = 64;

fn board(name: &str) -> Option<Board> {
    let board = Board::builtin(name).unwrap();
    let Run::Qemu { binary, .. } = &board.run else { panic!("{name} is not emulated") };
    let missing = match Toolchain::find(&board.target) {
        Err(error) => error.to_string(),
        Ok(_) if which::which(binary).is_err() => format!("{binary} is not in PATH"),
        Ok(_) => return Some(board),
    };
    assert!(env::var_os("KILN_REQUIRE_EMULATION").is_none_or(|value| value != "1"), "missing: {missing}");
    let _ = writeln!(std::io::stdout(), "SKIPPED on board {name}: {missing}");
    None
}

fn ty(dtype: DType, dims: &[u32]) -> TensorType {
    tensor_type(dtype, dims).unwrap()
}

fn quant(dtype: DType) -> Quant {
    if dtype == DType::I8 { Quant::per_tensor(0.05, 3) } else { Quant::default() }
}

fn infer(graph: &mut Graph, inputs: &[ValueId]) {
    graph.entries.push(Entry { name: "infer".into(), inputs: inputs.to_vec(), ..Entry::default() });
}

/// Weights: of these dimensions, all a little different.
fn weights(graph: &mut Graph, name: &str, dtype: DType, dims: &[u32]) -> ValueId {
    let count = dims.iter().product::<u32>();
    let (data, quant): (Vec<u8>, Quant) = match dtype {
        DType::I8 => ((0..count).map(|i| (i * 37 % 251) as u8).collect(), Quant::per_tensor(0.02, 0)),
        _ => ((0..count).flat_map(|i| (i as f32 * 0.01 - 0.3).to_le_bytes()).collect(), Quant::default()),
    };
    graph.add_constant(name, ty(dtype, dims), quant, data)
}

/// A convolution, a depthwise one, a dense layer and softmax, on pictures with padding around.
fn pictures(dtype: DType) -> Graph {
    let mut graph = Graph::new(format!("pictures {}", dtype.name()));
    let x = graph.add_input("picture", ty(dtype, &[1, 8, 8, 2]), quant(dtype));
    infer(&mut graph, &[x]);
    let conv = |groups| Conv2d {
        strides: [1, 1],
        dilations: [1, 1],
        pads: [1, 1, 1, 1],
        groups,
        activation: Activation::Relu6,
    };
    let w = weights(&mut graph, "w", dtype, &[4, 3, 3, 2]);
    let value = graph.add_node(0, "conv", conv(1), &[x, w], quant(dtype)).unwrap();
    let w = weights(&mut graph, "depthwise w", dtype, &[4, 3, 3, 1]);
    let value = graph.add_node(0, "depthwise", conv(4), &[value, w], quant(dtype)).unwrap();
    let w = weights(&mut graph, "dense w", dtype, &[3, 4]);
    let dense = FullyConnected { keep_dims: true, activation: Activation::None };
    let value = graph.add_node(0, "dense", dense, &[value, w], quant(dtype)).unwrap();
    let scores = if dtype == DType::I8 { Quant::per_tensor(1.0 / 256.0, -128) } else { Quant::default() };
    let value = graph.add_node(0, "softmax", Softmax { beta: 1.0 }, &[value], scores).unwrap();
    graph.entries[0].outputs = vec![value];
    graph.validate().unwrap();
    graph
}

/// A sum that is kept from run to run, and an entry `reset`, which loading runs.
fn running_sum() -> Graph {
    let mut graph = Graph::new("running sum");
    let (ty, quant) = (ty(DType::I8, &[1, 4]), quant(DType::I8));
    let x = graph.add_input("x", ty, quant.clone());
    let state = graph.add_state("sum", ty, quant.clone());
    let start = graph.add_constant("start", ty, quant.clone(), vec![1, 2, 3, 250]);
    infer(&mut graph, &[x]);
    let sum = graph.add_node(0, "sum", Add { activation: Activation::None }, &[x, state], quant).unwrap();
    graph.entries[0].outputs = vec![sum];
    graph.entries[0].assigns = vec![Assign { state, value: sum }];
    let assigns = vec![Assign { state, value: start }];
    graph.entries.push(Entry { name: "reset".into(), assigns, ..Entry::default() });
    graph.validate().unwrap();
    graph
}

/// Builds firmware that paints its stack, runs it twice, and holds what it used against what was computed.
fn computed_is_a_close_bound(name: &str) {
    let Some(board) = board(name) else { return };
    for graph in [pictures(DType::I8), pictures(DType::F32), running_sum()] {
        let directory = tempfile::tempdir().unwrap();
        let planned = plan(&graph, &Options::for_target(target_of(&board))).unwrap();
        let deployment = Deployment {
            graph: &graph,
            planned: &planned,
            board: &board,
            sources: &Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
            out: directory.path(),
            build: &Path::new(env!("CARGO_TARGET_TMPDIR")).join("firmware"),
        };
        let elf = deployment.build_changed(Mode::Replay, |glue| painted(&glue)).unwrap();
        // What was planned is in the image, and nothing around it.
        assert_eq!(Elf::read(&elf).unwrap().plan_bytes(), planned.image_bytes());
        let inputs = planned.main_entry().unwrap().inputs.iter();
        let bytes: u64 = inputs.map(|&input| graph.value(input).ty.bytes().unwrap()).sum();
        let input: Vec<u8> = (0..2 * bytes).map(|i| if i % 4 == 3 { 0x3f } else { (i * 7) as u8 }).collect();
        let outputs = Emulation::new(&board, &elf, directory.path()).replay(&input).unwrap().outputs;
        let used: Vec<u64> =
            outputs.chunks(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).collect();
        let [first, set_up, second, _] = used[..] else { panic!("{used:?}") };
        for (what, used, function) in [("infer", first.max(second), PAINTED_RUN), ("set up", set_up, PAINTED_SET_UP)] {
            let computed = stack_of(&elf, function).unwrap();
            let _ = writeln!(
                std::io::stdout(),
                "{name}, {}, {what}: {used} bytes used, {} computed: {computed}",
                graph.name,
                computed.bytes
            );
            assert!(used <= computed.bytes, "{name}, {}, {what}: {used} bytes used, {computed}", graph.name);
            assert!(computed.bytes - used <= MARGIN, "{name}, {}, {what}: only {used} used, {computed}", graph.name);
            assert_eq!(computed.path.iter().map(|link| link.bytes).sum::<u64>(), computed.bytes);
        }
    }
}

#[test]
fn on_a_cortex_m4f() {
    computed_is_a_close_bound("mps2-an386");
}

#[test]
fn on_a_cortex_m0() {
    computed_is_a_close_bound("microbit");
}

#[test]
fn on_risc_v() {
    computed_is_a_close_bound("qemu-riscv32");
}
