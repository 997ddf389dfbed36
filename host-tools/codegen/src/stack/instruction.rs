//! What an instruction does to the stack pointer and to the flow of control: all that is asked of a decoder.

/// An instruction, as far as the stack is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    /// Its length in bytes.
    pub(super) bytes: u64,
    /// What it does to the stack pointer.
    pub(super) stack: Stack,
    /// Where control goes.
    pub(super) flow: Flow,
    /// What it makes of a register, where that can be told.
    pub(super) result: Option<(u8, Value)>,
    /// How many of the next instructions are conditional, after Thumb's IT.
    pub(super) conditional: u8,
    /// Whether it is what assemblers fill gaps with: it does nothing.
    pub(super) is_nop: bool,
}

/// A change of the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    /// None.
    Same,
    /// It moves by so many bytes; down, which takes memory, is negative.
    Move(i64),
    /// It moves by a register's value.
    Add(u8),
    /// It moves by a register's negated value.
    Sub(u8),
    /// It becomes a register's value and so many bytes.
    Set(u8, i32),
    /// It becomes anything else.
    Other,
}

/// Where control goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// To the next instruction.
    Next,
    /// There.
    Jump(u64),
    /// There or to the next instruction.
    Branch(u64),
    /// To a function that comes back.
    Call(u64),
    /// To a function that a register names and that comes back; to a constant if the register is known to hold one.
    CallRegister(u8),
    /// To a function that a register names and that does not come back here.
    TailRegister(u8),
    /// Somewhere in this function, or, from a function that has no such place, to another function.
    JumpRegister(u8),
    /// Somewhere in this function, by an offset out of a table.
    Table,
    /// To the caller.
    Return,
    /// Nowhere.
    Trap,
}

/// What an instruction puts into a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A number.
    Number(u32),
    /// What the same register had in its lower half, with this as the upper.
    Upper(u16),
    /// The word at an address.
    Word(u64),
    /// A register's value and so many.
    Plus(u8, i32),
    /// The stack pointer's value and so many bytes.
    Stack(i32),
}

impl Instruction {
    /// An instruction that concerns nothing here.
    pub(super) const fn plain(bytes: u64) -> Self {
        Self { bytes, stack: Stack::Same, flow: Flow::Next, result: None, conditional: 0, is_nop: false }
    }

    pub(super) const fn nop(bytes: u64) -> Self {
        Self { is_nop: true, ..Self::plain(bytes) }
    }

    pub(super) const fn stack(self, stack: Stack) -> Self {
        Self { stack, ..self }
    }

    pub(super) const fn flow(self, flow: Flow) -> Self {
        Self { flow, ..self }
    }

    pub(super) const fn result(self, register: u32, value: Value) -> Self {
        Self { result: Some((register as u8, value)), ..self }
    }
}

/// The bits `high..=low` of a word.
pub(super) const fn bits(word: u32, high: u32, low: u32) -> u32 {
    (word >> low) & (u32::MAX >> (31 - (high - low)))
}

/// The lowest `width` bits as a signed number.
pub(super) const fn signed(word: u32, width: u32) -> i64 {
    (((word << (32 - width)) as i32) >> (32 - width)) as i64
}
