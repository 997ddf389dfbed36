//! The boards Kiln knows, and how a board of one's own is described.
//!
//! A board is one TOML file: its chip, instruction set, memory regions, clock and how firmware is
//! run on it. Every file in this crate's directory is embedded when the crate is built;
//! [`Board::load`] also takes the path of a file, which has the same form.
//!
//! ```
//! let board = kiln_boards::Board::builtin("mps2-an386").unwrap();
//! assert_eq!(board.target, "thumbv7em-none-eabihf");
//! assert_eq!(board.ram_bytes(), 4 << 20);
//! ```
//!
//! The fields of a file are those of [`Board`]. A field that is not known is an error.

mod board;
mod check;
mod error;
mod file;
mod host;
mod isa;

pub use board::{Board, Cycles, FirmwareCrate, MemoryKind, MemoryRegion, Place, Run};
pub use error::BoardError;
pub use isa::{Isa, IsaFamily, IsaFeature};
