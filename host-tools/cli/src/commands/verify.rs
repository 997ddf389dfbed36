//! `kiln verify`.

use std::fmt::Write as _;
use std::path::Path;

use kiln_boards::{Board, Place};
use kiln_codegen::fit::options_for;
use kiln_codegen::sources;

use crate::args::VerifyArgs;
use crate::model::{Fitted, Wanted};
use crate::verify::{Folder, Report, VerifyError, run as replay};
use crate::{CliError, Outcome, console};

/// Replays a folder on this computer or on an emulated board.
pub fn run(args: &VerifyArgs) -> Result<Outcome, CliError> {
    let board = Board::load(args.board.as_deref().unwrap_or("host"))?;
    if board.run.place() == Place::Real {
        return Err(CliError::BadInput(format!(
            "board {} is not emulated, so a folder can't be replayed on it; `kiln boards` lists those that are",
            board.name
        )));
    }
    let folder = Folder::read(&args.dir).map_err(bad)?;
    let wanted = Wanted { ram: args.ram, feed: args.feed };
    let Fitted { graph, planned, .. } = Fitted::read_with(&folder.model, &board, wanted, &options_for(&board))?;
    let root = if board.is_host() { Path::new("").to_owned() } else { sources::root()? };
    let result = replay(&folder, &graph, &planned, &board, &root, &mut |line| console::progress(line));
    let result = result.map_err(bad)?;
    // Names come from files.
    console::out(&console::harmless(&show(&folder, &board, &result)))?;
    Ok(if result.passed() { Outcome::Fine } else { Outcome::No })
}

fn bad(error: VerifyError) -> CliError {
    CliError::BadInput(error.to_string())
}

fn show(folder: &Folder, board: &Board, report: &Report) -> String {
    let mut text = String::new();
    for group in &report.groups {
        let verdict = if group.differing == 0 { "pass" } else { "FAIL" };
        let right =
            group.right.map_or(String::new(), |right| format!("; {right} of {} in the right class", group.cases));
        let _ = writeln!(
            text,
            "{verdict}  {}: {} cases, {} of {} output elements differ from {}{right}",
            group.name, group.cases, group.differing, group.elements, folder.io.reference
        );
        if let Some(first) = &group.first {
            for line in first.to_string().lines() {
                let _ = writeln!(text, "      {line}");
            }
        }
    }
    let cases: usize = report.groups.iter().map(|g| g.cases).sum();
    let verdict = if report.passed() { "all as they should be" } else { "not as they should be" };
    let _ = writeln!(text, "{cases} cases on {}: {verdict}", board.name);
    text
}
