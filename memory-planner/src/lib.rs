//! Kiln's graph and memory planner.
//!
//! [`graph::Graph`] is what importers and recorded programs produce. [`plan`] turns it into a
//! [`Planned`]: kernels chosen for a CPU family, weights packed, the order of steps and the place
//! of every tensor searched and, for graphs of microcontroller size, proven best. Its
//! [`Planned::bytes`] are the plan records that `kiln-core` runs.

pub mod backend;
mod donate;
mod encode;
mod error;
pub mod graph;
pub mod kiln_file;
mod lower;
mod patches;
mod plan;
pub mod recompute;
pub mod reference;
pub mod solve;
mod spill;

pub use donate::Over;
pub use error::{Blame, PlanError, Shortage, Unsupported};
pub use plan::{Again, Choice, Options, Planned, PlannedEntry, PlannedStep, PlannedTensor, Region, plan, plan_over};
pub use spill::Room;
