//! Networks before and after, by the operators' reference kernels and by plans; and bounds against what is computed.

use kiln_core::{DType, TargetId};
use kiln_ops::{Activation, Conv2d, FullyConnected, Pool2d, PoolKind, Reshape};
use kiln_planner::graph::{Entry, Graph, Quant, ValueId, tensor_type};
use kiln_planner::reference::Evaluator;
use kiln_planner::solve::Budget;
use kiln_planner::{Options, plan};
use kiln_target_host::Runner;
use proptest::prelude::*;

use super::bounds::{Bounds, bounds};
use super::interval::Interval;
use super::random_networks::{Numbers, Recipe, build, recipe};
use super::{CHANNEL_MULTIPLE, MAX_VISITS, Removed, drop_dead_channels};

/// Inputs for a graph: the extremes, the zero point, extremes at random, and any.
fn inputs(graph: &Graph) -> Vec<Vec<u8>> {
    let value = graph.value(graph.entries[0].inputs[0]);
    let count = value.ty.bytes().unwrap() as usize;
    let mut numbers = Numbers(7);
    let mut inputs: Vec<Vec<u8>> = [128, 127, value.quant.zero_points[0] as u8].map(|byte| vec![byte; count]).into();
    inputs.extend((0..3).map(|_| (0..count).map(|_| numbers.of(&[127, 128])).collect()));
    inputs.extend((0..3).map(|_| (0..count).map(|_| numbers.below(256) as u8).collect()));
    inputs
}

/// What all entries put out, input after input.
fn outputs(graph: &Graph) -> Vec<Vec<u8>> {
    let mut evaluator = Evaluator::new(graph);
    let mut all = Vec::new();
    for input in inputs(graph) {
        for (index, entry) in graph.entries.iter().enumerate() {
            let given: &[&[u8]] = if entry.inputs.is_empty() { &[] } else { &[&input] };
            let values = evaluator.run(index, given).unwrap();
            all.extend(entry.outputs.iter().map(|id| values[id].clone()));
        }
    }
    all
}

/// The same by a plan; `None` where no kernel computes some node.
fn planned(graph: &Graph) -> Option<Vec<Vec<u8>>> {
    let options = Options { budget: Budget { nodes: 100 }, ..Options::for_target(TargetId::PORTABLE) };
    let mut runner = Runner::new(&plan(graph, &options).ok()?.bytes).unwrap();
    let mut all = Vec::new();
    for input in inputs(graph) {
        for entry in &graph.entries {
            let given: &[&[u8]] = if entry.inputs.is_empty() { &[] } else { &[&input] };
            all.extend(runner.run(&entry.name, given).unwrap());
        }
    }
    Some(all)
}

fn known(graph: &Graph) -> Bounds {
    bounds(graph, &mut MAX_VISITS.clone()).unwrap()
}

/// Whatever an evaluator computes is within bounds.
fn check_bounds(graph: &Graph) {
    let known = known(graph);
    let mut evaluator = Evaluator::new(graph);
    for input in inputs(graph) {
        for (id, data) in evaluator.run(0, &[&input]).unwrap() {
            let channels = known.of(id);
            for (i, &byte) in data.iter().enumerate() {
                let interval = channels.get(i);
                let within = (interval.low..=interval.high).contains(&(byte as i8));
                assert!(within, "element {i} of {} is {}, not within {interval:?}", graph.value(id).name, byte as i8);
            }
        }
    }
}

