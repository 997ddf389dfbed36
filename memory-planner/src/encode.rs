//! Writing plan records.

use std::collections::HashMap;

use kiln_core::plan::{
    self, ALIGN, BankRecord, DIM_IS_EXTENT, EntryRecord, ExtentRecord, Header, OperandRecord, Place, StepKind,
    StepRecord, Table, TensorRecord, Text,
};
use kiln_core::zerocopy::{Immutable, IntoBytes};
use kiln_core::{Direction, MAX_EXTENTS, MAX_OPERANDS, TargetId, crc};

use crate::error::PlanError;
use crate::graph::{Entry, Graph, ValueId};
use crate::lower::{Constant, Lowered, StateSlot, Storage};
use crate::plan::{Places, direction};
use crate::solve::Solution;

/// Alignment of a bank's first byte, and of the arena behind the state.
pub(crate) const BANK_ALIGN: u64 = 16;

pub(crate) struct Input<'a> {
    pub graph: &'a Graph,
    pub target: TargetId,
    pub lowered: &'a [Lowered],
    pub solved: &'a [Solution],
    pub places: &'a Places,
    pub constants: &'a [Constant],
    pub states: &'a [StateSlot],
    pub constants_bytes: u64,
    pub state_bytes: u64,
    pub banks: &'a [u64],
}

/// The tables as they grow.
#[derive(Default)]
struct Tables {
    entries: Vec<EntryRecord>,
    steps: Vec<StepRecord>,
    operands: Vec<OperandRecord>,
    tensors: Vec<TensorRecord>,
    extents: Vec<ExtentRecord>,
    parameters: Vec<u8>,
    /// Where each step's are that came first with these bytes.
    known: HashMap<Vec<u8>, usize>,
    strings: Vec<u8>,
}

impl Tables {
    /// Where a step's parameters begin: those of patches are often the same.
    fn step_parameters(&mut self, bytes: &[u8]) -> usize {
        *self.known.entry(bytes.to_vec()).or_insert_with(|| {
            let first = self.parameters.len().next_multiple_of(4);
            self.parameters.resize(first, 0);
            self.parameters.extend_from_slice(bytes);
            first
        })
    }

    fn text(&mut self, text: &str) -> Result<Text, PlanError> {
        let offset = narrow("bytes of names", self.strings.len() as u64)?;
        self.strings.extend_from_slice(text.as_bytes());
        Ok(Text { offset, len: narrow("bytes of a name", text.len() as u64)? })
    }
}

fn too_large(what: &'static str, value: u64, limit: u64) -> PlanError {
    PlanError::TooLarge { what, value, limit }
}

fn narrow<T: TryFrom<u64> + MaxOf>(what: &'static str, value: u64) -> Result<T, PlanError> {
    T::try_from(value).map_err(|_| too_large(what, value, T::MAXIMUM))
}

/// The largest value of an unsigned type, for messages.
trait MaxOf {
    const MAXIMUM: u64;
}
impl MaxOf for u8 {
    const MAXIMUM: u64 = u8::MAX as u64;
}
impl MaxOf for u16 {
    const MAXIMUM: u64 = u16::MAX as u64;
}
impl MaxOf for u32 {
    const MAXIMUM: u64 = u32::MAX as u64;
}

/// The plan's bytes.
pub(crate) fn encode(input: &Input<'_>) -> Result<Vec<u8>, PlanError> {
    let mut tables = Tables::default();
    let extents = input.graph.extents.len();
    if extents > MAX_EXTENTS {
        return Err(too_large("the number of dimensions that vary", extents as u64, MAX_EXTENTS as u64));
    }
    for extent in &input.graph.extents {
        let name = tables.text(&extent.name)?;
        tables.extents.push(ExtentRecord { name, max: extent.max, reserved: 0 });
    }
    for ((entry, lowered), solution) in input.graph.entries.iter().zip(input.lowered).zip(input.solved) {
        let name = tables.text(&entry.name)?;
        let record = EntryRecord {
            name,
            first_step: narrow("steps", tables.steps.len() as u64)?,
            steps: narrow("steps", lowered.steps.len() as u64)?,
            first_tensor: narrow("tensors", tables.tensors.len() as u64)?,
            inputs: narrow("inputs", entry.inputs.len() as u64)?,
            outputs: narrow("outputs", entry.outputs.len() as u64)?,
            reserved: [0; 2],
        };
        for (id, storage) in
            (entry.inputs.iter().zip(&lowered.inputs)).chain(entry.outputs.iter().zip(&lowered.outputs))
        {
            tensor(input, &mut tables, *id, *storage, solution)?;
        }
        for &step in &solution.order {
            push_step(input, &mut tables, entry, lowered, step, solution)?;
        }
        tables.entries.push(record);
    }
    assemble(input, &tables)
}

fn tensor(
    input: &Input<'_>,
    tables: &mut Tables,
    id: ValueId,
    storage: Storage,
    solution: &Solution,
) -> Result<(), PlanError> {
    let value = input.graph.value(id);
    let mut dims = [1u32; kiln_core::MAX_RANK];
    for (to, &from) in dims.iter_mut().zip(value.ty.shape.dims()) {
        if from & DIM_IS_EXTENT != 0 {
            return Err(too_large("a dimension", from as u64, DIM_IS_EXTENT as u64 - 1));
        }
        *to = from;
    }
    for varying in &value.varying {
        dims[varying.axis as usize] = DIM_IS_EXTENT | varying.extent as u32;
    }
    let record = TensorRecord {
        place: place(input, storage, solution)?,
        bytes: value.ty.bytes().unwrap_or(0),
        name: tables.text(&value.name)?,
        dtype: value.ty.dtype as u8,
        rank: value.ty.shape.rank() as u8,
        reserved: 0,
        scale: value.quant.scales.first().copied().unwrap_or(0.0),
        zero_point: value.quant.zero_points.first().copied().unwrap_or(0),
        dims,
        reserved2: 0,
    };
    tables.tensors.push(record);
    Ok(())
}

