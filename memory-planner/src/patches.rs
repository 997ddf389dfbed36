//! Stretches of a network that run piece by piece, planned as one step.
//!
//! A graph says it in plain operators: slices of one value, a chain of operators over each, and the concatenation of what
//! comes out. Where slices and pieces are whole rows of an image they are only places in the value and in the result, so neither
//! is copied; the chains run one after the other in the same memory; and the result may lie over rows that no later chain
//! reads. To the search for order and placement such a stretch is one step, whose scratch holds any of its chains and
//! whose output trails its input; afterwards it is spread out into the steps that it stands for.

use std::collections::HashMap;
use std::ops::Range;

use kiln_core::{DType, Shape, TensorType};
use kiln_kernels::table::{self, Operand, Operation};
use kiln_ops::{Effect, Op, Slice};

use crate::error::{PlanError, Unsupported};
use crate::graph::{Entry, Graph, Node, Source, ValueId};
use crate::lower::{Lowered, Lowering, Part, Storage, Work};
use crate::solve::{self, Budget, Live, Problem, Solution, SolveError};

/// A stretch, as nodes of the graph.
pub(crate) struct Stretch {
    /// What is cut into slices.
    source: ValueId,
    chains: Vec<Chain>,
    /// The concatenation; its node, and those of concatenations that it takes.
    pub result: usize,
    others: Vec<usize>,
    /// Whether the source is fed row by row.
    fed: bool,
}

/// A chain of nodes over one slice.
struct Chain {
    slice: usize,
    /// Where the slice begins in the source, in bytes, and how many these are.
    offset: u64,
    bytes: u64,
    nodes: Vec<usize>,
}

impl Stretch {
    /// What is fed to it row by row.
    pub(crate) fn fed(&self) -> Option<ValueId> {
        self.fed.then_some(self.source)
    }

    /// Whether `input` can be fed to it row by row: nothing else reads it, and no row is left out.
    fn may_feed(&self, entry: &Entry, input: ValueId) -> bool {
        let slices = entry.nodes.iter().enumerate().filter(|(_, node)| node.inputs.contains(&input));
        let own = slices.map(|(index, _)| index).all(|index| self.chains.iter().any(|chain| chain.slice == index));
        let outputs = entry.outputs.contains(&input) || entry.assigns.iter().any(|assign| assign.value == input);
        let whole =
            self.chains.is_sorted_by(|a, b| a.offset + a.bytes >= b.offset && a.offset + a.bytes <= b.offset + b.bytes);
        let first = self.chains.first().is_some_and(|chain| chain.offset == 0);
        self.source == input && own && !outputs && whole && first
    }

    /// Its nodes but for the result's.
    pub(crate) fn inner(&self) -> impl Iterator<Item = usize> + '_ {
        let chains = self.chains.iter().flat_map(|chain| chain.nodes.iter().chain([&chain.slice]));
        chains.chain(&self.others).copied()
    }
}

/// A stretch, as steps and buffers.
pub(crate) struct Group {
    /// The buffer that is cut into slices; the band of rows that are there at a time, where they are fed.
    pub source: usize,
    /// Whether it is such a band.
    pub fed: bool,
    /// The buffer of the result.
    pub output: usize,
    /// Steps of each chain, and buffers between them.
    pub chains: Vec<(Range<usize>, Vec<usize>)>,
}

/// Who makes and who reads each value of an entry.
struct Uses<'a> {
    graph: &'a Graph,
    entry: &'a Entry,
    made: HashMap<ValueId, usize>,
    readers: HashMap<ValueId, usize>,
}

