//! Bounds of every value, from the inputs on: what its channels can hold.

use std::collections::HashMap;

use kiln_core::{Shape, TensorType, fixed};
use kiln_ops::elementwise::add_multipliers;
use kiln_ops::{Arg, ArgMut, Concat, Op, Pool2d, PoolKind};
use kiln_planner::graph::{Graph, Node, Source, ValueId};

use super::interval::{Channels, Interval};
use super::layer::{Layer, int8_quant};
use super::pay;

/// The most taps of an average whose sum stays far from 32 bits.
const MAX_AVERAGED: u64 = 1 << 20;

/// The most channels that a concatenation is followed through.
const MAX_CONCATENATED: usize = 1 << 16;

/// What the channels of values can hold.
pub(super) struct Bounds(HashMap<ValueId, Channels>);

impl Bounds {
    /// Those of a value: any int8 where nothing is known.
    pub(super) fn of(&self, id: ValueId) -> Channels {
        self.0.get(&id).cloned().unwrap_or_else(Channels::any)
    }
}

/// Bounds for every possible input and state; `None` if there are no visits left to find them.
pub(super) fn bounds(graph: &Graph, visits: &mut u64) -> Option<Bounds> {
    let mut bounds = Bounds(HashMap::new());
    for (id, value) in graph.values.iter().enumerate() {
        if let Source::Constant(data) = &value.source
            && int8_quant(value).is_some()
        {
            pay(visits, data.len())?;
            bounds.0.insert(ValueId(id as u32), Channels::of_data(data, value.ty.shape.last() as usize));
        }
    }
    for node in graph.entries.iter().flat_map(|e| &e.nodes) {
        let Some(input) = node.inputs.first().map(|&id| bounds.of(id)) else { continue };
        pay(visits, input.len())?;
        if let Some(output) = output(graph, node, input, &bounds, visits)? {
            bounds.0.insert(node.output, output);
        }
    }
    Some(bounds)
}

/// What a node's output can hold, the first input being within `x`; `Some(None)` is anything.
fn output(graph: &Graph, node: &Node, x: Channels, bounds: &Bounds, visits: &mut u64) -> Option<Option<Channels>> {
    let int8 = |id: &ValueId| int8_quant(graph.value(*id)).is_some();
    Some(match node.op {
        Op::Conv2d(_) | Op::FullyConnected(_) => match Layer::of(graph, node) {
            Some(layer) => {
                pay(visits, layer.weights())?;
                Some(layer.output(&x))
            }
            None => None,
        },
        Op::Reshape(_) | Op::Copy(_) => Some(x),
        _ if !int8(&node.output) || !node.inputs.iter().all(int8) => None,
        Op::Pool2d(pool) => pooled(graph, node, &pool, &x),
        Op::Quantize(_) => quantized(graph, node, &x),
        Op::Add(_) => {
            let other = bounds.of(*node.inputs.get(1)?);
            pay(visits, other.len())?;
            sum(graph, node, [&x, &other])
        }
        Op::Concat(concat) => concatenated(graph, node, &concat, bounds, visits)?,
        _ => None,
    })
}

/// A pool's: averages and maxima lie between the least and the most of a column, whatever row it is of.
fn pooled(graph: &Graph, node: &Node, pool: &Pool2d, x: &Channels) -> Option<Channels> {
    let taps = u64::from(pool.kernel[0]) * u64::from(pool.kernel[1]);
    if pool.kind == PoolKind::Average && taps > MAX_AVERAGED {
        return None;
    }
    let (scale, zero) = int8_quant(graph.value(node.output))?;
    let (low, high) = pool.activation.quantized_bounds(scale, zero.into(), -128, 127);
    let clamp = |value: i8| i8::try_from(i32::from(value).max(low).min(high)).ok();
    let x = x.in_rows_of((graph.value(node.output).ty.shape.last() as usize).max(1));
    let both = |x: Interval| clamp(x.low).zip(clamp(x.high));
    Some(x.map(|x| both(x).map_or(Interval::ANY, |(low, high)| Interval { low, high })))
}

/// A requantization's: every int8 is tried.
fn quantized(graph: &Graph, node: &Node, x: &Channels) -> Option<Channels> {
    let inputs: Vec<u8> = (i8::MIN..=i8::MAX).map(|value| value as u8).collect();
    let table = elements(graph, node, &[inputs])?;
    Some(x.map(|x| {
        let results = &table[index(x.low)..=index(x.high)];
        results.iter().map(|&byte| Interval::one(byte as i8)).reduce(Interval::or).unwrap_or(Interval::ANY)
    }))
}

fn index(value: i8) -> usize {
    (i16::from(value) - i16::from(i8::MIN)) as usize
}

/// A sum's: it rises with either term, unless its scale is so small that 32 bits would wrap.
fn sum(graph: &Graph, node: &Node, terms: [&Channels; 2]) -> Option<Channels> {
    let (long, short) = (terms[0].len().max(terms[1].len()), terms[0].len().min(terms[1].len()));
    let [a, b, y] = [node.inputs[0], node.inputs[1], node.output].map(|id| int8_quant(graph.value(id)));
    let shift = fixed::quantize_multiplier(add_multipliers(a?.0, b?.0, y?.0)[2]).1;
    if shift > 0 || !long.is_multiple_of(short) {
        return None;
    }
    let ends = |end: fn(Interval) -> i8| {
        let inputs = terms.map(|term| (0..long).map(|i| end(term.get(i)) as u8).collect());
        elements(graph, node, &inputs)
    };
    let (low, high) = (ends(|x| x.low)?, ends(|x| x.high)?);
    let both = low.iter().zip(&high).map(|(&low, &high)| Interval { low: low as i8, high: high as i8 });
    Some(Channels::new(both.collect::<Vec<_>>()))
}

/// What an operator that takes elements one by one makes of these, by its reference kernel.
fn elements(graph: &Graph, node: &Node, inputs: &[Vec<u8>]) -> Option<Vec<u8>> {
    let count = inputs.first()?.len();
    let ty = |id: ValueId| Some(TensorType::new(graph.value(id).ty.dtype, Shape::new(&[count as u32]).ok()?));
    let mut args = Vec::with_capacity(inputs.len());
    for (&id, data) in node.inputs.iter().zip(inputs) {
        args.push(Arg { ty: ty(id)?, quant: graph.value(id).quant.view(), data });
    }
    let mut out = vec![0; count];
    let quant = graph.value(node.output).quant.view();
    node.op.reference(&args, &mut ArgMut { ty: ty(node.output)?, quant, data: &mut out }).ok()?;
    Some(out)
}

/// Those of tensors behind one another: along the innermost axis side by side, along another what any holds.
fn concatenated(
    graph: &Graph,
    node: &Node,
    concat: &Concat,
    bounds: &Bounds,
    visits: &mut u64,
) -> Option<Option<Channels>> {
    let shape = graph.value(node.output).ty.shape;
    let (columns, innermost) = (shape.last() as usize, concat.axis as usize + 1 == shape.rank());
    if columns > MAX_CONCATENATED {
        return Some(None);
    }
    let mut list: Vec<Interval> = Vec::new();
    for &id in &node.inputs {
        let own = graph.value(id).ty.shape.last() as usize;
        pay(visits, own)?;
        let part = bounds.of(id).in_rows_of(own.max(1));
        let part = (0..own).map(|i| part.get(i));
        if innermost || list.is_empty() {
            list.extend(part);
        } else {
            list.iter_mut().zip(part).for_each(|(to, other)| *to = to.or(other));
        }
    }
    Some((list.len() == columns).then(|| Channels::new(list)))
}
