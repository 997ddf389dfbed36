//! The graph that cuts operators into pieces.

use std::collections::HashMap;

use kiln_core::{MAX_OPERANDS, MAX_RANK, Shape, TensorType};
use kiln_ops::{AveragePool2dPart, Concat, Op, Slice};
use kiln_planner::graph::{Entry, Graph, Node, Quant, ValueId};

use super::segment::Segment;
use super::{Overlap, Patches, Way};

/// Inputs that one concatenation takes.
const INPUTS: usize = MAX_OPERANDS - 1;

/// Rows `begin..end` of an image.
type Rows = [u32; 2];

/// What one operator computes for one piece of the result.
#[derive(Clone, Copy)]
struct Part {
    /// Rows of its output.
    rows: Rows,
    /// Rows of its inputs, and padding above and below them.
    under: Rows,
    pads: [u32; 2],
}

impl Segment {
    /// The graph with the segment in pieces; `None` for one piece, more than `most`, or windows that lie on padding alone.
    pub(super) fn cut(&self, graph: &Graph, way: Way, most: u32) -> Option<(Graph, Patches)> {
        let entry = graph.entries.get(self.entry)?;
        let end = self.stages.last()?;
        let last = entry.nodes.get(end.node)?;
        let height = end.height(&graph.value(last.output).ty);
        let count = height.div_ceil(way.rows);
        if !(2..=most).contains(&count) {
            return None;
        }
        let parts = self.parts(graph, entry, way, count)?;
        let mut cutting = Cutting { graph: graph.clone(), nodes: Vec::new(), macs: 0 };
        // Pieces of values that are read piece by piece, and values that are read through slices.
        let mut pieces: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
        let mut whole: HashMap<ValueId, ValueId> = HashMap::from([(self.source, self.source)]);
        for (number, (stage, parts_of)) in self.stages.iter().zip(&parts).enumerate() {
            let node = &entry.nodes[stage.node];
            let mut own = Vec::new();
            for (piece, &Part { rows, under, pads }) in parts_of.iter().enumerate() {
                let mut inputs = node.inputs.clone();
                for input in &mut inputs {
                    *input = match (whole.get(input), pieces.get(input)) {
                        (Some(&all), _) => cutting.slice(all, under)?,
                        (None, Some(direct)) => *direct.get(piece)?,
                        (None, None) => *input,
                    };
                }
                own.push(match stage.average {
                    Some(part) => {
                        inputs.extend(own.last());
                        let last = (piece + 1 == parts_of.len()).then_some(last.output);
                        cutting.average(node, part, inputs, rows, last)?
                    }
                    None => cutting.operator(graph, node, stage.over(node.op, pads), inputs, rows)?,
                });
            }
            if stage.average.is_some() {
                // Its last part is the output.
            } else if node.output == last.output {
                cutting.together(graph, node, own, Some(last.output))?;
            } else if self.direct(entry, number, &parts) {
                pieces.insert(node.output, own);
            } else if way.overlap == Overlap::Kept {
                whole.insert(node.output, cutting.together(graph, node, own, None)?);
            } else {
                // These pieces have rows in common.
                return None;
            }
        }
        let Cutting { graph: mut new, nodes: cut, macs: all } = cutting;
        let steps = parts.iter().map(Vec::len).sum();
        let entry = new.entries.get_mut(self.entry)?;
        let mut cut = Some(cut);
        let mut nodes = Vec::new();
        let end = self.stages.last()?.node;
        for (index, node) in std::mem::take(&mut entry.nodes).into_iter().enumerate() {
            if index == end {
                nodes.extend(cut.take()?);
            } else if !self.stages.iter().any(|stage| stage.node == index) {
                nodes.push(node);
            }
        }
        entry.nodes = nodes;
        crate::drop_dead::run(&mut new);
        let before = self.stages.iter().map(|stage| macs(graph, &graph.entries[self.entry].nodes[stage.node]));
        let patches = Patches {
            operators: self.stages.len(),
            last: last.name.clone(),
            count,
            rows: way.rows,
            steps,
            overlap: way.overlap,
            macs: all.saturating_sub(before.sum()),
        };
        Some((new, patches))
    }

    /// What each operator computes, piece by piece.
    fn parts(&self, graph: &Graph, entry: &Entry, way: Way, count: u32) -> Option<Vec<Vec<Part>>> {
        let Way { rows, at_once, overlap } = way;
        let end = self.stages.last()?;
        let last = entry.nodes[end.node].output;
        let height = end.height(&graph.value(last).ty);
        // Once all are under way, a piece of the result needs so many new rows of each image. No more are computed at once before
        // that either, so the first piece takes no more memory than others.
        let mut most: HashMap<ValueId, u32> = HashMap::from([(last, rows)]);
        for stage in self.stages.iter().rev() {
            let node = &entry.nodes[stage.node];
            let own = most.get(&node.output).copied().unwrap_or(1).saturating_mul(stage.stride());
            node.inputs.iter().for_each(|&input| {
                let known = most.entry(input).or_insert(own);
                *known = own.max(*known);
            });
        }
        let mut done: HashMap<ValueId, u32> = HashMap::new();
        let mut parts = vec![Vec::new(); self.stages.len()];
        for piece in 0..count {
            let mut needed: HashMap<ValueId, Rows> = HashMap::new();
            needed.insert(last, [piece * rows, ((piece + 1) * rows).min(height)]);
            for (stage, parts) in self.stages.iter().zip(&mut parts).rev() {
                let node = &entry.nodes[stage.node];
                let Some(&all) = needed.get(&node.output) else { continue };
                let (all, most) = match overlap {
                    Overlap::Kept => {
                        let done = done.entry(node.output).or_default();
                        let begin = std::mem::replace(done, all[1].max(*done));
                        ([begin, *done], most.get(&node.output).copied().unwrap_or(1).min(at_once))
                    }
                    Overlap::ComputedAgain => (all, u32::MAX),
                };
                let mut begin = all[0];
                while begin < all[1] {
                    let rows = [begin, begin.saturating_add(most).min(all[1])];
                    let (under, pads) = stage.under(rows)?;
                    parts.push(Part { rows, under, pads });
                    for &input in &node.inputs {
                        let hull = needed.entry(input).or_insert(under);
                        *hull = [hull[0].min(under[0]), hull[1].max(under[1])];
                    }
                    begin = rows[1];
                }
            }
        }
        Some(parts)
    }