impl Uses<'_> {
    fn node(&self, value: ValueId) -> Option<(usize, &Node)> {
        let index = *self.made.get(&value)?;
        Some((index, self.entry.nodes.get(index)?))
    }

    /// The node that makes a value with one reader.
    fn only(&self, value: ValueId) -> Option<(usize, &Node)> {
        self.node(value).filter(|_| self.readers.get(&value) == Some(&1))
    }

    fn is_constant(&self, value: ValueId) -> bool {
        matches!(self.graph.value(value).source, Source::Constant(_))
    }

    /// The pieces of a concatenation in order, those of inner ones among them, and the nodes of these.
    fn pieces(&self, node: &Node, axis: u8, others: &mut Vec<usize>) -> Vec<ValueId> {
        let mut pieces = Vec::new();
        for &input in &node.inputs {
            match self.only(input) {
                Some((index, inner)) if matches!(inner.op, Op::Concat(concat) if concat.axis == axis) => {
                    others.push(index);
                    pieces.extend(self.pieces(inner, axis, others));
                }
                _ => pieces.push(input),
            }
        }
        pieces
    }

    /// The chain that ends in `piece`, and what its slice is cut from.
    fn chain(&self, piece: ValueId) -> Option<(Chain, ValueId)> {
        let mut nodes = Vec::new();
        let mut value = piece;
        loop {
            let (index, node) = self.only(value)?;
            let [first, others @ ..] = &node.inputs[..] else { return None };
            if self.graph.value(node.output).ty.dtype != DType::I8 || !self.graph.value(node.output).varying.is_empty()
            {
                return None;
            }
            if let Op::Slice(slice) = node.op {
                nodes.reverse();
                let offset = whole_rows(&slice, &self.graph.value(*first).ty.shape)?;
                let bytes = self.graph.value(node.output).ty.bytes()?;
                // A chain of one step would write its piece while it reads its slice.
                return (nodes.len() > 1).then_some((Chain { slice: index, offset, bytes, nodes }, *first));
            }
            if node.op.effect() != Effect::Fresh || !others.iter().all(|&other| self.is_constant(other)) {
                return None;
            }
            nodes.push(index);
            value = *first;
        }
    }
}

/// Where a slice of int8 begins that lies in one piece, in bytes.
fn whole_rows(slice: &Slice, shape: &Shape) -> Option<u64> {
    let rank = shape.rank();
    let Some(cut) = (0..rank).find(|&axis| slice.size.dim(axis) != shape.dim(axis)) else { return Some(0) };
    let before = (0..cut).all(|axis| shape.dim(axis) == 1);
    let after = (cut + 1..rank).all(|axis| slice.size.dim(axis) == shape.dim(axis));
    let dense = slice.step.get(cut) == Some(&1);
    let row: u64 = (cut + 1..rank).map(|axis| u64::from(shape.dim(axis))).product();
    (before && after && dense).then(|| u64::from(slice.begin.get(cut).copied().unwrap_or(0)) * row)
}

/// The stretches of an entry. What is to be fed by rows is, if it can be.
pub(crate) fn find(graph: &Graph, entry: &Entry, feed: Option<ValueId>) -> Vec<Stretch> {
    let made = entry.nodes.iter().enumerate().map(|(index, node)| (node.output, index)).collect();
    let mut readers: HashMap<ValueId, usize> = HashMap::new();
    let read = entry.nodes.iter().flat_map(|node| &node.inputs).chain(&entry.outputs);
    for &value in read.chain(entry.assigns.iter().map(|assign| &assign.value)) {
        *readers.entry(value).or_default() += 1;
    }
    let uses = Uses { graph, entry, made, readers };
    let found = entry.nodes.iter().enumerate().filter_map(|(index, node)| stretch(&uses, index, node));
    let mut stretches: Vec<Stretch> = found.collect();
    // An inner concatenation of a stretch may look like one itself.
    let inner: Vec<usize> = stretches.iter().flat_map(|stretch| stretch.others.iter().copied()).collect();
    stretches.retain(|stretch| !inner.contains(&stretch.result));
    for stretch in &mut stretches {
        stretch.fed = feed.is_some_and(|input| stretch.may_feed(entry, input));
    }
    stretches
}

