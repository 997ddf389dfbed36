//! Order and placement: which step runs when, and which bytes each buffer has.
//!
//! # The model
//!
//! Steps read and write buffers. A buffer is live from the step that writes it (from the start,
//! if the caller does) through its last reader, or to the end if it is kept; a step's scratch is
//! live during the step. Two that are live in the same step, *in conflict*, must satisfy one of
//!
//! ```text
//! offset(a) + s(a, b) <= offset(b)        offset(b) + s(b, a) <= offset(a)
//! ```
//!
//! where the separation `s(a, b)` is the size of `a`, unless `a` and `b` are output and input of
//! a step that may overlap them and the input dies there: then the one below may stick out by
//! less. Both the order of the steps and the offsets are free; the arena is to be small.
//!
//! # Why the search is complete
//!
//! *Bounds.* The bytes a step needs follow from the set of steps that ran before it. A
//! best-first search over those sets finds the least largest bound of any order; nothing is
//! smaller than that, and a placement that reaches it is proven best.
//!
//! *Placements.* Take a best placement of an order and sort it by offset; among equal offsets
//! put the lower of a pair in conflict first, "lower" as in the inequality it satisfies. (That
//! is no circle: at one offset only an output over its own dying input can meet, and those form
//! chains in time.) Separations are never negative, so each item satisfies its inequality with
//! everything before it as the upper one. Now place the items anew in this sequence, each at the
//! least aligned offset that the ones before allow: by induction no offset grows, so neither
//! does the arena, and once nothing moves any more the sequence is one of nondecreasing offsets
//! in which each item stands at its least. The search tries all such sequences. It leaves out
//! those in which an item could still drop with all the rest staying where it is, since a best
//! placement whose offsets have the least sum has none.
//!
//! *Orders.* Where the best order does not reach its bound, every other order whose bound is
//! below the best arena is placed too. When that ends within the budget the arena is optimal;
//! when it does not, the bound and the gap are reported.
//!
//! Nothing depends on time, threads, randomness or the iteration order of a hash map.

mod bits;
mod bound;
mod check;
mod conflict;
mod enumerate;
mod exact;
mod exchange;
mod greedy;
mod model;
mod order;
mod problem;
#[cfg(test)]
mod tests;
mod walk;

pub use check::{Place, Violation, check};
pub use problem::{
    Budget, Buffer, BufferId, Live, MAX_ITEMS, Overlap, Problem, Scratch, Solution, SolveError, Source, Step, StepId,
};

use conflict::Conflicts;
use enumerate::{Best, all_orders, improve};
use exchange::exchange;
use greedy::Effort;
use model::Model;
use order::{Meter, Order};

/// Rules tried on the orders that come out of the order search.
const EFFORT: Effort = Effort { sequences: usize::MAX, bumps: 30 };
/// Sets kept by the beam that stands in for an order search out of nodes.
const BEAM: usize = 32;
/// Orders that are placed before all of them are walked.
const FAVOURITES: usize = 7;

/// Chooses an order and offsets, and proves them best where the budget allows.
///
/// The result depends on `problem` and `budget` alone.
///
/// # Errors
/// If the problem contradicts itself (see [`SolveError`]); never for lack of nodes.
pub fn solve(problem: &Problem, budget: &Budget) -> Result<Solution, SolveError> {
    solve_from(problem, budget, &[])
}

