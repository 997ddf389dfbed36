//! Whether the items of one order fit an arena of a given size: an exact answer.
//!
//! First items are set aside that fit whatever the others do: those whose neighbours cannot
//! block every offset. What is left falls into independent parts, each of which is searched by
//! placing items in nondecreasing order of offset, each at the least offset that the items
//! placed before allow (see the module's head for why that is complete).

use std::cmp::Reverse;
use std::collections::HashSet;

use super::bits::Words;
use super::conflict::Conflicts;
use super::greedy::{Placement, arena, lowest};
use super::model::Model;
use super::order::Meter;

/// Most words that the states remembered in one search may take.
const MEMORY: usize = 1 << 22;

/// The answer for one order and one size.
pub(super) enum Verdict {
    Fits(Placement),
    Impossible,
    OutOfNodes,
}

/// Searches for a placement within `target` bytes.
pub(super) fn fit(model: &Model, conflicts: &Conflicts, target: u64, meter: &mut Meter) -> Verdict {
    if model.items.iter().any(|i| i.reach() > target) {
        return Verdict::Impossible;
    }
    let (core, aside) = set_aside(model, conflicts, target);
    let mut placed: Vec<Option<u64>> = vec![None; model.items.len()];
    for part in parts(conflicts, &core) {
        match Search::new(model, conflicts, &part, target).run(meter) {
            Found::Offsets(offsets) => {
                for (&item, at) in part.iter().zip(offsets) {
                    placed[item] = Some(at);
                }
            }
            Found::Nothing => return Verdict::Impossible,
            Found::OutOfNodes => return Verdict::OutOfNodes,
        }
    }
    for &item in aside.iter().rev() {
        placed[item] = Some(lowest(model, conflicts, &placed, item));
    }
    let offsets: Vec<u64> = placed.into_iter().map(|p| p.unwrap_or(0)).collect();
    let arena = arena(model, &offsets);
    Verdict::Fits(Placement { offsets, arena })
}

/// Splits the items into those to search for and those that fit anyway, in the order they were
/// set aside: each has room once everything but the ones set aside before it is placed.
fn set_aside(model: &Model, conflicts: &Conflicts, target: u64) -> (Vec<usize>, Vec<usize>) {
    // An open interval of `n` bytes has `n - 1` offsets in it, every `align`-th of which counts.
    let blocks = |item: usize, below: u64, above: u64| {
        u128::from((below + above).saturating_sub(1).div_ceil(model.items[item].align))
    };
    let mut blocked: Vec<u128> =
        (0..model.items.len()).map(|i| conflicts.edges[i].iter().map(|e| blocks(i, e.below, e.above)).sum()).collect();
    let roomy = |item: usize, blocked: u128| {
        let offsets = (target - model.items[item].reach()) / model.items[item].align + 1;
        blocked < offsets.into()
    };
    let mut out = vec![false; model.items.len()];
    let mut aside: Vec<usize> = Vec::new();
    let mut next = 0;
    for item in 0..model.items.len() {
        if !out[item] && roomy(item, blocked[item]) {
            out[item] = true;
            aside.push(item);
        }
        while let Some(&gone) = aside.get(next) {
            next += 1;
            for e in &conflicts.edges[gone] {
                let freed = blocks(e.other, e.above, e.below);
                blocked[e.other] -= freed;
                if !out[e.other] && roomy(e.other, blocked[e.other]) {
                    out[e.other] = true;
                    aside.push(e.other);
                }
            }
        }
    }
    ((0..model.items.len()).filter(|&i| !out[i]).collect(), aside)
}

/// The connected parts of the conflicts among `items`.
fn parts(conflicts: &Conflicts, items: &[usize]) -> Vec<Vec<usize>> {
    let mut waiting = vec![false; conflicts.edges.len()];
    for &item in items {
        waiting[item] = true;
    }
    let mut parts = Vec::new();
    for &item in items {
        if !waiting[item] {
            continue;
        }
        waiting[item] = false;
        let mut part = vec![item];
        let mut next = 0;
        while let Some(&at) = part.get(next) {
            next += 1;
            for e in &conflicts.edges[at] {
                if waiting[e.other] {
                    waiting[e.other] = false;
                    part.push(e.other);
                }
            }
        }
        part.sort_unstable();
        parts.push(part);
    }
    parts
}

