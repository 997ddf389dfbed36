//! Which tensors each step reads and writes, found by place in the plan's own records: packed
//! constants and values behind a view have no other name there.

use kiln_core::Error;
use kiln_core::plan::{OperandRecord, Place, Plan};
use kiln_planner::{Planned, PlannedEntry, PlannedTensor, Region};
use kiln_target_host::AlignedBytes;

use super::json::Kind;

/// Indices into the entry's tensors; `None` for a window that is none of them.
pub(super) struct Windows {
    pub inputs: Vec<Option<usize>>,
    pub outputs: Vec<Option<usize>>,
}

/// What the records say of an entry.
pub(super) struct Operands {
    pub steps: Vec<Windows>,
    /// Bytes of the entry's inputs and outputs.
    pub io: u64,
    kinds: Vec<Kind>,
}

/// Which of two tensors at one place and step is meant: an output may lie over a dying input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Older,
    Newer,
}

impl Operands {
    pub(super) fn read(planned: &Planned, entry: &PlannedEntry) -> Result<Operands, Error> {
        let bytes = AlignedBytes::copy_of(&planned.bytes);
        let plan = Plan::load_any_target(bytes.as_ref())?;
        let record = plan.entry_named(&entry.name).ok_or(Error::Entry(0))?;
        let mut steps = Vec::with_capacity(record.steps.len());
        for (index, step) in record.steps.iter().enumerate() {
            let operands = plan.step_operands(step).ok_or(Error::StepTable(index as u32))?;
            let (inputs, rest) = operands.split_at_checked(step.inputs as usize).unwrap_or((operands, &[]));
            let outputs = rest.get(..step.outputs as usize).unwrap_or(rest);
            let names = |windows: &[OperandRecord], wanted: Wanted| {
                windows.iter().map(|o| find(entry, o.place, index, wanted)).collect()
            };
            steps.push(Windows { inputs: names(inputs, Wanted::Older), outputs: names(outputs, Wanted::Newer) });
        }
        let mut kinds: Vec<Kind> = entry.tensors.iter().map(|t| kind(t.region)).collect();
        let mut mark = |tensor: Option<usize>, kind: Kind| {
            if let Some(place) = tensor.and_then(|t| kinds.get_mut(t)).filter(|k| **k == Kind::Intermediate) {
                *place = kind;
            }
        };
        let last = record.steps.len().saturating_sub(1);
        for tensor in record.inputs {
            mark(find(entry, tensor.place, 0, Wanted::Older), Kind::Input);
        }
        for tensor in record.outputs {
            mark(find(entry, tensor.place, last, Wanted::Newer), Kind::Output);
        }
        let io = record.inputs.iter().chain(record.outputs).map(|t| t.bytes).sum();
        Ok(Operands { steps, io, kinds })
    }

    /// What tensor number `index` of the entry is.
    pub(super) fn kind(&self, index: usize) -> Kind {
        self.kinds.get(index).copied().unwrap_or(Kind::Intermediate)
    }
}

fn kind(region: Region) -> Kind {
    match region {
        Region::Arena => Kind::Intermediate,
        Region::Scratch => Kind::Scratch,
        Region::State => Kind::State,
        Region::Constants => Kind::Constant,
    }
}

/// The tensor at `place` while step `step` runs.
fn find(entry: &PlannedEntry, place: Place, step: usize, wanted: Wanted) -> Option<usize> {
    let fits = |t: &PlannedTensor| {
        let bank_fits = match t.region {
            Region::Arena | Region::State | Region::Constants => place.bank() == t.bank,
            Region::Scratch => false,
        };
        bank_fits && (t.first_step..=t.last_step).contains(&step)
    };
    let at_place = entry.tensors.iter().enumerate().filter(|(_, t)| fits(t) && t.offset == place.offset());
    // Tensors without bytes share places with any other; they are meant only where none else is.
    let rank = |t: usize, first: usize, bytes: u64| match wanted {
        Wanted::Older => (bytes == 0, first, t),
        Wanted::Newer => (bytes == 0, usize::MAX - first, usize::MAX - t),
    };
    let found = at_place.min_by_key(|(i, t)| rank(*i, t.first_step, t.bytes)).map(|(i, _)| i);
    // Rows of a tensor that is read or written in patches.
    let around = || {
        let within = |t: &PlannedTensor| (t.offset..t.offset + t.bytes).contains(&place.offset());
        let around = entry.tensors.iter().enumerate().filter(|(_, t)| fits(t) && within(t));
        around.min_by_key(|(i, t)| rank(*i, t.first_step, t.bytes)).map(|(i, _)| i)
    };
    found.or_else(around)
}
