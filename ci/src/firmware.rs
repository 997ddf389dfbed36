//! Firmware of the reference models: no allocator, no panic, no formatting, no kernel that the plan
//! does not use, an arena that is touched up to its last byte, and within budget. That a panic would be found is
//! checked by planting an `unwrap`, once a board; that firmware for measuring costs what firmware for use does, by
//! counting both.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use kiln_boards::Board;
use kiln_codegen::count::{Counting, Counts};
use kiln_codegen::deploy::Deployment;
use kiln_codegen::emulate::Emulation;
use kiln_codegen::firmware::Mode;
use kiln_codegen::profile::profile;
use kiln_codegen::ramp;
use kiln_codegen::symbols::Elf;
use kiln_codegen::toolchain::Toolchain;
use kiln_codegen::{plugin, target_of};
use kiln_passes::{Within, plan_within};
use kiln_planner::graph::Graph;
use kiln_planner::{Options, Planned, plan};

use crate::budgets::{self, Budget};

/// Checks every model that has a budget.
pub fn run() -> Result<()> {
    let Some(data) = crate::data() else { return Ok(()) };
    let plugin = plugin::build(&crate::root(), &build_directory())?;
    let (mut planted_on, mut wrong) = (BTreeSet::new(), Vec::new());
    for (model, boards) in budgets::read()? {
        let whole = kiln_passes::clean(crate::imported(&data, &model)?)?.graph;
        for (name, budget) in &boards {
            let (board, graph, planned) = wanted(&whole, name)?;
            let first = planted_on.insert(board.name.clone());
            let what = What { graph: &graph, planned: &planned, board: &board, name };
            let checked = check(&what, budget, &plugin, first);
            wrong.extend(checked.err().map(|error| format!("\n  {model} on {name}: {error:#}")));
        }
    }
    ensure!(wrong.is_empty(), "firmware is not as it should be:{}", wrong.concat());
    Ok(())
}

/// What a budget is of: a board, which may be followed by `--ram BYTES` and `--feed`, and the graph planned for it.
fn wanted(graph: &Graph, name: &str) -> Result<(Board, Graph, Planned)> {
    let mut words = name.split_whitespace();
    let board = words.next().unwrap_or_default();
    let board = match crate::instructions::armv6m()? {
        armv6m if armv6m.name == board => armv6m,
        _ => Board::builtin(board)?,
    };
    let mut options = Options::for_target(target_of(&board));
    while let Some(word) = words.next() {
        match word {
            "--feed" => options.feed = true,
            "--ram" => options.ram = Some(words.next().context("--ram wants bytes")?.parse()?),
            _ => bail!("{name}: neither a board nor --ram BYTES nor --feed"),
        }
    }
    let Some(ram) = options.ram else { return Ok((board, graph.clone(), plan(graph, &options)?)) };
    let Within { graph, planned, .. } =
        plan_within(graph.clone(), &options, ram)?.context("the input can't be fed by rows")?;
    Ok((board, graph, planned))
}

/// A model planned for a board, and what its budget is called.
struct What<'a> {
    graph: &'a Graph,
    planned: &'a Planned,
    board: &'a Board,
    name: &'a str,
}

fn build_directory() -> PathBuf {
    crate::root().join("target/kiln/build")
}

