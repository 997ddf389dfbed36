//! Which stretches a graph has.

use std::collections::{HashMap, HashSet};

use kiln_core::TensorType;
use kiln_ops::{Effect, Op, Slice};

use super::{Rows, Stretch};
use crate::graph::{Entry, Graph, Node, Source, ValueId};

/// Who makes and who reads each value of an entry.
struct Uses<'a> {
    graph: &'a Graph,
    entry: &'a Entry,
    made: HashMap<ValueId, usize>,
    readers: HashMap<ValueId, usize>,
}

impl<'a> Uses<'a> {
    fn node(&self, value: ValueId) -> Option<(usize, &'a Node)> {
        let index = *self.made.get(&value)?;
        Some((index, self.entry.nodes.get(index)?))
    }

    fn readers(&self, value: ValueId) -> usize {
        self.readers.get(&value).copied().unwrap_or(0)
    }

    /// The concatenation that makes a value of rows.
    fn rows_together(&self, value: ValueId) -> Option<(usize, &Node, u8)> {
        let (index, node) = self.node(value)?;
        let Op::Concat(concat) = node.op else { return None };
        let shape = self.graph.value(value).ty.shape;
        let outer = (0..concat.axis as usize).all(|axis| shape.dim(axis) == 1);
        outer.then_some((index, node, concat.axis))
    }

    /// The nodes of an average that is taken part by part, in order.
    fn parts(&self, index: usize, last: &Node) -> Option<Vec<usize>> {
        let part = |node: &Node| match node.op {
            Op::AveragePool2dPart(part) => Some(part),
            _ => None,
        };
        part(last).filter(|part| part.last)?;
        let (mut parts, mut node) = (vec![index], last);
        while let Some(&above) = node.inputs.get(1) {
            let (index, before) = self.node(above)?;
            part(before).filter(|part| !part.last && self.readers(above) == 1)?;
            parts.push(index);
            node = before;
        }
        parts.reverse();
        Some(parts)
    }

    /// The pieces of a concatenation in order, those of inner ones among them, and the nodes of these.
    fn pieces(&self, node: &'a Node, axis: u8, others: &mut Vec<usize>) -> Vec<ValueId> {
        let mut pieces = Vec::new();
        // Not by recursion: there may be as many within each other as the graph has nodes.
        let mut within = vec![node.inputs.iter()];
        while let Some(inputs) = within.last_mut() {
            let Some(&input) = inputs.next() else {
                within.pop();
                continue;
            };
            match self.node(input).filter(|_| self.readers(input) == 1) {
                Some((index, inner)) if matches!(inner.op, Op::Concat(concat) if concat.axis == axis) => {
                    others.push(index);
                    within.push(inner.inputs.iter());
                }
                _ => pieces.push(input),
            }
        }
        pieces
    }

    /// The pieces that concatenations of their own axis put together with others: these are results, not the pieces.
    fn inner(&self) -> HashSet<ValueId> {
        let mut inner = HashSet::new();
        for node in &self.entry.nodes {
            let Op::Concat(outer) = node.op else { continue };
            inner.extend(node.inputs.iter().copied().filter(|&input| {
                let made = self.node(input).filter(|_| self.readers(input) == 1);
                matches!(made, Some((_, Node { op: Op::Concat(concat), .. })) if concat.axis == outer.axis)
            }));
        }
        inner
    }
}

/// Where a slice begins that lies in one piece, in bytes.
fn whole_rows(slice: &Slice, image: &TensorType) -> Option<u64> {
    let shape = &image.shape;
    let rank = shape.rank();
    let Some(cut) = (0..rank).find(|&axis| slice.size.dim(axis) != shape.dim(axis)) else { return Some(0) };
    let before = (0..cut).all(|axis| shape.dim(axis) == 1);
    let after = (cut + 1..rank).all(|axis| slice.size.dim(axis) == shape.dim(axis));
    let dense = slice.step.get(cut) == Some(&1);
    let row: u64 = (cut + 1..rank).map(|axis| u64::from(shape.dim(axis))).product();
    let begin = u64::from(slice.begin.get(cut).copied().unwrap_or(0)).checked_mul(row)?;
    image.dtype.bytes(begin).filter(|_| before && after && dense)
}

