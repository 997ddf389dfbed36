//! A plan over two regions of RAM on an emulated board with a small first one: where its memory lies, and what it computes.
//!
//! Needs a toolchain for the board's target and the emulator. Where one is missing the test says so and passes, unless
//! `KILN_REQUIRE_EMULATION=1`.

use std::io::Write as _;
use std::path::Path;
use std::{env, fs};

use kiln_boards::{Board, Run};
use kiln_codegen::deploy::Deployment;
use kiln_codegen::emulate::Emulation;
use kiln_codegen::firmware::Mode;
use kiln_codegen::fit::{is_spread, options_for, shortages};
use kiln_codegen::symbols::Elf;
use kiln_codegen::toolchain::Toolchain;
use kiln_core::{DType, TensorType};
use kiln_ops::{Activation, Add, Conv2d};
use kiln_planner::graph::{Entry, Graph, Quant, tensor_type};
use kiln_planner::{Options, plan};
use kiln_target_host::Runner;

/// MPS2+ AN386 as if it had little fast memory, and 1 MiB of its slow one.
fn small_board(directory: &Path) -> Board {
    let path = directory.join("small.toml");
    let file = include_str!("../../../boards/mps2-an386.toml");
    let file = file.replacen("name = \"mps2-an386\"", "name = \"mps2-small\"", 1);
    let file = file.replacen("start = 0x2000_0000\nbytes = 0x40_0000", "start = 0x2000_0000\nbytes = 0x3000", 1);
    let slow =
        "[[memory]]\nname = \"PSRAM\"\nkind = \"ram\"\nstart = 0x2100_0000\nbytes = 0x10_0000\nfast = false\n\n[run]";
    fs::write(&path, file.replacen("[run]", slow, 1)).unwrap();
    Board::load(path.to_str().unwrap()).unwrap()
}

fn ty(dims: &[u32]) -> TensorType {
    tensor_type(DType::I8, dims).unwrap()
}

fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|i| ((i + seed) * 37 % 251) as u8).collect()
}

/// Two convolutions, and the sum of what both put out: three tensors of 8 KiB live at a time.
fn residual() -> Graph {
    let quant = || Quant::per_tensor(0.05, 2);
    let mut g = Graph::new("residual");
    let x = g.add_input("picture", ty(&[1, 32, 32, 3]), quant());
    g.entries.push(Entry { name: "infer".into(), inputs: vec![x], ..Entry::default() });
    let conv = || Conv2d { strides: [1, 1], dilations: [1, 1], pads: [1; 4], groups: 1, activation: Activation::Relu };
    let w = g.add_constant("w", ty(&[8, 3, 3, 3]), Quant::per_tensor(0.02, 0), bytes(216, 5));
    let first = g.add_node(0, "first", conv(), &[x, w], quant()).unwrap();
    let w = g.add_constant("v", ty(&[8, 3, 3, 8]), Quant::per_tensor(0.01, 0), bytes(576, 9));
    let second = g.add_node(0, "second", conv(), &[first, w], quant()).unwrap();
    let sum = g.add_node(0, "sum", Add { activation: Activation::None }, &[first, second], quant()).unwrap();
    g.entries[0].outputs = vec![sum];
    g.validate().unwrap();
    g
}

/// Whether the board can be built for and run here; if not, says what is missing.
fn is_there(board: &Board) -> bool {
    let Run::Qemu { binary, .. } = &board.run else { panic!("{} is not emulated", board.name) };
    let missing = match Toolchain::find(&board.target) {
        Err(error) => error.to_string(),
        Ok(_) if which::which(binary).is_err() => format!("{binary} is not in PATH"),
        Ok(_) => return true,
    };
    if env::var_os("KILN_REQUIRE_EMULATION").is_some_and(|value| value == "1") {
        panic!("KILN_REQUIRE_EMULATION is set, but: {missing}");
    }
    let _ = writeln!(std::io::stdout(), "SKIPPED on board {}: {missing}", board.name);
    false
}

#[test]
fn a_plan_over_two_regions_runs_on_a_board() {
    let directory = tempfile::tempdir().unwrap();
    let board = small_board(directory.path());
    let graph = residual();
    let options = options_for(&board);
    let one = plan(&graph, &Options::for_target(options.target)).unwrap();
    let two = plan(&graph, &options).unwrap();
    assert!(one.ram_bytes > 0x3000 && !is_spread(&one));
    assert_eq!(shortages(&one, &board).len(), 1);
    // A quarter of the first region is left for the stack.
    assert!(is_spread(&two) && two.banks.len() == 2 && two.banks[0] <= 0x2400, "{:?}", two.banks);
    assert_eq!(shortages(&two, &board), [] as [String; 0]);
    // The first convolution's output is read by both of the others; what is written and read once makes way.
    let entry = two.main_entry().unwrap();
    let bank = |name: &str| entry.tensors.iter().find(|t| t.name == name).map(|t| t.bank);
    assert_eq!((bank("first"), bank("second")), (Some(0), Some(1)));
    if !is_there(&board) {
        return;
    }

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join("firmware");
    let deployment = Deployment {
        graph: &graph,
        planned: &two,
        board: &board,
        sources: &root,
        out: directory.path(),
        build: &build,
    };
    let elf = deployment.build(Mode::Replay).unwrap();
    let image = Elf::read(&elf).unwrap();
    assert_eq!(image.forbidden(), []);
    let found = |part: &str| image.symbols.iter().find(|s| s.name.contains(part)).map(|s| (s.address, s.bytes));
    let (address, size) = found("BANK1").expect("a static for the second region");
    assert_eq!((address, size), (0x2100_0000, two.banks[1].next_multiple_of(16)));
    let (address, size) = found("ARENA").expect("a static for the first region");
    assert!((0x2000_0000..0x2000_3000).contains(&address) && size == two.banks[0].next_multiple_of(16));

    let cases = [bytes(3072, 1), bytes(3072, 77), bytes(3072, 130)];
    let replayed = Emulation::new(&board, &elf, directory.path()).replay(&cases.concat()).unwrap();
    let mut alone = Runner::new(&one.bytes).unwrap();
    let expected: Vec<u8> = cases.iter().flat_map(|case| alone.run("infer", &[case]).unwrap().concat()).collect();
    assert!(replayed.outputs == expected);
}
