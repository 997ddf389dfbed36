//! Checking a plan's bytes once; afterwards the accessors cannot fail.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{
    ALIGN, BankRecord, CONSTANTS, EntryRecord, ExtentRecord, Header, MAGIC, OperandRecord, StepRecord, Table,
    TensorRecord, Text, VERSION,
};
use crate::{Error, TargetId, crc};

/// A plan whose tables are known to lie inside its bytes.
///
/// What the tables say of each other (steps, operands, banks) is checked by
/// [`Session::new`](crate::Session::new), which knows the rows and the memory.
#[derive(Clone, Copy)]
pub struct Plan<'p> {
    // Only these: kept as slices, the tables would make a plan ten times as large, and every move of it a call of `memcpy`.
    header: &'p Header,
    bytes: &'p [u8],
}

/// The records of a table, or the table's number.
fn records<T: FromBytes + Immutable + KnownLayout>(plan: &[u8], table: Table, number: u8) -> Result<&[T], Error> {
    let bad = Error::Table(number);
    let tail = plan.get(table.offset as usize..).ok_or(bad)?;
    <[T]>::ref_from_prefix_with_elems(tail, table.count as usize).map(|(table, _)| table).map_err(|_| bad)
}

impl<'p> Plan<'p> {
    /// Checks `bytes` and gives access to them. They must begin at a multiple of [`ALIGN`] and may
    /// be followed by others. A plan made for `expected` or for [`TargetId::PORTABLE`] passes.
    pub fn load(bytes: &'p [u8], expected: TargetId) -> Result<Plan<'p>, Error> {
        let plan = Self::load_any_target(bytes)?;
        let target = plan.target();
        if target != expected && target != TargetId::PORTABLE {
            return Err(Error::Target(target, expected));
        }
        Ok(plan)
    }

    /// [`Plan::load`] for hosts that run another CPU's plan through portable bodies.
    pub fn load_any_target(bytes: &'p [u8]) -> Result<Plan<'p>, Error> {
        let misaligned = bytes.as_ptr().addr() % ALIGN;
        if misaligned != 0 {
            return Err(Error::PlanAlignment(misaligned as u8));
        }
        let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| Error::Truncated(bytes.len()))?;
        if header.magic != MAGIC {
            return Err(Error::Magic(header.magic));
        }
        if header.major != VERSION.0 || header.minor > VERSION.1 {
            return Err(Error::Version(header.major, header.minor));
        }
        let len = usize::try_from(header.len).map_err(|_| Error::Truncated(bytes.len()))?;
        let bytes = bytes.get(..len).ok_or(Error::Truncated(bytes.len()))?;
        let (before, after) = (bytes.get(..12), bytes.get(16..));
        let (Some(before), Some(after)) = (before, after) else { return Err(Error::Truncated(len)) };
        let computed = crc::finish(crc::update(crc::update(crc::START, before), after));
        if computed != header.crc {
            return Err(Error::Crc(header.crc, computed));
        }
        let constants = usize::try_from(header.constants).ok().zip(usize::try_from(header.constants_len).ok());
        constants
            .filter(|(start, _)| start % ALIGN == 0)
            .and_then(|(start, len)| bytes.get(start..start.checked_add(len)?))
            .ok_or(Error::Table(8))?;
        records::<BankRecord>(bytes, header.banks, 0)?;
        records::<EntryRecord>(bytes, header.entries, 1)?;
        records::<StepRecord>(bytes, header.steps, 2)?;
        records::<OperandRecord>(bytes, header.operands, 3)?;
        records::<TensorRecord>(bytes, header.tensors, 4)?;
        records::<ExtentRecord>(bytes, header.extents, 5)?;
        records::<u8>(bytes, header.parameters, 6)?;
        records::<u8>(bytes, header.strings, 7)?;
        if header.parameters.offset % 4 != 0 {
            return Err(Error::Table(6));
        }
        let plan = Plan { header, bytes };
        plan.check_entries()?;
        Ok(plan)
    }

    /// Steps and tensors that entries name are there, and inputs can be written.
    fn check_entries(&self) -> Result<(), Error> {
        for (index, entry) in self.entries().iter().enumerate() {
            let bad = Error::Entry(index as u16);
            self.entry_steps(entry).ok_or(bad)?;
            let (inputs, _) = self.entry_tensors(entry).ok_or(bad)?;
            if let Some(input) = inputs.iter().position(|t| t.place.bank() == CONSTANTS) {
                return Err(Error::Tensor(entry.first_tensor.wrapping_add(input as u32)));
            }
        }
        Ok(())
    }

    fn entry_steps(&self, entry: &EntryRecord) -> Option<&'p [StepRecord]> {
        let first = entry.first_step as usize;
        self.steps().get(first..first.checked_add(entry.steps as usize)?)
    }

