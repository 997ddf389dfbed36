//! Firmware around a stand-in model: built, checked for forbidden symbols, and run under emulation.
//!
//! Needs a toolchain for the boards' targets and the emulator. Where one is missing the tests say
//! so and pass, unless `KILN_REQUIRE_EMULATION=1`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use kiln_boards::{Board, Place, Run};
use kiln_codegen::dump::StepRecord;
use kiln_codegen::emulate::{EmulateError, Emulation};
use kiln_codegen::firmware::{Firmware, FirmwareError, Mode, Optimize, PathDependency};
use kiln_codegen::forbidden::Reason;
use kiln_codegen::symbols::{Elf, Origin};
use kiln_codegen::toolchain::Toolchain;

/// A model of 16 bytes in and 16 out; `BODY` computes the output.
const MODEL: &str = r#"#![no_std]
pub struct Model { pub input: [u8; 16], pub output: [u8; 16] }
pub fn take() -> &'static mut Model {
    static mut MODEL: Model = Model { input: [0; 16], output: [0; 16] };
    // SAFETY: the firmware calls this once.
    unsafe { &mut *(&raw mut MODEL) }
}
impl Model {
    pub fn run(&mut self) {
        BODY
    }
}
"#;

/// Adds 1 to each byte.
const ADD_ONE: &str = "for (o, i) in self.output.iter_mut().zip(&self.input) { *o = i.wrapping_add(1); }";

/// As `ADD_ONE`, but some first bytes make it fail: a bad access, or no end.
const MISBEHAVE: &str = "match self.input[0] {
    // SAFETY: none, there is no memory at this address: that is the point.
    250 => self.output[0] = unsafe { core::ptr::read_volatile(0xE200_0000 as *const u8) },
    251 => loop { core::hint::spin_loop() },
    _ => self.output = self.input,
}";