/// Operators and images that may lie between a piece and the source: more are not followed.
const DEEPEST: usize = 200;

/// A stretch as it is followed up from its result.
struct Walk<'a> {
    uses: &'a Uses<'a>,
    source: Option<ValueId>,
    slices: HashMap<ValueId, Rows>,
    pieces: HashMap<ValueId, Rows>,
    sums: HashSet<ValueId>,
    places: Vec<usize>,
    /// Pieces of each image, in order.
    images: HashMap<ValueId, Vec<ValueId>>,
    /// Nodes of the chain that is being followed.
    chain: Vec<usize>,
    /// Values that this chain makes, and those that any does.
    own: HashSet<ValueId>,
    seen: HashSet<usize>,
    depth: usize,
}

impl Walk<'_> {
    /// Notes an image's pieces.
    fn image(&mut self, value: ValueId, node: &Node, axis: u8) -> Option<()> {
        let pieces = self.uses.pieces(node, axis, &mut self.places);
        let mut begin = 0u64;
        for &piece in &pieces {
            let end = begin + self.uses.graph.value(piece).ty.bytes()?;
            // A piece that something else reads would not stay where it is.
            let slice = self.uses.node(piece).is_none_or(|(_, node)| matches!(node.op, Op::Slice(_)));
            let known = self.pieces.insert(piece, Rows { of: value, bytes: begin..end }).is_some();
            if slice || known || self.uses.readers(piece) != 1 {
                return None;
            }
            begin = end;
        }
        self.images.insert(value, pieces);
        Some(())
    }

    /// Adds the nodes that a value follows from to the chain, and then its own.
    fn follow(&mut self, value: ValueId) -> Option<()> {
        self.depth += 1;
        let followed = if self.depth > DEEPEST { None } else { self.node(value) };
        self.depth -= 1;
        followed
    }

    fn node(&mut self, value: ValueId) -> Option<()> {
        let (index, node) = self.uses.node(value)?;
        if !self.seen.insert(index) {
            // The chain before may have its place by now; but rows of images stay.
            return (self.own.contains(&value) || self.pieces.contains_key(&value)).then_some(());
        }
        let of = self.uses.graph.value(value);
        if !of.varying.is_empty() {
            return None;
        }
        self.own.insert(value);
        if let Op::Slice(slice) = node.op {
            let &[image] = &node.inputs[..] else { return None };
            let begin = whole_rows(&slice, &self.uses.graph.value(image).ty)?;
            let end = begin + of.ty.bytes()?;
            self.slices.insert(value, Rows { of: image, bytes: begin..end });
            self.places.push(index);
            return self.rows(image, end);
        }
        if node.op.effect() != Effect::Fresh {
            return None;
        }
        for &input in &node.inputs {
            let there = matches!(self.uses.graph.value(input).source, Source::Constant(_));
            if !there && !self.sums.contains(&input) {
                // A piece is read through slices, by its image's concatenation.
                (!self.pieces.contains_key(&input)).then_some(())?;
                self.follow(input)?;
            }
        }
        self.chain.push(index);
        Some(())
    }

    /// What makes an image's rows up to this byte, or one of the source's.
    fn rows(&mut self, image: ValueId, end: u64) -> Option<()> {
        if !self.images.contains_key(&image) {
            let Some((index, node, axis)) = self.uses.rows_together(image).filter(|_| self.source != Some(image))
            else {
                return (*self.source.get_or_insert(image) == image).then_some(());
            };
            self.places.push(index);
            self.image(image, node, axis)?;
        }
        let pieces = self.images.get(&image)?.clone();
        let needed = pieces.into_iter().take_while(|piece| self.pieces.get(piece).is_some_and(|p| p.bytes.start < end));
        needed.collect::<Vec<_>>().into_iter().try_for_each(|piece| self.follow(piece))
    }
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
    // The last result may take those before it as images between.
    let mut stretches: Vec<Stretch> = Vec::new();
    let (pieces, mut inner) = (uses.inner(), HashSet::new());
    for (index, node) in entry.nodes.iter().enumerate().rev() {
        if !inner.contains(&index)
            && !pieces.contains(&node.output)
            && let Some(found) = stretch(&uses, index, node)
        {
            inner.extend(found.inner());
            stretches.push(found);
        }
    }
    for stretch in &mut stretches {
        stretch.fed = feed.is_some_and(|input| may_feed(stretch, &uses, input));
    }
    stretches
}

