//! Firmware of real boards, built with their HALs: what is in the repository is what Kiln writes, everything lies
//! where the board has memory, and Kiln's part of it reaches no panic. That one would be found is checked by planting it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kiln_boards::{Board, MemoryKind};
use kiln_codegen::board_firmware::BoardFirmware;
use kiln_codegen::deploy::{DeployError, Deployment};
use kiln_codegen::flashing::recipe;
use kiln_codegen::image::{Segment, segments};
use kiln_codegen::references::audit;
use kiln_codegen::symbols::{Elf, SectionKind};
use kiln_codegen::{target_of, uf2};
use kiln_passes::plan_within;
use kiln_planner::kiln_file::KilnFile;
use kiln_planner::{Options, plan};

/// The model that the firmware crates come with.
const MODEL: &str = "examples/sine/model/model.kiln";

/// A model whose input can come by rows, and the RAM that it is planned for.
const FED: &str = "mlperf-kws-dscnn-int8";
const FED_RAM: u64 = 5_500;

/// What cargo says where a crate can't be had.
const UNREACHABLE: [&str; 3] = ["failed to download", "failed to get", "failed to query"];

/// The second stage of the RP2040's boot loader, which lies before the first flash region.
const BOOT2: &str = ".boot2";

/// Checks every board that has a firmware crate.
pub fn run() -> Result<()> {
    let root = crate::root();
    let bytes = fs::read(root.join(MODEL)).with_context(|| format!("reading {MODEL}"))?;
    let graph = KilnFile::from_bytes(&bytes)?.graph.context("the model has no graph")?;
    let boards = Board::all()?;
    let build = root.join("target/kiln/build");
    for (number, board) in boards.iter().filter(|board| board.firmware.is_some()).enumerate() {
        let planned = plan(&graph, &Options::for_target(target_of(board)))?;
        let out = root.join("target/ci-boards").join(&board.name);
        let deployment =
            Deployment { graph: &graph, planned: &planned, board, sources: &root, out: &out, build: &build };
        let firmware = BoardFirmware::new(&deployment)?;
        as_in_the_repository(&firmware, &root, board)?;
        let elf = match firmware.build() {
            Ok(elf) => elf,
            Err(error) if unreachable(&error) && std::env::var_os("CI").is_none_or(|ci| ci != "true") => {
                println!("skipped: {}'s HAL is not in cargo's cache, and crates.io can't be reached", board.name);
                continue;
            }
            Err(error) => return Err(error).with_context(|| format!("building for {}", board.name)),
        };
        check(&deployment, &elf).with_context(|| board.name.clone())?;
        if number == 0 {
            planted(&firmware, &deployment).with_context(|| board.name.clone())?;
            fed(&deployment).with_context(|| format!("{} with {FED}, fed by rows", board.name))?;
        }
    }
    Ok(())
}

/// Builds for the same board, where there are models, what is fed by rows: its trial has another form.
fn fed(beside: &Deployment<'_>) -> Result<()> {
    let Some(data) = crate::data() else { return Ok(()) };
    let graph = kiln_passes::clean(crate::imported(&data, FED)?)?.graph;
    let options = Options { feed: true, ..Options::for_target(target_of(beside.board)) };
    let within = plan_within(graph, &options, FED_RAM)?.context("it can't be fed")?;
    ensure!(within.planned.main_entry().is_some_and(|entry| entry.fed.is_some()), "nothing is fed");
    let out = beside.out.with_extension("fed");
    let deployment = Deployment { graph: &within.graph, planned: &within.planned, out: &out, ..*beside };
    let elf = BoardFirmware::new(&deployment)?.build()?;
    check(&deployment, &elf)
}

fn unreachable(error: &DeployError) -> bool {
    let text = error.to_string();
    UNREACHABLE.iter().any(|part| text.contains(part))
}

/// The crate in the repository, which users copy, has the files that Kiln writes, and is formatted.
fn as_in_the_repository(firmware: &BoardFirmware<'_>, root: &Path, board: &Board) -> Result<()> {
    let template = BoardFirmware::template(root, board).context("no firmware crate")?;
    for (name, bytes) in firmware.written_files()? {
        let path = template.join(name);
        let there = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        ensure!(there == bytes, "{} is not what Kiln writes: copy it from `kiln flash`'s firmware", path.display());
    }
    let status = Command::new("rustfmt")
        .args(["--check", "--edition", "2024", "src/main.rs", "build.rs", "--config-path"])
        .arg(root)
        .current_dir(&template)
        .status()
        .context("running rustfmt")?;
    ensure!(status.success(), "{} is not formatted", template.display());
    Ok(())
}

