//! Random problems from a seed, and a brute force that shares nothing with the solver.
// Each test binary uses its part of this.
#![allow(dead_code)]

use std::collections::BTreeSet;

use kiln_planner::solve::{Buffer, Overlap, Problem, Scratch, Source, Step};

/// A small generator whose sequence is fixed by its seed.
pub(crate) struct Seeded(u64);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What random problems look like.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) steps: usize,
    /// Sizes are below this.
    pub(crate) size: u64,
    /// Alignments are powers of two up to two to this.
    pub(crate) align_log2: u64,
    /// How far back inputs are taken from: 1 gives a chain, large numbers anything.
    pub(crate) reach: u64,
}

/// A random problem; its steps are numbered in random order.
pub(crate) fn random_problem(seed: u64, shape: Shape) -> Problem {
    let mut r = Seeded::new(seed);
    // Some problems have one alignment throughout, as real ones do, some mix them.
    let mixed = r.chance(50);
    let common = r.below(shape.align_log2 + 1);
    let align_log2 = shape.align_log2;
    let align = |r: &mut Seeded| 1u64 << if mixed { r.below(align_log2 + 1) } else { common };
    let tails = r.chance(20);
    let mut problem = Problem::default();
    let buffer = |r: &mut Seeded, source| Buffer {
        size: if r.chance(4) { 0 } else { 1 + r.below(shape.size - 1) },
        align: align(r),
        tail: if tails { r.below(4) } else { 0 },
        source,
        keep: r.chance(6),
    };
    for _ in 0..1 + r.below(2) {
        let b = buffer(&mut r, Source::Input);
        problem.buffers.push(b);
    }
    let mut name: Vec<usize> = (0..shape.steps).collect();
    for i in (1..name.len()).rev() {
        name.swap(i, r.below(i as u64 + 1) as usize);
    }
    let mut steps = vec![Step::default(); shape.steps];
    for at in 0..shape.steps {
        let mut step = Step::default();
        let arity = [1, 1, 1, 2, 2, 3][r.below(6) as usize];
        for _ in 0..arity {
            let known = problem.buffers.len();
            let back = r.below(shape.reach.min(known as u64)) as usize;
            step.inputs.push(known - 1 - back);
        }
        for _ in 0..if r.chance(8) { 2 } else { 1 } {
            step.outputs.push(problem.buffers.len());
            let b = buffer(&mut r, Source::Step(name[at]));
            problem.buffers.push(b);
        }
        if r.chance(20) {
            step.scratch = Some(Scratch { size: r.below(shape.size), align: align(&mut r) });
        }
        for input in step.inputs.clone() {
            for &output in &step.outputs {
                if r.chance(60) {
                    let lag = if r.chance(50) { 0 } else { r.below(shape.size) };
                    let up = r.chance(70);
                    step.overlaps.push(Overlap { input, output, up: up.then_some(lag), down: (!up).then_some(lag) });
                }
            }
        }
        if at > 0 && r.chance(8) {
            step.after.push(name[r.below(at as u64) as usize]);
        }
        steps[name[at]] = step;
    }
    problem.steps = steps;
    problem
}

/// An item of the brute force: bytes, alignment, tail.
type Item = (u64, u64, u64);
/// Items `a` and `b`, least `b - a`, least `a - b`: one of them must hold.
type Apart = (usize, usize, u64, u64);

/// The least arena over all orders and all offsets, by trying them; `None` if it gave up.
/// Arenas of 128 bytes and more are beyond it.
pub(crate) fn brute_force(problem: &Problem) -> Option<u64> {
    let mut brute = Brute { problem, best: 128, seen: BTreeSet::new(), patience: 2_000_000 };
    brute.orders(&mut Vec::new());
    assert!(brute.best < 128, "too large for the brute force");
    (brute.patience > 0).then_some(brute.best)
}

struct Brute<'a> {
    problem: &'a Problem,
    best: u64,
    seen: BTreeSet<Vec<Apart>>,
    /// Items it may still place.
    patience: u64,
}

