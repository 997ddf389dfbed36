//! The runner: its duties as an owner, and its messages.

use kiln_core::plan::{BankRecord, Header, StepKind};
use kiln_core::zerocopy::{FromBytes, IntoBytes};
use kiln_core::{DType, Done, Error, TargetId, crc};
use kiln_ops::{Activation, Add, Conv2d};
use kiln_planner::graph::Quant;
use kiln_planner::plan;
use kiln_target_host::{AlignedBytes, RunError, Runner, native_target};

use crate::support::{Pair, Random, graph, input, options, ty};

/// A convolution whose output overlaps its input, then a sum: the least that has all parts.
fn small() -> kiln_planner::graph::Graph {
    let mut random = Random::new(11);
    let quant = Quant::per_tensor(0.05, -2);
    let mut g = graph(&["infer"]);
    let x = input(&mut g, 0, "image", ty(DType::I8, &[1, 4, 4, 2]), &quant);
    let filter = ty(DType::I8, &[2, 3, 3, 2]);
    let w = g.add_constant("w", filter, Quant::per_tensor(0.01, 0), random.elements(&filter));
    let conv = Conv2d { strides: [1, 1], dilations: [1, 1], pads: [1; 4], groups: 1, activation: Activation::Relu };
    let y = g.add_node(0, "conv", conv, &[x, w], quant.clone()).unwrap();
    let sum = g.add_node(0, "sum", Add { activation: Activation::None }, &[y, y], quant).unwrap();
    g.entries[0].outputs = vec![sum];
    g
}

fn small_plan() -> Vec<u8> {
    plan(&small(), &options(true)).unwrap().bytes
}

