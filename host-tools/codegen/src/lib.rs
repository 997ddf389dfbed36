//! Turns plans into firmware, builds it, runs it on emulated boards and looks into the result.

pub mod count;
pub mod deploy;
pub mod dump;
pub mod emulate;
pub mod firmware;
pub mod flashing;
pub mod forbidden;
pub mod model_crate;
mod platform;
pub mod plugin;
pub mod profile;
pub mod symbols;
mod target;
pub mod toolchain;

pub use target::target_of;
