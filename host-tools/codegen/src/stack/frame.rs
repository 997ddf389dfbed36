//! The stack of one function: how deep it goes itself, and how deep it is where it calls others.
//!
//! Every path through the function's instructions is followed with the bytes of stack in use. So calls before the
//! frame is made, tail calls after it is given back, and several exits count as they are.

use std::collections::{BTreeMap, HashMap};

use super::StackError;
use super::image::Image;
use super::instruction::{Flow, Instruction, Stack, Value};
use crate::symbols::Symbol;

/// The stack of one function, without what it calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    /// Bytes in use where it is deepest.
    pub(super) deepest: u64,
    /// Calls with the bytes in use there, each once.
    pub(super) calls: Vec<Call>,
    /// Whether it can come back.
    returns: bool,
}

/// A call of another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call {
    /// What is called.
    pub(super) target: Target,
    /// Bytes in use there.
    pub(super) depth: u64,
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// The function at an address.
    Function(u64),
    /// What a register names.
    Pointer {
        /// Where the call is.
        at: u64,
    },
}

/// The frames of an image, each worked out once.
pub(super) struct Frames<'a> {
    pub(super) image: &'a Image,
    known: HashMap<u64, Frame>,
    /// Functions that are being worked out.
    active: Vec<u64>,
}

/// How many functions may be inside each other. Firmware is nowhere near.
const MAX_NESTED: usize = 500;

impl<'a> Frames<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        Self { image, known: HashMap::new(), active: Vec::new() }
    }

    /// The frame of the function at an address.
    pub(super) fn of(&mut self, address: u64) -> Result<Frame, StackError> {
        if let Some(frame) = self.known.get(&address) {
            return Ok(frame.clone());
        }
        let symbol = self.image.functions.get(&address).ok_or(StackError::NoFunction { address })?;
        if self.active.len() >= MAX_NESTED {
            return Err(StackError::TooDeep { function: symbol.name.clone() });
        }
        self.active.push(address);
        let frame = Walk::new(symbol).all(self)?;
        self.active.pop();
        self.known.insert(address, frame.clone());
        Ok(frame)
    }

    /// Whether a call comes back. Assumed of a function that is being worked out or is not in the image.
    fn returns(&mut self, address: u64) -> Result<bool, StackError> {
        if self.active.contains(&address) || !self.image.functions.contains_key(&address) {
            return Ok(true);
        }
        Ok(self.of(address)?.returns)
    }
}

/// The walk through one function.
struct Walk<'a> {
    symbol: &'a Symbol,
    frame: Frame,
    /// Instructions that were looked at: depth before them, and length.
    seen: BTreeMap<u64, (u64, u64)>,
    /// Places still to be looked at.
    places: Vec<Place>,
    /// Jumps to where a register says.
    jumps: Vec<Place>,
    /// Those of them that may leave the function.
    exits: Vec<Call>,
}

/// A place in a function.
#[derive(Clone, Copy)]
struct Place {
    address: u64,
    depth: u64,
    /// How many instructions from here on are conditional.
    conditional: u8,
    /// A register and its value, where the instruction before says it.
    known: Option<(u8, Held)>,
    /// What the frame pointer holds, once it is one.
    frame: Option<Held>,
}

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// A number.
    Number(u32),
    /// The address of the stack where so many bytes are in use.
    Depth(i64),
}

impl Held {
    fn plus(self, more: i32) -> Self {
        match self {
            Self::Number(number) => Self::Number(number.wrapping_add_signed(more)),
            Self::Depth(depth) => Self::Depth(depth.saturating_sub(i64::from(more))),
        }
    }
}

impl<'a> Walk<'a> {
    fn new(symbol: &'a Symbol) -> Self {
        let (seen, places, jumps, exits) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        Self { symbol, frame: Frame::default(), seen, places, jumps, exits }
    }

