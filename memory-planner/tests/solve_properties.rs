//! What every answer must satisfy, whatever the problem and the budget.

mod solve_support;

use kiln_planner::solve::{Budget, Problem, check, solve};
use proptest::prelude::*;
use solve_support::{Shape, brute_force, random_problem};

fn problem(steps: usize) -> impl Strategy<Value = Problem> {
    (any::<u64>(), 0..=steps, 2..200_000u64, 0..8u64, 1..12u64).prop_map(|(seed, steps, size, align_log2, reach)| {
        random_problem(seed, Shape { steps, size, align_log2, reach })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn answers_hold_and_search_never_harms(problem in problem(24), nodes in 0..5_000u64) {
        let greedy = solve(&problem, &Budget { nodes: 0 }).unwrap();
        let searched = solve(&problem, &Budget { nodes }).unwrap();
        for solution in [&greedy, &searched] {
            prop_assert_eq!(check(&problem, solution), Ok(()));
        }
        prop_assert!(searched.nodes <= nodes);
        prop_assert!(searched.arena <= greedy.arena);
        prop_assert!(greedy.lower_bound <= searched.arena);
        prop_assert!(searched.lower_bound <= greedy.arena);
    }

    #[test]
    fn one_problem_has_one_answer(problem in problem(16), nodes in 0..5_000u64) {
        let budget = Budget { nodes };
        prop_assert_eq!(solve(&problem, &budget), solve(&problem, &budget));
    }

    #[test]
    fn optimal_is_what_brute_force_finds(
        seed in any::<u64>(), steps in 0..6usize, size in 2..12u64, nodes in 0..2_000u64,
    ) {
        let problem = random_problem(seed, Shape { steps, size, align_log2: 3, reach: 4 });
        let solution = solve(&problem, &Budget { nodes }).unwrap();
        if let Some(best) = brute_force(&problem) {
            prop_assert!(solution.lower_bound <= best && best <= solution.arena);
            prop_assert!(!solution.optimal || solution.arena == best);
        }
    }
}
