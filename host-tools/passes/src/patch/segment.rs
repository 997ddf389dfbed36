//! Which operators can be cut into pieces by rows.

use std::collections::{HashMap, HashSet};

use kiln_core::{DType, TensorType};
use kiln_ops::{AveragePool2dPart, Effect, Op, Pool2d, PoolKind, Window2d};
use kiln_planner::graph::{Entry, Graph, Node, Source, ValueId};

/// An operator whose output's rows follow from rows of its inputs.
#[derive(Clone)]
pub(super) struct Stage {
    /// Its node in the entry.
    pub(super) node: usize,
    /// The windows that slide down its input; none where each row follows from the same rows.
    window: Option<Window2d>,
    /// Rows of its inputs that are not constants.
    input: u32,
    /// What it is where it is the average of a whole image: a part of that, some rows of its input at a time.
    pub(super) average: Option<AveragePool2dPart>,
}

/// The first operators of an entry.
#[derive(Clone)]
pub(super) struct Segment {
    pub(super) entry: usize,
    /// The input that they follow from.
    pub(super) source: ValueId,
    /// In an order in which they can run.
    pub(super) stages: Vec<Stage>,
}

/// The operators that follow from an input of the main entry and can be cut.
pub(super) struct Found {
    pub(super) entry: usize,
    source: ValueId,
    stages: Vec<Stage>,
    /// How many of them may be cut together: nothing but the last one's output is read by others.
    pub(super) ends: Vec<usize>,
}

impl Found {
    /// The first so many operators. The average of an image may be the last of them, in parts; before others it is one window.
    pub(super) fn first(&self, operators: usize) -> Option<Segment> {
        let mut stages = self.stages.get(..operators).filter(|_| self.ends.contains(&operators))?.to_vec();
        let (last, before) = stages.split_last_mut()?;
        if last.average.is_some() {
            last.window = None;
        }
        before.iter_mut().for_each(|stage| stage.average = None);
        Some(Segment { entry: self.entry, source: self.source, stages })
    }
}

/// The input of the main entry that most operators can be cut after; the first where that is to be fed by rows.
pub(super) fn find(graph: &Graph, feed: bool) -> Option<Found> {
    let number = graph.main_entry()?;
    let entry = graph.entries.get(number)?;
    let mut readers: HashMap<ValueId, usize> = HashMap::new();
    for read in graph.entries.iter().flat_map(reads) {
        *readers.entry(read).or_default() += 1;
    }
    let from = |&source: &ValueId| {
        let stages = stages(graph, entry, source);
        let ends = (2..=stages.len()).filter(|&end| closed(entry, source, &stages[..end], &readers)).collect();
        Found { entry: number, source, stages, ends }
    };
    let inputs = entry.inputs.iter().take(if feed { 1 } else { usize::MAX });
    let longest = inputs.map(from).max_by_key(|found| found.ends.last().copied())?;
    (!longest.ends.is_empty()).then_some(longest)
}

fn reads(entry: &Entry) -> impl Iterator<Item = ValueId> + '_ {
    let others = entry.outputs.iter().chain(entry.assigns.iter().map(|assign| &assign.value));
    entry.nodes.iter().flat_map(|node| &node.inputs).chain(others).copied()
}

/// The operators after `source`, up to the first that can't be cut.
fn stages(graph: &Graph, entry: &Entry, source: ValueId) -> Vec<Stage> {
    let mut stages = Vec::new();
    let mut made = HashSet::from([source]);
    for (index, node) in entry.nodes.iter().enumerate() {
        if !node.inputs.iter().any(|input| made.contains(input)) {
            continue;
        }
        let Some(stage) = stage(graph, index, node, &made) else { break };
        stages.push(stage);
        made.insert(node.output);
    }
    stages
}

/// Whether nothing but the last of these operators' output is read by others.
fn closed(entry: &Entry, source: ValueId, stages: &[Stage], readers: &HashMap<ValueId, usize>) -> bool {
    let mut within: HashMap<ValueId, usize> = HashMap::new();
    for stage in stages {
        entry.nodes[stage.node].inputs.iter().for_each(|&input| *within.entry(input).or_default() += 1);
    }
    let [inner @ .., _] = stages else { return false };
    let mut values = inner.iter().map(|stage| entry.nodes[stage.node].output).chain([source]);
    values.all(|value| readers.contains_key(&value) && within.get(&value) == readers.get(&value))
}

