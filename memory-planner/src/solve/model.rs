//! The problem after validation: buffers and scratch areas as one list of items, steps with
//! everything of 0 bytes removed, the permitted overlaps as separations.

use super::problem::{MAX_ITEMS, Problem, SolveError, Source};

/// Sums of sizes stay below this, so that the search may add without checking.
const LIMIT: u64 = 1 << 62;

/// A buffer, or (numbered after the buffers) the scratch of a step.
pub(super) struct Item {
    pub(super) size: u64,
    pub(super) align: u64,
    pub(super) tail: u64,
    pub(super) keep: bool,
    pub(super) producer: Option<usize>,
    /// Steps that read it, each once, ascending.
    pub(super) readers: Vec<usize>,
}

impl Item {
    /// Bytes from its offset to where the arena may end.
    pub(super) fn reach(&self) -> u64 {
        self.size + self.tail
    }
}

/// An output that may lie over an input that dies in its step.
#[derive(Clone, Copy)]
pub(super) struct Relax {
    pub(super) input: usize,
    pub(super) output: usize,
    /// Least `offset(input) - offset(output)` with the output below.
    pub(super) output_below: u64,
    /// Least `offset(output) - offset(input)` with the input below.
    pub(super) input_below: u64,
}

/// A step, naming only items of more than 0 bytes.
#[derive(Default)]
pub(super) struct Node {
    pub(super) reads: Vec<usize>,
    /// Outputs and scratch.
    pub(super) writes: Vec<usize>,
    pub(super) relax: Vec<Relax>,
    /// Steps that must run earlier, and those that must run later; each once, ascending.
    pub(super) before: Vec<usize>,
    pub(super) after: Vec<usize>,
}

pub(super) struct Model {
    pub(super) items: Vec<Item>,
    pub(super) nodes: Vec<Node>,
    /// Item of each step's scratch.
    pub(super) scratch: Vec<Option<usize>>,
    /// How many of the items are buffers.
    pub(super) buffers: usize,
    /// The distinct alignments of items of more than 0 bytes, ascending.
    pub(super) levels: Vec<u64>,
    pub(super) has_tails: bool,
}

impl Model {
    pub(super) fn new(problem: &Problem) -> Result<Self, SolveError> {
        let steps = problem.steps.len();
        let buffers = problem.buffers.len();
        let count = buffers + problem.steps.iter().filter(|s| s.scratch.is_some()).count();
        if steps > MAX_ITEMS || count > MAX_ITEMS {
            return Err(SolveError::TooMany { steps, items: count });
        }
        check_ids(problem)?;
        let (items, scratch) = items(problem)?;
        let nodes = nodes(problem, &items, &scratch);
        check_cycles(&nodes)?;
        let mut levels: Vec<u64> = items.iter().filter(|i| i.size > 0).map(|i| i.align).collect();
        levels.sort_unstable();
        levels.dedup();
        let has_tails = items.iter().any(|i| i.tail > 0);
        Ok(Self { items, nodes, scratch, buffers, levels, has_tails })
    }
}

fn check_ids(problem: &Problem) -> Result<(), SolveError> {
    let steps = problem.steps.len();
    let buffers = problem.buffers.len();
    let mut listed = vec![0; buffers];
    for (step, s) in problem.steps.iter().enumerate() {
        let pairs = s.overlaps.iter().flat_map(|o| [o.input, o.output]);
        if let Some(buffer) = s.inputs.iter().chain(&s.outputs).copied().chain(pairs).find(|&b| b >= buffers) {
            return Err(SolveError::NoSuchBuffer { step, buffer, buffers });
        }
        if let Some(&step) = s.after.iter().find(|&&a| a >= steps) {
            return Err(SolveError::NoSuchStep { step, steps });
        }
        for &output in &s.outputs {
            listed[output] += 1;
        }
        for o in &s.overlaps {
            if !s.inputs.contains(&o.input) || !s.outputs.contains(&o.output) {
                let (input, output) = (o.input, o.output);
                return Err(SolveError::OverlapOutside { step, input, output });
            }
        }
    }
    for (buffer, (b, &listed)) in problem.buffers.iter().zip(&listed).enumerate() {
        let source = match b.source {
            Source::Input => None,
            Source::Step(step) if step >= steps => {
                return Err(SolveError::NoSuchStep { step, steps });
            }
            Source::Step(step) => Some(step),
        };
        let right = match source {
            None => listed == 0,
            Some(step) => listed == 1 && problem.steps[step].outputs.contains(&buffer),
        };
        if !right {
            return Err(SolveError::Producer { buffer, source, listed });
        }
    }
    Ok(())
}

