//! The embedded boards are right, and wrong files get messages that help.

use std::path::Path;

use kiln_boards::{Board, BoardError, IsaFamily, IsaFeature, MemoryKind, Place, Run};

/// A good board file, for tests to break in one place.
const GOOD: &str = r#"
name = "demo"
title = "A demo board"
chip = "X1"
cpu = "cortex-m4"
target = "thumbv7em-none-eabihf"
clock_hz = 1000000
[isa]
family = "armv7e-m"
features = ["dsp", "fpu"]
[[memory]]
name = "FLASH"
kind = "flash"
start = 0
bytes = 0x1000
[[memory]]
name = "RAM"
kind = "ram"
start = 0x20000000
bytes = 0x1000
fast = false
[run]
kind = "qemu"
binary = "qemu-system-arm"
machine = "demo"
"#;

/// What reading GOOD says after `from` was replaced by `to`.
fn message(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "the test replaces what is not there");
    match read(&GOOD.replacen(from, to, 1)) {
        Ok(_) => panic!("accepted a file with {to:?}"),
        Err(error) => error.to_string(),
    }
}

fn read(text: &str) -> Result<Board, BoardError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("demo.toml");
    std::fs::write(&path, text).unwrap();
    Board::from_file(&path)
}

fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn every_file_in_the_directory_is_a_board_of_its_own_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<String> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
        .filter(|stem| stem != "Cargo")
        .collect();
    files.sort();
    let mut names: Vec<String> = Board::all().unwrap().into_iter().map(|b| b.name).collect();
    names.sort();
    assert_eq!(names, files);
    for name in names {
        assert_eq!(Board::builtin(&name).unwrap(), Board::load(&name).unwrap());
    }
}

#[test]
fn lists_begin_with_what_everyone_has_and_end_with_the_host() {
    let boards = Board::all().unwrap();
    let keys: Vec<(Place, &str)> = boards.iter().map(|b| (b.run.place(), b.name.as_str())).collect();
    assert!(keys.is_sorted(), "{keys:?}");
    assert_eq!(keys.first().unwrap().0, Place::Emulated);
    assert_eq!(*keys.last().unwrap(), (Place::Host, "host"));
}

#[test]
fn the_cortex_m4f_board_has_its_facts() {
    let board = Board::builtin("mps2-an386").unwrap();
    assert_eq!(board.isa.family, IsaFamily::Armv7eM);
    assert!(board.isa.has(IsaFeature::Dsp) && board.isa.has(IsaFeature::Fpu));
    assert!(!board.isa.has(IsaFeature::Mve));
    assert_eq!(board.clock_hz, Some(25_000_000));
    assert_eq!((board.flash_bytes(), board.ram_bytes()), (4 << 20, 4 << 20));
    let ram = board.regions(MemoryKind::Ram).next().unwrap();
    assert_eq!((ram.start, ram.end(), ram.fast), (0x2000_0000, 0x2040_0000, true));
    assert!(!board.is_host());
}

#[test]
fn real_boards_have_the_totals_that_their_makers_state() {
    const K: u64 = 1024;
    for (name, flash, ram, megahertz) in [
        ("nucleo-l4r5zi", 2048 * K, 640 * K, 120),
        // All of the "1.4 MB" but the 4 KiB that a battery backs.
        ("nucleo-h7a3zi-q", 2048 * K, 1376 * K, 280),
        ("stm32f746g-disco", 1024 * K, (320 + 16 + 8192) * K, 216),
        ("nrf52840-dk", 1024 * K, 256 * K, 64),
        ("arduino-nano-33-ble", (1024 - 64) * K, 256 * K, 64),
        ("raspberry-pi-pico", 2048 * K - 256, 264 * K, 133),
        ("raspberry-pi-pico-2", 4096 * K, 520 * K, 150),
        ("raspberry-pi-pico-2-riscv", 4096 * K, 520 * K, 150),
        ("esp32-c3", 4096 * K, 384 * K, 160),
        ("raspberry-pi-zero-2-w", 0, 512 * K * K, 1000),
        ("raspberry-pi-4", 0, 1024 * K * K, 1500),
        ("raspberry-pi-5", 0, 2048 * K * K, 2400),
    ] {
        let board = Board::builtin(name).unwrap();
        assert_eq!((board.flash_bytes(), board.ram_bytes()), (flash, ram), "{name}");
        assert_eq!(board.clock_hz, Some(megahertz * 1_000_000), "{name}");
        assert_eq!(board.run.place(), Place::Real, "{name}");
        assert_eq!(board.has_system(), flash == 0, "{name}");
    }
}