impl Brute<'_> {
    fn orders(&mut self, order: &mut Vec<usize>) {
        let steps = &self.problem.steps;
        if order.len() == steps.len() {
            self.places(order);
            return;
        }
        for (step, reads) in steps.iter().enumerate() {
            let produced = |b: usize| match self.problem.buffers[b].source {
                Source::Input => true,
                Source::Step(s) => order.contains(&s),
            };
            if !order.contains(&step)
                && reads.inputs.iter().all(|&b| produced(b))
                && reads.after.iter().all(|s| order.contains(s))
            {
                order.push(step);
                self.orders(order);
                order.pop();
            }
        }
    }

    /// Every pair of items live at one position, and what it must satisfy.
    fn places(&mut self, order: &[usize]) {
        let Problem { steps, buffers } = self.problem;
        let end = order.len().saturating_sub(1);
        let mut position = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, &step)| position[step] = at);
        let at = |step: usize| position[step];
        let mut items: Vec<Item> = Vec::new();
        let mut live: Vec<(usize, usize)> = Vec::new();
        for (b, buffer) in buffers.iter().enumerate() {
            let first = match buffer.source {
                Source::Input => 0,
                Source::Step(s) => at(s),
            };
            let readers = (0..steps.len()).filter(|&s| steps[s].inputs.contains(&b));
            let last = readers.map(at).chain([first]).max().unwrap();
            items.push((buffer.size, buffer.align, buffer.tail));
            live.push((first, if buffer.keep { end } else { last }));
        }
        for (s, step) in steps.iter().enumerate() {
            if let Some(scratch) = step.scratch {
                items.push((scratch.size, scratch.align, 0));
                live.push((at(s), at(s)));
            }
        }
        let mut apart = Vec::new();
        for a in 0..items.len() {
            for b in a + 1..items.len() {
                let meet = live[a].0.max(live[b].0) <= live[a].1.min(live[b].1);
                if meet && items[a].0 > 0 && items[b].0 > 0 {
                    let (mut ab, mut ba) = (items[a].0, items[b].0);
                    for (input, output, separation) in [(a, b, &mut ba), (b, a, &mut ab)] {
                        if let Some(lag) = self.lag(order, &live, input, output, true) {
                            *separation = lag.min(items[output].0);
                        }
                    }
                    for (input, output, separation) in [(a, b, &mut ab), (b, a, &mut ba)] {
                        if let Some(lag) = self.lag(order, &live, input, output, false) {
                            let sticks = (items[input].0 + lag).saturating_sub(items[output].0);
                            *separation = sticks.min(items[input].0);
                        }
                    }
                    apart.push((a, b, ab, ba));
                }
            }
        }
        if self.seen.insert(apart.clone()) {
            while let Some(arena) = self.fits(&items, &apart, &live) {
                self.best = arena;
            }
        }
    }

    /// The arena of the first placement better than the best, trying every offset of every item.
    fn fits(&mut self, items: &[Item], apart: &[Apart], live: &[(usize, usize)]) -> Option<u64> {
        // Nothing is better than an arena without bytes.
        let limit = self.best.checked_sub(1)?;
        // The one shortcut: items live together that may not share a byte need all their bytes.
        for at in live.iter().map(|l| l.0) {
            let mut alive: Vec<usize> = (0..items.len()).filter(|&i| live[i].0 <= at && at <= live[i].1).collect();
            alive.sort_by_key(|&i| std::cmp::Reverse(items[i].0));
            let mut strict: Vec<usize> = Vec::new();
            for i in alive {
                let loose = |&(a, b, ab, ba): &Apart| {
                    let other = if a == i { b } else { a };
                    (a == i || b == i) && strict.contains(&other) && (ab < items[a].0 || ba < items[b].0)
                };
                if !apart.iter().any(loose) {
                    strict.push(i);
                }
            }
            if strict.iter().map(|&i| items[i].0).sum::<u64>() > limit {
                return None;
            }
        }
        let offsets: Option<Vec<u128>> = items
            .iter()
            .map(|&(size, align, tail)| {
                let starts = (0..128).filter(|s| s % align == 0 && s + size + tail <= limit);
                let domain = starts.fold(0u128, |d, s| d | 1 << s);
                (domain != 0).then_some(domain)
            })
            .collect();
        let offsets = assign(items, apart, offsets?, &mut vec![false; items.len()], &mut self.patience)?;
        let ends = items.iter().zip(offsets).map(|(i, at)| u64::from(at.trailing_zeros()) + i.0 + i.2);
        Some(ends.max().unwrap_or(0))
    }

    /// The least lag at which a step lets `output` overlap its dying `input`.
    fn lag(&self, order: &[usize], live: &[(usize, usize)], input: usize, output: usize, up: bool) -> Option<u64> {
        let Problem { steps, buffers } = self.problem;
        if input >= buffers.len() || output >= buffers.len() || buffers[input].keep {
            return None;
        }
        let step = &steps[*order.get(live[input].1)?];
        let pair = |o: &&Overlap| o.input == input && o.output == output;
        step.overlaps.iter().filter(pair).filter_map(|o| if up { o.up } else { o.down }).min()
    }
}

/// Fixes the item with the fewest offsets left to each of them in turn.
fn assign(
    items: &[Item],
    apart: &[Apart],
    domains: Vec<u128>,
    fixed: &mut Vec<bool>,
    patience: &mut u64,
) -> Option<Vec<u128>> {
    let Some(item) = (0..items.len()).filter(|&i| !fixed[i]).min_by_key(|&i| domains[i].count_ones()) else {
        return Some(domains);
    };
    fixed[item] = true;
    for at in (0..128u64).filter(|at| domains[item] >> at & 1 != 0) {
        *patience = patience.saturating_sub(1);
        if *patience == 0 {
            break;
        }
        let mut next = domains.clone();
        next[item] = 1 << at;
        for &(a, b, ab, ba) in apart {
            let (other, above, below) = match (a == item, b == item) {
                (true, _) => (b, ab, ba),
                (_, true) => (a, ba, ab),
                _ => continue,
            };
            // Left are the offsets `o` with `at + above <= o` or `o + below <= at`.
            let up_to = |n: u64| if n >= 128 { u128::MAX } else { (1 << n) - 1 };
            next[other] &= !up_to(at + above) | up_to((at + 1).saturating_sub(below));
        }
        if next.iter().all(|d| *d != 0)
            && let Some(found) = assign(items, apart, next, fixed, patience)
        {
            return Some(found);
        }
    }
    fixed[item] = false;
    None
}