fn items(problem: &Problem) -> Result<(Vec<Item>, Vec<Option<usize>>), SolveError> {
    let mut items = Vec::new();
    for (buffer, b) in problem.buffers.iter().enumerate() {
        if !b.align.is_power_of_two() {
            let buffer = Some(buffer);
            return Err(SolveError::Alignment { buffer, step: None, align: b.align });
        }
        let producer = match b.source {
            Source::Input => None,
            Source::Step(step) => Some(step),
        };
        items.push(Item { size: b.size, align: b.align, tail: b.tail, keep: b.keep, producer, readers: Vec::new() });
    }
    let mut scratch = vec![None; problem.steps.len()];
    for (step, s) in problem.steps.iter().enumerate() {
        for &input in &s.inputs {
            let readers = &mut items[input].readers;
            if readers.last() != Some(&step) {
                readers.push(step);
            }
        }
        if let Some(s) = s.scratch {
            if !s.align.is_power_of_two() {
                let step = Some(step);
                return Err(SolveError::Alignment { buffer: None, step, align: s.align });
            }
            scratch[step] = Some(items.len());
            items.push(Item {
                size: s.size,
                align: s.align,
                tail: 0,
                keep: false,
                producer: Some(step),
                readers: Vec::new(),
            });
        }
    }
    let mut sum = 0u64;
    for (item, i) in items.iter().enumerate() {
        sum = [i.size, i.align, i.tail]
            .iter()
            .try_fold(sum, |sum, &n| sum.checked_add(n))
            .filter(|&sum| sum < LIMIT)
            .ok_or(SolveError::Overflow { item })?;
    }
    Ok((items, scratch))
}

fn nodes(problem: &Problem, items: &[Item], scratch: &[Option<usize>]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for (step, s) in problem.steps.iter().enumerate() {
        let mut node = Node { before: s.after.clone(), ..Node::default() };
        let sized = |i: &usize| items[*i].size > 0;
        node.before.extend(s.inputs.iter().filter_map(|&i| items[i].producer));
        node.before.sort_unstable();
        node.before.dedup();
        node.reads = s.inputs.iter().copied().filter(sized).collect();
        node.reads.sort_unstable();
        node.reads.dedup();
        node.writes = s.outputs.iter().copied().chain(scratch[step]).filter(sized).collect();
        for o in &s.overlaps {
            let (input, output) = (&items[o.input], &items[o.output]);
            if input.keep || input.size == 0 || output.size == 0 {
                continue;
            }
            let up = o.up.map_or(output.size, |lag| lag.min(output.size));
            let down = o
                .down
                .map_or(input.size, |lag| input.size.saturating_add(lag).saturating_sub(output.size).min(input.size));
            if up == output.size && down == input.size {
                // A lag that leaves them disjoint permits nothing.
                continue;
            }
            // Several permissions for one pair: any of them is enough.
            match node.relax.iter_mut().find(|r| (r.input, r.output) == (o.input, o.output)) {
                Some(r) => {
                    r.output_below = r.output_below.min(up);
                    r.input_below = r.input_below.min(down);
                }
                None => {
                    node.relax.push(Relax { input: o.input, output: o.output, output_below: up, input_below: down })
                }
            }
        }
        nodes.push(node);
    }
    for step in 0..nodes.len() {
        for i in 0..nodes[step].before.len() {
            let before = nodes[step].before[i];
            nodes[before].after.push(step);
        }
    }
    nodes
}

fn check_cycles(nodes: &[Node]) -> Result<(), SolveError> {
    let mut waits: Vec<usize> = nodes.iter().map(|n| n.before.len()).collect();
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|&s| waits[s] == 0).collect();
    let mut ran = 0;
    while let Some(step) = ready.pop() {
        ran += 1;
        for &next in &nodes[step].after {
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push(next);
            }
        }
    }
    match waits.iter().position(|&w| w > 0) {
        Some(step) => Err(SolveError::Cycle { step, blocked: nodes.len() - ran }),
        None => Ok(()),
    }
}