/// The plan with its first bytes changed and the checksum right again.
fn changed(change: impl FnOnce(&mut Header, &mut [u8])) -> Vec<u8> {
    let mut bytes = small_plan();
    let (mut header, _) = Header::read_from_prefix(&bytes).unwrap();
    change(&mut header, &mut bytes);
    bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
    let sum = crc::finish(crc::update(crc::update(crc::START, &bytes[..12]), &bytes[16..]));
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn message(bytes: &[u8]) -> String {
    Runner::new(bytes).err().unwrap().to_string()
}

#[test]
fn a_whole_session_with_overlap() {
    let g = small();
    let mut pair = Pair::new(&g, true);
    let entry = &pair.planned.entries[0];
    let scratch = entry.steps.iter().map(|step| step.scratch).max().unwrap_or(0);
    assert!(entry.optimal && entry.arena < 2 * 32 + scratch, "the convolution's output overlaps its input");
    for seed in 0..3 {
        let x = Random::new(seed).elements(&ty(DType::I8, &[1, 4, 4, 2]));
        pair.run(0, &[x]);
    }
}

/// A runner is moved, its borrows of itself are not: under Miri this shows.
#[test]
fn a_runner_moves() {
    let make = || Box::new(Runner::new(&small_plan()).unwrap());
    let mut runners = vec![make(), make()];
    runners.swap(0, 1);
    let mut one = *runners.remove(0);
    drop(runners);
    let mut steps = 0;
    let outputs = one.run_with("infer", &[&[1; 32]], &mut |_: &Done<'_>| steps += 1).unwrap();
    assert_eq!((outputs.len(), outputs[0].len(), steps), (1, 32, 2));
    one.reset();
    let (name, bytes) = (one.name(&one.inputs("infer").unwrap()[0]), one.inputs("infer").unwrap()[0].bytes);
    assert_eq!((name, bytes), ("image", 32));
    std::thread::spawn(move || one.run("infer", &[&[1; 32]]).unwrap()).join().unwrap();
}

#[test]
fn wrong_inputs_are_named() {
    let mut runner = Runner::new(&small_plan()).unwrap();
    let error = |result: Result<Vec<Vec<u8>>, RunError>| result.err().unwrap().to_string();
    assert_eq!(error(runner.run("infer", &[])), "the entry takes 1 inputs, not 0");
    assert_eq!(error(runner.run("infer", &[&[0; 32], &[0; 32]])), "the entry takes 1 inputs, not 2");
    assert_eq!(error(runner.run("infer", &[&[0; 31]])), "input 0 ('image') takes 32 bytes, not 31");
    assert_eq!(error(runner.run("infer", &[&[]])), "input 0 ('image') takes 32 bytes, not 0");
    assert_eq!(error(runner.run("train_step", &[])), "the plan has no entry 'train_step'; it has: infer");
    assert!(runner.inputs("x").is_err() && runner.outputs("x").is_err());
    let error = runner.set_extent(0, 3).err().unwrap().to_string();
    assert_eq!(error, "3 is not a size that varying dimension 0 can have");
    assert!(runner.run("infer", &[&[0; 32]]).is_ok(), "and still works");
}

#[test]
fn refused_plans_say_why_in_words() {
    let good = small_plan();
    let len = good.len();
    assert_eq!(message(&[]), "the plan is truncated: only 0 bytes");
    assert_eq!(message(&good[..len - 1]), format!("the plan is truncated: only {} bytes", len - 1));
    assert_eq!(message(&[7; 200]), "not a plan: the first bytes are not \"KPLN\"");
    let newer = message(&changed(|h, _| h.major = 9));
    assert_eq!(newer, "the plan has format version 9.0, which this build does not read: compile it again");
    let mut damaged = good.clone();
    damaged[len - 1] ^= 1;
    assert!(message(&damaged).starts_with("the plan is damaged: its checksum is "));
    let kind = message(&changed(|h, b| b[h.steps.offset as usize] = StepKind::Loop as u8));
    assert_eq!(kind, "step 0 is of kind 2, which this build does not run: compile the model again");
    let row = message(&changed(|h, b| b[h.steps.offset as usize + 4..][..2].fill(0xff)));
    assert_eq!(row, "step 0 needs kernel 65535, which this build does not have: compile the model again");
    let table = message(&changed(|h, _| h.steps.count = u32::MAX));
    assert!(table.contains("its table of steps lies outside its bytes"), "{table}");
    let operand = message(&changed(|h, b| b[h.operands.offset as usize + 8..][..8].fill(0xff)));
    assert!(operand.contains("operand 0 of step 0 lies outside its memory bank"), "{operand}");
    let banks = message(&changed(|h, _| h.banks.count = 0));
    assert!(banks.contains("tensor 0 lies outside"), "{banks}");
    let bank = message(&changed(|h, b| b[h.banks.offset as usize + 8] = 3));
    assert!(bank.contains("must begin at a multiple of 3"), "{bank}");
}

/// No message shows Rust's names for things.
#[test]
fn every_error_of_the_core_has_words() {
    let errors = [
        Error::Truncated(1),
        Error::Magic(1),
        Error::Version(2, 3),
        Error::Target(TargetId::ARMV6M, TargetId(999)),
        Error::Crc(1, 2),
        Error::PlanAlignment(1),
        Error::Table(8),
        Error::Table(99),
        Error::Entry(1),
        Error::Tensor(1),
        Error::Extent(1),
        Error::StepKind(1, 2),
        Error::StepTable(1),
        Error::Row(1, 2),
        Error::Operand(1, 2),
        Error::Parameters(1),
        Error::Memory(0, 1, 2),
        Error::MemoryAlignment(0, 16),
        Error::ExtentValue(0, 1),
    ];
    for error in errors {
        let (text, debug) = (RunError::from(error).to_string(), format!("{error:?}"));
        let variant = debug.split('(').next().unwrap();
        assert!(text.len() > 15 && !text.contains(&debug) && !text.contains(&format!("{variant}(")), "{text}");
    }
    let target = RunError::from(Error::Target(TargetId::ARMV6M, TargetId(999))).to_string();
    assert_eq!(target, "the plan is for armv6-m, not for CPU family number 999");
    assert!(native_target().name().is_some());
}

/// A plan may ask for any amount of memory; asking is not getting, and nothing aborts.
#[test]
#[cfg_attr(miri, ignore = "Miri itself ends when memory does")]
fn hostile_bank_sizes() {
    let with = |bytes: u64| {
        changed(|h, b| {
            let record = BankRecord { bytes, align: 16, reserved: 0 };
            b[h.banks.offset as usize..][..16].copy_from_slice(record.as_bytes());
        })
    };
    for bytes in [u64::MAX, u64::MAX - 63, u64::MAX - 64, 1 << 63, (1 << 63) - 64, 1 << 56] {
        let error = Runner::new(&with(bytes)).err().unwrap();
        assert!(matches!(error, RunError::Memory(_)), "{bytes}: {error}");
        assert!(error.to_string().starts_with("the plan needs "));
    }
    assert!(Runner::new(&with(0)).is_err());
    // More banks than there may be, all of them of the sizes that the other tables' bytes make.
    let many = changed(|h, _| h.banks.count = 9);
    assert!(Runner::new(&many).is_err());
    assert!(AlignedBytes::try_zeroed(usize::MAX).is_none());
    assert!(AlignedBytes::try_zeroed(0).is_some_and(|b| b.as_ref().is_empty()));
    assert_eq!(AlignedBytes::try_zeroed(17).unwrap().as_ref(), [0; 17]);
}
