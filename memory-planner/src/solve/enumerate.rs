//! Every order that could beat the best placement known, one after the other.
//!
//! Orders are walked depth first. A branch is cut where a step's bound reaches the best arena,
//! where no completion of the same set of steps survived that cut before, and where the same set
//! was reached before with the same conflicts: what remains is then the same problem.

use std::collections::HashSet;

use super::bits::{Bits, Words};
use super::conflict::Conflicts;
use super::exact::{Verdict, fit};
use super::greedy::{Effort, Placement, best};
use super::model::Model;
use super::order::{Meter, Order};
use super::walk::{Move, Walk};

/// Most words that the branches remembered may take.
const MEMORY: usize = 1 << 22;
/// Nodes that each placement may take: first few, so that many orders get a turn.
const CAPS: [u64; 3] = [1 << 10, 1 << 14, u64::MAX];
/// Rules tried on each order before the exact search.
const EFFORT: Effort = Effort { sequences: 3, bumps: 4 };

/// The best order and placement so far.
pub(super) struct Best {
    pub(super) order: Vec<usize>,
    pub(super) placement: Placement,
}

impl Best {
    /// Worse than anything.
    pub(super) fn none() -> Self {
        Self { order: Vec::new(), placement: Placement { offsets: Vec::new(), arena: u64::MAX } }
    }

    pub(super) fn offer(&mut self, order: &[usize], placement: Placement) {
        if placement.arena < self.placement.arena {
            *self = Self { order: order.to_vec(), placement };
        }
    }

    pub(super) fn arena(&self) -> u64 {
        self.placement.arena
    }
}

/// Lowers `best` as far as `order` goes; true if no placement of `order` is better than `best`.
pub(super) fn improve(model: &Model, order: &Order, conflicts: &Conflicts, best: &mut Best, meter: &mut Meter) -> bool {
    // The bound itself is the likeliest answer; then down from what is known.
    if order.bound < best.arena() {
        let half = meter.left() / 2;
        match meter.within(half, |meter| fit(model, conflicts, order.bound, meter)) {
            Verdict::Fits(placement) => {
                best.offer(&order.steps, placement);
                return true;
            }
            Verdict::Impossible | Verdict::OutOfNodes => {}
        }
    }
    while order.bound < best.arena() {
        match fit(model, conflicts, best.arena() - 1, meter) {
            Verdict::Fits(placement) => best.offer(&order.steps, placement),
            Verdict::Impossible => return true,
            Verdict::OutOfNodes => return false,
        }
    }
    true
}

/// Walks the orders; true if nothing better than `best` exists.
pub(super) fn all_orders(model: &Model, floor: u64, best: &mut Best, meter: &mut Meter) -> bool {
    let mut settled = HashSet::default();
    for cap in CAPS {
        match Pass::new(model, floor, cap, &mut settled).run(best, meter) {
            Some(true) => return true,
            Some(false) => {}
            None => return false,
        }
    }
    false
}

/// Conflicts met on the way, as bits: one triangle of the matrix for items that keep apart,
/// the other for pairs that may overlap.
type Met = Bits;

struct Frame {
    walk: Walk,
    met: Met,
    bound: u64,
    moves: Vec<Move>,
    next: usize,
    /// Whether an order was completed from here, or may have been.
    reached: bool,
}

struct Pass<'a> {
    model: &'a Model,
    floor: u64,
    cap: u64,
    /// Conflicts of whole orders that cannot beat the best arena.
    settled: &'a mut HashSet<Met, Words>,
    /// Sets of steps that no order below the best arena completes.
    dead: HashSet<Bits, Words>,
    seen: HashSet<(Bits, Met), Words>,
    words: usize,
}

impl<'a> Pass<'a> {
    fn new(model: &'a Model, floor: u64, cap: u64, settled: &'a mut HashSet<Met, Words>) -> Self {
        let (dead, seen) = (HashSet::default(), HashSet::default());
        Self { model, floor, cap, settled, dead, seen, words: 0 }
    }

