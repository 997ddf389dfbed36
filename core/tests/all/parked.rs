//! Sessions that take turns in one arena.

use kiln_core::plan::{BankRecord, ExtentRecord, STEP_DOWN, StepRecord};
use kiln_core::{ANY_ARENA, Attached, Bank, Done, Error, MAX_BANKS, Memory, Parked, Plan, Row, Session, largest};

use crate::support::{Aligned, Draft, IN_CONSTANTS, NEXT, ROWS, operand, tensor};

fn bank(bytes: u64, align: u32) -> BankRecord {
    BankRecord { bytes, align, reserved: 0 }
}

/// State of eight bytes in bank 0, an arena of `arena` bytes in bank 1. A run puts the input plus one over the state, and
/// the state plus one, as it then is, to `output`; the entry `again` does only the latter.
fn stateful(arena: u64, output: u64) -> Draft {
    let mut draft = Draft { state_len: 8, banks: vec![bank(8, 16), bank(arena, 16)], ..Draft::default() };
    let first = draft.steps[0];
    draft.steps.push(StepRecord { first_operand: 2, flags: STEP_DOWN, ..first });
    draft.operands = vec![operand(1, 0, 8), operand(0, 0, 8), operand(0, 0, 8), operand(1, output, 8)];
    draft.tensors = vec![tensor(1, 0, 8), tensor(1, output, 8), tensor(0, 0, 8), tensor(IN_CONSTANTS, 4, 4)];
    draft.entries[0].steps = 2;
    draft.entries[0].outputs = 3;
    draft.entry("again", 1, 1);
    draft
}

/// [`stateful`] with `reset`, which makes the state eight twos by way of the arena.
fn with_reset(arena: u64, output: u64) -> Draft {
    let mut draft = stateful(arena, output);
    let first = draft.steps[0];
    let operands = draft.operands.len() as u32;
    draft.constants[..8].fill(0);
    draft.operands.extend([operand(IN_CONSTANTS, 0, 8), operand(1, 8, 8), operand(1, 8, 8), operand(0, 0, 8)]);
    draft.steps.push(StepRecord { first_operand: operands, ..first });
    draft.steps.push(StepRecord { first_operand: operands + 2, ..first });
    draft.entry("reset", 2, 2);
    draft
}

