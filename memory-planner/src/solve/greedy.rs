//! Placement by rules: take the items in some sequence, put each as low as it goes.

use std::cmp::Reverse;

use super::conflict::Conflicts;
use super::model::Model;

/// An offset for every item, and the bytes they need.
#[derive(Clone)]
pub(super) struct Placement {
    pub(super) offsets: Vec<u64>,
    pub(super) arena: u64,
}

/// The lowest offset of `item` that keeps apart from every item already `placed`.
pub(super) fn lowest(model: &Model, conflicts: &Conflicts, placed: &[Option<u64>], item: usize) -> u64 {
    let align = model.items[item].align;
    let mut blocked: Vec<(u64, u64)> = conflicts.edges[item]
        .iter()
        .filter_map(|e| placed[e.other].map(|at| ((at + 1).saturating_sub(e.below), at + e.above)))
        .collect();
    blocked.sort_unstable();
    let mut at = 0;
    // Each range blocks offsets from its start up to, not including, its end.
    for (start, end) in blocked {
        if at >= start && at < end {
            at = end.next_multiple_of(align);
        }
    }
    at
}

/// Places the items one by one in `sequence`, which names every item of more than 0 bytes.
pub(super) fn place(model: &Model, conflicts: &Conflicts, sequence: &[usize]) -> Placement {
    let mut placed = vec![None; model.items.len()];
    for &item in sequence {
        placed[item] = Some(lowest(model, conflicts, &placed, item));
    }
    let offsets: Vec<u64> = placed.into_iter().map(|p| p.unwrap_or(0)).collect();
    let arena = arena(model, &offsets);
    Placement { offsets, arena }
}

pub(super) fn arena(model: &Model, offsets: &[u64]) -> u64 {
    offsets.iter().zip(&model.items).map(|(at, i)| at + i.reach()).max().unwrap_or(0)
}

/// Several sequences to place by, the ones that tend to be best first.
fn sequences(model: &Model, conflicts: &Conflicts) -> Vec<Vec<usize>> {
    let items: Vec<usize> = (0..model.items.len()).filter(|&i| model.items[i].size > 0).collect();
    let size = |i: usize| model.items[i].size;
    let live = |i: usize| conflicts.live[i];
    let span = |i: usize| (live(i).last - live(i).first + 1) as u64;
    let around = |i: usize| conflicts.edges[i].iter().fold(0u64, |sum, e| sum.saturating_add(e.below + e.above));
    let mut peak = vec![0; model.items.len()];
    for clique in &conflicts.cliques {
        let sum: u64 = clique.members.iter().map(|&m| size(m)).sum();
        for &m in &clique.members {
            peak[m] = sum.max(peak[m]);
        }
    }
    let by = |key: &dyn Fn(usize) -> (Reverse<u64>, Reverse<u64>, Reverse<u64>)| {
        let mut sequence = items.clone();
        sequence.sort_by_key(|&i| (key(i), i));
        sequence
    };
    let last = |i: usize| live(i).last as u64;
    let first = |i: usize| live(i).first as u64;
    vec![
        by(&|i| (Reverse(size(i)), Reverse(span(i)), Reverse(last(i)))),
        by(&|i| (Reverse(last(i)), Reverse(first(i)), Reverse(size(i)))),
        by(&|i| (Reverse(peak[i]), Reverse(last(i)), Reverse(size(i)))),
        by(&|i| (Reverse(peak[i]), Reverse(size(i)), Reverse(span(i)))),
        by(&|i| (Reverse(u64::MAX - first(i)), Reverse(span(i)), Reverse(size(i)))),
        by(&|i| (Reverse(span(i)), Reverse(size(i)), Reverse(last(i)))),
        by(&|i| (Reverse(size(i).saturating_mul(span(i))), Reverse(size(i)), Reverse(last(i)))),
        by(&|i| (Reverse(around(i)), Reverse(size(i)), Reverse(span(i)))),
    ]
}

/// The best of several sequences and, for each of the best, of what follows when the items
/// that end highest are moved to the front time and again.
pub(super) fn best(model: &Model, conflicts: &Conflicts, goal: u64, effort: Effort) -> Placement {
    let mut tried: Vec<(Placement, Vec<usize>)> = Vec::new();
    for sequence in sequences(model, conflicts).into_iter().take(effort.sequences) {
        let placement = place(model, conflicts, &sequence);
        let done = placement.arena <= goal;
        tried.push((placement, sequence));
        if done {
            break;
        }
    }
    tried.sort_by_key(|(p, _)| p.arena);
    let mut best = tried[0].0.clone();
    for (mut placement, mut sequence) in tried.into_iter().take(3) {
        for _ in 0..effort.bumps {
            if best.arena <= goal {
                return best;
            }
            let top = |i: &usize| placement.offsets[*i] + model.items[*i].reach() == placement.arena;
            let (front, back): (Vec<usize>, Vec<usize>) = sequence.iter().partition(|i| top(i));
            if front.is_empty() || sequence.starts_with(&front) {
                break;
            }
            sequence = [front, back].concat();
            placement = place(model, conflicts, &sequence);
            if placement.arena < best.arena {
                best = placement.clone();
            }
        }
    }
    best
}

/// How many sequences to try, and how often to repair each of the best.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    pub(super) sequences: usize,
    pub(super) bumps: usize,
}
