//! Plans written by hand, and rows whose effect is easy to see.

use kiln_core::plan::{
    ALIGN, BankRecord, CONSTANTS, EntryRecord, ExtentRecord, Header, MAGIC, NO_EXTENT, OperandRecord, Place, StepKind,
    StepRecord, Table, TensorRecord, Text, VERSION,
};
use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes};
use kiln_core::{Call, DType, Direction, Error, Plan, Row, Session, TargetId, crc};

/// Exhaustive loops try every case, or one of so many: Miri is slow.
pub(crate) const STRIDE: usize = if cfg!(miri) { 37 } else { 1 };

/// Bytes at a multiple of 16, or as far beyond one as a test wants.
pub(crate) struct Aligned {
    words: Vec<u128>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub(crate) fn new(bytes: &[u8], start: usize) -> Aligned {
        let mut aligned = Aligned { words: vec![0; (start + bytes.len()).div_ceil(16) + 1], start, len: bytes.len() };
        aligned.as_mut().copy_from_slice(bytes);
        aligned
    }

    pub(crate) fn zeroed(len: usize) -> Aligned {
        Aligned::new(&vec![0; len], 0)
    }

    pub(crate) fn as_ref(&self) -> &[u8] {
        &self.words.as_bytes()[self.start..self.start + self.len]
    }

    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.words.as_mut_bytes()[self.start..self.start + self.len]
    }
}

/// A plan as records. [`Draft::default`] has one entry, `infer`, of one step: [`NEXT`] over four rows
/// of two bytes from offset 0 to offset 16 of a bank of 64 bytes.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) target: TargetId,
    pub(crate) state_len: u64,
    pub(crate) banks: Vec<BankRecord>,
    pub(crate) entries: Vec<EntryRecord>,
    pub(crate) steps: Vec<StepRecord>,
    pub(crate) operands: Vec<OperandRecord>,
    pub(crate) tensors: Vec<TensorRecord>,
    pub(crate) extents: Vec<ExtentRecord>,
    pub(crate) parameters: Vec<u8>,
    pub(crate) strings: Vec<u8>,
    pub(crate) constants: Vec<u8>,
}

pub(crate) fn operand(bank: u8, offset: u64, bytes: u64) -> OperandRecord {
    OperandRecord { place: Place::new(bank, offset).unwrap(), bytes }
}

pub(crate) fn tensor(bank: u8, offset: u64, bytes: u64) -> TensorRecord {
    TensorRecord {
        place: Place::new(bank, offset).unwrap(),
        bytes,
        dtype: DType::U8 as u8,
        rank: 1,
        dims: [bytes as u32, 1, 1, 1, 1, 1, 1, 1],
        ..TensorRecord::default()
    }
}

impl Default for Draft {
    fn default() -> Draft {
        let step = StepRecord {
            kind: StepKind::Kernel as u8,
            inputs: 1,
            outputs: 1,
            row: NEXT.number(),
            row_end: 4,
            parameters_len: 4,
            extent: NO_EXTENT,
            ..StepRecord::default()
        };
        Draft {
            target: TargetId::ARMV7EM,
            state_len: 0,
            banks: vec![BankRecord { bytes: 64, align: 16, reserved: 0 }],
            entries: vec![EntryRecord {
                name: Text { offset: 0, len: 5 },
                steps: 1,
                inputs: 1,
                outputs: 1,
                ..EntryRecord::default()
            }],
            steps: vec![step],
            operands: vec![operand(0, 0, 8), operand(0, 16, 8)],
            tensors: vec![tensor(0, 0, 8), tensor(0, 16, 8)],
            extents: vec![],
            parameters: 2u32.to_le_bytes().to_vec(),
            strings: b"infer".to_vec(),
            constants: (0..32).collect(),
        }
    }
}

fn append<T: IntoBytes + Immutable>(bytes: &mut Vec<u8>, records: &[T]) -> Table {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let offset = bytes.len() as u32;
    bytes.extend_from_slice(records.as_bytes());
    Table { offset, count: records.len() as u32 }
}

