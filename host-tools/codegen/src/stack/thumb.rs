//! Thumb, Armv6-M to Armv8.1-M: the instructions that move the stack pointer or leave the line.
//!
//! Encodings are those of the Armv8-M Architecture Reference Manual, chapter C2. Whatever else writes the stack
//! pointer is [`Stack::Other`]; all other instructions only have a length.

use super::instruction::{Flow, Instruction, Stack, Value, bits, signed};

const SP: u32 = 13;
const LR: u32 = 14;
const PC: u32 = 15;

/// Whether an instruction that begins with this halfword has another.
fn is_long(first: u16) -> bool {
    first >> 11 > 0b11100
}

/// Decodes the instruction at `address`. `None` when `code` ends within it.
pub(super) fn decode(code: &[u8], address: u64) -> Option<Instruction> {
    let half = |at: usize| Some(u16::from_le_bytes([*code.get(at)?, *code.get(at + 1)?]));
    let first = half(0)?;
    Some(if is_long(first) {
        long(u32::from(first), u32::from(half(2)?), address)
    } else {
        short(u32::from(first), address)
    })
}

fn short(h: u32, address: u64) -> Instruction {
    let plain = Instruction::plain(2);
    let target = |offset: i64| address.wrapping_add(4).wrapping_add_signed(offset);
    match h >> 8 {
        // ADDS, SUBS with a number: with another destination, and with the same.
        0x1c..=0x1f => {
            let number = bits(h, 8, 6) as i32;
            let number = if bits(h, 9, 9) == 1 { -number } else { number };
            plain.result(bits(h, 2, 0), Value::Plus(bits(h, 5, 3) as u8, number))
        }
        0x30..=0x3f => {
            let (register, number) = (bits(h, 10, 8), bits(h, 7, 0) as i32);
            let number = if bits(h, 11, 11) == 1 { -number } else { number };
            plain.result(register, Value::Plus(register as u8, number))
        }
        // ADD, MOV of any registers.
        0x44 | 0x46 => {
            let (to, from) = (bits(h, 2, 0) | bits(h, 7, 7) << 3, bits(h, 6, 3));
            match (to, h >> 8) {
                (SP, 0x44) => plain.stack(Stack::Add(from as u8)),
                (SP, _) => plain.stack(Stack::Set(from as u8, 0)),
                (_, 0x46) if from == SP && to != PC => plain.result(to, Value::Stack(0)),
                (PC, 0x46) if from == LR => plain.flow(Flow::Return),
                (PC, 0x44) => plain.flow(Flow::Table),
                (PC, _) => plain.flow(Flow::JumpRegister(from as u8)),
                // MOV of r8 to itself: Armv6-M's assemblers know no other.
                _ if h == 0x46c0 => Instruction::nop(2),
                _ => plain,
            }
        }
        // BX, BLX.
        0x47 => match (bits(h, 7, 7), bits(h, 6, 3)) {
            (0, LR) => plain.flow(Flow::Return),
            (0, register) => plain.flow(Flow::TailRegister(register as u8)),
            (_, register) => plain.flow(Flow::CallRegister(register as u8)),
        },
        // LDR from the literal pool.
        0x48..=0x4f => {
            let at = (address & !3) + 4 + u64::from(bits(h, 7, 0) * 4);
            plain.result(bits(h, 10, 8), Value::Word(at))
        }
        // ADD of the stack pointer and a number.
        0xa8..=0xaf => plain.result(bits(h, 10, 8), Value::Stack(bits(h, 7, 0) as i32 * 4)),
        0xb0 => {
            let bytes = i64::from(bits(h, 6, 0) * 4);
            plain.stack(Stack::Move(if bits(h, 7, 7) == 1 { -bytes } else { bytes }))
        }
        // CBZ, CBNZ.
        0xb1 | 0xb3 | 0xb9 | 0xbb => {
            plain.flow(Flow::Branch(target(i64::from(bits(h, 9, 9) << 6 | bits(h, 7, 3) << 1))))
        }
        0xb4 | 0xb5 => plain.stack(Stack::Move(-i64::from(bits(h, 8, 0).count_ones() * 4))),
        0xbc | 0xbd => {
            let popped = plain.stack(Stack::Move(i64::from(bits(h, 8, 0).count_ones() * 4)));
            if bits(h, 8, 8) == 1 { popped.flow(Flow::Return) } else { popped }
        }
        0xbf if bits(h, 7, 0) == 0 => Instruction::nop(2),
        // IT: the lowest bit set of the mask ends it.
        0xbf if bits(h, 3, 0) != 0 => Instruction { conditional: 4 - bits(h, 3, 0).trailing_zeros() as u8, ..plain },
        0xd0..=0xdd => plain.flow(Flow::Branch(target(signed(h, 8) * 2))),
        0xde => plain.flow(Flow::Trap),
        0xe0..=0xe7 => plain.flow(Flow::Jump(target(signed(h, 11) * 2))),
        // LDMIA, STMIA with low registers, all else.
        _ => plain,
    }
}

