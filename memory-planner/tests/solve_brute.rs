//! The solver against a brute force over every order and every offset.

mod solve_support;

use std::ops::Range;
use std::time::Instant;

use kiln_planner::solve::{Budget, check, solve};
use solve_support::{Shape, brute_force, random_problem};

#[test]
fn agrees_with_brute_force_on_a_thousand_graphs() {
    assert_eq!(compare(0..1000), 0, "the brute force gave up");
}

#[test]
#[ignore = "a minute: for changes to the search"]
fn agrees_with_brute_force_on_forty_thousand_graphs() {
    // Of these the brute force gives up on a few.
    assert!(compare(1000..41_000) < 100);
}

/// How often the brute force gave up.
fn compare(seeds: Range<u64>) -> usize {
    let mut given_up = 0;
    let (mut nodes, mut most, mut missed) = (0, (0, 0), 0);
    let (mut slowest, mut solving, mut trying) = (0.0f64, 0.0, 0.0);
    for seed in seeds {
        let shape = Shape {
            steps: 1 + seed as usize % 8,
            size: [4, 8, 13][seed as usize / 8 % 3],
            align_log2: seed / 24 % 4,
            reach: [1, 2, 3, 4, 8][seed as usize / 96 % 5],
        };
        let problem = random_problem(seed, shape);
        let start = Instant::now();
        let solution = solve(&problem, &Budget { nodes: 5_000_000 }).unwrap();
        let took = start.elapsed().as_secs_f64();
        (solving, slowest) = (solving + took, slowest.max(took));
        check(&problem, &solution).unwrap_or_else(|v| panic!("seed {seed}: {v}"));
        (nodes, most) = (nodes + solution.nodes, most.max((solution.nodes, seed)));

        let start = Instant::now();
        let best = brute_force(&problem);
        trying += start.elapsed().as_secs_f64();
        let Some(best) = best else {
            given_up += 1;
            continue;
        };
        assert_eq!(solution.arena, best, "seed {seed}: {problem:?}");
        assert!(solution.optimal, "seed {seed}: {problem:?}");

        let greedy = solve(&problem, &Budget { nodes: 0 }).unwrap();
        check(&problem, &greedy).unwrap_or_else(|v| panic!("seed {seed}, greedy: {v}"));
        assert!(greedy.lower_bound <= best && best <= greedy.arena, "seed {seed}");
        assert_eq!(greedy.nodes, 0, "seed {seed}");
        missed += usize::from(greedy.arena > best);
    }
    println!(
        "{nodes} nodes, at most {} (seed {}); solver {solving:.2} s, slowest {slowest:.3} s; \
         brute force {trying:.1} s; greedy alone misses {missed}; given up on {given_up}",
        most.0, most.1
    );
    given_up
}
