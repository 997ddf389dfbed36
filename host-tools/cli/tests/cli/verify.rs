//! `kiln verify`: what passes, what differs and where, and folders that can't be read.

use std::fs;
use std::path::Path;

use kiln_boards::Board;
use kiln_cli::verify::{Folder, run as replay};
use kiln_codegen::target_of;
use kiln_planner::Region;
use kiln_planner::reference::Evaluator;
use kiln_planner::{Options, Planned, plan};
use serde_json::{Value, json};

use crate::support::{arg, kiln, model_folder};
use crate::synthetic::{self, INPUT_BYTES, OUTPUT_BYTES};

const CASES: usize = 3;

/// A folder around the synthetic model whose expected outputs are its reference kernels'.
fn folder(path: &Path) -> Value {
    let graph = synthetic::graph();
    let mut inputs = Vec::new();
    let mut outputs = Vec::new();
    for case in 0..CASES {
        let input: Vec<u8> = synthetic::input().iter().map(|b| b.wrapping_mul(case as u8 * 2 + 1)).collect();
        let values = Evaluator::new(&graph).run(0, &[&input]).unwrap();
        outputs.extend_from_slice(&values[&graph.entries[0].outputs[0]]);
        inputs.extend(input);
    }
    assert_eq!((inputs.len(), outputs.len()), (CASES * INPUT_BYTES, CASES * OUTPUT_BYTES));
    fs::write(path.join("g.in0.bin"), inputs).unwrap();
    fs::write(path.join("g.out0.ref.bin"), outputs).unwrap();
    fs::write(path.join("model.kiln"), synthetic::file(true, &[])).unwrap();
    let io = json!({
        "model": {"file": "model.kiln"}, "reference": "ref", "state": "stateless", "check": {"kind": "exact"},
        "inputs": [{"name": "x", "dtype": "int8", "shape": [1, 6, 6, 2]}],
        "outputs": [{"name": "scores", "dtype": "int8", "shape": [1, 3]}],
        "groups": [{"name": "g", "cases": CASES, "inputs": [{"file": "g.in0.bin"}],
                    "outputs": {"other": [{"same_as": "ref"}], "ref": [{"file": "g.out0.ref.bin"}]}}],
    });
    write_json(path, &io);
    io
}

fn write_json(path: &Path, io: &Value) {
    fs::write(path.join("io.json"), io.to_string()).unwrap();
}

#[test]
fn a_sound_folder_passes_and_a_wrong_output_is_named() {
    let directory = tempfile::tempdir().unwrap();
    folder(directory.path());
    let ran = kiln(["verify", &arg(directory.path())]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("pass  g: 3 cases, 0 of 9 output elements differ from ref\n"), "{}", ran.stdout);

    let path = directory.path().join("g.out0.ref.bin");
    let mut bytes = fs::read(&path).unwrap();
    bytes[4] ^= 1;
    fs::write(&path, bytes).unwrap();
    let ran = kiln(["verify", &arg(directory.path())]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("FAIL  g: 3 cases, 1 of 9"), "{}", ran.stdout);
    assert!(ran.stdout.contains("case 1, output 'scores': element 1"), "{}", ran.stdout);
    assert!(ran.stdout.contains("every step agrees with its reference kernel"), "{}", ran.stdout);
}

#[test]
fn classes_are_counted_where_the_folder_says_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut io = folder(directory.path());
    let outputs = fs::read(directory.path().join("g.out0.ref.bin")).unwrap();
    let largest = |scores: &[u8]| (0..3).rev().max_by_key(|&i| scores[i] as i8).unwrap();
    let mut classes: Vec<usize> = outputs.chunks_exact(3).map(largest).collect();
    classes[1] = (classes[1] + 1) % 3;
    io["groups"][0]["classes"] = json!(classes);
    write_json(directory.path(), &io);
    let ran = kiln(["verify", &arg(directory.path())]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("differ from ref; 2 of 3 in the right class\n"), "{}", ran.stdout);
}

