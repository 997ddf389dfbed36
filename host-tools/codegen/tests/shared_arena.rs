//! Firmware with two models that take turns in one arena, on an emulated board: each computes what it computes alone.
//!
//! Needs a toolchain for the board's target and the emulator. Where one is missing the test says so and passes, unless
//! `KILN_REQUIRE_EMULATION=1`.

use std::env;
use std::io::Write as _;
use std::path::Path;

use kiln_boards::{Board, Run};
use kiln_codegen::emulate::Emulation;
use kiln_codegen::firmware::{Firmware, Mode, Optimize, PathDependency};
use kiln_codegen::model_crate::ModelCrate;
use kiln_codegen::symbols::Elf;
use kiln_codegen::target_of;
use kiln_codegen::toolchain::Toolchain;
use kiln_core::{DType, TensorType};
use kiln_ops::{Activation, Add, Conv2d, FullyConnected};
use kiln_planner::graph::{Assign, Entry, Graph, Quant, tensor_type};
use kiln_planner::{Options, plan};
use kiln_target_host::Runner;

/// A run is a turn of `echo`, then one of `eye`, then one of `echo` again; outputs are copied, since they go with the turn.
const GLUE: &str = r#"
    use echo_model::kiln_core::{Bank, largest};
    use echo_model::kiln_core::zerocopy::IntoBytes;

    const SHARED_ARENA_BYTES: usize = largest([echo_model::ARENA_BYTES, eye_model::ARENA_BYTES]);

    #[unsafe(no_mangle)]
    static mut SHARED_ARENA: Bank<SHARED_ARENA_BYTES> = Bank::new();
    #[unsafe(no_mangle)]
    static mut ECHO_STATE: echo_model::State = echo_model::State::new();

    struct Turns {
        arena: &'static mut Bank<SHARED_ARENA_BYTES>,
        echo: echo_model::Parked<'static>,
        eye: eye_model::Parked<'static>,
        heard: [[i8; 16]; 2],
        seen: eye_model::input::Data,
        outputs: ([i8; 16], eye_model::output::Data, [i8; 16]),
    }

    impl Replay for Turns {
        fn input_count(&self) -> usize { 3 }
        fn input(&mut self, index: usize) -> &mut [u8] {
            match index {
                0 => self.heard[0].as_mut_bytes(),
                1 => self.seen.as_mut_bytes(),
                2 => self.heard[1].as_mut_bytes(),
                _ => &mut [],
            }
        }
        fn output_count(&self) -> usize { 3 }
        fn output(&self, index: usize) -> &[u8] {
            match index {
                0 => self.outputs.0.as_bytes(),
                1 => self.outputs.1.as_bytes(),
                2 => self.outputs.2.as_bytes(),
                _ => &[],
            }
        }
        fn run(&mut self) {
            let mut echo = self.echo.attach(self.arena);
            *echo.input_mut() = self.heard[0];
            self.outputs.0 = *echo.infer();
            let mut eye = self.eye.attach(self.arena);
            *eye.input_mut() = self.seen;
            self.outputs.1 = *eye.infer();
            let mut echo = self.echo.attach(self.arena);
            *echo.input_mut() = self.heard[1];
            self.outputs.2 = *echo.infer();
        }
        fn run_dumping(&mut self, _: &mut dyn FnMut(u32, &[u8])) {
            self.run();
        }
    }

    #[inline(never)]
    fn model() -> impl Replay {
        // SAFETY: this is called once, at start-up, so these are the only references there ever are.
        let (arena, state) =
            unsafe { (&mut *core::ptr::addr_of_mut!(SHARED_ARENA), &mut *core::ptr::addr_of_mut!(ECHO_STATE)) };
        let (Ok(echo), Ok(eye)) = (echo_model::Parked::new(state, arena), eye_model::Parked::new(arena)) else {
            platform::exit(platform::Exit::Model)
        };
        Turns { arena, echo, eye, heard: [[0; 16]; 2], seen: [0; 192], outputs: ([0; 16], [0; 10], [0; 16]) }
    }
"#;

const CASES: usize = 7;

fn ty(dims: &[u32]) -> TensorType {
    tensor_type(DType::I8, dims).unwrap()
}

fn quant() -> Quant {
    Quant::per_tensor(0.05, 2)
}

fn weights(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|i| ((i + seed) * 37 % 251) as u8).collect()
}

/// What it heard comes back: the output depends on all inputs so far.
fn echo() -> Graph {
    let mut g = Graph::new("echo");
    let x = g.add_input("x", ty(&[1, 16]), quant());
    let state = g.add_state("heard", ty(&[1, 16]), quant());
    g.entries.push(Entry { name: "infer".into(), inputs: vec![x], ..Entry::default() });
    let w = g.add_constant("w", ty(&[16, 16]), Quant::per_tensor(0.01, 0), weights(256, 1));
    let dense = FullyConnected { keep_dims: false, activation: Activation::None };
    let mixed = g.add_node(0, "mixed", dense, &[state, w], quant()).unwrap();
    let sum = g.add_node(0, "sum", Add { activation: Activation::None }, &[x, mixed], quant()).unwrap();
    g.entries[0].outputs = vec![sum];
    g.entries[0].assigns = vec![Assign { state, value: sum }];
    g.validate().unwrap();
    g
}

