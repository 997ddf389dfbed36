//! The counter against a loop of known length: firmware with a loop written in assembly, whose every instruction, load
//! and store is known.

use std::io::Write as _;
use std::path::Path;
use std::{env, fs};

use kiln_boards::{Board, Run};
use kiln_codegen::count::{CountedRun, CountedStep, Counting, Counts};
use kiln_codegen::emulate::Emulation;
use kiln_codegen::firmware::{Firmware, Mode, Optimize, PathDependency};
use kiln_codegen::plugin;
use kiln_codegen::symbols::Elf;
use kiln_codegen::toolchain::Toolchain;

/// Two loops of one instruction less than they are asked for rounds: `counted_copy` loads and stores a word each round in
/// four instructions, `counted_down` does neither in two. Each returns with one instruction.
const MODEL: &str = r#"#![no_std]
use core::arch::global_asm;

#[cfg(target_arch = "arm")]
global_asm!(
    ".syntax unified", ".thumb",
    ".global counted_copy", ".type counted_copy, %function", ".thumb_func",
    "counted_copy:",
    "1:", "ldr r2, [r1]", "str r2, [r1]", "subs r0, r0, #1", "bne 1b",
    "bx lr", ".size counted_copy, . - counted_copy",
    ".global counted_down", ".type counted_down, %function", ".thumb_func",
    "counted_down:",
    "1:", "subs r0, r0, #1", "bne 1b",
    "bx lr", ".size counted_down, . - counted_down",
);

#[cfg(target_arch = "riscv32")]
global_asm!(
    ".global counted_copy", ".type counted_copy, @function",
    "counted_copy:",
    "1:", "lw t0, 0(a1)", "sw t0, 0(a1)", "addi a0, a0, -1", "bnez a0, 1b",
    "ret", ".size counted_copy, . - counted_copy",
    ".global counted_down", ".type counted_down, @function",
    "counted_down:",
    "1:", "addi a0, a0, -1", "bnez a0, 1b",
    "ret", ".size counted_down, . - counted_down",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".global counted_copy", ".type counted_copy, %function",
    "counted_copy:",
    "1:", "ldr w2, [x1]", "str w2, [x1]", "subs w0, w0, #1", "b.ne 1b",
    "ret", ".size counted_copy, . - counted_copy",
    ".global counted_down", ".type counted_down, %function",
    "counted_down:",
    "1:", "subs w0, w0, #1", "b.ne 1b",
    "ret", ".size counted_down, . - counted_down",
);

unsafe extern "C" {
    fn counted_copy(rounds: u32, word: *mut u32);
    fn counted_down(rounds: u32);
}

pub fn run(rounds: u32) {
    let mut word = 7;
    // SAFETY: the loops touch nothing but the word and registers that a call may change.
    unsafe {
        counted_copy(rounds, &mut word);
        counted_down(rounds);
    }
}
"#;

const GLUE: &str = r#"
struct Glue([u8; 4]);
impl Replay for Glue {
    fn input_count(&self) -> usize { 1 }
    fn input(&mut self, _: usize) -> &mut [u8] { &mut self.0 }
    fn output_count(&self) -> usize { 0 }
    fn output(&self, _: usize) -> &[u8] { &[] }
    fn run(&mut self) { loops::run(u32::from_le_bytes(self.0)) }
    fn run_dumping(&mut self, _: &mut dyn FnMut(u32, &[u8])) {}
}
fn model() -> impl Replay { Glue([0; 4]) }
"#;

/// Counts runs of so many rounds on a board; `None` after saying what is missing.
fn count(name: &str, rounds: &[u32]) -> Option<(Vec<CountedRun>, [u64; 2])> {
    let board = Board::builtin(name).unwrap();
    let (Run::Qemu { binary, .. } | Run::QemuUser { binary, .. }) = &board.run else {
        panic!("{name} is not emulated")
    };
    let missing = match Toolchain::find(&board.target) {
        Err(error) => Some(error.to_string()),
        Ok(_) if which::which(binary).is_err() => Some(format!("{binary} is not in PATH")),
        Ok(_) => None,
    };
    if let Some(missing) = missing {
        assert!(env::var_os("KILN_REQUIRE_EMULATION").is_none_or(|value| value != "1"), "{missing}");
        // Written past the test harness, which keeps what passing tests print to itself.
        let _ = writeln!(std::io::stdout(), "SKIPPED on board {name}: {missing}");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let loops = directory.path().join("loops");
    fs::create_dir_all(loops.join("src")).unwrap();
    fs::write(loops.join("Cargo.toml"), "[package]\nname = \"loops\"\nversion = \"0.1.0\"\nedition = \"2024\"\n")
        .unwrap();
    fs::write(loops.join("src/lib.rs"), MODEL).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let firmware = Firmware {
        name: "loops-firmware",
        board: &board,
        dependencies: &[PathDependency { package: "loops".to_owned(), path: loops }],
        glue: GLUE,
        sources: &root,
        out: directory.path(),
        optimize: Optimize::Size,
        mode: Mode::Replay,
    };
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = firmware.build_in(&Toolchain::find(&board.target).unwrap(), &built.join("firmware")).unwrap();
    let plugin = plugin::build(&root, &built.join("plugin")).unwrap();

    let elf = Elf::read(&path).unwrap();
    let address = |start: &str| elf.symbols.iter().find(|symbol| symbol.name.starts_with(start)).unwrap().address;
    let run = address("kiln_device::replay::run_model");
    let loops = ["counted_copy", "counted_down"].map(address);
    let counting = Counting::of_functions(&plugin, &board, &elf, run, loops);
    let emulation = Emulation { arguments: counting.arguments(), ..Emulation::new(&board, &path, directory.path()) };
    let input: Vec<u8> = rounds.iter().flat_map(|rounds| rounds.to_le_bytes()).collect();
    emulation.replay(&input).unwrap();
    Some((counting.read(directory.path()).unwrap(), loops))
}

/// Whether loops of known length are counted exactly on a board.
fn counts_exactly(name: &str) {
    let rounds = [1, 1000, 1000, 250_000];
    let Some((runs, [copy, down])) = count(name, &rounds) else { return };
    assert_eq!(runs.len(), rounds.len(), "{name}");
    for (run, rounds) in runs.iter().zip(rounds.map(u64::from)) {
        let copied = Counts { instructions: 4 * rounds + 1, loads: rounds, stores: rounds };
        let counted = Counts { instructions: 2 * rounds + 1, loads: 0, stores: 0 };
        let steps = [CountedStep { address: copy, counts: copied }, CountedStep { address: down, counts: counted }];
        assert_eq!(run.steps, steps, "{name}, {rounds} rounds");
        // What calls the loops takes the same however long they are.
        assert_eq!(run.executor(), runs[0].executor(), "{name}, {rounds} rounds");
        assert!((4..40).contains(&run.executor().instructions), "{name}: {:?}", run.executor());
    }
}

#[test]
fn loops_of_known_length_are_counted_exactly_on_armv6m() {
    counts_exactly("microbit");
}

#[test]
fn loops_of_known_length_are_counted_exactly_on_armv7em() {
    counts_exactly("mps2-an386");
}

#[test]
fn loops_of_known_length_are_counted_exactly_on_armv8m() {
    counts_exactly("mps3-an547");
}

#[test]
fn loops_of_known_length_are_counted_exactly_on_risc_v() {
    counts_exactly("qemu-riscv32");
}

#[test]
fn loops_of_known_length_are_counted_exactly_in_a_linux_process() {
    counts_exactly("qemu-aarch64");
}
