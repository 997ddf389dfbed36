//! The core's promises: what is refused and with which numbers, and what a session that began does.

mod extents;
mod load;
mod memory;
mod session;
mod soundness;
mod steps;
mod support;
