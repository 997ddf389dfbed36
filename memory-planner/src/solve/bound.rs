//! How many bytes a step needs at least.
//!
//! Items live together are disjoint, except that a step's output may lie over its dying inputs,
//! so their bytes add up after that *group* is replaced by the least height it can have.
//! Alignment enters level by level: if every offset of some items is a multiple of `a`, then
//! their sizes and separations may be rounded up to multiples of `a`; only the item that ends
//! highest gives its rounding back and asks for its tail, and crediting the largest
//! `rounding - tail` among them keeps that a lower bound. Each alignment that occurs is one level,
//! made of the items aligned at least so much; the best level counts.

use super::bits::Bits;
use super::model::{Model, Node, Relax};

/// The rounded bytes of a set of items that are pairwise disjoint, level by level.
#[derive(Clone)]
pub(super) struct Load(Vec<(u64, i64)>);

impl Load {
    pub(super) fn new(model: &Model, items: impl Iterator<Item = usize>) -> Self {
        let mut load = Self(vec![(0, i64::MIN); model.levels.len()]);
        for item in items {
            for (level, at) in model.levels.iter().zip(&mut load.0) {
                add(model, item, *level, at);
            }
        }
        load
    }

    /// Bytes at the lowest level, which counts every item.
    pub(super) fn bytes(&self) -> u64 {
        self.0.first().map_or(0, |l| l.0)
    }

    /// The least arena that holds them.
    pub(super) fn bound(&self) -> u64 {
        self.0.iter().map(|&(sum, credit)| height(sum, credit)).max().unwrap_or(0)
    }

    /// No set of items that contains `other` is bounded lower once `other` becomes `self`.
    /// Holds without tails only.
    pub(super) fn never_above(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(new, old)| {
            let lost = old.1.max(0) - new.1.max(0);
            new.0 <= old.0 && (old.0 - new.0) as i64 >= lost
        })
    }
}

fn add(model: &Model, item: usize, level: u64, (sum, credit): &mut (u64, i64)) {
    let item = &model.items[item];
    if item.size > 0 && item.align >= level {
        let rounded = item.size.next_multiple_of(level);
        *sum += rounded;
        *credit = (*credit).max((rounded - item.size) as i64 - item.tail as i64);
    }
}

fn height(sum: u64, credit: i64) -> u64 {
    if sum == 0 { 0 } else { sum.saturating_add_signed(-credit) }
}

/// The least arena in which `step` can run after `load`, the items live before it (its inputs
/// included); `dies` says whether an input of it is read by nothing later.
pub(super) fn step_bound(model: &Model, load: &Load, step: usize, dies: impl Fn(usize) -> bool) -> u64 {
    let node = &model.nodes[step];
    let mut bound = 0;
    for (level, &at) in model.levels.iter().zip(&load.0) {
        let mut at = at;
        for &write in &node.writes {
            add(model, write, *level, &mut at);
        }
        let (members, least) = group(model, node, *level, &dies);
        bound = bound.max(height(at.0 - members + least, at.1));
    }
    bound
}

/// Rounded bytes of the items of `step` that may overlap, and the least height of their union.
fn group(model: &Model, node: &Node, level: u64, dies: impl Fn(usize) -> bool) -> (u64, u64) {
    if node.relax.is_empty() {
        return (0, 0);
    }
    let pairs: Vec<&Relax> = node
        .relax
        .iter()
        .filter(|r| {
            let (i, o) = (&model.items[r.input], &model.items[r.output]);
            dies(r.input) && i.align >= level && o.align >= level
        })
        .collect();
    let rounded = |item: usize| model.items[item].size.next_multiple_of(level);
    let distinct = |mut items: Vec<usize>| {
        items.sort_unstable();
        items.dedup();
        items
    };
    let inputs = distinct(pairs.iter().map(|r| r.input).collect());
    let outputs = distinct(pairs.iter().map(|r| r.output).collect());
    let sum = |items: &[usize]| -> u64 { items.iter().map(|&i| rounded(i)).sum() };
    let mut least = sum(&inputs).max(sum(&outputs));
    for r in &pairs {
        least = least.max(pair_height(model, r, level));
    }
    for &output in &outputs {
        let own: Vec<&Relax> = pairs.iter().copied().filter(|r| r.output == output).collect();
        for upward in [true, false] {
            least = least.max(released(model, &own, level, upward));
        }
        // The inputs that this output must keep clear of are disjoint from it and each other.
        let clear = inputs.iter().filter(|&&i| own.iter().all(|r| r.input != i));
        least = least.max(rounded(output) + clear.map(|&i| rounded(i)).sum::<u64>());
    }
    (sum(&inputs) + sum(&outputs), least)
}

