//! What `Session::new` refuses of steps, with which numbers.

use kiln_core::plan::{BankRecord, Place, StepKind};
use kiln_core::{Error, MAX_OPERANDS, Plan, Session};

use crate::support::{Aligned, Draft, FAR, IN_CONSTANTS, NEXT, ROWS, STRIDE, WIDE, operand};

fn changed(change: impl FnOnce(&mut Draft)) -> Option<Error> {
    let mut draft = Draft::default();
    change(&mut draft);
    draft.refused()
}

#[test]
fn the_plan_of_these_tests_is_accepted() {
    assert_eq!(changed(|_| ()), None);
}

#[test]
fn kinds_that_are_reserved_or_unknown_are_refused() {
    let reserved = [StepKind::Loop, StepKind::Branch, StepKind::Copy, StepKind::UserKernel].map(|k| k as u8);
    assert_eq!(reserved, [2, 3, 4, 5]);
    for kind in reserved.into_iter().chain((0..=255).filter(|&k| k != StepKind::Kernel as u8).step_by(STRIDE)) {
        assert_eq!(changed(|d| d.steps[0].kind = kind), Some(Error::StepKind(0, kind)));
    }
}

#[test]
fn rows_that_are_not_linked_are_refused() {
    assert_eq!(changed(|d| d.steps[0].row = 1), Some(Error::Row(0, 1)));
    assert_eq!(changed(|d| d.steps[0].row = u16::MAX), Some(Error::Row(0, u16::MAX)));
}

#[test]
fn the_step_at_fault_is_named() {
    let mut draft = Draft::default();
    let step = draft.steps[0];
    draft.steps.extend([step, step, step]);
    draft.steps[2].row = 7;
    // No entry runs it, and yet it is checked: entries could be added to by hand.
    assert_eq!(draft.refused(), Some(Error::Row(2, 7)));
}

#[test]
fn tables_must_hold_what_a_step_names() {
    let broken: [fn(&mut Draft); 12] = [
        |d| d.steps[0].inputs = 2,
        |d| d.steps[0].outputs = 2,
        |d| d.steps[0].scratch = 1,
        |d| d.steps[0].first_operand = 1,
        |d| d.steps[0].first_operand = u32::MAX,
        |d| d.steps[0].parameters_len = 5,
        |d| d.steps[0].parameters = 4,
        |d| d.steps[0].parameters = u32::MAX - 3,
        // Kernels read words: parameters begin at a multiple of 4.
        |d| {
            d.parameters.resize(8, 0);
            d.steps[0].parameters = 2;
        },
        |d| (d.steps[0].row_begin, d.steps[0].row_end) = (3, 2),
        |d| {
            d.operands = vec![operand(0, 0, 8); MAX_OPERANDS + 1];
            d.steps[0].inputs = MAX_OPERANDS as u8;
        },
        |d| {
            d.operands = vec![operand(0, 0, 8); 3 * 255];
            (d.steps[0].inputs, d.steps[0].outputs, d.steps[0].scratch) = (255, 255, 255);
        },
    ];
    for (number, change) in broken.into_iter().enumerate() {
        assert_eq!(changed(change), Some(Error::StepTable(0)), "change {number}");
    }
    assert_eq!(
        changed(|d| {
            d.operands = vec![operand(0, 0, 8); MAX_OPERANDS];
            d.steps[0].inputs = MAX_OPERANDS as u8 - 1;
        }),
        None
    );
}

#[test]
fn operands_must_lie_inside_their_bank() {
    for (number, place) in [
        (0, operand(0, 57, 8)),
        (0, operand(0, 64, 1)),
        (1, operand(0, 60, 5)),
        (1, operand(0, (1 << 56) - 1, 8)),
        (0, operand(0, 8, u64::MAX)),
        (0, operand(0, 8, u64::MAX - 7)),
        // Banks that are not there: beyond the plan's one, beyond what a session can keep, and 254.
        (0, operand(1, 0, 8)),
        (1, operand(4, 0, 8)),
        (1, operand(254, 0, 8)),
        (0, operand(IN_CONSTANTS, 25, 8)),
        (0, operand(IN_CONSTANTS, 1 << 40, 0)),
    ] {
        assert_eq!(changed(|d| d.operands[number] = place), Some(Error::Operand(0, number as u8)), "{place:?}");
    }
    assert_eq!(changed(|d| d.operands[0] = operand(0, 56, 8)), None);
    assert_eq!(changed(|d| d.operands[0] = operand(IN_CONSTANTS, 24, 8)), None);
    // Memory behind what the plan asks for stays out of reach.
    let mut draft = Draft::default();
    draft.operands[1] = operand(0, 60, 8);
    assert_eq!(draft.refused_with(128), Some(Error::Operand(0, 1)));
}

