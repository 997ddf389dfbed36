//! `kiln compile --c`: its libraries in C programs, on this computer and as firmware of an emulated Cortex-M4F.
//!
//! Needs C compilers, and for firmware the emulator. Where one is missing the tests say so and pass, unless
//! `KILN_REQUIRE_EMULATION=1`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use kiln_boards::Board;
use kiln_codegen::emulate::Emulation;
use kiln_codegen::symbols::{Elf, Origin};
use kiln_codegen::toolchain::Toolchain;
use kiln_planner::kiln_file::KilnFile;
use kiln_target_host::Runner;

use crate::support::{arg, kiln, kiln_fine, model_folder};

const REPLAY: &str = include_str!("replay.c");
const START_UP: &str = include_str!("start_up.c");

/// The board that firmware is built for, and the options for its CPU that the header names.
const BOARD: &str = "mps2-an386";
const CPU: [&str; 3] = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard"];

const STRICT: [&str; 5] = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Whether what a board's programs are made and run with is there; says so where not.
fn have(target: &str, programs: &[&str]) -> bool {
    let missing = match programs.iter().find(|program| which::which(program).is_err()) {
        Some(program) => format!("{program} is not in PATH"),
        None => match Toolchain::find(target) {
            Ok(_) => return true,
            Err(error) => error.to_string(),
        },
    };
    assert!(
        env::var_os("KILN_REQUIRE_EMULATION").is_none_or(|value| value != "1"),
        "KILN_REQUIRE_EMULATION is set, but: {missing}"
    );
    // Written past the test harness, which keeps what passing tests print to itself.
    let _ = writeln!(std::io::stdout(), "SKIPPED: {missing}");
    false
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}:\n{said}");
}

/// A program of several models.
struct Program {
    directory: tempfile::TempDir,
    names: Vec<&'static str>,
}

