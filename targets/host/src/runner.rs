//! A plan with everything it needs to run here.

use kiln_core::plan::{ALIGN, EXTERNAL, TensorRecord};
use kiln_core::{Done, Error, FeedAnd, Hook, Plan, Row, Session, TargetId};
use kiln_kernels::table::{KERNEL_COUNT, host_rows};

use kiln_planner::PlannedEntry;
use kiln_planner::graph::ValueId;

use crate::AlignedBytes;

/// Why a plan does not run here.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum RunError {
    /// The plan or its memory was refused.
    #[error("{}", explain(.0))]
    Plan(Error),
    /// There is no such entry.
    #[error("the plan has no entry '{wanted}'; it has: {have}")]
    Entry {
        /// The entry asked for.
        wanted: String,
        /// Those there are.
        have: String,
    },
    /// An input has the wrong number of bytes.
    #[error("input {index} ('{name}') takes {want} bytes, not {given}")]
    Input {
        /// Which input.
        index: usize,
        /// Its name.
        name: String,
        /// Its bytes.
        want: u64,
        /// The bytes given.
        given: u64,
    },
    /// Too many or too few inputs.
    #[error("the entry takes {want} inputs, not {given}")]
    Inputs {
        /// How many it takes.
        want: usize,
        /// How many were given.
        given: usize,
    },
    /// The plan needs more memory than can be had.
    #[error("the plan needs {0} bytes of memory, more than this computer has")]
    Memory(u64),
}

impl From<Error> for RunError {
    fn from(error: Error) -> RunError {
        RunError::Plan(error)
    }
}

/// An error of the core in words: what is wrong and, where it is not plain, what to do.
fn explain(error: &Error) -> String {
    let name = |t: &TargetId| t.name().map_or(format!("CPU family number {}", t.0), str::to_string);
    const TABLES: [&str; 9] =
        ["banks", "entries", "steps", "operands", "tensors", "extents", "parameters", "strings", "constants"];
    let broken = |what: String| format!("the plan contradicts itself: {what}; compile it again");
    match error {
        Error::Truncated(have) => format!("the plan is truncated: only {have} bytes"),
        Error::Magic(_) => "not a plan: the first bytes are not \"KPLN\"".into(),
        Error::Version(major, minor) => {
            format!("the plan has format version {major}.{minor}, which this build does not read: compile it again")
        }
        Error::Target(is, want) => format!("the plan is for {}, not for {}", name(is), name(want)),
        Error::Crc(stored, computed) => {
            format!("the plan is damaged: its checksum is {computed:08x}, its header says {stored:08x}")
        }
        Error::PlanAlignment(by) => format!("the plan begins {by} bytes beyond a multiple of {ALIGN}"),
        Error::Table(number) => {
            let table = TABLES.get(*number as usize).unwrap_or(&"unknown");
            broken(format!("its table of {table} lies outside its bytes or is misaligned"))
        }
        Error::Entry(entry) => broken(format!("entry {entry} names steps or tensors that are not there")),
        Error::Tensor(tensor) => {
            broken(format!("tensor {tensor} lies outside its memory bank, or is an input among the constants"))
        }
        Error::Extent(extent) => {
            let most = kiln_core::MAX_EXTENTS;
            broken(format!("varying dimension {extent} has no maximum, or is one more than the {most} there may be"))
        }
        Error::StepKind(step, kind) => {
            format!("step {step} is of kind {kind}, which this build does not run: compile the model again")
        }
        Error::StepTable(step) => {
            broken(format!("step {step} names operands, parameters, rows or a varying dimension that are not there"))
        }
        Error::Row(step, row) => {
            format!("step {step} needs kernel {row}, which this build does not have: compile the model again")
        }
        Error::Operand(step, operand) => broken(format!(
            "operand {operand} of step {step} lies outside its memory bank, is misaligned, or is written though constant"
        )),
        Error::Parameters(step) => {
            broken(format!("the parameters of step {step} do not fit its operands, or are another kernel's"))
        }
        Error::Memory(bank, need, given) => {
            let most = kiln_core::MAX_BANKS;
            format!("memory bank {bank} needs {need} bytes and has {given} (there may be {most} banks)")
        }
        Error::MemoryAlignment(bank, align) => {
            format!(
                "memory bank {bank} must begin at a multiple of {align}, which this computer's memory here does not"
            )
        }
        Error::ExtentValue(extent, value) => {
            format!("{value} is not a size that varying dimension {extent} can have")
        }
    }
}

/// The CPU family of this computer.
pub fn native_target() -> TargetId {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        return TargetId::X86_64_V3;
    }
    if cfg!(target_arch = "x86_64") {
        TargetId::X86_64
    } else if cfg!(target_arch = "aarch64") {
        TargetId::AARCH64
    } else if cfg!(target_arch = "wasm32") {
        TargetId::WASM32
    } else {
        TargetId::PORTABLE
    }
}

/// Every kernel, in the body for this CPU.
pub(crate) static ROWS: [Row; KERNEL_COUNT] = host_rows();

/// A plan with its memory, ready to run.
pub struct Runner {
    // Dropped in this order: the session borrows what the fields below own. In a box, because references
    // in a value that is handed to a function must stay valid until it returns, even where the function
    // drops the value; those behind a pointer need not.
    session: Box<Session<'static>>,
    _plan: AlignedBytes,
    _memory: AlignedBytes,
}

