//! The GPU against the host: the same graphs, operators and training steps on both, within tolerances.
//!
//! Where no adapter is found the tests say so and pass; with `KILN_REQUIRE_GPU=1` that fails.

mod cases;
mod chains;
mod extremes;
mod found;
mod memory;
mod network;
mod operators;
mod routing;
mod training;

use found::{cube, device};
