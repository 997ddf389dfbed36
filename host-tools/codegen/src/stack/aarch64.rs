//! A64: the instructions that move the stack pointer or leave the line.
//!
//! Encodings are those of the Arm Architecture Reference Manual for A-profile, chapter C4. Whatever else may write
//! the stack pointer is [`Stack::Other`].

use super::instruction::{Flow, Instruction, Stack, Value, bits, signed};

/// The stack pointer, where an instruction can name it.
const SP: u32 = 31;

/// Decodes the instruction at `address`. `None` when `code` ends within it.
pub(super) fn decode(code: &[u8], address: u64) -> Option<Instruction> {
    let word = u32::from_le_bytes(code.get(..4)?.try_into().ok()?);
    let plain = Instruction::plain(4);
    let target = |words: i64| address.wrapping_add_signed(words * 4);
    let (to, base) = (bits(word, 4, 0), bits(word, 9, 5));
    Some(match word {
        // B, BL
        _ if bits(word, 30, 26) == 0b00101 => {
            let there = target(signed(word, 26));
            plain.flow(if bits(word, 31, 31) == 1 { Flow::Call(there) } else { Flow::Jump(there) })
        }
        // B.cond, CBZ, CBNZ; TBZ, TBNZ
        _ if bits(word, 31, 24) == 0x54 || bits(word, 30, 25) == 0b01_1010 => {
            plain.flow(Flow::Branch(target(signed(bits(word, 23, 5), 19))))
        }
        _ if bits(word, 30, 25) == 0b01_1011 => plain.flow(Flow::Branch(target(signed(bits(word, 18, 5), 14)))),
        // BR, BLR, RET, and those that authenticate
        _ if bits(word, 31, 25) == 0b110_1011 => match bits(word, 22, 21) {
            0b00 => plain.flow(Flow::JumpRegister(base as u8)),
            0b01 => plain.flow(Flow::CallRegister(base as u8)),
            _ => plain.flow(Flow::Return),
        },
        // NOP
        0xd503_201f => Instruction::nop(4),
        // UDF, BRK
        _ if word >> 16 == 0 || bits(word, 31, 21) == 0b110_1010_0001 => plain.flow(Flow::Trap),
        // ADD, SUB with a number, without flags
        _ if bits(word, 28, 23) == 0b10_0010 && bits(word, 29, 29) == 0 => {
            let bytes = (bits(word, 21, 10) << (12 * bits(word, 22, 22))) as i32;
            let moved = if bits(word, 30, 30) == 1 { -bytes } else { bytes };
            match (base, to) {
                (SP, SP) => plain.stack(Stack::Move(i64::from(moved))),
                (_, SP) => plain.stack(Stack::Set(base as u8, moved)),
                (SP, _) => plain.result(to, Value::Stack(moved)),
                _ => plain.result(to, Value::Plus(base as u8, moved)),
            }
        }
        // ADD, SUB of an extended register; AND, ORR, EOR with a number
        _ if (bits(word, 28, 21) == 0b0101_1001 && bits(word, 29, 29) == 0 && to == SP)
            || (bits(word, 28, 23) == 0b10_0100 && bits(word, 30, 29) != 0b11 && to == SP) =>
        {
            plain.stack(Stack::Other)
        }
        // LDP, STP that write back
        _ if bits(word, 29, 27) == 0b101 && bits(word, 25, 25) == 0 && bits(word, 23, 23) == 1 && base == SP => {
            let scale = match bits(word, 26, 26) {
                0 => 4 << bits(word, 31, 31),
                _ => 4 << bits(word, 31, 30),
            };
            plain.stack(Stack::Move(signed(bits(word, 21, 15), 7) * scale))
        }
        // LDR, STR that write back
        _ if bits(word, 29, 27) == 0b111
            && bits(word, 25, 24) == 0
            && bits(word, 21, 21) == 0
            && bits(word, 10, 10) == 1
            && base == SP =>
        {
            plain.stack(Stack::Move(signed(bits(word, 20, 12), 9)))
        }
        // LD1, ST1 and their kind that write back
        _ if bits(word, 31, 31) == 0 && bits(word, 29, 25) == 0b00110 && bits(word, 23, 23) == 1 && base == SP => {
            plain.stack(Stack::Other)
        }
        _ => plain,
    })
}
