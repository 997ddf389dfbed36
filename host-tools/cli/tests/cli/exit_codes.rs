//! Bad input ends with exit code 2 and one clear message.

use std::path::Path;

use kiln_core::TargetId;
use tempfile::TempDir;

use crate::support::{Ran, arg, kiln, kiln_fine, model_folder};
use crate::synthetic::{self, file, reseal};

/// The command's end: code 2, nothing on stdout, a message with the file's name and these words.
pub(crate) fn bad(ran: &Ran, words: &[&str]) {
    assert_eq!(ran.code, 2, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stdout, "");
    for word in words {
        assert!(ran.stderr.contains(word), "no '{word}' in: {}", ran.stderr);
    }
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
}

pub(crate) fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    arg(&path)
}

#[test]
fn files_that_are_no_models() {
    let folder = tempfile::tempdir().unwrap();
    let random: Vec<u8> = (0..5_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let cases = [
        (write(&folder, "empty.tflite", b""), "the file is empty"),
        (write(&folder, "random.tflite", &random), "not a TFLite file"),
        (write(&folder, "random.kiln", &random), "should begin with \"KILN\""),
        (write(&folder, "random.bin", &random), "not a model"),
        (write(&folder, "short.tflite", b"TFL"), "too few for a TFLite model"),
        (write(&folder, "header.kiln", b"KILN"), "truncated"),
        (write(&folder, "model.onnx", &random), "ONNX models are not supported yet"),
        (arg(&folder.path().join("missing.tflite")), "no such file"),
        (arg(folder.path()), "directory"),
    ];
    for command in ["plan", "inspect", "run"] {
        for (path, words) in &cases {
            bad(&kiln([command, path]), &[path, words]);
        }
    }
}

#[test]
fn a_file_of_many_gigabytes_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.tflite");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    bad(&kiln(["inspect", &arg(&path)]), &["huge.tflite", "1099511627776 bytes, more than the 2147483648"]);
}

#[test]
fn a_large_file_that_is_no_model_is_refused_by_its_first_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for (name, words) in
        [("large.bin", "not a model"), ("large.tflite", "not a TFLite file"), ("large.kiln", "\"KILN\"")]
    {
        let path = folder.path().join(name);
        // As much as is read; nothing of it is kept on the disk.
        std::fs::File::create(&path).unwrap().set_len(2 << 30).unwrap();
        bad(&kiln(["plan", &arg(&path)]), &[name, words]);
    }
}

#[test]
fn what_is_no_regular_file_is_not_read() {
    if Path::new("/dev/zero").exists() {
        bad(&kiln(["plan", "/dev/zero"]), &["/dev/zero", "not a regular file"]);
    }
}

#[test]
fn a_model_cut_short_or_changed() {
    let Some(data) = model_folder("mlperf-kws-dscnn-int8") else { return };
    let whole = std::fs::read(data.join("model.tflite")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for length in [7, 8, 64, 1_000, whole.len() / 2, whole.len() - 1] {
        let path = write(&folder, "cut.tflite", &whole[..length]);
        bad(&kiln(["plan", &path]), &[&path]);
    }
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut changed = whole.clone();
        changed[at] ^= 0xFF;
        let path = write(&folder, "changed.tflite", &changed);
        let ran = kiln(["plan", &path]);
        assert!(ran.code == 0 || (ran.code == 2 && ran.stderr.contains(&path)), "byte {at}: {}", ran.stderr);
    }
}

