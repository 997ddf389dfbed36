//! Why a plan was refused.

use crate::TargetId;

/// Why a plan does not load or a session does not start. Small, `Copy`, with the numbers a host
/// tool needs to say more; nothing here can happen after [`Session::new`](crate::Session::new).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Error {
    /// Fewer bytes than a header, or fewer than the header says; bytes given.
    Truncated(usize),
    /// The bytes do not begin with a plan's magic; the first four, little-endian.
    Magic(u32),
    /// A format version this build does not read: major, minor.
    Version(u16, u16),
    /// The plan is for another CPU family: its own, then the expected one.
    Target(TargetId, TargetId),
    /// The checksum differs: stored, computed.
    Crc(u32, u32),
    /// The plan's first byte is not aligned to [`plan::ALIGN`](crate::plan::ALIGN); the remainder.
    PlanAlignment(u8),
    /// A table lies outside the plan or is not aligned; the table's number in the header.
    Table(u8),
    /// An entry names steps or tensors that are not there; the entry's index.
    Entry(u16),
    /// A tensor of an entry lies outside its bank, or an input in the constants; the tensor's index.
    Tensor(u32),
    /// An extent's bounds make no sense, or there are more than a session keeps; its index.
    Extent(u16),
    /// A step of a kind this build does not run: step, kind.
    StepKind(u32, u8),
    /// A step refers to operands, parameters or an extent that are not there; the step.
    StepTable(u32),
    /// A step's kernel is not among the rows linked: step, row number.
    Row(u32, u16),
    /// An operand lies outside its bank, is misaligned or may not be written: step, operand.
    Operand(u32, u8),
    /// A kernel's own check refused the step's parameters or window sizes; the step.
    Parameters(u32),
    /// Too little memory handed over: bank, bytes needed, bytes given.
    Memory(u8, u64, u64),
    /// A bank's first byte is not aligned as the plan needs: bank, bytes of alignment.
    MemoryAlignment(u8, u32),
    /// An extent was set outside its bounds: extent, value.
    ExtentValue(u16, u32),
}

/// Which side of an entry a tensor is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum TensorRole {
    /// Written by the caller before a run.
    Input,
    /// Read by the caller after a run.
    Output,
}