fn long(h: u32, k: u32, address: u64) -> Instruction {
    match bits(h, 12, 9) {
        0b1000..=0b1011 if bits(k, 15, 15) == 1 => branch(h, k, address),
        0b1000..=0b1011 => immediate(h, k),
        0b0100 if bits(h, 6, 6) == 0 => multiple(h, k),
        0b0100 => double(h, k),
        0b0101 => register(h, k),
        0b1100 => single(h, k, address),
        // Other operations on registers, multiplications: the destination is in one place.
        0b1101 => other(bits(k, 11, 8)),
        _ => coprocessor(h, k),
    }
}

/// A plain instruction, unless its destination is the stack pointer.
fn other(destination: u32) -> Instruction {
    let plain = Instruction::plain(4);
    if destination == SP { plain.stack(Stack::Other) } else { plain }
}

/// Branches, calls, hardware loops, and what controls the processor.
fn branch(h: u32, k: u32, address: u64) -> Instruction {
    let plain = Instruction::plain(4);
    let target = |offset: i64| address.wrapping_add(4).wrapping_add_signed(offset);
    let sign = bits(h, 10, 10);
    let (j1, j2) = (bits(k, 13, 13), bits(k, 11, 11));
    let far = || {
        let (i1, i2) = (1 ^ j1 ^ sign, 1 ^ j2 ^ sign);
        target(signed(sign << 24 | i1 << 23 | i2 << 22 | bits(h, 9, 0) << 12 | bits(k, 10, 0) << 1, 25))
    };
    match (bits(k, 14, 14), bits(k, 12, 12)) {
        (1, 1) => plain.flow(Flow::Call(far())),
        (0, 1) => plain.flow(Flow::Jump(far())),
        (0, _) if bits(h, 9, 7) != 0b111 => {
            let offset = sign << 20 | j2 << 19 | j1 << 18 | bits(h, 5, 0) << 12 | bits(k, 10, 0) << 1;
            plain.flow(Flow::Branch(target(signed(offset, 21))))
        }
        // UDF.
        (0, _) if h == 0xf7f0 | bits(h, 3, 0) && bits(k, 15, 12) == 0b1010 => plain.flow(Flow::Trap),
        (0, _) if h == 0xf3af && k == 0x8000 => Instruction::nop(4),
        // MSR to one of the stack pointers.
        (0, _) if h & 0xffe0 == 0xf380 && matches!(k & 0x7f, 8 | 9 | 0x18) => plain.stack(Stack::Other),
        (0, _) => plain,
        // Low-overhead loops: WLS, WLSTP forward; LE, LETP back; DLS, DLSTP and LCTP go on.
        (_, _) if bits(k, 13, 13) == 1 => plain,
        (_, _) => {
            let offset = i64::from(bits(k, 10, 1) << 2 | bits(k, 11, 11) << 1);
            let back = bits(h, 3, 0) == 0xf;
            plain.flow(Flow::Branch(target(if back { -offset } else { offset })))
        }
    }
}

/// Operations with a number in the instruction.
fn immediate(h: u32, k: u32) -> Instruction {
    let plain = Instruction::plain(4);
    let (from, to) = (bits(h, 3, 0), bits(k, 11, 8));
    let twelve = bits(h, 10, 10) << 11 | bits(k, 14, 12) << 8 | bits(k, 7, 0);
    let moved = |number: u32, down: bool| {
        let number = if down { (number as i32).wrapping_neg() } else { number as i32 };
        match (from, to) {
            (SP, SP) => plain.stack(Stack::Move(i64::from(number))),
            (_, SP) => plain.stack(Stack::Set(from as u8, number)),
            (SP, _) => plain.result(to, Value::Stack(number)),
            _ => plain.result(to, Value::Plus(from as u8, number)),
        }
    };
    match h & 0xfbe0 {
        // ADD, SUB with a modified and with a plain number; bit 4 sets the flags.
        0xf100 => moved(expand(twelve), false),
        0xf1a0 => moved(expand(twelve), true),
        0xf200 if bits(h, 4, 4) == 0 => moved(twelve, false),
        0xf2a0 if bits(h, 4, 4) == 0 => moved(twelve, true),
        // MOVW, MOVT.
        0xf240 if bits(h, 4, 4) == 0 && to != SP => plain.result(to, Value::Number(from << 12 | twelve)),
        0xf2c0 if bits(h, 4, 4) == 0 && to != SP => plain.result(to, Value::Upper((from << 12 | twelve) as u16)),
        // MOV with a modified number.
        0xf040 if from == PC && to != SP => plain.result(to, Value::Number(expand(twelve))),
        _ => other(to),
    }
}

