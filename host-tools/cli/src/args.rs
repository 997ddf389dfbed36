//! The command's arguments. `docs/cli.md` says the same in more words.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::byte_count;
use kiln_passes::quantize::Method;

use crate::input::ImageRange;

const EXIT_CODES: &str = "Exit codes: 0 fine, 1 does not fit or differs, 2 bad input.
MODEL is a .tflite or .kiln file. BOARD is a name from `kiln boards` or the path of a board's .toml file.";

/// Plans neural networks for microcontrollers and runs them.
#[derive(Parser, Debug)]
#[command(name = "kiln", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Show what a model needs on a board: steps, memory map, flash; exit 1 when it does not fit
    Plan(PlanArgs),
    /// Run a model on this computer
    Run(RunArgs),
    /// Count what a run costs on an emulated board, step by step, and what memory it takes
    Profile(ProfileArgs),
    /// Replay a folder's recorded cases and name the first step that differs
    Verify(VerifyArgs),
    /// Build the firmware and run it on a board or its emulator
    Flash(FlashArgs),
    /// Write the plan and the Rust crate for a board, or with --c a static library and its header
    Compile(CompileArgs),
    /// Make an int8 model of a float32 one, and show what that costs in accuracy
    Quantize(QuantizeArgs),
    /// Show inputs, outputs, operators and what is not supported
    Inspect(InspectArgs),
    /// List every board with its memory
    Boards,
}

/// Arguments of `kiln plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// The model: .tflite, or .kiln with its graph
    pub model: PathBuf,
    /// A board's name, the path of its .toml file, or `all`
    #[arg(long, value_name = "BOARD", default_value = "host")]
    pub board: String,
    /// Print JSON (fields in docs/cli.md)
    #[arg(long)]
    pub json: bool,
    /// Draw the memory map as SVG into this file too; not with `--board all`
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Plan for this many bytes of RAM, where the board does not have less: 65536, 0x10000, 64K, 64KiB (K = 1024); where that is
    /// too few, the first operators run in patches, or values are computed again rather than kept
    #[arg(long, value_name = "BYTES", value_parser = byte_count::parse)]
    pub ram: Option<u64>,
    /// Feed the first input by rows during the run, so that it is nowhere whole; with --ram
    #[arg(long, requires = "ram")]
    pub feed: bool,
    /// Keep state apart from the arena, which models that take turns share
    #[arg(long, conflicts_with = "feed")]
    pub shared_arena: bool,
}

/// Arguments of `kiln run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The model: .tflite or .kiln
    pub model: PathBuf,
    /// One file for each input, in the model's order: .npy, .png, .wav, or raw little-endian elements
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub input: Vec<PathBuf>,
    /// One file for each output, in the model's order: .npy, or else raw; without it a summary is printed
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub output: Vec<PathBuf>,
    /// The numbers that the bytes 0 to 255 of .png inputs stand for; by default judged from the input
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    pub image_range: Option<ImageRange>,
    /// Run the plan made for this board's CPU family, on this computer
    #[arg(long, value_name = "BOARD")]
    pub board: Option<String>,
}

/// Arguments of `kiln profile`.
#[derive(Args, Debug)]
pub struct ProfileArgs {
    /// The model: .tflite, or .kiln with its graph
    pub model: PathBuf,
    /// The name of an emulated board, or the path of its .toml file
    #[arg(long, value_name = "BOARD", required_unless_present = "device")]
    pub board: Option<String>,
    /// Not there yet: time a run on a device
    #[arg(long, value_name = "DEVICE", hide = true, conflicts_with = "board")]
    pub device: Option<String>,
    /// Print JSON (fields in docs/cli.md)
    #[arg(long)]
    pub json: bool,
    /// Compare with what --json printed before; exit 1 when instructions, code, stack or RAM grew
    #[arg(long, value_name = "OLD.json")]
    pub compare: Option<PathBuf>,
    /// Plan for this many bytes of RAM, as `kiln plan` does
    #[arg(long, value_name = "BYTES", value_parser = byte_count::parse)]
    pub ram: Option<u64>,
    /// Feed the first input by rows during the run, so that it is nowhere whole; with --ram
    #[arg(long, requires = "ram")]
    pub feed: bool,
}