#[test]
fn kiln_files_that_are_damaged_or_of_another_version() {
    let folder = tempfile::tempdir().unwrap();
    let whole = file(true, &[TargetId::PORTABLE]);
    for at in (16..whole.len()).step_by(whole.len() / 12) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        let path = write(&folder, "damaged.kiln", &changed);
        for command in ["plan", "inspect", "run"] {
            bad(&kiln([command, &path]), &[&path, "damaged", "again"]);
        }
    }
    let mut other = whole.clone();
    other[4] = 9;
    let path = write(&folder, "version.kiln", &other);
    bad(&kiln(["plan", &path]), &[&path, "format version 9.0", "compile the model again"]);

    // The plan inside has a version and a checksum of its own.
    let start = whole.windows(4).position(|w| w == b"KPLN").unwrap();
    let mut other = whole.clone();
    other[start + 4] = 7;
    reseal(&mut other);
    let path = write(&folder, "plan-version.kiln", &other);
    bad(&kiln(["run", &path]), &[&path, "format version 7.0"]);
    bad(&kiln(["inspect", &path]), &[&path, "format version 7.0"]);
    let mut other = whole.clone();
    other[start + 200] ^= 1;
    reseal(&mut other);
    let path = write(&folder, "plan-damaged.kiln", &other);
    bad(&kiln(["run", &path]), &[&path, "damaged"]);
}

#[test]
fn a_kiln_file_without_a_graph_runs_but_is_not_planned() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "plan-only.kiln", &file(false, &[TargetId::ARMV7EM]));
    let input = write(&folder, "in.bin", &synthetic::input());
    let output = arg(&folder.path().join("out.bin"));
    kiln_fine(["run", &path, "--input", &input, "--output", &output]);
    assert_eq!(std::fs::read(&output).unwrap().len(), synthetic::OUTPUT_BYTES);
    bad(&kiln(["plan", &path]), &[&path, "not the graph", "--no-graph"]);
    bad(&kiln(["run", &path, "--input", &input, "--board", "microbit"]), &[&path, "no plan for board 'microbit'"]);
    kiln_fine(["run", &path, "--input", &input, "--board", "mps2-an500"]);
    let path = write(&folder, "nothing.kiln", &file(false, &[]));
    bad(&kiln(["run", &path, "--input", &input]), &[&path, "neither a plan nor a graph"]);
}

#[test]
fn every_way_to_run_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let input = write(&folder, "in.bin", &synthetic::input());
    let output = arg(&folder.path().join("out.bin"));
    let mut results = Vec::new();
    let files = [
        file(true, &[]),
        file(true, &[TargetId::ARMV6M, TargetId::PORTABLE]),
        file(false, &[TargetId::ARMV81M]),
        file(false, &[TargetId::X86_64]),
    ];
    for (index, bytes) in files.iter().enumerate() {
        let path = write(&folder, &format!("{index}.kiln"), bytes);
        kiln_fine(["run", &path, "--input", &input, "--output", &output]);
        results.push(std::fs::read(&output).unwrap());
    }
    let path = write(&folder, "graph.kiln", &file(true, &[]));
    kiln_fine(["run", &path, "--input", &input, "--output", &output, "--board", "microbit"]);
    results.push(std::fs::read(&output).unwrap());
    assert!(results.iter().all(|r| *r == results[0] && r.len() == synthetic::OUTPUT_BYTES), "{results:?}");
    assert!(results[0].iter().any(|&b| b != results[0][0]), "an output that says nothing tests nothing");
    let shown = kiln_fine(["run", &path, "--input", &input]);
    assert!(shown.contains("scores: int8 [1, 3]") && shown.contains("middle"), "{shown}");
}

#[test]
fn inputs_and_outputs_of_the_wrong_size_or_number() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, "model.kiln", &file(true, &[]));
    let right = write(&folder, "right.bin", &synthetic::input());
    for size in [0, 71, 73, 100_000] {
        let input = write(&folder, "wrong.bin", &vec![0; size]);
        let size = format!("the file has {size}");
        bad(&kiln(["run", &model, "--input", &input]), &[&input, "'x'", "int8 [1, 6, 6, 2], 72 bytes", &size]);
    }
    let missing = arg(&folder.path().join("missing.bin"));
    bad(&kiln(["run", &model, "--input", &missing]), &[&missing, "no such file"]);
    bad(&kiln(["run", &model]), &["1 input", "0 files", "'x'"]);
    bad(&kiln(["run", &model, "--input", &right, &right]), &["1 input", "2 files"]);
    bad(&kiln(["run", &model, "--input", &right, "--output", "a", "b"]), &["1 output", "2 files", "'scores'"]);
    let nowhere = arg(&folder.path().join("no/such/folder.bin"));
    bad(&kiln(["run", &model, "--input", &right, "--output", &nowhere]), &[&nowhere, "cannot write"]);
}

