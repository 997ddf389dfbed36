//! `kiln compile`.

use kiln_boards::Board;
use kiln_codegen::model_crate::ModelCrate;

use crate::args::CompileArgs;
use crate::model::Fitted;
use crate::{CliError, Outcome, console, sources, whole_file};

/// Writes a model's crate and its `.kiln` file into a directory.
pub fn run(args: &CompileArgs) -> Result<Outcome, CliError> {
    let board = Board::load(&args.board)?;
    let fitted = Fitted::read(&args.model, &board)?;
    let Fitted { file, graph, planned } = &fitted;
    let sources = sources::root().map_err(CliError::BadInput)?;
    let model = ModelCrate { graph, planned, board: &board.name, sources: &sources };
    model.write(&args.out).map_err(|e| CliError::BadInput(e.to_string()))?;
    let package = model.package();
    let path = args.out.join(format!("{}.kiln", file.name));
    let bytes = fitted.kiln_bytes(&board, !args.no_graph, &path)?;
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
