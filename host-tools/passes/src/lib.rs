//! Passes: each takes a graph and gives another that computes the same.
//!
//! What every pass promises: a valid graph stays valid; entries, their inputs and outputs keep
//! their order, names, types and quantization; every output and every state has the same bits after
//! every run as before the pass, by the operators' reference kernels; and a pass run twice changes
//! nothing the second time (but for folding that [`MAX_WORK`] cut short). What passes may change: nodes, other values, and the numbers of all
//! values.
//!
//! [`clean`] is what every graph goes through before it is planned.
//!
//! [`quantize`](mod@quantize) promises less, and [`fold_batch_norm`] is arithmetic on weights, not a pass yet: both change bits.

mod batch_norm;
mod clean;
mod drop_dead;
mod error;
mod fold_constants;
pub mod quantize;
mod simplify_views;

pub use batch_norm::{BatchNorm, BatchNormError, fold_batch_norm};
pub use clean::clean;
pub use drop_dead::drop_dead;
pub use error::PassError;
pub use fold_constants::{MAX_GROWTH, MAX_WORK, fold_constants};
pub use simplify_views::simplify_views;