/// [`solve`], with an order that the caller knows: the answer is never worse than the best that rules place of it.
/// An empty one is none.
///
/// # Errors
/// As for [`solve`], and [`SolveError::Order`] if the steps can't run in that order.
pub fn solve_from(problem: &Problem, budget: &Budget, known: &[StepId]) -> Result<Solution, SolveError> {
    let model = Model::new(problem)?;
    let known = if known.is_empty() {
        None
    } else {
        Some(Order { bound: peak(&bounds(&model, known)?), steps: known.to_vec() })
    };
    let mut meter = Meter { used: 0, limit: budget.nodes };
    let (orders, mut lower_bound) = search_orders(&model, known, &mut meter);
    let best = place_orders(&model, &orders, &mut lower_bound, &mut meter);
    let live = conflict::lifetimes(&model, &best.order);
    let (arena, offsets) = (best.placement.arena, best.placement.offsets);
    Ok(Solution {
        scratch_offsets: model.scratch.iter().map(|s| s.map(|item| offsets[item])).collect(),
        offsets: offsets[..model.buffers].to_vec(),
        live: live[..model.buffers].to_vec(),
        order: best.order,
        arena,
        lower_bound,
        optimal: arena == lower_bound,
        nodes: meter.used,
    })
}

/// The least arena while each step runs, in the order `order` of all steps.
///
/// # Errors
/// As for [`solve`], and [`SolveError::Order`] if the steps can't run in that order.
pub fn profile(problem: &Problem, order: &[StepId]) -> Result<Vec<u64>, SolveError> {
    bounds(&Model::new(problem)?, order)
}

fn bounds(model: &Model, order: &[StepId]) -> Result<Vec<u64>, SolveError> {
    let mut walk = walk::Walk::new(model);
    let mut bounds = Vec::with_capacity(order.len());
    for &step in order {
        if step >= model.nodes.len() || !walk.is_ready(step) {
            return Err(SolveError::Order { step });
        }
        bounds.push(walk.bound(model, step));
        walk.run(model, step);
    }
    match (0..model.nodes.len()).find(|&step| !walk.done.has(step)) {
        Some(step) => Err(SolveError::Order { step }),
        None => Ok(bounds),
    }
}

fn peak(bounds: &[u64]) -> u64 {
    bounds.iter().copied().max().unwrap_or(0)
}

/// A few orders, best bound first, `known` among them, and a bound that holds for all orders.
fn search_orders(model: &Model, known: Option<Order>, meter: &mut Meter) -> (Vec<Order>, u64) {
    let floor = bound::static_bound(model);
    let mut orders = order::greedy_orders(model, floor);
    orders.extend(known);
    orders.sort_by_key(|o| o.bound);
    let ceiling = orders[0].bound.max(floor);
    let mut lower_bound = ceiling;
    if ceiling > floor {
        let half = meter.left() / 2;
        let searched = meter.within(half, |m| order::best_first(model, floor, ceiling, m));
        lower_bound = searched.lower_bound;
        match searched.order {
            Some(order) => orders.push(order),
            None if lower_bound < ceiling => {
                let quarter = meter.left() / 4;
                orders.extend(meter.within(quarter, |m| order::beam(model, floor, BEAM, m)));
            }
            None => {}
        }
    }
    for order in &mut orders {
        order.bound = order.bound.max(lower_bound);
    }
    order::tidy(&mut orders);
    (orders, lower_bound)
}

/// The best placement found; raises `lower_bound` to its arena if that is proven best.
fn place_orders(model: &Model, orders: &[Order], lower_bound: &mut u64, meter: &mut Meter) -> Best {
    let goal = *lower_bound;
    let mut best = Best::none();
    let mut conflicts = Vec::new();
    for order in orders.iter().take(FAVOURITES) {
        let known = Conflicts::new(model, &order.steps);
        best.offer(&order.steps, greedy::best(model, &known, order.bound, EFFORT));
        conflicts.push(known);
        if best.arena() <= goal {
            break;
        }
    }
    for (order, known) in orders.iter().zip(&conflicts) {
        if best.arena() <= goal {
            break;
        }
        if order.bound < best.arena() {
            let part = meter.left() / 8;
            meter.within(part, |m| improve(model, order, known, &mut best, m));
        }
    }
    if best.arena() > goal {
        let half = meter.left() / 2;
        meter.within(half, |m| exchange(model, goal, &mut best, m));
    }
    if best.arena() > goal && all_orders(model, goal, &mut best, meter) {
        *lower_bound = best.arena();
    }
    best
}
