//! `kiln compile`.

use kiln_boards::Board;
use kiln_codegen::model_crate::ModelCrate;
use kiln_planner::kiln_file::{About, KilnFile};

use crate::args::CompileArgs;
use crate::model::Fitted;
use crate::{CliError, Outcome, console, sources, whole_file};

/// Writes a model's crate and its `.kiln` file into a directory.
pub fn run(args: &CompileArgs) -> Result<Outcome, CliError> {
    let board = Board::load(&args.board)?;
    let Fitted { file, graph, planned } = Fitted::read(&args.model, &board)?;
    let sources = sources::root().map_err(CliError::BadInput)?;
    let model = ModelCrate { graph: &graph, planned: &planned, board: &board.name, sources: &sources };
    model.write(&args.out).map_err(|e| CliError::BadInput(e.to_string()))?;
    let about =
        About { model: file.name.clone(), board: board.name.clone(), kiln: env!("CARGO_PKG_VERSION").to_string() };
    let package = model.package();
    let kiln = KilnFile {
        graph: (!args.no_graph).then(|| graph.clone()),
        plans: vec![(planned.target, planned.bytes.clone())],
        about,
    };
    let path = args.out.join(format!("{}.kiln", file.name));
    let bytes = kiln.to_bytes().map_err(|source| CliError::KilnFile { path: path.clone(), source })?;
    whole_file::write(&path, &bytes)?;
    let done = format!(
        "crate {package} in {}: {} bytes of plan and constants, {} of RAM\n{}: {} bytes\n",
        args.out.display(),
        planned.bytes.len(),
        planned.ram_bytes,
        path.display(),
        bytes.len()
    );
    // A path may hold anything.
    console::out(&console::harmless(&done))?;
    Ok(Outcome::Fine)
}