#[test]
fn outputs_do_not_replace_what_is_read_or_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, "model.kiln", &file(true, &[]));
    let input = write(&folder, "in.bin", &synthetic::input());
    let run = |output: &str| kiln(["run", &model, "--input", &input, "--output", output]);
    let other = arg(&folder.path().join("./in.bin"));
    bad(&run(&other), &["replace the input", "in.bin", "a file of its own"]);
    bad(&run(&model), &["replace the model", "model.kiln"]);
    assert_eq!(std::fs::read(&input).unwrap(), synthetic::input());
    assert_eq!(std::fs::read(&model).unwrap(), file(true, &[]));

    // Two outputs.
    let mut graph = synthetic::graph();
    let more = graph.entries[0].nodes[4].output;
    graph.entries[0].outputs.push(more);
    let model = write(&folder, "two.kiln", &crate::networks::file(graph));
    let [a, b] = ["a.bin", "b.npy"].map(|name| arg(&folder.path().join(name)));
    bad(&kiln(["run", &model, "--input", &input, "--output", &a, &a]), &["a.bin", "twice"]);
    assert!(!folder.path().join("a.bin").exists());
    let said = kiln_fine(["run", &model, "--input", &input, "--output", &a, &b]);
    assert_eq!(said, format!("scores: int8 [1, 3] in {a}\ndense: int8 [1, 3] in {b}\n"));
}

#[cfg(unix)]
#[test]
fn an_output_that_goes_to_standard_output_is_alone_there() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, "model.kiln", &file(true, &[]));
    let input = write(&folder, "in.bin", &synthetic::input());
    let run = ["run", &model, "--input", &input, "--output", "/dev/stdout"];
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_kiln")).args(run).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), synthetic::OUTPUT_BYTES));
}

#[test]
fn a_model_has_one_name() {
    let Some(data) = model_folder("tflm-hello-world-int8") else { return };
    let folder = tempfile::tempdir().unwrap();
    let sub = folder.path().join("sines");
    std::fs::create_dir(&sub).unwrap();
    std::fs::copy(data.join("model.tflite"), sub.join("model.tflite")).unwrap();
    let plan = |folder: &Path, model: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kiln"));
        let output = command.args(["plan", model, "--json"]).current_dir(folder).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        json["model"].as_str().unwrap().to_owned()
    };
    for model in ["model.tflite", "./model.tflite", "../sines/model.tflite"] {
        assert_eq!(plan(&sub, model), "sines");
    }
    let compile = ["compile", "model.tflite", "--board", "mps2-an386", "--out", "out"];
    let compiled = std::process::Command::new(env!("CARGO_BIN_EXE_kiln")).args(compile).current_dir(&sub).output();
    assert!(compiled.unwrap().status.success());
    assert_eq!(plan(&sub, "out/sines.kiln"), "sines");
    // Whatever the file is called.
    std::fs::rename(sub.join("out/sines.kiln"), sub.join("out/other.kiln")).unwrap();
    assert_eq!(plan(&sub.join("out"), "other.kiln"), "sines");
}

