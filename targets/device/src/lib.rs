//! What Kiln's device targets share.
//!
//! - [`replay`]: feeds a model cases from a file and keeps its outputs, for verification.
//! - [`profile`]: the same, with arena and stack painted, to measure what a run touches of them.
//! - [`Exit`]: how a replay ends, as a number that survives as a process's exit status.
//! - [`stack`]: how much stack a run used.
//! - `semihosting` (bare metal on Arm and RISC-V only): the files of a replay on the computer that emulates
//!   or debugs the device.
//!
//! No heap and no panic path. What needs the CPU is left out on other architectures, so the crate
//! checks and documents everywhere, and the host reads the meaning of exit codes from it.
#![no_std]

mod exit;
pub mod profile;
pub mod replay;
#[cfg(all(target_os = "none", any(target_arch = "arm", target_arch = "riscv32")))]
pub mod semihosting;
pub mod stack;

pub use exit::Exit;
pub use profile::Setup;
pub use replay::Replay;