fn place(input: &Input<'_>, storage: Storage, solution: &Solution) -> Result<Place, PlanError> {
    input.places.place(storage, solution).ok_or(too_large("an offset", u64::MAX, (1 << 56) - 1))
}

/// The bytes of an entry's input or output.
fn external_bytes(graph: &Graph, entry: &Entry, slot: usize) -> u64 {
    let id = entry.inputs.iter().chain(&entry.outputs).nth(slot);
    id.and_then(|id| graph.value(*id).ty.bytes()).unwrap_or(0)
}

fn push_step(
    input: &Input<'_>,
    tables: &mut Tables,
    entry: &Entry,
    lowered: &Lowered,
    index: usize,
    solution: &Solution,
) -> Result<(), PlanError> {
    let step = &lowered.steps[index];
    let operands = step.operands();
    if operands > MAX_OPERANDS {
        return Err(too_large("operands of one step", operands as u64, MAX_OPERANDS as u64));
    }
    let first_operand = narrow("operands", tables.operands.len() as u64)?;
    for &storage in step.inputs.iter().chain([&step.output]) {
        let bytes = match storage {
            Storage::Buffer(b) => lowered.buffers[b].bytes,
            Storage::Constant(c) => input.constants[c].bytes.len() as u64,
            Storage::State(s) => input.graph.value(input.states[s].value).ty.bytes().unwrap_or(0),
            Storage::External(slot) => external_bytes(input.graph, entry, slot),
        };
        tables.operands.push(OperandRecord { place: place(input, storage, solution)?, bytes });
    }
    let mut scratch = solution.scratch_offsets[index].unwrap_or(0);
    for &bytes in &step.scratch {
        scratch = scratch.next_multiple_of(step.kernel.scratch_align());
        let place = input.places.in_arena(scratch).ok_or(too_large("an offset", scratch, (1 << 56) - 1))?;
        tables.operands.push(OperandRecord { place, bytes });
        scratch += bytes;
    }
    let parameters = tables.step_parameters(&step.parameters);
    tables.steps.push(StepRecord {
        kind: StepKind::Kernel as u8,
        inputs: step.inputs.len() as u8,
        outputs: 1,
        scratch: step.scratch.len() as u8,
        row: step.kernel.number,
        op: step.op.code(),
        first_operand,
        row_begin: 0,
        row_end: step.rows,
        parameters: narrow("bytes of parameters", parameters as u64)?,
        parameters_len: narrow("bytes of one step's parameters", step.parameters.len() as u64)?,
        extent: step.extent,
        node: step.node,
        flags: match direction(step, &lowered.buffers, solution) {
            _ if step.feed => plan::STEP_FEED,
            Direction::Up => 0,
            Direction::Down => plan::STEP_DOWN,
        },
    });
    Ok(())
}

/// The table's bytes behind what is there already, aligned for its records.
fn append<T: IntoBytes + Immutable>(bytes: &mut Vec<u8>, records: &[T]) -> Result<Table, PlanError> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let offset = narrow("bytes of tables", bytes.len() as u64)?;
    bytes.extend_from_slice(records.as_bytes());
    Ok(Table { offset, count: narrow("records of a table", records.len() as u64)? })
}

fn assemble(input: &Input<'_>, tables: &Tables) -> Result<Vec<u8>, PlanError> {
    let bank = |&bytes: &u64| BankRecord { bytes, align: BANK_ALIGN as u32, reserved: 0 };
    let banks: Vec<BankRecord> = input.banks.iter().map(bank).collect();
    let mut bytes = vec![0; size_of::<Header>()];
    let mut header = Header {
        magic: plan::MAGIC,
        major: plan::VERSION.0,
        minor: plan::VERSION.1,
        target: input.target.0,
        constants_len: input.constants_bytes,
        state_len: input.state_bytes,
        banks: append(&mut bytes, &banks)?,
        entries: append(&mut bytes, &tables.entries)?,
        steps: append(&mut bytes, &tables.steps)?,
        operands: append(&mut bytes, &tables.operands)?,
        tensors: append(&mut bytes, &tables.tensors)?,
        extents: append(&mut bytes, &tables.extents)?,
        parameters: append(&mut bytes, &tables.parameters)?,
        strings: append(&mut bytes, &tables.strings)?,
        ..Header::default()
    };
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    header.constants = bytes.len() as u64;
    let constants = bytes.len();
    for (blob, &offset) in input.constants.iter().zip(&input.places.constants) {
        bytes.resize(constants + offset as usize, 0);
        bytes.extend_from_slice(&blob.bytes);
    }
    bytes.resize(constants + input.constants_bytes as usize, 0);
    header.len = bytes.len() as u64;
    bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
    seal(&mut bytes);
    Ok(bytes)
}

/// Writes the checksum that the plan's other bytes ask for. Public to tests that change plans.
pub(crate) fn seal(bytes: &mut [u8]) {
    let sum = crc::finish(crc::update(crc::update(crc::START, &bytes[..12]), &bytes[16..]));
    // By its place: the bytes need not be aligned as a header is.
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}
