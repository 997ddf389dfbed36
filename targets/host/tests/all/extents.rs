//! A batch that varies at run time, planned at its maximum.

use kiln_core::DType;
use kiln_ops::{Activation, Add, Conv2d, FullyConnected, Op, Pool2d, PoolKind, Softmax};
use kiln_planner::graph::{Extent, Graph, Quant, ValueId, VaryingDim};
use kiln_planner::plan;
use kiln_planner::reference::Evaluator;
use kiln_target_host::Runner;

use crate::support::{Random, compare, graph, input, options, ty};

const BATCH: u32 = 5;

/// Makes `ids` vary along their first axis.
fn vary(graph: &mut Graph, ids: &[ValueId]) {
    graph.extents = vec![Extent { name: "batch".into(), max: BATCH }];
    for id in ids {
        graph.values[id.index()].varying = vec![VaryingDim { axis: 0, extent: 0 }];
    }
}

/// Runs every batch size, large and small by turns, and compares the rows that count: with those of a whole batch, to the bit, and with the
/// references'.
fn check(graph: &Graph, seed: u64) {
    let mut random = Random::new(seed);
    for overlap in [true, false] {
        let planned = plan(graph, &options(overlap)).unwrap();
        let mut runner = Runner::new(&planned.bytes).unwrap();
        let mut largest = Runner::new(&planned.bytes).unwrap();
        for batch in [BATCH, 1, 2, 3, 4, BATCH, 2] {
            let x = random.elements(&graph.value(graph.entries[0].inputs[0]).ty);
            let want = Evaluator::new(graph).run(0, &[&x]).unwrap();
            let whole = largest.run("infer", &[&x]).unwrap();
            runner.set_extent(0, batch).unwrap();
            let got = runner.run("infer", &[&x]).unwrap();
            for ((id, got), whole) in graph.entries[0].outputs.iter().zip(&got).zip(&whole) {
                let rows = got.len() / BATCH as usize * batch as usize;
                assert_eq!(got[..rows], whole[..rows], "a batch of {batch}");
                compare(graph.value(*id).ty.dtype, &got[..rows], &want[id][..rows], || format!("a batch of {batch}"));
            }
        }
        for (step, record) in planned.entries[0].steps.iter().zip(steps(&planned.bytes)) {
            assert_eq!(record, 0, "step '{}' does not vary", step.name);
        }
    }
}

/// The extents of a plan's steps.
fn steps(bytes: &[u8]) -> Vec<u16> {
    let aligned = kiln_target_host::AlignedBytes::copy_of(bytes);
    let plan = kiln_core::Plan::load_any_target(aligned.as_ref()).unwrap();
    plan.steps().iter().map(|s| s.extent).collect()
}

fn quants(random: &mut Random) -> [Quant; 4] {
    let scale = |random: &mut Random| 0.02 + 0.01 * random.real();
    [
        Quant::per_tensor(scale(random), -3),
        Quant::per_tensor(scale(random), 0),
        Quant::per_tensor(0.05, 4),
        Quant::per_tensor(1.0 / 256.0, -128),
    ]
}

#[test]
#[cfg_attr(miri, ignore = "slow, and the same accesses as in other tests")]
fn fully_connected_and_softmax() {
    let mut random = Random::new(7);
    let [qx, qw, qy, qp] = quants(&mut random);
    let mut g = graph(&["infer"]);
    let x = input(&mut g, 0, "x", ty(DType::I8, &[BATCH, 6]), &qx);
    let (wide, bias) = (ty(DType::I8, &[9, 6]), ty(DType::I32, &[9]));
    let w = g.add_constant("w", wide, qw, random.elements(&wide));
    let b = g.add_constant("b", bias, Quant::default(), random.elements(&bias));
    let op = FullyConnected { keep_dims: false, activation: Activation::None };
    let y = g.add_node(0, "y", op, &[x, w, b], qy).unwrap();
    let p = g.add_node(0, "p", Softmax { beta: 1.0 }, &[y], qp).unwrap();
    g.entries[0].outputs = vec![p];
    vary(&mut g, &[x, y, p]);
    check(&g, 1);
}

#[test]
#[cfg_attr(miri, ignore = "slow, and the same accesses as in other tests")]
fn a_convolution_with_padding_and_what_follows() {
    for dtype in [DType::I8, DType::F32] {
        let mut random = Random::new(8);
        let [qx, qw, qy, _] = if dtype == DType::I8 { quants(&mut random) } else { Default::default() };
        let mut g = graph(&["infer"]);
        let x = input(&mut g, 0, "x", ty(dtype, &[BATCH, 6, 5, 3]), &qx);
        // More channels out than in: with a batch the output drifts away from the input.
        let filter = ty(dtype, &[7, 3, 3, 3]);
        let w = g.add_constant("w", filter, qw, random.elements(&filter));
        let conv =
            Conv2d { strides: [2, 1], dilations: [1, 1], pads: [1, 1, 1, 1], groups: 1, activation: Activation::Relu };
        let y = g.add_node(0, "y", conv, &[x, w], qy.clone()).unwrap();
        let sum = g.add_node(0, "sum", Add { activation: Activation::None }, &[y, y], qy.clone()).unwrap();
        let pool = Pool2d {
            kind: PoolKind::Average,
            kernel: [2, 2],
            strides: [1, 2],
            pads: [0; 4],
            activation: Activation::None,
        };
        let z = g.add_node(0, "z", Op::from(pool), &[sum], qy).unwrap();
        g.entries[0].outputs = vec![z];
        vary(&mut g, &[x, y, sum, z]);
        check(&g, 2);
    }
}

#[test]
fn more_extents_than_a_session_keeps_are_refused() {
    let mut g = graph(&["infer"]);
    let x = input(&mut g, 0, "x", ty(DType::I8, &[2]), &Quant::default());
    g.entries[0].outputs = vec![x];
    g.extents = (0..5).map(|i| Extent { name: format!("e{i}"), max: 2 }).collect();
    let error = plan(&g, &options(true)).err().unwrap().to_string();
    assert!(error.contains("5, more than a plan can hold (4)"), "{error}");
    g.extents.pop();
    let planned = plan(&g, &options(true)).unwrap();
    assert!(Runner::new(&planned.bytes).is_ok());
}
