//! `kiln flash` for boards that are there to be touched.

use std::fmt::Write as _;
use std::path::Path;

use kiln_boards::Board;
use kiln_codegen::board_firmware::BoardFirmware;
use kiln_codegen::deploy::Deployment;
use kiln_codegen::flashing::{FlashError, Recipe, recipe};
use kiln_codegen::image::segments;
use kiln_codegen::model_crate::identifier;
use kiln_codegen::references::audit;
use kiln_codegen::symbols::Elf;

use crate::args::FlashArgs;
use crate::{CliError, Outcome, console};

/// Builds the board's firmware crate with the model in it, checks Kiln's part of it and flashes it.
pub(super) fn flash(deployment: &Deployment<'_>, args: &FlashArgs) -> Result<Outcome, CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::BadInput(e.to_string());
    let board = deployment.board;
    let elf = BoardFirmware::new(deployment).and_then(|firmware| firmware.build()).map_err(|e| failed(&e))?;
    let recipe = recipe(board, &elf).ok_or_else(|| failed(&"the board is not real"))?;

    let mut result = String::new();
    let sizes = Elf::read(&elf).map_err(|e| failed(&e))?.sizes();
    let _ = writeln!(
        result,
        "{}: flash {} bytes (code {}, constants {}, data {}), RAM {} bytes without stack; HAL and messages included",
        elf.display(),
        sizes.flash(),
        sizes.text,
        sizes.rodata,
        sizes.data,
        sizes.ram(),
    );
    let krate = identifier(&deployment.package());
    let audit = audit(&elf, &krate).map_err(|e| failed(&e))?;
    if !audit.reached.is_empty() {
        console::out(&result)?;
        let list: Vec<String> = audit.reached.iter().map(|reached| format!("\n  {reached}")).collect();
        return Err(CliError::Failed(format!(
            "Kiln's part of the firmware could allocate or panic, which it may not; it reaches:{}",
            list.concat()
        )));
    }
    let _ = writeln!(
        result,
        "Kiln's {} functions in it reach no allocator, no panic, no formatting code",
        audit.functions.len()
    );
    carry_out(&recipe, result, board, args.dry_run)
}

/// Flashes firmware that the user has built.
pub(super) fn own(board: &Board, args: &FlashArgs) -> Result<Outcome, CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::BadInput(e.to_string());
    let elf = args.elf.as_deref().ok_or_else(|| failed(&"neither a model nor firmware is given"))?;
    let recipe = recipe(board, elf).ok_or_else(|| {
        CliError::BadInput(format!("board {} is emulated: give a model, and Kiln builds its firmware", board.name))
    })?;
    if !board.has_system() {
        // What is no firmware is found before a tool is asked to flash it.
        segments(elf).map_err(|e| failed(&e))?;
    }
    carry_out(&recipe, String::new(), board, args.dry_run)
}

/// Does what the recipe says; in a dry run makes its files and prints its steps behind `result`.
fn carry_out(recipe: &Recipe, mut result: String, board: &Board, dry_run: bool) -> Result<Outcome, CliError> {
    let failed = |e: FlashError| match e {
        FlashError::Failed { .. } => CliError::Failed(e.to_string()),
        e => CliError::BadInput(e.to_string()),
    };
    if dry_run {
        recipe.prepare().map_err(failed)?;
        recipe.steps.iter().for_each(|step| result += &format!("{step}\n"));
        console::out(&console::harmless(&result))?;
        recipe.missing().for_each(|tool| console::progress(&FlashError::Missing(*tool).to_string()));
        return Ok(Outcome::Fine);
    }
    console::out(&console::harmless(&result))?;
    console::progress(&format!("flashing {}", board.name));
    recipe.run().map_err(failed)?;
    Ok(Outcome::Fine)
}

/// What a user does for a board without a firmware crate.
pub(super) fn no_firmware(board: &Board, model: &Path, args: &FlashArgs) -> CliError {
    let name = &args.board;
    CliError::BadInput(format!(
        "Kiln builds no firmware for board {}; `kiln compile {} --board {name} --out DIR` writes the model's crate, to use \
         in firmware of your own, and `kiln flash --elf FIRMWARE.elf --board {name}` flashes that; add `--dry-run` to see how",
        board.name,
        model.display()
    ))
}
