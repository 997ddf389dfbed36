//! The part of Kiln that runs on the device: no `std`, no heap, no panic path.
//!
//! A plan is bytes made on a host ([`plan`] documents them). [`Plan::load`] checks them once:
//! magic, version, target, CRC and the bounds of every table. [`Session::new`] then binds a plan
//! to the kernels that were linked ([`Row`]) and to the caller's memory, and checks every step:
//! row numbers, operand bounds, alignment, and each row's own [`Row::check`]. After that
//! [`Session::run`] cannot fail and cannot panic. A plan that is wrong but passes may compute
//! wrong numbers; it can't make a kernel touch a byte outside its windows.
//!
//! The duties that remain with the caller are few: the plan's bytes and the arena must stay where
//! they are for the session's life (the borrow checker sees to it), and rows handed in must keep
//! the contract of `docs/kernel-contract.md`.

#![cfg_attr(not(test), no_std)]

#[cfg(target_endian = "big")]
compile_error!("Kiln's plans are little-endian and used in place; big-endian targets are not supported");

mod bank;
pub mod crc;
mod dtype;
mod error;
pub mod fixed;
mod memory;
mod parked;
pub mod plan;
mod row;
mod session;
mod shape;
mod target;
mod window;

pub use bank::{Bank, largest};
pub use dtype::DType;
pub use error::{Error, TensorRole};
pub use memory::{MAX_BANKS, Memory};
pub use parked::{ANY_ARENA, Attached, Parked};
pub use plan::Plan;
pub use row::{Call, Direction, MAX_OPERANDS, Row, RowRange};
pub use session::{Done, Feed, FeedAnd, Hook, MAX_EXTENTS, Next, Session};
pub use shape::{MAX_RANK, Shape, ShapeError, TensorType};
pub use target::TargetId;
pub use window::Window;

// Kernels and generated code read their parameters with it; re-exported so that every crate of
// one build uses the same version.
pub use zerocopy;
