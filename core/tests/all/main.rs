//! The core's promises: what is refused and with which numbers, and what a session that began does.

#![expect(clippy::field_reassign_with_default, reason = "a draft is a plan that works, then what is wrong with it")]

mod extents;
mod load;
mod memory;
mod parked;
mod session;
mod soundness;
mod steps;
mod support;
