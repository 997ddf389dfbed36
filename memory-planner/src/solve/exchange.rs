//! Better orders near a good one: one step at a time is moved to another position.

use std::collections::HashSet;

use super::bits::Words;
use super::conflict::Conflicts;
use super::enumerate::{Best, improve};
use super::greedy::{Effort, best};
use super::model::Model;
use super::order::{Meter, Order};
use super::walk::Walk;

/// Nodes that the placement of each neighbour may take.
const CAP: u64 = 200;
/// Rules tried on each neighbour.
const EFFORT: Effort = Effort { sequences: 4, bumps: 6 };

/// Moves single steps of the best order as long as that lowers the best arena.
pub(super) fn exchange(model: &Model, floor: u64, known: &mut Best, meter: &mut Meter) {
    let mut seen: HashSet<Vec<usize>, Words> = HashSet::default();
    loop {
        let order = known.order.clone();
        let before = known.arena();
        for from in 0..order.len() {
            for to in legal(model, &order, from) {
                let mut steps = order.clone();
                let step = steps.remove(from);
                steps.insert(to, step);
                if !seen.insert(steps.clone()) {
                    continue;
                }
                // Walking and placing by rule is about as much work as a node for every item.
                if !meter.spend(model.items.len() as u64) {
                    return;
                }
                let Some(bound) = bound_below(model, &steps, floor, known.arena()) else {
                    continue;
                };
                let order = Order { steps, bound };
                let conflicts = Conflicts::new(model, &order.steps);
                known.offer(&order.steps, best(model, &conflicts, bound, EFFORT));
                meter.within(CAP, |meter| improve(model, &order, &conflicts, known, meter));
                if known.arena() <= floor {
                    return;
                }
            }
        }
        if known.arena() == before {
            return;
        }
    }
}

/// The positions the step at `from` may be moved to.
fn legal(model: &Model, order: &[usize], from: usize) -> impl Iterator<Item = usize> {
    let node = &model.nodes[order[from]];
    let lowest = (0..from).rev().find(|&at| node.before.contains(&order[at])).map_or(0, |at| at + 1);
    let highest = (from + 1..order.len()).find(|&at| node.after.contains(&order[at])).unwrap_or(order.len());
    (lowest..highest).filter(move |&at| at != from)
}

/// The bound of an order, if it is below `ceiling`.
fn bound_below(model: &Model, steps: &[usize], floor: u64, ceiling: u64) -> Option<u64> {
    let mut walk = Walk::new(model);
    let mut bound = floor;
    for &step in steps {
        bound = bound.max(walk.bound(model, step));
        if bound >= ceiling {
            return None;
        }
        walk.run(model, step);
    }
    Some(bound)
}
