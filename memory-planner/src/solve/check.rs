//! An independent check of a solution, written to be obviously right rather than fast.

use std::fmt;

use super::problem::{BufferId, Live, Problem, Scratch, Solution, Source, StepId};

/// A place of memory that a violation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A buffer.
    Buffer(BufferId),
    /// The scratch of a step.
    Scratch(StepId),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer(buffer) => write!(f, "buffer {buffer}"),
            Self::Scratch(step) => write!(f, "the scratch of step {step}"),
        }
    }
}

/// What is wrong with a solution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A list of the solution, or an id in the problem, does not match the problem.
    Shape {
        /// Which list.
        what: &'static str,
        /// Entries, or the id, there are.
        found: usize,
        /// Entries there should be.
        expected: usize,
    },
    /// A step is missing from the order, or stands in it twice.
    NotAPermutation {
        /// The step.
        step: StepId,
        /// How often it stands in the order.
        times: usize,
    },
    /// A step runs before one it depends on.
    TooEarly {
        /// The step.
        step: StepId,
        /// What must run before it.
        needs: StepId,
    },
    /// A lifetime in the solution is not the one that follows from the order.
    Lifetime {
        /// The buffer.
        buffer: BufferId,
        /// What the solution says.
        found: Live,
        /// What the order says.
        expected: Live,
    },
    /// An offset that is not a multiple of the alignment.
    Misaligned {
        /// What is misaligned.
        place: Place,
        /// Its offset.
        offset: u64,
        /// Its alignment.
        align: u64,
    },
    /// Two that are live together share bytes without permission.
    Overlapping {
        /// One of them.
        a: Place,
        /// The other.
        b: Place,
        /// Position at which both are live.
        at: usize,
    },
    /// The arena is not the largest end.
    Arena {
        /// What the solution says.
        found: u64,
        /// The largest end, tails included.
        expected: u64,
    },
    /// The lower bound is above the arena, or `optimal` does not say whether they are equal.
    Claim {
        /// Bytes of the arena.
        arena: u64,
        /// The lower bound stated.
        lower_bound: u64,
        /// The claim stated.
        optimal: bool,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { what, found, expected } => {
                write!(f, "{what}: found {found}, expected {expected}")
            }
            Self::NotAPermutation { step, times } => {
                write!(f, "step {step} stands {times} times in the order")
            }
            Self::TooEarly { step, needs } => write!(f, "step {step} runs before step {needs}"),
            Self::Lifetime { buffer, found, expected } => write!(
                f,
                "buffer {buffer} is said to live from {} to {}, but lives from {} to {}",
                found.first, found.last, expected.first, expected.last
            ),
            Self::Misaligned { place, offset, align } => {
                write!(f, "{place} lies at {offset}, which is not a multiple of {align}")
            }
            Self::Overlapping { a, b, at } => {
                write!(f, "{a} and {b} share bytes without permission at position {at}")
            }
            Self::Arena { found, expected } => {
                write!(f, "the arena is said to have {found} bytes, but {expected} are used")
            }
            Self::Claim { arena, lower_bound, optimal } => write!(
                f,
                "arena {arena} with lower bound {lower_bound} is said to be {}optimal",
                if *optimal { "" } else { "not " }
            ),
        }
    }
}

impl std::error::Error for Violation {}

/// What is placed: where, how large, how aligned, live when.
struct Placed {
    place: Place,
    offset: u64,
    size: u64,
    align: u64,
    tail: u64,
    live: Live,
}

/// Checks that `solution` solves `problem`: the order, the lifetimes, every pair that is live
/// together, alignment, the size of the arena, and that the claims agree with each other.
///
/// It cannot check that the lower bound is one.
///
/// # Errors
/// The first violation found.
pub fn check(problem: &Problem, solution: &Solution) -> Result<(), Violation> {
    let position = positions(problem, solution)?;
    let placed = placed(problem, solution, &position)?;
    let mut end = 0u128;
    for p in &placed {
        if p.offset.checked_rem(p.align) != Some(0) {
            let Placed { place, offset, align, .. } = *p;
            return Err(Violation::Misaligned { place, offset, align });
        }
        end = end.max(u128::from(p.offset) + u128::from(p.size) + u128::from(p.tail));
    }
    for (i, a) in placed.iter().enumerate() {
        for b in &placed[..i] {
            let at = a.live.first.max(b.live.first);
            let together = at <= a.live.last && at <= b.live.last && a.size > 0 && b.size > 0;
            if together && !disjoint(a, b) && !permitted(problem, solution, a, b) && !permitted(problem, solution, b, a)
            {
                return Err(Violation::Overlapping { a: a.place, b: b.place, at });
            }
        }
    }
    if u128::from(solution.arena) != end {
        let expected = u64::try_from(end).unwrap_or(u64::MAX);
        return Err(Violation::Arena { found: solution.arena, expected });
    }
    let Solution { arena, lower_bound, optimal, .. } = *solution;
    if lower_bound > arena || optimal != (lower_bound == arena) {
        return Err(Violation::Claim { arena, lower_bound, optimal });
    }
    Ok(())
}