/// A picture of 8 x 8 x 3 to 10 numbers, without state and with the larger arena.
fn eye() -> Graph {
    let mut g = Graph::new("eye");
    let x = g.add_input("picture", ty(&[1, 8, 8, 3]), quant());
    g.entries.push(Entry { name: "infer".into(), inputs: vec![x], ..Entry::default() });
    let w = g.add_constant("w", ty(&[8, 3, 3, 3]), Quant::per_tensor(0.02, 0), weights(216, 5));
    let conv = Conv2d { strides: [1, 1], dilations: [1, 1], pads: [1; 4], groups: 1, activation: Activation::Relu };
    let y = g.add_node(0, "conv", conv, &[x, w], quant()).unwrap();
    let w = g.add_constant("v", ty(&[10, 512]), Quant::per_tensor(0.01, 0), weights(5120, 9));
    let dense = FullyConnected { keep_dims: false, activation: Activation::None };
    let flat = kiln_ops::Reshape { shape: ty(&[1, 512]).shape };
    let y = g.add_node(0, "flat", flat, &[y], quant()).unwrap();
    let y = g.add_node(0, "dense", dense, &[y, w], quant()).unwrap();
    g.entries[0].outputs = vec![y];
    g.validate().unwrap();
    g
}

/// The board, or `None` after saying what is missing.
fn board(name: &str) -> Option<Board> {
    let board = Board::builtin(name).unwrap();
    let Run::Qemu { binary, .. } = &board.run else { panic!("{name} is not emulated") };
    let missing = match Toolchain::find(&board.target) {
        Err(error) => error.to_string(),
        Ok(_) if which::which(binary).is_err() => format!("{binary} is not in PATH"),
        Ok(_) => return Some(board),
    };
    if env::var_os("KILN_REQUIRE_EMULATION").is_some_and(|value| value == "1") {
        panic!("KILN_REQUIRE_EMULATION is set, but: {missing}");
    }
    let _ = writeln!(std::io::stdout(), "SKIPPED on board {name}: {missing}");
    None
}

#[test]
fn models_take_turns_on_a_board() {
    let Some(board) = board("mps2-an386") else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let options = Options { shared_arena: true, ..Options::for_target(target_of(&board)) };
    let graphs = [echo(), eye()];
    let plans = graphs.each_ref().map(|graph| plan(graph, &options).unwrap());
    let mut dependencies = Vec::new();
    for (graph, planned) in graphs.iter().zip(&plans) {
        let model = ModelCrate { graph, planned, board: &board.name, sources: &root };
        let path = directory.path().join(model.package());
        model.write(&path).unwrap();
        dependencies.push(PathDependency { package: model.package(), path });
    }
    let firmware = Firmware {
        name: "turns",
        board: &board,
        dependencies: &dependencies,
        glue: GLUE,
        sources: &root,
        out: directory.path(),
        optimize: Optimize::Size,
        mode: Mode::Replay,
    };
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("firmware");
    let elf = firmware.build_in(&Toolchain::find(&board.target).unwrap(), &target).unwrap();

    // No panic path and no heap; and the RAM is that of the state and the larger arena, and nothing else of the models'.
    let image = Elf::read(&elf).unwrap();
    assert_eq!(image.forbidden(), []);
    let (state, arena) = (plans[0].state_bytes, plans.iter().map(|p| p.arena_bytes).max().unwrap());
    assert_eq!((plans[0].state_bytes, plans[1].state_bytes, arena), (16, 0, plans[1].arena_bytes));
    assert!(plans[0].arena_bytes > 0 && plans[0].arena_bytes < arena);
    let size = |name: &str| image.symbols.iter().find(|s| s.name == name).map(|s| s.bytes);
    assert_eq!(size("SHARED_ARENA"), Some(arena.next_multiple_of(16)));
    assert_eq!(size("ECHO_STATE"), Some(state));

    let cases: Vec<[Vec<u8>; 3]> =
        (0..CASES).map(|case| [weights(16, case * 3), weights(192, case * 11), weights(16, case * 5 + 100)]).collect();
    let inputs: Vec<u8> = cases.iter().flatten().flatten().copied().collect();
    let replayed = Emulation::new(&board, &elf, directory.path()).replay(&inputs).unwrap();

    let alone = graphs.each_ref().map(|graph| plan(graph, &Options::for_target(target_of(&board))).unwrap());
    let [mut echo, mut eye] = alone.each_ref().map(|planned| Runner::new(&planned.bytes).unwrap());
    let mut expected = Vec::new();
    for [first, picture, second] in &cases {
        expected.extend(echo.run("infer", &[first]).unwrap().concat());
        expected.extend(eye.run("infer", &[picture]).unwrap().concat());
        expected.extend(echo.run("infer", &[second]).unwrap().concat());
    }
    assert_eq!(replayed.outputs, expected);
    // The state matters: a fresh start gives something else.
    echo.reset();
    assert_ne!(echo.run("infer", &[&cases[CASES - 1][2]]).unwrap().concat(), expected[expected.len() - 16..]);
}