#[test]
fn ram_in_the_units_that_people_use() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, "model.kiln", &file(true, &[]));
    let limit = |ram: &str| {
        let json = kiln_fine(["plan", &model, "--board", "mps2-an386", "--json", "--ram", ram]);
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["ram"]["limit"].as_u64()
    };
    for ram in ["65536", "0x10000", "64K", "64KiB"] {
        assert_eq!(limit(ram), Some(65_536), "{ram}");
    }
    assert_eq!(limit("1M"), Some(1 << 20));
    let ran = kiln(["plan", &model, "--ram", "64KB"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    for word in ["64KB", "--ram", "64KiB", "0x10000", "K = 1024"] {
        assert!(ran.stderr.contains(word), "no '{word}' in {}", ran.stderr);
    }
}

#[test]
fn boards_that_are_not_there_or_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, "model.kiln", &file(true, &[]));
    let plan = |board: &str| kiln(["plan", &model, "--board", board]);
    bad(&plan("mps2-an368"), &["mps2-an368", "did you mean", "mps2-an386"]);
    bad(&plan("missing/board.toml"), &["missing/board.toml"]);
    let board = |text: &str| write(&folder, "board.toml", text.as_bytes());
    bad(&plan(&board("name = \"x\"")), &["board.toml", "missing field"]);
    bad(&plan(&board("name = ")), &["board.toml", "line 1"]);
    bad(&plan(&board("nmae = \"x\"")), &["board.toml", "nmae"]);
    let good = "name = 'tiny'\ntitle = 't'\nchip = 'c'\ncpu = 'cortex-m0'\ntarget = 'thumbv6m-none-eabi'\n\
                clock_hz = 1000000\n[isa]\nfamily = 'armv6-m'\n\
                [[memory]]\nname = 'ROM'\nkind = 'flash'\nstart = 0\nbytes = 1024\n\
                [[memory]]\nname = 'SRAM'\nkind = 'ram'\nstart = 0x20000000\nbytes = 16\n\
                [run]\nkind = 'qemu'\nbinary = 'qemu-system-arm'\nmachine = 'microbit'\n";
    bad(&plan(&board(&good.replace("armv6-m", "armv9-x"))), &["board.toml", "armv9-x"]);
    bad(&plan(&board(&good.replace("bytes = 16", "bytes = 0"))), &["board.toml", "SRAM"]);
    let ran = plan(&board(good));
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    for word in ["tiny", "RAM region SRAM", "16 available", "flash region ROM", "1,024 available", "weights"] {
        assert!(ran.stderr.contains(word), "no '{word}' in {}", ran.stderr);
    }
    assert!(ran.stdout.contains("does not fit"), "{}", ran.stdout);
    let ran = kiln(["plan", &model, "--board", "all", "--ram", "10"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("fits none of the boards"), "{}", ran.stderr);
}

#[test]
fn wrong_usage() {
    for args in [&["plan"][..], &["plan", "m", "--ram", "much"], &["frobnicate"], &["run", "m", "--threads", "2"], &[]]
    {
        let ran = kiln(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}: {}", ran.stderr);
    }
    assert!(kiln_fine(["--help"]).contains("Exit codes"));
    assert!(kiln_fine(["--version"]).starts_with("kiln "));
}

#[test]
fn operators_that_are_not_supported_are_all_listed() {
    let Some(data) = model_folder("microwakeword-hey-mycroft") else { return };
    let model = arg(&data.join("model.tflite"));
    let ran = kiln(["inspect", &model]);
    assert_eq!(ran.code, 2);
    for word in ["Not supported", "operator 0 CALL_ONCE", "'StatefulPartitionedCall:01'", "VAR_HANDLE             6"] {
        assert!(ran.stdout.contains(word), "no '{word}' in {}", ran.stdout);
    }
    assert!(ran.stderr.contains("33 of the model's operators"), "{}", ran.stderr);
    bad(&kiln(["plan", &model]), &[&model, "operator 0 CALL_ONCE", "operator 44 QUANTIZE"]);
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_error() {
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, "model.kiln", &file(true, &[]));
    let mut child = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["plan", &model, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
