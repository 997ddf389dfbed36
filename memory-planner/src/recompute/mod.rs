//! Computing values again in place of keeping them, to fit an arena into a limit.
//!
//! # What is chosen
//!
//! A value that is read early and late, as an activation is by the forward and by the backward pass, takes memory
//! all the while. Instead the step that computed it may run a second time, right before the late readers: a *copy*,
//! with the same kernel over the same inputs, so not a bit of any result changes. What the copy reads must be there:
//! inputs that are gone by then have copies of their own, back to values that are kept (Chen et al., 2016, call those
//! checkpoints).
//!
//! # How
//!
//! Which copies are best is a hard problem (Jain et al., 2020, "Checkmate", solve it as an integer program), so this is
//! a local search. What it lowers is the *excess*: the bytes above the limit, summed over the steps in the order they
//! run. A move either drops a value in a gap between two of its readers, or keeps one again that was dropped. Of
//! the drops the one with the most excess removed for its work is taken, tried in the order of bytes times length of the
//! gap over work (as Kirisame et al., 2021, "DTR", choose what to evict); a value that is kept again and lowers the
//! excess saves work besides and goes first. When there is no excess left, copies that are not needed are undone, the
//! most expensive first. The order of the steps stays: a copy runs where it is first read.
//!
//! Its effort is counted in steps walked, never in seconds, so the result is the same on every machine.

mod rewrite;
mod search;

use crate::solve::{self, Budget, BufferId, Problem, Solution, SolveError, StepId};

use rewrite::{Base, Rewrite};
use search::{Effort, Preference, descend, prune};

/// Steps to fit into a limit.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The steps and what they read and write. One that has a single output may run again, before every step that must
    /// come after it though no buffer says so.
    pub problem: &'a Problem,
    /// How it is solved without copies: the order that all choices are made in.
    pub solution: &'a Solution,
    /// What running each step costs, in any unit.
    pub work: &'a [u64],
}

/// A step that runs again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copy {
    /// The step.
    pub of: StepId,
    /// What it reads, in the step's order.
    pub inputs: Vec<BufferId>,
}

/// Steps with copies, and a place for everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fitted {
    /// Copies: steps numbered after the task's own, their outputs buffers numbered after the task's own.
    pub copies: Vec<Copy>,
    /// For each of the task's steps what it reads, in the step's order: its own buffers, or copies' outputs.
    pub inputs: Vec<Vec<BufferId>>,
    /// The problem with the copies in it.
    pub problem: Problem,
    /// Its solution, which is within the limit.
    pub solution: Solution,
    /// What the copies cost.
    pub work: u64,
}

/// No choice of copies that the search found fits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Short {
    /// The least limit found that is reached.
    pub least: u64,
    /// What reaches it.
    pub fitted: Fitted,
}

impl Short {
    /// A task whose steps may not run again.
    pub(crate) fn as_it_is(task: &Task<'_>) -> Box<Short> {
        let inputs = task.problem.steps.iter().map(|step| step.inputs.clone()).collect();
        let (problem, solution) = (task.problem.clone(), task.solution.clone());
        Box::new(Short { least: solution.arena, fitted: Fitted { copies: vec![], inputs, problem, solution, work: 0 } })
    }
}

/// How often the limit that the search aims at is lowered, where placement leaves gaps.
const AIMS: usize = 6;
/// How often a smaller limit than the least reached is tried, where the one asked for is not.
const TRIES: usize = 6;
/// Steps that the search for a limit may walk, with each preference.
const WALKED: u64 = 8_000_000;
/// The same for a limit that nobody asked for.
const WALKED_TRYING: u64 = 4_000_000;

