//! Which operators can be cut into patches, and the graph that does it.

use kiln_core::{DType, MAX_OPERANDS, MAX_RANK, Shape, TensorType};
use kiln_ops::{Concat, Op, Slice, Window2d};
use kiln_planner::graph::{Graph, Node, Source, ValueId};

use super::Patches;

/// Inputs that one concatenation takes.
const INPUTS: usize = MAX_OPERANDS - 1;

/// An operator that slides a window down an image.
#[derive(Clone, Copy)]
pub(super) struct Stage {
    /// Its node in the entry.
    node: usize,
    window: Window2d,
    /// Rows of its input and of its output.
    input: u32,
    output: u32,
}

/// The first operators of an entry, each the only reader of the one before.
pub(super) struct Chain<'a> {
    pub(super) entry: usize,
    pub(super) stages: &'a [Stage],
}

/// The longest chain of operators from an input of the main entry on, and the entry.
pub(super) fn chain(graph: &Graph) -> Option<(usize, Vec<Stage>)> {
    let number = graph.main_entry()?;
    let entry = graph.entries.get(number)?;
    let all = graph.entries.iter();
    let reads = |value: ValueId| {
        let within = |e: &kiln_planner::graph::Entry| {
            let nodes = e.nodes.iter().flat_map(|node| &node.inputs);
            let others = e.outputs.iter().chain(e.assigns.iter().map(|assign| &assign.value));
            nodes.chain(others).filter(|&&read| read == value).count()
        };
        all.clone().map(within).sum::<usize>()
    };
    let from = |input: ValueId| {
        let mut stages = Vec::new();
        let mut value = input;
        while reads(value) == 1
            && let Some(index) = entry.nodes.iter().position(|node| node.inputs.first() == Some(&value))
            && let Some(stage) = stage(graph, index, &entry.nodes[index])
        {
            stages.push(stage);
            value = entry.nodes[index].output;
        }
        stages
    };
    let longest = entry.inputs.iter().map(|&input| from(input)).max_by_key(Vec::len)?;
    Some((number, longest)).filter(|(_, stages)| stages.len() > 1)
}

fn stage(graph: &Graph, index: usize, node: &Node) -> Option<Stage> {
    let [first, others @ ..] = &node.inputs[..] else { return None };
    let constants = others.iter().all(|&id| matches!(graph.value(id).source, Source::Constant(_)));
    let (input, output) = (graph.value(*first), graph.value(node.output));
    let window = match node.op {
        Op::Conv2d(conv) => conv.window(&graph.value(*others.first()?).ty),
        Op::Pool2d(pool) => pool.window(),
        _ => return None,
    };
    let int8 = input.ty.dtype == DType::I8 && output.ty.dtype == DType::I8;
    let one = input.ty.shape.rank() == 4 && input.ty.shape.dim(0) == 1;
    let fixed = input.varying.is_empty() && output.varying.is_empty();
    let (input, output) = (input.ty.shape.dim(1), output.ty.shape.dim(1));
    (constants && int8 && one && fixed).then_some(Stage { node: index, window, input, output })
}

impl Stage {
    /// The input rows under output rows `begin..end`, and the padding above and below them.
    fn under(&self, [begin, end]: [u32; 2]) -> Option<([u32; 2], [u32; 2])> {
        let (stride, pad) = (i64::from(self.window.strides[0]), i64::from(self.window.pads[0]));
        let reach = (i64::from(self.window.kernel[0]) - 1) * i64::from(self.window.dilations[0]);
        let (top, bottom) = (i64::from(begin) * stride - pad, i64::from(end - 1) * stride - pad + reach + 1);
        let rows = [top.max(0), bottom.min(i64::from(self.input))];
        let pads = [-top.min(0), (bottom - i64::from(self.input)).max(0)];
        // A window may lie on padding alone; then there is no row to cut.
        (rows[0] < rows[1]).then(|| (rows.map(|row| row as u32), pads.map(|pad| pad as u32)))
    }

    /// The operator over rows of its image with this padding above and below.
    fn over(&self, op: Op, [top, bottom]: [u32; 2]) -> Op {
        match op {
            Op::Conv2d(mut conv) => {
                (conv.pads[0], conv.pads[2]) = (top, bottom);
                conv.into()
            }
            Op::Pool2d(mut pool) => {
                (pool.pads[0], pool.pads[2]) = (top, bottom);
                pool.into()
            }
            other => other,
        }
    }
}

