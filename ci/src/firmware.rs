//! Firmware of the reference models: no allocator, no panic, no formatting, no kernel that the plan
//! does not use, and within budget. That a panic would be found is checked by planting an `unwrap`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use kiln_boards::Board;
use kiln_codegen::deploy::Deployment;
use kiln_codegen::firmware::Mode;
use kiln_codegen::symbols::Elf;
use kiln_codegen::target_of;
use kiln_planner::graph::Graph;
use kiln_planner::{Options, Planned, plan};

use crate::budgets::{self, Budget};

/// Checks every model that has a budget.
pub fn run() -> Result<()> {
    let Some(data) = crate::data() else {
        println!("skipped: no models at KILN_DATA (default ../shared/data)");
        return Ok(());
    };
    for (model, boards) in budgets::read()? {
        let path = data.join("models").join(&model).join("model.tflite");
        let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let graph = kiln_import::import_tflite(&bytes, &model)?;
        for (name, budget) in &boards {
            let board = Board::builtin(name)?;
            let planned = plan(&graph, &Options::for_target(target_of(&board)))?;
            check(&graph, &planned, &board, budget).with_context(|| format!("{model} on {name}"))?;
        }
    }
    Ok(())
}

fn check(graph: &Graph, planned: &Planned, board: &Board, budget: &Budget) -> Result<()> {
    let root = crate::root();
    let out = root.join("target/ci-firmware").join(format!("{}-{}", graph.name, board.name));
    let build = root.join("target/kiln/build");
    let deployment = Deployment { graph, planned, board, sources: &root, out: &out, build: &build };
    let elf = Elf::read(&deployment.build(Mode::Replay)?)?;
    let forbidden = elf.forbidden();
    ensure!(forbidden.is_empty(), "the firmware contains {forbidden:?}");
    only_used_kernels(&elf, planned)?;
    let entry = planned.main_entry().context("nothing to run")?;
    ensure!(entry.optimal, "the arena is not proven the least possible");
    let measured = Budget { arena: entry.arena, constants: planned.constants_bytes, code: elf.kiln_code_bytes() };
    budgets::check(&graph.name, &board.name, budget, &measured)?;
    planted(&deployment)?;
    println!(
        "{} on {}: arena {}, constants {}, code {} bytes; no heap, no panic, no unused kernel; a planted unwrap is found",
        graph.name, board.name, measured.arena, measured.constants, measured.code
    );
    Ok(())
}

/// The image holds the bodies of exactly the kernels the plan uses, and operators' code only where it uses their
/// references. A body is
/// a function `run…` of `kiln_kernels`; its address is taken, so it can't be inlined away.
fn only_used_kernels(elf: &Elf, planned: &Planned) -> Result<()> {
    let references = planned.kernels.iter().any(|k| k.number >= 0x8000);
    ensure!(references || !elf.mentions("kiln_ops::"), "the firmware contains operators' code");
    let is_body = |name: &str| {
        let path = name.split("::<").next().unwrap_or(name);
        path.starts_with("kiln_kernels::")
            && path.rsplit("::").next().is_some_and(|f| f == "run" || f.starts_with("run_"))
    };
    // Counted, not named: some compilers leave type arguments out of names.
    let bodies: Vec<&str> = elf.symbols.iter().map(|s| s.name.as_str()).filter(|n| is_body(n)).collect();
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
