//! Training on the first 10,000 images, where they are at hand.

use std::path::{Path, PathBuf};

use kiln::boards::Board;
use kiln::{Device, Module};
use kiln_codegen::deploy::Deployment;
use kiln_codegen::emulate::{EmulateError, Emulation};
use kiln_codegen::firmware::Mode;
use kiln_codegen::target_of;
use kiln_planner::kiln_file::KilnFile;
use kiln_planner::reference::Evaluator;
use kiln_planner::{Options, plan};
use mnist::data::Images;
use mnist::export::export;
use mnist::train::{Training, accuracy};

/// The subset: `datasets/mnist` in `KILN_DATA`, by default `../shared/data`.
fn subset() -> Option<(Images, Images)> {
    let data = std::env::var_os("KILN_DATA")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")), PathBuf::from);
    let folder = data.join("datasets/mnist");
    if !folder.exists() {
        println!("skipped: no images in {} (set KILN_DATA to the directory of the data)", folder.display());
        return None;
    }
    Some(Images::of_folder(&folder).unwrap())
}

/// Epochs of the test: few, so that it does not take long.
const EPOCHS: u64 = 2;
/// They reach 94.67 %; kernels that round otherwise may reach a little less.
const RIGHT: f64 = 0.94;

#[test]
fn a_network_learns_to_read_digits() {
    let Some((images, test)) = subset() else { return };
    assert_eq!((images.len(), test.len()), (10_000, 10_000));
    let device = Device::cpu();
    let mut training = Training::new(1, &device);
    assert_eq!(training.model.num_params(), 13_898);
    let mut plans = 0;
    for _ in 0..EPOCHS {
        let mut steps = 0;
        let loss = training
            .epoch(&images, EPOCHS, &device, |_| {
                steps += 1;
                if steps == 2 && plans == 0 {
                    plans = device.plans_built();
                }
            })
            .unwrap();
        println!("loss {loss}");
    }
    // The short last batch is the only other plan.
    assert_eq!(device.plans_built(), plans + 1);
    let right = accuracy(&training.model, &test, &device).unwrap();
    println!("{right}");
    assert!(right >= RIGHT, "{right}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("digits.kiln");
    let board = Board::builtin("mps2-an386").unwrap();
    let found = export(&training.model, (&images, &test), &board, &file, &device).unwrap();
    println!("{found:?}");
    assert!(found.float - found.int8 <= 0.005 && (found.float - right).abs() <= 0.001, "{found:?} {right}");
    runs_on_board(&file, &test, &board, folder.path());
}

/// Runs the exported network over test images on an emulated board: every byte is as the operators' references
/// compute it.
fn runs_on_board(file: &Path, test: &Images, board: &Board, folder: &Path) {
    let file = KilnFile::from_bytes(&std::fs::read(file).unwrap()).unwrap();
    let graph = file.graph.unwrap();
    let planned = plan(&graph, &Options::for_target(target_of(board))).unwrap();
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let build = sources.join("target/kiln/build");
    let deployment = Deployment { graph: &graph, planned: &planned, board, sources, out: folder, build: &build };
    let required = std::env::var_os("KILN_REQUIRE_EMULATION").is_some();
    let elf = match deployment.build(Mode::Replay) {
        Ok(elf) => elf,
        Err(error) if !required => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let input = graph.value(graph.entries[0].inputs[0]).quant.clone();
    let stored = |pixel: &f32| ((pixel / input.scales[0]).round() as i32 + input.zero_points[0]).clamp(-128, 127) as u8;
    let images: Vec<Vec<u8>> = (0..100).map(|i| test.pixels(i).iter().map(stored).collect()).collect();
    let replayed = match Emulation::new(board, &elf, folder).replay(&images.concat()) {
        Ok(replayed) => replayed,
        Err(error @ EmulateError::NoEmulator { .. }) if !required => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let expected: Vec<u8> = images
        .iter()
        .flat_map(|image| {
            Evaluator::new(&graph).run(0, &[image]).unwrap().remove(&graph.entries[0].outputs[0]).unwrap()
        })
        .collect();
    assert!(replayed.outputs == expected, "outputs on {} differ from the references'", board.name);
}

#[test]
fn training_that_is_resumed_is_the_same_as_if_it_had_not_stopped() {
    let Some((mut images, _)) = subset() else { return };
    images.truncate(200);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("training.safetensors");
    let device = Device::cpu();
    let mut whole = Training::new(3, &device);
    let mut losses = Vec::new();
    for _ in 0..2 {
        whole.epoch(&images, 2, &device, |loss| losses.push(loss)).unwrap();
    }

    let mut first = Training::new(3, &device);
    let mut again = Vec::new();
    first.epoch(&images, 2, &device, |loss| again.push(loss)).unwrap();
    first.save(&file).unwrap();
    let device = Device::cpu();
    // Another seed: what counts is in the file.
    let mut second = Training::new(4, &device);
    second.load(&file).unwrap();
    second.epoch(&images, 2, &device, |loss| again.push(loss)).unwrap();
    assert_eq!(again, losses);
}