enum Found {
    Offsets(Vec<u64>),
    Nothing,
    OutOfNodes,
}

/// What an item counts as in a clique.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Alone,
    Output,
    Input,
}

/// A clique of the part: members with their roles, pairs that may overlap and their height.
struct Bound {
    members: Vec<(usize, Role)>,
    pairs: Vec<(usize, usize, u64)>,
}

/// The state of the search over one part; items are numbered within it.
struct Search {
    target: u64,
    size: Vec<u64>,
    reach: Vec<u64>,
    align: Vec<u64>,
    /// Size rounded to the grain, and what of that the topmost item gives back.
    rounded: Vec<u64>,
    credit: Vec<i64>,
    /// Other item and the separation with this one below.
    edges: Vec<Vec<(usize, u64)>>,
    bounds: Vec<Bound>,
    /// Least offset that the placed items allow; of a placed item, its offset.
    least: Vec<u64>,
    placed: Vec<bool>,
    /// Offset of the item placed last.
    current: u64,
    undo: Vec<(usize, u64)>,
    seen: HashSet<Box<[u64]>, Words>,
    seen_words: usize,
}

/// An item placed, how to take it back, and what to try on top of it.
struct Frame {
    item: Option<usize>,
    mark: usize,
    current: u64,
    choices: Vec<usize>,
    next: usize,
}

impl Search {
    fn new(model: &Model, conflicts: &Conflicts, part: &[usize], target: u64) -> Self {
        let mut local = vec![usize::MAX; model.items.len()];
        for (i, &item) in part.iter().enumerate() {
            local[item] = i;
        }
        let inside = |item: usize| (local[item] != usize::MAX).then_some(local[item]);
        let items = || part.iter().map(|&i| &model.items[i]);
        let rounded: Vec<u64> = items().map(|i| i.size.next_multiple_of(conflicts.grain)).collect();
        let edges = part
            .iter()
            .map(|&item| conflicts.edges[item].iter().filter_map(|e| Some((inside(e.other)?, e.below))).collect());
        let bounds = conflicts.cliques.iter().filter_map(|clique| {
            let pairs: Vec<_> =
                clique.pairs.iter().filter_map(|&(o, i, height)| Some((inside(o)?, inside(i)?, height))).collect();
            let members: Vec<_> = clique
                .members
                .iter()
                .filter_map(|&m| {
                    let m = inside(m)?;
                    let role = if pairs.iter().any(|p| p.0 == m) {
                        Role::Output
                    } else if pairs.iter().any(|p| p.1 == m) {
                        Role::Input
                    } else {
                        Role::Alone
                    };
                    Some((m, role))
                })
                .collect();
            (!members.is_empty()).then_some(Bound { members, pairs })
        });
        Self {
            target,
            size: items().map(|i| i.size).collect(),
            reach: items().map(|i| i.reach()).collect(),
            align: items().map(|i| i.align).collect(),
            credit: items().zip(&rounded).map(|(i, &rounded)| (rounded - i.size) as i64 - i.tail as i64).collect(),
            rounded,
            edges: edges.collect(),
            bounds: bounds.collect(),
            least: vec![0; part.len()],
            placed: vec![false; part.len()],
            current: 0,
            undo: Vec::new(),
            seen: HashSet::default(),
            seen_words: 0,
        }
    }

    fn run(mut self, meter: &mut Meter) -> Found {
        if !self.promising(&mut Vec::new()) {
            return Found::Nothing;
        }
        let mut members = Vec::new();
        let mut stack = vec![self.frame(None, 0, 0)];
        while let Some(frame) = stack.last_mut() {
            let Some(&item) = frame.choices.get(frame.next) else {
                let Some(Frame { item, mark, current, .. }) = stack.pop() else {
                    break;
                };
                if let Some(item) = item {
                    self.take_back(item, mark, current);
                }
                continue;
            };
            frame.next += 1;
            if !meter.spend(1) {
                return Found::OutOfNodes;
            }
            let (mark, current) = (self.undo.len(), self.current);
            if self.put(item) && self.settled() && self.promising(&mut members) && self.is_new() {
                stack.push(self.frame(Some(item), mark, current));
                if stack.len() > self.size.len() {
                    return Found::Offsets(self.least);
                }
            } else {
                self.take_back(item, mark, current);
            }
        }
        Found::Nothing
    }

