//! The pass: the graph made anew, node by node.

use std::sync::Arc;

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{Dequantize, Op, Quantize};
use kiln_planner::graph::{Assign, Entry, Graph, GraphError, Node, Quant, Source, Value, ValueId};

use super::affine::{affine, nearest};
use super::rules::Rule;
use super::weights::Layer;
use super::{Calibration, Method, QuantizeError, Range};

/// How to quantize.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct QuantizeOptions {
    /// How ranges follow from what was observed.
    pub method: Method,
    /// Keep float32 inputs and outputs, with conversions behind and before them, rather than int8 ones.
    pub float_io: bool,
}

/// A node that stays float32, with conversions around it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptFloat {
    /// Its name.
    pub node: String,
    /// Its operator.
    pub op: &'static str,
    /// Why it stays.
    pub why: &'static str,
}

/// A quantized graph.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantized {
    /// The graph.
    pub graph: Graph,
    /// Activations that are int8 now: the value in the graph before and the one in this graph, in the order
    /// they are computed.
    pub activations: Vec<(ValueId, ValueId)>,
    /// Nodes that stay float32.
    pub kept_float: Vec<KeptFloat>,
}

/// Makes an int8 graph of a float32 one: see the [module](super) for what becomes of each part.
///
/// Nodes without an int8 form stay float32 between a `dequantize` and a `quantize`; nodes on other types
/// stay as they are. State stays float32. Inputs and outputs become int8 unless the options say otherwise;
/// their names, shapes and order stay.
///
/// # Errors
///
/// The graph is not valid, has not exactly one entry, or nothing to quantize; a constant is not finite; a
/// tensor whose range is needed was not observed, or is too large for a scale.
pub fn quantize(
    graph: &Graph,
    calibration: &Calibration,
    options: &QuantizeOptions,
) -> Result<Quantized, QuantizeError> {
    let entry = check(graph)?;
    let mut pass = Pass::new(graph, entry, calibration, options.method);
    for &id in &entry.inputs {
        pass.input(id, options.float_io)?;
    }
    for node in &entry.nodes {
        pass.node(node)?;
    }
    for &id in &entry.outputs {
        pass.output(id, options.float_io)?;
    }
    pass.assigns(entry);
    let Pass { new, activations, kept_float, .. } = pass;
    new.validate()?;
    Ok(Quantized { graph: new, activations, kept_float })
}

/// The entry of a graph that [`quantize`] can make something of, before anything was observed.
///
/// # Errors
///
/// The graph is not valid, has not exactly one entry, or nothing to quantize.
pub fn check(graph: &Graph) -> Result<&Entry, QuantizeError> {
    graph.validate()?;
    let [entry] = &graph.entries[..] else { return Err(QuantizeError::Entries(graph.entries.len())) };
    let mut reason = "it has no nodes but views".to_owned();
    for node in &entry.nodes {
        match Rule::of(graph, node) {
            Rule::Float(why) => reason = format!("{} '{}' stays float32, {why}", node.op.name(), node.name),
            Rule::Other | Rule::Dequantize => reason = format!("{} '{}' is not float32", node.op.name(), node.name),
            Rule::View => {}
            _ => return Ok(entry),
        }
    }
    Err(QuantizeError::Nothing(reason))
}

struct Pass<'a> {
    old: &'a Graph,
    calibration: &'a Calibration,
    method: Method,
    new: Graph,
    /// For each old value the new one of the same type, where there is one already.
    same: Vec<Option<ValueId>>,
    /// For each float32 value the new int8 one, where there is one already.
    int8: Vec<Option<ValueId>>,
    activations: Vec<(ValueId, ValueId)>,
    kept_float: Vec<KeptFloat>,
}

