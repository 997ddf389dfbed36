//! Convolutions, pools and residual sums, whole and in patches.

use std::cell::Cell;

use kiln_core::{DType, TargetId};
use kiln_ops::{Activation, Add, Conv2d, Pool2d, PoolKind};
use kiln_passes::{Overlap, Patched, Way, fit_patches, patch};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};
use kiln_planner::solve::Budget;
use kiln_planner::{Options, Planned, plan};
use kiln_target_host::Runner;
use proptest::prelude::*;

use super::{evaluated, input};

/// An operator: what it is, window, stride, dilation and padding down the image, output channels.
#[derive(Clone, Debug)]
struct Stage {
    kind: u32,
    window: u32,
    stride: u32,
    dilation: u32,
    pads: [u32; 2],
    channels: u32,
}

fn stage() -> impl Strategy<Value = Stage> {
    (0..6u32, 1..4u32, 1..3u32, 1..3u32, [0..3u32, 0..3u32], 1..7u32).prop_map(
        |(kind, window, stride, dilation, pads, channels)| Stage { kind, window, stride, dilation, pads, channels },
    )
}

/// The network over an image of these rows; operators that do not fit are left out. Those that add take the value before last,
/// or one before it, of their shape.
fn chain(rows: u32, channels: u32, stages: &[Stage], averaged: bool) -> Graph {
    let mut graph = Graph::new("chain");
    let ty = tensor_type(DType::I8, &[1, rows, 5, channels]).unwrap();
    let x = graph.add_input("x", ty, Quant::per_tensor(0.05, -3));
    graph.entries.push(Entry { name: "infer".into(), inputs: vec![x], ..Entry::default() });
    let mut values = vec![x];
    for (number, stage) in stages.iter().enumerate() {
        let value = values[values.len() - 1];
        let [top, bottom] = stage.pads.map(|pad| pad.min((stage.window - 1) * stage.dilation));
        let (strides, pads) = ([stage.stride, 1], [top, 1, bottom, 1]);
        let kernel = [stage.window, 3];
        let depth = graph.value(value).ty.shape.dim(3);
        let quant = Quant::per_tensor(0.06, -7 + number as i32);
        let added = if stage.kind >= 4 {
            let shape = graph.value(value).ty.shape;
            let Some(&other) = values.iter().rev().skip(1).find(|&&id| graph.value(id).ty.shape == shape) else {
                continue;
            };
            let op = Add { activation: Activation::Relu };
            graph.try_add_node(0, format!("add {number}"), op.into(), &[value, other], quant)
        } else if stage.kind >= 2 {
            let kind = if stage.kind == 2 { PoolKind::Average } else { PoolKind::Max };
            let pads = [top.min(stage.window - 1), 1, bottom.min(stage.window - 1), 1];
            let quant = graph.value(value).quant.clone();
            let op = Pool2d { kind, kernel, strides, pads, activation: Activation::Relu };
            graph.try_add_node(0, format!("pool {number}"), op.into(), &[value], quant)
        } else {
            let depthwise = stage.kind == 1;
            let (outputs, each) = if depthwise { (depth, 1) } else { (stage.channels, depth) };
            let shape = [outputs, kernel[0], kernel[1], each];
            let weights: Vec<u8> =
                (0..shape.iter().product::<u32>()).map(|i| ((i * 89 + 7) % 255).wrapping_sub(127) as u8).collect();
            let ty = tensor_type(DType::I8, &shape).unwrap();
            let weights = graph.add_constant("w", ty, Quant::per_tensor(0.01, 0), weights);
            let bias: Vec<u8> = (0..outputs as i32).flat_map(|o| (o * 300 - 500).to_le_bytes()).collect();
            let ty = tensor_type(DType::I32, &[outputs]).unwrap();
            let bias = graph.add_constant("b", ty, Quant::per_tensor(0.0005, 0), bias);
            let dilations = [stage.dilation, 1];
            let groups = if depthwise { depth } else { 1 };
            let op = Conv2d { strides, dilations, pads, groups, activation: Activation::Relu6 };
            graph.try_add_node(0, format!("conv {number}"), op.into(), &[value, weights, bias], quant)
        };
        values.extend(added);
    }
    if averaged {
        let value = values[values.len() - 1];
        let (shape, quant) = (graph.value(value).ty.shape, graph.value(value).quant.clone());
        let kernel = [shape.dim(1), shape.dim(2)];
        let op =
            Pool2d { kind: PoolKind::Average, kernel, strides: [1, 1], pads: [0; 4], activation: Activation::None };
        values.push(graph.add_node(0, "average", op, &[value], quant).unwrap());
    }
    graph.entries[0].outputs.extend(values.last());
    graph
}

fn run(graph: &Graph, planned: &Planned) -> Vec<Vec<Vec<u8>>> {
    let mut runner = Runner::new(&planned.bytes).unwrap();
    let of = |round: usize| {
        let inputs: Vec<Vec<u8>> = graph.entries[0].inputs.iter().map(|&id| input(graph, id, round)).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        runner.run("infer", &inputs).unwrap()
    };
    (0..super::ROUNDS).map(of).collect()
}

fn options(target: TargetId) -> Options {
    Options { budget: Budget { nodes: 300 }, ..Options::for_target(target) }
}

