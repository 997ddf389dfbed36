//! Which channels must go together, and which can go at all.

use kiln_ops::Op;
use kiln_planner::graph::{Graph, Node, Source, ValueId};

use super::bounds::Bounds;
use super::layer::{Layer, int8_quant};
use super::pay;

/// Values whose channels are tied, one by one, by what passes them on: depthwise convolutions, pools, sums,
/// copies, reshapes. A channel goes from all of them or from none.
pub(super) struct Ties {
    /// For each value, its group; `None` if its channels must stay.
    groups: Vec<Option<usize>>,
    /// For each group, the one it was joined with; itself at the end.
    joined: Vec<usize>,
    /// For each group at its own end: how many channels; 0 if they must stay. Element `i` of a value of
    /// the group is of channel `i % channels`, and its innermost dimension is a multiple of them.
    channels: Vec<usize>,
}

/// The channels that stay.
pub(super) struct Kept {
    ties: Ties,
    /// For each group: the channels that stay, in order; `None` if that is all.
    kept: Vec<Option<Vec<usize>>>,
}

/// Of a value's channels, those that stay.
#[derive(Clone, Copy)]
pub(super) struct Stay<'k> {
    /// How many there were.
    pub(super) channels: usize,
    /// Which of them stay, in order.
    pub(super) kept: &'k [usize],
}

impl Stay<'_> {
    /// Whether element `i` stays.
    pub(super) fn keeps(self, i: usize) -> bool {
        self.kept.binary_search(&(i % self.channels)).is_ok()
    }

    /// As many elements in rows of channels, after.
    pub(super) fn resized(self, elements: u32) -> u32 {
        (elements as usize / self.channels * self.kept.len()) as u32
    }
}

impl Kept {
    /// What stays of a value; `None` if that is all.
    pub(super) fn of(&self, id: ValueId) -> Option<Stay<'_>> {
        let group = self.ties.group(id)?;
        Some(Stay { channels: self.ties.channels[group], kept: self.kept[group].as_deref()? })
    }
}

/// What a node is to the channels of the values around it.
enum Role {
    /// Reads all channels of its first input for each of its output.
    Dense,
    /// Passes the channels of its first inputs, so many, on to its output.
    Passes(usize),
    /// Needs them as they are.
    Other,
}

impl Ties {
    /// The ties of a graph.
    pub(super) fn new(graph: &Graph) -> Ties {
        let mut ties = Ties { groups: vec![None; graph.values.len()], joined: Vec::new(), channels: Vec::new() };
        let reads = reads(graph);
        for entry in &graph.entries {
            for node in &entry.nodes {
                ties.add(graph, node, &reads);
            }
            let fixed = entry.outputs.iter().chain(entry.assigns.iter().map(|a| &a.value));
            fixed.for_each(|&id| ties.fix(id));
        }
        ties
    }

    /// The group of a value some of whose channels may go.
    fn group(&self, id: ValueId) -> Option<usize> {
        let mut group = *self.groups.get(id.index())?.as_ref()?;
        while self.joined[group] != group {
            group = self.joined[group];
        }
        (self.channels[group] > 0).then_some(group)
    }

    /// All channels of a value must stay.
    fn fix(&mut self, id: ValueId) {
        if let Some(group) = self.group(id) {
            self.channels[group] = 0;
        }
    }

    fn add(&mut self, graph: &Graph, node: &Node, reads: &[u32]) {
        let output = graph.value(node.output);
        match role(graph, node, reads) {
            Role::Dense => {
                let columns = graph.value(node.inputs[1]).ty.shape.last() as usize;
                let x = node.inputs[0];
                if self.group(x).is_some_and(|group| !columns.is_multiple_of(self.channels[group])) {
                    self.fix(x);
                }
                self.groups[node.output.index()] = Some(self.joined.len());
                self.joined.push(self.joined.len());
                self.channels.push(output.ty.shape.last() as usize);
            }
            Role::Passes(count) => {
                let inputs = &node.inputs[..count];
                let groups: Option<Vec<usize>> = inputs.iter().map(|&id| self.group(id)).collect();
                let channels = |group: usize| self.channels[group];
                match groups.as_deref() {
                    Some([first, others @ ..])
                        if others.iter().all(|&other| channels(other) == channels(*first))
                            && (output.ty.shape.last() as usize).is_multiple_of(channels(*first))
                            && (!matches!(node.op, Op::Conv2d(_))
                                || output.ty.shape.last() as usize == channels(*first)) =>
                    {
                        self.groups[node.output.index()] = Some(*first);
                        others.iter().for_each(|&other| self.joined[other] = *first);
                    }
                    _ => inputs.iter().for_each(|&id| self.fix(id)),
                }
            }
            Role::Other => node.inputs.iter().for_each(|&id| self.fix(id)),
        }
    }

