//! An entry that is ready to run: its nodes one after another, on the GPU or, where it has no kernels, on the CPU.

use std::collections::HashMap;
use std::sync::Arc;

use kiln_core::TensorType;
use kiln_ops::Effect;
use kiln_planner::backend::{Backend, BackendError, Handle, Prepared, Routed};
use kiln_planner::graph::{Assign, Entry, Graph, Node, Source, ValueId};
use kiln_target_host::Cpu;

use crate::backend::{buffer, hold};
use crate::gpu::{Buffer, Gpu, bytes};
use crate::step::{Step, Task, is_words};
use crate::value::Value;

/// A prepared entry.
pub(crate) struct Ready {
    gpu: Arc<Gpu>,
    cpu: Arc<Cpu>,
    inputs: Vec<(ValueId, TensorType)>,
    outputs: Vec<(ValueId, TensorType)>,
    steps: Vec<Planned>,
    assigns: Vec<Assign>,
    /// Constants, and states, which are from run to run.
    kept: HashMap<ValueId, Value>,
    routed: Vec<Routed>,
    arena: u64,
}

/// A node.
struct Planned {
    how: How,
    inputs: Vec<ValueId>,
    output: (ValueId, TensorType),
    /// Words that its kernels need between them.
    scratch: usize,
    /// What nobody reads after it.
    last: Vec<ValueId>,
}

enum How {
    /// The input under another shape.
    View,
    Gpu(Step),
    /// The node alone, on the CPU.
    Cpu(Box<dyn Prepared>),
}

impl Ready {
    pub(crate) fn new(gpu: &Arc<Gpu>, cpu: &Arc<Cpu>, graph: &Graph, entry: usize) -> Result<Ready, BackendError> {
        let entry = &graph.entries[entry];
        let typed = |ids: &[ValueId]| ids.iter().map(|&id| (id, graph.value(id).ty)).collect();
        let mut kept = HashMap::new();
        let mut steps = Vec::with_capacity(entry.nodes.len());
        let mut routed = Vec::new();
        for (node, last) in entry.nodes.iter().zip(last_uses(graph, entry)) {
            let output = (node.output, graph.value(node.output).ty);
            let types = graph.types(&node.inputs);
            let program = node.inputs.last().and_then(|&id| graph.constant_data(id));
            let task = Task { op: &node.op, inputs: &types, output: &output.1, program };
            let (how, inputs) = if node.op.effect() != Effect::Fresh {
                (How::View, node.inputs.clone())
            } else if task.is_supported(gpu) && is_plain(graph, node) {
                (How::Gpu(task.step(gpu)?), node.inputs[..task.tensors().len()].to_vec())
            } else {
                let name = node.name.clone();
                routed.push(Routed { node: name, op: node.op.name(), dtype: types.first().unwrap_or(&output.1).dtype });
                let (alone, read) = route(cpu, graph, node)?;
                (How::Cpu(alone), read)
            };
            let scratch = if matches!(how, How::Gpu(_)) { task.scratch() } else { 0 };
            steps.push(Planned { how, inputs, output, scratch, last });
        }
        let read = steps.iter().flat_map(|step| &step.inputs).chain(&entry.outputs);
        for &id in read.chain(entry.assigns.iter().map(|assign| &assign.value)) {
            let value = graph.value(id);
            let first = match &value.source {
                Source::Constant(data) => Value::of_host(value.ty, data.clone()),
                Source::State => Value::of_host(value.ty, vec![0; value.ty.bytes().unwrap_or(0) as usize]),
                _ => continue,
            };
            kept.entry(id).or_insert(first);
        }
        // Constants lie on the GPU from the start.
        for step in steps.iter().filter(|step| matches!(step.how, How::Gpu(_))) {
            for id in &step.inputs {
                if let Some(value) = kept.get_mut(id) {
                    value.words(gpu)?;
                }
            }
        }
        let arena = arena(graph, entry, &steps, &kept);
        Ok(Ready {
            gpu: gpu.clone(),
            cpu: cpu.clone(),
            inputs: typed(&entry.inputs),
            outputs: typed(&entry.outputs),
            steps,
            assigns: entry.assigns.clone(),
            kept,
            routed,
            arena,
        })
    }
}

