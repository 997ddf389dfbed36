//! Runs Kiln plans on the host CPU, with the same executor that runs them on a device.
//!
//! [`Runner`] owns aligned copies of a plan's bytes and of its memory. A plan made for another CPU
//! runs too: its rows' numbers name packings that have portable bodies here.

mod aligned;
mod runner;

pub use aligned::AlignedBytes;
pub use runner::{RunError, Runner, native_target};
