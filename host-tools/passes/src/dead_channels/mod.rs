//! Dropping channels of int8 networks that can hold one value only, or that nobody reads.
//!
//! Interval arithmetic over the weights bounds what each channel of each value can hold, whatever
//! the inputs are (`bounds`). A channel whose bounds meet is a constant: what it adds to a sum is added
//! to the bias instead. A channel may go where every layer that reads it can do without it, through
//! all that passes channels on one by one (`ties`). Then weights, biases and shapes lose it
//! (`rewrite`). All of it is exact: sums are 64-bit integers, and rescaling is the operators' own.
//!
//! A tap of a convolution that can fall on padding adds nothing there, whatever the channel holds. So
//! its bounds include 0, and a channel read through such a tap goes only if it holds the zero
//! point, which adds nothing either.

mod bounds;
mod interval;
mod layer;
#[cfg(test)]
mod random_networks;
mod rewrite;
#[cfg(test)]
mod tests;
mod ties;

use kiln_planner::graph::{Graph, Source};

use bounds::Bounds;
use ties::{Kept, Ties};

use crate::PassError;
use crate::error::checked;

/// What the number of channels that stay is rounded up to, by keeping some that could go: kernels for
/// vector instructions take channels in fours, and leave the rest to slower code.
pub const CHANNEL_MULTIPLE: usize = 4;

/// The most weights, channels and values that looking for dead channels may visit, so that no file keeps a
/// host busy for long: some hundred times as many as in models for microcontrollers.
pub(crate) const MAX_VISITS: u64 = 1 << 28;

/// What was taken out of a graph because no output depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Removed {
    /// Multiply-accumulates of one run of each entry.
    pub macs: u64,
    /// Bytes of constants: weights and biases.
    pub constant_bytes: u64,
}

/// Drops channels of int8 values that provably hold one value for every possible input, or that nobody
/// reads, out of convolutions (dense and depthwise), fully connected layers, pools, sums, copies,
/// reshapes and requantizations between them; and says what that took away.
///
/// Of `multiple` channels as many stay as make their number a multiple of it, or all: the dead ones
/// with the lowest numbers. Left as they are: values that an entry takes, puts out or assigns, or
/// that any other operator reads; values with dimensions that vary; layers whose weights aren't
/// constant, or are read more than once; and sums whose bias would leave 32 bits.
///
/// # Errors
///
/// The graph is not valid.
pub fn drop_dead_channels(mut graph: Graph, multiple: usize) -> Result<(Graph, Removed), PassError> {
    graph.validate()?;
    let mut removed = Removed::default();
    let mut visits = MAX_VISITS;
    checked("drop_dead_channels", &mut graph, |g| run(g, multiple, &mut visits, &mut removed))?;
    Ok((graph, removed))
}

/// The pass on a valid graph, within `visits`, until it finds nothing more; whether it changed anything. What it
/// took away is added to `removed`.
pub(crate) fn run(graph: &mut Graph, multiple: usize, visits: &mut u64, removed: &mut Removed) -> bool {
    let before = size(graph);
    let mut changed = false;
    // Ends: each round takes away a channel. Rounds follow each other because a layer without some of
    // its outputs may read fewer inputs.
    while let Some((bounds, kept)) = round(graph, multiple, visits) {
        rewrite::rewrite(graph, &bounds, &kept);
        changed = true;
    }
    if changed {
        let after = size(graph);
        removed.macs += before.macs.saturating_sub(after.macs);
        removed.constant_bytes += before.constant_bytes.saturating_sub(after.constant_bytes);
    }
    changed
}

/// What is known of values, and what stays; `None` if that is everything, or if there are no visits left to know.
fn round(graph: &Graph, multiple: usize, visits: &mut u64) -> Option<(Bounds, Kept)> {
    pay(visits, graph.values.len())?;
    let bounds = bounds::bounds(graph, visits)?;
    let kept = Ties::new(graph).kept(graph, &bounds, multiple, visits)?;
    Some((bounds, kept))
}

/// Pays for visiting so many weights, channels or values; `None` if that is too much.
fn pay(visits: &mut u64, count: usize) -> Option<()> {
    *visits = visits.checked_sub(count as u64)?;
    Some(())
}

/// Multiply-accumulates of a whole graph, and bytes of the constants in it that are read.
fn size(graph: &Graph) -> Removed {
    let nodes = graph.entries.iter().flat_map(|e| &e.nodes);
    let macs = nodes.map(|n| n.op.cost(&graph.types(&n.inputs), &graph.value(n.output).ty).macs);
    let read = ties::reads(graph);
    let constants = graph.values.iter().zip(read).filter_map(|(value, reads)| match &value.source {
        Source::Constant(data) if reads > 0 => Some(data.len() as u64),
        _ => None,
    });
    Removed { macs: macs.fold(0, u64::saturating_add), constant_bytes: constants.sum() }
}
