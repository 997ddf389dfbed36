//! `kiln compile`.

use std::path::{Path, PathBuf};

use kiln_boards::Board;
use kiln_codegen::c_library::{CFiles, CLibrary};
use kiln_codegen::fit::{is_spread, options_for};
use kiln_codegen::model_crate::{ModelCrate, identifier};
use kiln_codegen::package::Optimize;
use kiln_codegen::{sources, target_of, whole_file};
use kiln_planner::Options;

use crate::args::CompileArgs;
use crate::model::{Fitted, Wanted};
use crate::{CliError, Outcome, console};

/// A file to be written, relative to the directory.
type Written = (PathBuf, Vec<u8>);

/// Writes a model's crate, or its library and header, and its `.kiln` file into a directory.
pub fn run(args: &CompileArgs) -> Result<Outcome, CliError> {
    let board = Board::load(&args.board)?;
    let wanted = Wanted { ram: args.ram, feed: args.feed };
    // The C library works in one piece of memory.
    let options = if args.c { Options::for_target(target_of(&board)) } else { options_for(&board) };
    let options = Options { shared_arena: args.shared_arena, ..options };
    let mut model = Fitted::read_with(&args.model, &board, wanted, &options)?;
    if let Some(name) = &args.name {
        model.rename(name)?;
    }
    let root = sources::root()?;
    let (what, mut files) = match args.c {
        true => library(&model, &board, &root)?,
        false => rust_crate(&model, &board, &root)?,
    };
    let Fitted { file, planned, .. } = &model;
    let path = PathBuf::from(format!("{}.kiln", file.name));
    let bytes = model.kiln_bytes(&board, !args.no_graph, &args.out.join(&path))?;
    let ram = match planned.shared_arena {
        true => format!("an arena of {} to share, {} of state", planned.arena_bytes, planned.state_bytes),
        false if is_spread(planned) => {
            let banks: Vec<String> = planned.banks.iter().map(u64::to_string).collect();
            format!("{} of RAM ({})", planned.ram_bytes, banks.join(" + "))
        }
        false => format!("{} of RAM", planned.ram_bytes),
    };
    let done = format!(
        "{what} in {}: {} bytes of plan and constants, {ram}\n{}: {} bytes\n",
        args.out.display(),
        planned.bytes.len(),
        args.out.join(&path).display(),
        bytes.len()
    );
    // What others are built by comes last.
    files.insert(0, (path, bytes));
    whole_file::write_all(files.iter().map(|(path, bytes)| (args.out.join(path), &bytes[..])))?;
    // A path may hold anything.
    console::out(&console::harmless(&done))?;
    Ok(Outcome::Fine)
}

/// The Rust crate.
fn rust_crate(model: &Fitted, board: &Board, root: &Path) -> Result<(String, Vec<Written>), CliError> {
    let model = ModelCrate { graph: &model.graph, planned: &model.planned, board: &board.name, sources: root };
    let files = model.files().map_err(|e| CliError::BadInput(e.to_string()))?;
    Ok((format!("crate {}", model.package()), files.in_order().into()))
}

/// The library and the header.
fn library(model: &Fitted, board: &Board, root: &Path) -> Result<(String, Vec<Written>), CliError> {
    let Fitted { graph, planned, .. } = model;
    console::progress(&format!("building lib{}.a for {}", identifier(&graph.name), board.name));
    let library = CLibrary {
        graph,
        planned,
        board,
        sources: root,
        out: &sources::firmware_directory(root, graph, planned, board),
        build: &sources::firmware_build(root),
        optimize: Optimize::Size,
    };
    let CFiles { name, header, library } = library.build().map_err(|e| CliError::BadInput(e.to_string()))?;
    let what = format!("lib/lib{name}.a, {} bytes, and include/{name}.h", library.len());
    let files =
        vec![(format!("lib/lib{name}.a").into(), library), (format!("include/{name}.h").into(), header.into_bytes())];
    Ok((what, files))
}
