//! All passes that only tidy up, until none finds anything to do.

use kiln_planner::graph::Graph;

use crate::error::checked;
use crate::{MAX_WORK, PassError, drop_dead, fold_constants, simplify_views};

/// Folds constants, simplifies views and drops what is dead, until nothing changes.
///
/// # Errors
///
/// The graph is not valid.
pub fn clean(mut graph: Graph) -> Result<Graph, PassError> {
    graph.validate()?;
    let mut work = MAX_WORK;
    // Ends: whatever changes takes away a node, or a view between a view and what it looks at.
    loop {
        let folded = checked("fold_constants", &mut graph, |g| fold_constants::run(g, &mut work))?;
        let simplified = checked("simplify_views", &mut graph, simplify_views::run)?;
        let dropped = checked("drop_dead", &mut graph, drop_dead::run)?;
        if !(folded || simplified || dropped) {
            return Ok(graph);
        }
    }
}
