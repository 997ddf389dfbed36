//! A model planned for a board that it fits.

use std::path::Path;

use kiln_boards::{Board, MemoryKind};
use kiln_build::ModelError;
use kiln_build::model_file::is_file_name;
pub use kiln_build::model_file::{Format, MAX_BYTES, ModelFile};
use kiln_codegen::fit::{free, is_spread, main_region};
use kiln_codegen::target_of;
use kiln_passes::{Removed, Within, plan_within};
use kiln_planner::graph::Graph;
use kiln_planner::kiln_file::{About, KilnFile};
use kiln_planner::{Options, Planned};

use crate::CliError;
use crate::report::{report, text};

/// What is asked of a plan beside the board.
#[derive(Clone, Copy, Default)]
pub struct Wanted {
    /// The most bytes of RAM.
    pub ram: Option<u64>,
    /// Whether the first input is fed by rows.
    pub feed: bool,
}

/// A model planned for a board that it fits.
pub struct Fitted {
    /// The file.
    pub file: ModelFile,
    /// Its graph, cleaned.
    pub graph: Graph,
    /// The plan for the board's CPU family.
    pub planned: Planned,
}

impl Fitted {
    /// Reads and plans a model as it is wanted.
    ///
    /// # Errors
    ///
    /// The file can't be read or planned, or the plan does not fit the board or those bytes: which region is
    /// short, by how much, and what is to blame.
    pub fn read(path: &Path, board: &Board, wanted: Wanted) -> Result<Fitted, CliError> {
        Fitted::read_with(path, board, wanted, &Options::for_target(target_of(board)))
    }

    /// The same, planned with `options` for the board: in several regions of RAM, for instance.
    ///
    /// # Errors
    ///
    /// As for [`Fitted::read`].
    pub fn read_with(path: &Path, board: &Board, wanted: Wanted, options: &Options) -> Result<Fitted, CliError> {
        let file = ModelFile::read(path)?;
        let placed = place(&file, file.graph()?, options, wanted, board)?;
        check_within(&file, &placed.planned, board, wanted.ram, placed.least)?;
        let Within { graph, planned, .. } = placed;
        Ok(Fitted { file, graph, planned })
    }

    /// Calls the model something else: names in generated code are made from it, and the `.kiln` file is called so.
    ///
    /// # Errors
    ///
    /// It is no name for a file.
    pub fn rename(&mut self, name: &str) -> Result<(), CliError> {
        if !is_file_name(name) {
            return Err(CliError::BadInput(format!("--name {name}: give a name such as kws, which is no path")));
        }
        self.file.name = name.to_owned();
        self.graph.name = name.to_owned();
        Ok(())
    }

    /// The bytes of a `.kiln` file with the plan and, if asked for, the graph; `path` is what errors call it.
    ///
    /// # Errors
    ///
    /// The file's format can't hold it.
    pub fn kiln_bytes(&self, board: &Board, with_graph: bool, path: &Path) -> Result<Vec<u8>, CliError> {
        let (model, board) = (self.file.name.clone(), board.name.clone());
        let kiln = KilnFile {
            graph: with_graph.then(|| self.graph.clone()),
            plans: vec![(self.planned.target, self.planned.bytes.clone())],
            about: About { model, board, kiln: env!("CARGO_PKG_VERSION").to_string() },
        };
        Ok(kiln.to_bytes().map_err(|source| ModelError::KilnFile { path: path.to_owned(), source })?)
    }
}

/// Bytes of RAM that a plan may take which is made to fit a board: what is asked for, or all but what the stack needs.
pub(crate) fn made_to_fit(board: &Board, ram: Option<u64>) -> u64 {
    let region = main_region(board, MemoryKind::Ram);
    match ram {
        Some(ram) => region.map_or(ram, |region| region.bytes.min(ram)),
        None => region.map_or(u64::MAX, free),
    }
}

/// Plans a graph of `file` as it is wanted: see [`plan_within`]. Without a limit it is [`made_to_fit`] where the plan as it is would not fit.
///
/// # Errors
///
/// It can't be planned at all, or its input can't be fed by rows.
pub(crate) fn place(
    file: &ModelFile,
    graph: Graph,
    options: &Options,
    Wanted { ram, feed }: Wanted,
    board: &Board,
) -> Result<Within, CliError> {
    let limit = main_region(board, MemoryKind::Ram).map(|region| region.bytes);
    let plain = match ram {
        None => Some(file.plan(&graph, &Options { feed, ..*options })?),
        Some(_) => None,
    };
    let fits = |planned: &Planned| is_spread(planned) || limit.is_none_or(|limit| planned.ram_bytes <= limit);
    if let Some(planned) = plain.filter(fits) {
        return Ok(Within { graph, planned, patches: None, least: None });
    }
    // Within so many bytes one region counts.
    let options = Options { feed, rooms: Options::for_target(options.target).rooms, ..*options };
    let failed = |source| CliError::from(ModelError::Plan { path: file.path.clone(), source });
    plan_within(graph, &options, made_to_fit(board, ram)).map_err(failed)?.ok_or_else(|| {
        CliError::input(
            &file.path,
            "its input can't be fed by rows: that takes an input of the shape [1, height, width, channels] which only convolutions, pools, \
             sums and others that go row by row read; leave out --feed",
        )
    })
}

/// Refuses a plan that does not fit a board: which region is short, by how much, and what is to blame.
pub(crate) fn check_fit(file: &ModelFile, planned: &Planned, board: &Board) -> Result<(), CliError> {
    check_within(file, planned, board, None, None)
}

/// [`check_fit`] within `ram` bytes, where `least` were found to be enough.
fn check_within(
    file: &ModelFile,
    planned: &Planned,
    board: &Board,
    ram: Option<u64>,
    least: Option<u64>,
) -> Result<(), CliError> {
    // What was removed is no part of why it does not fit.
    let mut fit = report(&file.name, planned, Removed::default(), board, ram)?;
    if fit.fits {
        return Ok(());
    }
    fit.ram.least = least;
    Err(CliError::Failed(format!("{}: {}", file.path.display(), text::shortage(&fit))))
}
