//! From functions and chains of them to the instructions of `map`'s interpreter: which register holds what.

use kiln_core::DType;
use kiln_ops::{Function, MAX_VALUES, Op, Program};

use crate::map::{IMMEDIATE, INPUT, REGISTERS};
use crate::table::Operation;

/// The most instructions: one for each value, and values may be read again and again where registers are few.
const MOST: usize = 192;

/// Instructions and immediates.
pub(crate) struct Code {
    words: [u32; MOST],
    used: usize,
    immediates: [u32; MAX_VALUES],
    immediates_used: usize,
    /// How many instructions come before the others, once.
    pub(crate) prologue: usize,
}

impl Code {
    /// The instructions.
    pub(crate) fn words(&self) -> &[u32] {
        self.words.get(..self.used).unwrap_or(&[])
    }

    /// The bits of the immediates.
    pub(crate) fn immediates(&self) -> &[u32] {
        self.immediates.get(..self.immediates_used).unwrap_or(&[])
    }

    fn push(&mut self, code: u8, to: usize, operands: [usize; 3], index: usize) -> Option<()> {
        let [a, b, c] = operands.map(|operand| operand as u32);
        let word = u32::from(code) | (to as u32) << 8 | a << 12 | b << 16 | c << 20 | (index as u32) << 24;
        *self.words.get_mut(self.used)? = word;
        self.used += 1;
        Some(())
    }
}

/// A function of some values, which are numbered inputs first, then immediates, then results.
#[derive(Clone, Copy)]
struct Instruction {
    function: Function,
    operands: [usize; 3],
}

/// What is to be computed.
struct Source {
    inputs: usize,
    immediates: usize,
    instructions: [Option<Instruction>; MAX_VALUES],
    /// For each value, the last instruction that reads it and is itself of use.
    last: [Option<usize>; MAX_VALUES],
}

impl Source {
    fn instruction(&self, i: usize) -> Option<Instruction> {
        self.instructions.get(i).copied().flatten()
    }

    /// Notes for each value where it is read for the last time; results that none reads are left out.
    fn note_uses(&mut self) {
        let count = self.instructions.iter().flatten().count();
        for i in (0..count).rev() {
            let Some(instruction) = self.instruction(i) else { continue };
            let result = self.inputs + self.immediates + i;
            if i + 1 < count && self.last[result].is_none() {
                self.instructions[i] = None;
                continue;
            }
            for &operand in instruction.operands.iter().take(instruction.function.arity()) {
                self.last[operand].get_or_insert(i);
            }
        }
    }
}

/// The code for `map` or `fused` over `inputs` tensors, of which those whose bits are set in `singles` have one
/// element. `None` where it needs more registers than there are, or has a program that is no constant.
pub(crate) fn compile(operation: &Operation<'_>, inputs: usize, singles: u32) -> Option<Code> {
    let mut code = Code { words: [0; MOST], used: 0, immediates: [0; MAX_VALUES], immediates_used: 0, prologue: 0 };
    let mut source = Source { inputs, immediates: 0, instructions: [None; MAX_VALUES], last: [None; MAX_VALUES] };
    match operation.op {
        Op::Map(map) => {
            source.instructions[0] = Some(Instruction { function: map.function, operands: [0, 1, 2] });
        }
        Op::Fused(_) => {
            let program = operation.inputs.last().filter(|p| p.ty.dtype == DType::U8)?;
            let program = Program::new(program.data?, inputs)?;
            for (to, value) in code.immediates.iter_mut().zip(program.immediates()) {
                *to = value.to_bits();
                source.immediates += 1;
            }
            for (to, i) in source.instructions.iter_mut().zip(program.instructions()) {
                *to = Some(Instruction { function: i.function, operands: i.operands.map(usize::from) });
            }
        }
        _ => return None,
    }
    code.immediates_used = source.immediates;
    source.note_uses();
    // What does not change from element to element is set once, if registers allow.
    allocate(&source, singles, true, &mut code).or_else(|| {
        (code.used, code.prologue) = (0, 0);
        allocate(&source, singles, false, &mut code)
    })?;
    Some(code)
}

/// Gives every value a register from where it is set to where it is last read. A result's register is never
/// one that its instruction reads.
fn allocate(source: &Source, singles: u32, hoist: bool, code: &mut Code) -> Option<()> {
    let mut holds: [Option<usize>; REGISTERS] = [None; REGISTERS];
    let mut place: [Option<usize>; MAX_VALUES] = [None; MAX_VALUES];
    let known = source.inputs + source.immediates;
    let hoisted = |value: usize| {
        let constant = value >= source.inputs || singles >> value & 1 == 1;
        hoist && value < known && constant && source.last[value].is_some()
    };
    fn take(holds: &mut [Option<usize>; REGISTERS], value: usize) -> Option<usize> {
        let free = holds.iter().position(Option::is_none)?;
        holds[free] = Some(value);
        Some(free)
    }
    let set = |code: &mut Code, value: usize, to: usize| match value.checked_sub(source.inputs) {
        None => code.push(INPUT, to, [0; 3], value),
        Some(immediate) => code.push(IMMEDIATE, to, [0; 3], immediate),
    };
    for value in (0..known).filter(|&value| hoisted(value)) {
        let to = take(&mut holds, value)?;
        place[value] = Some(to);
        set(code, value, to)?;
        code.prologue += 1;
    }
    for i in 0..MAX_VALUES {
        let Some(instruction) = source.instruction(i) else { continue };
        let operands = instruction.operands.get(..instruction.function.arity())?;
        let mut registers = [0; 3];
        for (register, &operand) in registers.iter_mut().zip(operands) {
            *register = match place[operand] {
                Some(register) => register,
                None => {
                    let to = take(&mut holds, operand)?;
                    place[operand] = Some(to);
                    set(code, operand, to)?;
                    to
                }
            };
        }
        let result = known + i;
        let to = take(&mut holds, result)?;
        place[result] = Some(to);
        code.push(instruction.function as u8, to, registers, 0)?;
        for &operand in operands {
            let done = source.last[operand] == Some(i) && !hoisted(operand);
            if let Some(register) = place[operand].take_if(|_| done) {
                holds[register] = None;
            }
        }
    }
    Some(())
}
