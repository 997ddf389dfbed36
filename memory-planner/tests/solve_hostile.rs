//! Problems that contradict themselves, numbers at the edge, solutions that are wrong.

use kiln_planner::solve::{
    Budget, Buffer, Live, MAX_ITEMS, Overlap, Place, Problem, Scratch, Solution, SolveError, Source, Step, Violation,
    check, solve,
};

fn buffer(size: u64, align: u64, source: Source) -> Buffer {
    Buffer { size, align, tail: 0, source, keep: false }
}

fn step(inputs: &[usize], outputs: &[usize]) -> Step {
    Step { inputs: inputs.to_vec(), outputs: outputs.to_vec(), ..Step::default() }
}

/// input 0 → step 0 → buffer 1 → step 1 → buffer 2, kept.
fn chain() -> Problem {
    let mut problem = Problem {
        steps: vec![step(&[0], &[1]), step(&[1], &[2])],
        buffers: vec![buffer(100, 4, Source::Input), buffer(60, 4, Source::Step(0)), buffer(80, 4, Source::Step(1))],
    };
    problem.buffers[2].keep = true;
    problem.steps[0].scratch = Some(Scratch { size: 10, align: 2 });
    problem
}

/// The error of the chain after `change`.
fn error(change: impl FnOnce(&mut Problem)) -> SolveError {
    let mut problem = chain();
    change(&mut problem);
    let error = solve(&problem, &Budget::default()).unwrap_err();
    assert!(error.to_string().len() > 20, "{error}");
    error
}

#[test]
fn contradictions_are_errors() {
    assert_eq!(error(|p| p.steps[1].inputs.push(3)), SolveError::NoSuchBuffer { step: 1, buffer: 3, buffers: 3 });
    assert_eq!(error(|p| p.steps[0].after.push(usize::MAX)), SolveError::NoSuchStep { step: usize::MAX, steps: 2 });
    assert_eq!(error(|p| p.buffers.push(buffer(1, 1, Source::Step(2)))), SolveError::NoSuchStep { step: 2, steps: 2 });
    for align in [0, 3, u64::MAX] {
        assert_eq!(error(|p| p.buffers[1].align = align), SolveError::Alignment { buffer: Some(1), step: None, align });
        assert_eq!(
            error(|p| p.steps[0].scratch = Some(Scratch { size: 0, align })),
            SolveError::Alignment { buffer: None, step: Some(0), align }
        );
    }
    let producer = |buffer, source, listed| SolveError::Producer { buffer, source, listed };
    assert_eq!(error(|p| p.steps[0].outputs.push(1)), producer(1, Some(0), 2));
    assert_eq!(error(|p| p.steps[1].outputs.push(1)), producer(1, Some(0), 2));
    assert_eq!(error(|p| p.steps[1].outputs.clear()), producer(2, Some(1), 0));
    assert_eq!(error(|p| p.steps[1].outputs.push(0)), producer(0, None, 1));
    assert_eq!(error(|p| p.buffers[1].source = Source::Step(1)), producer(1, Some(1), 1));
    let overlap = |input, output| Overlap { input, output, up: Some(0), down: None };
    assert_eq!(
        error(|p| p.steps[1].overlaps.push(overlap(0, 2))),
        SolveError::OverlapOutside { step: 1, input: 0, output: 2 }
    );
    assert!(matches!(
        error(|p| p.steps[1].overlaps.push(overlap(1, 9))),
        SolveError::NoSuchBuffer { step: 1, buffer: 9, .. }
    ));
    assert_eq!(error(|p| p.steps[0].inputs.push(2)), SolveError::Cycle { step: 0, blocked: 2 });
    assert_eq!(error(|p| p.steps[1].after.push(1)), SolveError::Cycle { step: 1, blocked: 1 });
}

#[test]
fn numbers_out_of_range_are_errors() {
    assert_eq!(error(|p| p.buffers[1].size = u64::MAX), SolveError::Overflow { item: 1 });
    assert_eq!(error(|p| p.buffers[1].tail = 1 << 62), SolveError::Overflow { item: 1 });
    assert_eq!(error(|p| p.buffers[2].align = 1 << 63), SolveError::Overflow { item: 2 });
    let large = Scratch { size: 1 << 62, align: 1 };
    assert_eq!(error(|p| p.steps[1].scratch = Some(large)), SolveError::Overflow { item: 4 });
    let many = MAX_ITEMS + 1;
    assert_eq!(
        error(|p| p.buffers.resize(many, buffer(1, 1, Source::Input))),
        SolveError::TooMany { steps: 2, items: many + 1 }
    );
    assert_eq!(error(|p| p.steps.resize(many, Step::default())), SolveError::TooMany { steps: many, items: 4 });
}

fn solved(problem: &Problem) -> Solution {
    let solution = solve(problem, &Budget::default()).unwrap();
    assert_eq!(check(problem, &solution), Ok(()));
    solution
}

#[test]
fn numbers_at_the_edge_are_fine() {
    assert_eq!(solved(&Problem::default()).arena, 0);

    let inputs = vec![buffer(5, 8, Source::Input), buffer(7, 1, Source::Input)];
    let solution = solved(&Problem { steps: Vec::new(), buffers: inputs });
    assert_eq!((solution.arena, solution.optimal), (12, true));

    let mut zero = chain();
    zero.buffers.iter_mut().for_each(|b| b.size = 0);
    zero.steps[0].scratch = None;
    assert_eq!(solved(&zero).arena, 0);
    zero.buffers[1].tail = 9;
    assert_eq!(solved(&zero).arena, 9);

    let mut far = chain();
    let lag = Some(u64::MAX);
    far.steps[0].overlaps.push(Overlap { input: 0, output: 1, up: lag, down: lag });
    assert_eq!(solved(&far).arena, solved(&chain()).arena);

    let mut huge = chain();
    huge.buffers[0].size = 1 << 60;
    huge.buffers[1].align = 1 << 60;
    huge.buffers[2].size = (1 << 60) - 1;
    assert!(solved(&huge).optimal);
}

