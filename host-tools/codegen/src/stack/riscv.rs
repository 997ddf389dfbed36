//! RV32IMC: the instructions that move the stack pointer or leave the line.
//!
//! Encodings are those of the RISC-V Instruction Set Manual, volume I. Whatever else writes the stack pointer is
//! [`Stack::Other`]; all other instructions only have a length.

use super::instruction::{Flow, Instruction, Stack, Value, bits, signed};

const RA: u32 = 1;
const SP: u32 = 2;

/// Decodes the instruction at `address`. `None` when `code` ends within it.
pub(super) fn decode(code: &[u8], address: u64) -> Option<Instruction> {
    let half = |at: usize| Some(u32::from(u16::from_le_bytes([*code.get(at)?, *code.get(at + 1)?])));
    let first = half(0)?;
    Some(match first & 3 {
        3 => full(first | half(2)? << 16, address),
        _ => compressed(first, address),
    })
}

fn compressed(h: u32, address: u64) -> Instruction {
    let plain = Instruction::plain(2);
    let target = |offset: i64| address.wrapping_add_signed(offset);
    let (register, second) = (bits(h, 11, 7), bits(h, 6, 2));
    let six = || signed(bits(h, 12, 12) << 5 | second, 6);
    let overwritten = if register == SP { plain.stack(Stack::Other) } else { plain };
    match (h & 3, h >> 13) {
        (0, 0) if h == 0 => plain.flow(Flow::Trap),
        // c.nop
        (1, 0) if h == 1 => Instruction::nop(2),
        // c.addi4spn
        (0, 0) => {
            let offset = bits(h, 10, 7) << 6 | bits(h, 12, 11) << 4 | bits(h, 5, 5) << 3 | bits(h, 6, 6) << 2;
            plain.result(8 + bits(h, 4, 2), Value::Stack(offset as i32))
        }
        // c.addi
        (1, 0) if register == SP => plain.stack(Stack::Move(six())),
        (1, 0) => plain.result(register, Value::Plus(register as u8, six() as i32)),
        // c.jal, c.j
        (1, 1 | 5) => {
            let offset = bits(h, 12, 12) << 11
                | bits(h, 8, 8) << 10
                | bits(h, 10, 9) << 8
                | bits(h, 6, 6) << 7
                | bits(h, 7, 7) << 6
                | bits(h, 2, 2) << 5
                | bits(h, 11, 11) << 4
                | bits(h, 5, 3) << 1;
            let there = target(signed(offset, 12));
            plain.flow(if h >> 13 == 1 { Flow::Call(there) } else { Flow::Jump(there) })
        }
        // c.li
        (1, 2) if register != SP => plain.result(register, Value::Number(six() as u32)),
        // c.addi16sp, c.lui
        (1, 3) if register == SP => {
            let offset = bits(h, 12, 12) << 9
                | bits(h, 4, 3) << 7
                | bits(h, 5, 5) << 6
                | bits(h, 2, 2) << 5
                | bits(h, 6, 6) << 4;
            plain.stack(Stack::Move(signed(offset, 10)))
        }
        (1, 3) => plain.result(register, Value::Number((six() << 12) as u32)),
        // Operations on the registers 8 to 15.
        (1, 4) => plain,
        // c.beqz, c.bnez
        (1, 6 | 7) => {
            let offset = bits(h, 12, 12) << 8
                | bits(h, 6, 5) << 6
                | bits(h, 2, 2) << 5
                | bits(h, 11, 10) << 3
                | bits(h, 4, 3) << 1;
            plain.flow(Flow::Branch(target(signed(offset, 9))))
        }
        // c.jr, c.mv; c.ebreak, c.jalr, c.add
        (2, 4) => match (bits(h, 12, 12), register, second) {
            (0, RA, 0) => plain.flow(Flow::Return),
            (0, register, 0) => plain.flow(Flow::JumpRegister(register as u8)),
            (1, 0, 0) => plain,
            (1, register, 0) => plain.flow(Flow::CallRegister(register as u8)),
            (0, SP, second) => plain.stack(Stack::Set(second as u8, 0)),
            (0, register, SP) => plain.result(register, Value::Stack(0)),
            (1, SP, second) => plain.stack(Stack::Add(second as u8)),
            _ => overwritten,
        },
        // c.slli, c.lwsp
        (2, 0 | 2) => overwritten,
        // Stores, and loads to the registers 8 to 15.
        (2, 6) | (0, 2 | 6) => plain,
        // Of extensions that are not there; some of those move the stack pointer.
        _ => plain.stack(Stack::Other),
    }
}

fn full(w: u32, address: u64) -> Instruction {
    let plain = Instruction::plain(4);
    let target = |offset: i64| address.wrapping_add_signed(offset);
    let (to, kind, from, second) = (bits(w, 11, 7), bits(w, 14, 12), bits(w, 19, 15), bits(w, 24, 20));
    let twelve = signed(w >> 20, 12);
    let overwritten = if to == SP { plain.stack(Stack::Other) } else { plain };
    let added = |to: u32| plain.result(to, Value::Plus(from as u8, twelve as i32));
    match w & 0x7f {
        // jal
        0x6f => {
            let offset = bits(w, 31, 31) << 20 | bits(w, 19, 12) << 12 | bits(w, 20, 20) << 11 | bits(w, 30, 21) << 1;
            let there = target(signed(offset, 21));
            plain.flow(if to == 0 { Flow::Jump(there) } else { Flow::Call(there) })
        }
        // jalr
        0x67 => match (to, from) {
            (0, RA) => plain.flow(Flow::Return),
            (0, _) => added(from).flow(Flow::JumpRegister(from as u8)),
            _ => added(from).flow(Flow::CallRegister(from as u8)),
        },
        // beq and its kind
        0x63 => {
            let offset = bits(w, 31, 31) << 12 | bits(w, 7, 7) << 11 | bits(w, 30, 25) << 5 | bits(w, 11, 8) << 1;
            plain.flow(Flow::Branch(target(signed(offset, 13))))
        }
        // nop: addi of register 0
        0x13 if w == 0x13 => Instruction::nop(4),
        // addi
        0x13 if kind == 0 => match (to, from) {
            (SP, SP) => plain.stack(Stack::Move(twelve)),
            (SP, _) => plain.stack(Stack::Set(from as u8, twelve as i32)),
            (_, SP) => plain.result(to, Value::Stack(twelve as i32)),
            (_, 0) => plain.result(to, Value::Number(twelve as u32)),
            _ => added(to),
        },
        // add, sub
        0x33 if kind == 0 && to == SP && from == SP => match w >> 25 {
            0 => plain.stack(Stack::Add(second as u8)),
            0x20 => plain.stack(Stack::Sub(second as u8)),
            _ => overwritten,
        },
        // lui, auipc
        0x37 if to != SP => plain.result(to, Value::Number(w & 0xffff_f000)),
        0x17 if to != SP => plain.result(to, Value::Number((w & 0xffff_f000).wrapping_add(address as u32))),
        // mret and its kind
        0x73 if kind == 0 && matches!(w >> 20, 0x102 | 0x302) => plain.flow(Flow::Return),
        // Stores and fences have no destination.
        0x23 | 0x27 | 0x0f => plain,
        _ => overwritten,
    }
}
