//! `kiln flash`.

mod real;

use std::fmt::Write as _;
use std::path::Path;

use kiln_boards::{Board, Place};
use kiln_codegen::deploy::Deployment;
use kiln_codegen::emulate::Emulation;
use kiln_codegen::firmware::Mode;
use kiln_codegen::ramp::Ramp;
use kiln_codegen::sources;
use kiln_codegen::stack::stack;
use kiln_codegen::symbols::Elf;
use kiln_planner::Planned;
use kiln_planner::graph::Graph;

use crate::args::FlashArgs;
use crate::model::{Fitted, Wanted};
use crate::{CliError, Outcome, console};

/// Builds a model's firmware, checks it, and runs it once on the emulated board or flashes the real one.
pub fn run(args: &FlashArgs) -> Result<Outcome, CliError> {
    let board = Board::load(&args.board)?;
    if board.is_host() {
        return Err(CliError::BadInput(format!(
            "board {} can't be flashed: it is this computer, where `kiln run` runs a model as it is",
            board.name
        )));
    }
    let Some(model) = &args.model else {
        return real::own(&board, args);
    };
    let Fitted { graph, planned, .. } = Fitted::read(model, &board, Wanted { ram: args.ram, feed: args.feed })?;
    if board.run.place() == Place::Real && board.firmware.is_none() {
        return Err(real::no_firmware(&board, model, args));
    }
    let root = sources::root()?;
    let out = sources::firmware_directory(&root, &graph, &planned, &board);
    console::progress(&format!("building firmware for {}", board.name));
    let build = sources::firmware_build(&root);
    let deployment =
        Deployment { graph: &graph, planned: &planned, board: &board, sources: &root, out: &out, build: &build };
    if board.run.place() == Place::Real {
        return real::flash(&deployment, args);
    }
    let elf = deployment.build(Mode::Replay).map_err(|e| CliError::BadInput(e.to_string()))?;
    let symbols = Elf::read(&elf).map_err(|e| CliError::BadInput(e.to_string()))?;
    let mut result = String::new();
    let sizes = symbols.sizes();
    let _ = writeln!(
        result,
        "{}: flash {} bytes (constants {}, plan records {}, code {}, start-up and tables {}), RAM {} bytes without stack",
        elf.display(),
        sizes.flash(),
        planned.constants_bytes,
        planned.records_bytes(),
        symbols.kiln_code_bytes(),
        sizes.flash().saturating_sub(planned.image_bytes() + symbols.kiln_code_bytes()),
        sizes.ram(),
    );
    // Processes have stack in plenty, and their C library is not in the image.
    if !board.has_system() {
        let stack = stack(&elf).map_err(|e| CliError::BadInput(format!("{}: {e}", elf.display())))?;
        let deepest = if stack.infer.bytes > stack.set_up.bytes { &stack.infer } else { &stack.set_up };
        let _ = writeln!(
            result,
            "stack {} bytes to infer, {} bytes to set up; deepest: {deepest}",
            stack.infer.bytes, stack.set_up.bytes
        );
    }
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

/// Runs the firmware on a ramp and compares its outputs with this computer's.
fn run_once(
    graph: &Graph,
    planned: &Planned,
    board: &Board,
    elf: &Path,
    result: &mut String,
) -> Result<bool, CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::BadInput(e.to_string());
    let Ramp { inputs, outputs: here } = Ramp::run(graph, planned).map_err(|e| failed(&e))?;
    let directory = tempfile::tempdir().map_err(|e| failed(&e))?;
    let replayed = Emulation::new(board, elf, directory.path()).replay(&inputs).map_err(|e| failed(&e))?;
    let same = replayed.outputs == here;
    let verdict = if same { "equal this computer's, byte for byte" } else { "DIFFER from this computer's" };
    let _ =
        writeln!(result, "ran once on {} on a ramp: {} bytes of outputs {verdict}", board.name, replayed.outputs.len());
    Ok(same)
}