fn check(recipe: &Recipe) {
    let graph = build(recipe);
    check_bounds(&graph);
    let before = outputs(&graph);
    for multiple in [1, CHANNEL_MULTIPLE] {
        let (after, removed) = drop_dead_channels(graph.clone(), multiple).unwrap();
        assert_eq!(outputs(&after), before, "multiple of {multiple}");
        assert_eq!(after == graph, removed == Removed::default());
        assert_eq!(drop_dead_channels(after.clone(), multiple).unwrap(), (after.clone(), Removed::default()));
        if multiple == 1 {
            assert!(planned(&after).is_none_or(|outputs| outputs == before), "by a plan");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn networks_compute_the_same(recipe in recipe()) {
        check(&recipe);
    }
}

/// Random networks are worth something only if there is much to remove, and plans exist.
#[test]
fn random_networks_have_dead_channels() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut narrower, mut in_fours, mut plans, mut quarter) = (0, 0, 0, 0);
    for _ in 0..100 {
        let graph = build(&recipe().new_tree(&mut runner).unwrap().current());
        let before = super::size(&graph);
        let (after, removed) = drop_dead_channels(graph.clone(), 1).unwrap();
        narrower += usize::from(removed != Removed::default());
        quarter += usize::from(removed.constant_bytes * 4 >= before.constant_bytes.max(1));
        in_fours += usize::from(drop_dead_channels(graph, CHANNEL_MULTIPLE).unwrap().1 != Removed::default());
        plans += usize::from(planned(&after).is_some());
    }
    assert!(
        narrower >= 40 && quarter >= 25 && in_fours >= 15 && plans >= 80,
        "{narrower} {quarter} {in_fours} {plans}"
    );
}

/// A graph of one entry over an input of these dimensions.
fn graph(dims: &[u32], zero_point: i32) -> (Graph, ValueId) {
    let mut graph = Graph::new("small");
    let x = graph.add_input("x", tensor_type(DType::I8, dims).unwrap(), Quant::per_tensor(0.1, zero_point));
    graph.entries.push(Entry { name: "infer".into(), inputs: vec![x], ..Entry::default() });
    (graph, x)
}

fn weights(graph: &mut Graph, dims: &[u32], values: &[i8]) -> ValueId {
    let data: Vec<u8> = values.iter().map(|&value| value as u8).collect();
    graph.add_constant("weights", tensor_type(DType::I8, dims).unwrap(), Quant::per_tensor(0.01, 0), data)
}

fn biases(graph: &mut Graph, values: &[i32]) -> ValueId {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    graph.add_constant("bias", tensor_type(DType::I32, &[values.len() as u32]).unwrap(), Quant::default(), data)
}

fn conv(pads: [u32; 4], groups: u32) -> Conv2d {
    Conv2d { strides: [1, 1], dilations: [1, 1], pads, groups, activation: Activation::Relu }
}

/// Every input of two elements, as one batch of images: bounds of a layer without padding are what comes
/// out, neither more nor less; with padding, what comes out is within them.
#[test]
fn bounds_are_what_every_input_gives() {
    let every: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let mut numbers = Numbers(3);
    let (mut constants, mut tight) = (0, 0);
    for case in 0..60 {
        let padded = case % 3 == 0;
        let zero_point = numbers.of(&[-128, 0, 100]);
        let (mut g, x) = graph(&[1 << 16, 1, 2, 1], zero_point);
        let values: Vec<i8> = (0..8).map(|_| numbers.of(&[0, 1, -9, 40, -90, 127, -128, 3])).collect();
        let w = weights(&mut g, &[4, 1, 2, 1], &values);
        let reach = [0, 5_000, -5_000, 20_000, -20_000, 40_000, -40_000];
        let b: Vec<i32> = (0..4).map(|_| numbers.of(&reach) + numbers.below(50) as i32).collect();
        let b = biases(&mut g, &b);
        // The smaller scale makes 32 bits wrap: then more is possible than the bounds of the sum say.
        let wraps = case % 4 == 3;
        let quant = Quant::per_tensor(if wraps { 1e-8 } else { 0.1 }, numbers.of(&[-128, 0]));
        let pads = if padded { [0, 0, 0, 1] } else { [0; 4] };
        let y = g.add_node(0, "y", conv(pads, 1), &[x, w, b], quant).unwrap();
        g.entries[0].outputs = vec![y];
        let data = Evaluator::new(&g).run(0, &[&every]).unwrap().remove(&y).unwrap();
        let known = known(&g).of(y);
        for channel in 0..4 {
            let seen = data.iter().skip(channel).step_by(4).map(|&byte| byte as i8);
            let (low, high) = (seen.clone().min().unwrap(), seen.max().unwrap());
            let bound = known.get(channel);
            assert!(bound.low <= low && high <= bound.high, "case {case}: {low}..={high} but {bound:?}");
            assert!(
                padded || wraps || (bound.low, bound.high) == (low, high),
                "case {case}: {low}..={high} but {bound:?}"
            );
            constants += usize::from(bound.constant().is_some());
            tight += usize::from((bound.low, bound.high) == (low, high));
        }
    }
    assert!(constants >= 40 && tight >= 150, "{constants} constants, {tight} tight");
}