#[test]
fn a_board_with_a_system_needs_no_flash_and_others_do() {
    let flash = "[[memory]]\nname = \"FLASH\"\nkind = \"flash\"\nstart = 0\nbytes = 0x1000\n";
    let qemu = "kind = \"qemu\"\nbinary = \"qemu-system-arm\"\nmachine = \"demo\"";
    assert!(GOOD.contains(flash) && GOOD.contains(qemu));
    let without = GOOD.replace(flash, "");
    assert_says(&read(&without).unwrap_err().to_string(), &["`memory`", "kind `flash`"]);
    let linux = |text: &str| {
        let text = text.replace(qemu, "kind = \"linux\"").replace("thumbv7em-none-eabihf", "aarch64-unknown-linux-gnu");
        text.replace("armv7e-m", "aarch64").replace("[\"dsp\", \"fpu\"]", "[\"neon\"]")
    };
    assert!(read(&linux(&without)).is_ok());
    assert_says(&read(&linux(GOOD)).unwrap_err().to_string(), &["`memory`", "region FLASH", "`linux`", "leave it out"]);
}

#[test]
fn what_runs_programs_suits_the_cpu_and_the_target() {
    let qemu = "kind = \"qemu\"\nbinary = \"qemu-system-arm\"\nmachine = \"demo\"";
    let user = "kind = \"qemu-user\"\nbinary = \"q\"\nsysroot = \"/s\"";
    for (kind, run) in [("linux", "kind = \"linux\""), ("qemu-user", user)] {
        assert_says(&message(qemu, run), &["`run.kind`", kind, "armv7e-m", "`probe-rs`"]);
    }
    let aarch64 = |target: &str, run: &str| {
        let text = GOOD.replace("armv7e-m", "aarch64").replace("[\"dsp\", \"fpu\"]", "[\"neon\"]");
        let text = text.replace("thumbv7em-none-eabihf", target).replace(qemu, run);
        read(&text).unwrap_err().to_string()
    };
    assert_says(&aarch64("aarch64-unknown-none", "kind = \"linux\""), &["`target`", "aarch64-unknown-none", "-linux-"]);
    assert_says(&aarch64("aarch64-unknown-linux-gnu", qemu), &["`target`", "`qemu` runs firmware", "-none"]);
    assert_says(&message("\"armv7e-m\"", "\"portable\""), &["`isa.family`", "`portable`", "host"]);

    let host = "name = \"h\"\ntitle = \"t\"\nchip = \"c\"\ncpu = \"u\"\n[run]\nkind = \"host\"\n";
    assert!(read(host).is_ok());
    let region = "[[memory]]\nname = \"R\"\nkind = \"ram\"\nstart = 0\nbytes = 0\n";
    assert_says(&read(&format!("{host}{region}")).unwrap_err().to_string(), &["`memory`", "leave them out"]);
    let isa = "[isa]\nfamily = \"armv6-m\"\n";
    assert_says(&read(&format!("{host}{isa}")).unwrap_err().to_string(), &["`isa.family`", "armv6-m", "leave it out"]);
    let other = format!("target = \"{}-unknown-other\"\n{host}", std::env::consts::ARCH);
    assert_says(&read(&other).unwrap_err().to_string(), &["`target`", "-unknown-other", "leave it out"]);
}