    fn entry_tensors(&self, entry: &EntryRecord) -> Option<(&'p [TensorRecord], &'p [TensorRecord])> {
        let first = entry.first_tensor as usize;
        let middle = first.checked_add(entry.inputs as usize)?;
        let end = middle.checked_add(entry.outputs as usize)?;
        Some((self.tensors().get(first..middle)?, self.tensors().get(middle..end)?))
    }

    /// One of the header's tables of such records.
    ///
    /// # Safety
    ///
    /// [`records`] found the table whole, and of this type, among the plan's bytes.
    #[inline(always)]
    unsafe fn table<T: FromBytes + Immutable + KnownLayout>(&self, table: Table) -> &'p [T] {
        let first = self.bytes.as_ptr().wrapping_add(table.offset as usize).cast();
        // SAFETY: `count` records lie inside the bytes, aligned, as the caller promises; records may have any bytes, and these
        // are borrowed for 'p.
        unsafe { core::slice::from_raw_parts(first, table.count as usize) }
    }

    fn strings(&self) -> &'p [u8] {
        // SAFETY: `load` checked it, and plans are made nowhere else.
        unsafe { self.table(self.header.strings) }
    }

    fn all_parameters(&self) -> &'p [u8] {
        // SAFETY: `load` checked it, and plans are made nowhere else.
        unsafe { self.table(self.header.parameters) }
    }

    fn entries(&self) -> &'p [EntryRecord] {
        // SAFETY: `load` checked it, and plans are made nowhere else.
        unsafe { self.table(self.header.entries) }
    }

    /// The CPU family the plan was made for.
    pub fn target(&self) -> TargetId {
        TargetId(self.header.target)
    }

    /// The header.
    pub fn header(&self) -> &'p Header {
        self.header
    }

    /// RAM banks.
    pub fn banks(&self) -> &'p [BankRecord] {
        // SAFETY: `load` checked it, and plans are made nowhere else.
        unsafe { self.table(self.header.banks) }
    }

    /// All steps of all entries.
    pub fn steps(&self) -> &'p [StepRecord] {
        // SAFETY: `load` checked it, and plans are made nowhere else.
        unsafe { self.table(self.header.steps) }
    }

    /// All operands of all steps.
    pub fn operands(&self) -> &'p [OperandRecord] {
        // SAFETY: `load` checked it, and plans are made nowhere else.
        unsafe { self.table(self.header.operands) }
    }

    /// Inputs and outputs of all entries.
    pub fn tensors(&self) -> &'p [TensorRecord] {
        // SAFETY: `load` checked it, and plans are made nowhere else.
        unsafe { self.table(self.header.tensors) }
    }

    /// Dimensions that vary at run time.
    pub fn extents(&self) -> &'p [ExtentRecord] {
        // SAFETY: `load` checked it, and plans are made nowhere else.
        unsafe { self.table(self.header.extents) }
    }

    /// The bytes that kernels read in place.
    pub fn constants(&self) -> &'p [u8] {
        let (start, len) = (self.header.constants as usize, self.header.constants_len as usize);
        self.bytes.get(start..start.saturating_add(len)).unwrap_or(&[])
    }

    /// Where they begin.
    #[inline(always)]
    pub(crate) fn constants_start(&self) -> *const u8 {
        self.bytes.as_ptr().wrapping_add(self.header.constants as usize)
    }

    /// How many entries there are.
    pub fn entry_count(&self) -> usize {
        self.entries().len()
    }

    /// Entry number `index`.
    pub fn entry(&self, index: usize) -> Option<Entry<'p>> {
        let record = self.entries().get(index)?;
        let steps = self.entry_steps(record)?;
        let (inputs, outputs) = self.entry_tensors(record)?;
        Some(Entry { name: record.name, first_step: record.first_step, steps, inputs, outputs })
    }

    /// The entry called `name`.
    pub fn entry_named(&self, name: &str) -> Option<Entry<'p>> {
        // Byte by byte: the compiler's comparison of slices costs more code than it saves time.
        let called = |entry: &EntryRecord| self.raw_text(entry.name).iter().eq(name.as_bytes());
        self.entry(self.entries().iter().position(called)?)
    }

    /// The text `text` refers to; empty when it lies outside the table or is not UTF-8.
    pub fn text(&self, text: Text) -> &'p str {
        core::str::from_utf8(self.raw_text(text)).unwrap_or("")
    }

    fn raw_text(&self, text: Text) -> &'p [u8] {
        let first = text.offset as usize;
        let bytes = first.checked_add(text.len as usize).and_then(|end| self.strings().get(first..end));
        bytes.unwrap_or(&[])
    }

    /// A step's parameters, if they lie inside the table and begin at a multiple of 4.
    pub fn parameters(&self, step: &StepRecord) -> Option<&'p [u8]> {
        let first = step.parameters as usize;
        if !first.is_multiple_of(4) {
            return None;
        }
        self.all_parameters().get(first..first.checked_add(step.parameters_len as usize)?)
    }

    /// A step's operands, if they lie inside the table.
    pub fn step_operands(&self, step: &StepRecord) -> Option<&'p [OperandRecord]> {
        let first = step.first_operand as usize;
        let count = step.inputs as usize + step.outputs as usize + step.scratch as usize;
        self.operands().get(first..first.checked_add(count)?)
    }

    /// [`Plan::step_operands`] that are known to be there.
    ///
    /// # Safety
    ///
    /// They are.
    #[inline(always)]
    pub(crate) unsafe fn checked_operands(&self, step: &StepRecord) -> &'p [OperandRecord] {
        let count = (step.inputs as usize).wrapping_add(step.outputs as usize).wrapping_add(step.scratch as usize);
        let first = self.operands().as_ptr().wrapping_add(step.first_operand as usize);
        // SAFETY: the caller's promise; they are borrowed for 'p.
        unsafe { core::slice::from_raw_parts(first, count) }
    }

    /// [`Plan::parameters`] that are known to be there.
    ///
    /// # Safety
    ///
    /// They are.
    #[inline(always)]
    pub(crate) unsafe fn checked_parameters(&self, step: &StepRecord) -> &'p [u8] {
        let first = self.all_parameters().as_ptr().wrapping_add(step.parameters as usize);
        // SAFETY: the caller's promise; they are borrowed for 'p.
        unsafe { core::slice::from_raw_parts(first, step.parameters_len as usize) }
    }
}

/// Something that can be run: a range of steps with its inputs and outputs.
#[derive(Clone, Copy)]
pub struct Entry<'p> {
    /// Its name: see [`Plan::text`], which firmware that asks for no names does without.
    pub name: Text,
    /// The number in the plan of its first step.
    pub first_step: u32,
    /// Its steps in order.
    pub steps: &'p [StepRecord],
    /// What the caller writes before a run.
    pub inputs: &'p [TensorRecord],
    /// What the caller reads after a run.
    pub outputs: &'p [TensorRecord],
}