/// Checks a model on a board; the first of each board more thoroughly.
fn check(what: &What<'_>, budget: &Budget, plugin: &Path, first: bool) -> Result<()> {
    let &What { graph, planned, board, name } = what;
    let root = crate::root();
    let out = root.join("target/ci-firmware").join(format!("{}-{}", graph.name, name.replace(' ', "")));
    let build = build_directory();
    let deployment = Deployment { graph, planned, board, sources: &root, out: &out, build: &build };
    let entry = planned.main_entry().context("nothing to run")?;
    let inputs = ramp::inputs(graph, entry).concat();
    let directory = tempfile::tempdir()?;
    let profile = profile(&deployment, plugin, directory.path(), &inputs)?;
    let elf = &profile.elf;
    let forbidden = elf.forbidden();
    ensure!(forbidden.is_empty(), "the firmware contains {forbidden:?}");
    only_used_kernels(elf, planned)?;
    ensure!(entry.optimal, "the arena is not proven the least possible");
    // The end of a vector that is read and not used leaves no trace.
    ensure!(
        profile.arena.end <= entry.arena && entry.arena - profile.arena.end < VECTOR,
        "a run touches {} bytes of the arena, and {} are planned",
        profile.arena.end,
        entry.arena
    );
    let measured = Budget {
        arena: entry.arena,
        constants: planned.constants_bytes,
        code: elf.kiln_code_bytes(),
        instructions: profile.run.counts.instructions,
        stack: profile.stack,
    };
    if first {
        let counted = replayed(&deployment, plugin, directory.path(), &inputs)?;
        ensure!(counted == [profile.run.counts], "firmware for use costs {counted:?}, not {:?}", profile.run.counts);
        planted(&deployment)?;
    }
    println!(
        "{} on {}: arena {}, constants {}, code {} bytes, {} instructions, stack {} bytes; no heap, no panic, no unused \
         kernel{}",
        graph.name,
        name,
        measured.arena,
        measured.constants,
        measured.code,
        measured.instructions,
        measured.stack.map_or("unmeasured".to_owned(), |bytes| bytes.to_string()),
        if first { "; a planted unwrap is found, and replaying costs the same" } else { "" }
    );
    let toolchain = Toolchain::find(&board.target)?;
    budgets::check(&graph.name, name, budget, &measured, toolchain.builds_core())
        .with_context(|| toolchain.describe())?;
    Ok(())
}

/// Bytes of the largest vectors of a microcontroller.
const VECTOR: u64 = 16;

/// What one run of firmware that neither paints nor measures anything costs.
fn replayed(deployment: &Deployment<'_>, plugin: &Path, directory: &Path, inputs: &[u8]) -> Result<Vec<Counts>> {
    let path = deployment.build(Mode::Replay)?;
    let counting = Counting::new(plugin, deployment.board, &Elf::read(&path)?, &path)?;
    let emulation = Emulation { arguments: counting.arguments(), ..Emulation::new(deployment.board, &path, directory) };
    emulation.replay(inputs)?;
    Ok(counting.read(directory)?.iter().map(|run| run.counts).collect())
}

/// The image holds the bodies of exactly the kernels the plan uses, and operators' code only where it uses their
/// references.
fn only_used_kernels(elf: &Elf, planned: &Planned) -> Result<()> {
    let references = planned.kernels.iter().any(|k| k.number >= 0x8000);
    ensure!(references || !elf.mentions("kiln_ops::"), "the firmware contains operators' code");
    // Counted, not named: some compilers leave type arguments out of names.
    let bodies: Vec<&str> = elf.kernel_bodies().map(|s| s.name.as_str()).collect();
    let used: Vec<&str> = planned.kernels.iter().map(|k| k.name).collect();
    ensure!(bodies.len() == used.len(), "the plan uses {used:?}, but the firmware has {bodies:?}");
    Ok(())
}

/// Plants an `unwrap` that the compiler can't see through, and expects it to be found.
fn planted(deployment: &Deployment<'_>) -> Result<()> {
    let out = deployment.out.join("planted");
    let deployment = Deployment { out: Path::new(&out), ..*deployment };
    let plant = |glue: String| {
        glue.replace(
            "fn run(&mut self) {",
            "fn run(&mut self) {\n            core::hint::black_box(None::<u8>).unwrap();",
        )
    };
    let elf = Elf::read(&deployment.build_changed(Mode::Replay, plant)?)?;
    ensure!(!elf.forbidden().is_empty(), "a planted unwrap went unnoticed: the check for panics proves nothing");
    Ok(())
}