    fn all(mut self, frames: &mut Frames<'_>) -> Result<Frame, StackError> {
        self.places.push(Place { address: self.symbol.address, depth: 0, conditional: 0, known: None, frame: None });
        let mut has_tables = false;
        loop {
            while let Some(place) = self.places.pop() {
                self.step(place, frames)?;
            }
            // The targets of a jump through a table are the code that nothing else leads to.
            let Some(&jump) = self.jumps.iter().max_by_key(|jump| jump.depth) else { break };
            let Some(address) = self.unseen(frames.image) else { break };
            has_tables = true;
            self.places.push(Place { address, ..jump });
        }
        // A function without such code is left by its jump.
        if !has_tables && !self.exits.is_empty() {
            self.frame.calls.append(&mut self.exits);
            self.frame.returns = true;
        }
        self.frame.calls.sort_unstable();
        self.frame.calls.dedup();
        Ok(self.frame)
    }

    fn step(&mut self, place: Place, frames: &mut Frames<'_>) -> Result<(), StackError> {
        let Place { address, depth, .. } = place;
        if !self.contains(address) && frames.image.functions.contains_key(&address) {
            // Assembly may run on into the next function.
            return self.leave(address, depth, frames);
        }
        match self.seen.get(&address) {
            Some((before, _)) if *before == depth => return Ok(()),
            Some(_) => return Err(self.moves(address)),
            None => {}
        }
        let instruction = self.decode(address, frames.image)?;
        self.seen.insert(address, (depth, instruction.bytes));

        let frame_pointer = frames.image.frame_pointer;
        let result = place.result(&instruction, frames.image);
        let after = self.depth_after(&instruction, place, frame_pointer)?;
        self.frame.deepest = self.frame.deepest.max(after);
        let is_conditional = place.conditional > 0;
        // What is given back on a condition may be kept: an epilogue under IT, which a conditional return ends. The walk goes on
        // with the deeper of the two, so that no path is deeper than it says.
        let after = if is_conditional { after.max(depth) } else { after };
        let next = Place {
            address: address.wrapping_add(instruction.bytes),
            depth: after,
            conditional: instruction.conditional.max(place.conditional.saturating_sub(1)),
            known: result,
            frame: result.filter(|(to, _)| *to == frame_pointer).map(|(_, held)| held).or(place.frame),
        };
        if is_conditional && instruction.flow != Flow::Next {
            self.places.push(Place { depth, ..next });
        } else if is_conditional && after != depth {
            return Err(self.moves(address));
        }
        // What a register holds when the instruction uses it.
        let held = |register: u8| match result.or(place.known) {
            Some((known, Held::Number(to))) if known == register => Some(u64::from(to) & !1),
            _ => None,
        };
        match instruction.flow {
            Flow::Next => self.places.push(next),
            Flow::Jump(to) => self.go(to, next, frames)?,
            Flow::Branch(to) => {
                self.go(to, next, frames)?;
                self.places.push(next);
            }
            Flow::Call(to) => self.call(to, next, frames)?,
            Flow::CallRegister(register) => match held(register) {
                Some(to) => self.call(to, next, frames)?,
                None => {
                    self.frame.calls.push(Call { target: Target::Pointer { at: address }, depth: after });
                    self.places.push(next);
                }
            },
            Flow::TailRegister(register) => match held(register) {
                Some(to) => self.go(to, next, frames)?,
                None => {
                    self.frame.calls.push(Call { target: Target::Pointer { at: address }, depth: after });
                    self.frame.returns = true;
                }
            },
            Flow::JumpRegister(register) => match held(register) {
                Some(to) => self.go(to, next, frames)?,
                None => {
                    self.exits.push(Call { target: Target::Pointer { at: address }, depth: after });
                    self.jumps.push(Place { address, conditional: 0, known: None, ..next });
                }
            },
            Flow::Table => self.jumps.push(Place { address, conditional: 0, known: None, ..next }),
            Flow::Return => self.frame.returns = true,
            Flow::Trap => {}
        }
        Ok(())
    }

    fn decode(&self, address: u64, image: &Image) -> Result<Instruction, StackError> {
        let end = self.symbol.address.saturating_add(self.symbol.bytes);
        let code = image.bytes(address..end).filter(|_| self.contains(address) && image.is_code(address));
        code.and_then(|code| (image.decode)(code, address))
            .ok_or_else(|| StackError::NoCode { function: self.symbol.name.clone(), address })
    }