/// A sum of so small a scale that 32 bits wrap does not rise with its terms: between constants that give the
/// least and the most, it gives others.
#[test]
fn sums_that_wrap_are_bounded_by_nothing() {
    for (scale, wraps) in [(0.3, false), (1e-9, true)] {
        let (mut g, x) = graph(&[1, 1, 1, 512], 0);
        let ty = g.value(x).ty;
        let thirty = g.add_constant("thirty", ty, Quant::per_tensor(0.1, 0), vec![30; 512]);
        let add = kiln_ops::Add { activation: Activation::None };
        let y = g.add_node(0, "y", add, &[x, thirty], Quant::per_tensor(scale, 0)).unwrap();
        g.entries[0].outputs = vec![y];
        check_bounds(&g);
        assert_eq!(known(&g).of(y).get(0) == Interval::ANY, wraps);
    }
}

/// A convolution whose second channel of two is always 50; what reads it, and whether the channel goes. The zero
/// point is 50 or not.
fn constant_channel(zero_point: i32, reader: impl Fn(&mut Graph, ValueId) -> ValueId) -> (Graph, bool) {
    let (mut g, x) = graph(&[1, 3, 3, 1], 0);
    let w = weights(&mut g, &[3, 1, 1, 1], &[30, 0, -40]);
    // 0.1 * 0.01 * bias / 0.1 = steps from the zero point.
    let b = biases(&mut g, &[0, (50 - zero_point) * 100, 0]);
    let conv = Conv2d { activation: Activation::None, ..conv([0; 4], 1) };
    let hidden = g.add_node(0, "hidden", conv, &[x, w, b], Quant::per_tensor(0.1, zero_point)).unwrap();
    let y = reader(&mut g, hidden);
    g.entries[0].outputs = vec![y];
    let (after, removed) = drop_dead_channels(g.clone(), 1).unwrap();
    assert_eq!(outputs(&after), outputs(&g));
    assert!(outputs(&g).iter().any(|output| *output != outputs(&g)[0]), "the output says nothing");
    assert_eq!(removed == Removed::default(), after == g);
    let goes = after != g;
    (after, goes)
}

/// A reader of three channels through windows of 3 x 3, whose zero weights are a pattern.
fn window(pads: [u32; 4], weight: impl Fn(usize) -> i8) -> impl Fn(&mut Graph, ValueId) -> ValueId {
    move |g, hidden| {
        let values: Vec<i8> = (0..54).map(&weight).collect();
        let w = weights(g, &[2, 3, 3, 3], &values);
        g.add_node(0, "y", conv(pads, 1), &[hidden, w], Quant::per_tensor(0.5, -100)).unwrap()
    }
}

