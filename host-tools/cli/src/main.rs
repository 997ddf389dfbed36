//! The `kiln` command; see `docs/cli.md`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kiln_cli::main(std::env::args_os())
}