fn stretch(uses: &Uses<'_>, index: usize, node: &Node) -> Option<Stretch> {
    let Op::Concat(concat) = node.op else { return None };
    let shape = uses.graph.value(node.output).ty.shape;
    if !(0..concat.axis as usize).all(|axis| shape.dim(axis) == 1) {
        return None;
    }
    let mut others = Vec::new();
    let pieces = uses.pieces(node, concat.axis, &mut others);
    let chains: Vec<(Chain, ValueId)> = pieces.iter().map(|&piece| uses.chain(piece)).collect::<Option<_>>()?;
    let source = chains.first()?.1;
    let lies = matches!(uses.graph.value(source).source, Source::Input | Source::Node)
        && uses.node(source).is_none_or(|(_, node)| node.op.effect() == Effect::Fresh);
    let ordered = chains.is_sorted_by_key(|(chain, _)| chain.offset);
    let same = chains.iter().all(|(_, value)| *value == source);
    (lies && ordered && same && chains.len() > 1).then(|| Stretch {
        source,
        chains: chains.into_iter().map(|(chain, _)| chain).collect(),
        result: index,
        others,
        fed: false,
    })
}

impl Lowering<'_> {
    /// Lowers a stretch: all its steps, each after those that it follows. `false` where kernels want of rows what only
    /// whole tensors have.
    pub(crate) fn stretch(&mut self, work: &mut Work, entry: &Entry, stretch: &Stretch) -> Result<bool, PlanError> {
        let fed = stretch.fed;
        let source = match self.storage(work, stretch.source) {
            _ if fed => self.band(work, stretch),
            Storage::Buffer(source) => source,
            _ => return Ok(false),
        };
        let output = self.new_buffer(work, entry.nodes[stretch.result].output, None);
        let mut chains = Vec::new();
        let mut written = 0;
        let mut there = 0..0;
        for chain in &stretch.chains {
            let first = work.steps.len();
            if fed {
                self.feed(work, entry, stretch, chain, source, there)?;
            }
            there = chain.offset..chain.offset + chain.bytes;
            let slice = self.new_buffer(work, entry.nodes[chain.slice].output, None);
            work.buffers[slice].part = Some(Part { of: source, offset: if fed { 0 } else { chain.offset } });
            let mut between = Vec::new();
            for (number, &index) in chain.nodes.iter().enumerate() {
                let node = &entry.nodes[index];
                let step = work.steps.len();
                let last = number + 1 == chain.nodes.len();
                let buffer = self.new_buffer(work, node.output, Some(step));
                match last {
                    true => work.buffers[buffer].part = Some(Part { of: output, offset: written }),
                    false => between.push(buffer),
                }
                self.node(work, entry, node, index as u32, Some(Storage::Buffer(buffer)))?;
                written += if last { work.buffers[buffer].bytes } else { 0 };
            }
            chains.push((first..work.steps.len(), between));
        }
        if work.buffers.iter().any(|buffer| buffer.part.is_some() && (buffer.align > 1 || buffer.tail > 0)) {
            return Ok(false);
        }
        work.groups.push(Group { source, fed, output, chains });
        Ok(true)
    }

    /// The buffer for the rows of a source that is fed: those of the largest slice.
    fn band(&self, work: &mut Work, stretch: &Stretch) -> usize {
        let band = self.new_buffer(work, stretch.source, None);
        work.storage.insert(stretch.source, Storage::External(0));
        let buffer = &mut work.buffers[band];
        buffer.bytes = stretch.chains.iter().map(|chain| chain.bytes).max().unwrap_or(0);
        buffer.name.push_str(" (rows)");
        band
    }

    /// Steps that bring a chain's rows into the band: those that are `there` move up, the others are fed.
    fn feed(
        &mut self,
        work: &mut Work,
        entry: &Entry,
        stretch: &Stretch,
        chain: &Chain,
        band: usize,
        there: Range<u64>,
    ) -> Result<(), PlanError> {
        let kept = there.end.saturating_sub(chain.offset).min(chain.bytes);
        if kept > 0 && chain.offset > there.start {
            let from = self.part(work, stretch, band, chain.offset - there.start..there.end - there.start);
            let to = self.part(work, stretch, band, 0..kept);
            self.copy_rows(work, entry, stretch, from, to, "kept")?;
        }
        if kept < chain.bytes {
            let new = self.part(work, stretch, band, kept..chain.bytes);
            self.copy_rows(work, entry, stretch, new, new, "fed")?;
            if let Some(step) = work.steps.last_mut() {
                (step.feed, step.rows) = (true, 0);
            }
        }
        Ok(())
    }

    fn part(&self, work: &mut Work, stretch: &Stretch, band: usize, range: Range<u64>) -> usize {
        let storage = work.storage.get(&stretch.source).copied();
        let number = self.new_buffer(work, stretch.source, None);
        work.buffers[number].bytes = range.end - range.start;
        work.buffers[number].part = Some(Part { of: band, offset: range.start });
        storage.map(|storage| work.storage.insert(stretch.source, storage));
        number
    }

    /// A step that copies bytes of the source from one place to another.
    fn copy_rows(
        &mut self,
        work: &mut Work,
        entry: &Entry,
        stretch: &Stretch,
        from: usize,
        to: usize,
        what: &str,
    ) -> Result<(), PlanError> {
        let value = self.graph.value(stretch.source);
        let shape = u32::try_from(work.buffers[to].bytes).ok().and_then(|bytes| Shape::new(&[bytes]).ok());
        let refused = |what: &str| {
            let (node, operands) = (format!("{} ({what})", value.name), format!("{:?}", value.ty.shape));
            PlanError::Unsupported(vec![Unsupported { node, op: "copy", operands }])
        };
        let shape = shape.ok_or_else(|| refused(what))?;
        let operand = Operand { ty: TensorType::new(value.ty.dtype, shape), quant: value.quant.view(), data: None };
        let operation = Operation { op: Op::Copy(kiln_ops::Copy), inputs: &[operand], output: operand };
        let name = format!("{} ({what})", value.name);
        let node = Node { name, op: operation.op, inputs: vec![stretch.source], output: stretch.source };
        let kernel = table::choose(&operation, self.target).ok_or_else(|| refused(what))?;
        let before = work.storage.insert(stretch.source, Storage::Buffer(from));
        self.step(work, entry, &node, u32::MAX, kernel, &operation, Some(Storage::Buffer(to)))?;
        before.map(|storage| work.storage.insert(stretch.source, storage));
        if let Some(step) = work.steps.last_mut() {
            step.overlaps.clear();
        }
        Ok(())
    }
}