#[test]
fn the_largest_problem_is_answered() {
    let mut problem = Problem::default();
    problem.buffers.push(buffer(64, 16, Source::Input));
    for s in 0..MAX_ITEMS - 1 {
        problem.buffers.push(buffer(1 + s as u64 % 977, 16, Source::Step(s)));
        problem.steps.push(step(&[s, s / 2], &[s + 1]));
    }
    let solution = solved(&problem);
    assert!(solution.nodes <= Budget::default().nodes);
}

#[test]
fn known_answers() {
    // In place: no more than the larger of the two. With a lag of 30: 32 more, for alignment.
    for (up, down, arena) in [(Some(0), None, 100), (Some(30), None, 132), (None, Some(0), 100), (None, Some(30), 132)]
    {
        let mut problem = chain();
        problem.steps[0].scratch = None;
        problem.buffers[2].size = 20;
        problem.steps[0].overlaps.push(Overlap { input: 0, output: 1, up, down });
        let solution = solved(&problem);
        assert_eq!((solution.arena, solution.optimal), (arena, true), "{up:?} {down:?}");
    }
    // A kept input cannot be overwritten.
    let mut problem = chain();
    problem.buffers[0].keep = true;
    problem.steps[0].overlaps.push(Overlap { input: 0, output: 1, up: Some(0), down: None });
    assert_eq!(solved(&problem).arena, 240);
    // Bytes read past the end must exist.
    let mut problem = chain();
    problem.buffers[2].tail = 1000;
    assert_eq!(solved(&problem).arena, 1080);
}

#[test]
fn wrong_solutions_are_refused() {
    let problem = chain();
    let refused = |change: &dyn Fn(&mut Solution)| {
        let mut solution = solved(&problem);
        change(&mut solution);
        let violation = check(&problem, &solution).unwrap_err();
        assert!(violation.to_string().len() > 15, "{violation}");
        violation
    };
    assert_eq!(refused(&|s| s.order.swap(0, 1)), Violation::TooEarly { step: 1, needs: 0 });
    assert_eq!(refused(&|s| s.order[1] = 0), Violation::NotAPermutation { step: 0, times: 2 });
    for change in [
        &(|s: &mut Solution| s.order[0] = 7) as &dyn Fn(&mut Solution),
        &|s| s.order.truncate(1),
        &|s| s.offsets.truncate(1),
        &|s| s.live.truncate(1),
        &|s| s.scratch_offsets.push(None),
        &|s| s.scratch_offsets[0] = None,
        &|s| s.scratch_offsets[1] = Some(0),
    ] {
        assert!(matches!(refused(change), Violation::Shape { .. }));
    }
    assert_eq!(
        refused(&|s| s.live[1].last = 0),
        Violation::Lifetime { buffer: 1, found: Live { first: 0, last: 0 }, expected: Live { first: 0, last: 1 } }
    );
    assert_eq!(
        refused(&|s| s.offsets[2] = 1002),
        Violation::Misaligned { place: Place::Buffer(2), offset: 1002, align: 4 }
    );
    assert_eq!(
        refused(&|s| s.offsets[1] = s.offsets[0]),
        Violation::Overlapping { a: Place::Buffer(1), b: Place::Buffer(0), at: 0 }
    );
    assert_eq!(
        refused(&|s| s.scratch_offsets[0] = Some(s.offsets[1] + 2)),
        Violation::Overlapping { a: Place::Scratch(0), b: Place::Buffer(1), at: 0 }
    );
    assert!(matches!(refused(&|s| s.arena += 1), Violation::Arena { .. }));
    assert!(matches!(refused(&|s| s.offsets[2] = u64::MAX - 3), Violation::Arena { .. }));
    assert!(matches!(refused(&|s| s.optimal = false), Violation::Claim { .. }));
    assert!(matches!(refused(&|s| s.lower_bound += 1), Violation::Claim { .. }));
}

#[test]
fn overlaps_are_checked_to_the_byte() {
    let mut problem = chain();
    problem.steps[0].scratch = None;
    problem.buffers.iter_mut().for_each(|b| b.align = 1);
    problem.steps[0].overlaps = vec![Overlap { input: 0, output: 1, up: Some(7), down: None }];
    let mut solution = solved(&problem);
    let mut at = |out: u64, input: u64| {
        (solution.offsets[1], solution.offsets[0], solution.offsets[2]) = (out, input, 500);
        (solution.arena, solution.lower_bound, solution.optimal) = (580, 0, false);
        check(&problem, &solution).is_ok()
    };
    assert!(at(0, 7) && at(10, 17) && at(0, 60) && at(100, 0));
    assert!(!at(0, 6) && !at(0, 0) && !at(99, 0) && !at(1, 0));
    problem.steps[0].overlaps[0] = Overlap { input: 0, output: 1, up: None, down: Some(7) };
    let mut at = |out: u64, input: u64| {
        (solution.offsets[1], solution.offsets[0]) = (out, input);
        check(&problem, &solution).is_ok()
    };
    assert!(at(47, 0) && at(48, 0) && at(100, 0) && at(0, 60));
    assert!(!at(46, 0) && !at(0, 0) && !at(0, 59));
}
