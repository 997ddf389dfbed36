//! The kernel table: one row a kernel, data on every host.

use kiln_core::{MAX_OPERANDS, Row, TargetId, TensorType};

pub use kiln_core::Direction;
use kiln_ops::{Op, OpError, QuantRef};

use crate::workload::Workload;

/// A tensor as a kernel sees it at plan time.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Element type and shape.
    pub ty: TensorType,
    /// Quantization.
    pub quant: QuantRef<'a>,
    /// The elements of a constant; `None` for what a run computes.
    pub data: Option<&'a [u8]>,
}

/// An operator with its operands: what a kernel is chosen and prepared for.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// The operator.
    pub op: Op,
    /// Its inputs in the operator's order.
    pub inputs: &'a [Operand<'a>],
    /// Its output.
    pub output: Operand<'a>,
}

/// Where a kernel, prepared for an operation, puts what the plan needs. Windows are in the order of
/// the calls: inputs and constants mixed, as the body numbers its inputs.
pub trait Emit {
    /// The next input window is the operation's input `index`, as it lies.
    fn input(&mut self, index: usize);
    /// The next input window is a constant of `bytes` bytes made at plan time; `fill` writes all of
    /// it. `label` says what it is in reports ("weights", "bias, multipliers, shifts").
    fn constant(&mut self, label: &'static str, bytes: usize, fill: &mut dyn FnMut(&mut [u8]));
    /// The next scratch window.
    fn scratch(&mut self, bytes: u64);
    /// The step's parameters.
    fn parameters(&mut self, bytes: &[u8]);
    /// How many output rows the whole step has; the plan's step computes `0..rows`.
    fn rows(&mut self, rows: u32);
}

/// Constants made at plan time, and scratch, begin at multiples of so many bytes, or of the row's alignment if that is more.
pub const PACKED_ALIGN: u8 = 4;

/// A kernel.
pub struct Kernel {
    /// Its number in plans: explicit, never reused.
    pub number: u16,
    /// Its name: operator, dtype, and what sets it apart.
    pub name: &'static str,
    /// The path of its row for generated code, under `kiln_kernels::rows`.
    pub row_name: &'static str,
    /// CPU families whose plans may use it; empty for all.
    pub targets: &'static [TargetId],
    /// Which ways it can walk; a plan chooses one for each step ([`Call::direction`](kiln_core::Call)). A chain of
    /// steps that all walk up drifts down by the sum of their lags, so rows that lag should walk both ways.
    pub directions: &'static [Direction],
    /// Whether it can compute `operation` at all.
    pub applies: fn(operation: &Operation<'_>) -> bool,
    /// Emits windows, constants, scratch, parameters and the number of rows.
    pub prepare: fn(operation: &Operation<'_>, emit: &mut dyn Emit) -> Result<(), OpError>,
    /// How far, in bytes, its output must trail input `input` where the two overlap, or `None` when
    /// they must not. Walking [`Direction::Up`]: `output start + lag <= input start`. Walking
    /// [`Direction::Down`]: `output end >= input end + lag`.
    pub lag: fn(operation: &Operation<'_>, input: usize, direction: Direction) -> Option<u64>,
    /// The body that runs on any CPU, for this number's packing and parameters.
    pub portable: Row,
    /// The body for the CPUs of this build's architecture, if it has one of its own; with the same alignment and
    /// over-read.
    pub native: Option<Row>,
    /// What its instructions grow with, where that is not what its operator's [`Workload`] says. The quantities' names are
    /// then no more than names.
    pub work: Option<fn(operation: &Operation<'_>) -> Option<Workload>>,
}

impl Kernel {
    /// The body to run on this CPU.
    pub const fn row(&self) -> Row {
        match self.native {
            Some(native) => native,
            None => self.portable,
        }
    }

    /// The alignment of its scratch.
    pub const fn scratch_align(&self) -> u64 {
        let own = self.row().align();
        if own > PACKED_ALIGN { own as u64 } else { PACKED_ALIGN as u64 }
    }

    /// What its instructions for an operation grow with.
    pub fn workload(&self, operation: &Operation<'_>) -> Workload {
        self.work.and_then(|work| work(operation)).unwrap_or_else(|| {
            let mut types = [operation.output.ty; MAX_OPERANDS];
            let count = operation.inputs.len().min(MAX_OPERANDS);
            types.iter_mut().zip(operation.inputs).for_each(|(ty, operand)| *ty = operand.ty);
            Workload::of(&operation.op, types.get(..count).unwrap_or(&[]), &operation.output.ty)
        })
    }

    /// Whether plans for `target` may use it.
    pub fn runs_on(&self, target: TargetId) -> bool {
        self.targets.is_empty() || self.targets.contains(&target)
    }
}

/// Every kernel of every CPU, in order of preference.
pub const KERNELS: &[Kernel] = crate::rows::ALL;

/// Operators' references, run as rows where no kernel applies.
pub const REFERENCES: &[Kernel] = crate::reference::ALL;

/// The kernel, or the reference, with this number.
pub fn kernel(number: u16) -> Option<&'static Kernel> {
    KERNELS.iter().chain(REFERENCES).find(|k| k.number == number)
}

/// The kernel that plans for `target` compute `operation` with, or else its reference; `None` where not even
/// that computes it.
pub fn choose(operation: &Operation<'_>, target: TargetId) -> Option<&'static Kernel> {
    KERNELS.iter().chain(REFERENCES).find(|k| k.runs_on(target) && (k.applies)(operation))
}

/// The kernel that plans for any CPU compute `operation` with, whatever faster ones there are.
pub fn plain(operation: &Operation<'_>) -> Option<&'static Kernel> {
    KERNELS.iter().find(|k| k.targets.is_empty() && (k.applies)(operation))
}

/// The reference that computes `operation`, whatever kernels there are.
pub fn reference(operation: &Operation<'_>) -> Option<&'static Kernel> {
    REFERENCES.iter().find(|k| (k.applies)(operation))
}

/// How many rows a host has.
pub const KERNEL_COUNT: usize = KERNELS.len() + REFERENCES.len();

/// A row for every kernel and every reference: what a host links to run any plan on its own CPU.
pub const fn host_rows() -> [Row; KERNEL_COUNT] {
    let mut rows = [KERNELS[0].portable; KERNEL_COUNT];
    let mut i = 0;
    while i < KERNEL_COUNT {
        let kernel = if i < KERNELS.len() { &KERNELS[i] } else { &REFERENCES[i - KERNELS.len()] };
        rows[i] = kernel.row();
        i += 1;
    }
    rows
}