/// A group's chains, solved.
struct Solved {
    chains: Vec<Solution>,
    /// Bytes for any of them, behind those of the band.
    bytes: u64,
    band: u64,
    align: u64,
}

/// Solves an entry's problem, `full` as its steps and buffers are, with each group as one step.
pub(crate) fn solve(entry: &Lowered, full: &Problem, overlap: bool, budget: &Budget) -> Result<Solution, SolveError> {
    let groups: Vec<Solved> =
        entry.groups.iter().map(|group| solve_chains(entry, group, full, budget)).collect::<Result<_, _>>()?;
    let reduced = Reduced::new(entry, full, &groups, overlap);
    let solution = solve::solve(&reduced.problem, budget)?;
    Ok(reduced.spread(entry, full, &groups, &solution))
}

fn solve_chains(entry: &Lowered, group: &Group, full: &Problem, budget: &Budget) -> Result<Solved, SolveError> {
    let mut solved = Solved { chains: Vec::new(), bytes: 0, band: 0, align: 4 };
    for (steps, between) in &group.chains {
        let place = |b: usize| between.iter().position(|&own| own == b);
        let all = |list: &[usize]| list.iter().filter_map(|&b| place(b)).collect::<Vec<_>>();
        let buffer = |&b: &usize| {
            let source = match full.buffers[b].source {
                solve::Source::Step(step) => solve::Source::Step(step - steps.start),
                input => input,
            };
            solve::Buffer { source, ..full.buffers[b].clone() }
        };
        let step = |s: usize| {
            let step = &full.steps[s];
            let overlaps = step
                .overlaps
                .iter()
                .filter_map(|o| Some(solve::Overlap { input: place(o.input)?, output: place(o.output)?, ..*o }));
            let overlaps = overlaps.collect();
            let after = s.checked_sub(steps.start + 1).into_iter().collect();
            solve::Step {
                inputs: all(&step.inputs),
                outputs: all(&step.outputs),
                scratch: step.scratch,
                overlaps,
                after,
            }
        };
        let problem =
            Problem { steps: steps.clone().map(step).collect(), buffers: between.iter().map(buffer).collect() };
        let scratch = problem.steps.iter().filter_map(|step| step.scratch).map(|scratch| scratch.align);
        let aligns = problem.buffers.iter().map(|buffer| buffer.align).chain(scratch);
        solved.align = aligns.fold(solved.align, u64::max);
        let solution = solve::solve(&problem, budget)?;
        solved.bytes = solved.bytes.max(solution.arena);
        solved.chains.push(solution);
    }
    if group.fed {
        solved.band = entry.buffers[group.source].bytes.next_multiple_of(solved.align);
        solved.bytes += solved.band;
    }
    Ok(solved)
}

