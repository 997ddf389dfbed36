//! Running a folder's cases as firmware on an emulated board.

use std::path::{Path, PathBuf};

use kiln_boards::Board;
use kiln_codegen::deploy::{DeployError, Deployment};
use kiln_codegen::emulate::Emulation;
use kiln_codegen::firmware::Mode;
use kiln_codegen::sources;
use kiln_planner::Planned;
use kiln_planner::graph::Graph;
use tempfile::TempDir;

use super::error::VerifyError;
use super::folder::{Case, Folder};
use super::run::{Device, Tensors};

/// What firmware is built from.
struct Firmware<'a> {
    graph: &'a Graph,
    planned: &'a Planned,
    board: &'a Board,
    sources: &'a Path,
    out: PathBuf,
    build: PathBuf,
}

impl Firmware<'_> {
    fn build(&self, mode: Mode) -> Result<PathBuf, DeployError> {
        let Firmware { graph, planned, board, sources, out, build } = self;
        Deployment { graph, planned, board, sources, out, build }.build(mode)
    }
}

/// Firmware of a model on an emulated board.
pub(super) struct Emulated<'a> {
    firmware: Firmware<'a>,
    /// Whether cases must begin with fresh state.
    stateful: bool,
    elf: PathBuf,
    /// Built only when a step must be found.
    dump: Option<PathBuf>,
    /// Where the firmware's files are.
    files: TempDir,
    output_bytes: Vec<usize>,
}

impl<'a> Emulated<'a> {
    pub(super) fn new(
        folder: &Folder,
        graph: &'a Graph,
        planned: &'a Planned,
        board: &'a Board,
        sources: &'a Path,
    ) -> Result<Emulated<'a>, VerifyError> {
        let out = sources::firmware_directory(sources, graph, planned, board);
        let firmware = Firmware { graph, planned, board, sources, out, build: sources::firmware_build(sources) };
        let elf = firmware.build(Mode::Replay).map_err(|e| VerifyError::Board(e.to_string()))?;
        let files = TempDir::new().map_err(|e| VerifyError::Board(format!("no temporary directory: {e}")))?;
        let outputs = planned.main_entry().map_or(&[][..], |e| &e.outputs);
        let output_bytes = outputs.iter().map(|&id| graph.value(id).ty.bytes().unwrap_or(0) as usize).collect();
        Ok(Emulated { firmware, stateful: folder.stateful(), elf, dump: None, files, output_bytes })
    }

    fn emulate<'e>(&'e self, elf: &'e Path) -> Emulation<'e> {
        Emulation::new(self.firmware.board, elf, self.files.path())
    }

    fn replay(&self, cases: &[Case]) -> Result<Vec<Tensors>, VerifyError> {
        let replayed = self.emulate(&self.elf).replay(&inputs(cases)).map_err(|e| VerifyError::Board(e.to_string()))?;
        let mut rest = replayed.outputs.as_slice();
        let mut all = Vec::new();
        for _ in cases.iter().flat_map(|c| &c.runs) {
            let mut outputs = Vec::new();
            for &bytes in &self.output_bytes {
                let (one, after) = rest.split_at_checked(bytes).ok_or_else(|| {
                    VerifyError::Board(format!("the firmware wrote only {} bytes of outputs", replayed.outputs.len()))
                })?;
                outputs.push(one.to_vec());
                rest = after;
            }
            all.push(outputs);
        }
        Ok(all)
    }
}

impl Device for Emulated<'_> {
    fn outputs(&mut self, cases: &[Case]) -> Result<Vec<Tensors>, VerifyError> {
        if !self.stateful {
            return self.replay(cases);
        }
        // A fresh start for each case: the emulator is started anew.
        let each = cases.iter().map(|case| self.replay(std::slice::from_ref(case)));
        Ok(each.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    fn steps(&mut self, case: &Case, run: usize) -> Result<Tensors, VerifyError> {
        let failed = |e: &dyn std::fmt::Display| VerifyError::Board(e.to_string());
        let elf = match self.dump.take() {
            Some(elf) => elf,
            None => self.firmware.build(Mode::Dump).map_err(|e| failed(&e))?,
        };
        let replayed = self.emulate(&elf).replay(&inputs(std::slice::from_ref(case))).map_err(|e| failed(&e));
        self.dump = Some(elf);
        let records = replayed?.steps.into_iter();
        // The firmware counts runs as cases.
        Ok(records.filter(|r| r.case as usize == run).map(|r| r.bytes).collect())
    }
}

/// The inputs of all runs of all cases behind each other.
fn inputs(cases: &[Case]) -> Vec<u8> {
    let runs = cases.iter().flat_map(|c| &c.runs);
    runs.flat_map(|r| &r.inputs).flatten().copied().collect()
}
