//! From a plan to firmware: the model's crate, the glue, the build.

use std::path::{Path, PathBuf};

use kiln_boards::{Board, MemoryRegion};
use kiln_planner::Planned;
use kiln_planner::graph::Graph;
use kiln_target_host::RunError;

use crate::firmware::{Firmware, FirmwareError, Mode, Optimize, PathDependency};
use crate::fit::ram_regions;
use crate::model_crate::{ModelCrate, ModelCrateError, replay_glue};
use crate::stack::stack;
use crate::symbols::{Elf, SectionKind};

/// A model that could not be made into firmware.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The model's crate could not be written.
    #[error(transparent)]
    Crate(#[from] ModelCrateError),
    /// The firmware could not be written or built.
    #[error(transparent)]
    Firmware(#[from] FirmwareError),
    /// This computer can't compute what the firmware should.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The plan has nothing to run.
    #[error("the plan has no entry to run")]
    NoEntry,
    /// The plan's memory, what lies beside it and the stack do not fit the region together.
    #[error(
        "board {board}, RAM region {region} of {bytes} bytes: the plan takes {planned}, data of the firmware beside it {beside}, and the \
         stack up to {stack}: {}",
        advice(.bytes.saturating_sub(*.beside).saturating_sub(*.stack))
    )]
    Ram {
        /// The board.
        board: String,
        /// Its region.
        region: String,
        /// How large that is.
        bytes: u64,
        /// State and arena.
        planned: u64,
        /// An input that is held whole to be fed by rows, and other variables.
        beside: u64,
        /// Stack.
        stack: u64,
    },
}

fn advice(free: u64) -> String {
    match free {
        0 => "take a board with more".to_owned(),
        free => format!("plan for at most {free} bytes (--ram), or take a board with more"),
    }
}

/// Stack that firmware needs around the model's set-up and runs: start-up code, and the loop that reads and writes files.
const AROUND: u64 = 256;

/// A planned model on its way to a board.
pub struct Deployment<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Its plan for the board's CPU family.
    pub planned: &'a Planned,
    /// The board.
    pub board: &'a Board,
    /// The root of Kiln's source tree.
    pub sources: &'a Path,
    /// Where everything is written: the model's crate in `model/`, the firmware in `firmware/`.
    pub out: &'a Path,
    /// Where everything is built: shared by all models, so that `core` and the kernels are built once.
    /// The environment's `KILN_TARGET_DIR` comes before it.
    pub build: &'a Path,
}

impl Deployment<'_> {
    /// The name of the model's package.
    pub fn package(&self) -> String {
        self.model().package()
    }

    fn model(&self) -> ModelCrate<'_> {
        ModelCrate { graph: self.graph, planned: self.planned, board: &self.board.name, sources: self.sources }
    }

    /// Writes the model's crate to `out/model` and returns its package name and directory.
    pub fn write_model(&self) -> Result<(String, PathBuf), ModelCrateError> {
        let model = self.model();
        let directory = self.out.join("model");
        model.write(&directory)?;
        Ok((model.package(), directory))
    }

    /// Writes model and firmware, builds them and returns the ELF file's path.
    pub fn build(&self, mode: Mode) -> Result<PathBuf, DeployError> {
        self.build_changed(mode, |glue| glue)
    }

    /// [`Deployment::build`] with the glue between model and firmware changed on the way: how the
    /// checks of firmware are themselves checked, by planting what they must find.
    pub fn build_changed(&self, mode: Mode, change: impl Fn(String) -> String) -> Result<PathBuf, DeployError> {
        let (package, path) = self.write_model()?;
        let glue = change(replay_glue(self.planned, &package).ok_or(DeployError::NoEntry)?);
        let name = match mode {
            Mode::Replay => format!("{package}-firmware"),
            Mode::Dump => format!("{package}-dump"),
            Mode::Profile => format!("{package}-profile"),
        };
        let dependencies = [PathDependency { package, path }];
        let firmware = Firmware {
            name: &name,
            board: self.board,
            dependencies: &dependencies,
            glue: &glue,
            sources: self.sources,
            out: self.out,
            optimize: Optimize::Size,
            mode,
        };
        // Processes have as much as they ask for.
        let first = ram_regions(self.planned, self.board).into_iter().next().filter(|_| !self.board.has_system());
        // An input that comes by rows is held whole, as it is in the file of cases.
        let fed = self.planned.main_entry().and_then(|entry| entry.fed);
        let held = fed.map_or(0, |(input, _)| self.graph.value(input).ty.bytes().unwrap_or(0));
        if let Some(first) = first {
            self.room(first, held, AROUND)?;
        }
        let elf = firmware.build(self.build)?;
        // The same model is replayed before it is dumped.
        if let Some(first) = first.filter(|_| mode != Mode::Dump) {
            self.check_stack(first, &elf)?;
        }
        Ok(elf)
    }

    /// Refuses an image that leaves too little of a region for the stack. Where that can't be told, whoever asks for it is told so.
    fn check_stack(&self, first: (&MemoryRegion, u64), path: &Path) -> Result<(), DeployError> {
        let (Ok(stack), Ok(elf)) = (stack(path), Elf::read(path)) else { return Ok(()) };
        let inside = |address: u64| (first.0.start..first.0.end()).contains(&address);
        let variables = elf.sections.iter().filter(|s| matches!(s.kind, SectionKind::Data | SectionKind::Zeroed));
        let own = variables.filter(|section| inside(section.address)).map(|section| section.bytes).sum::<u64>();
        self.room(first, own.saturating_sub(first.1), stack.infer.bytes.max(stack.set_up.bytes) + AROUND)
    }

    fn room(&self, (region, planned): (&MemoryRegion, u64), beside: u64, stack: u64) -> Result<(), DeployError> {
        if planned + beside + stack <= region.bytes {
            return Ok(());
        }
        let (board, name) = (self.board.name.clone(), region.name.clone());
        Err(DeployError::Ram { board, region: name, bytes: region.bytes, planned, beside, stack })
    }
}
