//! Functions of each element, and chains of them, in blocks.
//!
//! Windows: the inputs; then the output. A row is a block of output elements. An interpreter steps through a
//! short program once for every few elements ([`crate::lanes`]), over registers on the stack; inputs that lie
//! like the output are read where they are. Elements ascend; all inputs of a block are read before it is written.

use core::marker::PhantomData;

use kiln_core::zerocopy::{FromBytes, Immutable, KnownLayout};
use kiln_core::{Call, Row, Window};

use crate::blocks::Blocks;
use crate::lanes::{Arithmetic, F32, I32, LANES, Lanes};
use crate::strided::{self, MAX_AXES, Walk};

/// Registers of the interpreter.
pub(crate) const REGISTERS: usize = 16;
/// Code of the instruction that reads an input.
pub(crate) const INPUT: u8 = 0x80;
/// Code of the instruction that sets an immediate.
pub(crate) const IMMEDIATE: u8 = 0x81;

/// The parameters of the rows, 32 bytes and words.
///
/// The words: the sizes of the axes; for each input its strides along them, in elements; the immediates; the
/// instructions. An instruction, from its low bits: code (8 bits: a function's number, or 0x80 to read input
/// `index`, or 0x81 to set immediate `index`), register it sets, three registers it reads (4 bits each), `index`
/// (8 bits). The last one sets the result.
#[derive(Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MapParameters {
    /// Rows.
    pub blocks: Blocks,
    /// How many axes the output has once those that all inputs walk as one are one; 1 to 8.
    pub axes: u32,
    /// How many inputs.
    pub inputs: u32,
    /// Which inputs are bool, a bit each; bit 31 is the output's.
    pub bools: u32,
    /// How many immediates.
    pub immediates: u32,
    /// How many instructions, of all, come before the others once: immediates and inputs of one element.
    pub prologue: u32,
    /// How many instructions.
    pub instructions: u32,
    /// See above.
    pub words: [u32],
}

/// The bit of the output's dtype.
pub(crate) const OUTPUT_BOOL: u32 = 1 << 31;

/// float32 and bool; functions that need no mathematical library.
pub const MAP_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(40, 4, 0, check::<F32<false>>, run::<F32<false>>) };
/// int32 and bool.
pub const MAP_I32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(41, 4, 0, check::<I32>, run::<I32>) };
/// float32 and bool; all functions.
pub const MAP_MATH_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(42, 4, 0, check::<F32<true>>, run::<F32<true>>) };
/// The same over the vectors of hosts, with functions of its own.
pub const MAP_MATH_WIDE_F32: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(103, 4, 0, check::<F32<true>>, run::<F32<true>>) };

/// An instruction's parts.
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    to: usize,
    operands: [usize; 3],
    index: usize,
}

fn decode(word: u32) -> Instruction {
    let register = |shift: u32| (word >> shift & 15) as usize;
    Instruction {
        code: word as u8,
        to: register(8),
        operands: [register(12), register(16), register(20)],
        index: (word >> 24) as usize,
    }
}

/// The words in their parts.
struct Parts<'a> {
    sizes: &'a [u32],
    strides: &'a [u32],
    immediates: &'a [u32],
    prologue: &'a [u32],
    body: &'a [u32],
}

impl MapParameters {
    fn parts(&self) -> Option<Parts<'_>> {
        let strides = self.axes.checked_mul(self.inputs)?;
        let (sizes, rest) = self.words.split_at_checked(self.axes as usize)?;
        let (strides, rest) = rest.split_at_checked(strides as usize)?;
        let (immediates, rest) = rest.split_at_checked(self.immediates as usize)?;
        let (prologue, body) = rest.split_at_checked(self.prologue as usize)?;
        let whole = rest.len() == self.instructions as usize;
        whole.then_some(Parts { sizes, strides, immediates, prologue, body })
    }
}

/// How an input lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Like the output.
    Dense,
    /// One element for all.
    Single,
    /// At strides.
    Strided,
}

impl<'a> Parts<'a> {
    fn strides(&self, input: usize) -> Option<&'a [u32]> {
        self.strides.chunks_exact(self.sizes.len().max(1)).nth(input)
    }

    fn layout(&self, input: usize) -> Layout {
        let Some(strides) = self.strides(input) else { return Layout::Single };
        if strides.iter().all(|&stride| stride == 0) {
            return Layout::Single;
        }
        let mut stride = 1u32;
        for (&own, &size) in strides.iter().zip(self.sizes).rev() {
            if own != stride {
                return Layout::Strided;
            }
            stride = stride.wrapping_mul(size);
        }
        Layout::Dense
    }
}

