//! Every operator that has kernels, one at a time.

use std::collections::BTreeMap;

use kiln_ops::Op;
use kiln_planner::backend::Backend;
use kiln_target_host::Cpu;

use crate::cases::{Case, all, compare};
use crate::{cube, extremes};

#[test]
fn every_operator_computes_what_the_host_does() {
    same(all());
}

#[test]
fn nan_infinities_and_large_numbers_are_as_on_the_host() {
    same(extremes::all());
}

fn same(cases: Vec<Case>) {
    let Some(cube) = cube() else { return };
    let host = Cpu::with_threads(1);
    let mut wrong = Vec::new();
    for case in cases {
        match compare(&case, &cube, &host) {
            Ok(off) if off <= case.tolerance => {}
            Ok(off) => wrong.push(format!("{}: {off:e}, more than {:e}", case.name, case.tolerance)),
            Err(error) => wrong.push(format!("{}: {error}", case.name)),
        }
    }
    assert!(wrong.is_empty(), "{} of the cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_cases_are_of_every_operator_and_run_on_the_gpu() {
    let Some(cube) = cube() else { return };
    let mut missing: BTreeMap<u16, &str> = Op::ALL.iter().copied().collect();
    for case in all() {
        let node = &case.graph.entries[0].nodes[0];
        missing.remove(&node.op.code());
        let types = case.graph.types(&node.inputs);
        assert!(cube.supports(&node.op, &types, &case.graph.value(node.output).ty), "{} has no kernel", case.name);
        let prepared = cube.prepare(&case.graph, 0).unwrap();
        assert_eq!(prepared.routed(), [], "{}", case.name);
    }
    // Chains have tests of their own; quantized tensors, and the parts that planning for small memories makes, are the CPU's.
    let missing: Vec<&str> = missing.into_values().collect();
    assert_eq!(missing, ["quantize", "dequantize", "average_pool2d_part", "fused"]);
}
