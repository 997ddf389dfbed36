//! Running the steps one after the other: what is ready, what is live, what the next costs.

use super::bits::Bits;
use super::bound::{Load, step_bound};
use super::model::Model;

/// The steps that have run, and what follows from that set whatever their order was.
#[derive(Clone)]
pub(super) struct Walk {
    pub(super) done: Bits,
    pub(super) ran: usize,
    /// Steps each step still waits for.
    waits: Vec<u32>,
    /// Readers of each item that have not run.
    readers: Vec<u32>,
    /// Items of more than 0 bytes that the next step finds in memory.
    pub(super) live: Vec<usize>,
}

/// A step that may run next.
#[derive(Clone, Copy)]
pub(super) struct Move {
    pub(super) step: usize,
    /// Least arena while it runs.
    pub(super) bound: u64,
    /// Bytes live before it and after it.
    pub(super) before: u64,
    pub(super) after: u64,
    /// Running it now cannot make any bound of a later step worse than running it later would.
    pub(super) free: bool,
}

impl Walk {
    pub(super) fn new(model: &Model) -> Self {
        let is_input = |&i: &usize| model.items[i].producer.is_none() && model.items[i].size > 0;
        Self {
            done: Bits::new(model.nodes.len()),
            ran: 0,
            waits: model.nodes.iter().map(|n| n.before.len() as u32).collect(),
            readers: model.items.iter().map(|i| i.readers.len() as u32).collect(),
            live: (0..model.items.len()).filter(is_input).collect(),
        }
    }

    /// The state after the steps of `done`, which must be closed under predecessors.
    pub(super) fn after(model: &Model, done: &Bits) -> Self {
        let left = |steps: &[usize]| steps.iter().filter(|&&s| !done.has(s)).count() as u32;
        let readers: Vec<u32> = model.items.iter().map(|i| left(&i.readers)).collect();
        let ran = (0..model.nodes.len()).filter(|&s| done.has(s)).count();
        let live = |&i: &usize| {
            let item = &model.items[i];
            let written = item.producer.is_none_or(|p| done.has(p));
            // What nobody reads occupies the first position only.
            let unread = ran == 0 && item.producer.is_none();
            item.size > 0 && written && (item.keep || readers[i] > 0 || unread)
        };
        Self {
            done: done.clone(),
            ran,
            waits: model.nodes.iter().map(|n| left(&n.before)).collect(),
            live: (0..model.items.len()).filter(live).collect(),
            readers,
        }
    }

    /// Whether `step` has not run, and everything before it has.
    pub(super) fn is_ready(&self, step: usize) -> bool {
        self.waits[step] == 0 && !self.done.has(step)
    }

    /// Whether `item`, an input of a ready step, is dead after that step.
    pub(super) fn dies(&self, model: &Model, item: usize) -> bool {
        self.readers[item] == 1 && !model.items[item].keep
    }

    /// Least arena while `step`, which must be ready, runs next.
    pub(super) fn bound(&self, model: &Model, step: usize) -> u64 {
        let load = Load::new(model, self.live.iter().copied());
        step_bound(model, &load, step, |i| self.dies(model, i))
    }

    pub(super) fn moves(&self, model: &Model) -> Vec<Move> {
        let load = Load::new(model, self.live.iter().copied());
        (0..model.nodes.len())
            .filter(|&s| self.is_ready(s))
            .map(|step| {
                let node = &model.nodes[step];
                let dies = |i: usize| self.dies(model, i);
                let dead = Load::new(model, node.reads.iter().copied().filter(|&i| dies(i)));
                let stays = |&i: &usize| model.items[i].keep || !model.items[i].readers.is_empty();
                let born = Load::new(model, node.writes.iter().copied().filter(stays));
                Move {
                    step,
                    bound: step_bound(model, &load, step, dies),
                    before: load.bytes(),
                    after: load.bytes() + born.bytes() - dead.bytes(),
                    free: !model.has_tails && born.never_above(&dead),
                }
            })
            .collect()
    }

    pub(super) fn run(&mut self, model: &Model, step: usize) {
        let node = &model.nodes[step];
        for &after in &node.after {
            self.waits[after] -= 1;
        }
        for &item in &node.reads {
            self.readers[item] -= 1;
        }
        self.done.insert(step);
        self.ran += 1;
        let born = node.writes.iter().copied();
        self.live.extend(born);
        let readers = &self.readers;
        self.live.retain(|&i| model.items[i].keep || readers[i] > 0);
    }
}