#[test]
fn tools_get_arguments_that_are_there() {
    let qemu = "kind = \"qemu\"\nbinary = \"qemu-system-arm\"\nmachine = \"demo\"";
    assert_says(&message("\"qemu-system-arm\"", "\"\""), &["`run.binary`", "is empty"]);
    assert_says(&message("machine = \"demo\"", "machine = \" \""), &["`run.machine`", "is empty"]);
    assert_says(&message(qemu, "kind = \"probe-rs\"\nchip = \"\""), &["`run.chip`", "is empty"]);
    for family in ["", "rp2040", "0x", "e48bff56", "0x1e48bff56", "0x+1"] {
        let run = format!("kind = \"uf2\"\nfamily = \"{family}\"");
        assert_says(&message(qemu, &run), &["`run.family`", if family.is_empty() { "is empty" } else { "0xe48bff56" }]);
    }
}

#[test]
fn large_memories_are_for_cpus_that_address_them() {
    let large = |text: &str| text.replace("bytes = 0x1000\nfast", "bytes = 0x2_0000_0000\nfast");
    assert_says(&read(&large(GOOD)).unwrap_err().to_string(), &["memory.RAM.bytes", "32-bit"]);
    let aarch64 = GOOD
        .replace("armv7e-m", "aarch64")
        .replace("[\"dsp\", \"fpu\"]", "[\"neon\"]")
        .replace("thumbv7em-none-eabihf", "aarch64-unknown-none");
    assert_eq!(read(&large(&aarch64)).unwrap().ram_bytes(), 8 << 30);
}

#[test]
fn every_way_of_running_is_read() {
    let qemu = "kind = \"qemu\"\nbinary = \"qemu-system-arm\"\nmachine = \"demo\"";
    // Linux programs need other targets than GOOD's.
    let linux = |text: &str| {
        let text = text.replace("thumbv7em-none-eabihf", "aarch64-unknown-linux-gnu").replace("armv7e-m", "aarch64");
        let text = text.replace("[\"dsp\", \"fpu\"]", "[\"neon\"]");
        text.replace("[[memory]]\nname = \"FLASH\"\nkind = \"flash\"\nstart = 0\nbytes = 0x1000\n", "")
    };
    let run = |text: &str| {
        let file = GOOD.replace(qemu, text);
        let on_linux = ["\"linux\"", "user"].iter().any(|word| text.contains(word));
        let run = read(&if on_linux { linux(&file) } else { file }).unwrap().run;
        assert!(text.starts_with(&format!("kind = \"{}\"", run.kind())), "{run:?}");
        run
    };
    assert!(matches!(run(qemu), Run::Qemu { .. }));
    assert_eq!(run("kind = \"probe-rs\"\nchip = \"X\""), Run::ProbeRs { chip: "X".into() });
    assert_eq!(run("kind = \"uf2\"\nfamily = \"0x1\""), Run::Uf2 { family: "0x1".into() });
    assert_eq!(run("kind = \"espflash\"\nchip = \"X\""), Run::Espflash { chip: "X".into() });
    assert_eq!(run("kind = \"bossac\""), Run::Bossac {});
    assert_eq!(run("kind = \"linux\""), Run::Linux {});
    let user = Run::QemuUser { binary: "q".into(), sysroot: "/s".into() };
    assert_eq!(run("kind = \"qemu-user\"\nbinary = \"q\"\nsysroot = \"/s\""), user);
    assert_says(&message("machine = \"demo\"", "machine = \"demo\"\nchip = \"X\""), &["chip"]);
}

#[test]
fn the_host_board_is_the_running_computer() {
    let board = Board::builtin("host").unwrap();
    assert!(board.is_host());
    assert!(board.target.starts_with(std::env::consts::ARCH), "{}", board.target);
    assert!(board.memory.is_empty());
}