impl Program {
    fn new() -> Program {
        Program { directory: tempfile::tempdir().unwrap(), names: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Compiles a model for a board, and writes a source file that runs it over `cases`.
    fn add(&mut self, name: &'static str, model: &Path, board: &str, cases: &[u8]) {
        let out = self.directory.path();
        kiln_fine(["compile", &arg(model), "--board", board, "--name", name, "--c", "--out", &arg(out)]);
        let source = REPLAY.replace("NAME", name).replace("UPPER", &name.to_uppercase());
        fs::write(self.path(&format!("{name}.c")), source).unwrap();
        fs::write(self.path(&format!("cases.{name}.bin")), cases).unwrap();
        self.names.push(name);
    }

    /// Writes `main.c` and links everything into `program`.
    fn link(&self, compiler: &str, options: &[&str]) -> PathBuf {
        let declared: String = self.names.iter().map(|name| format!("extern int replay_{name}(void);\n")).collect();
        let called: Vec<String> = self.names.iter().map(|name| format!("replay_{name}()")).collect();
        let main = format!("{declared}int main(void) {{\n    return {};\n}}\n", called.join(" || "));
        fs::write(self.path("main.c"), main).unwrap();
        fs::write(self.path("start_up.c"), START_UP).unwrap();
        let mut cc = Command::new(compiler);
        cc.current_dir(self.directory.path()).args(STRICT).args(["-Os", "-Iinclude", "-Llib", "main.c"]);
        cc.args(self.names.iter().map(|name| format!("{name}.c")));
        cc.args(options).args(self.names.iter().map(|name| format!("-l{name}")));
        run(cc.args(["-Wl,--gc-sections", "-o", "program"]));
        self.path("program")
    }

    /// Holds what the program wrote against the executor's results for the plan in the `.kiln` file.
    fn check(&self) {
        for name in &self.names {
            let kiln = KilnFile::from_bytes(&fs::read(self.path(&format!("{name}.kiln"))).unwrap()).unwrap();
            let mut here = Runner::new(&kiln.plans[0].1).unwrap();
            let graph = kiln.graph.unwrap();
            let entry = graph.entry("infer").unwrap();
            let size = graph.value(entry.inputs[0]).ty.bytes().unwrap() as usize;
            let cases = fs::read(self.path(&format!("cases.{name}.bin"))).unwrap();
            assert!(!cases.is_empty() && cases.len().is_multiple_of(size));
            let expected: Vec<u8> =
                cases.chunks(size).flat_map(|case| here.run("infer", &[case]).unwrap().concat()).collect();
            assert!(fs::read(self.path(&format!("outputs.{name}.bin"))).unwrap() == expected, "{name} differs");
        }
    }
}

fn sine() -> (PathBuf, Vec<u8>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sine/model");
    let cases = fs::read(folder.join("grid.in0.bin")).unwrap();
    (folder.join("model.kiln"), cases)
}

fn add_all(program: &mut Program, board: &str) {
    let (model, cases) = sine();
    program.add("sine", &model, board, &cases);
    if let Some(folder) = model_folder("mlperf-kws-dscnn-int8") {
        let cases = fs::read(folder.join("random.in0.bin")).unwrap();
        program.add("kws", &folder.join("model.tflite"), board, &cases);
    }
}

#[test]
fn a_c_program_on_this_computer() {
    if !cfg!(target_os = "linux") || !have(&Board::builtin("host").unwrap().target, &["cc"]) {
        return;
    }
    let mut program = Program::new();
    add_all(&mut program, "host");
    let linked = program.link("cc", &[]);
    run(Command::new(linked).current_dir(program.directory.path()));
    program.check();
    // What the sine must be is recorded, too, by other code than Kiln's.
    let (model, _) = sine();
    let recorded = fs::read(model.with_file_name("grid.out0.plain.bin")).unwrap();
    assert_eq!(fs::read(program.path("outputs.sine.bin")).unwrap(), recorded);
}

#[test]
fn a_c_program_on_an_emulated_cortex_m4f() {
    let board = Board::builtin(BOARD).unwrap();
    if !have(&board.target, &["arm-none-eabi-gcc", "qemu-system-arm"]) {
        return;
    }
    let mut program = Program::new();
    add_all(&mut program, BOARD);
    let header = fs::read_to_string(program.path("include/sine.h")).unwrap();
    assert!(header.contains(&CPU.join(" ")), "{header}");
    let mut options = CPU.to_vec();
    options.extend(["--specs=rdimon.specs", "start_up.c", "-Wl,-u,vectors", "-Wl,--section-start=.vectors=0"]);
    let linked = program.link("arm-none-eabi-gcc", &options);
    Emulation::new(&board, &linked, program.directory.path()).run().unwrap();
    program.check();
}

/// What one model adds to firmware: without the C library, so that all that is there is Kiln's.
#[test]
fn a_library_brings_no_panic_and_no_allocator_into_firmware() {
    let board = Board::builtin(BOARD).unwrap();
    if !have(&board.target, &["arm-none-eabi-gcc"]) {
        return;
    }
    let mut program = Program::new();
    add_all(&mut program, BOARD);
    for &name in &program.names {
        let upper = name.to_uppercase();
        let source = format!(
            "#include \"{name}.h\"\nstatic {name}_model model;\nstatic {name}_arena arena;\n\
             extern void _start(void);\nvoid _start(void) {{\n    \
             if ({name}_init(&model, &arena) == {upper}_OK) {{\n        {name}_input(&model)[0] = 1;\n        \
             (void){name}_infer(&model);\n        {name}_input(&model)[0] = {name}_output(&model)[0];\n    }}\n}}\n"
        );
        fs::write(program.path("small.c"), source).unwrap();
        let library = format!("-l{name}");
        let mut cc = Command::new("arm-none-eabi-gcc");
        cc.current_dir(program.directory.path()).args(STRICT).args(CPU).args(["-Os", "-Iinclude", "-Llib", "small.c"]);
        run(cc.args(["-nostdlib", &library, "-Wl,--gc-sections", "-o", "small"]));
        let elf = Elf::read(&program.path("small")).unwrap();
        assert_eq!(elf.forbidden(), []);
        let plan = fs::read(program.path(&format!("{name}.kiln")));
        let plan = KilnFile::from_bytes(&plan.unwrap()).unwrap().plans[0].1.len() as u64;
        let code = elf.sizes().flash() - plan;
        let _ = writeln!(std::io::stdout(), "{name}: {} bytes of flash, {code} of them code", elf.sizes().flash());
        assert!(code < 16 * 1024, "{name}: {code} bytes of code");
        assert!(elf.code_bytes(Origin::Kiln) > 1024);
        // No variable but the program's own two.
        let arena = kiln_file_ram(&program.path(&format!("{name}.kiln")));
        assert!(elf.sizes().ram() < arena + 256, "{name}: {} bytes of RAM", elf.sizes().ram());
        let library = fs::metadata(program.path(&format!("lib/lib{name}.a"))).unwrap().len();
        assert!(library < 250_000 + plan, "{name}: a library of {library} bytes");
    }
}

/// The arena of the plan in a `.kiln` file.
fn kiln_file_ram(path: &Path) -> u64 {
    let kiln = KilnFile::from_bytes(&fs::read(path).unwrap()).unwrap();
    let options = kiln_planner::Options::for_target(kiln.plans[0].0);
    kiln_planner::plan(&kiln.graph.unwrap(), &options).unwrap().ram_bytes
}

#[test]
fn what_cannot_be_a_name_is_refused_before_anything_is_built() {
    let (model, _) = sine();
    for name in ["", "a/b", "../x", ".x"] {
        let out = tempfile::tempdir().unwrap();
        let ran = kiln(["compile", &arg(&model), "--board", BOARD, "--c", "--name", name, "--out", &arg(out.path())]);
        assert_eq!(ran.code, 2);
        assert!(ran.stderr.contains("--name"), "{}", ran.stderr);
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
    }
}