    /// The channels that stay, `multiple` at a time; `None` if all do, or if there are no visits left to know.
    pub(super) fn kept(self, graph: &Graph, bounds: &Bounds, multiple: usize, visits: &mut u64) -> Option<Kept> {
        // A channel is spare if every layer that reads it can do without it.
        let mut spare: Vec<Option<Vec<bool>>> = vec![None; self.joined.len()];
        let readers = graph.entries.iter().flat_map(|e| &e.nodes).filter_map(|node| {
            let group = self.group(*node.inputs.first()?)?;
            let layer = Layer::of(graph, node).filter(|layer| layer.groups == 1)?;
            Some((group, node.inputs[0], layer))
        });
        let readers: Vec<(usize, ValueId, Layer<'_>)> = readers.collect();
        for (group, x, layer) in &readers {
            pay(visits, layer.weights())?;
            let channels = self.channels[*group];
            let spare = spare[*group].get_or_insert_with(|| vec![true; channels]);
            for (column, goes) in layer.spare_columns(&bounds.of(*x)).into_iter().enumerate() {
                spare[column % channels] &= goes;
            }
        }
        let mut kept: Vec<Option<Vec<usize>>> = spare.iter().map(|spare| kept(spare.as_ref()?, multiple)).collect();
        for (group, x, layer) in &readers {
            let Some(stays) = &kept[*group] else { continue };
            let channels = self.channels[*group];
            let stay = Stay { channels, kept: stays };
            let gone = |column: usize| !stay.keeps(column);
            if layer.folded_bias(&bounds.of(*x), &gone).is_none() {
                kept[*group] = None;
            }
        }
        kept.iter().any(Option::is_some).then_some(Kept { ties: self, kept })
    }
}

/// The channels that stay when the spare ones may go; `None` if that is all.
fn kept(spare: &[bool], multiple: usize) -> Option<Vec<usize>> {
    let needed = spare.iter().filter(|spare| !**spare).count();
    // At least two: what had a scale for each channel must not look as if it had one for all.
    let count = needed.next_multiple_of(multiple.max(1)).max(multiple).max(2);
    let mut extra = count.checked_sub(needed).filter(|_| count < spare.len())?;
    let stays = |&channel: &usize| {
        let filling = spare[channel] && extra > 0;
        extra -= usize::from(filling);
        filling || !spare[channel]
    };
    Some((0..spare.len()).filter(stays).collect())
}

/// How often each value is read.
pub(super) fn reads(graph: &Graph) -> Vec<u32> {
    let mut reads = vec![0; graph.values.len()];
    for entry in &graph.entries {
        let read = entry.nodes.iter().flat_map(|n| &n.inputs).chain(&entry.outputs);
        read.chain(entry.assigns.iter().map(|a| &a.value)).for_each(|id| reads[id.index()] += 1);
    }
    reads
}

fn role(graph: &Graph, node: &Node, reads: &[u32]) -> Role {
    let fixed = |&id: &ValueId| !graph.value(id).varying.is_empty();
    let int8 = |&id: &ValueId| int8_quant(graph.value(id)).is_some();
    if node.inputs.iter().chain([&node.output]).any(fixed)
        || !int8(&node.output)
        || !node.inputs.first().is_some_and(int8)
    {
        return Role::Other;
    }
    match node.op {
        Op::Conv2d(_) | Op::FullyConnected(_) => match Layer::of(graph, node) {
            Some(layer) if reads[node.inputs[1].index()] == 1 && bias_fits(graph, node, &layer) => match layer.groups {
                1 => Role::Dense,
                _ if layer.is_depthwise() => Role::Passes(1),
                _ => Role::Other,
            },
            _ => Role::Other,
        },
        Op::Pool2d(_) | Op::Reshape(_) | Op::Copy(_) | Op::Quantize(_) => Role::Passes(1),
        Op::Add(_) if node.inputs.iter().all(int8) => Role::Passes(2),
        _ => Role::Other,
    }
}

/// Whether rows can be taken out of a layer's bias: they are its innermost dimension.
fn bias_fits(graph: &Graph, node: &Node, layer: &Layer<'_>) -> bool {
    node.inputs.get(2).is_none_or(|&bias| {
        let bias = graph.value(bias);
        let (shape, quant) = (bias.ty.shape, &bias.quant);
        matches!(bias.source, Source::Constant(_))
            && shape.rank() > 0
            && shape.last() as usize == layer.rows
            && (quant.scales.len() <= 1 || quant.axis + 1 == shape.rank())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_stay_as_the_multiple_asks() {
        let spare = |text: &str| text.chars().map(|c| c == '-').collect::<Vec<bool>>();
        assert_eq!(kept(&spare("x--x-x-x-"), 4), Some(vec![0, 3, 5, 7]));
        assert_eq!(kept(&spare("---x-x-x-"), 4), Some(vec![0, 3, 5, 7]));
        assert_eq!(kept(&spare("x--xxx-x-"), 4), Some(vec![0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(kept(&spare("x--xxx-x"), 4), None);
        assert_eq!(kept(&spare("--------"), 4), Some(vec![0, 1, 2, 3]));
        assert_eq!(kept(&spare("-x-"), 1), Some(vec![0, 1]));
        assert_eq!(kept(&spare("--"), 1), None);
        assert_eq!(kept(&spare("xxx"), 1), None);
    }
}