#[test]
fn a_file_of_ones_own_is_read_by_path() {
    let board = read(GOOD).unwrap();
    assert_eq!(board.name, "demo");
    assert!(!board.memory[1].fast);
    assert!(matches!(board.run, Run::Qemu { ref machine, .. } if machine == "demo"));
}

#[test]
fn a_mistyped_name_gets_a_suggestion_and_a_strange_one_the_list() {
    let error = Board::load("mps2-an368").unwrap_err().to_string();
    assert_says(&error, &["`mps2-an368`", "did you mean mps2-an386"]);
    let error = Board::load("toaster").unwrap_err().to_string();
    assert_says(&error, &["`toaster`", "microbit", "mps2-an386", "host", ".toml"]);
}

#[test]
fn a_missing_file_is_named() {
    let error = Board::load("no/such/board.toml").unwrap_err().to_string();
    assert_says(&error, &["no/such/board.toml", "cannot read"]);
}

#[test]
fn syntax_errors_name_file_line_field_and_expectation() {
    assert_says(
        &message("clock_hz = 1000000", "clock_hz = \"fast\""),
        &["demo.toml", "line 7", "clock_hz", "expected u64"],
    );
    assert_says(&message("cpu =", "cpus ="), &["`cpus`", "expected one of", "`cpu`"]);
    assert_says(&message("chip = \"X1\"\n", ""), &["missing field `chip`"]);
    assert_says(&message("\"dsp\"", "\"dps\""), &["`dps`", "`dsp`", "line 10"]);
    assert_says(&message("\"qemu\"", "\"jtag\""), &["jtag", "`qemu`"]);
    assert_says(&message("machine = \"demo\"", "machines = \"demo\""), &["machines"]);
    assert_says(&message("fast = false", "slow = true"), &["slow", "fast"]);
    assert_says(&message("start = 0\n", "start = -1\n"), &["-1", "u64", "start"]);
}

#[test]
fn contradictions_name_the_field_and_the_rule() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("clock_hz = 1000000\n", "", &["`clock_hz` is missing"]),
        ("clock_hz = 1000000", "clock_hz = 0", &["`clock_hz` is 0"]),
        ("bytes = 0x1000", "bytes = 0", &["memory.FLASH.bytes", "is 0"]),
        ("start = 0x20000000", "start = 0xff8", &["FLASH", "RAM", "overlap", "0x00000ff8"]),
        ("start = 0x20000000", "start = 0xfffff800", &["memory.RAM.bytes", "32-bit"]),
        ("start = 0x20000000", "start = 0x7fffffffffffffff", &["memory.RAM.bytes", "32-bit"]),
        ("start = 0x20000000", "start = 0x20000004", &["memory.RAM.start", "multiples of 8"]),
        ("kind = \"ram\"", "kind = \"flash\"", &["`memory`", "kind `ram`"]),
        ("\"RAM\"", "\"FLASH\"", &["two regions called FLASH"]),
        ("\"FLASH\"", "\"RAM\"", &["a region RAM", "first of kind `ram`"]),
        ("\"RAM\"", "\"my ram\"", &["memory.name", "my ram"]),
        ("\"fpu\"", "\"mve\"", &["isa.features", "has `mve`", "armv7e-m", "some of `dsp`, `fpu`"]),
        ("\"fpu\"", "\"dsp\"", &["isa.features", "`dsp` twice"]),
        (", \"fpu\"", "", &["`target`", "no `fpu`"]),
        ("thumbv7em-none-eabihf", "thumbv6m-none-eabi", &["`target`", "`thumbv7em-`"]),
        ("name = \"demo\"", "name = \"De mo\"", &["`name`", "De mo"]),
    ];
    for (from, to, parts) in cases {
        assert_says(&message(from, to), parts);
    }
    // No region overlaps its neighbour when it begins where the other ends.
    assert!(read(&GOOD.replacen("start = 0x20000000", "start = 0x1000", 1)).is_ok());
}

