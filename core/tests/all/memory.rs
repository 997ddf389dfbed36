//! The caller's memory: too little, misaligned, several banks.

use kiln_core::plan::{BankRecord, StepRecord};
use kiln_core::{Error, MAX_BANKS, Memory, Plan, Session};

use crate::support::{Aligned, Draft, ROWS, STRIDE, operand, tensor};

fn bank(bytes: u64, align: u32) -> BankRecord {
    BankRecord { bytes, align, reserved: 0 }
}

/// Why no session begins over 64 bytes that are `start` beyond a multiple of 16.
pub(crate) fn begin(draft: &Draft, start: usize) -> Option<Error> {
    let bytes = Aligned::new(&draft.bytes(), 0);
    let mut memory = Aligned::new(&[0; 64], start);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    Session::new(plan, ROWS, memory.as_mut()).err()
}

#[test]
fn too_little_is_refused_with_numbers() {
    let draft = Draft::default();
    for given in (0..64).step_by(STRIDE) {
        assert_eq!(draft.refused_with(given), Some(Error::Memory(0, 64, given as u64)));
    }
    assert_eq!(draft.refused_with(65), None);
    let huge = Draft { banks: vec![bank(u64::MAX, 16)], ..Draft::default() };
    assert_eq!(huge.refused(), Some(Error::Memory(0, u64::MAX, 64)));
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    assert_eq!(Session::new(plan, ROWS, Memory::empty()).err(), Some(Error::Memory(0, 64, 0)));
}

#[test]
fn misaligned_memory_is_refused() {
    let draft = Draft::default();
    for start in (1..16).step_by(STRIDE) {
        assert_eq!(begin(&draft, start), Some(Error::MemoryAlignment(0, 16)));
    }
    for align in [1, 2, 4, 8] {
        let draft = Draft { banks: vec![bank(64, align)], ..Draft::default() };
        for start in (0..16).step_by(STRIDE.min(5)) {
            let error = (start % align as usize != 0).then_some(Error::MemoryAlignment(0, align));
            assert_eq!(begin(&draft, start), error);
        }
    }
    for align in [0, 3, 12, u32::MAX] {
        let draft = Draft { banks: vec![bank(64, align)], ..Draft::default() };
        assert_eq!(draft.refused(), Some(Error::MemoryAlignment(0, align)));
    }
}

#[test]
fn state_must_fit_the_first_bank() {
    let draft = Draft { state_len: 65, ..Draft::default() };
    assert_eq!(draft.refused_with(128), Some(Error::Memory(0, 65, 64)));
    let draft = Draft { state_len: u64::MAX, ..Draft::default() };
    assert_eq!(draft.refused(), Some(Error::Memory(0, u64::MAX, 64)));
    let mut draft = Draft { state_len: 1, banks: vec![], ..Draft::default() };
    (draft.entries, draft.steps, draft.tensors) = (vec![], Vec::<StepRecord>::new(), vec![]);
    assert_eq!(draft.refused(), Some(Error::Memory(0, 1, 0)));
}

#[test]
fn tensors_must_lie_inside_their_bank() {
    for (number, broken) in [tensor(0, 60, 8), tensor(1, 0, 8), tensor(0, 0, u64::MAX)].into_iter().enumerate() {
        let mut draft = Draft::default();
        draft.tensors.push(broken);
        assert_eq!(draft.refused(), Some(Error::Tensor(2)), "change {number}");
    }
}

#[test]
fn steps_reach_across_banks() {
    let mut draft = Draft { banks: vec![bank(8, 1), bank(4, 1), bank(16, 4)], ..Draft::default() };
    draft.operands = vec![operand(0, 0, 8), operand(2, 8, 8)];
    draft.tensors = vec![tensor(0, 0, 8), tensor(2, 8, 8)];
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let (mut a, mut b, mut c) = (Aligned::zeroed(8), Aligned::new(&[9; 4], 0), Aligned::zeroed(24));
    {
        let mut session = Session::new(plan, ROWS, [a.as_mut(), b.as_mut(), c.as_mut()]).unwrap();
        let entry = plan.entry(0).unwrap();
        session.bytes_mut(&entry.inputs[0]).copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 255]);
        session.run(&entry);
        assert_eq!(session.bytes(&entry.outputs[0]), [2, 3, 4, 5, 6, 7, 8, 0]);
    }
    assert_eq!((b.as_ref(), &c.as_ref()[..8], &c.as_ref()[16..]), (&[9; 4][..], &[0; 8][..], &[0; 8][..]));
}

#[test]
fn every_bank_is_held_against_its_own_memory() {
    let draft = Draft { banks: vec![bank(64, 1), bank(8, 4)], ..Draft::default() };
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let begin = |second: Option<(usize, usize)>| {
        let mut first = Aligned::zeroed(64);
        match second {
            None => Session::new(plan, ROWS, [first.as_mut()]).err(),
            Some((start, len)) => {
                let mut second = Aligned::new(&vec![0; len], start);
                Session::new(plan, ROWS, [first.as_mut(), second.as_mut()]).err()
            }
        }
    };
    assert_eq!(begin(None), Some(Error::Memory(1, 8, 0)));
    assert_eq!(begin(Some((0, 7))), Some(Error::Memory(1, 8, 7)));
    assert_eq!(begin(Some((2, 8))), Some(Error::MemoryAlignment(1, 4)));
    assert_eq!(begin(Some((4, 8))), None);
}

#[test]
fn more_banks_than_a_session_keeps() {
    let draft = Draft { banks: vec![bank(8, 1); MAX_BANKS + 1], ..Draft::default() };
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let mut banks: [Aligned; MAX_BANKS + 1] = std::array::from_fn(|_| Aligned::zeroed(8));
    let error = Session::new(plan, ROWS, banks.each_mut().map(Aligned::as_mut)).err();
    assert_eq!(error, Some(Error::Memory(MAX_BANKS as u8, 8, 0)));
}

#[test]
fn a_session_takes_no_more_banks_than_its_type_has() {
    let draft = Draft { banks: vec![bank(48, 1), bank(8, 1)], ..Draft::default() };
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), draft.target).unwrap();
    let (mut first, mut second) = (Aligned::zeroed(48), Aligned::zeroed(8));
    let mut begin = |two: bool| {
        let memory = [first.as_mut(), second.as_mut()];
        match two {
            true => Session::<2, 2, 0>::bounded(plan, ROWS, memory).err(),
            false => Session::<2, 1, 0>::bounded(plan, ROWS, memory).err(),
        }
    };
    assert_eq!(begin(false), Some(Error::Memory(1, 8, 0)));
    assert_eq!(begin(true), None);
    // Nor one where it has none.
    assert_eq!(Session::<2, 0, 0>::bounded(plan, ROWS, first.as_mut()).err(), Some(Error::Memory(0, 48, 0)));
    let none =
        Draft { banks: vec![], operands: vec![], tensors: vec![], entries: vec![], steps: vec![], ..Draft::default() };
    let bytes = Aligned::new(&none.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), none.target).unwrap();
    assert_eq!(Session::<0, 0, 0>::bounded(plan, ROWS, Memory::empty()).map(|mut session| session.reset()).err(), None);
}
