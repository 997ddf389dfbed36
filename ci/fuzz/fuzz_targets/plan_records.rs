//! Any bytes as plan records, the checksum made right: refused, or run without touching a byte outside the arena (the
//! address sanitizer watches).

#![no_main]

use kiln_core::{Plan, Row, Session, crc};
use kiln_kernels::table::{KERNEL_COUNT, host_rows};
use kiln_target_host::AlignedBytes;
use libfuzzer_sys::fuzz_target;

static ROWS: [Row; KERNEL_COUNT] = host_rows();

/// The most memory a fuzzed plan is given.
const MEMORY: u64 = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    let mut plan = AlignedBytes::copy_of(bytes);
    let data = plan.as_mut();
    if data.len() < 128 {
        return;
    }
    // A mutated length would end every try at once.
    let len = data.len() as u64;
    data[16..24].copy_from_slice(&len.to_le_bytes());
    let sum = crc::finish(crc::update(crc::update(crc::START, &data[..12]), &data[16..]));
    data[12..16].copy_from_slice(&sum.to_le_bytes());
    let Ok(plan) = Plan::load_any_target(plan.as_ref()) else { return };
    let bytes = plan.banks().first().map_or(0, |bank| bank.bytes);
    if plan.banks().len() > 1 || bytes > MEMORY {
        return;
    }
    let mut memory = AlignedBytes::zeroed(bytes as usize);
    let Ok(mut session) = Session::new(plan, &ROWS, memory.as_mut()) else { return };
    for index in 0..plan.entry_count().min(2) {
        if let Some(entry) = plan.entry(index) {
            session.run(&entry);
        }
    }
});