impl Draft {
    /// The plan's bytes, sealed.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<Header>()];
        let mut header = Header {
            magic: MAGIC,
            major: VERSION.0,
            minor: VERSION.1,
            target: self.target.0,
            state_len: self.state_len,
            banks: append(&mut bytes, &self.banks),
            entries: append(&mut bytes, &self.entries),
            steps: append(&mut bytes, &self.steps),
            operands: append(&mut bytes, &self.operands),
            tensors: append(&mut bytes, &self.tensors),
            extents: append(&mut bytes, &self.extents),
            parameters: append(&mut bytes, &self.parameters),
            strings: append(&mut bytes, &self.strings),
            ..Header::default()
        };
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        (header.constants, header.constants_len) = (bytes.len() as u64, self.constants.len() as u64);
        bytes.extend_from_slice(&self.constants);
        header.len = bytes.len() as u64;
        bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        seal(&mut bytes);
        bytes
    }

    /// The plan's bytes with a header that `change` changed, sealed again.
    pub(crate) fn with_header(&self, change: impl FnOnce(&mut Header)) -> Vec<u8> {
        let mut bytes = self.bytes();
        let (mut header, _) = Header::read_from_prefix(&bytes).unwrap();
        change(&mut header);
        bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        seal(&mut bytes);
        bytes
    }

    /// Why the plan does not load, or a session over `memory` bytes does not begin.
    pub(crate) fn refused_with(&self, memory: usize) -> Option<Error> {
        let bytes = Aligned::new(&self.bytes(), 0);
        let mut memory = Aligned::zeroed(memory);
        let plan = Plan::load(bytes.as_ref(), self.target);
        plan.and_then(|plan| Session::new(plan, ROWS, memory.as_mut()).map(|_| ())).err()
    }

    /// The same over memory of 64 bytes.
    pub(crate) fn refused(&self) -> Option<Error> {
        self.refused_with(64)
    }

    /// Loads the plan, starts a session over `memory` bytes, and hands it to `test`.
    pub(crate) fn session(&self, memory: usize, test: impl FnOnce(&mut Session<'_>)) {
        let bytes = Aligned::new(&self.bytes(), 0);
        let mut memory = Aligned::zeroed(memory);
        let plan = Plan::load(bytes.as_ref(), self.target).unwrap();
        test(&mut Session::new(plan, ROWS, memory.as_mut()).unwrap());
    }

    /// Adds an entry of `steps` steps and gives its number.
    pub(crate) fn entry(&mut self, name: &str, first_step: u32, steps: u32) {
        let offset = self.strings.len() as u32;
        self.strings.extend_from_slice(name.as_bytes());
        let name = Text { offset, len: name.len() as u32 };
        self.entries.push(EntryRecord { name, first_step, steps, ..EntryRecord::default() });
    }
}

/// Writes the checksum that the bytes ask for.
pub(crate) fn seal(bytes: &mut [u8]) {
    let sum = crc::finish(crc::update(crc::update(crc::START, &bytes[..12]), &bytes[16..]));
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// Each byte of the input plus one. Parameters: bytes of a row.
pub(crate) const NEXT: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(900, 1, 0, check_next, run_next) };
/// [`NEXT`] that may read four bytes too many and wants windows at multiples of four.
pub(crate) const FAR: Row =
    // SAFETY: as for NEXT; it reads nothing beyond its windows, though it might.
    unsafe { Row::new(901, 4, 4, check_next, run_next) };
/// Its parameters are a `u64`, which the table's alignment does not promise.
pub(crate) const WIDE: Row =
    // SAFETY: it touches nothing.
    unsafe { Row::new(902, 1, 0, |call| call.parameters::<u64>().is_some(), nothing) };

unsafe fn nothing(_: &kiln_core::Call<'_>) {}
/// Writes how it was called: direction, inputs, outputs, scratch windows, and rows.
pub(crate) const TELL: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(903, 1, 0, check_tell, run_tell) };

pub(crate) const ROWS: &[Row] = &[NEXT, FAR, WIDE, TELL];

fn check_next(call: &Call<'_>) -> bool {
    let Some(&row) = call.parameters::<u32>() else { return false };
    let bytes = call.rows.end as usize * row as usize;
    call.input(0).holds(bytes, 1) && call.output(0).holds(bytes, 1)
}

unsafe fn run_next(call: &Call<'_>) {
    let row = call.parameters::<u32>().copied().unwrap_or(0);
    for i in call.rows.begin * row..call.rows.end * row {
        // SAFETY: `check_next` proved that all rows lie inside both windows.
        unsafe {
            let x = call.input(0).ptr.wrapping_add(i as usize).read();
            call.output(0).ptr.wrapping_add(i as usize).write(x.wrapping_add(1));
        }
    }
}

fn check_tell(call: &Call<'_>) -> bool {
    call.output(0).len >= 6
}

unsafe fn run_tell(call: &Call<'_>) {
    let down = (call.direction == Direction::Down) as u8;
    let lens = [call.input(0).len, call.output(0).len, call.scratch(0).len].map(|len| len as u8);
    let told = [down, lens[0], lens[1], lens[2], call.rows.begin as u8, call.rows.end as u8];
    for (i, byte) in told.into_iter().enumerate() {
        // SAFETY: `check_tell` proved that there are six bytes.
        unsafe { call.output(0).ptr.wrapping_add(i).write(byte) };
    }
}

pub(crate) const IN_CONSTANTS: u8 = CONSTANTS;
