//! Runs Kiln plans on the host CPU, with the same executor that runs them on a device.
//!
//! [`Runner`] owns aligned copies of a plan's bytes and of its memory. A plan made for another CPU
//! runs too: its rows' numbers name packings that have portable bodies here. [`Executor`] runs plans whose
//! inputs and outputs are bound at each run.

mod aligned;
mod buffer;
mod cpu;
mod executor;
mod runner;
mod threads;

pub use aligned::AlignedBytes;
pub use buffer::Buffer;
pub use cpu::{Cpu, StepTime};
pub use executor::Executor;
pub use runner::{RunError, Runner, native_target};
pub use threads::Threads;
