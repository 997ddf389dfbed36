//! Any bytes as a `.tflite` file: an error or a valid graph, and a plan of it or an error. The same bytes as the
//! archive behind one, which few of them would reach that way.

#![no_main]

use kiln_core::TargetId;
use kiln_planner::solve::Budget;
use kiln_planner::{Options, plan};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = kiln_import::tflite::appended_texts(bytes);
    let Ok(graph) = kiln_import::import_tflite(bytes, "fuzzed") else { return };
    graph.validate().expect("an imported graph is valid");
    // Large tensors are fine for planning, but a plan of megabytes of packed constants only costs time here.
    let options = Options { target: TargetId::ARMV7EM, budget: Budget { nodes: 200 }, overlap: true };
    let _ = plan(&graph, &options);
});
