//! Passes: each takes a graph and gives another that computes the same.
//!
//! What every pass promises: a valid graph stays valid; entries, their inputs and outputs keep
//! their order, names, types and quantization; every output and every state has the same bits after
//! every run as before the pass, by the operators' reference kernels; and a pass run twice changes
//! nothing the second time (but for folding that [`MAX_WORK`] cut short, and very large graphs that [`drop_dead_channels`]
//! leaves half done). What passes may change: nodes, other values, and the numbers of all
//! values.
//!
//! [`clean`] is what every graph goes through before it is planned.
//!
//! [`quantize`](mod@quantize) and [`recognize_layers`] promise less: they change bits. [`differentiate`] and
//! [`fuse_elementwise`] add and replace nodes, and no value changes.

mod backward;
mod clean;
mod dead_channels;
mod differentiate;
mod drop_dead;
mod error;
mod fold_constants;
mod fuse_elementwise;
mod fuse_padding;
mod fuse_requantize;
mod patch;
pub mod quantize;
mod recognize_layers;
mod simplify_views;

pub use backward::{BackwardError, Ran, backward};
pub use clean::{Cleaned, clean};
pub use dead_channels::{CHANNEL_MULTIPLE, Removed, drop_dead_channels};
pub use differentiate::{EntryBuilder, differentiate, element};
pub use drop_dead::drop_dead;
pub use error::PassError;
pub use fold_constants::{MAX_GROWTH, MAX_WORK, fold_constants};
pub use fuse_elementwise::fuse_elementwise;
pub use fuse_padding::fuse_padding;
pub use fuse_requantize::fuse_requantize;
pub use patch::{Overlap, Patched, Patches, Way, Within, fit_patches, patch, plan_within};
pub use recognize_layers::{fuse_activations, recognize_layers};
pub use simplify_views::simplify_views;