#[test]
fn constants_are_folded_where_every_position_sees_them() {
    let some = |i: usize| (i * 7 % 15) as i8 - 5;
    // Zero points add nothing, on padding and elsewhere.
    assert!(constant_channel(50, window([1; 4], some)).1);
    // Other values add something, but not on padding.
    assert!(constant_channel(20, window([0; 4], some)).1);
    assert!(!constant_channel(20, window([1; 4], some)).1);
    // On one side is enough.
    assert!(!constant_channel(20, window([0, 0, 1, 0], some)).1);
    // The middle of the window is never on padding; the channel's other weights are 0.
    let middle = |i: usize| if i % 3 == 1 && i / 3 % 9 != 4 { 0 } else { some(i) };
    assert!(constant_channel(20, window([1; 4], middle)).1);
    let (after, _) = constant_channel(20, window([0; 4], some));
    let bias = *after.entries[0].nodes[1].inputs.get(2).expect("a bias, where there was none");
    let sum = |row: usize| (0..9).map(|tap| i32::from(some(row * 27 + tap * 3 + 1)) * 30).sum::<i32>();
    let want: Vec<u8> = [sum(0), sum(1)].iter().flat_map(|sum| sum.to_le_bytes()).collect();
    assert_eq!(after.constant_data(bias), Some(&want[..]));
    assert_eq!(after.value(after.entries[0].nodes[0].output).ty.shape.dims(), [1, 3, 3, 2]);
}

#[test]
fn channels_pass_through_depthwise_convolutions_or_stay() {
    let through = |pads: [u32; 4]| {
        move |g: &mut Graph, hidden: ValueId| {
            let w = weights(g, &[3, 3, 3, 1], &[30; 27]);
            let b = biases(g, &[0, 9_000, 0]);
            let y = g.add_node(0, "depthwise", conv(pads, 3), &[hidden, w, b], Quant::per_tensor(0.5, -128)).unwrap();
            let w = weights(g, &[2, 1, 1, 3], &[10, 20, 30, -40, 50, 60]);
            g.add_node(0, "y", conv([0; 4], 1), &[y, w], Quant::per_tensor(0.5, -100)).unwrap()
        }
    };
    let (after, goes) = constant_channel(50, through([1; 4]));
    assert!(goes);
    let kiln_ops::Op::Conv2d(depthwise) = after.entries[0].nodes[1].op else { panic!("no convolution") };
    assert_eq!(depthwise.groups, 2);
    assert!(constant_channel(20, through([0; 4])).1);
    assert!(!constant_channel(20, through([1; 4])).1);
}

#[test]
fn fully_connected_layers_lose_a_column_at_each_position() {
    let dense = |keep: bool| {
        move |g: &mut Graph, hidden: ValueId| {
            let flat = Reshape { shape: tensor_type(DType::I8, &[1, 27]).unwrap().shape };
            let quant = g.value(hidden).quant.clone();
            let x = if keep { hidden } else { g.add_node(0, "flat", flat, &[hidden], quant).unwrap() };
            let w: Vec<i8> = (0..54).map(|i| (i * 5 % 19) as i8 - 9).collect();
            let w = weights(g, &[2, 27], &w);
            let op = FullyConnected { keep_dims: false, activation: Activation::None };
            g.add_node(0, "y", op, &[x, w], Quant::per_tensor(0.5, 3)).unwrap()
        }
    };
    for keep in [false, true] {
        let (after, goes) = constant_channel(20, dense(keep));
        assert!(goes);
        let w = after.entries[0].nodes.last().unwrap().inputs[1];
        assert_eq!(after.value(w).ty.shape.dims(), [2, 18]);
    }
}

