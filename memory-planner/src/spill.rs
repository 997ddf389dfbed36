//! Buffers of an entry over several banks of RAM, where one is too small: what is touched most lies in the fastest.
//!
//! A bank takes what is left, and gives up, from where it is fullest, the buffer whose bytes are touched least, until the
//! rest fits; then it takes back what still does. The first bank also fixes the order of the steps, which the others' buffers
//! obey. Within a bank buffers are placed as ever, so outputs lie over inputs as far as lags allow.

use crate::lower::{Lowered, Storage};
use crate::solve::{self, Budget, BufferId, Problem, Scratch, Solution, SolveError, Source, StepId};

/// A bank of RAM, as a board has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// Its bytes: a plan that fits the first bank's stays in that bank.
    pub bytes: u64,
    /// How many of them a plan over several banks may take; the rest is for stack and the firmware's own data.
    pub free: u64,
    /// Whether the CPU reaches it without wait states.
    pub fast: bool,
}

/// In an offset of a solution: where the bank's number begins. Buffers of several banks so have offsets in one space, in
/// which none overlaps one of another bank.
const BANK: u32 = 48;

/// The bank of an offset of a solution, and the offset in that bank.
pub(crate) fn split(offset: u64) -> (u8, u64) {
    ((offset >> BANK) as u8, offset & ((1 << BANK) - 1))
}

/// What an entry takes of the banks.
pub(crate) struct Spilled {
    /// Offsets with banks; the arena is all banks together.
    pub solution: Solution,
    /// Bytes of each bank, by number.
    pub banks: Vec<u64>,
}

/// How often each buffer's bytes are read and written in a run, about. A multiply-accumulate takes an element of its input.
pub(crate) fn touched(entry: &Lowered) -> Vec<u64> {
    let mut touched = vec![0u64; entry.buffers.len()];
    for step in &entry.steps {
        let buffer = |storage: &Storage| match storage {
            Storage::Buffer(b) => Some(*b),
            _ => None,
        };
        let inputs: Vec<usize> = step.inputs.iter().filter_map(buffer).collect();
        let each = step.cost.macs / inputs.len().max(1) as u64;
        for &b in &inputs {
            touched[b] = touched[b].saturating_add(each.max(entry.buffers[b].bytes));
        }
        if let Some(b) = buffer(&step.output) {
            touched[b] = touched[b].saturating_add(entry.buffers[b].bytes);
        }
    }
    touched
}

/// Spreads the buffers of `problem` over `rooms`, which are banks by number and the bytes they have; `None` where they are
/// too small. `plain` is the solution in one bank, of any size.
pub(crate) fn spill(
    problem: &Problem,
    plain: &Solution,
    touched: &[u64],
    rooms: &[(u8, u64)],
    budget: &Budget,
) -> Result<Option<Spilled>, SolveError> {
    let mut spilled =
        Spilled { solution: plain.clone(), banks: vec![0; rooms.iter().map(|r| r.0 as usize + 1).max().unwrap_or(0)] };
    let solution = &mut spilled.solution;
    let mut left: Vec<bool> = vec![true; problem.buffers.len()];
    let mut scratch = problem.steps.iter().any(|step| step.scratch.is_some());
    let (mut order, mut fixed) = (plain.order.clone(), false);
    solution.arena = 0;
    for &(bank, room) in rooms {
        let task = Part { problem, touched, room, budget, order: &order, fixed };
        // Scratch is what is touched most: it goes where there is room for all of it.
        let whole = task.choose(&left, scratch)?;
        let found = if whole.is_none() && scratch { task.choose(&left, false)? } else { whole };
        let Some((taken, part)) = found else { continue };
        let base = u64::from(bank) << BANK;
        for (&buffer, &offset) in taken.buffers.iter().zip(&part.offsets) {
            solution.offsets[buffer] = base | offset;
            left[buffer] = false;
        }
        if taken.scratch {
            scratch = false;
            solution.scratch_offsets = part.scratch_offsets.iter().map(|s| s.map(|offset| base | offset)).collect();
        }
        spilled.banks[bank as usize] = part.arena;
        solution.arena += part.arena;
        solution.nodes += part.nodes;
        (order, fixed) = (part.order, true);
        if !scratch && !left.contains(&true) {
            solution.live = lives(problem, &order);
            solution.order = order;
            solution.optimal = solution.arena == solution.lower_bound;
            return Ok(Some(spilled));
        }
    }
    Ok(None)
}

/// What goes into a bank.
struct Taken {
    buffers: Vec<BufferId>,
    scratch: bool,
}

/// The choice of what goes into one bank.
struct Part<'a> {
    problem: &'a Problem,
    touched: &'a [u64],
    room: u64,
    budget: &'a Budget,
    /// The order of the steps; whether another may be taken.
    order: &'a [StepId],
    fixed: bool,
}

