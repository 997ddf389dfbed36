//! `examples/build-script` as firmware of an emulated board, and a project whose build script fails.
//!
//! Needs a toolchain for the board's target and the emulator. Where one is missing the tests say so and pass, unless
//! `KILN_REQUIRE_EMULATION=1`. What the example does on this computer is its own test.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use kiln_boards::Board;
use kiln_codegen::emulate::Emulation;
use kiln_codegen::symbols::Elf;
use kiln_codegen::toolchain::Toolchain;

const BOARD: &str = "mps2-an386";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn toolchain(board: &Board) -> Option<Toolchain> {
    let missing = match Toolchain::find(&board.target) {
        Err(error) => error.to_string(),
        Ok(_) if which::which("qemu-system-arm").is_err() => "qemu-system-arm is not in PATH".to_owned(),
        Ok(toolchain) => return Some(toolchain),
    };
    assert!(
        env::var_os("KILN_REQUIRE_EMULATION").is_none_or(|value| value != "1"),
        "KILN_REQUIRE_EMULATION is set, but: {missing}"
    );
    // Written past the test harness, which keeps what passing tests print to itself.
    let _ = writeln!(std::io::stdout(), "SKIPPED: {missing}");
    None
}

#[test]
fn the_example_runs_on_the_board_it_was_planned_for() {
    let board = Board::builtin(BOARD).unwrap();
    let Some(toolchain) = toolchain(&board) else { return };
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("example");
    let mut cargo = toolchain.cargo("build", &[]);
    cargo.args(["--release", "--locked", "-p", "build-script", "--target-dir"]).arg(&target).current_dir(root());
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let elf = target.join(&board.target).join("release/build-script");
    assert_eq!(Elf::read(&elf).unwrap().forbidden(), []);
    // It compares with the recorded sines itself, and ends with 0 when all are equal.
    let directory = tempfile::tempdir().unwrap();
    Emulation::new(&board, &elf, directory.path()).run().unwrap();
}

#[test]
fn an_error_in_a_build_script_is_cargo_s_error_with_kiln_s_message() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"failing\"\nedition = \"2024\"\n\n[build-dependencies]\nkiln-build = {{ path = {:?} }}\n\n[workspace]\n",
        root().join("host-tools/build")
    );
    fs::write(path("Cargo.toml"), manifest).unwrap();
    fs::write(path("src/lib.rs"), "").unwrap();
    fs::write(
        path("build.rs"),
        "fn main() { kiln_build::Model::new(\"kws.tflite\").board(\"mps2-an386\").compile(); }\n",
    )
    .unwrap();
    fs::write(path("kws.tflite"), "no model").unwrap();
    fs::copy(root().join("Cargo.lock"), path("Cargo.lock")).unwrap();
    // The example's, so that what runs in build scripts is built once.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("example");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--target-dir"]).arg(target).current_dir(directory.path());
    let output = cargo.env("CARGO_NET_OFFLINE", "true").env_remove("RUSTFLAGS").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("error: failing@0.0.0: kws.tflite: "), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}