/// Whether a node has no quantization, which kernels know nothing of.
fn is_plain(graph: &Graph, node: &Node) -> bool {
    node.inputs.iter().chain([&node.output]).all(|&id| graph.value(id).quant.scales.is_empty())
}

/// For each node what is read for the last time there: inputs of the entry and results.
fn last_uses(graph: &Graph, entry: &Entry) -> Vec<Vec<ValueId>> {
    let mut seen: Vec<bool> = vec![false; graph.values.len()];
    for &id in entry.outputs.iter().chain(entry.assigns.iter().map(|assign| &assign.value)) {
        seen[id.index()] = true;
    }
    let mut last: Vec<Vec<ValueId>> = Vec::with_capacity(entry.nodes.len());
    for node in entry.nodes.iter().rev() {
        let mut here = Vec::new();
        // A result that nobody reads goes at once.
        for &id in node.inputs.iter().chain([&node.output]) {
            let kept = matches!(graph.value(id).source, Source::Constant(_) | Source::State);
            if !kept && !std::mem::replace(&mut seen[id.index()], true) {
                here.push(id);
            }
        }
        last.push(here);
    }
    last.reverse();
    last
}

/// The bytes that a run needs on the GPU at most: constants, states and results, without what it gives out.
fn arena(graph: &Graph, entry: &Entry, steps: &[Planned], kept: &HashMap<ValueId, Value>) -> u64 {
    let size = |id: ValueId| {
        let ty = graph.value(id).ty;
        let elements = ty.shape.elements().unwrap_or(0) as usize;
        bytes(if is_words(&ty) { elements } else { ty.bytes().unwrap_or(0).div_ceil(4) as usize })
    };
    // Views keep what they look at.
    let mut memory: HashMap<ValueId, ValueId> = HashMap::new();
    let mut users: HashMap<ValueId, usize> = HashMap::new();
    let (mut now, mut most) = (0u64, 0u64);
    for step in steps {
        let own = step.output.0;
        match step.how {
            How::View => {
                let of = step.inputs.first().and_then(|id| memory.get(id)).copied();
                of.map(|of| memory.insert(own, of));
            }
            How::Gpu(_) if !entry.outputs.contains(&own) => {
                memory.insert(own, own);
                now += size(own);
            }
            _ => {}
        }
        if let Some(of) = memory.get(&own) {
            *users.entry(*of).or_insert(0) += 1;
        }
        most = most.max(now + 4 * step.scratch as u64);
        for of in step.last.iter().filter_map(|id| memory.get(id)) {
            let users = users.entry(*of).or_insert(1);
            *users -= 1;
            if *users == 0 {
                now -= size(*of);
            }
        }
    }
    kept.keys().map(|&id| size(id)).sum::<u64>() + most
}

/// The node alone, for the CPU, and what it reads that is no constant.
fn route(cpu: &Cpu, graph: &Graph, node: &Node) -> Result<(Box<dyn Prepared>, Vec<ValueId>), BackendError> {
    let mut alone = Graph::new(graph.name.clone());
    let mut entry = Entry { name: "node".into(), ..Entry::default() };
    let mut known: Vec<(ValueId, ValueId)> = Vec::with_capacity(node.inputs.len());
    let mut read = Vec::new();
    for &id in &node.inputs {
        if known.iter().any(|(of, _)| *of == id) {
            continue;
        }
        let value = graph.value(id);
        let (name, ty, quant) = (value.name.clone(), value.ty, value.quant.clone());
        let input = match &value.source {
            Source::Constant(data) => alone.add_constant(name, ty, quant, data.clone()),
            _ => {
                let input = alone.add_input(name, ty, quant);
                entry.inputs.push(input);
                read.push(id);
                input
            }
        };
        known.push((id, input));
    }
    let value = graph.value(node.output);
    let output = alone.add_result(value.name.clone(), value.ty, value.quant.clone());
    let inputs = node.inputs.iter().filter_map(|id| known.iter().find(|(of, _)| of == id).map(|(_, own)| *own));
    entry.nodes.push(Node { name: node.name.clone(), op: node.op, inputs: inputs.collect(), output });
    entry.outputs.push(output);
    alone.entries.push(entry);
    Ok((cpu.prepare(&alone, 0)?, read))
}