/// A plan whose dense layer has one weight changed: the fault that a wrong kernel would be.
fn tampered(board: &Board) -> (Planned, &'static str) {
    let mut planned = plan(&synthetic::graph(), &Options::for_target(target_of(board))).unwrap();
    let weights =
        planned.entries[0].tensors.iter().find(|t| t.region == Region::Constants && t.name == "dense/weights");
    let offset = weights.unwrap().offset as usize;
    // The header's field `constants` is at byte 32.
    let constants = u64::from_le_bytes(planned.bytes[32..40].try_into().unwrap()) as usize;
    planned.bytes[constants + offset + 1] ^= 0x40;
    let crc = kiln_core::crc::update(kiln_core::crc::START, &planned.bytes[..12]);
    let crc = kiln_core::crc::finish(kiln_core::crc::update(crc, &planned.bytes[16..]));
    planned.bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    (planned, "dense")
}

#[test]
fn a_wrong_step_is_named_here_and_emulated() {
    let directory = tempfile::tempdir().unwrap();
    folder(directory.path());
    let folder = Folder::read(directory.path()).unwrap();
    let graph = synthetic::graph();
    let root = kiln_codegen::sources::root().unwrap();
    for name in ["host", "mps2-an386"] {
        let board = Board::builtin(name).unwrap();
        if !board.is_host() && !can_emulate(&board) {
            continue;
        }
        let (planned, wrong) = tampered(&board);
        let report = replay(&folder, &graph, &planned, &board, &root, &mut |_| {}).unwrap();
        assert!(!report.passed());
        let first = report.groups[0].first.as_ref().unwrap();
        let step = first.step.as_ref().expect("the step is found");
        assert_eq!((step.step, step.name.as_str(), step.op), (3, wrong, "fully_connected"), "{first}");
        assert!(step.kernel.starts_with("fully_connected"), "{first}");
    }
}

/// Whether firmware for `board` can be built and run; says so where not.
pub(crate) fn can_emulate(board: &Board) -> bool {
    let toolchain = kiln_codegen::toolchain::Toolchain::find(&board.target);
    let emulator = match &board.run {
        kiln_boards::Run::Qemu { binary, .. } => std::process::Command::new(binary).arg("--version").output().is_ok(),
        _ => false,
    };
    if toolchain.is_ok() && emulator {
        return true;
    }
    assert!(std::env::var_os("KILN_REQUIRE_EMULATION").is_none(), "no toolchain or emulator for {}", board.name);
    println!("skipped: no toolchain or emulator for {}", board.name);
    false
}

#[test]
fn folders_that_are_wrong_are_bad_input() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let good = folder(path);
    let bad = |expected: &str| {
        let ran = kiln(["verify", &arg(path)]);
        assert_eq!(ran.code, 2, "{expected}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
    };
    let with = |pointer: &str, value: Value| {
        let mut io = good.clone();
        *io.pointer_mut(pointer).unwrap() = value;
        write_json(path, &io);
    };
    with("/model/file", json!("nothing.kiln"));
    bad("nothing.kiln");
    with("/model/file", json!("../model.kiln"));
    bad("not a plain file name");
    with("/groups/0/cases", json!(4));
    bad("288");
    with("/groups/0/cases", json!(0));
    bad("no cases");
    with("/groups/0/cases", json!(u64::MAX));
    bad("g.in0.bin");
    with("/inputs/0/shape", json!([1, 6, 6, 1]));
    bad("g.in0.bin");
    with("/outputs/0/shape", json!([3]));
    bad("scores");
    with("/outputs/0/dtype", json!("uint8"));
    bad("uint8");
    with("/check", json!({"kind": "near"}));
    bad("near");
    fs::write(path.join("io.json"), b"\xff\xfe").unwrap();
    bad("io.json");
    fs::remove_file(path.join("io.json")).unwrap();
    bad("io.json");
    let ran = kiln(["verify", &arg(&path.join("missing"))]);
    assert_eq!(ran.code, 2);
}

