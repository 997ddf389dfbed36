//! Plans whose records lie. Whatever they say, checking and running them neither panics nor
//! touches a byte outside the memory they were given.

use std::time::{Duration, Instant};

use kiln_core::plan::{Header, Table};
use kiln_core::zerocopy::FromBytes;
use kiln_core::{MAX_BANKS, Plan, Row, Session, TargetId, crc};
use kiln_kernels::table::host_rows;
use kiln_planner::graph::{Extent, Graph, Source, VaryingDim};
use kiln_planner::{Options, plan};
use kiln_target_host::{AlignedBytes, Runner};

use crate::canaries::Guarded;
use crate::generate::any_graph;
use crate::support::{Random, options};

/// Mutants of each kind of plan; Miri is slow.
const SMALL: u64 = if cfg!(miri) { 40 } else { 60_000 };
const REAL: u64 = 500;
/// Banks larger than this are not given to mutants.
const MOST_MEMORY: u64 = 1 << 20;

/// What happened to mutants.
#[derive(Default, Debug)]
struct Tally {
    not_loaded: u64,
    refused: u64,
    ran: u64,
    slowest: Duration,
}

/// A number that is near `old`, or at an edge, or anything.
fn other(old: u64, random: &mut Random) -> u64 {
    match random.range(0, 9) {
        0 => random.word(),
        1 => random.pick(&[0, 1, 2, u64::MAX, i32::MAX as u64, 1 << 31, u32::MAX as u64, u16::MAX as u64]),
        2 | 3 => old.wrapping_add(1),
        4 => old.wrapping_sub(1),
        5 => old.wrapping_mul(2),
        6 => old ^ 1 << random.range(0, 63),
        7 => old.wrapping_add(random.range(0, 64) as u64),
        8 => old.wrapping_sub(random.range(0, 64) as u64),
        _ => random.range(0, 16) as u64,
    }
}

fn header(bytes: &[u8]) -> Header {
    Header::read_from_prefix(bytes).unwrap().0
}

/// Changes a field of a table, or puts one of its records in another's place. `header` says where
/// the tables lay before anything was changed.
fn mutate(bytes: &mut [u8], header: &Header, random: &mut Random) {
    let table = |table: Table, record: usize| (table.offset as usize, table.count as usize * record, record);
    let (start, len, record) = match random.range(0, 19) {
        0 => (16, size_of::<Header>() - 16, 8),
        1 => table(header.banks, 16),
        2 => table(header.entries, 32),
        3..=6 => table(header.steps, 36),
        7..=10 => table(header.operands, 16),
        11 => table(header.tensors, 72),
        12 => table(header.extents, 16),
        _ => (header.parameters.offset as usize, header.parameters.count as usize, 4),
    };
    if len < record {
        return;
    }
    if random.one_in(8) {
        let (from, to) = (random.below(len / record), random.below(len / record));
        bytes.copy_within(start + from * record..start + (from + 1) * record, start + to * record);
        return;
    }
    let size = random.pick(&[1, 2, 4, 4, 4, 8]).min(record);
    let at = start + random.below(len / size) * size;
    let mut old = [0; 8];
    old[..size].copy_from_slice(&bytes[at..at + size]);
    let new = other(u64::from_le_bytes(old), random).to_le_bytes();
    bytes[at..at + size].copy_from_slice(&new[..size]);
}