impl Part<'_> {
    /// Of the buffers that are left those that go into this bank, and their places; `None` where not even the scratch does.
    fn choose(&self, left: &[bool], scratch: bool) -> Result<Option<(Taken, Solution)>, SolveError> {
        let mut here = left.to_vec();
        let mut order = self.order.to_vec();
        let mut out = Vec::new();
        loop {
            // What no placement can do needs no search.
            let full = match self.victim(&here, scratch, &order)? {
                Some(victim) => Some(victim),
                None => match self.fits(&here, scratch, &order)? {
                    Some(solution) => {
                        order = solution.order;
                        break;
                    }
                    None => self.least(&here, &order, None),
                },
            };
            let Some(victim) = full else { return Ok(None) };
            here[victim] = false;
            out.push(victim);
        }
        // Back with what still fits, the most touched first.
        out.sort_by(|&a, &b| self.density(b).total_cmp(&self.density(a)).then(a.cmp(&b)));
        for buffer in out {
            here[buffer] = true;
            match self.fits(&here, scratch, &order)? {
                Some(solution) => order = solution.order,
                None => here[buffer] = false,
            }
        }
        let Some(solution) = self.fits(&here, scratch, &order)? else { return Ok(None) };
        let buffers = (0..here.len()).filter(|&b| here[b]).collect();
        Ok(Some((Taken { buffers, scratch }, solution)))
    }

    /// Bytes touched for each byte of a buffer.
    fn density(&self, buffer: BufferId) -> f64 {
        self.touched[buffer] as f64 / self.problem.buffers[buffer].size.max(1) as f64
    }

    /// Where the buffers lie that are here, if there is room.
    fn fits(&self, here: &[bool], scratch: bool, order: &[StepId]) -> Result<Option<Solution>, SolveError> {
        let part = self.part(here, scratch);
        let solution = solve::solve_from(&part, self.budget, order)?;
        Ok(Some(solution).filter(|solution| solution.arena <= self.room))
    }

    /// The buffer to give up where the bank is fuller than it can be; `None` where it need not be.
    fn victim(&self, here: &[bool], scratch: bool, order: &[StepId]) -> Result<Option<BufferId>, SolveError> {
        let part = self.part(here, scratch);
        let profile = solve::profile(&part, order)?;
        let full = profile.iter().enumerate().rev().max_by_key(|(_, bytes)| **bytes);
        let full = full.filter(|(_, bytes)| **bytes > self.room);
        // Nothing but scratch may be alive there; then anything goes, and in the end nothing is left.
        Ok(full.and_then(|(at, _)| self.least(here, order, Some(at)).or_else(|| self.least(here, order, None))))
    }

    /// The buffer here that is touched least of those alive at a position of the order, or of all.
    fn least(&self, here: &[bool], order: &[StepId], at: Option<usize>) -> Option<BufferId> {
        let lives = lives(self.problem, order);
        let alive = |b: &usize| here[*b] && at.is_none_or(|at| (lives[*b].first..=lives[*b].last).contains(&at));
        let sized = |b: &usize| self.problem.buffers[*b].size > 0;
        (0..here.len()).filter(alive).filter(sized).min_by(|&a, &b| {
            let larger = self.problem.buffers[b].size.cmp(&self.problem.buffers[a].size);
            self.density(a).total_cmp(&self.density(b)).then(larger)
        })
    }

    /// The problem of the buffers here alone, whose steps keep their order as far as other buffers ask for it.
    fn part(&self, here: &[bool], scratch: bool) -> Problem {
        let ids: Vec<BufferId> = (0..here.len()).filter(|&b| here[b]).collect();
        let mut numbers = vec![None; here.len()];
        ids.iter().enumerate().for_each(|(number, &b)| numbers[b] = Some(number));
        let mut steps: Vec<solve::Step> = self
            .problem
            .steps
            .iter()
            .map(|step| {
                let elsewhere = step.inputs.iter().filter(|&&b| !here[b]).map(|&b| self.problem.buffers[b].source);
                let producers = elsewhere.filter_map(|source| match source {
                    Source::Step(step) => Some(step),
                    Source::Input => None,
                });
                let pair = |overlap: &solve::Overlap| {
                    let (input, output) = (numbers[overlap.input]?, numbers[overlap.output]?);
                    Some(solve::Overlap { input, output, ..*overlap })
                };
                solve::Step {
                    inputs: step.inputs.iter().filter_map(|&b| numbers[b]).collect(),
                    outputs: step.outputs.iter().filter_map(|&b| numbers[b]).collect(),
                    scratch: step.scratch.filter(|_: &Scratch| scratch),
                    overlaps: step.overlaps.iter().filter_map(pair).collect(),
                    after: step.after.iter().copied().chain(producers).collect(),
                }
            })
            .collect();
        if self.fixed {
            for pair in self.order.windows(2) {
                steps[pair[1]].after.push(pair[0]);
            }
        }
        Problem { steps, buffers: ids.iter().map(|&b| self.problem.buffers[b].clone()).collect() }
    }
}

/// When each buffer is live in an order of the steps.
fn lives(problem: &Problem, order: &[StepId]) -> Vec<solve::Live> {
    let mut position = vec![0; problem.steps.len()];
    order.iter().enumerate().for_each(|(at, &step)| position[step] = at);
    let end = order.len().saturating_sub(1);
    let mut lives: Vec<solve::Live> = problem
        .buffers
        .iter()
        .map(|buffer| {
            let first = match buffer.source {
                Source::Input => 0,
                Source::Step(step) => position[step],
            };
            solve::Live { first, last: if buffer.keep { end } else { first } }
        })
        .collect();
    for (step, at) in problem.steps.iter().zip(&position) {
        for &b in &step.inputs {
            lives[b].last = lives[b].last.max(*at);
        }
    }
    lives
}