/// Arguments of `kiln verify`.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The folder with io.json, the model and the recorded cases
    pub dir: PathBuf,
    /// Run on this board or its emulator rather than on this computer
    #[arg(long, value_name = "BOARD")]
    pub board: Option<String>,
    /// Plan for this many bytes of RAM, as `kiln plan` does
    #[arg(long, value_name = "BYTES", value_parser = byte_count::parse)]
    pub ram: Option<u64>,
    /// Feed the first input by rows during the run, so that it is nowhere whole; with --ram
    #[arg(long, requires = "ram")]
    pub feed: bool,
}

/// Arguments of `kiln flash`.
#[derive(Args, Debug)]
pub struct FlashArgs {
    /// The model: .tflite, or .kiln with its graph
    #[arg(required_unless_present = "elf")]
    pub model: Option<PathBuf>,
    /// A board's name, or the path of its .toml file
    #[arg(long, value_name = "BOARD")]
    pub board: String,
    /// Firmware of your own, for a real board, in place of a model
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub elf: Option<PathBuf>,
    /// Build and check the firmware, and stop there; for a real board, print how it is flashed
    #[arg(long)]
    pub dry_run: bool,
    /// Plan for this many bytes of RAM, as `kiln plan` does
    #[arg(long, value_name = "BYTES", value_parser = byte_count::parse)]
    pub ram: Option<u64>,
    /// Feed the first input by rows during the run, so that it is nowhere whole; with --ram
    #[arg(long, requires = "ram")]
    pub feed: bool,
}

/// Arguments of `kiln compile`.
#[derive(Args, Debug)]
pub struct CompileArgs {
    /// The model: .tflite, or .kiln with its graph
    pub model: PathBuf,
    /// A board's name, or the path of its .toml file
    #[arg(long, value_name = "BOARD")]
    pub board: String,
    /// The directory to write to
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Write a static library for the board, and a C header, in place of the Rust crate
    #[arg(long)]
    pub c: bool,
    /// Keep state apart from the arena, which models that take turns share
    #[arg(long, conflicts_with_all = ["c", "feed"])]
    pub shared_arena: bool,
    /// What names in the code are made from; by default what reports call the model
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Leave the graph out of the .kiln file: smaller, but it can't be planned for another board
    #[arg(long)]
    pub no_graph: bool,
    /// Plan for this many bytes of RAM, as `kiln plan` does
    #[arg(long, value_name = "BYTES", value_parser = byte_count::parse)]
    pub ram: Option<u64>,
    /// Feed the first input by rows during the run, so that it is nowhere whole; with --ram, not with --c
    #[arg(long, requires = "ram", conflicts_with = "c")]
    pub feed: bool,
}

/// Arguments of `kiln quantize`.
#[derive(Args, Debug)]
pub struct QuantizeArgs {
    /// The model, float32: .tflite, or .kiln with its graph
    pub model: PathBuf,
    /// Samples to take the ranges of activations from: a folder, or a file that holds many (docs/cli.md)
    #[arg(long, value_name = "DIR")]
    pub calibration: PathBuf,
    /// Use so many of them, evenly spread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
    /// Samples to compare the two models on; by default those that --samples leaves, or else all of DIR
    #[arg(long, value_name = "DIR")]
    pub test: Option<PathBuf>,
    /// How ranges are chosen: `minmax`, or `percentile:P` for the middle P percent of the values
    #[arg(long, value_name = "METHOD", default_value = "minmax")]
    pub method: Method,
    /// Keep float32 inputs and outputs
    #[arg(long)]
    pub float_io: bool,
    /// The board to plan for: a name, or the path of its .toml file
    #[arg(long, value_name = "BOARD", default_value = "host")]
    pub board: String,
    /// Write the int8 model with its plan into this file
    #[arg(long, value_name = "FILE.kiln")]
    pub out: Option<PathBuf>,
    /// The numbers that the bytes 0 to 255 of pictures stand for; by default judged from the input
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    pub image_range: Option<ImageRange>,
    /// Show for each tensor how close int8 comes to float32
    #[arg(long)]
    pub layers: bool,
    /// Exit with 1, and write nothing, if more than so many percentage points of accuracy are lost
    #[arg(long, value_name = "POINTS", allow_hyphen_values = true)]
    pub max_loss: Option<f64>,
}

/// Arguments of `kiln inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// The model: .tflite or .kiln
    pub model: PathBuf,
}