fn check<A: Arithmetic>(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<MapParameters>() else { return false };
    let Some(parts) = p.parts() else { return false };
    let size = |bool_bit: u32| if p.bools & bool_bit == 0 { 4 } else { 1 };
    let out = size(OUTPUT_BOOL);
    let Some(pitch) = p.blocks.row_length.checked_mul(out) else { return false };
    let input_fits = |(input, strides): (usize, &[u32])| {
        let size = size(1u32.wrapping_shl(input as u32));
        strided::reach(parts.sizes, strides).saturating_mul(size as u64) <= call.input(input).len as u64
    };
    let sound = |word: &u32| {
        let i = decode(*word);
        match i.code {
            INPUT => i.index < p.inputs as usize,
            IMMEDIATE => i.index < parts.immediates.len(),
            code => A::arity(code).is_some_and(|n| i.operands.iter().take(n).all(|&operand| operand != i.to)),
        }
    };
    // What comes once stands for whole registers, so it must not depend on where in the output they are.
    let constant = |word: &u32| {
        let i = decode(*word);
        i.code == IMMEDIATE || i.code == INPUT && parts.layout(i.index) == Layout::Single
    };
    (1..=MAX_AXES).contains(&parts.sizes.len())
        && p.inputs < 31
        && strided::elements(parts.sizes) == Some(p.blocks.length as u64)
        && p.blocks.fit(call.output(0), call.rows.end, pitch, out)
        && parts.strides.chunks_exact(parts.sizes.len().max(1)).enumerate().all(input_fits)
        && !parts.body.is_empty()
        && parts.prologue.iter().chain(parts.body).all(sound)
        && parts.prologue.iter().all(constant)
}

/// Registers in memory; on hosts no vector of one lies across lines of the cache.
#[cfg_attr(feature = "host", repr(align(64)))]
struct Own<T>([Lanes<T>; REGISTERS]);

/// The registers, and for those that stand for elements of an input where they lie.
struct Registers<A: Arithmetic> {
    own: *mut Lanes<A::Element>,
    at: [Option<*const A::Element>; REGISTERS],
}

impl<A: Arithmetic> Registers<A> {
    /// Where a register's value is to be read.
    fn value(&self, register: usize) -> *const A::Element {
        let own = self.own.wrapping_add(register).cast::<A::Element>().cast_const();
        self.at.get(register).copied().flatten().unwrap_or(own)
    }
}

/// The interpreter over a call.
struct Machine<'a, A> {
    call: &'a Call<'a>,
    bools: u32,
    parts: Parts<'a>,
    arithmetic: PhantomData<A>,
}

impl<A: Arithmetic> Machine<'_, A> {
    /// Runs instructions for `n` elements, the first of them number `first` of the output.
    ///
    /// # Safety
    ///
    /// `check` accepted the call; `registers.own` points to [`REGISTERS`]; the elements lie inside the output,
    /// and `n` is at most [`LANES`]; or no instruction reads an input that has more than one element.
    #[inline(always)]
    unsafe fn step(&self, registers: &mut Registers<A>, code: &[u32], first: usize, n: usize) {
        for &word in code {
            let i = decode(word);
            let from = i.operands.map(|operand| registers.value(operand));
            let Some(at) = registers.at.get_mut(i.to) else { return };
            *at = None;
            // SAFETY: a register's number has four bits, so it is one of the 16. Nothing refers to it: others
            // are read through raw pointers.
            let to = unsafe { &mut *registers.own.wrapping_add(i.to) };
            match i.code {
                IMMEDIATE => {
                    let value = A::from_bits(self.parts.immediates.get(i.index).copied().unwrap_or(0));
                    to.iter_mut().take(n).for_each(|lane| *lane = value);
                }
                // SAFETY: the caller's promise.
                INPUT => *at = unsafe { self.read(to, i.index, first, n) },
                // SAFETY: `n` elements can be read from every register: it holds as many as there are lanes,
                // or points into an input where as many lie. `check` saw that none that is read is set.
                code => unsafe { A::apply(code, to, n, from) },
            }
        }
    }

    /// Reads elements of an input into `to`, or says where they are.
    ///
    /// # Safety
    ///
    /// As for [`Machine::step`].
    #[inline(never)]
    unsafe fn read(
        &self,
        to: &mut Lanes<A::Element>,
        input: usize,
        first: usize,
        n: usize,
    ) -> Option<*const A::Element> {
        let window = self.call.input(input);
        let narrow = self.bools.wrapping_shr(input as u32) & 1 == 1;
        // SAFETY: `check` proved that the farthest element at the strides lies inside the window.
        let element = |position: usize| unsafe {
            if narrow {
                A::from_byte(window.ptr.wrapping_add(position).read())
            } else {
                window.ptr.cast::<A::Element>().wrapping_add(position).read()
            }
        };
        match self.parts.layout(input) {
            Layout::Dense if !narrow => {
                return Some(window.ptr.cast::<A::Element>().wrapping_add(first).cast_const());
            }
            Layout::Single => {
                let value = element(0);
                to.iter_mut().take(n).for_each(|lane| *lane = value);
            }
            Layout::Dense => {
                to.iter_mut().take(n).enumerate().for_each(|(i, lane)| *lane = element(first.wrapping_add(i)));
            }
            Layout::Strided => {
                let strides = self.parts.strides(input).unwrap_or(&[]);
                let mut walk = Walk::new(self.parts.sizes, strides, first);
                let mut rest = to.get_mut(..n).unwrap_or(&mut []);
                while !rest.is_empty() {
                    let run = walk.next(rest.len());
                    let Some((lanes, more)) = core::mem::take(&mut rest).split_at_mut_checked(run.length) else {
                        break;
                    };
                    let mut position = run.position;
                    if run.stride == 1 && !narrow {
                        lanes.iter_mut().enumerate().for_each(|(i, lane)| *lane = element(position.wrapping_add(i)));
                    } else {
                        for lane in lanes {
                            *lane = element(position);
                            position = position.wrapping_add(run.stride);
                        }
                    }
                    rest = more;
                }
            }
        }
        None
    }
}