#[test]
fn what_others_see_stays() {
    let (mut whole, x) = graph(&[1, 3, 3, 1], 0);
    let w = weights(&mut whole, &[3, 1, 1, 1], &[30, 0, -40]);
    let hidden = whole.add_node(0, "hidden", conv([0; 4], 1), &[x, w], Quant::per_tensor(0.1, 0)).unwrap();
    let y = window([0; 4], |i| i as i8)(&mut whole, hidden);
    whole.entries[0].outputs = vec![y];
    let removed = |g: &Graph| drop_dead_channels(g.clone(), 1).unwrap().1 != Removed::default();
    assert!(removed(&whole));
    let mut g = whole.clone();
    g.entries[0].outputs.push(hidden);
    assert!(!removed(&g), "an output has lost a channel");
    let mut g = whole.clone();
    let soft = g.add_node(0, "soft", kiln_ops::Softmax { beta: 1.0 }, &[hidden], Quant::per_tensor(1.0 / 256.0, -128));
    g.entries[0].outputs.push(soft.unwrap());
    assert!(!removed(&g), "a softmax has lost a channel");
    let mut g = whole.clone();
    let mut again = g.entries[0].nodes[1].clone();
    again.output = g.add_result("again", g.value(again.output).ty, g.value(again.output).quant.clone());
    g.entries[0].outputs.push(again.output);
    g.entries[0].nodes.push(again);
    assert!(!removed(&g), "weights that two layers read have changed");
}

/// What a layer's channels were before a reshape may be positions after it, which a pool mixes.
#[test]
fn pools_mix_what_a_reshape_made_positions() {
    for kind in [PoolKind::Average, PoolKind::Max] {
        let (mut g, x) = graph(&[1, 1, 1, 1], 0);
        let w = weights(&mut g, &[4, 1, 1, 1], &[0; 4]);
        let b = biases(&mut g, &[100, 200, 300, 500]);
        let y = g.add_node(0, "y", conv([0; 4], 1), &[x, w, b], Quant::per_tensor(0.1, 0)).unwrap();
        let shape = tensor_type(DType::I8, &[1, 1, 2, 2]).unwrap().shape;
        let y = g.add_node(0, "two", Reshape { shape }, &[y], Quant::per_tensor(0.1, 0)).unwrap();
        let pool = Pool2d { kind, kernel: [1, 2], strides: [1, 1], pads: [0; 4], activation: Activation::None };
        let y = g.add_node(0, "pool", pool, &[y], Quant::per_tensor(0.1, 0)).unwrap();
        g.entries[0].outputs = vec![y];
        check_bounds(&g);
        let bounds: Vec<(i8, i8)> = known(&g).of(y).iter().map(|x| (x.low, x.high)).collect();
        assert_eq!(bounds, [(1, 3), (2, 5)]);
    }
}

#[test]
fn a_bias_that_would_leave_32_bits_is_left_alone() {
    let reader = |bias: i32| {
        move |g: &mut Graph, hidden: ValueId| {
            let w = weights(g, &[2, 1, 1, 3], &[1, 100, 2, 3, 0, 4]);
            let b = biases(g, &[bias, 0]);
            g.add_node(0, "y", conv([0; 4], 1), &[hidden, w, b], Quant::per_tensor(0.5, -100)).unwrap()
        }
    };
    // The constant adds 30 * 100.
    assert!(constant_channel(20, reader(i32::MAX - 3_000)).1);
    assert!(!constant_channel(20, reader(i32::MAX - 2_999)).1);
}

#[test]
fn networks_that_are_all_dead_keep_some_channels() {
    let (mut g, x) = graph(&[1, 2, 2, 3], 0);
    let mut value = x;
    for channels in [9, 7, 5] {
        let columns = g.value(value).ty.shape.last();
        let w = weights(&mut g, &[channels, 1, 1, columns], &vec![1; (channels * columns) as usize]);
        let b = biases(&mut g, &vec![-1_000_000; channels as usize]);
        value = g.add_node(0, "y", conv([0; 4], 1), &[value, w, b], Quant::per_tensor(0.1, -7)).unwrap();
    }
    g.entries[0].outputs = vec![value];
    let (after, _) = drop_dead_channels(g.clone(), CHANNEL_MULTIPLE).unwrap();
    assert_eq!(outputs(&after), outputs(&g));
    let widths: Vec<u32> = after.entries[0].nodes.iter().map(|n| after.value(n.output).ty.shape.last()).collect();
    assert_eq!(widths, [4, 4, 5]);
}