/// The least height of one output and one input, rounded.
pub(super) fn pair_height(model: &Model, r: &Relax, level: u64) -> u64 {
    let input = model.items[r.input].size.next_multiple_of(level);
    let output = model.items[r.output].size.next_multiple_of(level);
    let output_below = output.max(r.output_below.next_multiple_of(level) + input);
    let input_below = input.max(r.input_below.next_multiple_of(level) + output);
    output_below.min(input_below)
}

/// The least height of one output and those inputs that may overlap it in one direction only.
///
/// Seen from the output's bottom (upward) or top (downward) each input is a job that may start
/// at its separation; one machine with release dates finishes earliest in the order of release.
fn released(model: &Model, pairs: &[&Relax], level: u64, upward: bool) -> u64 {
    let mut jobs: Vec<(u64, u64)> = Vec::new();
    for r in pairs {
        let input = model.items[r.input].size;
        let output = model.items[r.output].size;
        let (up, down) = (r.output_below < output, r.input_below < input);
        let size = input.next_multiple_of(level);
        if upward && up && !down {
            jobs.push((r.output_below.next_multiple_of(level), size));
        } else if !upward && down && !up {
            let top = output.next_multiple_of(level) + r.input_below.next_multiple_of(level);
            jobs.push((top.saturating_sub(size), size));
        }
    }
    jobs.sort_unstable();
    jobs.iter().fold(0, |end, &(release, size)| end.max(release) + size)
}

/// Each step's bound in every order: of what certainly is live then, by the graph alone.
/// The largest of them, and of the whole inputs, the whole outputs and every single item.
pub(super) fn static_bound(model: &Model) -> u64 {
    let items = &model.items;
    let inputs = (0..items.len()).filter(|&i| items[i].producer.is_none());
    let kept = (0..items.len()).filter(|&i| items[i].keep);
    let mut bound = Load::new(model, inputs).bound().max(Load::new(model, kept).bound());
    bound = items.iter().map(|i| i.reach()).fold(bound, u64::max);
    let ancestors = ancestors(model);
    for step in 0..model.nodes.len() {
        let after = |s: usize| ancestors[s].has(step);
        let live = (0..items.len()).filter(|&i| {
            let item = &items[i];
            item.producer.is_none_or(|p| ancestors[step].has(p))
                && (item.keep || item.readers.iter().any(|&r| r == step || after(r)))
        });
        let load = Load::new(model, live);
        let dies = |i: usize| !items[i].readers.iter().any(|&r| after(r));
        bound = bound.max(step_bound(model, &load, step, dies));
    }
    bound
}

/// For each step, the steps that run before it in every order.
fn ancestors(model: &Model) -> Vec<Bits> {
    let count = model.nodes.len();
    let mut ancestors: Vec<Bits> = vec![Bits::new(count); count];
    let mut waits: Vec<usize> = model.nodes.iter().map(|n| n.before.len()).collect();
    let mut ready: Vec<usize> = (0..count).filter(|&s| waits[s] == 0).collect();
    while let Some(step) = ready.pop() {
        let mut own = Bits::new(count);
        for &before in &model.nodes[step].before {
            own.insert(before);
            own.union(&ancestors[before]);
        }
        ancestors[step] = own;
        for &next in &model.nodes[step].after {
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push(next);
            }
        }
    }
    ancestors
}
