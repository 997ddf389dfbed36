//! The steps of a stretch.

use std::collections::HashMap;
use std::ops::Range;

use kiln_core::{DType, Shape, TensorType};
use kiln_kernels::table::{self, Operand, Operation};
use kiln_ops::Op;

use super::{Group, Stretch};
use crate::error::{PlanError, Unsupported};
use crate::graph::{Entry, Node, ValueId};
use crate::lower::{Buffer, Lowering, Part, Step, Storage, Work};

/// An image of which a band holds some rows.
struct Band {
    buffer: usize,
    /// The bytes of the image that are there.
    there: Range<u64>,
}

/// A stretch as it becomes steps.
struct Bands<'a> {
    entry: &'a Entry,
    stretch: &'a Stretch,
    bands: HashMap<ValueId, Band>,
    /// For each node in the order in which they run, which bytes of which image it reads.
    reads: Vec<Vec<(ValueId, Range<u64>)>>,
    /// How many nodes have run.
    past: usize,
}

/// Whether a step may write to the very place of each input that it shares one with.
fn lies_over(work: &Work, step: &Step) -> bool {
    let place = |storage: &Storage| match storage {
        Storage::Buffer(b) => work.buffers[*b].part.map(|part| (part.of, part.offset)),
        _ => None,
    };
    let mut shared = step.inputs.iter().filter(|input| place(input).is_some_and(|of| Some(of) == place(&step.output)));
    shared.all(|input| step.overlaps.iter().any(|lag| Storage::Buffer(lag.input) == *input && lag.up == Some(0)))
}

impl Bands<'_> {
    /// The first byte of an image that is still to be read, from the node on that runs now; `end` where none is.
    fn still_read(&self, image: ValueId, end: u64) -> u64 {
        let reads = self.reads.iter().skip(self.past).flatten().filter(|(of, _)| *of == image);
        reads.map(|(_, rows)| rows.start).min().unwrap_or(end).min(end)
    }
}