/// Finds copies with which the arena is at most `limit`, with little work.
///
/// # Errors
/// [`SolveError`] if the problem contradicts itself, or the solution's order is none of its steps.
pub fn fit(task: &Task<'_>, limit: u64, budget: &Budget) -> Result<Result<Fitted, Box<Short>>, SolveError> {
    // Also the check of everything that the search takes for granted.
    solve::profile(task.problem, &task.solution.order)?;
    let base = Base::new(task);
    let mut unaided = settle(&Rewrite::new(&base))?;
    unaided.solution = task.solution.clone();
    let mut lowest = unaided.solution.arena;
    if lowest <= limit {
        return Ok(Ok(unaided));
    }
    let search = Search { base: &base, budget };
    if let Some(mut fitted) = search.reach(limit, WALKED, &mut lowest)? {
        // Rules were enough to find it; a search may do better yet.
        let searched = solve::solve_from(&fitted.problem, budget, &fitted.solution.order)?;
        if searched.arena <= fitted.solution.arena {
            fitted.solution = searched;
        }
        return Ok(Ok(fitted));
    }
    let mut short = Short { least: unaided.solution.arena, fitted: unaided };
    let mut low = limit;
    for _ in 0..TRIES {
        let aim = if (low + 1..short.least).contains(&lowest) { lowest } else { low + (short.least - low) / 2 };
        if aim <= low {
            break;
        }
        match search.reach(aim, WALKED_TRYING, &mut lowest)? {
            Some(fitted) => short = Short { least: aim, fitted },
            None => low = aim,
        }
    }
    Ok(Err(Box::new(short)))
}

/// Looks for copies that reach a limit.
struct Search<'a> {
    base: &'a Base<'a>,
    budget: &'a Budget,
}

impl Search<'_> {
    /// Copies with which the arena is at most `limit`, if some are found; `lowest` becomes the smallest arena seen.
    fn reach(&self, limit: u64, walked: u64, lowest: &mut u64) -> Result<Option<Fitted>, SolveError> {
        let mut found: Option<Fitted> = None;
        for preference in [Preference::Work, Preference::Bytes] {
            let fitted = self.attempt(limit, preference, &mut Effort::new(walked), lowest)?;
            let better = |f: &Fitted| found.as_ref().is_none_or(|known| f.work < known.work);
            found = fitted.filter(better).or(found);
        }
        Ok(found)
    }

    /// [`Search::reach`] with one preference.
    fn attempt(
        &self,
        limit: u64,
        preference: Preference,
        effort: &mut Effort,
        lowest: &mut u64,
    ) -> Result<Option<Fitted>, SolveError> {
        let mut rewrite = Rewrite::new(self.base);
        let mut aim = limit;
        for _ in 0..AIMS {
            let fits = descend(&mut rewrite, aim, preference, effort);
            if fits {
                let mut pruned = rewrite.clone();
                prune(&mut pruned, aim, effort);
                let fitted = self.place(&pruned, limit)?;
                *lowest = fitted.solution.arena.min(*lowest);
                if fitted.solution.arena <= limit {
                    return Ok(Some(fitted));
                }
            }
            // Without what pruning took away there may be other gaps between the buffers.
            let fitted = self.place(&rewrite, limit)?;
            *lowest = fitted.solution.arena.min(*lowest);
            if fitted.solution.arena <= limit {
                return Ok(Some(fitted));
            }
            let over = fitted.solution.arena - limit;
            if !fits || over > aim {
                break;
            }
            aim -= over;
        }
        Ok(None)
    }

    /// A place for everything: by rules or, where they leave too large gaps, by a part of the search.
    fn place(&self, rewrite: &Rewrite<'_>, limit: u64) -> Result<Fitted, SolveError> {
        let mut fitted = settle(rewrite)?;
        let nodes = self.budget.nodes / 8;
        if nodes > 0 && fitted.solution.arena > limit && fitted.solution.lower_bound <= limit {
            let searched = solve::solve_from(&fitted.problem, &Budget { nodes }, &fitted.solution.order)?;
            if searched.arena < fitted.solution.arena {
                fitted.solution = searched;
            }
        }
        Ok(fitted)
    }
}

/// A place for everything, by rules.
fn settle(rewrite: &Rewrite<'_>) -> Result<Fitted, SolveError> {
    // Only what can be run is ever kept.
    let order = rewrite.order().unwrap_or_default();
    let (problem, order) = rewrite.problem(&order);
    let solution = solve::solve_from(&problem, &Budget { nodes: 0 }, &order)?;
    let (copies, inputs) = rewrite.result();
    Ok(Fitted { copies, inputs, problem, solution, work: rewrite.work })
}
