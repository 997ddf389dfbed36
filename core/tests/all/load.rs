//! What `Plan::load` refuses, and what it then tells.

use kiln_core::plan::{ALIGN, Header, MAGIC, Table, TensorRecord, Text, VERSION};
use kiln_core::{Error, Plan, TargetId};

use crate::support::{Aligned, Draft, IN_CONSTANTS, STRIDE, seal, tensor};

fn load(bytes: &[u8]) -> Result<(), Error> {
    Plan::load(Aligned::new(bytes, 0).as_ref(), TargetId::ARMV7EM).map(|_| ())
}

#[test]
fn a_plan_loads_and_gives_its_tables() {
    let draft = Draft::default();
    let bytes = Aligned::new(&draft.bytes(), 0);
    let plan = Plan::load(bytes.as_ref(), TargetId::ARMV7EM).unwrap();
    assert_eq!(plan.target(), TargetId::ARMV7EM);
    assert_eq!(plan.banks(), draft.banks);
    assert_eq!(plan.steps(), draft.steps);
    assert_eq!(plan.operands(), draft.operands);
    assert_eq!(plan.tensors(), draft.tensors);
    assert_eq!(plan.constants(), draft.constants);
    assert_eq!(plan.constants().as_ptr().addr() % ALIGN, 0);
    assert_eq!(plan.entry_count(), 1);
    let entry = plan.entry_named("infer").unwrap();
    assert_eq!((plan.text(entry.name), entry.first_step, entry.steps.len()), ("infer", 0, 1));
    assert_eq!((entry.inputs, entry.outputs), (&draft.tensors[..1], &draft.tensors[1..]));
    assert!(plan.entry(1).is_none() && plan.entry_named("train_step").is_none());
    let outside = [Text { offset: 3, len: 3 }, Text { offset: u32::MAX, len: u32::MAX }];
    assert_eq!(outside.map(|text| plan.text(text)), ["", ""]);
}

#[test]
fn bytes_may_follow_a_plan() {
    let mut bytes = Draft::default().bytes();
    bytes.extend_from_slice(&[0xff; 100]);
    assert_eq!(load(&bytes), Ok(()));
}

#[test]
fn every_truncation_is_refused() {
    let bytes = Draft::default().bytes();
    for len in (0..bytes.len()).step_by(STRIDE) {
        assert_eq!(load(&bytes[..len]), Err(Error::Truncated(len)));
    }
}

/// The header's own length counts, whatever follows.
#[test]
fn every_stated_length_is_held_against_the_bytes() {
    let draft = Draft::default();
    let all = draft.bytes().len() as u64;
    for len in [all + 1, u64::MAX, 1 << 62] {
        assert_eq!(load(&draft.with_header(|h| h.len = len)), Err(Error::Truncated(all as usize)));
    }
    for len in [0, 11, 15] {
        assert_eq!(load(&draft.with_header(|h| h.len = len)), Err(Error::Truncated(len as usize)));
    }
}

#[test]
fn a_misaligned_plan_is_refused() {
    let bytes = Draft::default().bytes();
    for start in 1..16 {
        let moved = Aligned::new(&bytes, start);
        let error = Plan::load(moved.as_ref(), TargetId::ARMV7EM).err();
        assert_eq!(error, Some(Error::PlanAlignment(start as u8)));
    }
}

#[test]
fn magic_and_version() {
    let draft = Draft::default();
    assert_eq!(load(&draft.with_header(|h| h.magic = 7)), Err(Error::Magic(7)));
    assert_eq!(load(&draft.with_header(|h| h.magic = MAGIC.swap_bytes())), Err(Error::Magic(MAGIC.swap_bytes())));
    let (major, minor) = VERSION;
    assert_eq!(load(&draft.with_header(|h| h.major = major + 1)), Err(Error::Version(major + 1, minor)));
    assert_eq!(load(&draft.with_header(|h| h.minor = minor + 1)), Err(Error::Version(major, minor + 1)));
    assert_eq!(load(&draft.with_header(|h| h.major = 0)), Err(Error::Version(0, minor)));
}

#[test]
fn targets() {
    let bytes = Aligned::new(&Draft::default().bytes(), 0);
    let error = Plan::load(bytes.as_ref(), TargetId::ARMV6M).err();
    assert_eq!(error, Some(Error::Target(TargetId::ARMV7EM, TargetId::ARMV6M)));
    assert!(Plan::load_any_target(bytes.as_ref()).is_ok());
    let portable = Draft { target: TargetId::PORTABLE, ..Draft::default() };
    let bytes = Aligned::new(&portable.bytes(), 0);
    assert!(Plan::load(bytes.as_ref(), TargetId::ARMV6M).is_ok());
    // A build for portable plans only does not run those of a CPU family.
    let bytes = Aligned::new(&Draft::default().bytes(), 0);
    assert!(Plan::load(bytes.as_ref(), TargetId::PORTABLE).is_err());
}