fn seal(bytes: &mut [u8]) {
    let sum = crc::finish(crc::update(crc::update(crc::START, &bytes[..12]), &bytes[16..]));
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// Loads and runs a plan between canaries.
fn attempt(bytes: &[u8], rows: &[Row], tally: &mut Tally, random: &mut Random) {
    let begun = Instant::now();
    let copy = AlignedBytes::copy_of(bytes);
    let Ok(plan) = Plan::load_any_target(copy.as_ref()) else {
        tally.not_loaded += 1;
        return;
    };
    let sizes: Vec<usize> = plan.banks().iter().map(|b| b.bytes.min(MOST_MEMORY) as usize).collect();
    let canaries = !random.one_in(3);
    let bank = |i| Guarded::new(sizes.get(i).copied().unwrap_or(64), canaries);
    let mut banks: [Guarded; MAX_BANKS] = std::array::from_fn(bank);
    for bank in &mut banks {
        bank.bytes().fill(random.word() as u8);
    }
    let started = match Session::new(plan, rows, banks.each_mut().map(Guarded::bytes)) {
        Ok(mut session) => {
            for entry in (0..plan.entry_count().min(8)).filter_map(|i| plan.entry(i)) {
                for input in entry.inputs {
                    session.bytes_mut(input).fill(random.word() as u8);
                }
                for extent in 0..plan.extents().len() {
                    let _ = session.set_extent(extent as u16, random.range(1, 4));
                }
                session.run(&entry);
                for output in entry.outputs {
                    std::hint::black_box(session.bytes(output).iter().fold(0, |sum: u8, &b| sum ^ b));
                }
            }
            true
        }
        Err(_) => false,
    };
    *if started { &mut tally.ran } else { &mut tally.refused } += 1;
    assert!(banks.iter().all(Guarded::whole), "wrote outside its memory");
    assert!(copy.as_ref() == bytes, "wrote to its plan");
    tally.slowest = tally.slowest.max(begun.elapsed());
}

fn attack(bytes: &[u8], mutants: u64, seed: u64, tally: &mut Tally) {
    let rows = host_rows();
    for mutant in 0..mutants {
        let mut random = Random::new(seed << 32 | mutant);
        let mut bytes = bytes.to_vec();
        let tables = header(&bytes);
        for _ in 0..random.pick(&[1, 1, 1, 2, 3]) {
            mutate(&mut bytes, &tables, &mut random);
        }
        seal(&mut bytes);
        attempt(&bytes, &rows, tally, &mut random);
    }
}

/// Lets the first axis vary wherever it is as long as the first input's, if all operators allow it: those
/// that come first must not reduce over it.
fn vary(graph: &mut Graph) {
    let fixed = graph.clone();
    let input = graph.entries[0].inputs[0];
    let max = graph.value(input).ty.shape.dim(0);
    graph.extents = vec![Extent { name: "batch".into(), max }];
    for value in &mut graph.values {
        if !matches!(value.source, Source::Constant(_)) && value.ty.shape.dims().first() == Some(&max) {
            value.varying = vec![VaryingDim { axis: 0, extent: 0 }];
        }
    }
    if graph.validate().is_err() {
        *graph = fixed;
    }
}

#[test]
fn mutants_of_small_plans() {
    let mut tally = Tally::default();
    let graphs = if cfg!(miri) { 4 } else { 60 };
    for seed in 0..graphs {
        let mut graph = any_graph(1000 + seed, if cfg!(miri) { 3 } else { 9 });
        if seed % 2 == 0 {
            vary(&mut graph);
        }
        let planned = plan(&graph, &options(true)).unwrap();
        attack(&planned.bytes, SMALL / graphs, seed, &mut tally);
    }
    println!("{tally:?}");
    if !cfg!(miri) {
        assert!(tally.ran > SMALL / 10 && tally.refused > SMALL / 10 && tally.not_loaded > 0, "{tally:?}");
        assert!(tally.slowest < Duration::from_secs(2), "{tally:?}");
    }
}

/// The reference data, or `None` with a line that says so.
fn real_model(name: &str) -> Option<Vec<u8>> {
    if cfg!(miri) {
        return None;
    }
    let data = std::env::var("KILN_DATA").unwrap_or("../shared/data".into());
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join(data).join("models").join(name).join("model.tflite");
    let bytes = std::fs::read(&path).ok();
    if bytes.is_none() {
        println!("skipped: no {}", path.display());
    }
    bytes
}

#[test]
fn mutants_of_real_models() {
    let mut tally = Tally::default();
    let names = ["tflm-hello-world-int8", "mlperf-kws-dscnn-int8", "mlperf-ic-resnet8-int8"];
    for (seed, name) in names.into_iter().enumerate() {
        let Some(model) = real_model(name) else { continue };
        let graph = kiln_import::import_tflite(&model, name).unwrap();
        let planned = plan(&graph, &Options::for_target(TargetId::ARMV7EM)).unwrap();
        let mutants = if name.starts_with("tflm") { 10 * REAL } else { REAL };
        attack(&planned.bytes, mutants, 500 + seed as u64, &mut tally);
    }
    println!("{tally:?}");
}

/// The runner copies inputs and outputs; that must not panic either.
#[test]
fn mutants_in_a_runner() {
    let mutants = if cfg!(miri) { 6 } else { 3000 };
    let (mut ran, mut refused) = (0, 0);
    for mutant in 0..mutants {
        let mut random = Random::new(900 << 32 | mutant);
        let graph = any_graph(2000 + mutant % 20, 4);
        let mut bytes = plan(&graph, &options(true)).unwrap().bytes;
        let tables = header(&bytes);
        for _ in 0..2 {
            mutate(&mut bytes, &tables, &mut random);
        }
        seal(&mut bytes);
        let copy = AlignedBytes::copy_of(&bytes);
        let banks = Plan::load_any_target(copy.as_ref()).map_or(&[][..], |plan| plan.banks());
        if banks.iter().any(|bank| bank.bytes > MOST_MEMORY) {
            continue;
        }
        let Ok(mut runner) = Runner::new(&bytes) else {
            refused += 1;
            continue;
        };
        for entry in ["infer", "second"] {
            let Ok(inputs) = runner.inputs(entry) else { continue };
            let data: Vec<Vec<u8>> = inputs.iter().map(|t| vec![1; t.bytes as usize]).collect();
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let outputs = runner.run_recording(entry, &data).unwrap().0;
            assert_eq!(outputs.len(), runner.outputs(entry).unwrap().len());
            ran += 1;
        }
    }
    println!("{ran} runs, {refused} refused");
    assert!(ran > 0 && refused > 0);
}

/// A whole table of random bytes among tables that are right.
#[test]
fn random_tables() {
    let mut tally = Tally::default();
    let rows = host_rows();
    let base = plan(&any_graph(3, 6), &options(true)).unwrap().bytes;
    let tables = header(&base);
    for seed in 0..if cfg!(miri) { 8 } else { 4000 } {
        let mut random = Random::new(seed);
        let mut bytes = base.clone();
        let (table, record) = random.pick(&[
            (tables.banks, 16),
            (tables.entries, 32),
            (tables.steps, 36),
            (tables.operands, 16),
            (tables.tensors, 72),
            (tables.parameters, 1),
        ]);
        let dense = random.range(1, 12);
        for byte in &mut bytes[table.offset as usize..][..table.count as usize * record] {
            *byte = if random.one_in(dense) { random.word() as u8 } else { 0 };
        }
        seal(&mut bytes);
        attempt(&bytes, &rows, &mut tally, &mut random);
    }
    println!("{tally:?}");
    assert!(cfg!(miri) || (tally.refused > 0 && tally.not_loaded > 0 && tally.ran > 0), "{tally:?}");
}
