//! The fixed-width records of a plan. Every field is little-endian and naturally aligned; reserved
//! fields are zero when written and not looked at when read.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Where a table lies: bytes from the plan's start, and how many records (or bytes) it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Table {
    /// Bytes from the plan's first byte to the table's.
    pub offset: u32,
    /// Records, or bytes for tables of bytes.
    pub count: u32,
}

/// The head of a plan, 128 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`](super::MAGIC).
    pub magic: u32,
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// [`TargetId`](crate::TargetId) of the CPU family.
    pub target: u32,
    /// CRC-32 of the whole plan with these four bytes left out.
    pub crc: u32,
    /// Bytes of the whole plan.
    pub len: u64,
    /// Bytes of the constants.
    pub constants_len: u64,
    /// Bytes from the plan's first byte to the constants.
    pub constants: u64,
    /// State kept from run to run: the first bytes of bank 0, zeroed when a session starts.
    pub state_len: u64,
    /// [`BankRecord`]s.
    pub banks: Table,
    /// [`EntryRecord`]s.
    pub entries: Table,
    /// [`StepRecord`]s.
    pub steps: Table,
    /// [`OperandRecord`]s.
    pub operands: Table,
    /// [`TensorRecord`]s.
    pub tensors: Table,
    /// [`ExtentRecord`]s.
    pub extents: Table,
    /// Kernel parameters, bytes.
    pub parameters: Table,
    /// Names, bytes.
    pub strings: Table,
    /// Zero.
    pub reserved: [u32; 4],
}

/// A name: a piece of the strings table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Text {
    /// First byte in the strings table.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

/// A place in memory: bank in the top byte, bytes from the bank's start in the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Place(pub u64);

impl Place {
    /// The place `offset` bytes into `bank`; `None` when the offset needs more than 56 bits.
    pub const fn new(bank: u8, offset: u64) -> Option<Place> {
        if offset >> 56 != 0 {
            return None;
        }
        Some(Place((bank as u64) << 56 | offset))
    }

    /// The bank; [`CONSTANTS`](super::CONSTANTS) for the plan's constants.
    pub const fn bank(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// Bytes from the bank's start.
    pub const fn offset(self) -> u64 {
        self.0 & ((1 << 56) - 1)
    }
}

/// A bank of RAM, 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BankRecord {
    /// Bytes the plan uses of it.
    pub bytes: u64,
    /// Alignment of its first byte.
    pub align: u32,
    /// Zero.
    pub reserved: u32,
}

/// Something that can be run by name, 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EntryRecord {
    /// Its name.
    pub name: Text,
    /// First step.
    pub first_step: u32,
    /// Number of steps.
    pub steps: u32,
    /// First tensor; the inputs, then the outputs.
    pub first_tensor: u32,
    /// Number of inputs.
    pub inputs: u16,
    /// Number of outputs.
    pub outputs: u16,
    /// Zero.
    pub reserved: [u32; 2],
}

/// What a step is: the byte [`StepRecord::kind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum StepKind {
    /// One call of a kernel.
    Kernel = 1,
    /// Reserved: repeat the next steps a bounded number of times.
    Loop = 2,
    /// Reserved: take one of two ranges of steps.
    Branch = 3,
    /// Reserved: start, or wait for, an asynchronous copy between banks.
    Copy = 4,
    /// Reserved: one call of a kernel that the user's crate supplies.
    UserKernel = 5,
}

/// One step, 36 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StepRecord {
    /// A [`StepKind`].
    pub kind: u8,
    /// Number of input operands.
    pub inputs: u8,
    /// Number of output operands, after the inputs.
    pub outputs: u8,
    /// Number of scratch operands, after the outputs.
    pub scratch: u8,
    /// The kernel's row number.
    pub row: u16,
    /// The opcode of the operator the step came from; informative.
    pub op: u16,
    /// First record in the operands table.
    pub first_operand: u32,
    /// First output row to compute.
    pub row_begin: u32,
    /// Output row to stop before.
    pub row_end: u32,
    /// First byte in the parameters table; a multiple of 4.
    pub parameters: u32,
    /// Bytes of parameters.
    pub parameters_len: u16,
    /// The extent that scales `row_end`, or [`NO_EXTENT`](super::NO_EXTENT).
    pub extent: u16,
    /// For host tools: the graph's node this step came from.
    pub node: u32,
    /// Bit 0 ([`STEP_DOWN`](super::STEP_DOWN)): walk from high addresses to low ones. Bit 1 ([`STEP_FEED`](super::STEP_FEED)): the
    /// caller fills the first output. Others are zero.
    pub flags: u32,
}

/// Where one window of a step lies, 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OperandRecord {
    /// Its place.
    pub place: Place,
    /// Its bytes.
    pub bytes: u64,
}

/// An input or output of an entry, 72 bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TensorRecord {
    /// Its place while the entry is not running.
    pub place: Place,
    /// Its bytes, at the extents' maxima.
    pub bytes: u64,
    /// Its name.
    pub name: Text,
    /// Code of its [`DType`](crate::DType).
    pub dtype: u8,
    /// Number of dimensions.
    pub rank: u8,
    /// Zero.
    pub reserved: u16,
    /// `real = scale * (value - zero_point)`; 0 when the tensor is not quantized.
    pub scale: f32,
    /// See `scale`.
    pub zero_point: i32,
    /// Dimensions, outermost first; with [`DIM_IS_EXTENT`](super::DIM_IS_EXTENT), an extent's index.
    pub dims: [u32; crate::MAX_RANK],
    /// Zero.
    pub reserved2: u32,
}

/// A dimension that varies at run time, 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ExtentRecord {
    /// Its name.
    pub name: Text,
    /// The value planned for; also the value before [`Session::set_extent`](crate::Session::set_extent).
    pub max: u32,
    /// Zero.
    pub reserved: u32,
}

// The sizes are the format.
const _: () = {
    assert!(size_of::<Header>() == 128);
    assert!(size_of::<BankRecord>() == 16);
    assert!(size_of::<EntryRecord>() == 32);
    assert!(size_of::<StepRecord>() == 36);
    assert!(size_of::<OperandRecord>() == 16);
    assert!(size_of::<TensorRecord>() == 72);
    assert!(size_of::<ExtentRecord>() == 16);
};
