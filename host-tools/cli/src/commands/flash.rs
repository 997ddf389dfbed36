//! `kiln flash`.

use std::fmt::Write as _;
use std::path::Path;

use kiln_boards::{Board, Place};
use kiln_codegen::deploy::Deployment;
use kiln_codegen::emulate::Emulation;
use kiln_codegen::firmware::Mode;
use kiln_codegen::flashing::recipe;
use kiln_codegen::profile::ramp;
use kiln_codegen::symbols::Elf;
use kiln_planner::Planned;
use kiln_planner::graph::Graph;
use kiln_target_host::Runner;

use crate::args::FlashArgs;
use crate::model::Fitted;
use crate::{CliError, Outcome, console, sources};

/// Builds a model's firmware, checks it, and runs it once on the emulated board.
pub fn run(args: &FlashArgs) -> Result<Outcome, CliError> {
    let board = Board::load(&args.board)?;
    if board.is_host() {
        return Err(CliError::BadInput(format!(
            "board {} can't be flashed: it is this computer, where `kiln run` runs a model as it is",
            board.name
        )));
    }
    let Fitted { graph, planned, .. } = Fitted::read(&args.model, &board)?;
    if board.run.place() == Place::Real {
        return real(&board, args);
    }
    let root = sources::root().map_err(CliError::BadInput)?;
    let out = sources::firmware_directory(&root, &graph, &planned, &board);
    console::progress(&format!("building firmware for {}", board.name));
    let build = sources::firmware_build(&root);
    let deployment =
        Deployment { graph: &graph, planned: &planned, board: &board, sources: &root, out: &out, build: &build };
    let elf = deployment.build(Mode::Replay).map_err(|e| CliError::BadInput(e.to_string()))?;
    let symbols = Elf::read(&elf).map_err(|e| CliError::BadInput(e.to_string()))?;
    let mut result = String::new();
    let sizes = symbols.sizes();
    let _ = writeln!(
        result,
        "{}: flash {} bytes (code {}, constants {}, data {}), RAM {} bytes without stack; Kiln's code {} bytes",
        elf.display(),
        sizes.flash(),
        sizes.text,
        sizes.rodata,
        sizes.data,
        sizes.ram(),
        symbols.kiln_code_bytes()
    );
    let forbidden = symbols.forbidden();
    if !forbidden.is_empty() {
        console::out(&result)?;
        let list: Vec<String> = forbidden.iter().map(|f| format!("\n  {f}")).collect();
        return Err(CliError::Failed(format!(
            "the firmware could allocate or panic, which no Kiln firmware may; it contains:{}",
            list.concat()
        )));
    }
    result.push_str("no allocator, no panic, no formatting code in it\n");
    if args.dry_run {
        console::out(&result)?;
        return Ok(Outcome::Fine);
    }
    console::progress(&format!("running it on {}", board.name));
    let same = run_once(&graph, &planned, &board, &elf, &mut result)?;
    console::out(&result)?;
    Ok(if same { Outcome::Fine } else { Outcome::No })
}

/// What there is for real boards so far: how the firmware that a user builds gets there.
fn real(board: &Board, args: &FlashArgs) -> Result<Outcome, CliError> {
    let model = args.model.display();
    let compile = format!("`kiln compile {model} --board {} --out DIR` writes the model's crate for it", args.board);
    let Some(recipe) = recipe(board, Path::new("FIRMWARE.elf")).filter(|_| args.dry_run) else {
        return Err(CliError::BadInput(format!(
            "board {} is real hardware, for which Kiln builds no firmware yet; {compile}, to use in firmware of your \
             own, and `--dry-run` prints how that is flashed",
            board.name
        )));
    };
    console::out(&(recipe.steps.join("\n") + "\n"))?;
    let missing = recipe.tools.iter().filter(|tool| !tool.installed());
    let missing: String = missing.map(|t| format!("\n{} is not in PATH; get it: {}", t.program, t.install)).collect();
    Err(CliError::BadInput(format!(
        "Kiln builds no firmware for board {} yet: FIRMWARE.elf is your own; {compile}{missing}",
        board.name
    )))
}

/// Runs the firmware on a ramp and compares its outputs with this computer's.
fn run_once(
    graph: &Graph,
    planned: &Planned,
    board: &Board,
    elf: &Path,
    result: &mut String,
) -> Result<bool, CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::BadInput(e.to_string());
    let entry = planned.main_entry().ok_or_else(|| failed(&"the model has nothing to run"))?;
    let inputs = ramp(graph, entry);
    let directory = tempfile::tempdir().map_err(|e| failed(&e))?;
    let replayed = Emulation::new(board, elf, directory.path()).replay(&inputs.concat()).map_err(|e| failed(&e))?;
    let mut runner = Runner::new(&planned.bytes).map_err(|e| failed(&e))?;
    let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let here = runner.run(&entry.name, &slices).map_err(|e| failed(&e))?.concat();
    let same = replayed.outputs == here;
    let verdict = if same { "equal this computer's, byte for byte" } else { "DIFFER from this computer's" };
    let _ =
        writeln!(result, "ran once on {} on a ramp: {} bytes of outputs {verdict}", board.name, replayed.outputs.len());
    Ok(same)
}