fn check(deployment: &Deployment<'_>, elf: &Path) -> Result<()> {
    let board = deployment.board;
    let contents = Elf::read(elf)?;
    for section in &contents.sections {
        let kind = match section.kind {
            SectionKind::Code | SectionKind::Constants => MemoryKind::Flash,
            SectionKind::Data | SectionKind::Zeroed => MemoryKind::Ram,
        };
        let end = section.address + section.bytes;
        let inside = board.regions(kind).any(|region| region.start <= section.address && end <= region.end());
        let boot = section.name == BOOT2 && board.regions(kind).next().is_some_and(|region| region.start == end);
        ensure!(inside || boot, "{} at 0x{:x} lies outside the board's {kind:?}", section.name, section.address);
    }
    let loaded = segments(elf)?;
    vectors(board, &contents, &loaded)?;

    let krate = deployment.package().replace('-', "_");
    let audit = audit(elf, &krate)?;
    for part in ["kiln_core::", "kiln_kernels::", "::trial::run"] {
        ensure!(audit.functions.iter().any(|name| name.contains(part)), "found no function of {part}");
    }
    ensure!(audit.reached.is_empty(), "Kiln's part reaches {}", audit.reached[0]);

    let recipe = recipe(board, elf).context("no recipe")?;
    recipe.prepare()?;
    let text = recipe.steps.iter().map(|step| format!("{step}\n")).collect::<String>();
    let named = |path: &Path| text.contains(&path.display().to_string());
    ensure!(recipe.tools.iter().all(|tool| text.contains(tool.program)), "the recipe names no tool: {text}");
    match board.run.uf2_family() {
        Some(family) => {
            let file = elf.with_extension("uf2");
            ensure!(named(&file), "the recipe does not name {}", file.display());
            same_bytes(&loaded, &uf2::decode(&fs::read(&file)?)?, family)?;
        }
        None => ensure!(named(elf), "the recipe does not name {}", elf.display()),
    }
    let sizes = contents.sizes();
    println!(
        "{}: flash {} bytes, RAM {} without stack; in the board's memory; {} functions of Kiln's reach no panic",
        board.name,
        sizes.flash(),
        sizes.ram(),
        audit.functions.len()
    );
    Ok(())
}

/// The vector table is where the CPU looks for it, its stack begins in RAM and its reset handler lies in flash.
fn vectors(board: &Board, elf: &Elf, loaded: &[Segment]) -> Result<()> {
    ensure!(board.target.starts_with("thumb"), "only Cortex-M's vector tables are checked so far");
    let flash = board.regions(MemoryKind::Flash).next().context("no flash")?;
    let ram = board.regions(MemoryKind::Ram).next().context("no RAM")?;
    let table = elf.sections.iter().find(|section| section.name == ".vector_table").context("no vector table")?;
    ensure!(table.address == flash.start, "the vector table is at 0x{:x}", table.address);
    let segment = loaded.iter().find(|segment| segment.address == table.address).context("the table is not loaded")?;
    let word = |at: usize| segment.bytes.get(at..at + 4).and_then(|b| Some(u32::from_le_bytes(b.try_into().ok()?)));
    let (stack, reset) = (word(0).context("no stack")?, word(4).context("no reset handler")?);
    ensure!((ram.start + 1..=ram.end()).contains(&u64::from(stack)), "the stack begins at 0x{stack:x}");
    ensure!(reset & 1 == 1 && (flash.start..flash.end()).contains(&u64::from(reset)), "reset handler 0x{reset:x}");
    Ok(())
}

/// A UF2 file writes what the ELF file loads.
fn same_bytes(loaded: &[Segment], blocks: &[uf2::Block], family: u32) -> Result<()> {
    for segment in loaded {
        for (address, byte) in (segment.address..).zip(&segment.bytes) {
            let within = |b: &&uf2::Block| {
                b.family == family && address.checked_sub(b.address.into()).is_some_and(|offset| offset < 256)
            };
            let block = blocks.iter().find(within).with_context(|| format!("no block for 0x{address:x}"))?;
            let found = block.bytes.get((address - u64::from(block.address)) as usize);
            ensure!(found == Some(byte), "the block for 0x{address:x} has {found:?}, expected {byte}");
        }
    }
    Ok(())
}

/// Plants an `unwrap` that the compiler can't see through, and expects it to be found.
fn planted(firmware: &BoardFirmware<'_>, deployment: &Deployment<'_>) -> Result<()> {
    let plant = |trial: String| {
        trial.replace(
            "    model.infer_with(hook);",
            "    core::hint::black_box(None::<u8>).unwrap();\n    model.infer_with(hook);",
        )
    };
    let elf = firmware.build_changed(plant)?;
    let audit = audit(&elf, &deployment.package().replace('-', "_"))?;
    // What is there next time is the firmware without it.
    firmware.build()?;
    let Some(reached) = audit.reached.first() else {
        bail!("a planted unwrap went unnoticed: the check for panics proves nothing");
    };
    println!("{}: a planted unwrap is found: {reached}", deployment.board.name);
    Ok(())
}