impl Lowering<'_> {
    /// Lowers a stretch: all its steps, each after those that it follows. `false` where kernels want of rows what only
    /// whole tensors have.
    pub(crate) fn stretch(&mut self, work: &mut Work, entry: &Entry, stretch: &Stretch) -> Result<bool, PlanError> {
        let source = match self.storage(work, stretch.source) {
            _ if stretch.fed => None,
            Storage::Buffer(source) => Some(source),
            _ => return Ok(false),
        };
        let result = entry.nodes[stretch.result].output;
        let output = self.new_buffer(work, result, None);
        // All are of the first one's size.
        let first = stretch.chains.first().and_then(|chain| chain.last()).map(|&index| entry.nodes[index].output);
        let sums = first.filter(|sums| stretch.sums.contains(sums)).map(|sums| self.new_buffer(work, sums, None));
        let reads = stretch.chains.iter().flatten().map(|&index| {
            let slices = entry.nodes[index].inputs.iter().filter_map(|input| stretch.slices.get(input));
            slices.map(|rows| (rows.of, rows.bytes.clone())).collect()
        });
        let mut bands = Bands { entry, stretch, bands: HashMap::new(), reads: reads.collect(), past: 0 };
        let mut chains = Vec::new();
        for chain in &stretch.chains {
            let first = work.steps.len();
            let mut between = Vec::new();
            for &index in chain {
                let node = &entry.nodes[index];
                let slices = || node.inputs.iter().filter_map(|input| Some((*input, stretch.slices.get(input)?)));
                // All rows at once: feeding moves those that are there.
                let fed = slices().filter(|(_, rows)| stretch.fed && rows.of == stretch.source);
                if let Some(end) = fed.map(|(_, rows)| rows.bytes.end).max() {
                    self.feed(work, &mut bands, end)?;
                }
                for (input, rows) in slices() {
                    let (of, base) = match bands.bands.get(&rows.of) {
                        Some(band) => (band.buffer, band.there.start),
                        None => (source.unwrap_or_default(), 0),
                    };
                    let slice = self.new_buffer(work, input, None);
                    work.buffers[slice].part = Some(Part { of, offset: rows.bytes.start - base });
                }
                let part = match stretch.pieces.get(&node.output) {
                    Some(rows) if rows.of == result => Some(Part { of: output, offset: rows.bytes.start }),
                    Some(rows) => Some(self.room(work, &mut bands, rows.of, rows.bytes.end)?),
                    None if node.output == result => Some(Part { of: output, offset: 0 }),
                    None => sums.filter(|_| stretch.sums.contains(&node.output)).map(|of| Part { of, offset: 0 }),
                };
                let step = work.steps.len();
                let buffer = self.new_buffer(work, node.output, Some(step));
                work.buffers[buffer].part = part;
                if part.is_none() {
                    between.push(buffer);
                }
                self.node(work, entry, node, index as u32, Some(Storage::Buffer(buffer)))?;
                // New sums lie over those that the same step reads.
                let over = |of| part.is_some_and(|part| part.of == of);
                if sums.is_some_and(over) && !work.steps[step..].iter().all(|step| lies_over(work, step)) {
                    return Ok(false);
                }
                bands.past += 1;
            }
            chains.push((first..work.steps.len(), between));
        }
        for number in 0..work.buffers.len() {
            let Buffer { align, tail, part: Some(part), .. } = work.buffers[number] else { continue };
            if tail > 0 || !part.offset.is_multiple_of(align) {
                return Ok(false);
            }
            let whole = &mut work.buffers[part.of];
            whole.align = whole.align.max(align);
        }
        work.storage.insert(result, Storage::Buffer(output));
        if stretch.fed {
            work.storage.insert(stretch.source, Storage::External(0));
        }
        // In the order of their buffers, as hash maps have none.
        let mut bands: Vec<usize> = bands.bands.values().map(|band| band.buffer).chain(sums).collect();
        bands.sort_unstable();
        work.groups.push(Group { source, bands, output, chains });
        Ok(true)
    }

    /// Makes room in an image's band for its rows up to `end`, and gives their place. Rows that are still read move up over those
    /// that are not.
    fn room(&mut self, work: &mut Work, bands: &mut Bands<'_>, image: ValueId, end: u64) -> Result<Part, PlanError> {
        let Band { buffer, there } = match bands.bands.remove(&image) {
            Some(band) => band,
            None => {
                let buffer = self.new_buffer(work, image, None);
                work.buffers[buffer].bytes = 0;
                work.buffers[buffer].name.push_str(" (rows)");
                Band { buffer, there: 0..0 }
            }
        };
        let begin = bands.still_read(image, there.end);
        let kept = there.end - begin;
        if kept > 0 && begin > there.start {
            let from = self.part(work, image, buffer, begin - there.start..there.end - there.start);
            let to = self.part(work, image, buffer, 0..kept);
            self.copy_rows(work, bands.entry, image, from, to, "kept")?;
        }
        let bytes = &mut work.buffers[buffer].bytes;
        *bytes = (*bytes).max(end - begin);
        bands.bands.insert(image, Band { buffer, there: begin..end });
        Ok(Part { of: buffer, offset: kept })
    }

    /// Steps that bring the source's rows up to `end` into its band.
    fn feed(&mut self, work: &mut Work, bands: &mut Bands<'_>, end: u64) -> Result<(), PlanError> {
        let image = bands.stretch.source;
        let there = bands.bands.get(&image).map_or(0, |band| band.there.end);
        if end <= there {
            return Ok(());
        }
        let room = self.room(work, bands, image, end)?;
        let new = self.part(work, image, room.of, room.offset..room.offset + (end - there));
        self.copy_rows(work, bands.entry, image, new, new, "fed")?;
        if let Some(step) = work.steps.last_mut() {
            (step.feed, step.rows) = (true, 0);
        }
        Ok(())
    }

    /// Bytes of an image's band.
    fn part(&self, work: &mut Work, image: ValueId, band: usize, range: Range<u64>) -> usize {
        let number = self.new_buffer(work, image, None);
        work.buffers[number].bytes = range.end - range.start;
        work.buffers[number].part = Some(Part { of: band, offset: range.start });
        number
    }

    /// A step that copies rows of an image from one place to another.
    fn copy_rows(
        &mut self,
        work: &mut Work,
        entry: &Entry,
        image: ValueId,
        from: usize,
        to: usize,
        what: &str,
    ) -> Result<(), PlanError> {
        let value = self.graph.value(image);
        let shape = u32::try_from(work.buffers[to].bytes).ok().and_then(|bytes| Shape::new(&[bytes]).ok());
        let refused = |what: &str| {
            let (node, operands) = (format!("{} ({what})", value.name), format!("{:?}", value.ty.shape));
            PlanError::Unsupported(vec![Unsupported { node, op: "copy", operands }])
        };
        let shape = shape.ok_or_else(|| refused(what))?;
        let operand = Operand { ty: TensorType::new(DType::U8, shape), quant: value.quant.view(), data: None };
        let operation = Operation { op: Op::Copy(kiln_ops::Copy), inputs: &[operand], output: operand };
        let name = format!("{} ({what})", value.name);
        let node = Node { name, op: operation.op, inputs: vec![image], output: image };
        let kernel = table::choose(&operation, self.target).ok_or_else(|| refused(what))?;
        // The step reads its image where the rows are that it copies.
        work.storage.insert(image, Storage::Buffer(from));
        self.step(work, entry, &node, u32::MAX, kernel, &operation, Some(Storage::Buffer(to)))?;
        if let Some(step) = work.steps.last_mut() {
            step.overlaps.clear();
        }
        Ok(())
    }
}