    /// `None` if the nodes ran out, else whether every order got a final answer.
    fn run(mut self, best: &mut Best, meter: &mut Meter) -> Option<bool> {
        let count = self.model.items.len();
        let walk = Walk::new(self.model);
        let mut stack = vec![self.frame(walk, Bits::new(count * count), self.floor)];
        let mut order: Vec<usize> = Vec::new();
        let mut complete = true;
        while let Some(frame) = stack.last_mut() {
            let Some(&m) = frame.moves.get(frame.next) else {
                let Some(frame) = stack.pop() else { break };
                order.pop();
                if !frame.reached && self.room(frame.walk.done.words()) {
                    self.dead.insert(frame.walk.done);
                } else if let Some(parent) = stack.last_mut() {
                    parent.reached |= frame.reached;
                }
                continue;
            };
            frame.next += 1;
            if m.bound >= best.arena() {
                continue;
            }
            if !meter.spend(1) {
                return None;
            }
            let mut met = frame.met.clone();
            meet(self.model, &frame.walk, m.step, &mut met);
            let mut walk = frame.walk.clone();
            walk.run(self.model, m.step);
            let bound = frame.bound.max(m.bound);
            if self.dead.contains(&walk.done) {
                continue;
            }
            if self.room(walk.done.words() + met.words()) {
                if !self.seen.insert((walk.done.clone(), met.clone())) {
                    frame.reached = true;
                    continue;
                }
            } else if self.seen.contains(&(walk.done.clone(), met.clone())) {
                frame.reached = true;
                continue;
            }
            order.push(m.step);
            if walk.ran < self.model.nodes.len() {
                stack.push(self.frame(walk, met, bound));
                continue;
            }
            frame.reached = true;
            if !self.settled.contains(&met) {
                let whole = Order { steps: order.clone(), bound };
                if self.settle(&whole, best, meter)? {
                    if self.room(met.words()) {
                        self.settled.insert(met);
                    }
                } else {
                    complete = false;
                }
            }
            order.pop();
            if best.arena() <= self.floor {
                return Some(true);
            }
        }
        Some(complete)
    }

    fn frame(&self, walk: Walk, met: Met, bound: u64) -> Frame {
        let mut moves = walk.moves(self.model);
        moves.sort_by_key(|m| (m.bound.max(self.floor), m.after, m.step));
        Frame { walk, met, bound, moves, next: 0, reached: false }
    }

    /// Takes room for `words` more words of memory, if there is any.
    fn room(&mut self, words: usize) -> bool {
        let room = self.words + words <= MEMORY;
        if room {
            self.words += words;
        }
        room
    }

    fn settle(&self, order: &Order, best_known: &mut Best, meter: &mut Meter) -> Option<bool> {
        // A rule places every item once, about as much work as a node for every eight.
        let work = self.model.items.len() as u64 / 8 + 1;
        if !meter.spend(work) {
            return None;
        }
        let conflicts = Conflicts::new(self.model, &order.steps);
        let placement = best(self.model, &conflicts, order.bound, EFFORT);
        best_known.offer(&order.steps, placement);
        let final_answer = meter.within(self.cap, |meter| improve(self.model, order, &conflicts, best_known, meter));
        Some(final_answer)
    }
}

/// Adds the conflicts among the items live while `step` runs.
fn meet(model: &Model, walk: &Walk, step: usize, met: &mut Met) {
    let node = &model.nodes[step];
    let count = model.items.len();
    let mut live = walk.live.clone();
    for &item in &node.writes {
        for &other in &live {
            let relaxed = node.relax.iter().any(|r| r.output == item && r.input == other && walk.dies(model, other));
            let (low, high) = (item.min(other), item.max(other));
            met.insert(if relaxed { high * count + low } else { low * count + high });
        }
        live.push(item);
    }
}
