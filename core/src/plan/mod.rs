//! The plan format: what a host writes and a device obeys.
//!
//! A plan is one piece of bytes, aligned to [`ALIGN`], little-endian, used in place:
//!
//! ```text
//! Header        magic "KPLN", version, target, length, CRC, and where each table lies
//! banks         BankRecord     RAM the plan needs, one record a bank
//! entries       EntryRecord    what can be run by name: "infer", "train_step", "reset", …
//! steps         StepRecord     one after the other; an entry is a range of them
//! operands      OperandRecord  where each step's windows lie
//! tensors       TensorRecord   inputs and outputs of entries, with dtype, shape and quantization
//! extents       ExtentRecord   dimensions that vary at run time, planned at their maximum
//! parameters    bytes          one record a step, laid out as its kernel's row says
//! strings       bytes          names (UTF-8, not terminated)
//! constants     bytes          weights, packed as the rows read them
//! ```
//!
//! [`Plan::load`] checks all of that once. `docs/plan-format.md` gives every field and the reasons.

mod load;
mod records;

pub use load::{Entry, Plan};
pub use records::{
    BankRecord, EntryRecord, ExtentRecord, Header, OperandRecord, Place, StepKind, StepRecord, Table, TensorRecord,
    Text,
};

/// The first four bytes of a plan.
pub const MAGIC: u32 = u32::from_le_bytes(*b"KPLN");
/// The format version written here: a reader refuses another major and accepts an older minor.
pub const VERSION: (u16, u16) = (1, 0);
/// Alignment in bytes of a plan's first byte and of its constants.
pub const ALIGN: usize = 16;
/// The bank number that stands for the plan's own constants.
pub const CONSTANTS: u8 = 255;
/// The bank number of memory that a host binds at each run: the offset is the number of an entry's input, or
/// how many inputs there are and the number of its output. Sessions have no such bank and refuse it.
pub const EXTERNAL: u8 = 254;
/// In [`StepRecord::extent`]: the step's rows do not vary.
pub const NO_EXTENT: u16 = u16::MAX;
/// In [`StepRecord::flags`]: the step walks from high addresses to low ones.
pub const STEP_DOWN: u32 = 1;

/// A step's flag: before it, whoever runs the plan fills the first output with what comes next of the entry's input that
/// lies nowhere (a tensor at [`EXTERNAL`]). The step itself computes no rows.
pub const STEP_FEED: u32 = 2;
/// In a tensor's dimension: the low 16 bits are an extent's index rather than a size.
pub const DIM_IS_EXTENT: u32 = 1 << 31;
