//! Which memory dies with a run, so that the run may write over it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::node::{Definition, Node};
use crate::realize::Part;

/// What becomes of recorded nodes when a part of them was computed.
pub(crate) struct Fate {
    /// Leaves of the part, by index, that nobody can read any more.
    pub(crate) dying: Vec<usize>,
    /// Nodes that give up how they were computed, if the run ends what gradients may be asked for.
    pub(crate) spent: Vec<Arc<Node>>,
}

/// A node on the way to what is computed.
struct Seen {
    node: Arc<Node>,
    /// How often definitions of such nodes name it.
    named: usize,
    inputs: Vec<u64>,
}

/// What becomes of the nodes that `targets` were recorded from, once the part's steps `outputs` have memory.
///
/// A leaf dies if nobody holds it but definitions that are forgotten at the end of the run, or whose nodes die
/// too: that is, whose references are all accounted for. With `spend`, everything that has memory afterwards forgets its
/// definition; otherwise what gradients may be asked for through keeps it.
pub(crate) fn fate(part: &Part, targets: &[Arc<Node>], outputs: &[usize], spend: bool) -> Fate {
    let computed: HashSet<u64> = outputs.iter().map(|&i| part.steps[i].node.number).collect();
    let own = part.steps.len() + part.leaves.len();
    let mut seen: HashMap<u64, Seen> = HashMap::with_capacity(own);
    let mut open: Vec<Arc<Node>> = targets.to_vec();
    while let Some(node) = open.pop() {
        if seen.contains_key(&node.number) {
            continue;
        }
        let inputs = match &node.state().definition {
            Some(Definition::Op(_, inputs)) => inputs.clone(),
            _ => Vec::new(),
        };
        let numbers = inputs.iter().map(|input| input.number).collect();
        seen.insert(node.number, Seen { node, named: 0, inputs: numbers });
        open.extend(inputs);
    }
    let numbers: Vec<u64> = seen.values().flat_map(|s| s.inputs.iter().copied()).collect();
    for number in numbers {
        seen.entry(number).and_modify(|s| s.named += 1);
    }
    let in_part: HashSet<u64> =
        part.leaves.iter().chain(part.steps.iter().map(|step| &step.node)).map(|node| node.number).collect();
    let has_memory = |node: &Node| computed.contains(&node.number) || node.state().value.is_some();
    let tracked = |node: &Node| node.tracked && !node.parameter;
    let mut alive: HashSet<u64> = targets.iter().map(|node| node.number).collect();
    // One reference is `seen`'s, one may be the part's.
    let known = |s: &Seen| s.named + 1 + usize::from(in_part.contains(&s.node.number));
    alive.extend(
        seen.values().filter(|s| s.node.is_held() || Arc::strong_count(&s.node) > known(s)).map(|s| s.node.number),
    );
    let mut open: Vec<u64> = alive.iter().copied().collect();
    while let Some(number) = open.pop() {
        let Some(s) = seen.get(&number) else { continue };
        let forgets = has_memory(&s.node) && (spend || !tracked(&s.node));
        if !forgets {
            open.extend(s.inputs.iter().filter(|&&input| alive.insert(input)));
        }
    }
    let dying = (0..part.leaves.len()).filter(|&leaf| !alive.contains(&part.leaves[leaf].number)).collect();
    let spent = if spend {
        let spends = |s: &Seen| tracked(&s.node) && has_memory(&s.node);
        seen.into_values().filter(spends).map(|s| s.node).collect()
    } else {
        Vec::new()
    };
    Fate { dying, spent }
}