fn shape(what: &'static str, found: usize, expected: usize) -> Result<(), Violation> {
    if found == expected { Ok(()) } else { Err(Violation::Shape { what, found, expected }) }
}

/// The position of each step, once the order is known to be a topological one.
fn positions(problem: &Problem, solution: &Solution) -> Result<Vec<usize>, Violation> {
    let steps = problem.steps.len();
    shape("order", solution.order.len(), steps)?;
    let mut position = vec![0; steps];
    let mut times = vec![0; steps];
    for (at, &step) in solution.order.iter().enumerate() {
        let Some(time) = times.get_mut(step) else {
            return Err(Violation::Shape { what: "step", found: step, expected: steps });
        };
        *time += 1;
        position[step] = at;
    }
    if let Some(step) = times.iter().position(|&t| t != 1) {
        return Err(Violation::NotAPermutation { step, times: times[step] });
    }
    for (step, s) in problem.steps.iter().enumerate() {
        let producers = s.inputs.iter().filter_map(|&i| match problem.buffers.get(i)?.source {
            Source::Step(producer) => Some(producer),
            Source::Input => None,
        });
        for needs in producers.chain(s.after.iter().copied()) {
            let Some(&before) = position.get(needs) else {
                return Err(Violation::Shape { what: "step", found: needs, expected: steps });
            };
            if before >= position[step] {
                return Err(Violation::TooEarly { step, needs });
            }
        }
    }
    Ok(position)
}

fn placed(problem: &Problem, solution: &Solution, position: &[usize]) -> Result<Vec<Placed>, Violation> {
    shape("offsets", solution.offsets.len(), problem.buffers.len())?;
    shape("lifetimes", solution.live.len(), problem.buffers.len())?;
    shape("scratch offsets", solution.scratch_offsets.len(), problem.steps.len())?;
    let mut placed = Vec::new();
    for (buffer, b) in problem.buffers.iter().enumerate() {
        let first = match b.source {
            Source::Input => 0,
            Source::Step(step) => {
                *position.get(step).ok_or(Violation::Shape { what: "step", found: step, expected: position.len() })?
            }
        };
        let mut last = first;
        for (step, s) in problem.steps.iter().enumerate() {
            if s.inputs.contains(&buffer) {
                last = last.max(position[step]);
            }
        }
        if b.keep {
            last = position.len().saturating_sub(1);
        }
        let expected = Live { first, last };
        let found = solution.live[buffer];
        if found != expected {
            return Err(Violation::Lifetime { buffer, found, expected });
        }
        placed.push(Placed {
            place: Place::Buffer(buffer),
            offset: solution.offsets[buffer],
            size: b.size,
            align: b.align,
            tail: b.tail,
            live: expected,
        });
    }
    for (step, s) in problem.steps.iter().enumerate() {
        match (s.scratch, solution.scratch_offsets[step]) {
            (Some(Scratch { size, align }), Some(offset)) => placed.push(Placed {
                place: Place::Scratch(step),
                offset,
                size,
                align,
                tail: 0,
                live: Live { first: position[step], last: position[step] },
            }),
            (None, None) => {}
            (wanted, found) => {
                let [found, wanted] = [found.is_some(), wanted.is_some()].map(usize::from);
                shape("scratch of a step", found, wanted)?;
            }
        }
    }
    Ok(placed)
}

fn end(p: &Placed) -> u128 {
    u128::from(p.offset) + u128::from(p.size)
}

fn disjoint(a: &Placed, b: &Placed) -> bool {
    end(a) <= b.offset.into() || end(b) <= a.offset.into()
}

/// Whether some step lets `output` lie over `input` the way it does.
fn permitted(problem: &Problem, solution: &Solution, output: &Placed, input: &Placed) -> bool {
    let (Place::Buffer(o), Place::Buffer(i)) = (output.place, input.place) else {
        return false;
    };
    let dies = |step: StepId| solution.order.get(input.live.last) == Some(&step) && !problem.buffers[i].keep;
    problem.steps.iter().enumerate().any(|(step, s)| {
        dies(step)
            && s.outputs.contains(&o)
            && s.inputs.contains(&i)
            && s.overlaps.iter().filter(|p| p.input == i && p.output == o).any(|p| {
                let [out_at, in_at] = [output, input].map(|p| u128::from(p.offset));
                let up = p.up.is_some_and(|lag| out_at + u128::from(lag) <= in_at);
                let down = p.down.is_some_and(|lag| out_at >= in_at && end(output) >= end(input) + u128::from(lag));
                up || down
            })
    })
}
