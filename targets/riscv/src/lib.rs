//! Kiln on 32-bit RISC-V: what stands between a model and the chip.
//!
//! The feature `emulation` (RISC-V only) brings start-up code, and handlers that end the emulator with a
//! code of [`Exit`] on a panic or a trap.
//!
//! No heap and no panic path. What needs the CPU is left out on other architectures, so the crate
//! checks and documents everywhere.
#![no_std]

#[cfg(all(target_arch = "riscv32", feature = "emulation"))]
mod handlers;

pub use kiln_device::{Exit, Replay, replay};

/// Marks the function start-up code calls.
#[cfg(all(target_arch = "riscv32", feature = "emulation"))]
pub use riscv_rt::entry;

#[cfg(all(target_arch = "riscv32", feature = "emulation"))]
pub use kiln_device::semihosting::{dump_and_exit, exit, replay_and_exit};