/// How far the group's output must trail its source, walking up: the chain that writes a piece has read its slice, those
/// after it have not.
fn lag(entry: &Lowered, group: &Group) -> u64 {
    let part = |storage: Storage, of: usize| match storage {
        Storage::Buffer(b) => entry.buffers[b].part.filter(|part| part.of == of).map(|part| (part.offset, b)),
        _ => None,
    };
    let ends = group.chains.iter().map(|(steps, _)| {
        let (offset, b) = part(entry.steps[steps.end - 1].output, group.output)?;
        Some(offset + entry.buffers[b].bytes)
    });
    let starts = group.chains.iter().map(|(steps, _)| {
        let inputs = entry.steps[steps.start].inputs.iter();
        inputs.filter_map(|&input| part(input, group.source)).map(|(offset, _)| offset).min()
    });
    let pairs = ends.zip(starts.skip(1));
    pairs.filter_map(|(end, start)| Some(end?.saturating_sub(start?))).max().unwrap_or(0)
}

/// The problem with one step for each group.
struct Reduced {
    problem: Problem,
    /// For each of its steps, a step of the entry's, or a group.
    steps: Vec<Result<usize, usize>>,
    /// For each of its buffers, the entry's.
    buffers: Vec<usize>,
}

impl Reduced {
    fn new(entry: &Lowered, full: &Problem, solved: &[Solved], overlap: bool) -> Reduced {
        let group_of = |step: usize| {
            let within = |group: &Group| group.chains.iter().any(|(steps, _)| steps.contains(&step));
            entry.groups.iter().position(within)
        };
        let between: Vec<usize> =
            entry.groups.iter().flat_map(|g| &g.chains).flat_map(|(_, between)| between.iter().copied()).collect();
        let mut steps: Vec<Result<usize, usize>> = Vec::new();
        let mut number = Vec::with_capacity(full.steps.len());
        for step in 0..full.steps.len() {
            let own = group_of(step).map_or(Ok(step), Err);
            let known = steps.iter().position(|&known| known == own).unwrap_or(steps.len());
            if known == steps.len() {
                steps.push(own);
            }
            number.push(known);
        }
        let inner = |b: usize| {
            let band = entry.groups.iter().any(|group| group.fed && group.source == b);
            band || entry.buffers[b].part.is_some() || between.contains(&b)
        };
        let buffers: Vec<usize> = (0..full.buffers.len()).filter(|&b| !inner(b)).collect();
        let place = |b: usize| buffers.iter().position(|&own| own == b);
        let all = |list: &[usize]| list.iter().filter_map(|&b| place(b)).collect::<Vec<_>>();
        let after = |list: &[usize]| list.iter().map(|&step| number[step]).collect::<Vec<_>>();
        let step = |own: &Result<usize, usize>| match *own {
            Ok(step) => {
                let step = &full.steps[step];
                let overlaps = step
                    .overlaps
                    .iter()
                    .filter_map(|o| Some(solve::Overlap { input: place(o.input)?, output: place(o.output)?, ..*o }));
                let overlaps = overlaps.collect();
                let (inputs, outputs) = (all(&step.inputs), all(&step.outputs));
                solve::Step { inputs, outputs, scratch: step.scratch, overlaps, after: after(&step.after) }
            }
            Err(group) => {
                let (solved, group) = (&solved[group], &entry.groups[group]);
                let pair = place(group.source).zip(place(group.output)).filter(|_| overlap);
                let up = Some(lag(entry, group));
                let overlaps = pair.map(|(input, output)| solve::Overlap { input, output, up, down: None });
                solve::Step {
                    inputs: all(&[group.source]),
                    outputs: all(&[group.output]),
                    scratch: (solved.bytes > 0).then_some(solve::Scratch { size: solved.bytes, align: solved.align }),
                    overlaps: overlaps.into_iter().collect(),
                    after: Vec::new(),
                }
            }
        };
        let own_steps: Vec<solve::Step> = steps.iter().map(step).collect();
        let buffer = |&b: &usize| {
            let source = match full.buffers[b].source {
                solve::Source::Step(step) => solve::Source::Step(number[step]),
                // The output of a group is written by its steps, piece by piece.
                solve::Source::Input => match entry.groups.iter().position(|group| group.output == b) {
                    Some(group) => solve::Source::Step(steps.iter().position(|own| *own == Err(group)).unwrap_or(0)),
                    None => solve::Source::Input,
                },
            };
            solve::Buffer { source, ..full.buffers[b].clone() }
        };
        let problem = Problem { steps: own_steps, buffers: buffers.iter().map(buffer).collect() };
        Reduced { problem, steps, buffers }
    }

