//! Runs an entry of a plan whose inputs and outputs are bound anew at each run: how a host computes with
//! tensors that live longer than a run.

use kiln_core::plan::{ALIGN, CONSTANTS, EXTERNAL, NO_EXTENT, Place, STEP_DOWN, StepKind};
use kiln_core::{Call, Direction, Error, MAX_OPERANDS, Plan, Row, RowRange, Window};
use kiln_ops::Cost;
use kiln_planner::Over;

use crate::runner::ROWS;
use crate::threads::Share;
use crate::{Buffer, RunError, Threads};

/// An entry of a plan with its arena.
pub struct Executor {
    plan: Buffer,
    arena: Buffer,
    threads: Threads,
    /// Scratch of the threads but the first, whose scratch the arena has.
    scratch: Vec<Buffer>,
    steps: Vec<Step>,
    inputs: Vec<u64>,
    outputs: Vec<u64>,
    /// For each output the input that it may lie over.
    over: Vec<Option<usize>>,
}

/// A step, as far as it is the same in every run.
struct Step {
    row: Row,
    inputs: usize,
    outputs: usize,
    operands: Vec<Operand>,
    /// Where its parameters lie in the plan's bytes.
    parameters: (usize, usize),
    rows: RowRange,
    direction: Direction,
    /// How many threads share its rows.
    shares: usize,
}

/// Where an operand lies.
struct Operand {
    place: Spot,
    bytes: usize,
}

/// Multiply-accumulates that are worth a thread more: about 30 microseconds, several times what it takes to wake one.
const SHARE_MACS: u64 = 2_000_000;
/// The same of bytes read and written.
const SHARE_BYTES: u64 = 1 << 20;
/// What scratch windows are aligned to.
pub(crate) const SCRATCH_ALIGN: usize = 64;

enum Spot {
    Arena(usize),
    /// From the plan's first byte.
    Constant(usize),
    /// An input, or the number of inputs and an output.
    External(usize),
}

impl Executor {
    /// Takes a plan whose inputs and outputs are external, and allocates its arena. `costs` has, for each step, the
    /// multiply-accumulates and the bytes that it takes: steps that cost enough are shared among `threads`. Where it
    /// is empty, none is. The results are the same bit for bit.
    ///
    /// # Errors
    ///
    /// [`RunError`] where the plan contradicts itself or there is no memory.
    pub fn new(plan: &[u8], entry: &str, threads: Threads, costs: &[Cost]) -> Result<Executor, RunError> {
        let plan = Buffer::copy_of(plan).ok_or(RunError::Memory(plan.len() as u64))?;
        let loaded = Plan::load_any_target(plan.as_slice())?;
        let found = loaded.entry_named(entry).ok_or_else(|| RunError::Entry {
            wanted: entry.into(),
            have: (0..loaded.entry_count())
                .filter_map(|i| Some(loaded.text(loaded.entry(i)?.name)))
                .collect::<Vec<_>>()
                .join(", "),
        })?;
        let externals: Vec<u64> = found.inputs.iter().chain(found.outputs).map(|t| t.bytes).collect();
        let need = loaded.banks().first().map_or(0, |b| b.bytes);
        let arena = usize::try_from(need).ok().and_then(Buffer::zeroed).ok_or(RunError::Memory(need))?;
        let constants = loaded.constants();
        let base = constants.as_ptr().addr() - plan.pointer().addr();
        debug_assert!(base.is_multiple_of(ALIGN));

        let mut steps = Vec::with_capacity(found.steps.len());
        for (offset, record) in found.steps.iter().enumerate() {
            let index = found.first_step.wrapping_add(offset as u32);
            if record.kind != StepKind::Kernel as u8 {
                return Err(Error::StepKind(index, record.kind).into());
            }
            let row = ROWS.iter().find(|row| row.number() == record.row).ok_or(Error::Row(index, record.row))?;
            let broken = Error::StepTable(index);
            let records = loaded.step_operands(record).filter(|o| o.len() <= MAX_OPERANDS).ok_or(broken)?;
            let parameters = loaded.parameters(record).ok_or(broken)?;
            if record.extent != NO_EXTENT || record.row_begin > record.row_end {
                return Err(broken.into());
            }
            let inputs = record.inputs as usize;
            let mut operands = Vec::with_capacity(records.len());
            for (number, operand) in records.iter().enumerate() {
                let spot = spot(operand.place, operand.bytes, arena.len(), (base, constants.len()), &externals);
                let written = number >= inputs;
                let spot = spot.filter(|spot| match spot {
                    Spot::Arena(_) => true,
                    Spot::Constant(_) => !written,
                    Spot::External(slot) => !written || *slot >= found.inputs.len(),
                });
                let place = spot.ok_or(Error::Operand(index, number as u8))?;
                operands.push(Operand { place, bytes: operand.bytes as usize });
            }
            steps.push(Step {
                row: *row,
                inputs,
                outputs: record.outputs as usize,
                operands,
                parameters: (parameters.as_ptr().addr() - plan.pointer().addr(), parameters.len()),
                rows: RowRange { begin: record.row_begin, end: record.row_end },
                direction: if record.flags & STEP_DOWN != 0 { Direction::Down } else { Direction::Up },
                shares: 1,
            });
        }
        let mut more = 0;
        for (step, cost) in steps.iter_mut().zip(costs) {
            step.shares = step.shares(threads.count(), cost);
            if step.shares > 1 {
                more = more.max(step.scratch_bytes());
            }
        }
        let scratch = (1..threads.count()).map(|_| Buffer::zeroed(more).ok_or(RunError::Memory(more as u64)));
        let scratch = if more > 0 { scratch.collect::<Result<Vec<_>, _>>()? } else { Vec::new() };
        let (inputs, outputs) = externals.split_at(found.inputs.len());
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        let over = vec![None; outputs.len()];
        Ok(Executor { arena, threads, scratch, steps, inputs, outputs, over, plan })
    }