    fn depth_after(&self, instruction: &Instruction, place: Place, frame_pointer: u8) -> Result<u64, StackError> {
        let number = |register: u8| match place.held(register, frame_pointer) {
            Some(Held::Number(number)) => Ok(i64::from(number as i32)),
            _ => Err(self.moves(place.address)),
        };
        let moved = match instruction.stack {
            Stack::Same => 0,
            Stack::Move(bytes) => bytes,
            Stack::Add(register) => number(register)?,
            Stack::Sub(register) => -number(register)?,
            Stack::Set(register, more) => match place.held(register, frame_pointer).map(|held| held.plus(more)) {
                Some(Held::Depth(depth)) => place.depth as i64 - depth,
                _ => return Err(self.moves(place.address)),
            },
            Stack::Other => return Err(self.moves(place.address)),
        };
        // Down takes stack; more than was taken can't be given back.
        place.depth.checked_add_signed(-moved).ok_or_else(|| self.moves(place.address))
    }

    /// Goes to an address in this function, or leaves it for another.
    fn go(&mut self, address: u64, next: Place, frames: &mut Frames<'_>) -> Result<(), StackError> {
        if self.contains(address) {
            self.places.push(Place { address, conditional: 0, known: None, ..next });
            return Ok(());
        }
        self.leave(address, next.depth, frames)
    }

    fn leave(&mut self, address: u64, depth: u64, frames: &mut Frames<'_>) -> Result<(), StackError> {
        self.frame.calls.push(Call { target: Target::Function(address), depth });
        self.frame.returns |= frames.returns(address)?;
        Ok(())
    }

    fn call(&mut self, address: u64, next: Place, frames: &mut Frames<'_>) -> Result<(), StackError> {
        if address != self.symbol.address && self.contains(address) {
            // Armv6-M has no jump that goes beyond 2 KiB: with LR saved, compilers use BL within a function.
            return self.go(address, next, frames);
        }
        self.frame.calls.push(Call { target: Target::Function(address), depth: next.depth });
        // A call of another image's function that ends this one does not come back: `exit` of a C library.
        let ends = !frames.image.functions.contains_key(&address) && !self.contains(next.address);
        if !ends && frames.returns(address)? {
            self.places.push(next);
        }
        Ok(())
    }

    fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.symbol.address).is_some_and(|offset| offset < self.symbol.bytes)
    }

    /// The first code in the function that was not looked at.
    fn unseen(&self, image: &Image) -> Option<u64> {
        let mut address = self.symbol.address;
        while self.contains(address) {
            address = match self.seen.get(&address) {
                Some((_, bytes)) => address + bytes,
                None if !image.is_code(address) => address + 1,
                None => match self.padding_end(address, image) {
                    Some(end) => end,
                    None => return Some(address),
                },
            };
        }
        None
    }

    /// The end of what only aligns the constants after it. No table leads there: it would lead on into the constants.
    fn padding_end(&self, mut address: u64, image: &Image) -> Option<u64> {
        let start = address;
        while self.contains(address) && image.is_code(address) {
            address += self.decode(address, image).ok().filter(|instruction| instruction.is_nop)?.bytes;
        }
        (address > start && self.contains(address)).then_some(address)
    }

    fn moves(&self, address: u64) -> StackError {
        StackError::Dynamic { function: self.symbol.name.clone(), address }
    }
}

impl Place {
    /// What a register holds here, where it is known.
    fn held(&self, register: u8, frame_pointer: u8) -> Option<Held> {
        let known = self.known.filter(|(known, _)| *known == register).map(|(_, held)| held);
        known.or_else(|| self.frame.filter(|_| register == frame_pointer))
    }

    /// What an instruction here puts into a register, where it is known.
    fn result(&self, instruction: &Instruction, image: &Image) -> Option<(u8, Held)> {
        let (register, value) = instruction.result?;
        let held = match value {
            Value::Number(number) => Held::Number(number),
            Value::Upper(half) => match self.held(register, image.frame_pointer)? {
                Held::Number(low) => Held::Number(low & 0xffff | u32::from(half) << 16),
                Held::Depth(_) => return None,
            },
            Value::Word(address) => {
                let bytes = image.bytes(address..address.checked_add(4)?)?;
                Held::Number(u32::from_le_bytes(bytes.try_into().ok()?))
            }
            Value::Plus(from, more) => self.held(from, image.frame_pointer)?.plus(more),
            Value::Stack(more) => Held::Depth(self.depth as i64).plus(more),
        };
        Some((register, held))
    }
}