impl Runner {
    /// Copies a plan, whatever CPU it was made for, and gives it memory.
    pub fn new(plan: &[u8]) -> Result<Runner, RunError> {
        let bytes = AlignedBytes::copy_of(plan);
        // SAFETY: a vector keeps its elements' address when it moves; this one is dropped after the
        // session (field order) and not written to.
        let static_bytes = unsafe {
            let bytes: &[u8] = bytes.as_ref();
            core::slice::from_raw_parts::<'static>(bytes.as_ptr(), bytes.len())
        };
        let loaded = Plan::load_any_target(static_bytes)?;
        let need = loaded.banks().iter().try_fold(0u64, |sum, b| {
            let len = b.bytes.checked_next_multiple_of(64)?;
            sum.checked_add(len)
        });
        let need = need.unwrap_or(u64::MAX);
        let memory = usize::try_from(need).ok().and_then(AlignedBytes::try_zeroed);
        let mut memory = memory.ok_or(RunError::Memory(need))?;
        let mut rest: &mut [u8] = memory.as_mut();
        let mut banks: [&mut [u8]; kiln_core::MAX_BANKS] = [&mut [], &mut [], &mut [], &mut []];
        for (to, record) in banks.iter_mut().zip(loaded.banks()) {
            let (bank, after) = rest.split_at_mut((record.bytes as usize).next_multiple_of(64).min(rest.len()));
            (*to, rest) = (bank, after);
        }
        // SAFETY: as above, for the memory, which nothing touches but the session.
        let banks: [&'static mut [u8]; kiln_core::MAX_BANKS] =
            banks.map(|b| unsafe { core::slice::from_raw_parts_mut(b.as_mut_ptr(), b.len()) });
        let session = Box::new(Session::new(loaded, &ROWS, banks)?);
        Ok(Runner { session, _plan: bytes, _memory: memory })
    }

    fn entry(&self, name: &str) -> Result<kiln_core::plan::Entry<'static>, RunError> {
        let plan = *self.session.plan();
        plan.entry_named(name).ok_or_else(|| {
            let names: Vec<&str> =
                (0..plan.entry_count()).filter_map(|i| Some(plan.text(plan.entry(i)?.name))).collect();
            RunError::Entry { wanted: name.into(), have: names.join(", ") }
        })
    }

    /// The inputs of an entry.
    pub fn inputs(&self, entry: &str) -> Result<&[TensorRecord], RunError> {
        Ok(self.entry(entry)?.inputs)
    }

    /// The outputs of an entry.
    pub fn outputs(&self, entry: &str) -> Result<&[TensorRecord], RunError> {
        Ok(self.entry(entry)?.outputs)
    }

    /// The name of a tensor.
    pub fn name(&self, tensor: &TensorRecord) -> &str {
        self.session.plan().text(tensor.name)
    }

    /// Sets a dimension that varies, for the runs that follow.
    pub fn set_extent(&mut self, index: u16, value: u32) -> Result<(), RunError> {
        Ok(self.session.set_extent(index, value)?)
    }

    /// Zeroes the state, as before the first run, and runs `reset` where the plan has it.
    pub fn reset(&mut self) {
        self.session.reset();
    }

    /// Runs an entry on `inputs` and gives its outputs.
    pub fn run(&mut self, entry: &str, inputs: &[&[u8]]) -> Result<Vec<Vec<u8>>, RunError> {
        self.run_with(entry, inputs, &mut ())
    }

    /// Runs an entry and calls `hook` after each step.
    pub fn run_with<H: Hook>(&mut self, entry: &str, inputs: &[&[u8]], hook: &mut H) -> Result<Vec<Vec<u8>>, RunError> {
        let entry = self.entry(entry)?;
        if inputs.len() != entry.inputs.len() {
            return Err(RunError::Inputs { want: entry.inputs.len(), given: inputs.len() });
        }
        for (index, (tensor, data)) in entry.inputs.iter().zip(inputs).enumerate() {
            if data.len() as u64 != tensor.bytes {
                return Err(RunError::Input {
                    index,
                    name: self.name(tensor).into(),
                    want: tensor.bytes,
                    given: data.len() as u64,
                });
            }
        }
        let mut fed: &[u8] = &[];
        for (tensor, data) in entry.inputs.iter().zip(inputs) {
            match tensor.place.bank() {
                EXTERNAL => fed = data,
                _ => self.session.bytes_mut(tensor).copy_from_slice(data),
            }
        }
        let rows = |to: &mut [i8]| {
            let (now, rest) = fed.split_at(to.len().min(fed.len()));
            to.iter_mut().zip(now).for_each(|(to, &byte)| *to = byte as i8);
            fed = rest;
        };
        self.session.run_with(&entry, &mut FeedAnd(rows, hook));
        Ok(entry.outputs.iter().map(|t| self.session.bytes(t).to_vec()).collect())
    }

    /// Runs an entry and shows the value that each of its steps computes. Copies that planning made are no
    /// values of the graph and are left out.
    pub fn run_observing(
        &mut self,
        planned: &PlannedEntry,
        inputs: &[&[u8]],
        seen: &mut dyn FnMut(ValueId, &[u8]),
    ) -> Result<Vec<Vec<u8>>, RunError> {
        let first = self.entry(&planned.name)?.first_step;
        let mut hook = |done: &Done<'_>| {
            let step = planned.steps.get(done.index.wrapping_sub(first) as usize);
            if let Some(step) = step.filter(|step| step.node.is_some()) {
                seen(step.output, done.output(0));
            }
        };
        self.run_with(&planned.name, inputs, &mut hook)
    }

    /// Runs an entry and gives, besides its outputs, what each step wrote.
    #[expect(clippy::type_complexity, reason = "two plain lists")]
    pub fn run_recording(&mut self, entry: &str, inputs: &[&[u8]]) -> Result<(Vec<Vec<u8>>, Vec<Vec<u8>>), RunError> {
        let mut steps = Vec::new();
        let mut record = |done: &Done<'_>| steps.push(done.output(0).to_vec());
        let outputs = self.run_with(entry, inputs, &mut record)?;
        Ok((outputs, steps))
    }
}
