//! Order and place of a stretch's steps.

use super::Group;
use crate::lower::{Lowered, Part, Storage};
use crate::solve::{self, Budget, Live, Problem, Solution, SolveError};

/// A group's chains, solved.
struct Solved {
    chains: Vec<Solution>,
    /// Bytes for any of them, behind those of the bands.
    bytes: u64,
    /// Bytes of each band.
    bands: Vec<u64>,
    align: u64,
}

/// Solves an entry's problem, `full` as its steps and buffers are, with each group as one step.
pub(crate) fn solve(entry: &Lowered, full: &Problem, overlap: bool, budget: &Budget) -> Result<Solution, SolveError> {
    let groups: Vec<Solved> =
        entry.groups.iter().map(|group| solve_chains(entry, group, full, budget)).collect::<Result<_, _>>()?;
    let reduced = Reduced::new(entry, full, &groups, overlap);
    let solution = solve::solve(&reduced.problem, budget)?;
    Ok(reduced.spread(entry, full, &groups, &solution))
}

fn solve_chains(entry: &Lowered, group: &Group, full: &Problem, budget: &Budget) -> Result<Solved, SolveError> {
    let align = group.bands.iter().map(|&b| entry.buffers[b].align).fold(4, u64::max);
    let mut solved = Solved { chains: Vec::new(), bytes: 0, bands: Vec::new(), align };
    for (steps, between) in &group.chains {
        let place = |b: usize| between.iter().position(|&own| own == b);
        let all = |list: &[usize]| list.iter().filter_map(|&b| place(b)).collect::<Vec<_>>();
        let buffer = |&b: &usize| {
            let source = match full.buffers[b].source {
                solve::Source::Step(step) => solve::Source::Step(step - steps.start),
                input => input,
            };
            solve::Buffer { source, ..full.buffers[b].clone() }
        };
        let step = |s: usize| {
            let step = &full.steps[s];
            let overlaps = step
                .overlaps
                .iter()
                .filter_map(|o| Some(solve::Overlap { input: place(o.input)?, output: place(o.output)?, ..*o }));
            let overlaps = overlaps.collect();
            let after = s.checked_sub(steps.start + 1).into_iter().collect();
            solve::Step {
                inputs: all(&step.inputs),
                outputs: all(&step.outputs),
                scratch: step.scratch,
                overlaps,
                after,
            }
        };
        let problem =
            Problem { steps: steps.clone().map(step).collect(), buffers: between.iter().map(buffer).collect() };
        let scratch = problem.steps.iter().filter_map(|step| step.scratch).map(|scratch| scratch.align);
        let aligns = problem.buffers.iter().map(|buffer| buffer.align).chain(scratch);
        solved.align = aligns.fold(solved.align, u64::max);
        let solution = solve::solve(&problem, budget)?;
        solved.bytes = solved.bytes.max(solution.arena);
        solved.chains.push(solution);
    }
    solved.bands = group.bands.iter().map(|&b| entry.buffers[b].bytes.next_multiple_of(solved.align)).collect();
    solved.bytes += solved.bands.iter().sum::<u64>();
    Ok(solved)
}

/// How far the group's output must trail its source, walking up: what is written must end before the first row that
/// this step or a later one reads.
fn lag(entry: &Lowered, group: &Group) -> u64 {
    let part = |storage: Storage, of: usize| match storage {
        Storage::Buffer(b) => entry.buffers[b].part.filter(|part| part.of == of).map(|part| (part.offset, b)),
        _ => None,
    };
    let Some(source) = group.source else { return 0 };
    let (mut lag, mut first) = (0, u64::MAX);
    for step in group.chains.iter().flat_map(|(steps, _)| steps.clone()).rev() {
        let step = &entry.steps[step];
        let reads = step.inputs.iter().filter_map(|&input| part(input, source));
        first = reads.map(|(offset, _)| offset).fold(first, u64::min);
        if let Some((offset, b)) = part(step.output, group.output) {
            lag = lag.max((offset + entry.buffers[b].bytes).saturating_sub(first));
        }
    }
    lag
}

/// The problem with one step for each group.
struct Reduced {
    problem: Problem,
    /// For each of its steps, a step of the entry's, or a group.
    steps: Vec<Result<usize, usize>>,
    /// For each of its buffers, the entry's.
    buffers: Vec<usize>,
}