    /// Lets outputs lie over inputs, as the plan found that they can.
    pub(crate) fn with_over(mut self, over: &[Over]) -> Executor {
        let inputs = self.inputs.len();
        for pair in over.iter().filter(|pair| pair.input < inputs && pair.output < self.outputs.len()) {
            self.over[pair.output] = Some(pair.input);
            let own = |operand: &Operand| matches!(operand.place, Spot::External(slot) if slot == inputs + pair.output);
            let writers = self.steps.iter_mut().filter(|step| step.operands[step.inputs..].iter().any(own));
            // A walk in order, where the rows that are read are others than those written.
            writers.filter(|_| !pair.shared).for_each(|step| step.shares = 1);
        }
        self
    }

    /// The input that an output may lie over.
    pub(crate) fn over(&self, output: usize) -> Option<usize> {
        self.over.get(output).copied().flatten()
    }

    /// Bytes of the arena: what the plan needs beyond inputs, outputs and constants.
    pub fn arena_bytes(&self) -> usize {
        self.arena.len()
    }

    /// Runs the entry on `inputs` and writes `outputs`; each has exactly its tensor's bytes.
    ///
    /// # Errors
    ///
    /// [`RunError`] where there are more or fewer, or one has other bytes; nothing is computed then.
    pub fn run(&mut self, inputs: &[&Buffer], outputs: &mut [Buffer]) -> Result<(), RunError> {
        let mut all: Vec<Option<&mut Buffer>> = outputs.iter_mut().map(Some).collect();
        // SAFETY: no output lies over an input.
        unsafe { self.run_over(inputs, &mut all, |_| ()) }
    }

    /// [`Executor::run`] where an output without memory lies over the input that [`Executor::over`] says. Calls `done` with the
    /// number of each step when it is computed.
    ///
    /// # Safety
    ///
    /// Nothing else reads or writes those inputs' bytes meanwhile, and no two of the inputs are the same memory as one
    /// of them.
    pub(crate) unsafe fn run_over(
        &mut self,
        inputs: &[&Buffer],
        outputs: &mut [Option<&mut Buffer>],
        mut done: impl FnMut(usize) + Send,
    ) -> Result<(), RunError> {
        // What lies over an input that is not there has no bytes, so it is refused below, or never written.
        let placed = |(output, own): (usize, &Option<&mut Buffer>)| match own {
            Some(buffer) => (buffer.len(), buffer.pointer()),
            None => {
                let input = self.over(output).and_then(|input| inputs.get(input));
                input.map_or((0, std::ptr::null_mut()), |buffer| (buffer.len(), buffer.pointer()))
            }
        };
        let outputs: Vec<(usize, *mut u8)> = outputs.iter().enumerate().map(placed).collect();
        let given = inputs.iter().map(|b| b.len()).chain(outputs.iter().map(|b| b.0));
        let wanted = self.inputs.iter().chain(&self.outputs);
        if inputs.len() != self.inputs.len() || outputs.len() != self.outputs.len() {
            let want = self.inputs.len() + self.outputs.len();
            return Err(RunError::Inputs { want, given: inputs.len() + outputs.len() });
        }
        for (index, (given, &want)) in given.zip(wanted).enumerate() {
            if given as u64 != want {
                let name = "an external tensor".to_owned();
                return Err(RunError::Input { index, name, want, given: given as u64 });
            }
        }
        // Outputs are borrowed mutably, so they are apart from one another and from the inputs; those over inputs are
        // apart from all but theirs, which every step that reads it comes before or may lie under (the planner's
        // `donate`).
        let externals: Vec<*mut u8> = inputs.iter().map(|b| b.pointer()).chain(outputs.iter().map(|b| b.1)).collect();
        let externals = Externals(externals);
        let mut all = || {
            for (index, step) in self.steps.iter().enumerate() {
                self.step(step, &externals).ok_or(Error::Parameters(index as u32))?;
                done(index);
            }
            Ok(())
        };
        // From within the pool a share is handed over without waking this thread's caller in between.
        if self.steps.iter().any(|step| step.shares > 1) { self.threads.within(all) } else { all() }
    }

