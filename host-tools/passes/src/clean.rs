//! All passes that only tidy up, until none finds anything to do.

use kiln_planner::graph::Graph;

use crate::error::checked;
use crate::{
    CHANNEL_MULTIPLE, MAX_WORK, PassError, Removed, dead_channels, drop_dead, fold_constants, fuse_padding,
    fuse_requantize, simplify_views,
};

/// A graph that has been cleaned.
#[derive(Clone, PartialEq, Debug)]
pub struct Cleaned {
    /// The graph.
    pub graph: Graph,
    /// What [`drop_dead_channels`](crate::drop_dead_channels) took out of it.
    pub removed: Removed,
}

/// Folds constants, simplifies views, makes padding part of convolutions and pairs of dequantize and quantize one step, drops what is
/// dead, and channels that are, until nothing changes.
///
/// # Errors
///
/// The graph is not valid.
pub fn clean(mut graph: Graph) -> Result<Cleaned, PassError> {
    graph.validate()?;
    let mut work = MAX_WORK;
    let mut visits = dead_channels::MAX_VISITS;
    let mut removed = Removed::default();
    // Ends: whatever changes takes away a node, a channel, or a view between a view and what it looks at.
    loop {
        let folded = checked("fold_constants", &mut graph, |g| fold_constants::run(g, &mut work))?;
        let simplified = checked("simplify_views", &mut graph, simplify_views::run)?;
        let padded = checked("fuse_padding", &mut graph, fuse_padding::run)?;
        let paired = checked("fuse_requantize", &mut graph, fuse_requantize::run)?;
        let dropped = checked("drop_dead", &mut graph, drop_dead::run)?;
        if folded || simplified || padded || paired || dropped {
            continue;
        }
        // Only when the others are done, so that what it counts is its own.
        let narrow = |g: &mut Graph| dead_channels::run(g, CHANNEL_MULTIPLE, &mut visits, &mut removed);
        if !checked("drop_dead_channels", &mut graph, narrow)? {
            return Ok(Cleaned { graph, removed });
        }
    }
}