impl<'a> Pass<'a> {
    fn new(old: &'a Graph, entry: &Entry, calibration: &'a Calibration, method: Method) -> Pass<'a> {
        let mut new = Graph { extents: old.extents.clone(), labels: old.labels.clone(), ..Graph::new(&old.name) };
        new.entries.push(Entry { name: entry.name.clone(), ..Entry::default() });
        let none = vec![None; old.values.len()];
        let (activations, kept_float) = (Vec::new(), Vec::new());
        Pass { old, calibration, method, new, same: none.clone(), int8: none, activations, kept_float }
    }

    /// A value of the new graph with the name, shape and varying dimensions of an old one.
    fn add(&mut self, like: ValueId, dtype: DType, quant: Quant, source: Source) -> ValueId {
        let Value { name, ty, varying, .. } = self.old.value(like);
        let id = ValueId(self.new.values.len() as u32);
        let (name, ty, varying) = (name.clone(), TensorType::new(dtype, ty.shape), varying.clone());
        self.new.values.push(Value { name, ty, quant, source, varying });
        id
    }

    /// A node of the new graph whose output is like an old value.
    fn compute(
        &mut self,
        name: &str,
        op: Op,
        inputs: Vec<ValueId>,
        like: ValueId,
        dtype: DType,
        quant: Quant,
    ) -> ValueId {
        let output = self.add(like, dtype, quant, Source::Node);
        if let Some(entry) = self.new.entries.first_mut() {
            entry.nodes.push(Node { name: name.to_owned(), op, inputs, output });
        }
        output
    }

    fn input(&mut self, id: ValueId, float_io: bool) -> Result<(), QuantizeError> {
        let value = self.old.value(id);
        let input = if value.ty.dtype == DType::F32 && !float_io {
            let quant = self.observed(id)?;
            let input = self.add(id, DType::I8, quant, Source::Input);
            self.set_int8(id, input);
            input
        } else {
            let input = self.add(id, value.ty.dtype, value.quant.clone(), Source::Input);
            self.same[id.index()] = Some(input);
            input
        };
        self.new.entries[0].inputs.push(input);
        Ok(())
    }

    fn output(&mut self, id: ValueId, float_io: bool) -> Result<(), QuantizeError> {
        let real = self.old.value(id).ty.dtype == DType::F32;
        let output = if real && !float_io { self.int8(id)? } else { self.same(id) };
        self.new.entries[0].outputs.push(output);
        Ok(())
    }

    fn assigns(&mut self, entry: &Entry) {
        for assign in &entry.assigns {
            let (state, value) = (self.same(assign.state), self.same(assign.value));
            self.new.entries[0].assigns.push(Assign { state, value });
        }
    }

    fn set_int8(&mut self, old: ValueId, new: ValueId) {
        self.int8[old.index()] = Some(new);
        self.activations.push((old, new));
    }

    /// The new value of the same type as old value `id`.
    fn same(&mut self, id: ValueId) -> ValueId {
        if let Some(same) = self.same[id.index()] {
            return same;
        }
        let Value { name, ty, quant, source, .. } = self.old.value(id);
        let same = match (source, self.int8[id.index()]) {
            (Source::Node | Source::Input, Some(int8)) => {
                self.compute(&format!("{name}/dequantize"), Dequantize.into(), vec![int8], id, ty.dtype, quant.clone())
            }
            _ => self.add(id, ty.dtype, quant.clone(), source.clone()),
        };
        self.same[id.index()] = Some(same);
        same
    }

    /// The new int8 value for float32 value `id`.
    fn int8(&mut self, id: ValueId) -> Result<ValueId, QuantizeError> {
        if let Some(int8) = self.int8[id.index()] {
            return Ok(int8);
        }
        if let Source::Constant(_) = self.old.value(id).source {
            let data = self.floats(id)?;
            let low = data.iter().fold(f32::INFINITY, |low, &v| low.min(v)).min(0.0);
            let high = data.iter().fold(f32::NEG_INFINITY, |high, &v| high.max(v)).max(0.0);
            let quant = self.affine(id, Range { low: low.into(), high: high.into() })?;
            let bytes: Arc<[u8]> = data.iter().map(|&v| nearest(v, &quant) as u8).collect();
            let int8 = self.add(id, DType::I8, quant, Source::Constant(bytes));
            self.int8[id.index()] = Some(int8);
            return Ok(int8);
        }
        let quant = self.observed(id)?;
        let same = self.same(id);
        let name = format!("{}/quantize", self.old.value(id).name);
        let int8 = self.compute(&name, Quantize.into(), vec![same], id, DType::I8, quant);
        self.set_int8(id, int8);
        Ok(int8)
    }

    fn node(&mut self, node: &Node) -> Result<(), QuantizeError> {
        let rule = Rule::of(self.old, node);
        let first = node.inputs.first().copied();
        let (inputs, quant) = match (rule, first) {
            (Rule::Float(why), _) => return self.keep(node, Some(why)),
            (Rule::Other, _) | (_, None) => return self.keep(node, None),
            (Rule::View, Some(x)) if self.int8[x.index()].is_none() => return self.keep(node, None),
            (Rule::Dequantize, Some(x)) => {
                let x = self.same(x);
                self.set_int8(node.output, x);
                return Ok(());
            }
            (Rule::Weighted, Some(x)) => self.weighted(node, x)?,
            (Rule::Observed, _) => {
                let inputs = node.inputs.iter().map(|&id| self.int8(id)).collect::<Result<Vec<_>, _>>()?;
                let quant = self.observed_at_least(node.output, self.largest_sum(&inputs))?;
                (inputs, quant)
            }
            (Rule::Kept | Rule::View, Some(x)) => {
                let x = self.int8(x)?;
                (vec![x], self.new.value(x).quant.clone())
            }
            (Rule::Fixed(quant), Some(x)) => (vec![self.int8(x)?], quant),
        };
        let output = self.compute(&node.name, node.op, inputs, node.output, DType::I8, quant);
        self.set_int8(node.output, output);
        Ok(())
    }

    /// A node as it is; `why`, where that is worth a word: where it is float32 and could be int8 elsewhere.
    fn keep(&mut self, node: &Node, why: Option<&'static str>) -> Result<(), QuantizeError> {
        let inputs = node.inputs.iter().map(|&id| self.same(id)).collect();
        let Value { ty, quant, .. } = self.old.value(node.output);
        let output = self.compute(&node.name, node.op, inputs, node.output, ty.dtype, quant.clone());
        self.same[node.output.index()] = Some(output);
        if let Some(why) = why {
            self.kept_float.push(KeptFloat { node: node.name.clone(), op: node.op.name(), why });
        }
        Ok(())
    }

    /// The inputs and the output's quantization of a convolution or fully connected layer of `x`.
    fn weighted(&mut self, node: &Node, x: ValueId) -> Result<(Vec<ValueId>, Quant), QuantizeError> {
        let [_, w, bias @ ..] = &node.inputs[..] else { return Err(self.short(node)) };
        let x = self.int8(x)?;
        let input = self.new.value(x).quant.view();
        let input = (input.scale(0), input.zero_point(0));
        let (weights, of_bias) = (self.floats(*w)?, bias.first().map(|&b| self.floats(b)).transpose()?);
        let Value { name, ty, .. } = self.old.value(*w);
        let channels = ty.shape.dim(0) as usize;
        let layer = Layer { name, weights: &weights, bias: of_bias.as_deref(), channels, input };
        let quant = self.observed_at_least(node.output, layer.least_output_scale())?;
        let integers = layer.integers(quant.view().scale(0))?;
        let mut inputs =
            vec![x, self.add(*w, DType::I8, integers.weights_quant, Source::Constant(integers.weights.into()))];
        if let (Some(&id), Some((data, quant))) = (bias.first(), integers.bias) {
            let bias = self.add(id, DType::I32, quant, Source::Constant(data.into()));
            // A bias may have dimensions of 1 around the channels; its scales run along the only axis.
            let flat = Shape::new(&[ty.shape.dim(0)]).map_err(|_| QuantizeError::TooLarge(name.clone()))?;
            self.new.values[bias.index()].ty.shape = flat;
            inputs.push(bias);
        }
        Ok((inputs, quant))
    }

    fn short(&self, node: &Node) -> QuantizeError {
        let error = kiln_ops::OpError::Inputs(2, 3, node.inputs.len());
        let (entry, node, op) = (self.new.entries[0].name.clone(), node.name.clone(), node.op.name());
        GraphError::Op { entry, node, op, error }.into()
    }

    /// The least scale a sum of these may have, so that nothing overflows in requantization: as for weights.
    fn largest_sum(&self, inputs: &[ValueId]) -> f64 {
        let largest = inputs.iter().map(|&id| 255.0 * f64::from(self.new.value(id).quant.view().scale(0)));
        largest.sum::<f64>() / (1u64 << 29) as f64
    }

    /// The elements of a constant, all of which must be finite.
    fn floats(&self, id: ValueId) -> Result<Vec<f32>, QuantizeError> {
        let data = self.old.constant_data(id).unwrap_or(&[]);
        let floats: Vec<f32> = data.chunks_exact(4).map(|b| b.try_into().map_or(0.0, f32::from_le_bytes)).collect();
        match floats.iter().position(|v| !v.is_finite()) {
            Some(element) => {
                let (tensor, value) = (self.old.value(id).name.clone(), floats[element]);
                Err(QuantizeError::NotFinite { tensor, element, value, constant: true })
            }
            None => Ok(floats),
        }
    }

    fn affine(&self, id: ValueId, range: Range) -> Result<Quant, QuantizeError> {
        affine(range).ok_or_else(|| QuantizeError::TooLarge(self.old.value(id).name.clone()))
    }

    fn observed(&self, id: ValueId) -> Result<Quant, QuantizeError> {
        self.observed_at_least(id, 0.0)
    }

    /// The range of old value `id`: as it was observed; or that of what it is a view of; or, for state, that
    /// of what becomes of it, which 0 at first is added to with every range.
    fn range(&self, id: ValueId) -> Result<Range, QuantizeError> {
        let mut seen = id;
        // Each step goes to an earlier node, but for one from a state to what it is assigned.
        for _ in 0..=self.old.values.len() {
            if let Some(range) = self.calibration.range(seen, self.method) {
                return Ok(range);
            }
            let entry = &self.old.entries[0];
            let assigned = entry.assigns.iter().find(|assign| assign.state == seen).map(|assign| assign.value);
            let viewed = || entry.nodes.iter().find(|n| n.output == seen && matches!(n.op, Op::Reshape(_)));
            seen = match (assigned.or_else(|| viewed()?.inputs.first().copied()), &self.old.value(seen).source) {
                (Some(from), _) => from,
                (None, Source::State) => return Ok(Range { low: 0.0, high: 0.0 }),
                _ => break,
            };
        }
        Err(QuantizeError::Unobserved(self.old.value(id).name.clone()))
    }

    /// The quantization for the range of old value `id`, with a scale of at least `least`.
    fn observed_at_least(&self, id: ValueId, least: f64) -> Result<Quant, QuantizeError> {
        let range = self.range(id)?;
        let quant = self.affine(id, range)?;
        if f64::from(quant.view().scale(0)) >= least {
            return Ok(quant);
        }
        // Both ends move out alike, so that 0 stays where it was.
        let grow = least / f64::from(quant.view().scale(0));
        match range.low.min(0.0) == range.high.max(0.0) {
            true => self.affine(id, Range { low: -127.5 * least, high: 127.5 * least }),
            false => self.affine(id, Range { low: range.low.min(0.0) * grow, high: range.high.max(0.0) * grow }),
        }
    }
}
