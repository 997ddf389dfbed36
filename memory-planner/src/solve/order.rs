//! Orders with a small bound: greedy rules, a beam, and best-first search over sets of steps.
//!
//! What an order costs from here on depends only on the set of steps that have run, so the order
//! with the least largest bound is a shortest path, with `max` for `+`, over those sets. A set
//! with a *free* move is left by that move alone: the step costs nothing that is not already
//! spent and leaves no more behind, so any completion may be rearranged to start with it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::bits::{Bits, Words};
use super::model::Model;
use super::walk::{Move, Walk};

/// Nodes spent and left.
pub(super) struct Meter {
    pub(super) used: u64,
    pub(super) limit: u64,
}

impl Meter {
    /// Takes `nodes`, or none and answers false if there are not that many.
    pub(super) fn spend(&mut self, nodes: u64) -> bool {
        let fits = nodes <= self.left();
        if fits {
            self.used += nodes;
        }
        fits
    }

    pub(super) fn left(&self) -> u64 {
        self.limit - self.used
    }

    /// Runs `search` on at most `nodes` of what is left.
    pub(super) fn within<T>(&mut self, nodes: u64, search: impl FnOnce(&mut Meter) -> T) -> T {
        let mut part = Meter { used: 0, limit: nodes.min(self.left()) };
        let result = search(&mut part);
        self.used += part.used;
        result
    }
}

/// An order and its largest bound.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) steps: Vec<usize>,
    pub(super) bound: u64,
}

/// The order that always takes the ready step with the least key.
fn greedy<K: Ord>(model: &Model, key: impl Fn(&Walk, &Move) -> K) -> Order {
    let mut walk = Walk::new(model);
    let mut order = Order { steps: Vec::new(), bound: 0 };
    while let Some(best) = walk.moves(model).into_iter().min_by_key(|m| (key(&walk, m), m.step)) {
        walk.run(model, best.step);
        order.steps.push(best.step);
        order.bound = order.bound.max(best.bound);
    }
    order
}

/// One order for each of a few rules, best bound first, each once.
pub(super) fn greedy_orders(model: &Model, floor: u64) -> Vec<Order> {
    let newest = |walk: &Walk, m: &Move| {
        let newest = walk.live.last().is_some_and(|i| model.nodes[m.step].reads.contains(i));
        Reverse(newest)
    };
    let mut orders = vec![
        greedy(model, |_, m| (m.bound.max(floor), m.after)),
        greedy(model, |_, m| (!m.free, m.bound.max(floor), m.after)),
        greedy(model, |_, m| (m.after, m.bound)),
        greedy(model, |w, m| (newest(w, m), m.after)),
        greedy(model, |_, _| ()),
        // As given, but what frees memory at once: a step of training as it was recorded, with each parameter updated
        // as soon as its gradient is there.
        greedy(model, |_, m| m.after >= m.before),
    ];
    tidy(&mut orders);
    orders
}

/// Best bound first, each order once.
pub(super) fn tidy(orders: &mut Vec<Order>) {
    let mut seen: Vec<Order> = Vec::new();
    for order in orders.drain(..) {
        if !seen.contains(&order) {
            seen.push(order);
        }
    }
    seen.sort_by_key(|o| o.bound);
    *orders = seen;
}

/// The free move that makes all the others needless, or every move.
fn worthwhile(mut moves: Vec<Move>, spent: u64) -> Vec<Move> {
    if let Some(&free) = moves.iter().find(|m| m.free && m.bound <= spent) {
        moves = vec![free];
    }
    moves
}

/// Keeps the `width` best sets of each size.
pub(super) fn beam(model: &Model, floor: u64, width: usize, meter: &mut Meter) -> Option<Order> {
    let mut level = vec![(floor, 0, Vec::new(), Walk::new(model))];
    for _ in 0..model.nodes.len() {
        let mut next: Vec<(u64, u64, Vec<usize>, Walk)> = Vec::new();
        let mut index: HashMap<Bits, usize, Words> = HashMap::default();
        for (bound, _, steps, walk) in &level {
            for m in worthwhile(walk.moves(model), *bound) {
                if !meter.spend(1) {
                    return None;
                }
                let bound = m.bound.max(*bound);
                let mut done = walk.done.clone();
                done.insert(m.step);
                let known = index.get(&done).copied();
                if known.is_some_and(|k| next[k].0 <= bound) {
                    continue;
                }
                let mut steps = steps.clone();
                steps.push(m.step);
                let mut walk = walk.clone();
                walk.run(model, m.step);
                let entry = (bound, m.after, steps, walk);
                match known {
                    Some(k) => next[k] = entry,
                    None => {
                        index.insert(done, next.len());
                        next.push(entry);
                    }
                }
            }
        }
        next.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        next.truncate(width);
        level = next;
    }
    level.into_iter().next().map(|(bound, _, steps, _)| Order { steps, bound })
}

/// What best-first search proves.
pub(super) struct Searched {
    /// No order has a lower bound than this.
    pub(super) lower_bound: u64,
    /// An order with exactly that bound, if one was reached.
    pub(super) order: Option<Order>,
}

/// A set of steps reached, and how.
struct Reached {
    done: Bits,
    bound: u64,
    from: usize,
    step: usize,
    closed: bool,
}

/// Finds the least bound of any order, of which `floor` is known from below and `ceiling` (an
/// order has it) from above.
pub(super) fn best_first(model: &Model, floor: u64, ceiling: u64, meter: &mut Meter) -> Searched {
    let count = model.nodes.len();
    let mut reached = vec![Reached { done: Bits::new(count), bound: floor, from: 0, step: 0, closed: false }];
    let mut index: HashMap<Bits, usize, Words> = HashMap::default();
    index.insert(Bits::new(count), 0);
    // Least bound, then most steps, then least left in memory, then first reached.
    let mut open = BinaryHeap::new();
    open.push(Reverse((floor, Reverse(0), 0, 0)));
    while let Some(Reverse((bound, Reverse(ran), _, at))) = open.pop() {
        if bound >= ceiling {
            return Searched { lower_bound: ceiling, order: None };
        }
        if reached[at].closed || reached[at].bound < bound {
            continue;
        }
        if ran == count {
            let mut steps = Vec::new();
            let mut at = at;
            while at != 0 {
                steps.push(reached[at].step);
                at = reached[at].from;
            }
            steps.reverse();
            return Searched { lower_bound: bound, order: Some(Order { steps, bound }) };
        }
        reached[at].closed = true;
        let walk = Walk::after(model, &reached[at].done);
        for m in worthwhile(walk.moves(model), bound) {
            if !meter.spend(1) {
                return Searched { lower_bound: bound, order: None };
            }
            let bound = bound.max(m.bound);
            if bound >= ceiling {
                continue;
            }
            let mut done = walk.done.clone();
            done.insert(m.step);
            let to = match index.get(&done) {
                Some(&to) if reached[to].bound <= bound => continue,
                Some(&to) => to,
                None => {
                    index.insert(done.clone(), reached.len());
                    reached.push(Reached { done, bound, from: at, step: m.step, closed: false });
                    reached.len() - 1
                }
            };
            let r = &mut reached[to];
            (r.bound, r.from, r.step) = (bound, at, m.step);
            open.push(Reverse((bound, Reverse(ran + 1), m.after, to)));
        }
    }
    Searched { lower_bound: ceiling, order: None }
}
