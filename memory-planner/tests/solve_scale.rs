//! Larger graphs: the node budget holds, the answers are valid, the shapes that networks have
//! are proven.

mod solve_support;

use std::time::Instant;

use kiln_planner::solve::{Budget, Buffer, BufferId, Overlap, Problem, Scratch, Solution, Source, Step, check, solve};
use solve_support::{Seeded, Shape, random_problem};

/// Builds a network step by step; every buffer is aligned to `align`.
struct Net {
    problem: Problem,
    align: u64,
}

impl Net {
    fn new(align: u64, input: u64) -> (Self, BufferId) {
        let mut net = Self { problem: Problem::default(), align };
        let input = net.buffer(input, Source::Input);
        (net, input)
    }

    fn buffer(&mut self, size: u64, source: Source) -> BufferId {
        self.problem.buffers.push(Buffer { size, align: self.align, tail: 0, source, keep: false });
        self.problem.buffers.len() - 1
    }

    /// A step that may overlap each input with this distance, if any.
    fn step(&mut self, inputs: &[BufferId], size: u64, up: Option<u64>, scratch: u64) -> BufferId {
        let output = self.buffer(size, Source::Step(self.problem.steps.len()));
        let overlap = |&input: &BufferId| Overlap { input, output, up, down: None };
        self.problem.steps.push(Step {
            inputs: inputs.to_vec(),
            outputs: vec![output],
            scratch: (scratch > 0).then_some(Scratch { size: scratch, align: self.align }),
            overlaps: inputs.iter().filter(|_| up.is_some()).map(overlap).collect(),
            after: Vec::new(),
        });
        output
    }

    fn finish(mut self, output: BufferId) -> Problem {
        self.problem.buffers[output].keep = true;
        self.problem
    }
}

fn solved(name: &str, problem: &Problem, budget: &Budget) -> Solution {
    let start = Instant::now();
    let solution = solve(problem, budget).unwrap();
    let took = start.elapsed();
    check(problem, &solution).unwrap_or_else(|v| panic!("{name}: {v}"));
    assert!(solution.nodes <= budget.nodes, "{name}: {} nodes", solution.nodes);
    assert_eq!(solution, solve(problem, budget).unwrap(), "{name}: a second answer");
    println!(
        "{name}: {took:.1?}, {} nodes, arena {}, lower bound {} ({:.1} % above)",
        solution.nodes,
        solution.arena,
        solution.lower_bound,
        (solution.arena - solution.lower_bound) as f64 * 100.0 / solution.lower_bound as f64
    );
    solution
}

#[test]
fn chain_of_500_steps() {
    for seed in 0..4 {
        let mut r = Seeded::new(seed);
        let (mut net, mut last) = Net::new(16, 3000);
        for _ in 0..500 {
            let up = r.chance(70).then(|| r.below(4000));
            let scratch = if r.chance(30) { r.below(2000) } else { 0 };
            last = net.step(&[last], 200 + r.below(20_000), up, scratch);
        }
        let problem = net.finish(last);
        assert!(solved("chain of 500", &problem, &Budget::default()).optimal);
    }
}

#[test]
fn separable_network() {
    // Depthwise and pointwise convolutions by turns; a pointwise one runs almost in place.
    let (mut net, mut last) = Net::new(4, 49 * 10);
    for block in 0..14u64 {
        let side = 24 - block;
        last = net.step(&[last], side * side * 64, Some(side * 64 + 64), 0);
        last = net.step(&[last], side * side * 64, Some(64), 64);
    }
    let last = net.step(&[last], 12, None, 0);
    assert!(solved("separable", &net.finish(last), &Budget::default()).optimal);
}

#[test]
fn residual_network_of_60_steps() {
    for seed in 0..8 {
        let mut r = Seeded::new(seed);
        let (mut net, mut last) = Net::new([1, 4, 16][seed as usize % 3], 32 * 32 * 3);
        let mut size = 32 * 32 * 16;
        for block in 0..15 {
            let down = block % 4 == 3;
            let lag = |r: &mut Seeded| Some(64 + r.below(3000));
            let skip = last;
            if down {
                size /= 2;
            }
            let lag1 = lag(&mut r);
            let a = net.step(&[skip], size, lag1, if r.chance(30) { 288 } else { 0 });
            let lag2 = lag(&mut r);
            let b = net.step(&[a], size, lag2, 0);
            let lag3 = lag(&mut r);
            let c = if down { net.step(&[skip], size, lag3, 0) } else { skip };
            last = net.step(&[b, c], size, Some(0), 0);
            last = net.step(&[last], size, Some(0), 0);
        }
        let problem = net.finish(last);
        assert!(solved("residual network", &problem, &Budget::default()).optimal);
    }
}

#[test]
fn inception_block_of_12_branches() {
    for seed in 0..6 {
        let mut r = Seeded::new(seed);
        let (mut net, input) = Net::new(4, 3000);
        let stem = net.step(&[input], 8000, None, 0);
        let mut branches = Vec::new();
        let mut sum = 0;
        for _ in 0..12 {
            let mut last = stem;
            let mut size = 0;
            for _ in 0..1 + r.below(3) {
                size = 200 + r.below(3000);
                let up = r.chance(50).then(|| r.below(500));
                last = net.step(&[last], size, up, 0);
            }
            branches.push(last);
            sum += size;
        }
        let concat = net.step(&branches, sum, None, 0);
        let last = net.step(&[concat], 1000, None, 0);
        solved("inception of 12", &net.finish(last), &Budget::default());
    }
}

#[test]
fn random_wide_graphs() {
    for (seed, steps) in [(1, 20), (2, 20), (3, 60), (4, 60), (5, 60), (6, 150), (7, 300)] {
        for reach in [2, 6, 1000] {
            let shape = Shape { steps, size: 5000, align_log2: 4, reach };
            let problem = random_problem(seed, shape);
            let budget = Budget { nodes: 20_000 };
            solved(&format!("{steps} steps, reach {reach}"), &problem, &budget);
        }
    }
}

#[test]
fn independent_steps() {
    let (mut net, input) = Net::new(8, 64);
    for step in 0..300 {
        net.step(&[input], 100 + step, None, 10);
    }
    let problem = net.finish(1);
    assert!(solved("300 independent steps", &problem, &Budget::default()).optimal);
}