#[test]
fn patches_compute_the_same() {
    let (cuts, feeds, averages) = (Cell::new(0), Cell::new(0), Cell::new(0));
    proptest!(ProptestConfig::with_cases(150), |(
        rows in 3..20u32,
        channels in 1..5u32,
        stages in prop::collection::vec(stage(), 2..7),
        height in 1..7u32,
        at_once in prop_oneof![Just(u32::MAX), 1..4u32],
        kept: bool,
        averaged: bool,
    )| {
        let graph = chain(rows, channels, &stages, averaged);
        let whole = evaluated(&graph);
        let overlap = if kept { Overlap::Kept } else { Overlap::ComputedAgain };
        let way = Way { rows: height, at_once, overlap };
        for (patched, patches) in (2..8).filter_map(|operators| patch(&graph, operators, way).unwrap()) {
            cuts.set(cuts.get() + 1);
            averages.set(averages.get() + usize::from(patches.last == "average"));
            prop_assert!(!kept || patches.macs == 0);
            patched.validate().unwrap();
            prop_assert_eq!(&evaluated(&patched), &whole);
            for target in [TargetId::PORTABLE, TargetId::ARMV7EM, TargetId::ARMV6M] {
                let planned = plan(&patched, &options(target)).unwrap();
                let entry = planned.main_entry().unwrap();
                // Neither slices nor pieces are copied, but for rows that are kept.
                let copies: &[&str] = if kept { &["slice", "concat"] } else { &["slice", "concat", "copy"] };
                let chains = entry.steps.iter().filter(|step| !copies.contains(&step.op.name()));
                prop_assert_eq!(chains.count(), entry.steps.len());
                prop_assert!(patches.count > 1 && entry.steps.len() >= patches.steps);
                prop_assert_eq!(&run(&patched, &planned), &whole);
                let apart = plan(&patched, &Options { overlap: false, ..options(target) }).unwrap();
                prop_assert!(planned.arena_bytes <= apart.arena_bytes);
                prop_assert_eq!(&run(&patched, &apart), &whole);
                // Fed by rows, where no row is left out: the input then lies nowhere.
                let fed = plan(&patched, &Options { feed: true, ..options(target) }).unwrap();
                prop_assert_eq!(&run(&patched, &fed), &whole);
                if let Some((_, most)) = fed.main_entry().unwrap().fed {
                    prop_assert!(most <= u64::from(rows * 5 * channels));
                    feeds.set(feeds.get() + 1);
                }
            }
        }
    });
    let counts = [cuts.get(), feeds.get(), averages.get()];
    assert!(counts[0] > 100 && counts[1] > 300 && counts[2] > 30, "only {counts:?} cuts, plans fed, averages in parts");
}

/// An image that shrinks, as first layers shrink it.
fn shrinking() -> Graph {
    let wide = Stage { kind: 0, window: 3, stride: 2, dilation: 1, pads: [1, 1], channels: 24 };
    let deep = Stage { kind: 1, stride: 1, ..wide.clone() };
    chain(64, 3, &[wide.clone(), deep.clone(), wide, deep], false)
}

fn extra(graph: &Graph) -> u64 {
    let entry = &graph.entries[0];
    let macs =
        |node: &kiln_planner::graph::Node| node.op.cost(&graph.types(&node.inputs), &graph.value(node.output).ty).macs;
    entry.nodes.iter().map(macs).sum()
}

#[test]
fn the_patches_chosen_fit_and_cost_what_they_say() {
    let graph = shrinking();
    let options = Options::for_target(TargetId::ARMV7EM);
    let whole = plan(&graph, &options).unwrap().ram_bytes;
    let Some(Err(least)) = fit_patches(&graph, &options, 100).unwrap() else { panic!("the input alone is larger") };
    assert!(least < whole * 4 / 5 && least > 64 * 5 * 3, "{least}");
    let mut last = (0, 0);
    for limit in [whole - 1, (whole + least) / 2, least] {
        let Some(Ok(Patched { graph: patched, planned, patches })) = fit_patches(&graph, &options, limit).unwrap()
        else {
            panic!("nothing within {limit} of {whole} bytes");
        };
        assert!(planned.ram_bytes <= limit, "{} bytes, {limit} allowed", planned.ram_bytes);
        assert_eq!(run(&patched, &planned), evaluated(&graph));
        assert_eq!(extra(&patched), extra(&graph) + patches.macs);
        // Less memory is not had for less work.
        assert!((patches.macs, patches.steps) >= last, "{patches:?}");
        last = (patches.macs, patches.steps);
    }
    assert!(last.0 > 0);
}

#[test]
fn what_can_not_be_cut_is_left_alone() {
    let graph = shrinking();
    let none = Way { rows: 1, at_once: 0, overlap: Overlap::Kept };
    assert!(patch(&graph, 2, none).unwrap().is_none());
    for (operators, rows) in [(0, 1), (1, 1), (5, 1), (2, 0), (2, 32), (4, 16)] {
        for overlap in [Overlap::Kept, Overlap::ComputedAgain] {
            let way = Way { rows, at_once: 1, overlap };
            assert!(patch(&graph, operators, way).unwrap().is_none(), "{operators} operators, {rows} rows");
        }
    }
    // A value that something else reads stays whole.
    let mut read_twice = shrinking();
    let middle: ValueId = read_twice.entries[0].nodes[0].output;
    read_twice.entries[0].outputs.push(middle);
    assert!(patch(&read_twice, 2, Way { rows: 1, at_once: 1, overlap: Overlap::Kept }).unwrap().is_none());
}
