//! Why a pass can't be run.

use kiln_ops::OpError;
use kiln_planner::graph::{Graph, GraphError};

/// Why a pass can't be run.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PassError {
    /// The graph breaks the rules of graphs, so that nothing can be said of what it computes.
    #[error("the graph is not valid: {0}; export or import the model again")]
    Invalid(#[from] GraphError),
    /// A pass broke the graph: a defect of the pass, not of the model.
    #[error("the pass {pass} broke the graph: {source}; please report this with the model")]
    Broken {
        /// The pass.
        pass: &'static str,
        /// What is wrong with the graph now.
        source: GraphError,
    },
    /// A gradient that does not exist was asked for.
    #[error("{entry}: '{node}' can't be differentiated: {error}")]
    Gradient {
        /// The entry.
        entry: String,
        /// The node.
        node: String,
        /// Why not.
        error: OpError,
    },
}

/// A valid graph through `pass`, which says whether it changed anything. The result is checked
/// where debug assertions are on.
pub(crate) fn checked(
    name: &'static str,
    graph: &mut Graph,
    pass: impl FnOnce(&mut Graph) -> bool,
) -> Result<bool, PassError> {
    let changed = pass(graph);
    if cfg!(debug_assertions) {
        graph.validate().map_err(|source| PassError::Broken { pass: name, source })?;
    }
    Ok(changed)
}