    /// Runs a step; `None` where its kernel refuses what it is given.
    fn step(&self, step: &Step, externals: &Externals) -> Option<()> {
        let mut windows = [Window::EMPTY; MAX_OPERANDS];
        for (window, operand) in windows.iter_mut().zip(&step.operands) {
            let ptr = match operand.place {
                Spot::Arena(offset) => self.arena.pointer().wrapping_add(offset),
                Spot::Constant(offset) => self.plan.pointer().wrapping_add(offset),
                Spot::External(slot) => *externals.0.get(slot)?,
            };
            if operand.bytes > 0 {
                *window = Window { ptr, len: operand.bytes };
                let aligned = ptr.addr().is_multiple_of(step.row.align().max(1) as usize);
                aligned.then_some(())?;
            }
        }
        let (inputs, rest) = windows.split_at(step.inputs);
        let (outputs, rest) = rest.split_at_checked(step.outputs)?;
        let scratch = rest.get(..step.operands.len().checked_sub(step.inputs + step.outputs)?)?;
        let (start, len) = step.parameters;
        let parameters = self.plan.as_slice().get(start..start + len)?;
        let mut call = Call::new(inputs, outputs, scratch, parameters, step.rows);
        call.direction = step.direction;
        if !step.row.check(&call) {
            return None;
        }
        if step.shares < 2 {
            // SAFETY: the check was passed. Windows lie inside the arena, the plan's constants (never written: `new`
            // saw to it) or buffers that `run` borrows, all of the sizes that `new` proved, and with at least
            // `over_read` bytes behind them. The planner proved the overlaps.
            unsafe { step.row.run(&call) };
        } else {
            let share = Share { row: step.row, inputs, outputs, parameters, rows: step.rows, count: step.shares };
            // SAFETY: as above. `Step::shares` saw that what is written overlaps nothing, but for an input that each row
            // reads only where it writes (`with_over`); `new` made as much scratch for each further share as the step
            // has.
            unsafe { share.run(scratch, &self.scratch) };
        }
        Some(())
    }
}

/// Where inputs and outputs of a run lie.
struct Externals(Vec<*mut u8>);

// SAFETY: the pointers are to buffers that `run` borrows until all threads are done with them, which write to them
// at different places only (`Step::shares`).
unsafe impl Send for Externals {}
// SAFETY: as above.
unsafe impl Sync for Externals {}

impl Step {
    /// How many threads are to share the rows. A step that writes where it reads, or twice in one place, is a walk in
    /// order.
    fn shares(&self, threads: usize, cost: &Cost) -> usize {
        let rows = self.rows.end.saturating_sub(self.rows.begin) as usize;
        let worth = cost.macs / SHARE_MACS + cost.bytes / SHARE_BYTES;
        let most = threads.min(rows).min(usize::try_from(worth).unwrap_or(usize::MAX));
        let mut written = self.operands.iter().enumerate().skip(self.inputs);
        let overlaps =
            written.any(|(i, own)| self.operands.iter().enumerate().any(|(j, other)| i != j && own.overlaps(other)));
        if overlaps { 1 } else { most.max(1) }
    }

    /// Bytes of all its scratch windows, each aligned.
    fn scratch_bytes(&self) -> usize {
        self.operands.iter().skip(self.inputs + self.outputs).map(|o| o.bytes.next_multiple_of(SCRATCH_ALIGN)).sum()
    }
}

impl Operand {
    /// Whether two may have bytes in common.
    fn overlaps(&self, other: &Operand) -> bool {
        if self.bytes == 0 || other.bytes == 0 {
            return false;
        }
        match (&self.place, &other.place) {
            (Spot::Arena(a), Spot::Arena(b)) => *a < b + other.bytes && *b < a + self.bytes,
            // Outputs are buffers of their own, or `with_over` has seen to it.
            (Spot::External(a), Spot::External(b)) => a == b,
            _ => false,
        }
    }
}

/// Where an operand lies, if all of it does.
fn spot(place: Place, bytes: u64, arena: usize, constants: (usize, usize), externals: &[u64]) -> Option<Spot> {
    let end = place.offset().checked_add(bytes)?;
    match place.bank() {
        0 if end <= arena as u64 => Some(Spot::Arena(place.offset() as usize)),
        CONSTANTS if end <= constants.1 as u64 => Some(Spot::Constant(constants.0 + place.offset() as usize)),
        EXTERNAL if externals.get(place.offset() as usize) == Some(&bytes) => {
            Some(Spot::External(place.offset() as usize))
        }
        _ => None,
    }
}
