//! Turns plans into crates, firmware and C libraries, builds them, runs them on emulated boards and looks into the results.

pub mod c_library;
pub mod deploy;
pub mod dump;
pub mod emulate;
pub mod firmware;
pub mod flashing;
pub mod forbidden;
pub mod model_crate;
pub mod package;
mod platform;
pub mod symbols;
mod target;
pub mod toolchain;

pub use target::target_of;
