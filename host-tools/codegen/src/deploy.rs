//! From a plan to firmware: the model's crate, the glue, the build.

use std::path::{Path, PathBuf};

use kiln_boards::Board;
use kiln_planner::Planned;
use kiln_planner::graph::Graph;
use kiln_target_host::RunError;

use crate::firmware::{Firmware, FirmwareError, Mode, Optimize, PathDependency};
use crate::model_crate::{ModelCrate, ModelCrateError, replay_glue};

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
}

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
        Ok(firmware.build(self.build)?)
    }
}