#[test]
fn every_changed_bit_is_noticed() {
    let bytes = Draft::default().bytes();
    for at in (0..bytes.len()).step_by(STRIDE) {
        for bit in (0..8).step_by(STRIDE) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            assert!(load(&changed).is_err(), "bit {bit} of byte {at}");
        }
    }
    let mut changed = bytes.clone();
    changed[200] ^= 1;
    let stored = u32::from_le_bytes(bytes[12..16].try_into().unwrap());
    assert!(matches!(load(&changed), Err(Error::Crc(s, computed)) if s == stored && computed != stored));
}

fn tables(header: &mut Header) -> [&mut Table; 8] {
    [
        &mut header.banks,
        &mut header.entries,
        &mut header.steps,
        &mut header.operands,
        &mut header.tensors,
        &mut header.extents,
        &mut header.parameters,
        &mut header.strings,
    ]
}

#[test]
fn tables_outside_the_plan_are_refused_by_number() {
    let draft = Draft::default();
    let end = draft.bytes().len() as u32;
    for number in 0..8u8 {
        let broken = [(end + 8, 0), (end, 1), (u32::MAX, u32::MAX), (128, u32::MAX), (u32::MAX - 7, 1)];
        for (offset, count) in broken {
            let bytes = draft.with_header(|h| *tables(h)[number as usize] = Table { offset, count });
            assert_eq!(load(&bytes), Err(Error::Table(number)), "table {number} at {offset} with {count}");
        }
        if number < 7 {
            let bytes = draft.with_header(|h| tables(h)[number as usize].offset += 1);
            assert_eq!(load(&bytes), Err(Error::Table(number)), "table {number} is misaligned");
        }
    }
}

#[test]
fn constants_outside_the_plan_are_refused() {
    let draft = Draft::default();
    let end = draft.bytes().len() as u64;
    let broken = [(end - 16, 17), (end + 16, 0), (end - 31, 8), (u64::MAX - 15, 16), (16, u64::MAX), (1 << 40, 0)];
    for (start, len) in broken {
        let bytes = draft.with_header(|h| (h.constants, h.constants_len) = (start, len));
        assert_eq!(load(&bytes), Err(Error::Table(8)), "{len} constants at {start}");
    }
}

#[test]
fn entries_must_have_their_steps_and_tensors() {
    let broken: [fn(&mut Draft); 8] = [
        |d| d.entries[0].steps = 2,
        |d| d.entries[0].first_step = 1,
        |d| d.entries[0].first_step = u32::MAX,
        |d| (d.entries[0].first_step, d.entries[0].steps) = (u32::MAX, u32::MAX),
        |d| d.entries[0].inputs = 2,
        |d| d.entries[0].outputs = 2,
        |d| (d.entries[0].inputs, d.entries[0].outputs) = (u16::MAX, u16::MAX),
        |d| d.entries[0].first_tensor = u32::MAX,
    ];
    for (number, change) in broken.into_iter().enumerate() {
        let mut draft = Draft::default();
        change(&mut draft);
        assert_eq!(load(&draft.bytes()), Err(Error::Entry(0)), "change {number}");
    }
    let mut draft = Draft::default();
    draft.entry("second", 1, 1);
    assert_eq!(load(&draft.bytes()), Err(Error::Entry(1)));
}

/// Callers write inputs; they could not write these.
#[test]
fn inputs_in_the_constants_are_refused() {
    let mut draft = Draft::default();
    draft.tensors[0] = tensor(IN_CONSTANTS, 0, 8);
    assert_eq!(load(&draft.bytes()), Err(Error::Tensor(0)));
    let mut draft = Draft::default();
    draft.tensors[1] = tensor(IN_CONSTANTS, 0, 8);
    assert_eq!(load(&draft.bytes()), Ok(()), "an output may be a constant");
}

#[test]
fn names_that_are_no_text_are_empty() {
    let mut draft = Draft::default();
    draft.strings = vec![0xff; 5];
    let mut bytes = draft.bytes();
    seal(&mut bytes);
    let bytes = Aligned::new(&bytes, 0);
    let plan = Plan::load(bytes.as_ref(), TargetId::ARMV7EM).unwrap();
    assert_eq!(plan.text(plan.entry(0).unwrap().name), "");
    assert!(plan.entry_named("infer").is_none());
}

#[test]
fn an_empty_plan_is_a_plan() {
    let mut draft = Draft { strings: vec![], constants: vec![], parameters: vec![], ..Draft::default() };
    (draft.banks, draft.entries, draft.steps) = (vec![], vec![], vec![]);
    (draft.operands, draft.tensors) = (vec![], Vec::<TensorRecord>::new());
    assert_eq!(draft.refused_with(0), None);
}
