//! Kiln on Cortex-M: what stands between a model and the chip.
//!
//! - [`replay`]: feeds a model cases from a file and keeps its outputs, for verification.
//! - `stack` (Arm only): how much stack a run used.
//! - feature `emulation` (Arm only): start-up code, semihosting files, and handlers that end the
//!   emulator with a code of [`Exit`] on a panic or a fault.
//!
//! No heap and no panic path. What needs the CPU is left out on other architectures, so the crate
//! checks and documents everywhere, and the host reads the meaning of exit codes from it.
#![no_std]

mod exit;
pub mod replay;

#[cfg(all(target_arch = "arm", feature = "emulation"))]
mod handlers;
#[cfg(all(target_arch = "arm", feature = "emulation"))]
mod semihosting;
#[cfg(target_arch = "arm")]
pub mod stack;

pub use exit::Exit;
pub use replay::Replay;

/// Marks the function start-up code calls.
#[cfg(all(target_arch = "arm", feature = "emulation"))]
pub use cortex_m_rt::entry;

/// Replays every case of the input file, then ends the emulator: see [`replay::replay`].
#[cfg(all(target_arch = "arm", feature = "emulation"))]
pub fn replay_and_exit<M: Replay>(model: &mut M) -> ! {
    exit(replay::replay(model, &mut semihosting::HostFiles::new()))
}

/// Replays every case and keeps what each step wrote, then ends the emulator: see
/// [`replay::dump`].
#[cfg(all(target_arch = "arm", feature = "emulation"))]
pub fn dump_and_exit<M: Replay>(model: &mut M) -> ! {
    exit(replay::dump(model, &mut semihosting::HostFiles::new()))
}

/// Ends the emulator with `code` as its exit status.
#[cfg(all(target_arch = "arm", feature = "emulation"))]
pub fn exit(code: Exit) -> ! {
    semihosting::exit(code)
}
