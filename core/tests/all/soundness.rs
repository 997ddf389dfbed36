//! Records and entries that callers make up: safe code must get nowhere with them.

use kiln_core::plan::{CONSTANTS, Entry, ExtentRecord, Place, StepRecord, TensorRecord, Text};
use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Done, Plan, Row, Session};

use crate::support::{Aligned, Draft, IN_CONSTANTS, NEXT, ROWS, operand, tensor};

/// What running `entry` does to memory in which every byte was 0.
fn touched<'m>(session: &mut Session<'m>, run: impl FnOnce(&mut Session<'m>)) -> usize {
    let whole = tensor(0, 0, 64);
    session.bytes_mut(&whole).fill(0);
    run(session);
    session.bytes(&whole).iter().filter(|&&b| b != 0).count()
}

#[test]
fn entries_of_another_plan_do_nothing() {
    // Two plans side by side: the second begins where the first ends.
    let one = Draft::default().bytes();
    let mut both = one.clone();
    both.resize(one.len().next_multiple_of(16), 0);
    let second = both.len();
    both.extend_from_slice(&one);
    let bytes = Aligned::new(&both, 0);
    let (left, right) = bytes.as_ref().split_at(second);
    let target = Draft::default().target;
    let (left, right) = (Plan::load(left, target).unwrap(), Plan::load(right, target).unwrap());
    for (own, other) in [(left, right), (right, left)] {
        let mut memory = Aligned::zeroed(64);
        let mut session = Session::new(own, ROWS, memory.as_mut()).unwrap();
        let (its, foreign) = (own.entry(0).unwrap(), other.entry(0).unwrap());
        assert_eq!(touched(&mut session, |s| s.run(&its)), 8);
        let never = &mut |_: &Done<'_>| panic!("a step of another plan ran");
        assert_eq!(touched(&mut session, |s| s.run_with(&foreign, never)), 0);
    }
    // The same bytes loaded twice are the same records.
    let again = Plan::load(bytes.as_ref(), target).unwrap();
    let mut memory = Aligned::zeroed(64);
    let mut session = Session::new(left, ROWS, memory.as_mut()).unwrap();
    let entry = again.entry(0).unwrap();
    assert_eq!(touched(&mut session, |s| s.run(&entry)), 8);
}