    /// What to try on top of `item`, placed when the undo list and offset were as given.
    fn frame(&self, item: Option<usize>, mark: usize, current: u64) -> Frame {
        let mut choices: Vec<usize> =
            (0..self.size.len()).filter(|&i| !self.placed[i] && self.least[i] >= self.current).collect();
        choices.sort_by_key(|&i| (self.least[i], Reverse(self.size[i]), i));
        Frame { item, mark, current, choices, next: 0 }
    }

    /// Places `item` at its least offset; false if something then cannot end within the target.
    fn put(&mut self, item: usize) -> bool {
        let at = self.least[item];
        self.placed[item] = true;
        self.current = at;
        for e in 0..self.edges[item].len() {
            let (other, below) = self.edges[item][e];
            if self.placed[other] {
                continue;
            }
            let least = (at + below).next_multiple_of(self.align[other]);
            if least > self.least[other] {
                self.undo.push((other, self.least[other]));
                self.least[other] = least;
                if least + self.reach[other] > self.target {
                    return false;
                }
            }
        }
        true
    }

    fn take_back(&mut self, item: usize, mark: usize, current: u64) {
        self.placed[item] = false;
        self.current = current;
        for (other, least) in self.undo.drain(mark..).rev() {
            self.least[other] = least;
        }
    }

    /// False if an item left behind, below the current offset, could drop to its least offset
    /// whatever comes: then every completion is beaten by one that puts it there.
    fn settled(&self) -> bool {
        (0..self.size.len()).all(|i| {
            self.placed[i]
                || self.least[i] >= self.current
                || self.edges[i].iter().any(|&(other, below)| {
                    !self.placed[other] && self.least[other].max(self.current) < self.least[i] + below
                })
        })
    }

    /// False if the items of some clique that are not placed cannot all end within the target:
    /// those above any offset are bounded like a step of their own.
    fn promising(&self, members: &mut Vec<(u64, usize, Role)>) -> bool {
        self.bounds.iter().all(|bound| {
            members.clear();
            for &(item, role) in &bound.members {
                if !self.placed[item] {
                    members.push((self.least[item].max(self.current), item, role));
                }
            }
            members.sort_unstable_by_key(|&(at, item, _)| Reverse((at, item)));
            let (mut alone, mut outputs, mut inputs, mut pair) = (0, 0, 0, 0);
            let mut credit = i64::MIN;
            members.iter().enumerate().all(|(count, &(at, item, role))| {
                let rounded = self.rounded[item];
                credit = credit.max(self.credit[item]);
                match role {
                    Role::Alone => alone += rounded,
                    Role::Output => outputs += rounded,
                    Role::Input => inputs += rounded,
                }
                if role != Role::Alone {
                    let has = |i| members[..=count].iter().any(|m| m.1 == i);
                    for &(o, i, height) in &bound.pairs {
                        if (o == item && has(i)) || (i == item && has(o)) {
                            pair = height.max(pair);
                        }
                    }
                }
                let height = alone + outputs.max(inputs).max(pair);
                (at + height).saturating_add_signed(-credit) <= self.target
            })
        })
    }

    /// False if the same items stand before the same offsets as in a state seen before.
    fn is_new(&mut self) -> bool {
        let words = self.size.len() + 1;
        if self.seen_words + words > MEMORY {
            return true;
        }
        let free = self.least.iter().zip(&self.placed);
        let key = free.map(|(&least, &placed)| if placed { u64::MAX } else { least });
        let new = self.seen.insert(key.chain([self.current]).collect());
        if new {
            self.seen_words += words;
        }
        new
    }
}