/// `ThumbExpandImm`.
fn expand(twelve: u32) -> u32 {
    let byte = twelve & 0xff;
    match twelve >> 8 {
        0 => byte,
        1 => byte << 16 | byte,
        2 => byte << 24 | byte << 8,
        3 => byte << 24 | byte << 16 | byte << 8 | byte,
        _ => (byte | 0x80).rotate_right(twelve >> 7),
    }
}

/// LDM, STM.
fn multiple(h: u32, k: u32) -> Instruction {
    let plain = Instruction::plain(4);
    let bytes = i64::from(bits(k, 15, 0).count_ones() * 4);
    let (load, writes_back) = (bits(h, 4, 4) == 1, bits(h, 5, 5) == 1);
    let moved = match bits(h, 3, 0) {
        SP if writes_back => match bits(h, 8, 7) {
            0b01 => plain.stack(Stack::Move(bytes)),
            0b10 => plain.stack(Stack::Move(-bytes)),
            _ => plain.stack(Stack::Other),
        },
        _ => plain,
    };
    match (load && bits(k, 15, 15) == 1, bits(h, 3, 0)) {
        (true, SP) => moved.flow(Flow::Return),
        (true, _) => moved.flow(Flow::JumpRegister(PC as u8)),
        _ => moved,
    }
}

/// LDRD, STRD, the exclusive ones, and table branches.
fn double(h: u32, k: u32) -> Instruction {
    let plain = Instruction::plain(4);
    let (before, writes_back) = (bits(h, 8, 8) == 1, bits(h, 5, 5) == 1);
    if !before && !writes_back {
        let is_table = h & 0xfff0 == 0xe8d0 && k & 0xffe0 == 0xf000;
        return if is_table { plain.flow(Flow::Table) } else { plain };
    }
    if bits(h, 3, 0) != SP || !writes_back {
        return plain;
    }
    let bytes = i64::from(bits(k, 7, 0) * 4);
    plain.stack(Stack::Move(if bits(h, 7, 7) == 1 { bytes } else { -bytes }))
}

/// Operations on registers, the last shifted.
fn register(h: u32, k: u32) -> Instruction {
    let (from, to) = (bits(h, 3, 0), bits(k, 11, 8));
    let is_unshifted = k & 0x70f0 == 0;
    if from == SP && to == SP && is_unshifted {
        let plain = Instruction::plain(4);
        match bits(h, 8, 5) {
            0b1000 => return plain.stack(Stack::Add(bits(k, 3, 0) as u8)),
            0b1101 => return plain.stack(Stack::Sub(bits(k, 3, 0) as u8)),
            _ => {}
        }
    }
    other(to)
}

/// Floating point, vectors and coprocessors.
fn coprocessor(h: u32, k: u32) -> Instruction {
    let plain = Instruction::plain(4);
    // Loads and stores that write their address back.
    let writes_back = bits(h, 9, 9) == 0 && bits(h, 5, 5) == 1;
    if bits(h, 3, 0) != SP || !writes_back {
        return plain;
    }
    let bytes = i64::from(bits(k, 7, 0) * 4);
    match (bits(h, 12, 12), bits(k, 11, 9), bits(h, 8, 7)) {
        (0, 0b101, 0b01) => plain.stack(Stack::Move(bytes)),
        (0, 0b101, 0b10) => plain.stack(Stack::Move(-bytes)),
        _ => plain.stack(Stack::Other),
    }
}

/// Loads and stores of one register.
fn single(h: u32, k: u32, address: u64) -> Instruction {
    let (base, register, load) = (bits(h, 3, 0), bits(k, 15, 12), bits(h, 4, 4) == 1);
    let mut instruction = Instruction::plain(4);
    let is_indexed = bits(h, 7, 7) == 0 && bits(k, 11, 11) == 1 && bits(k, 8, 8) == 1;
    if base == SP && is_indexed {
        let bytes = i64::from(bits(k, 7, 0));
        instruction = instruction.stack(Stack::Move(if bits(k, 9, 9) == 1 { bytes } else { -bytes }));
    }
    let is_word = bits(h, 6, 5) == 0b10 && bits(h, 8, 8) == 0;
    match (load && is_word, base, register) {
        (true, SP, PC) if is_indexed => instruction.flow(Flow::Return),
        (true, _, PC) => instruction.flow(Flow::JumpRegister(PC as u8)),
        (true, _, SP) => instruction.stack(Stack::Other),
        (true, PC, _) => {
            let offset = i64::from(bits(k, 11, 0));
            let offset = if bits(h, 7, 7) == 1 { offset } else { -offset };
            let at = (address & !3).wrapping_add(4).wrapping_add_signed(offset);
            instruction.result(register, Value::Word(at))
        }
        _ => instruction,
    }
}
