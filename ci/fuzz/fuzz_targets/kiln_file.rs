//! Any bytes as a `.kiln` file, the checksum made right: an error, or a graph that plans or says why not.

#![no_main]

use kiln_core::{TargetId, crc};
use kiln_planner::kiln_file::KilnFile;
use kiln_planner::solve::Budget;
use kiln_planner::{Options, plan};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 16 {
        let sum = crc::crc32(&bytes[16..]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    let Ok(file) = KilnFile::from_bytes(&bytes) else { return };
    if let Some(graph) = file.graph {
        let options = Options { budget: Budget { nodes: 200 }, ..Options::for_target(TargetId::ARMV7EM) };
        let _ = plan(&graph, &options);
    }
});