fn stage(graph: &Graph, index: usize, node: &Node, made: &HashSet<ValueId>) -> Option<Stage> {
    let is_constant = |id: &ValueId| matches!(graph.value(*id).source, Source::Constant(_));
    let output = graph.value(node.output);
    let image = |ty: &TensorType| ty.shape.rank() == 4 && ty.shape.dim(0) == 1;
    let own: Vec<ValueId> = node.inputs.iter().copied().filter(|id| !is_constant(id)).collect();
    let fixed = |id: &ValueId| made.contains(id) && image(&graph.value(*id).ty) && graph.value(*id).varying.is_empty();
    if !own.iter().all(fixed) || !image(&output.ty) || !output.varying.is_empty() || node.op.effect() != Effect::Fresh {
        return None;
    }
    let input = graph.value(*own.first()?).ty.shape.dim(1);
    let window = match node.op {
        Op::Conv2d(conv) if own.len() == 1 && node.inputs.first() == own.first() => {
            Some(conv.window(&graph.value(*node.inputs.get(1)?).ty))
        }
        Op::Pool2d(pool) => Some(pool.window()),
        op => {
            let types = graph.types(&node.inputs);
            let rows = output.ty.shape.dim(1);
            let same = node.inputs.iter().enumerate().all(|(number, id)| {
                let shape = graph.value(*id).ty.shape;
                // A constant is the same for each row.
                let flat = is_constant(id) && (shape.rank() < 3 || shape.dim(shape.rank() - 3) == 1);
                flat || own.contains(id) && shape.dim(1) == rows && op.varies(&types, number, 1) == Some(1)
            });
            // Of one row, this operator would have to say the same.
            let short: Vec<TensorType> = types.iter().map(|ty| with_rows(ty, rows, 1)).collect();
            let made = op.output(&short).ok()?.shape == with_rows(&output.ty, rows, 1).shape;
            (same && made).then_some(None)?
        }
    };
    let average = match node.op {
        Op::Pool2d(pool) => average(&pool, &graph.value(*own.first()?).ty),
        _ => None,
    };
    Some(Stage { node: index, window, input, average })
}

/// What parts of a pool are where it is the average of a whole image.
fn average(pool: &Pool2d, x: &TensorType) -> Option<AveragePool2dPart> {
    let [_, height, width, _] = *x.shape.dims() else { return None };
    let whole = pool.kind == PoolKind::Average && pool.kernel == [height, width] && pool.pads == [0; 4];
    let summed = matches!(x.dtype, DType::I8 | DType::F32);
    let taps = height.checked_mul(width).filter(|_| whole && summed)?;
    Some(AveragePool2dPart { taps, last: false, activation: pool.activation })
}

/// A type of images of `rows` rows with `new` ones; others as they are.
pub(super) fn with_rows(ty: &TensorType, rows: u32, new: u32) -> TensorType {
    let mut dims = ty.shape.dims().to_vec();
    if let [_, height, _, _] = &mut dims[..]
        && *height == rows
    {
        *height = new;
    }
    TensorType::new(ty.dtype, kiln_core::Shape::new(&dims).unwrap_or(ty.shape))
}

impl Stage {
    /// Rows that are cut into patches: of its output, or of an average's input.
    pub(super) fn height(&self, output: &TensorType) -> u32 {
        if self.average.is_some() { self.input } else { output.shape.dim(1) }
    }

    /// How many rows of its inputs a row of its output goes on by.
    pub(super) fn stride(&self) -> u32 {
        self.window.as_ref().map_or(1, |window| window.strides[0])
    }

    /// The input rows under output rows `begin..end`, and the padding above and below them.
    pub(super) fn under(&self, [begin, end]: [u32; 2]) -> Option<([u32; 2], [u32; 2])> {
        let Some(window) = &self.window else { return Some(([begin, end], [0, 0])) };
        let (stride, pad) = (i64::from(window.strides[0]), i64::from(window.pads[0]));
        let reach = (i64::from(window.kernel[0]) - 1) * i64::from(window.dilations[0]);
        let (top, bottom) = (i64::from(begin) * stride - pad, i64::from(end - 1) * stride - pad + reach + 1);
        let rows = [top.max(0), bottom.min(i64::from(self.input))];
        let pads = [-top.min(0), (bottom - i64::from(self.input)).max(0)];
        // A window may lie on padding alone; then there is no row to cut.
        (rows[0] < rows[1]).then(|| (rows.map(|row| row as u32), pads.map(|pad| pad as u32)))
    }

    /// The operator over rows of its image with this padding above and below.
    pub(super) fn over(&self, op: Op, [top, bottom]: [u32; 2]) -> Op {
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
