//! Runs one of Kiln's own checks.

use std::process::ExitCode;

use kiln_ci::{bare_metal, boards, dependencies, firmware};

const USAGE: &str = "usage: kiln-ci CHECK
  dependencies   firmware crates depend on no host crate
  bare-metal     core, ops and kernels build for bare metal, without alloc
  firmware       firmware of the reference models: no heap, no panic, no unused kernel, within budget
  boards         firmware of real boards: as in the repository, in the board's memory, no panic in Kiln's part";

fn main() -> ExitCode {
    let check = std::env::args().nth(1);
    let result = match check.as_deref() {
        Some("dependencies") => dependencies::run(),
        Some("bare-metal") => bare_metal::run(),
        Some("firmware") => firmware::run(),
        Some("boards") => boards::run(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kiln-ci {}: {error:#}", check.unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}
