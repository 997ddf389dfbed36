//! Running exported networks over images: by the operators' references, and on an emulated board.

use std::path::Path;

use kiln::boards::Board;
use kiln_codegen::deploy::Deployment;
use kiln_codegen::emulate::{EmulateError, Emulation};
use kiln_codegen::firmware::Mode;
use kiln_codegen::{sources, target_of};
use kiln_planner::graph::Graph;
use kiln_planner::kiln_file::KilnFile;
use kiln_planner::reference::Evaluator;
use kiln_planner::{Options, plan};
use mnist::data::Images;

/// The graph of a `.kiln` file.
pub(crate) fn graph(path: &Path) -> Graph {
    KilnFile::from_bytes(&std::fs::read(path).unwrap()).unwrap().graph.unwrap()
}

/// The first images as the network's input stores them.
pub(crate) fn stored(graph: &Graph, images: &Images, count: usize) -> Vec<Vec<u8>> {
    let input = &graph.value(graph.entries[0].inputs[0]).quant;
    let stored = |pixel: &f32| ((pixel / input.scales[0]).round() as i32 + input.zero_points[0]).clamp(-128, 127) as u8;
    (0..count).map(|i| images.pixels(i).iter().map(stored).collect()).collect()
}

/// The outputs by the operators' references, behind each other.
pub(crate) fn by_references(graph: &Graph, images: &[Vec<u8>]) -> Vec<u8> {
    let output = graph.entries[0].outputs[0];
    let run = |image: &Vec<u8>| Evaluator::new(graph).run(0, &[image]).unwrap().remove(&output).unwrap();
    images.iter().flat_map(run).collect()
}

/// The outputs on an emulated board, behind each other; `None` where firmware can't be built or run here.
pub(crate) fn on_board(graph: &Graph, images: &[Vec<u8>], board: &Board) -> Option<Vec<u8>> {
    let planned = plan(graph, &Options::for_target(target_of(board))).unwrap();
    let sources = sources::root().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (out, build) = (folder.path(), sources::firmware_build(&sources));
    let deployment = Deployment { graph, planned: &planned, board, sources: &sources, out, build: &build };
    let required = std::env::var_os("KILN_REQUIRE_EMULATION").is_some();
    let skipped = |error: &dyn std::fmt::Display| {
        assert!(!required, "{error}");
        println!("skipped: {error}");
        None
    };
    let elf = match deployment.build(Mode::Replay) {
        Ok(elf) => elf,
        Err(error) => return skipped(&error),
    };
    match Emulation::new(board, &elf, folder.path()).replay(&images.concat()) {
        Ok(replayed) => Some(replayed.outputs),
        Err(error @ EmulateError::NoEmulator { .. }) => skipped(&error),
        Err(error) => panic!("{error}"),
    }
}