fn stretch(uses: &Uses<'_>, index: usize, node: &Node) -> Option<Stretch> {
    let mut walk = Walk {
        uses,
        source: None,
        slices: HashMap::new(),
        pieces: HashMap::new(),
        sums: HashSet::new(),
        places: Vec::new(),
        images: HashMap::new(),
        chain: Vec::new(),
        own: HashSet::new(),
        seen: HashSet::new(),
        depth: 0,
    };
    let pieces = if let Some((_, _, axis)) = uses.rows_together(node.output) {
        walk.image(node.output, node, axis)?;
        walk.images.get(&node.output)?.clone()
    } else {
        let parts = uses.parts(index, node)?;
        let pieces: Vec<ValueId> = parts.iter().map(|&part| uses.entry.nodes[part].output).collect();
        walk.sums = pieces.iter().copied().filter(|&sums| sums != node.output).collect();
        pieces
    };
    let mut chains = Vec::new();
    for piece in pieces {
        walk.own.clear();
        walk.follow(piece)?;
        chains.push(std::mem::take(&mut walk.chain));
    }
    let source = walk.source?;
    let lies = matches!(uses.graph.value(source).source, Source::Input | Source::Node)
        && uses.node(source).is_none_or(|(_, node)| node.op.effect() == Effect::Fresh);
    let Walk { slices, pieces, sums, places, .. } = walk;
    let found = Stretch { source, fed: false, chains, slices, pieces, sums, result: index, places };
    // Nothing else may read what is not there as a whole.
    let nodes: HashSet<usize> = found.inner().chain([index]).collect();
    let mut within: HashMap<ValueId, usize> = HashMap::new();
    for &node in &nodes {
        entry_inputs(uses, node).for_each(|value| *within.entry(value).or_default() += 1);
    }
    let own = |index: usize| {
        let output = uses.entry.nodes.get(index).map(|node| node.output);
        output.is_some_and(|value| within.get(&value) == Some(&uses.readers(value)))
    };
    (lies && found.chains.len() > 1 && found.inner().all(own)).then_some(found)
}

fn entry_inputs<'a>(uses: &'a Uses<'_>, node: usize) -> impl Iterator<Item = ValueId> + 'a {
    uses.entry.nodes.get(node).into_iter().flat_map(|node| node.inputs.iter().copied())
}

/// Whether `input` can be fed to a stretch row by row: nothing else reads it, and no row is left out.
fn may_feed(stretch: &Stretch, uses: &Uses<'_>, input: ValueId) -> bool {
    let slices = uses.entry.nodes.iter().filter(|node| node.inputs.contains(&input));
    let own = slices.clone().all(|node| stretch.slices.contains_key(&node.output));
    let reads = slices.count() == uses.readers(input);
    let mut end = 0;
    let chains = stretch.chains.iter().flatten();
    let read = chains.flat_map(|&node| entry_inputs(uses, node)).filter_map(|value| stretch.slices.get(&value));
    let whole = read.filter(|rows| rows.of == input).all(|rows| {
        let next = rows.bytes.start <= end;
        end = end.max(rows.bytes.end);
        next
    });
    stretch.source == input && own && reads && whole
}