impl Chain<'_> {
    /// The graph with the chain in patches of `rows` rows; `None` for one patch, more than `most`, or windows that lie on padding
    /// alone.
    pub(super) fn cut(&self, graph: &Graph, rows: u32, most: u32) -> Option<(Graph, Patches)> {
        let (first, last) = (self.stages.first()?, self.stages.last()?);
        let count = last.output.div_ceil(rows);
        if !(2..=most).contains(&count) {
            return None;
        }
        let nodes = &graph.entries.get(self.entry)?.nodes;
        let source = *nodes.get(first.node)?.inputs.first()?;
        let end = nodes.get(last.node)?;
        let mut patched = Patching { graph: graph.clone(), nodes: Vec::new(), macs: 0 };
        let mut pieces = Vec::new();
        for number in 0..count {
            let range = [number * rows, ((number + 1) * rows).min(last.output)];
            pieces.push(patched.patch(self, nodes, source, range)?);
        }
        let value = graph.value(end.output);
        let concat = |patched: &mut Patching, pieces: &[ValueId], output: ValueId| {
            let name = format!("{} (rows together)", end.name);
            patched.nodes.push(Node { name, op: Concat { axis: 1 }.into(), inputs: pieces.to_vec(), output });
        };
        while pieces.len() > INPUTS {
            let mut fewer = Vec::new();
            for some in pieces.chunks(INPUTS) {
                let height = some.iter().map(|&id| patched.graph.value(id).ty.shape.dim(1)).sum();
                let output = patched.result(&value.name, value.ty, height, value.quant.clone())?;
                concat(&mut patched, some, output);
                fewer.push(output);
            }
            pieces = fewer;
        }
        concat(&mut patched, &pieces, end.output);
        let Patching { graph: mut new, nodes: cut, macs: all } = patched;
        let entry = new.entries.get_mut(self.entry)?;
        let mut cut = Some(cut);
        let mut nodes = Vec::new();
        for (index, node) in std::mem::take(&mut entry.nodes).into_iter().enumerate() {
            if index == last.node {
                nodes.extend(cut.take()?);
            } else if !self.stages.iter().any(|stage| stage.node == index) {
                nodes.push(node);
            }
        }
        entry.nodes = nodes;
        crate::drop_dead::run(&mut new);
        let whole = self.stages.iter().map(|stage| macs(graph, &graph.entries[self.entry].nodes[stage.node]));
        let patches = Patches {
            operators: self.stages.len(),
            last: end.name.clone(),
            count,
            rows,
            macs: all.saturating_sub(whole.sum()),
        };
        Some((new, patches))
    }
}

/// A graph as patches are added to it.
struct Patching {
    graph: Graph,
    nodes: Vec<Node>,
    macs: u64,
}

impl Patching {
    /// Adds the nodes of the patch that ends in these rows of the chain's output, and gives its value.
    fn patch(&mut self, chain: &Chain<'_>, nodes: &[Node], source: ValueId, rows: [u32; 2]) -> Option<ValueId> {
        // From the end: which rows each operator computes, and over which padding.
        let mut plan = Vec::new();
        let mut range = rows;
        for stage in chain.stages.iter().rev() {
            let (under, pads) = stage.under(range)?;
            plan.push((stage, pads, range));
            range = under;
        }
        let whole = self.graph.value(source).clone();
        let mut value = self.result(&whole.name, whole.ty, range[1] - range[0], whole.quant)?;
        let mut begin = [0; MAX_RANK];
        begin[1] = range[0];
        let size = self.graph.value(value).ty.shape;
        let slice = Slice { begin, size, step: [1; MAX_RANK] };
        let name = format!("{} (rows {} to {})", whole.name, range[0], range[1] - 1);
        self.nodes.push(Node { name, op: slice.into(), inputs: vec![source], output: value });
        for (stage, pads, range) in plan.into_iter().rev() {
            let node = nodes.get(stage.node)?;
            let whole = self.graph.value(node.output).clone();
            let output = self.result(&whole.name, whole.ty, range[1] - range[0], whole.quant)?;
            let mut inputs = node.inputs.clone();
            *inputs.first_mut()? = value;
            let name = format!("{} (rows {} to {})", node.name, range[0], range[1] - 1);
            let node = Node { name, op: stage.over(node.op, pads), inputs, output };
            self.macs += macs(&self.graph, &node);
            self.nodes.push(node);
            value = output;
        }
        Some(value)
    }

    /// A value like another one, of this height.
    fn result(
        &mut self,
        name: &str,
        ty: TensorType,
        height: u32,
        quant: kiln_planner::graph::Quant,
    ) -> Option<ValueId> {
        let mut dims = ty.shape.dims().to_vec();
        *dims.get_mut(1)? = height;
        let ty = TensorType::new(ty.dtype, Shape::new(&dims).ok()?);
        Some(self.graph.add_result(format!("{name} ({height} rows)"), ty, quant))
    }
}

fn macs(graph: &Graph, node: &Node) -> u64 {
    node.op.cost(&graph.types(&node.inputs), &graph.value(node.output).ty).macs
}