#[test]
fn models_take_turns_and_keep_their_state() {
    let plans = [with_reset(48, 40).bytes(), stateful(32, 16).bytes()].map(|bytes| Aligned::new(&bytes, 0));
    let plans = plans.each_ref().map(|bytes| Plan::load_any_target(bytes.as_ref()).unwrap());
    // The arena moves too; it holds what another model, or anything else, left there.
    let mut arenas = [Bank::<{ largest([48, 32]) }>::new(), Bank::new()];
    let [mut one, mut two] = [Bank::<8>::new(), Bank::<8>::new()];
    let mut one = Parked::<48>::new(plans[0], ROWS, &mut one, arenas[0].bytes_mut()).unwrap();
    let mut two = Parked::<32>::new(plans[1], ROWS, &mut two, arenas[0].bytes_mut()).unwrap();
    let (mut first, mut second) = ([2u8; 8], [0u8; 8]);
    for round in 0..5u8 {
        for arena in &mut arenas {
            arena.bytes_mut().fill(0xaa);
            let mut model = one.attach(arena);
            // The state of the other turn: it survived both the other model and the arena's end.
            model.run_entry(1);
            assert_eq!(model.array::<u8, 8, 40>(), &first.map(|x| x + 1));
            model.array_mut::<u8, 8, 0>().fill(round);
            model.run_entry(0);
            first = [round + 1; 8];
            assert_eq!(model.array::<u8, 8, 40>(), &[round + 2; 8]);

            let mut model = two.attach_bytes(arena.bytes_mut()).unwrap();
            let mut seen = Vec::new();
            model.run_entry_with(1, &mut |done: &Done<'_>| seen.push((done.index, done.output(0).to_vec())));
            assert_eq!(seen, [(1, second.map(|x| x + 1).to_vec())]);
            let entry = model.plan().entry(0).unwrap();
            model.bytes_mut(&entry.inputs[0]).fill(100 + round);
            model.run(&entry);
            second = [101 + round; 8];
            assert_eq!(model.bytes(&entry.outputs[0]), [102 + round; 8]);
            assert_eq!(model.bytes(&entry.outputs[1]), second);
            // What lies behind its own arena it leaves alone.
            assert_eq!(arena.bytes_mut()[32..], first_tail(round));
        }
    }
    one.attach(&mut arenas[1]).reset();
    assert_eq!(one.attach(&mut arenas[0]).bytes(&tensor(0, 0, 8)), [2; 8]);
}

/// What the first model leaves behind the second one's arena: a gap, and its output.
fn first_tail(round: u8) -> [u8; 16] {
    let mut tail = [0xaa; 16];
    tail[8..].fill(round + 2);
    tail
}

#[test]
fn turns_give_what_a_session_of_its_own_gives() {
    let draft = with_reset(48, 40);
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let (mut state, mut arena) = (Bank::<8>::new(), Bank::<64>::new());
    let (mut own_state, mut own_arena) = (Bank::<8>::new(), Bank::<48>::new());
    let mut own = Session::new(plan, ROWS, [own_state.bytes_mut(), own_arena.bytes_mut()]).unwrap();
    let mut parked: Parked<'_> = Parked::new(plan, ROWS, &mut state, arena.bytes_mut()).unwrap();
    let entry = plan.entry(0).unwrap();
    for round in 0..4 {
        arena.bytes_mut().fill(0x55);
        let mut turn = parked.attach_bytes(arena.bytes_mut()).unwrap();
        turn.bytes_mut(&entry.inputs[0]).fill(round);
        own.bytes_mut(&entry.inputs[0]).fill(round);
        let (mut steps, mut own_steps) = (Vec::new(), Vec::new());
        turn.run_with(&entry, &mut |done: &Done<'_>| steps.push(done.output(0).to_vec()));
        own.run_with(&entry, &mut |done: &Done<'_>| own_steps.push(done.output(0).to_vec()));
        assert_eq!(steps, own_steps);
        for output in entry.outputs {
            assert_eq!(turn.bytes(output), own.bytes(output));
        }
    }
}

/// Why a session can't be parked over `kept` banks of 8 bytes and an arena `start` beyond a multiple of 16.
fn refused<const ARENA: usize>(draft: &Draft, kept: usize, arena: (usize, usize)) -> Option<Error> {
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let mut banks: [Aligned; 2] = std::array::from_fn(|_| Aligned::zeroed(8));
    let mut arena = Aligned::new(&vec![0; arena.1], arena.0);
    let mut banks = banks.iter_mut().map(Aligned::as_mut);
    let kept = match kept {
        0 => Memory::empty(),
        1 => Memory::from([banks.next().unwrap()]),
        _ => Memory::from([banks.next().unwrap(), banks.next().unwrap()]),
    };
    Parked::<ARENA>::new(plan, ROWS, kept, arena.as_mut()).err()
}

#[test]
fn what_an_arena_must_be_is_tested_once() {
    let draft = stateful(32, 16);
    assert_eq!(refused::<ANY_ARENA>(&draft, 1, (0, 32)), None);
    assert_eq!(refused::<ANY_ARENA>(&draft, 2, (0, 40)), None, "a bank too many is not used");
    assert_eq!(refused::<32>(&draft, 1, (0, 40)), None);
    for wrong in [refused::<31>(&draft, 1, (0, 32)), refused::<33>(&draft, 1, (0, 64))] {
        assert!(matches!(wrong, Some(Error::Memory(1, 32, 31 | 33))), "{wrong:?}");
    }
    assert_eq!(refused::<ANY_ARENA>(&draft, 0, (0, 32)), Some(Error::Memory(1, 32, 0)));
    assert_eq!(refused::<ANY_ARENA>(&draft, 1, (0, 31)), Some(Error::Memory(1, 32, 31)));
    for start in [1, 4, 8, 15] {
        assert_eq!(refused::<ANY_ARENA>(&draft, 1, (start, 32)), Some(Error::MemoryAlignment(1, 16)));
    }
    // What it keeps is held against the plan as ever.
    let large = Draft { banks: vec![bank(9, 1), bank(32, 16)], ..draft.clone() };
    assert_eq!(refused::<32>(&large, 1, (0, 32)), Some(Error::Memory(0, 9, 8)));
    // An arena that moves keeps remainders by 16 only.
    let wide = Draft { banks: vec![bank(8, 1), bank(32, 32)], ..draft.clone() };
    assert_eq!(refused::<32>(&wide, 1, (0, 32)), Some(Error::MemoryAlignment(1, 16)));
    // State in the arena would be lost.
    let plain = Draft { state_len: 8, ..Draft::default() };
    assert_eq!(refused::<ANY_ARENA>(&plain, 0, (0, 64)), Some(Error::Memory(0, 8, 0)));
    assert_eq!(refused::<64>(&Draft::default(), 0, (0, 64)), None, "without state there is nothing to lose");
    let many = Draft { banks: vec![bank(8, 1); MAX_BANKS + 1], ..Draft::default() };
    assert_eq!(refused::<ANY_ARENA>(&many, 2, (0, 64)), Some(Error::Memory(MAX_BANKS as u8, 8, 0)));
}

#[test]
fn rows_that_ask_for_more_alignment_are_refused() {
    let draft = stateful(32, 16);
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    for align in [3, 12, 32, 128] {
        // SAFETY: it is NEXT's number, so the only row the plan finds is NEXT itself, which comes first.
        let odd = unsafe { Row::new(NEXT.number(), align, 0, |_| false, |_| {}) };
        let (mut state, mut arena) = (Bank::<8>::new(), Bank::<32>::new());
        let parked = Parked::<32>::new(plan, core::slice::from_ref(&odd), &mut state, arena.bytes_mut());
        assert_eq!(parked.err(), Some(Error::MemoryAlignment(1, 16)), "{align}");
    }
}

#[test]
fn attaching_tests_size_and_alignment() {
    let draft = stateful(32, 16);
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let (mut state, mut arena) = (Bank::<8>::new(), Bank::<48>::new());
    let mut parked = Parked::<32>::new(plan, ROWS, &mut state, arena.bytes_mut()).unwrap();
    let mut attach = |start, len| parked.attach_bytes(Aligned::new(&vec![0; len], start).as_mut()).err();
    assert_eq!(attach(0, 31), Some(Error::Memory(1, 32, 31)));
    assert_eq!(attach(0, 0), Some(Error::Memory(1, 32, 0)));
    assert_eq!(attach(8, 32), Some(Error::MemoryAlignment(1, 16)));
    assert_eq!((attach(0, 32), attach(16, 33)), (None, None));
}

#[test]
fn a_plan_without_memory_can_be_parked() {
    let draft = Draft { banks: vec![], operands: vec![], steps: vec![], tensors: vec![], ..Draft::default() };
    let mut draft = Draft { entries: vec![], ..draft };
    draft.entry("idle", 0, 0);
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let mut arena = Bank::<0>::new();
    let mut parked = Parked::<0>::new(plan, ROWS, Memory::empty(), arena.bytes_mut()).unwrap();
    parked.attach(&mut arena).run_entry(0);
    let mut model = parked.attach_bytes(&mut []).unwrap();
    model.run_entry(7);
    assert_eq!(model.array::<i8, 0, 0>(), &[]);
}

#[test]
fn what_lies_outside_the_arena_stays_where_it_is() {
    let draft = stateful(32, 16);
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let (mut state, mut arena) = (Bank::<8>::new(), Bank::<32>::new());
    let mut parked = Parked::<32>::new(plan, ROWS, &mut state, arena.bytes_mut()).unwrap();
    let outputs = plan.entry(0).unwrap().outputs;
    assert_eq!(parked.kept_array::<u8, 8>(&outputs[0]), None);
    assert_eq!(parked.kept_array::<u8, 7>(&outputs[1]), None);
    assert_eq!(parked.kept_array::<u8, 5>(&outputs[2]), None);
    let state = parked.kept_array::<u8, 8>(&outputs[1]).unwrap();
    let constant = parked.kept_array::<u8, 4>(&outputs[2]).unwrap();
    parked.attach(&mut arena).run_entry(0);
    // SAFETY: both lie outside the arena, and nothing runs.
    assert_eq!(unsafe { (state.as_ref(), constant.as_ref()) }, (&[1; 8], &[4, 5, 6, 7]));
}

#[test]
fn extents_stay_set_and_turns_move_between_threads() {
    let mut draft = stateful(32, 16);
    draft.extents = vec![ExtentRecord { max: 4, ..Default::default() }];
    draft.steps[0].extent = 0;
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let (mut state, mut arena) = (Bank::<8>::new(), Bank::<32>::new());
    let mut parked = Parked::<32>::new(plan, ROWS, &mut state, arena.bytes_mut()).unwrap();
    let mut model = parked.attach(&mut arena);
    assert_eq!(model.set_extent(0, 5), Err(Error::ExtentValue(0, 5)));
    model.set_extent(0, 1).unwrap();
    std::thread::scope(|scope| {
        let mut model: Attached<'_, 32> = parked.attach(&mut arena);
        scope.spawn(move || model.run_entry(0));
    });
    // One row of two bytes.
    assert_eq!(parked.attach(&mut arena).bytes(&tensor(0, 0, 8)), [1, 1, 0, 0, 0, 0, 0, 0]);
}
