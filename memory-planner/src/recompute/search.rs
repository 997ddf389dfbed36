//! The local search: which values to drop, and which to keep after all.

use crate::solve::MAX_ITEMS;

use super::rewrite::{Gap, Rewrite, View};

/// Drops tried at each move, of those that promise most.
const TRIED: usize = 6;
/// Copies tried to be undone at each move.
const UNDONE: usize = 24;

/// How many steps may still be walked.
pub(super) struct Effort {
    left: u64,
}

impl Effort {
    pub(super) fn new(left: u64) -> Effort {
        Effort { left }
    }

    fn spend(&mut self, steps: usize) -> bool {
        let fits = self.left >= steps as u64;
        self.left = self.left.saturating_sub(steps as u64);
        fits
    }
}

/// What of several drops that lower the excess is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Preference {
    /// The one that lowers it most for its work.
    Work,
    /// The one that lowers it most.
    Bytes,
}

/// How a rewrite does.
struct State {
    view: View,
    /// Bytes needed while each step runs.
    profile: Vec<u64>,
    /// Bytes above the aim, summed over all steps.
    excess: u64,
}

/// How a rewrite does; none where it can't run or has more steps than can be planned, or there is no effort left.
fn state(rewrite: &Rewrite<'_>, aim: u64, effort: &mut Effort) -> Option<State> {
    let order = rewrite.order().filter(|order| order.len() <= MAX_ITEMS / 2 && effort.spend(order.len()))?;
    let view = rewrite.view(&order);
    let profile = rewrite.profile(&order, &view);
    let excess = profile.iter().map(|bytes| bytes.saturating_sub(aim)).fold(0, u64::saturating_add);
    Some(State { view, profile, excess })
}

/// Moves until nothing is above `aim`; whether that was reached.
pub(super) fn descend(rewrite: &mut Rewrite<'_>, aim: u64, preference: Preference, effort: &mut Effort) -> bool {
    let Some(mut now) = state(rewrite, aim, effort) else { return false };
    while now.excess > 0 {
        let kept = keep_again(rewrite, &now, aim, effort);
        let next = kept.or_else(|| best_drop(rewrite, &now, aim, preference, effort));
        let Some((next, state)) = next else { return false };
        (*rewrite, now) = (next, state);
    }
    true
}

/// The copy without which the excess is least, if that is less than now.
fn keep_again<'a>(rewrite: &Rewrite<'a>, now: &State, aim: u64, effort: &mut Effort) -> Option<(Rewrite<'a>, State)> {
    let copies: Vec<usize> = rewrite.copies().collect();
    let stride = copies.len().div_ceil(UNDONE).max(1);
    let mut best: Option<(Rewrite<'_>, State)> = None;
    for &copy in copies.iter().step_by(stride) {
        let mut without = rewrite.clone();
        without.undo(copy, &now.view);
        let Some(state) = state(&without, aim, effort) else { continue };
        let least = best.as_ref().map_or(now.excess, |(_, best)| best.excess);
        if state.excess < least {
            best = Some((without, state));
        }
    }
    best
}

/// The best drop, if there is one that lowers the excess.
fn best_drop<'a>(
    rewrite: &mut Rewrite<'a>,
    now: &State,
    aim: u64,
    preference: Preference,
    effort: &mut Effort,
) -> Option<(Rewrite<'a>, State)> {
    let gaps = promising(rewrite, now, aim, preference);
    let mut best: Option<(u128, Rewrite<'_>, State)> = None;
    for (tried, &gap) in gaps.iter().enumerate() {
        // Further down the list there may be one where the first ones do not help.
        if tried >= TRIED && best.is_some() {
            break;
        }
        let mut dropped = rewrite.clone();
        dropped.drop_in(gap, &now.view);
        let Some(state) = state(&dropped, aim, effort) else { continue };
        if state.excess >= now.excess {
            continue;
        }
        let work = dropped.work.saturating_sub(rewrite.work);
        let score = score(now.excess - state.excess, work, preference);
        if best.as_ref().is_none_or(|(most, ..)| score > *most) {
            best = Some((score, dropped, state));
        }
    }
    best.map(|(_, rewrite, state)| (rewrite, state))
}

fn score(less: u64, work: u64, preference: Preference) -> u128 {
    match preference {
        Preference::Work => (u128::from(less) << 32) / u128::from(work.max(1)),
        Preference::Bytes => u128::from(less),
    }
}

/// For each buffer that can be dropped the gap with the most steps above the aim in it; the best first, by bytes times
/// those steps over work.
fn promising(rewrite: &mut Rewrite<'_>, now: &State, aim: u64, preference: Preference) -> Vec<Gap> {
    // Steps above the aim before each position.
    let mut above = Vec::with_capacity(now.profile.len() + 1);
    above.push(0u64);
    for &bytes in &now.profile {
        above.push(above[above.len() - 1] + u64::from(bytes > aim));
    }
    let mut found: Vec<(u128, Gap)> = Vec::new();
    for (buffer, uses) in now.view.uses.iter().enumerate() {
        if uses.len() < 2 || !rewrite.can_drop(buffer) {
            continue;
        }
        let inside = |pair: &[usize]| above[pair[1]] - above[pair[0] + 1];
        // Of gaps with as much in them, the first.
        let Some(pair) = uses.windows(2).rev().max_by_key(|pair| inside(pair)) else { continue };
        let (gap, steps) = (Gap { buffer, from: pair[0], to: pair[1] }, inside(pair));
        if steps == 0 {
            continue;
        }
        let work = rewrite.cost_of(gap, &now.view);
        found.push((score(rewrite.bytes(buffer).saturating_mul(steps), work, preference), gap));
    }
    found.sort_by_key(|&(score, gap)| (std::cmp::Reverse(score), gap.buffer));
    found.into_iter().map(|(_, gap)| gap).collect()
}

/// Undoes copies as long as nothing comes above `aim`, the most expensive first.
pub(super) fn prune(rewrite: &mut Rewrite<'_>, aim: u64, effort: &mut Effort) {
    let mut copies: Vec<usize> = rewrite.copies().collect();
    copies.sort_by_key(|&run| (std::cmp::Reverse(rewrite.cost(run)), run));
    let Some(mut now) = state(rewrite, aim, effort) else { return };
    for copy in copies {
        if !rewrite.copies().any(|run| run == copy) {
            continue;
        }
        let mut without = rewrite.clone();
        without.undo(copy, &now.view);
        if without.work >= rewrite.work {
            continue;
        }
        if let Some(state) = state(&without, aim, effort)
            && state.excess == 0
        {
            (*rewrite, now) = (without, state);
        }
    }
}
