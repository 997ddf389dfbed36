//! `kiln profile`.

use kiln_boards::{Board, Place};
use kiln_codegen::deploy::Deployment;
use kiln_codegen::plugin;
use kiln_codegen::profile::profile;
use kiln_codegen::{ramp, sources};
use kiln_target_host::Runner;

use crate::args::ProfileArgs;
use crate::console::{self, Style};
use crate::model::{Fitted, Wanted};
use crate::profile::{Comparison, json::ProfileReport, report, text};
use crate::report::json::to_text;
use crate::{CliError, Outcome};

/// Measures a model on an emulated board, and compares it with an earlier measurement.
pub fn run(args: &ProfileArgs) -> Result<Outcome, CliError> {
    let Some(name) = &args.board else {
        return Err(CliError::BadInput(
            "programs are not timed on a device yet; give an emulated board with --board: `kiln boards` lists them"
                .to_owned(),
        ));
    };
    let board = Board::load(name)?;
    if board.run.place() != Place::Emulated {
        let why = if board.is_host() { "this computer" } else { "real hardware, which is not measured yet" };
        return Err(CliError::BadInput(format!(
            "board {} is {why}: instructions are counted on an emulated board of the same CPU family; `kiln boards` \
             lists those that are",
            board.name
        )));
    }
    // Before anything is built.
    let old = args.compare.as_deref().map(ProfileReport::read).transpose()?;
    let Fitted { file, graph, planned } = Fitted::read(&args.model, &board, Wanted { ram: args.ram, feed: args.feed })?;
    let failed = |e: &dyn std::fmt::Display| CliError::BadInput(e.to_string());
    let entry = planned.main_entry().ok_or_else(|| failed(&"the model has nothing to run"))?;
    let comparable = old.as_ref().map(|old| old.same_kind(&file.name, &board.name));
    if let (Some(Err(problem)), Some(path)) = (comparable, &args.compare) {
        return Err(CliError::input(path, problem));
    }

    let root = sources::root()?;
    let out = sources::firmware_directory(&root, &graph, &planned, &board);
    let build = sources::firmware_build(&root);
    console::progress("building the counter");
    let plugin = plugin::build(&root, &build).map_err(|e| failed(&e))?;
    console::progress(&format!("building firmware for {} and running it", board.name));
    let deployment =
        Deployment { graph: &graph, planned: &planned, board: &board, sources: &root, out: &out, build: &build };
    let inputs = ramp::inputs(&graph, entry);
    let directory = tempfile::tempdir().map_err(|e| failed(&e))?;
    let measured = profile(&deployment, &plugin, directory.path(), &inputs.concat()).map_err(|e| failed(&e))?;

    let mut runner = Runner::new(&planned.bytes).map_err(|e| failed(&e))?;
    let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    if runner.run(&entry.name, &slices).map_err(|e| failed(&e))?.concat() != measured.outputs {
        return Err(CliError::Failed(format!(
            "the outputs on {} DIFFER from this computer's, so what they cost means nothing; `kiln verify` on a folder \
             of recorded cases names the step",
            board.name
        )));
    }
    let new = report(&file.name, &planned, entry, &board, &measured);
    let comparison = old.as_ref().map(|old| Comparison::new(old, &new));
    console::out(&match &comparison {
        _ if args.json => to_text(&new)?,
        Some(comparison) => text::comparison(comparison, Style::of_stdout()),
        None => text::profile(&new, Style::of_stdout()),
    })?;
    match comparison.map(|comparison| comparison.grown()) {
        Some(grown) if !grown.is_empty() => {
            Err(CliError::Failed(format!("{}: more than before: {}", file.path.display(), grown.join(", "))))
        }
        _ => Ok(Outcome::Fine),
    }
}
