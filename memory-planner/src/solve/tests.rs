//! Parts of the search against slow versions of themselves.

use super::conflict::Conflicts;
use super::exact::{Verdict, fit};
use super::greedy::{lowest, place};
use super::model::Model;
use super::order::{Meter, best_first};
use super::walk::Walk;
use super::*;

/// A problem in which each step reads one or two of the last few buffers.
fn problem(steps: usize, seed: u64, align: u64) -> Problem {
    let mut state = seed;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let buffer = |size, source| Buffer { size, align, tail: 0, source, keep: false };
    let mut problem = Problem::default();
    problem.buffers.push(buffer(1 + below(9), Source::Input));
    for step in 0..steps {
        let output = problem.buffers.len();
        let mut one = Step { outputs: vec![output], ..Step::default() };
        for _ in 0..1 + below(2) {
            let input = output - 1 - below(output.min(4) as u64) as usize;
            one.inputs.push(input);
            if below(2) == 0 {
                let overlap = Overlap { input, output, up: Some(below(5)), down: None };
                one.overlaps.push(overlap);
            }
        }
        problem.buffers.push(buffer(1 + below(9), Source::Step(step)));
        problem.steps.push(one);
    }
    problem
}

fn meter() -> Meter {
    Meter { used: 0, limit: u64::MAX }
}

/// The least largest bound over all orders that begin like `walk`.
fn least_bound(model: &Model, walk: &Walk, spent: u64) -> u64 {
    let moves = walk.moves(model);
    let rest = |m: &walk::Move| {
        let mut walk = walk.clone();
        walk.run(model, m.step);
        least_bound(model, &walk, spent.max(m.bound))
    };
    moves.iter().map(rest).min().unwrap_or(spent)
}

#[test]
fn best_first_search_finds_the_least_bound_of_all_orders() {
    for seed in 0..300 {
        let align = 1 << (seed % 3);
        let model = Model::new(&problem(7, seed, align)).unwrap();
        let floor = bound::static_bound(&model);
        let expected = least_bound(&model, &Walk::new(&model), 0);
        assert!(floor <= expected, "seed {seed}");
        let searched = best_first(&model, floor, u64::MAX, &mut meter());
        assert_eq!(searched.lower_bound, expected, "seed {seed}");
        assert_eq!(searched.order.unwrap().bound, expected, "seed {seed}");
        for nodes in 0..10 {
            let mut few = Meter { used: 0, limit: nodes };
            let cut = best_first(&model, floor, u64::MAX, &mut few);
            assert!(cut.lower_bound <= expected, "seed {seed}, {nodes} nodes");
        }
    }
}

#[test]
fn a_walk_can_be_resumed_from_its_set_of_steps() {
    for seed in 0..50 {
        let model = Model::new(&problem(12, seed, 1)).unwrap();
        let mut walk = Walk::new(&model);
        while let Some(m) = walk.moves(&model).last().copied() {
            walk.run(&model, m.step);
            let mut resumed = Walk::after(&model, &walk.done);
            resumed.live.sort_unstable();
            walk.live.sort_unstable();
            assert_eq!(resumed.live, walk.live);
            let costs = |w: &Walk| -> Vec<(usize, u64, u64)> {
                w.moves(&model).iter().map(|m| (m.step, m.bound, m.after)).collect()
            };
            assert_eq!(costs(&resumed), costs(&walk));
        }
        assert_eq!(walk.ran, 12);
    }
}

/// Whether `item` at `at` keeps apart from everything placed.
fn apart(conflicts: &Conflicts, placed: &[Option<u64>], item: usize, at: u64) -> bool {
    conflicts.edges[item]
        .iter()
        .all(|e| placed[e.other].is_none_or(|other| at + e.below <= other || other + e.above <= at))
}

#[test]
fn the_lowest_offset_is_the_lowest() {
    for seed in 0..100 {
        let align = 1 << (seed % 3);
        let model = Model::new(&problem(10, seed, align)).unwrap();
        let order: Vec<usize> = (0..10).collect();
        let conflicts = Conflicts::new(&model, &order);
        let mut placed = vec![None; model.items.len()];
        for step in 0..model.items.len() {
            let item = (step * 7 + seed as usize) % model.items.len();
            let first = (0..).step_by(align as usize).find(|&a| apart(&conflicts, &placed, item, a));
            let found = lowest(&model, &conflicts, &placed, item);
            assert_eq!(Some(found), first, "seed {seed}");
            placed[item] = Some(found + align * (seed % 4));
            if !apart(&conflicts, &placed, item, found + align * (seed % 4)) {
                placed[item] = Some(found);
            }
        }
    }
}