    /// Whether an operator's pieces are read as they are: each by one operator's piece of the same number.
    fn direct(&self, entry: &Entry, number: usize, parts: &[Vec<Part>]) -> bool {
        let output = entry.nodes[self.stages[number].node].output;
        let times =
            |stage: usize| entry.nodes[self.stages[stage].node].inputs.iter().filter(|&&id| id == output).count();
        let readers: Vec<usize> = (number + 1..self.stages.len()).filter(|&stage| times(stage) > 0).collect();
        let [reader] = readers[..] else { return false };
        let own = parts[number].iter().map(|part| part.rows);
        own.eq(parts[reader].iter().map(|part| part.under))
    }
}

/// A graph as pieces are added to it.
struct Cutting {
    graph: Graph,
    nodes: Vec<Node>,
    macs: u64,
}

impl Cutting {
    /// Rows of an image.
    fn slice(&mut self, image: ValueId, rows: Rows) -> Option<ValueId> {
        let whole = self.graph.value(image).clone();
        let value = self.result(&whole.name, whole.ty, rows[1] - rows[0], whole.quant)?;
        let mut begin = [0; MAX_RANK];
        begin[1] = rows[0];
        let size = self.graph.value(value).ty.shape;
        let slice = Slice { begin, size, step: [1; MAX_RANK] };
        let name = rows_named(&whole.name, rows);
        self.nodes.push(Node { name, op: slice.into(), inputs: vec![image], output: value });
        Some(value)
    }

    /// An operator over rows of its inputs.
    fn operator(&mut self, graph: &Graph, node: &Node, op: Op, inputs: Vec<ValueId>, rows: Rows) -> Option<ValueId> {
        let whole = graph.value(node.output);
        let output = self.result(&whole.name, whole.ty, rows[1] - rows[0], whole.quant.clone())?;
        let node = Node { name: rows_named(&node.name, rows), op, inputs, output };
        self.macs += macs(&self.graph, &node);
        self.nodes.push(node);
        Some(output)
    }

    /// A part of an average over rows of its image and, if there are any, the sums of those above; with the output where it is the last.
    fn average(
        &mut self,
        node: &Node,
        part: AveragePool2dPart,
        inputs: Vec<ValueId>,
        rows: Rows,
        last: Option<ValueId>,
    ) -> Option<ValueId> {
        let name = rows_named(&node.name, rows);
        let op = Op::from(AveragePool2dPart { last: last.is_some(), ..part });
        let output = match last {
            Some(output) => output,
            None => {
                let sums = op.output(&self.graph.types(&inputs)).ok()?;
                self.graph.add_result(format!("{name} (sums)"), sums, Quant::default())
            }
        };
        self.nodes.push(Node { name, op, inputs, output });
        Some(output)
    }

    /// Pieces of a node's output put together; into a value of their own, or the one that is given.
    fn together(
        &mut self,
        graph: &Graph,
        node: &Node,
        mut pieces: Vec<ValueId>,
        output: Option<ValueId>,
    ) -> Option<ValueId> {
        let value = graph.value(node.output);
        let name = format!("{} (rows together)", node.name);
        loop {
            let mut fewer = Vec::new();
            let all = pieces.len() <= INPUTS;
            for some in pieces.chunks(INPUTS) {
                let height = some.iter().map(|&id| self.graph.value(id).ty.shape.dim(1)).sum();
                let output = match output.filter(|_| all) {
                    Some(output) => output,
                    None => self.result(&value.name, value.ty, height, value.quant.clone())?,
                };
                let (op, inputs) = (Concat { axis: 1 }.into(), some.to_vec());
                self.nodes.push(Node { name: name.clone(), op, inputs, output });
                fewer.push(output);
            }
            if let [one] = fewer[..] {
                return Some(one);
            }
            pieces = fewer;
        }
    }

    /// A value like another one, of this height.
    fn result(&mut self, name: &str, ty: TensorType, height: u32, quant: Quant) -> Option<ValueId> {
        let mut dims = ty.shape.dims().to_vec();
        *dims.get_mut(1)? = height;
        let ty = TensorType::new(ty.dtype, Shape::new(&dims).ok()?);
        Some(self.graph.add_result(format!("{name} ({height} rows)"), ty, quant))
    }
}

fn rows_named(name: &str, [begin, end]: Rows) -> String {
    format!("{name} (rows {begin} to {})", end - 1)
}

fn macs(graph: &Graph, node: &Node) -> u64 {
    node.op.cost(&graph.types(&node.inputs), &graph.value(node.output).ty).macs
}