    /// The solution for the entry's own steps and buffers.
    fn spread(&self, entry: &Lowered, full: &Problem, solved: &[Solved], solution: &Solution) -> Solution {
        let mut offsets = vec![0; full.buffers.len()];
        let mut scratch_offsets = vec![None; full.steps.len()];
        let mut live = vec![Live { first: 0, last: 0 }; full.buffers.len()];
        let mut order = Vec::new();
        // Where each of the reduced steps begins and ends.
        let mut spans = Vec::new();
        for &at in &solution.order {
            let first = order.len();
            match self.steps[at] {
                Ok(step) => {
                    scratch_offsets[step] = solution.scratch_offsets[at];
                    order.push(step);
                }
                Err(group) => {
                    let band = solution.scratch_offsets[at].unwrap_or(0);
                    let base = band + solved[group].band;
                    let first = order.len();
                    for ((steps, between), chain) in entry.groups[group].chains.iter().zip(&solved[group].chains) {
                        let begin = order.len();
                        for (inner, &b) in between.iter().enumerate() {
                            offsets[b] = base + chain.offsets[inner];
                            let Live { first, last } = chain.live[inner];
                            live[b] = Live { first: begin + first, last: begin + last };
                        }
                        for (inner, step) in steps.clone().enumerate() {
                            scratch_offsets[step] = chain.scratch_offsets[inner].map(|offset| base + offset);
                            order.push(step);
                        }
                    }
                    let Group { source, fed, .. } = entry.groups[group];
                    if fed {
                        offsets[source] = band;
                        live[source] = Live { first, last: order.len().saturating_sub(1) };
                    }
                }
            }
            spans.push((first, order.len().saturating_sub(1)));
        }
        for (own, &b) in self.buffers.iter().enumerate() {
            offsets[b] = solution.offsets[own];
            let Live { first, last } = solution.live[own];
            let span = |at: usize| spans.get(at).copied().unwrap_or((0, 0));
            live[b] = Live { first: span(first).0, last: span(last).1 };
        }
        for (b, buffer) in entry.buffers.iter().enumerate() {
            if let Some(Part { of, offset }) = buffer.part {
                (offsets[b], live[b]) = (offsets[of] + offset, live[of]);
            }
        }
        let chains = || solved.iter().flat_map(|group| &group.chains);
        Solution {
            order,
            offsets,
            scratch_offsets,
            live,
            arena: solution.arena,
            lower_bound: solution.lower_bound,
            optimal: solution.optimal && chains().all(|chain| chain.optimal),
            nodes: solution.nodes + chains().map(|chain| chain.nodes).sum::<u64>(),
        }
    }
}
