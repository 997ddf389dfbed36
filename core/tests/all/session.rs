//! What a session does once it began: runs, hooks, state, reset.

use kiln_core::plan::{EntryRecord, STEP_DOWN, StepRecord, TensorRecord, Text};
use kiln_core::{Done, Plan, Session};

use crate::support::{Aligned, Draft, IN_CONSTANTS, ROWS, TELL, operand, tensor};

/// Two steps in a row and a second entry that runs only the last.
fn chain() -> Draft {
    let mut draft = Draft::default();
    let first = draft.steps[0];
    draft.steps.push(StepRecord { first_operand: 2, ..first });
    draft.operands.extend([operand(0, 16, 8), operand(0, 32, 8)]);
    draft.tensors[1] = tensor(0, 32, 8);
    draft.entries[0].steps = 2;
    draft.entry("last", 1, 1);
    draft
}

#[test]
fn steps_run_in_order_and_hooks_see_each() {
    chain().session(64, |session| {
        let plan = *session.plan();
        let (entry, last) = (plan.entry(0).unwrap(), plan.entry_named("last").unwrap());
        session.bytes_mut(&entry.inputs[0]).copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let mut seen = Vec::new();
        let mut hook = |done: &Done<'_>| {
            assert_eq!(done.output(1), [0u8; 0]);
            seen.push((done.index, done.step.first_operand, done.output(0).to_vec()));
        };
        session.run_with(&entry, &mut hook);
        session.run_with(&last, &mut hook);
        let steps = [(0, 0, vec![1, 2, 3, 4, 5, 6, 7, 8]), (1, 2, vec![2, 3, 4, 5, 6, 7, 8, 9])];
        assert_eq!(seen, [steps[0].clone(), steps[1].clone(), steps[1].clone()]);
        assert_eq!(session.bytes(&entry.outputs[0]), [2, 3, 4, 5, 6, 7, 8, 9]);
    });
}

#[test]
fn kernels_are_told_everything() {
    let mut draft = Draft::default();
    draft.operands = vec![operand(IN_CONSTANTS, 3, 5), operand(0, 16, 8), operand(0, 40, 7)];
    draft.steps[0] = StepRecord { row: TELL.number(), scratch: 1, row_begin: 2, row_end: 9, ..draft.steps[0] };
    for (flags, down) in [(0, 0), (STEP_DOWN, 1), (!STEP_DOWN, 0), (u32::MAX, 1)] {
        draft.steps[0].flags = flags;
        draft.session(64, |session| {
            let entry = session.plan().entry(0).unwrap();
            session.run(&entry);
            assert_eq!(session.bytes(&entry.outputs[0])[..6], [down, 5, 8, 7, 2, 9]);
        });
    }
}

/// State is zeroed and the rest of the memory left alone; with an entry `reset`, that runs too.
#[test]
fn a_session_begins_reset() {
    let mut draft = Draft { state_len: 24, ..Draft::default() };
    let check = |draft: &Draft, state: [u8; 24]| {
        let bytes = Aligned::new(&draft.bytes(), 0);
        let mut memory = Aligned::new(&[0xaa; 64], 0);
        let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
        let mut session = Session::new(plan, ROWS, memory.as_mut()).unwrap();
        let whole = tensor(0, 0, 64);
        assert_eq!(session.bytes(&whole)[..24], state);
        assert_eq!(session.bytes(&whole)[24..], [0xaa; 40]);
        session.bytes_mut(&whole).fill(0x55);
        session.reset();
        assert_eq!(session.bytes(&whole)[..24], state);
        assert_eq!(session.bytes(&whole)[24..], [0x55; 40]);
    };
    check(&draft, [0; 24]);
    // The entry `reset` adds one to eight zeros at 0 and puts them at 16, inside the state.
    draft.entry("reset", 0, 1);
    let mut state = [0; 24];
    state[16..].fill(1);
    check(&draft, state);
}

#[test]
fn an_entry_called_reset_may_be_the_only_one() {
    let mut draft = Draft::default();
    draft.strings = b"reset".to_vec();
    draft.operands[0] = operand(IN_CONSTANTS, 8, 8);
    draft.session(64, |session| {
        let entry = session.plan().entry_named("reset").unwrap();
        assert_eq!(session.bytes(&entry.outputs[0]), [9, 10, 11, 12, 13, 14, 15, 16]);
    });
}

#[test]
fn outputs_may_lie_in_the_constants() {
    let mut draft = Draft::default();
    draft.tensors[1] = tensor(IN_CONSTANTS, 4, 4);
    draft.session(64, |session| {
        let entry = session.plan().entry(0).unwrap();
        assert_eq!(session.bytes(&entry.outputs[0]), [4, 5, 6, 7]);
        assert_eq!(session.bytes_mut(&entry.outputs[0]), [0u8; 0], "but nobody writes there");
        assert!(session.array::<u8, 4>(&entry.outputs[0]).is_none());
    });
}

#[test]
fn tensors_without_bytes() {
    let mut draft = Draft::default();
    draft.tensors = vec![tensor(0, 64, 0), tensor(0, 0, 0)];
    draft.session(64, |session| {
        let entry = session.plan().entry(0).unwrap();
        assert_eq!(session.bytes(&entry.outputs[0]), [0u8; 0]);
        assert_eq!(session.bytes_mut(&entry.inputs[0]), [0u8; 0]);
        let mut array = session.array::<i8, 0>(&entry.inputs[0]).unwrap();
        // SAFETY: no bytes, and the session is borrowed mutably by this closure.
        assert_eq!(unsafe { array.as_mut() }, &[0i8; 0]);
        assert!(session.array::<i8, 1>(&entry.inputs[0]).is_none());
    });
}

#[test]
fn an_entry_without_steps_does_nothing() {
    let mut draft = Draft::default();
    draft.entries[0].steps = 0;
    draft.entries.push(EntryRecord { name: Text::default(), ..EntryRecord::default() });
    draft.session(64, |session| {
        let entry = session.plan().entry(0).unwrap();
        session.run_with(&entry, &mut |_: &Done<'_>| panic!("no step, no call"));
        let nameless: [&[TensorRecord]; 2] = [session.plan().entry(1).unwrap().inputs, &[]];
        assert_eq!(nameless[0], nameless[1]);
    });
}

#[test]
fn a_session_can_move_to_another_thread() {
    chain().session(64, |session| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let entry = session.plan().entry(0).unwrap();
                session.run(&entry);
            });
        });
        let entry = session.plan().entry(0).unwrap();
        assert_eq!(session.bytes(&entry.outputs[0]), [2; 8]);
    });
}