/// A value of a run, or one that is kept from run to run.
fn find<'v>(
    gpu: &Gpu,
    values: &'v mut HashMap<ValueId, Value>,
    kept: &'v mut HashMap<ValueId, Value>,
    id: ValueId,
) -> Result<&'v mut Value, BackendError> {
    let value = values.get_mut(&id).or_else(|| kept.get_mut(&id));
    value.ok_or_else(|| gpu.refused("a graph", format!("value {} is read before it is known", id.0)))
}

impl Prepared for Ready {
    fn run(&mut self, inputs: Vec<Handle>) -> Result<Vec<Handle>, BackendError> {
        let (gpu, cpu, kept) = (&self.gpu, &self.cpu, &mut self.kept);
        if inputs.len() != self.inputs.len() {
            return Err(gpu.refused("a run", format!("{} inputs instead of {}", inputs.len(), self.inputs.len())));
        }
        let mut values: HashMap<ValueId, Value> = HashMap::new();
        // Each handle goes once its buffer is known: what nobody else holds is free after its last use.
        for (&(id, ty), handle) in self.inputs.iter().zip(inputs) {
            if ty.bytes() != Some(handle.bytes() as u64) {
                return Err(gpu.refused("a run", format!("an input of {} bytes for a {ty:?}", handle.bytes())));
            }
            values.insert(id, Value::of_bytes(ty, buffer(gpu, &handle)?.clone()));
        }
        for step in &mut self.steps {
            let (id, ty) = step.output;
            let value = match &mut step.how {
                How::View => match step.inputs.first() {
                    Some(&input) => find(gpu, &mut values, kept, input)?.view(ty),
                    None => return Err(gpu.refused("a view", "it has no input")),
                },
                How::Gpu(compute) => {
                    let mut buffers: Vec<Buffer> = Vec::with_capacity(step.inputs.len());
                    for &input in &step.inputs {
                        buffers.push(find(gpu, &mut values, kept, input)?.words(gpu)?.clone());
                    }
                    Value::of_words(ty, compute(gpu, &buffers.iter().collect::<Vec<_>>())?)
                }
                How::Cpu(node) => {
                    let mut handles = Vec::with_capacity(step.inputs.len());
                    for &input in &step.inputs {
                        handles.push(cpu.write(&find(gpu, &mut values, kept, input)?.host(gpu)?)?);
                    }
                    let outputs = node.run(handles)?;
                    let output = outputs.first().ok_or_else(|| gpu.refused("a node on the CPU", "it gave nothing"))?;
                    Value::of_host(ty, cpu.read(output)?)
                }
            };
            values.insert(id, value);
            for id in &step.last {
                values.remove(id);
            }
        }
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for &(id, ty) in &self.outputs {
            let bytes = find(gpu, &mut values, kept, id)?.bytes(gpu)?.clone();
            outputs.push(hold(gpu, bytes, ty.bytes().unwrap_or(0) as usize));
        }
        // Every new value is known before the first state changes.
        let mut changed = Vec::with_capacity(self.assigns.len());
        for assign in &self.assigns {
            changed.push((assign.state, find(gpu, &mut values, kept, assign.value)?.clone()));
        }
        kept.extend(changed);
        Ok(outputs)
    }

    fn arena_bytes(&self) -> u64 {
        self.arena
    }

    fn routed(&self) -> &[Routed] {
        &self.routed
    }
}
