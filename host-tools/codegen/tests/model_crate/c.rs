//! C libraries linked into one program on this computer, beside the executor on the same plan bytes.
//!
//! Needs a C compiler, `cc` and `c++`. Without one the tests say so and pass, unless `KILN_REQUIRE_EMULATION=1`.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use kiln_boards::Board;
use kiln_codegen::c_library::{CFiles, CLibrary};
use kiln_codegen::package::Optimize;
use kiln_codegen::target_of;
use kiln_planner::graph::Graph;
use kiln_planner::{Options, Planned, plan};

use crate::graphs;
use crate::run::expected;

const PROGRAM: &str = include_str!("program.c");

/// Options under which nothing may be said about a header or a program.
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Whether these programs are there; says so where not.
fn have(programs: &[&str]) -> bool {
    let Some(missing) = programs.iter().find(|program| which::which(program).is_err()) else { return true };
    assert!(
        env::var_os("KILN_REQUIRE_EMULATION").is_none_or(|value| value != "1"),
        "KILN_REQUIRE_EMULATION is set, but {missing} is not in PATH"
    );
    // Written past the test harness, which keeps what passing tests print to itself.
    let _ = writeln!(std::io::stdout(), "SKIPPED: {missing} is not in PATH");
    false
}

fn build(graph: &Graph, board: &Board, out: &Path) -> (Planned, CFiles) {
    let planned = plan(graph, &Options::for_target(target_of(board))).unwrap();
    let library = CLibrary {
        graph,
        planned: &planned,
        board,
        sources: &Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        out,
        build: &Path::new(env!("CARGO_TARGET_TMPDIR")).join("c"),
        optimize: Optimize::Size,
    };
    let files = library.build().unwrap();
    (planned, files)
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}:\n{printed}{}", String::from_utf8_lossy(&output.stderr));
    printed
}

#[test]
fn one_program_links_many_models_and_computes_what_their_plans_compute() {
    if !cfg!(target_os = "linux") || !have(&["cc", "c++"]) {
        return;
    }
    let board = Board::builtin("host").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let graphs = graphs::all();
    let mut names = Vec::new();
    let plans = graphs.each_ref().map(|graph| {
        let (planned, files) = build(graph, &board, &directory.path().join(format!("crates{}", names.len())));
        fs::write(directory.path().join(format!("{}.h", files.name)), &files.header).unwrap();
        fs::write(directory.path().join(format!("lib{}.a", files.name)), &files.library).unwrap();
        names.push(files.name);
        planned
    });
    assert_eq!(names, ["single", "stateful_model", "a_name_u_41", "odd", "m", "only_reset"]);
    fs::write(directory.path().join("program.c"), PROGRAM).unwrap();
    let steps = format!("-DSTEPS={}", plans[1].main_entry().unwrap().steps.len());
    let libraries: Vec<String> = names.iter().map(|name| format!("-l{name}")).collect();
    // Steps' outputs are not seen from C.
    let expected: Vec<String> =
        expected(&graphs, &plans).into_iter().filter(|line| !line.starts_with("step ")).collect();
    for (compiler, options) in [
        ("cc", &["-std=c99", "-Wstrict-prototypes"][..]),
        ("cc", &["-std=c11"]),
        ("c++", &["-x", "c++", "-std=c++98"]),
        ("c++", &["-x", "c++", "-std=c++11"]),
    ] {
        let mut cc = Command::new(compiler);
        cc.current_dir(directory.path()).args(options).args(STRICT).args([&steps, "program.c", "-x", "none", "-L."]);
        run(cc.args(&libraries).args(["-Wl,--gc-sections", "-o", "program"]));
        let printed = run(&mut Command::new(directory.path().join("program")));
        assert_eq!(printed.lines().collect::<Vec<_>>(), expected, "{compiler} {options:?}");
    }
}

#[test]
fn headers() {
    let board = Board::builtin("mps2-an386").unwrap();
    if let Err(error) = kiln_codegen::toolchain::Toolchain::find(&board.target) {
        assert!(env::var_os("KILN_REQUIRE_EMULATION").is_none_or(|value| value != "1"), "{error}");
        let _ = writeln!(std::io::stdout(), "SKIPPED: {error}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (_, files) = build(&graphs::stateful(), &board, directory.path());
    // What a model takes beside its arena may change from one version to the next.
    let version = concat!("Kiln ", env!("CARGO_PKG_VERSION"));
    let size = files.header.lines().find(|line| line.contains("_MODEL_BYTES ")).unwrap();
    let header = files.header.replace(version, "Kiln VERSION").replace(size, "#define STATEFUL_MODEL_MODEL_BYTES N");
    insta::assert_snapshot!("stateful-header", header);
}
