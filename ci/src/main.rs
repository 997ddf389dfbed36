//! Runs one of Kiln's own checks.

use std::process::ExitCode;

use kiln_ci::{bare_metal, boards, code_sizes, dependencies, firmware, instructions, sweep};

const USAGE: &str = "usage: kiln-ci CHECK
  dependencies   firmware crates depend on no host crate
  bare-metal     core, ops and kernels build for bare metal, without alloc
  code-sizes     code of the reference models on every CPU family, against the estimate of `kiln plan`
  code-sizes --measure   measures what each kernel adds, and writes it to kernels/src/code_bytes
  instructions   instructions of the reference models on every CPU family, against the estimate of `kiln plan`
  instructions --measure   counts what each kernel takes, and writes it to kernels/src/instruction_figures.rs
  firmware       firmware of the reference models: no heap, no panic, no unused kernel, within budget
  sweep [BOARD..]  200 layers of random shapes on an emulated board of every CPU family, or on those named: equal to the references,
                 and nowhere slower than with plain kernels
  boards         firmware of real boards: as in the repository, in the board's memory, no panic in Kiln's part";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = arguments.join(" ");
    let result = match check.as_str() {
        "dependencies" => dependencies::run(),
        "bare-metal" => bare_metal::run(),
        "code-sizes" => code_sizes::run(),
        "code-sizes --measure" => code_sizes::measure(),
        "instructions" => instructions::run(),
        "instructions --measure" => instructions::measure(),
        "firmware" => firmware::run(),
        "boards" => boards::run(),
        _ if arguments.first().is_some_and(|first| first == "sweep") => {
            sweep::run(arguments.get(1..).unwrap_or_default())
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kiln-ci {check}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
