//! Turns plans into crates, firmware and C libraries, builds them, runs them on emulated boards and looks into the results.

pub mod board_firmware;
pub mod c_library;
pub mod code;
pub mod count;
pub mod deploy;
mod drive;
pub mod dump;
pub mod emulate;
pub mod firmware;
pub mod fit;
pub mod flashing;
pub mod forbidden;
pub mod image;
pub mod io_json;
pub mod model_crate;
pub mod package;
mod platform;
pub mod plugin;
pub mod profile;
pub mod ramp;
pub mod references;
pub mod sources;
pub mod stack;
pub mod symbols;
mod target;
pub mod toolchain;
pub mod uf2;
pub mod whole_file;

pub use target::target_of;