const GLUE: &str = r#"
struct Glue(&'static mut standin::Model);
impl Replay for Glue {
    fn input_count(&self) -> usize { 1 }
    fn input(&mut self, _: usize) -> &mut [u8] { &mut self.0.input }
    fn output_count(&self) -> usize { 1 }
    fn output(&self, _: usize) -> &[u8] { &self.0.output }
    fn run(&mut self) { self.0.run() }
    fn run_dumping(&mut self, sink: &mut dyn FnMut(u32, &[u8])) {
        self.run();
        sink(0, &self.0.output);
        sink(7, &self.0.output[..2]);
    }
}
fn model() -> impl Replay { Glue(standin::take()) }
"#;

/// Uses 2 KiB of stack in a run, and puts out how much stack was used.
const STACK_GLUE: &str = r#"
struct Glue { model: &'static mut standin::Model, used: [u8; 4] }
impl Replay for Glue {
    fn input_count(&self) -> usize { 1 }
    fn input(&mut self, _: usize) -> &mut [u8] { &mut self.model.input }
    fn output_count(&self) -> usize { 1 }
    fn output(&self, _: usize) -> &[u8] { &self.used }
    fn run(&mut self) {
        platform::stack::paint();
        if self.model.input[0] == 1 { deep(&self.model.input) }
        self.used = (platform::stack::used() as u32).to_le_bytes();
    }
    fn run_dumping(&mut self, _: &mut dyn FnMut(u32, &[u8])) {}
}
#[inline(never)]
fn deep(bytes: &[u8; 16]) {
    core::hint::black_box([bytes[1]; 2048]);
}
fn model() -> impl Replay { Glue { model: standin::take(), used: [0; 4] } }
"#;

/// A board that can be built for and run here, or `None` after saying what is missing.
fn board(name: &str) -> Option<Board> {
    let board = Board::builtin(name).unwrap();
    let (Run::Qemu { binary, .. } | Run::QemuUser { binary, .. }) = &board.run else {
        panic!("{name} is not emulated")
    };
    let missing = match Toolchain::find(&board.target) {
        Err(error) => error.to_string(),
        Ok(_) if which::which(binary).is_err() => format!("{binary} is not in PATH"),
        Ok(_) => return Some(board),
    };
    if env::var_os("KILN_REQUIRE_EMULATION").is_some_and(|value| value == "1") {
        panic!("KILN_REQUIRE_EMULATION is set, but: {missing}");
    }
    // Written past the test harness, which keeps what passing tests print to itself.
    let _ = writeln!(std::io::stdout(), "SKIPPED on board {name}: {missing}");
    None
}

/// A directory with a stand-in model crate in it.
struct Workshop {
    directory: tempfile::TempDir,
    glue: &'static str,
    dependencies: [PathDependency; 1],
}

impl Workshop {
    fn new(body: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("standin");
        fs::create_dir_all(path.join("src")).unwrap();
        fs::write(path.join("Cargo.toml"), "[package]\nname = \"standin\"\nversion = \"0.1.0\"\nedition = \"2024\"\n")
            .unwrap();
        fs::write(path.join("src/lib.rs"), MODEL.replace("BODY", body)).unwrap();
        let dependencies = [PathDependency { package: "standin".to_owned(), path }];
        Self { directory, glue: GLUE, dependencies }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn build(&self, board: &Board, mode: Mode) -> Result<PathBuf, FirmwareError> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let firmware = Firmware {
            name: "standin-firmware",
            board,
            dependencies: &self.dependencies,
            glue: self.glue,
            sources: &root,
            out: self.path(),
            optimize: Optimize::Size,
            mode,
        };
        // Shared by all tests, so that `core` is built once for each target.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("firmware");
        firmware.build_in(&Toolchain::find(&board.target).unwrap(), &target)
    }
}

/// Three cases, and what the model that adds 1 makes of them.
fn cases() -> (Vec<u8>, Vec<u8>) {
    let input: Vec<u8> = (0..48u8).map(|i| i.wrapping_mul(37).wrapping_sub(5)).collect();
    let output = input.iter().map(|byte| byte.wrapping_add(1)).collect();
    (input, output)
}

/// Builds, checks symbols, runs three cases.
fn boots_and_runs(name: &str) {
    let Some(board) = board(name) else { return };
    let workshop = Workshop::new(ADD_ONE);
    let path = workshop.build(&board, Mode::Replay).unwrap();
    let elf = Elf::read(&path).unwrap();
    assert_eq!(elf.forbidden(), []);

    let (input, output) = cases();
    let replayed = Emulation::new(&board, &path, workshop.path()).replay(&input).unwrap();
    assert_eq!(replayed.outputs, output);
    assert!(replayed.steps.is_empty());

    let sizes = elf.sizes();
    let _ = writeln!(
        std::io::stdout(),
        "{name}: text {} (kiln {}, platform {}), rodata {}, data {}, bss {}",
        sizes.text,
        elf.kiln_code_bytes(),
        elf.code_bytes(Origin::Platform),
        sizes.rodata,
        sizes.data,
        sizes.bss
    );
    if board.has_system() {
        // The C library's start-up code is not Kiln's to keep small.
        return;
    }
    // A stand-in is small; what surrounds it must be as well.
    assert!(elf.code_bytes(Origin::Platform) <= 1200, "start-up and file access have grown");
    assert!(elf.kiln_code_bytes() < 400);
    assert!(sizes.text >= elf.kiln_code_bytes() + elf.code_bytes(Origin::Platform));
    assert!(sizes.bss >= 32, "the model's buffers are in .bss");
}

#[test]
fn a_model_runs_on_a_cortex_m4f() {
    boots_and_runs("mps2-an386");
}

#[test]
fn a_model_runs_on_a_cortex_m3() {
    boots_and_runs("mps2-an385");
}

#[test]
fn a_model_runs_on_a_cortex_m7() {
    boots_and_runs("mps2-an500");
}

#[test]
fn a_model_runs_on_a_cortex_m0() {
    boots_and_runs("microbit");
}

#[test]
fn a_model_runs_on_a_cortex_m33() {
    boots_and_runs("mps2-an505");
}

#[test]
fn a_model_runs_on_a_cortex_m55() {
    boots_and_runs("mps3-an547");
}

#[test]
fn a_model_runs_on_risc_v() {
    boots_and_runs("qemu-riscv32");
}

#[test]
fn a_model_runs_in_a_linux_process_on_aarch64() {
    boots_and_runs("qemu-aarch64");
}

#[test]
fn every_emulated_board_is_tested_here() {
    let tested = [
        "microbit",
        "mps2-an385",
        "mps2-an386",
        "mps2-an500",
        "mps2-an505",
        "mps3-an547",
        "qemu-aarch64",
        "qemu-riscv32",
    ];
    for board in Board::all().unwrap() {
        assert!(board.run.place() != Place::Emulated || tested.contains(&board.name.as_str()), "{}", board.name);
    }
}

#[test]
fn firmware_of_one_name_for_two_boards_of_one_target_stays_apart() {
    let (Some(first), Some(second)) = (board("mps2-an505"), board("mps3-an547")) else { return };
    assert_eq!(first.target, second.target);
    let workshops = [Workshop::new(ADD_ONE), Workshop::new(ADD_ONE)];
    let build = |board, workshop: &Workshop| fs::read(workshop.build(board, Mode::Replay).unwrap()).unwrap();
    let [one, two] = [build(&first, &workshops[0]), build(&second, &workshops[1])];
    assert!(one != two);
    // Neither is taken for the other when nothing has to be built any more.
    assert!(build(&first, &workshops[0]) == one);
    assert!(build(&second, &workshops[1]) == two);
}

/// Firmware that dumps writes outputs and a record for each step.
fn dumps(name: &str) {
    let Some(board) = board(name) else { return };
    let workshop = Workshop::new(ADD_ONE);
    let path = workshop.build(&board, Mode::Dump).unwrap();
    let (input, output) = cases();
    let replayed = Emulation::new(&board, &path, workshop.path()).replay(&input).unwrap();
    assert_eq!(replayed.outputs, output);
    let expected: Vec<StepRecord> = (0u32..)
        .zip(output.chunks(16))
        .flat_map(|(case, bytes)| {
            [
                StepRecord { case, step: 0, bytes: bytes.to_vec() },
                StepRecord { case, step: 7, bytes: bytes[..2].to_vec() },
            ]
        })
        .collect();
    assert_eq!(replayed.steps, expected);
}

#[test]
fn a_dump_tells_what_each_step_wrote() {
    for name in ["mps2-an386", "qemu-riscv32", "qemu-aarch64"] {
        dumps(name);
    }
}

#[test]
fn planted_panics_and_allocations_are_found() {
    let Some(board) = board("mps2-an386") else {
        return;
    };
    let index = "let i = self.input[0] as usize; self.output[0] = self.input[i];";
    let unwrap = "self.output[0] = self.input.iter().position(|b| *b == 3).unwrap() as u8;";
    let expect = "self.output[0] = u8::try_from(self.input[0] as i32 - 7).expect(\"small\");";
    let divide = "self.output[0] = self.input[0] / self.input[1];";
    let malloc = "#[unsafe(no_mangle)] extern \"C\" fn malloc(n: usize) -> usize { n }
        self.output[0] = core::hint::black_box(malloc as extern \"C\" fn(usize) -> usize)(3) as u8;";
    let format = "use core::fmt::Write as _;
        struct Last<'a>(&'a mut u8);
        impl core::fmt::Write for Last<'_> {
            fn write_str(&mut self, text: &str) -> core::fmt::Result {
                for byte in text.bytes() { *self.0 = byte }
                Ok(())
            }
        }
        let _ = write!(Last(&mut self.output[0]), \"{:?}\", self.input);";
    for (body, part, reason) in [
        (index, "panic_bounds_check", Reason::Panic),
        (unwrap, "option::unwrap_failed", Reason::Panic),
        (expect, "result::unwrap_failed", Reason::Panic),
        (divide, "panic_const_div_by_zero", Reason::Panic),
        (malloc, "malloc", Reason::Allocator),
        (format, "core::fmt", Reason::Formatting),
    ] {
        let workshop = Workshop::new(body);
        let path = workshop.build(&board, Mode::Replay).unwrap();
        let found = Elf::read(&path).unwrap().forbidden();
        assert!(found.iter().any(|f| f.name.contains(part) && f.reason == reason), "{body}: {found:?}");
        if body == index {
            // And when it is reached, the run ends with the code that says so.
            let error = Emulation::new(&board, &path, workshop.path()).replay(&[200; 16]);
            assert!(error.unwrap_err().to_string().contains("the firmware panicked"));
        }
    }
}

/// What firmware for `name` says when it is given part of a case, makes a bad access, or does not end.
fn tells_what_goes_wrong(name: &str, bad_access: &str) {
    let Some(board) = board(name) else { return };
    let workshop = Workshop::new(MISBEHAVE);
    let path = workshop.build(&board, Mode::Replay).unwrap();
    let mut emulation = Emulation::new(&board, &path, workshop.path());
    assert_eq!(emulation.replay(&[3; 32]).unwrap().outputs, [3; 32]);

    let error = emulation.replay(&[3; 20]).unwrap_err();
    assert!(matches!(error, EmulateError::Failed { status: Some(42), .. }), "{error}");
    assert!(error.to_string().contains("ends within a case"), "{error}");

    let error = emulation.replay(&[250; 16]).unwrap_err();
    assert!(error.to_string().contains(bad_access), "{error}");

    emulation.timeout = Duration::from_millis(500);
    let error = emulation.replay(&[251; 16]).unwrap_err();
    assert!(error.to_string().contains("did not end"), "{error}");
    assert!(error.to_string().contains("0.5 s"), "{error}");
}

#[test]
fn what_goes_wrong_on_arm_is_told() {
    tells_what_goes_wrong("mps2-an386", "hard fault");
}

#[test]
fn what_goes_wrong_on_risc_v_is_told() {
    tells_what_goes_wrong("qemu-riscv32", "hard fault");
}

#[test]
fn what_goes_wrong_in_a_linux_process_is_told() {
    tells_what_goes_wrong("qemu-aarch64", "a signal");
}

#[test]
fn the_stack_a_run_uses_is_measured() {
    let Some(board) = board("mps2-an386") else {
        return;
    };
    let workshop = Workshop { glue: STACK_GLUE, ..Workshop::new(ADD_ONE) };
    let path = workshop.build(&board, Mode::Replay).unwrap();
    assert_eq!(Elf::read(&path).unwrap().forbidden(), []);
    // The second run is deep, and the third is not measured by what the second left.
    let input = [[0; 16], [1; 16], [0; 16]].concat();
    let replayed = Emulation::new(&board, &path, workshop.path()).replay(&input).unwrap();
    let used: Vec<u32> =
        replayed.outputs.chunks(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(used.len(), 3);
    assert!((2048..2600).contains(&used[1]), "{used:?}");
    assert!(used[0] < 600 && used[2] == used[0], "{used:?}");
}

#[test]
fn a_model_that_does_not_compile_shows_what_the_compiler_said() {
    let Some(board) = board("mps2-an386") else {
        return;
    };
    let workshop = Workshop::new("let x: u8 = \"text\";");
    let message = workshop.build(&board, Mode::Replay).unwrap_err().to_string();
    assert!(message.contains("mismatched types"), "{message}");
}

#[test]
fn a_missing_emulator_is_named_with_its_package() {
    let mut board = Board::builtin("mps2-an386").unwrap();
    if let Run::Qemu { binary, .. } = &mut board.run {
        *binary = "qemu-system-nowhere".to_owned();
    }
    let directory = tempfile::tempdir().unwrap();
    let elf = directory.path().join("x.elf");
    let error = Emulation::new(&board, &elf, directory.path()).run().unwrap_err().to_string();
    for part in ["mps2-an386", "qemu-system-nowhere", "apt-get install", "brew install qemu"] {
        assert!(error.contains(part), "{error}");
    }
    let mut board = Board::builtin("qemu-aarch64").unwrap();
    if let Run::QemuUser { binary, .. } = &mut board.run {
        *binary = "qemu-nowhere".to_owned();
    }
    let error = Emulation::new(&board, &elf, directory.path()).run().unwrap_err().to_string();
    for part in ["qemu-aarch64", "qemu-nowhere", "apt-get install qemu-user"] {
        assert!(error.contains(part), "{error}");
    }
    let host = Board::builtin("host").unwrap();
    let error = Emulation::new(&host, &elf, directory.path()).run().unwrap_err().to_string();
    assert!(error.contains("host is not emulated"), "{error}");
}
