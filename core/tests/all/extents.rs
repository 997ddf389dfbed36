//! Dimensions that vary: their bounds, and how they scale a step's rows.

use kiln_core::plan::{ExtentRecord, NO_EXTENT, Text};
use kiln_core::{Error, MAX_EXTENTS, Plan, Session};

use crate::support::{Aligned, Draft, ROWS};

/// The default plan with its four rows belonging to an extent of at most `max`.
fn varying(max: u32) -> Draft {
    let mut draft = Draft::default();
    draft.extents = vec![ExtentRecord { max, ..ExtentRecord::default() }];
    draft.steps[0].extent = 0;
    draft
}

fn run(draft: &Draft, value: Option<u32>) -> Vec<u8> {
    let mut out = Vec::new();
    draft.session(64, |session| {
        let entry = session.plan().entry(0).unwrap();
        session.bytes_mut(&entry.inputs[0]).fill(7);
        if let Some(value) = value {
            session.set_extent(0, value).unwrap();
        }
        session.run(&entry);
        out = session.bytes(&entry.outputs[0]).to_vec();
    });
    out
}

#[test]
fn only_the_rows_of_the_extent_are_computed() {
    assert_eq!(run(&varying(4), None), [8; 8], "all of them until told otherwise");
    assert_eq!(run(&varying(4), Some(3)), [8, 8, 8, 8, 8, 8, 0, 0]);
    assert_eq!(run(&varying(4), Some(1)), [8, 8, 0, 0, 0, 0, 0, 0]);
    // Two rows for each unit of the extent.
    assert_eq!(run(&varying(2), Some(1)), [8, 8, 8, 8, 0, 0, 0, 0]);
    assert_eq!(run(&varying(2), Some(2)), [8; 8]);
    assert_eq!(run(&varying(1), Some(1)), [8; 8]);
    let mut fixed = varying(4);
    fixed.steps[0].extent = NO_EXTENT;
    assert_eq!(run(&fixed, Some(1)), [8; 8], "a step that does not vary");
}

#[test]
fn values_stay_within_bounds() {
    varying(4).session(64, |session| {
        assert_eq!(session.set_extent(0, 0), Err(Error::ExtentValue(0, 0)));
        assert_eq!(session.set_extent(0, 5), Err(Error::ExtentValue(0, 5)));
        assert_eq!(session.set_extent(1, 1), Err(Error::ExtentValue(1, 1)));
        assert_eq!(session.set_extent(u16::MAX, 1), Err(Error::ExtentValue(u16::MAX, 1)));
        assert_eq!(session.set_extent(0, 2), Ok(()));
        // A refused value leaves the last one in force.
        assert_eq!(session.set_extent(0, 9), Err(Error::ExtentValue(0, 9)));
        let entry = session.plan().entry(0).unwrap();
        session.run(&entry);
        assert_eq!(session.bytes(&entry.outputs[0]), [1, 1, 1, 1, 0, 0, 0, 0]);
    });
}

#[test]
fn steps_must_agree_with_their_extent() {
    let broken: [fn(&mut Draft); 4] = [
        |d| d.steps[0].extent = 1,
        |d| d.steps[0].extent = NO_EXTENT - 1,
        |d| d.extents[0].max = 3,
        |d| d.steps[0].row_begin = 1,
    ];
    for (number, change) in broken.into_iter().enumerate() {
        let mut draft = varying(4);
        change(&mut draft);
        assert_eq!(draft.refused(), Some(Error::StepTable(0)), "change {number}");
    }
    // Rows are checked at the maximum, whatever that is.
    assert_eq!(varying(u32::MAX).refused(), Some(Error::StepTable(0)));
    let mut huge = varying(u32::MAX);
    huge.steps[0].row_end = u32::MAX;
    assert_eq!(huge.refused(), Some(Error::Parameters(0)));
    // No rows at all: nothing to scale, nothing to run.
    let mut none = varying(u32::MAX);
    none.steps[0].row_end = 0;
    assert_eq!(run(&none, Some(1 << 31)), [0; 8]);
}

#[test]
fn extents_without_a_value_and_too_many_are_refused() {
    assert_eq!(varying(0).refused(), Some(Error::Extent(0)));
    let mut draft = varying(4);
    draft.extents = vec![draft.extents[0]; MAX_EXTENTS];
    assert_eq!(draft.refused(), None);
    draft.extents.push(ExtentRecord { name: Text::default(), max: 1, reserved: 0 });
    assert_eq!(draft.refused(), Some(Error::Extent(MAX_EXTENTS as u16)));
}

#[test]
fn a_session_takes_no_more_extents_than_its_type_has() {
    let draft = varying(4);
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let mut memory = Aligned::zeroed(64);
    assert_eq!(Session::<2, 1, 0>::bounded(plan, ROWS, memory.as_mut()).err(), Some(Error::Extent(0)));
    let mut session = Session::<2, 1, 1>::bounded(plan, ROWS, memory.as_mut()).unwrap();
    assert_eq!((session.set_extent(0, 2), session.set_extent(1, 2)), (Ok(()), Err(Error::ExtentValue(1, 2))));
    let mut fixed = Draft::default();
    fixed.steps[0].extent = 0;
    let bytes = Aligned::new(&fixed.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), fixed.target).unwrap();
    assert_eq!(Session::<2, 1, 0>::bounded(plan, ROWS, memory.as_mut()).err(), Some(Error::StepTable(0)));
}