/// Writes `n` results from element `first` of the output on.
///
/// # Safety
///
/// `n` results can be read at `from`; the output has these elements.
unsafe fn write<A: Arithmetic>(output: Window, narrow: bool, from: *const A::Element, first: usize, n: usize) {
    if narrow {
        let to = output.ptr.wrapping_add(first);
        for i in 0..n {
            // SAFETY: the caller's promise.
            unsafe { to.wrapping_add(i).write(A::is_true(from.add(i).read()) as u8) };
        }
    } else {
        let to = output.ptr.cast::<A::Element>().wrapping_add(first);
        // SAFETY: the caller's promise. Results that are an input may lie where the output is.
        unsafe { core::ptr::copy(from, to, n) };
    }
}

#[inline(always)]
unsafe fn run<A: Arithmetic>(call: &Call<'_>) {
    let Some(p) = call.parameters::<MapParameters>() else { return };
    let Some(parts) = p.parts() else { return };
    let Some(&last) = parts.body.last() else { return };
    let (prologue, body, result) = (parts.prologue, parts.body, decode(last).to);
    let machine = Machine::<A> { call, bools: p.bools, parts, arithmetic: PhantomData };
    let mut own = Own([[A::ZERO; LANES]; REGISTERS]);
    let mut registers = Registers::<A> { own: own.0.as_mut_ptr(), at: [None; REGISTERS] };
    // SAFETY: `check` saw that the prologue reads immediates and single elements.
    unsafe { machine.step(&mut registers, prologue, 0, LANES) };
    let row = p.blocks.row_length as usize;
    let end = (call.rows.end as usize).saturating_mul(row).min(p.blocks.length as usize);
    let mut first = (call.rows.begin as usize).wrapping_mul(row);
    while first < end {
        let n = LANES.min(end.wrapping_sub(first));
        // SAFETY: `check` proved that the rows' elements lie inside the output.
        unsafe { machine.step(&mut registers, body, first, n) };
        let from = registers.value(result);
        // SAFETY: as above; a register, and an input that stands for one, has `n` readable elements.
        unsafe { write::<A>(call.output(0), p.bools & OUTPUT_BOOL != 0, from, first, n) };
        first = first.wrapping_add(n);
    }
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::zerocopy::IntoBytes;
    use kiln_core::{DType, MAX_RANK, TargetId};
    use kiln_ops::{MAX_INPUTS, Op, OpError};

    use super::*;
    use crate::map_program::{Code, compile};
    use crate::table::{Direction, Kernel, Operand, Operation};
    use crate::vector::native;
    use crate::{blocks, lowering};

    /// The kernel of a row.
    macro_rules! map {
        ($row:ident, $name:literal, $arithmetic:ty, $dtype:ident, $native:expr) => {
            pub(crate) const $row: Kernel = Kernel {
                number: super::$row.number(),
                name: $name,
                row_name: stringify!($row),
                targets: &[],
                directions: &[Direction::Up],
                applies: |operation| parameters::<$arithmetic>(operation, DType::$dtype).is_some(),
                prepare: |operation, emit| {
                    let p = parameters::<$arithmetic>(operation, DType::$dtype).ok_or(OpError::TooLarge)?;
                    (0..tensors(operation).len()).for_each(|input| emit.input(input));
                    emit.parameters(p.words.get(..p.used).unwrap_or(&[]).as_bytes());
                    emit.rows(p.rows);
                    Ok(())
                },
                lag: |operation, input, _| {
                    parameters::<$arithmetic>(operation, DType::$dtype).and_then(|_| lag(operation, input))
                },
                portable: super::$row,
                native: $native,
                work: None,
            };
        };
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn wide<V: crate::wide::Wide>(call: &Call<'_>) {
        // SAFETY: the caller's promise.
        unsafe { run::<crate::lanes_wide::WideF32<V, false>>(call) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn wide_math<V: crate::wide::Wide>(call: &Call<'_>) {
        // SAFETY: the caller's promise.
        unsafe { run::<crate::lanes_wide::WideF32<V, true>>(call) }
    }

    map!(MAP_F32, "map_f32", F32<false>, F32, native!(super::MAP_F32, check::<F32<false>>, wide, run::<F32<false>>));
    map!(MAP_I32, "map_i32", I32, I32, None);
    map!(MAP_MATH_F32, "map_math_f32", F32<true>, F32, None);

    pub(crate) const MAP_MATH_WIDE_F32: Kernel = Kernel {
        number: super::MAP_MATH_WIDE_F32.number(),
        name: "map_math_wide_f32",
        row_name: "MAP_MATH_WIDE_F32",
        targets: &[TargetId::X86_64_V3],
        portable: super::MAP_MATH_WIDE_F32,
        native: native!(super::MAP_MATH_WIDE_F32, check::<F32<true>>, wide_math, run::<F32<true>>),
        work: None,
        ..MAP_MATH_F32
    };

    /// Parameters as they grow.
    struct Parameters {
        words: [u32; 512],
        used: usize,
        rows: u32,
    }

    impl Parameters {
        fn push(&mut self, words: &[u32]) -> Option<()> {
            let end = self.used.checked_add(words.len())?;
            self.words.get_mut(self.used..end)?.copy_from_slice(words);
            self.used = end;
            Some(())
        }
    }

    /// The inputs that are tensors: all but the program of a chain.
    fn tensors<'a>(operation: &Operation<'a>) -> &'a [Operand<'a>] {
        match (operation.op, operation.inputs) {
            (Op::Fused(_), [tensors @ .., _]) => tensors,
            _ => operation.inputs,
        }
    }

    fn parameters<A: Arithmetic>(operation: &Operation<'_>, dtype: DType) -> Option<Parameters> {
        let tensors = tensors(operation);
        let known = |o: &Operand<'_>| o.ty.dtype == dtype || o.ty.dtype == DType::Bool;
        let right = matches!(operation.op, Op::Map(_) | Op::Fused(_)) && lowering::is_consistent(operation);
        if !right || !known(&operation.output) || !tensors.iter().all(known) {
            return None;
        }
        let shape = &operation.output.ty.shape;
        let (blocks, rows) = blocks::host::cut(&operation.output.ty)?;
        let mut strides = [[0usize; MAX_RANK]; MAX_INPUTS];
        let mut bools = if operation.output.ty.dtype == DType::Bool { OUTPUT_BOOL } else { 0 };
        let mut singles = 0u32;
        for (i, (to, x)) in strides.iter_mut().zip(tensors).enumerate() {
            *to = kiln_ops::strides(&x.ty.shape, shape);
            bools |= u32::from(x.ty.dtype == DType::Bool) << i;
            singles |= u32::from(x.ty.shape.elements() == Some(1)) << i;
        }
        let axes = strided::host::axes(shape, &strides)?;
        let code: Code = compile(operation, tensors.len(), singles)?;
        let known = |word: &u32| decode(*word).code & INPUT != 0 || A::arity(decode(*word).code).is_some();
        if !code.words().iter().all(known) {
            return None;
        }
        let mut p = Parameters { words: [0; 512], used: 0, rows };
        p.push(&[blocks.row_length, blocks.length, axes.used as u32, tensors.len() as u32, bools])?;
        p.push(&[code.immediates().len() as u32, code.prologue as u32, code.words().len() as u32])?;
        p.push(axes.sizes.get(..axes.used)?)?;
        for strides in axes.strides.iter().take(tensors.len()) {
            p.push(strides.get(..axes.used)?)?;
        }
        p.push(code.immediates())?;
        p.push(code.words())?;
        Some(p)
    }

    /// Inputs that are walked like the output are read before it is written; other inputs are needed again.
    fn lag(operation: &Operation<'_>, input: usize) -> Option<u64> {
        let x = tensors(operation).get(input)?;
        let y = &operation.output.ty;
        (x.ty.shape.elements() == y.shape.elements() && x.ty.dtype.bits() >= y.dtype.bits()).then_some(0)
    }
}