#[test]
fn constants_are_never_written() {
    assert_eq!(changed(|d| d.operands[1] = operand(IN_CONSTANTS, 0, 8)), Some(Error::Operand(0, 1)));
    let scratch = |d: &mut Draft| {
        d.steps[0].scratch = 1;
        d.operands.push(operand(IN_CONSTANTS, 0, 8));
    };
    assert_eq!(changed(scratch), Some(Error::Operand(0, 2)));
    assert_eq!(changed(|d| d.operands[1] = operand(IN_CONSTANTS, 0, 0)), Some(Error::Operand(0, 1)));
}

/// A row may read beyond its inputs as far as it says, and that too stays inside the bank.
#[test]
fn over_read_needs_room_behind_inputs() {
    let far = |at: u64, number: usize| {
        changed(|d| {
            d.steps[0].row = FAR.number();
            d.operands[number] = operand(0, at, 8);
        })
    };
    assert_eq!(far(52, 0), None);
    assert_eq!(far(56, 0), Some(Error::Operand(0, 0)));
    assert_eq!(far(56, 1), None, "outputs are not read");
    let constants = |at: u64| {
        changed(|d| {
            d.steps[0].row = FAR.number();
            d.operands[0] = operand(IN_CONSTANTS, at, 8);
        })
    };
    assert_eq!((constants(20), constants(24)), (None, Some(Error::Operand(0, 0))));
}

#[test]
fn windows_are_aligned_as_the_row_wants() {
    for (number, at) in [(0, 2), (0, 5), (1, 17)] {
        let error = changed(|d| {
            d.steps[0].row = FAR.number();
            d.operands[number] = operand(0, at, 8);
        });
        assert_eq!(error, Some(Error::Operand(0, number as u8)));
    }
    // Addresses count, not offsets.
    let mut draft = Draft::default();
    draft.steps[0].row = FAR.number();
    draft.banks[0] = BankRecord { bytes: 64, align: 1, reserved: 0 };
    draft.session(64, |_| ());
    assert_eq!(crate::memory::begin(&draft, 1), Some(Error::Operand(0, 0)));
}

#[test]
fn a_rows_own_check_decides() {
    assert_eq!(changed(|d| d.steps[0].row_end = 5), Some(Error::Parameters(0)));
    assert_eq!(changed(|d| d.parameters = 3u32.to_le_bytes().to_vec()), Some(Error::Parameters(0)));
    assert_eq!(changed(|d| d.steps[0].parameters_len = 0), Some(Error::Parameters(0)));
}

/// What a check may not see differently from a run: parameters are aligned alike in both.
#[test]
fn parameters_with_a_wider_alignment_are_refused_where_they_lack_it() {
    let wide = |at: u32| {
        changed(|d| {
            d.parameters = vec![0; 16];
            (d.steps[0].row, d.steps[0].parameters, d.steps[0].parameters_len) = (WIDE.number(), at, 8);
        })
    };
    // The table begins at a multiple of 8.
    assert_eq!((wide(0), wide(4)), (None, Some(Error::Parameters(0))));
}

#[test]
fn windows_without_bytes_lie_nowhere() {
    let draft = |bytes: u64| {
        let mut draft = Draft::default();
        draft.parameters = 0u32.to_le_bytes().to_vec();
        draft.operands = vec![operand(0, 64, bytes), operand(0, 3, 0)];
        draft.steps[0].row = FAR.number();
        draft
    };
    // Even what a row reads too much has to lie inside the bank; the place itself does not count.
    assert_eq!(draft(0).refused(), Some(Error::Operand(0, 0)));
    let mut nearer = draft(0);
    nearer.operands[0] = operand(0, 60, 0);
    assert_eq!(nearer.refused(), None);
    nearer.steps[0].row = NEXT.number();
    nearer.operands[0] = operand(0, 64, 0);
    nearer.session(64, |session| {
        let entry = session.plan().entry(0).unwrap();
        session.run(&entry);
    });
    assert_eq!(Place::new(0, 1 << 56), None);
}

#[test]
fn a_session_takes_no_step_with_more_operands_than_it_has_room_for() {
    let draft = Draft::default();
    let operands = draft.steps.iter().map(|s| usize::from(s.inputs) + usize::from(s.outputs) + usize::from(s.scratch));
    assert_eq!(operands.max(), Some(2));
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let mut memory = Aligned::zeroed(64);
    assert_eq!(Session::<1>::bounded(plan, ROWS, memory.as_mut()).err(), Some(Error::StepTable(0)));
    let run = |session: &mut Session<'_, 2>| {
        let entry = session.plan().entry(0).unwrap();
        session.bytes_mut(&entry.inputs[0]).fill(5);
        session.run(&entry);
        session.bytes(&entry.outputs[0]).to_vec()
    };
    let narrow = run(&mut Session::bounded(plan, ROWS, memory.as_mut()).unwrap());
    draft.session(64, |wide| {
        let entry = wide.plan().entry(0).unwrap();
        wide.bytes_mut(&entry.inputs[0]).fill(5);
        wide.run(&entry);
        assert_eq!(wide.bytes(&entry.outputs[0]), narrow);
    });
}
