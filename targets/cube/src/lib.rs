//! GPUs as a back end, through CubeCL: [`Cube`] computes Kiln's graphs with kernels that are compiled, when they are
//! first met, for whatever graphics or compute API the machine offers.
//!
//! An entry runs node by node. An operator has its kernels in one place (`step`), a chain of functions becomes one
//! kernel, and what there are no kernels for (other element types than float32, int32 and bool) is computed by the
//! host's CPU, with its tensors read and written around it; [`Prepared::routed`](kiln_planner::backend::Prepared::routed)
//! names those nodes.
//!
//! Numbers are float32 throughout: products do not use units that round it. Functions are the GPU's own, whose errors
//! are larger than the host's; `docs/gpu.md` says how large. A GPU may take it that there are no NaN and infinities
//! (WGSL lets it), so where they matter is where adapters may differ.

mod backend;
mod gpu;
mod kernels;
mod library;
mod run;
mod step;
mod value;

pub use backend::Cube;

/// No GPU was opened; why.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("no GPU could be opened: {0}; install its driver, or compute with the CPU")]
pub struct OpenError(pub(crate) String);