#[test]
fn cycles_are_read_and_checked() {
    let real = GOOD.replace(
        "kind = \"qemu\"\nbinary = \"qemu-system-arm\"\nmachine = \"demo\"",
        "kind = \"probe-rs\"\nchip = \"X1\"",
    );
    let with = |cycles: &str| read(&format!("{real}\n[cycles]\n{cycles}"));
    assert_eq!(read(&real).unwrap().cycles, None);
    let board = with("per_instruction = 1.4\nerror = 0.4\nsource = \"measured\"").unwrap();
    let cycles = board.cycles.unwrap();
    assert_eq!((cycles.per_instruction, cycles.error, cycles.source.as_str()), (1.4, 0.4, "measured"));
    for (per_instruction, error, source, parts) in [
        ("0.0", "0.4", "x", ["`cycles.per_instruction`", "is 0", "above 0"]),
        ("-1.5", "0.4", "x", ["`cycles.per_instruction`", "is -1.5", "above 0"]),
        ("inf", "0.4", "x", ["`cycles.per_instruction`", "is inf", "above 0"]),
        ("nan", "0.4", "x", ["`cycles.per_instruction`", "is NaN", "above 0"]),
        ("1.4", "-0.1", "x", ["`cycles.error`", "is -0.1", "from 0 to 2"]),
        ("1.4", "40.0", "x", ["`cycles.error`", "is 40", "0.4 for 40 %"]),
        ("1.4", "nan", "x", ["`cycles.error`", "is NaN", "from 0 to 2"]),
        ("1.4", "0.4", " ", ["`cycles.source`", "is empty", "taken from"]),
    ] {
        let text = format!("per_instruction = {per_instruction}\nerror = {error}\nsource = \"{source}\"");
        assert_says(&with(&text).unwrap_err().to_string(), &parts);
    }
    assert_says(&with("per_instruction = 1.4\nerror = 0.4").unwrap_err().to_string(), &["source"]);
    assert_says(
        &with("per_instruction = 1.4\nerror = 0.4\nsource = \"x\"\nload = 2").unwrap_err().to_string(),
        &["load"],
    );
    let emulated = format!("{GOOD}\n[cycles]\nper_instruction = 1.4\nerror = 0.4\nsource = \"x\"");
    assert_says(&read(&emulated).unwrap_err().to_string(), &["`cycles`", "real boards only", "`qemu`", "leave it out"]);
}

#[test]
fn firmware_crates_are_for_real_boards_and_named_plainly() {
    let real = GOOD.replace("kind = \"qemu\"\nbinary = \"qemu-system-arm\"\nmachine = \"demo\"", "kind = \"bossac\"");
    let with = |text: &str, krate: &str| read(&format!("{text}[firmware]\ncrate = \"{krate}\"\n"));
    assert_eq!(with(&real, "demo-1").unwrap().firmware.unwrap().name, "demo-1");
    for name in ["", "../demo", "a/b", "Demo"] {
        assert_says(&with(&real, name).unwrap_err().to_string(), &["firmware.crate", "lower-case letters"]);
    }
    assert_says(&with(GOOD, "demo").unwrap_err().to_string(), &["firmware", "real boards only"]);
}

#[test]
fn uf2_families_are_numbers_of_32_bits() {
    let from = "kind = \"qemu\"\nbinary = \"qemu-system-arm\"\nmachine = \"demo\"";
    let with = |family: &str| GOOD.replace(from, &format!("kind = \"uf2\"\nfamily = \"{family}\""));
    assert_eq!(read(&with("0xe48bff56")).unwrap().run.uf2_family(), Some(0xe48b_ff56));
    assert_says(&read(&with("")).unwrap_err().to_string(), &["run.family", "empty"]);
    for family in ["0x", "e48bff56", "0x+1", "0x1e48bff56", "0xg"] {
        assert_says(&read(&with(family)).unwrap_err().to_string(), &["run.family", "hexadecimal"]);
    }
}