/// Every sequence placed by the rule of [`place`]: a way to the optimum without any pruning.
fn least_arena(model: &Model, conflicts: &Conflicts, sequence: &mut Vec<usize>) -> u64 {
    let count = model.items.len();
    if sequence.len() == count {
        return place(model, conflicts, sequence).arena;
    }
    let mut least = u64::MAX;
    for item in 0..count {
        if !sequence.contains(&item) {
            sequence.push(item);
            least = least.min(least_arena(model, conflicts, sequence));
            sequence.pop();
        }
    }
    least
}

#[test]
fn exact_placement_matches_all_sequences() {
    for seed in 0..150 {
        let model = Model::new(&problem(6, seed, 1 << (seed % 3))).unwrap();
        let order: Vec<usize> = (0..6).collect();
        let conflicts = Conflicts::new(&model, &order);
        let least = least_arena(&model, &conflicts, &mut Vec::new());
        for target in least.saturating_sub(3)..least + 3 {
            match fit(&model, &conflicts, target, &mut meter()) {
                Verdict::Fits(p) => {
                    assert!(least <= p.arena && p.arena <= target, "seed {seed}, target {target}");
                }
                Verdict::Impossible => assert!(target < least, "seed {seed}, target {target}"),
                Verdict::OutOfNodes => panic!("seed {seed}, target {target}"),
            }
        }
    }
}

#[test]
fn bounds_known_by_hand() {
    let buffer = |size, align, tail, source| Buffer { size, align, tail, source, keep: false };
    let bound = |buffers: &[(u64, u64, u64)], overlaps: &[(usize, Option<u64>, Option<u64>)]| {
        let output = buffers.len() - 1;
        let overlaps = overlaps.iter().map(|&(input, up, down)| Overlap { input, output, up, down });
        let mut step = Step { inputs: (0..output).collect(), ..Step::default() };
        step.outputs.push(output);
        step.overlaps.extend(overlaps);
        let source = |i| if i == output { Source::Step(0) } else { Source::Input };
        let sized = |(i, &(size, align, tail))| buffer(size, align, tail, source(i));
        let buffers = buffers.iter().enumerate().map(sized).collect();
        bound::static_bound(&Model::new(&Problem { steps: vec![step], buffers }).unwrap())
    };
    // Disjoint; in place; with a lag, either way; a lag too long to help.
    assert_eq!(bound(&[(10, 1, 0), (7, 1, 0)], &[]), 17);
    assert_eq!(bound(&[(10, 1, 0), (7, 1, 0)], &[(0, Some(0), None)]), 10);
    assert_eq!(bound(&[(10, 1, 0), (7, 1, 0)], &[(0, Some(3), None)]), 13);
    assert_eq!(bound(&[(10, 1, 0), (7, 1, 0)], &[(0, None, Some(3))]), 13);
    assert_eq!(bound(&[(10, 1, 0), (7, 1, 0)], &[(0, Some(9), None)]), 17);
    assert_eq!(bound(&[(4, 1, 0), (20, 1, 0)], &[(0, Some(5), None)]), 20);
    // Two inputs over one output: the one with the shorter lag lies lower.
    let two = [(10, 1, 0), (10, 1, 0), (12, 1, 0)];
    assert_eq!(bound(&two, &[(0, Some(0), None), (1, Some(0), None)]), 20);
    assert_eq!(bound(&two, &[(0, Some(6), None), (1, Some(2), None)]), 22);
    assert_eq!(bound(&two, &[(0, None, Some(6)), (1, None, Some(2))]), 22);
    // Rounding, but not of what ends highest; a tail that every candidate for it has.
    assert_eq!(bound(&[(9, 8, 0), (10, 8, 0)], &[]), 25);
    assert_eq!(bound(&[(9, 8, 0), (10, 1, 0)], &[]), 19);
    assert_eq!(bound(&[(10, 1, 5), (7, 1, 3)], &[]), 20);
}