impl Reduced {
    fn new(entry: &Lowered, full: &Problem, solved: &[Solved], overlap: bool) -> Reduced {
        let group_of = |step: usize| {
            let within = |group: &Group| group.chains.iter().any(|(steps, _)| steps.contains(&step));
            entry.groups.iter().position(within)
        };
        let between: Vec<usize> =
            entry.groups.iter().flat_map(|g| &g.chains).flat_map(|(_, between)| between.iter().copied()).collect();
        let mut steps: Vec<Result<usize, usize>> = Vec::new();
        let mut number = Vec::with_capacity(full.steps.len());
        for step in 0..full.steps.len() {
            let own = group_of(step).map_or(Ok(step), Err);
            let known = steps.iter().position(|&known| known == own).unwrap_or(steps.len());
            if known == steps.len() {
                steps.push(own);
            }
            number.push(known);
        }
        let inner = |b: usize| {
            let band = entry.groups.iter().any(|group| group.bands.contains(&b));
            band || entry.buffers[b].part.is_some() || between.contains(&b)
        };
        let buffers: Vec<usize> = (0..full.buffers.len()).filter(|&b| !inner(b)).collect();
        let place = |b: usize| buffers.iter().position(|&own| own == b);
        let all = |list: &[usize]| list.iter().filter_map(|&b| place(b)).collect::<Vec<_>>();
        let after = |list: &[usize]| list.iter().map(|&step| number[step]).collect::<Vec<_>>();
        let step = |own: &Result<usize, usize>| match *own {
            Ok(step) => {
                let step = &full.steps[step];
                let overlaps = step
                    .overlaps
                    .iter()
                    .filter_map(|o| Some(solve::Overlap { input: place(o.input)?, output: place(o.output)?, ..*o }));
                let overlaps = overlaps.collect();
                let (inputs, outputs) = (all(&step.inputs), all(&step.outputs));
                solve::Step { inputs, outputs, scratch: step.scratch, overlaps, after: after(&step.after) }
            }
            Err(group) => {
                let (solved, group) = (&solved[group], &entry.groups[group]);
                let source = group.source.and_then(place);
                let pair = source.zip(place(group.output)).filter(|_| overlap);
                let up = Some(lag(entry, group));
                let overlaps = pair.map(|(input, output)| solve::Overlap { input, output, up, down: None });
                solve::Step {
                    inputs: source.into_iter().collect(),
                    outputs: all(&[group.output]),
                    scratch: (solved.bytes > 0).then_some(solve::Scratch { size: solved.bytes, align: solved.align }),
                    overlaps: overlaps.into_iter().collect(),
                    after: Vec::new(),
                }
            }
        };
        let own_steps: Vec<solve::Step> = steps.iter().map(step).collect();
        let buffer = |&b: &usize| {
            let source = match full.buffers[b].source {
                solve::Source::Step(step) => solve::Source::Step(number[step]),
                // The output of a group is written by its steps, piece by piece.
                solve::Source::Input => match entry.groups.iter().position(|group| group.output == b) {
                    Some(group) => solve::Source::Step(steps.iter().position(|own| *own == Err(group)).unwrap_or(0)),
                    None => solve::Source::Input,
                },
            };
            solve::Buffer { source, ..full.buffers[b].clone() }
        };
        let problem = Problem { steps: own_steps, buffers: buffers.iter().map(buffer).collect() };
        Reduced { problem, steps, buffers }
    }

    /// The solution for the entry's own steps and buffers.
    fn spread(&self, entry: &Lowered, full: &Problem, solved: &[Solved], solution: &Solution) -> Solution {
        let mut offsets = vec![0; full.buffers.len()];
        let mut scratch_offsets = vec![None; full.steps.len()];
        let mut live = vec![Live { first: 0, last: 0 }; full.buffers.len()];
        let mut order = Vec::new();
        // Where each of the reduced steps begins and ends.
        let mut spans = Vec::new();
        for &at in &solution.order {
            let first = order.len();
            match self.steps[at] {
                Ok(step) => {
                    scratch_offsets[step] = solution.scratch_offsets[at];
                    order.push(step);
                }
                Err(group) => {
                    let mut base = solution.scratch_offsets[at].unwrap_or(0);
                    let first = order.len();
                    let (group, solved) = (&entry.groups[group], &solved[group]);
                    for (&b, bytes) in group.bands.iter().zip(&solved.bands) {
                        offsets[b] = base;
                        base += bytes;
                    }
                    for ((steps, between), chain) in group.chains.iter().zip(&solved.chains) {
                        let begin = order.len();
                        for (inner, &b) in between.iter().enumerate() {
                            offsets[b] = base + chain.offsets[inner];
                            let Live { first, last } = chain.live[inner];
                            live[b] = Live { first: begin + first, last: begin + last };
                        }
                        for (inner, step) in steps.clone().enumerate() {
                            scratch_offsets[step] = chain.scratch_offsets[inner].map(|offset| base + offset);
                            order.push(step);
                        }
                    }
                    let last = order.len().saturating_sub(1);
                    group.bands.iter().for_each(|&b| live[b] = Live { first, last });
                }
            }
            spans.push((first, order.len().saturating_sub(1)));
        }
        for (own, &b) in self.buffers.iter().enumerate() {
            offsets[b] = solution.offsets[own];
            let Live { first, last } = solution.live[own];
            let span = |at: usize| spans.get(at).copied().unwrap_or((0, 0));
            live[b] = Live { first: span(first).0, last: span(last).1 };
        }
        for (b, buffer) in entry.buffers.iter().enumerate() {
            if let Some(Part { of, offset }) = buffer.part {
                (offsets[b], live[b]) = (offsets[of] + offset, live[of]);
            }
        }
        let chains = || solved.iter().flat_map(|group| &group.chains);
        Solution {
            order,
            offsets,
            scratch_offsets,
            live,
            arena: solution.arena,
            lower_bound: solution.lower_bound,
            optimal: solution.optimal && chains().all(|chain| chain.optimal),
            nodes: solution.nodes + chains().map(|chain| chain.nodes).sum::<u64>(),
        }
    }
}