/// Step records can be read from a plan's bytes at any multiple of 4. One that straddles two real
/// records went through no check: here it would write to the constants.
#[test]
fn an_entry_that_straddles_records_does_nothing() {
    const SIZE: usize = size_of::<StepRecord>();
    let step = Draft::default().steps[0];
    // The bytes that follow its own are the next record's kind, so the flags are that.
    let evil = StepRecord { extent: 0, node: 0, flags: step.kind as u32, ..step };
    let mut bytes = [0u8; 2 * SIZE];
    bytes[0] = step.kind;
    bytes[4..4 + SIZE].copy_from_slice(evil.as_bytes());
    let mut real = [StepRecord::default(); 2];
    real.as_mut_bytes().copy_from_slice(&bytes);
    // What the real records make of those bytes: no operands, rows 0x0101 and 0, operands from 900 on.
    let mut draft = Draft { steps: real.to_vec(), ..Draft::default() };
    draft.entries[0].steps = 0;
    draft.extents = vec![ExtentRecord { max: 1, ..ExtentRecord::default() }];
    draft.operands.resize(1000, operand(0, 0, 0));
    draft.operands[1] = operand(IN_CONSTANTS, 0, 8);
    // SAFETY: it touches nothing.
    let idle = |number| unsafe { Row::new(number, 1, 0, |_| true, nothing) };
    let rows = [NEXT, idle(real[0].row), idle(real[1].row)];

    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let mut memory = Aligned::zeroed(64);
    let mut session = Session::new(plan, &rows, memory.as_mut()).unwrap();
    let at = plan.header().steps.offset as usize + 4;
    let cut = <[StepRecord]>::ref_from_bytes(&bytes.as_ref()[at..at + SIZE]).unwrap();
    assert_eq!(cut, [evil]);
    for first_step in [0, 1, 2, u32::MAX] {
        let entry = Entry { name: Text::default(), first_step, steps: cut, inputs: &[], outputs: &[] };
        session.run_with(&entry, &mut |_: &Done<'_>| panic!("a step that was never checked ran"));
    }
}

unsafe fn nothing(_: &Call<'_>) {}

/// A piece of a plan's own steps is fine, and a wrong `first_step` runs nothing.
#[test]
fn an_entry_of_some_of_the_steps() {
    let mut draft = Draft::default();
    let step = draft.steps[0];
    draft.steps.push(StepRecord { first_operand: 2, ..step });
    draft.operands.extend([operand(0, 16, 8), operand(0, 32, 8)]);
    draft.session(64, |session| {
        let plan = *session.plan();
        let part = |first_step: u32| Entry {
            name: Text::default(),
            first_step,
            steps: &plan.steps()[1..],
            inputs: &[],
            outputs: &[],
        };
        assert_eq!(touched(session, |s| s.run(&part(1))), 8);
        assert_eq!(touched(session, |s| s.run(&part(0))), 0);
        assert_eq!(touched(session, |s| s.run(&part(2))), 0);
    });
}

/// Any record gives bytes inside the memory, or none.
#[test]
fn tensors_that_no_plan_has() {
    Draft::default().session(100, |session| {
        let places = [0, 1, 7, 8, 60, 63, 64, 65, 99, 100, 1 << 32, (1 << 56) - 1];
        let sizes = [0, 1, 8, 63, 64, 65, 100, 1 << 32, u64::MAX];
        for bank in [0, 1, 3, 4, 5, 254, CONSTANTS] {
            for offset in places {
                for bytes in sizes {
                    let tensor =
                        TensorRecord { place: Place::new(bank, offset).unwrap(), bytes, ..TensorRecord::default() };
                    let room = match bank {
                        0 => 64,
                        CONSTANTS => 32,
                        _ => 0,
                    };
                    let inside = offset.checked_add(bytes).is_some_and(|end| end <= room);
                    let len = if inside { bytes as usize } else { 0 };
                    assert_eq!(session.bytes(&tensor).len(), len, "{tensor:?}");
                    let writable = if bank == CONSTANTS { 0 } else { len };
                    assert_eq!(session.bytes_mut(&tensor).len(), writable, "{tensor:?}");
                    session.bytes_mut(&tensor).fill(1);
                }
            }
        }
        assert_eq!(session.bytes(&tensor(IN_CONSTANTS, 0, 32))[31], 31, "constants were written");
    });
}

/// Wider than any alignment that fits a byte.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(256))]
struct Page([u8; 256]);

#[test]
fn arrays_are_aligned_and_of_the_right_size() {
    let mut draft = Draft::default();
    draft.banks[0].bytes = 1024;
    draft.session(1024, |session| {
        assert!(session.array::<u32, 2>(&tensor(0, 4, 8)).is_some());
        assert!(session.array::<u32, 2>(&tensor(0, 2, 8)).is_none());
        assert!(session.array::<u32, 2>(&tensor(0, 4, 12)).is_none());
        assert!(session.array::<u32, 2>(&tensor(0, 1020, 8)).is_none());
        assert!(session.array::<u8, 8>(&tensor(1, 0, 8)).is_none());
        let base = session.bytes(&tensor(0, 0, 1)).as_ptr().addr() as u64;
        let aligned = base.next_multiple_of(256) - base;
        for offset in [16, 32, 128].map(|beyond| (aligned + beyond) % 512) {
            let page = session.array::<Page, 1>(&tensor(0, offset, 256));
            assert!(page.is_none(), "a page at {offset} beyond {base:#x}");
        }
        let page = session.array::<Page, 1>(&tensor(0, aligned, 256)).unwrap();
        session.bytes_mut(&tensor(0, aligned, 256)).fill(3);
        // SAFETY: the session is borrowed by this closure alone, and not used meanwhile.
        assert_eq!(unsafe { page.as_ref() }, &[Page([3; 256])]);
    });
}
