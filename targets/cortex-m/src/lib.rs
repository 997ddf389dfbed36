//! Kiln on Cortex-M: what stands between a model and the chip.
//!
//! - `stack` (Arm only): how much stack a run used.
//! - feature `emulation` (Arm only): start-up code, and handlers that end the emulator with a code of
//!   [`Exit`] on a panic or a fault.
//!
//! No heap and no panic path. What needs the CPU is left out on other architectures, so the crate
//! checks and documents everywhere.
#![no_std]

#[cfg(all(target_arch = "arm", feature = "emulation"))]
mod handlers;
#[cfg(target_arch = "arm")]
pub mod stack;

pub use kiln_device::{Exit, Replay, Setup, replay};

/// Marks the function start-up code calls.
#[cfg(all(target_arch = "arm", feature = "emulation"))]
pub use cortex_m_rt::entry;

#[cfg(all(target_arch = "arm", feature = "emulation"))]
pub use kiln_device::semihosting::{dump_and_exit, exit, replay_and_exit};

/// Replays every case over painted arena and stack, then ends the emulator.
#[cfg(all(target_arch = "arm", feature = "emulation"))]
pub fn profile_and_exit<S: Setup>(setup: &mut S) -> ! {
    kiln_device::semihosting::profile_and_exit(setup, &stack::Painted)
}
