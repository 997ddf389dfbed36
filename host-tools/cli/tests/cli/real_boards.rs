//! Boards that are neither emulated nor this computer: planned for, and what is said about flashing them.

use kiln_boards::{Board, Place};

use crate::support::{arg, kiln, kiln_fine};
use crate::synthetic::file;

fn real_boards() -> Vec<Board> {
    Board::all().unwrap().into_iter().filter(|board| board.run.place() == Place::Real).collect()
}

#[test]
fn a_small_model_fits_all_of_them_and_their_crates_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.kiln");
    std::fs::write(&model, file(true, &[])).unwrap();
    let boards = real_boards();
    assert!(boards.len() >= 12);
    for board in boards {
        let shown = kiln_fine(["plan", &arg(&model), "--board", &board.name]);
        assert!(shown.contains(&format!("on {} (", board.name)) && shown.contains("fits"), "{shown}");
        assert_eq!(shown.contains("bytes (FLASH)"), !board.has_system(), "{shown}");
        let out = folder.path().join(&board.name);
        kiln_fine(["compile", &arg(&model), "--board", &board.name, "--out", &arg(&out)]);
        assert!(out.join("Cargo.toml").is_file());
    }
}

#[test]
fn flashing_them_says_what_to_do_instead() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.kiln");
    std::fs::write(&model, file(true, &[])).unwrap();
    for board in real_boards() {
        let ran = kiln(["flash", &arg(&model), "--board", &board.name]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
        for word in [board.name.as_str(), "real hardware", "`kiln compile", "`--dry-run`"] {
            assert!(ran.stderr.contains(word), "no '{word}' in {}", ran.stderr);
        }
        let ran = kiln(["flash", &arg(&model), "--board", &board.name, "--dry-run"]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stdout.contains("FIRMWARE.elf") && ran.stderr.contains("`kiln compile"), "{}", ran.stdout);
    }
}

#[test]
fn a_dry_run_prints_the_command_and_how_to_get_its_tool() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.kiln");
    std::fs::write(&model, file(true, &[])).unwrap();
    // A PATH without the tools, so that the answer is the same everywhere.
    let run = |board: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["flash", &arg(&model), "--board", board, "--dry-run"])
            .env("PATH", folder.path())
            .output()
            .unwrap();
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let [stdout, stderr] = run("nrf52840-dk");
    assert_eq!(stdout, "probe-rs run --chip nRF52840_xxAA FIRMWARE.elf\n");
    assert!(stderr.contains("probe-rs is not in PATH") && stderr.contains("cargo install probe-rs-tools"), "{stderr}");
    let [stdout, stderr] = run("raspberry-pi-pico");
    assert!(stdout.contains("picotool uf2 convert FIRMWARE.elf FIRMWARE.uf2 --family 0xe48bff56\n"), "{stdout}");
    assert!(stdout.contains("copy FIRMWARE.uf2 to the drive"), "{stdout}");
    assert!(stderr.contains("picotool is not in PATH"), "{stderr}");
}

#[test]
fn verify_says_that_they_are_not_emulated() {
    let ran = kiln(["verify", "no/folder", "--board", "esp32-c3"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("esp32-c3 is not emulated"), "{}", ran.stderr);
}
