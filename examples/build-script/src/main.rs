//! Runs the model over the recorded angles: on this computer, or as firmware of an emulated board.

#![cfg_attr(target_os = "none", no_std, no_main)]

use build_script::{SINES, matches};

#[cfg(not(target_os = "none"))]
fn main() -> std::process::ExitCode {
    let count = matches();
    println!("{count:?} of {} sines as recorded", SINES.len());
    std::process::ExitCode::from(u8::from(count != Ok(SINES.len())))
}

// SAFETY: nothing else is called so, and start-up code calls it once.
#[cfg(target_os = "none")]
#[unsafe(export_name = "main")]
extern "C" fn start() -> ! {
    match matches() {
        Ok(count) if count == SINES.len() => kiln_cortex_m::exit(kiln_cortex_m::Exit::Done),
        _ => kiln_cortex_m::exit(kiln_cortex_m::Exit::Model),
    }
}