/// A device has no end and a pipe may have no writer; a group's name may try to steer the terminal.
#[cfg(unix)]
#[test]
fn descriptions_that_are_no_files_or_steer_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut io = folder(path);
    io["groups"][0]["name"] = json!("\u{1b}[31mred\u{9b}");
    write_json(path, &io);
    let ran = kiln(["verify", &arg(path)]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for text in [&ran.stdout, &ran.stderr] {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
    fs::remove_file(path.join("io.json")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", path.join("io.json")).unwrap();
    let ran = kiln(["verify", &arg(path)]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("not a regular file"), "{}", ran.stderr);
    let ran = kiln(["verify", &arg(&path.join("model.kiln"))]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("takes the folder"), "{}", ran.stderr);
}

/// Firmware of two models that are called the same is built apart, also at the same time.
#[test]
fn models_of_one_name_do_not_share_firmware() {
    let root = kiln_codegen::sources::root().unwrap();
    let board = Board::builtin("mps2-an386").unwrap();
    let graph = synthetic::graph();
    let planned = plan(&graph, &Options::for_target(target_of(&board))).unwrap();
    let other = tampered(&board).0;
    let of = |planned: &Planned| kiln_codegen::sources::firmware_directory(&root, &graph, planned, &board);
    assert_eq!(of(&planned), of(&planned));
    assert_ne!(of(&planned), of(&other));
}

#[test]
fn the_reference_models_pass_exactly() {
    for (name, cases) in [
        ("tflm-hello-world-int8", 52),
        ("mlperf-kws-dscnn-int8", 5),
        ("mlperf-ic-resnet8-int8", 14),
        ("mlperf-vww-mobilenet-int8", 6),
        ("mlperf-ad-autoencoder-int8", 9),
        ("tflm-person-detect-int8", 6),
        ("tflm-micro-speech-int8", 8),
        ("magic-wand-int8", 12),
        ("magic-wand-f32", 12),
        ("tflm-hello-world-f32", 20),
        ("mlperf-ic-resnet8-f32", 12),
        ("lenet300-100-ptq-int8", 12),
    ] {
        let Some(folder) = model_folder(name) else { return };
        let ran = kiln(["verify", &arg(&folder)]);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(&format!("{cases} cases on host: all as they should be")), "{}", ran.stdout);
    }
}

/// The model is integers between float boundaries and its folder allows a step of their quantization, which
/// is half a unit. Outputs that agree to the last bits show that the integers agree.
#[test]
fn the_integers_inside_float_boundaries_agree() {
    let Some(folder) = model_folder("lenet300-100-ptq-int8") else { return };
    let directory = tempfile::tempdir().unwrap();
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), directory.path().join(file.file_name())).unwrap();
    }
    let json = directory.path().join("io.json");
    let mut io: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    *io.pointer_mut("/check/atol").unwrap() = json!(1e-6);
    fs::remove_file(&json).unwrap();
    write_json(directory.path(), &io);
    let ran = kiln(["verify", &arg(directory.path())]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
}

/// A tolerance in words needs something that it measures.
#[test]
fn a_step_without_a_dequantize_is_bad_input() {
    let directory = tempfile::tempdir().unwrap();
    let mut io = folder(directory.path());
    let mut check = |atol: &str| {
        *io.pointer_mut("/check").unwrap() = json!({"kind": "tolerance", "atol": atol});
        write_json(directory.path(), &io);
        let ran = kiln(["verify", &arg(directory.path())]);
        assert_eq!(ran.code, 2, "{}{}", ran.stdout, ran.stderr);
        ran.stderr
    };
    let error = check("one output quantisation step");
    assert!(error.contains("io.json") && error.contains("'scores' is not dequantized"), "{error}");
    assert!(check("two steps").contains("two steps"));
}
