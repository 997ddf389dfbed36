//! Boards that are neither emulated nor this computer: planned for, and what is said about flashing them.

use std::process::Command;

use kiln_boards::{Board, Place};
use kiln_codegen::uf2::decode;

use crate::support::{Ran, arg, kiln, kiln_fine};
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

/// A PATH without tools, so that the answer is the same everywhere.
fn flash(arguments: &[&str], path: &std::path::Path) -> Ran {
    let output =
        Command::new(env!("CARGO_BIN_EXE_kiln")).arg("flash").args(arguments).env("PATH", path).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Ran { code: output.status.code().unwrap(), stdout, stderr }
}

#[test]
fn where_there_is_no_firmware_crate_a_model_is_told_where_to_go() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.kiln");
    std::fs::write(&model, file(true, &[])).unwrap();
    for board in real_boards().into_iter().filter(|board| board.firmware.is_none()) {
        for more in [None, Some("--dry-run")] {
            let model = arg(&model);
            let ran = kiln(["flash", &model, "--board", &board.name].into_iter().chain(more));
            assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
            for word in [board.name.as_str(), "`kiln compile", "`kiln flash --elf", "`--dry-run`"] {
                assert!(ran.stderr.contains(word), "no '{word}' in {}", ran.stderr);
            }
        }
    }
}

#[test]
fn own_firmware_is_flashed_or_the_tool_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let elf = folder.path().join("fw.elf");
    std::fs::write(&elf, tiny_elf(0x1000_0000, b"firmware")).unwrap();
    let elf = arg(&elf);

    let ran = flash(&["--elf", &elf, "--board", "nrf52840-dk", "--dry-run"], folder.path());
    assert_eq!((ran.code, ran.stdout), (0, format!("probe-rs run --chip nRF52840_xxAA {elf}\n")), "{}", ran.stderr);
    let advice = "probe-rs is not in PATH; get it: `cargo install probe-rs-tools --locked`";
    assert!(ran.stderr.contains(advice), "{}", ran.stderr);
    let ran = flash(&["--elf", &elf, "--board", "nrf52840-dk"], folder.path());
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains(advice), "{}", ran.stderr);

    for (board, family) in [("raspberry-pi-pico", 0xe48b_ff56), ("raspberry-pi-pico-2", 0xe48b_ff59)] {
        let ran = flash(&["--elf", &elf, "--board", board, "--dry-run"], folder.path());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stdout.contains("hold BOOTSEL"), "{}", ran.stdout);
        let blocks = decode(&std::fs::read(folder.path().join("fw.uf2")).unwrap()).unwrap();
        let last = blocks.last().unwrap();
        assert_eq!((last.family, last.address, &last.bytes[..8]), (family, 0x1000_0000, &b"firmware"[..]));
    }
}

#[test]
fn what_is_no_firmware_is_not_flashed() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("fw.elf");
    std::fs::write(&text, "a text").unwrap();
    let gone = folder.path().join("gone.elf");
    for (elf, board, word) in [
        (&text, "nrf52840-dk", "not a good ELF file"),
        (&gone, "raspberry-pi-pico", "cannot read"),
        (&text, "microbit", "emulated"),
        (&text, "host", "this computer"),
    ] {
        let ran = kiln(["flash", "--elf", &arg(elf), "--board", board, "--dry-run"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
    let ran = kiln(["flash", "model.kiln", "--elf", "fw.elf", "--board", "nrf52840-dk"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("cannot be used with"), "{}", ran.stderr);
}

/// A 32-bit little-endian Arm ELF file of one loaded segment.
fn tiny_elf(address: u32, bytes: &[u8]) -> Vec<u8> {
    const HEADERS: u32 = 52 + 32;
    let size = u32::try_from(bytes.len()).unwrap();
    let mut elf = b"\x7fELF\x01\x01\x01".to_vec();
    elf.resize(16, 0);
    // An executable for Arm.
    elf.extend([2, 0, 40, 0]);
    // Version, entry, program headers, section headers, flags.
    elf.extend([1, address, 52, 0, 0].map(u32::to_le_bytes).concat());
    // Sizes of headers, and how many there are.
    elf.extend([52, 32, 1, 0, 0, 0].map(u16::to_le_bytes).concat());
    // Loaded; where in the file, virtual and physical address, sizes, readable, alignment.
    elf.extend([1, HEADERS, 0, address, size, size, 4, 1].map(u32::to_le_bytes).concat());
    elf.extend(bytes);
    elf
}

#[test]
fn verify_says_that_they_are_not_emulated() {
    let ran = kiln(["verify", "no/folder", "--board", "esp32-c3"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("esp32-c3 is not emulated"), "{}", ran.stderr);
}
