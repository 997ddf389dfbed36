//! Chains of functions as one operator: a small program that runs once an element.

use kiln_core::{DType, Shape, TensorType};

use crate::broadcast::{broadcast_to, position, strides};
use crate::{Arg, ArgMut, Function, OpError, Operator};

/// The most inputs a program reads.
pub const MAX_INPUTS: usize = 12;
/// The most values a program handles: inputs, immediates and results together.
pub const MAX_VALUES: usize = 64;

/// A program over the elements of some inputs: bytes as they lie in a graph or a plan.
///
/// The bytes: how many instructions, how many immediates, two zeros; then the immediates, float32
/// little-endian; then the instructions, four bytes each: a function's number and three operands, of which it
/// reads as many as it takes. An operand is a value's number: first the inputs, then the immediates, then the
/// instructions' results in order. The last result is the output.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    inputs: usize,
    immediates: &'a [u8],
    instructions: &'a [u8],
}

/// An instruction of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// What it computes.
    pub function: Function,
    /// Numbers of the values it reads; those beyond the function's inputs mean nothing.
    pub operands: [u8; 3],
}

impl<'a> Program<'a> {
    /// Checks the bytes of a program over `inputs` inputs: every function known, every operand computed
    /// before, nothing left over.
    pub fn new(bytes: &'a [u8], inputs: usize) -> Option<Program<'a>> {
        let [count, immediates, 0, 0, rest @ ..] = bytes else { return None };
        let (count, constants) = (*count as usize, *immediates as usize);
        let (immediates, instructions) = rest.split_at_checked(constants * 4)?;
        let values = inputs.checked_add(constants)?.checked_add(count)?;
        if count == 0 || inputs > MAX_INPUTS || values > MAX_VALUES || instructions.len() != count * 4 {
            return None;
        }
        let program = Program { inputs, immediates, instructions };
        for (known, bytes) in (inputs + constants..).zip(instructions.chunks_exact(4)) {
            let instruction = decode(bytes)?;
            let read = instruction.operands.get(..instruction.function.arity())?;
            if read.iter().any(|&operand| operand as usize >= known) {
                return None;
            }
        }
        Some(program)
    }

    /// How many inputs it reads.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The immediates in order.
    pub fn immediates(&self) -> impl Iterator<Item = f32> + 'a {
        self.immediates.chunks_exact(4).map(|c| match *c {
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
            _ => 0.0,
        })
    }

    /// The instructions in order.
    pub fn instructions(&self) -> impl Iterator<Item = Instruction> + 'a {
        self.instructions.chunks_exact(4).filter_map(decode)
    }

    /// The program's output for one element of each input.
    fn element(&self, inputs: [f64; MAX_INPUTS]) -> f64 {
        let mut values = [0.0; MAX_VALUES];
        let mut count = 0;
        let results = inputs.into_iter().take(self.inputs).chain(self.immediates().map(f64::from));
        for (place, value) in values.iter_mut().zip(results) {
            *place = value;
            count += 1;
        }
        let mut last = 0.0;
        for instruction in self.instructions() {
            let x = instruction.operands.map(|operand| values.get(operand as usize).copied().unwrap_or(0.0));
            last = instruction.function.real(x);
            if let Some(place) = values.get_mut(count) {
                *place = last;
            }
            count += 1;
        }
        last
    }
}

fn decode(bytes: &[u8]) -> Option<Instruction> {
    let &[function, a, b, c] = bytes else { return None };
    Some(Instruction { function: Function::from_code(function)?, operands: [a, b, c] })
}

/// A chain of functions of float32 (or float64) and bool elements, all of one broadcast shape. Inputs: up to
/// [`MAX_INPUTS`] tensors, then the [`Program`], uint8 of rank 1.
///
/// Values between the functions are floating point, truth is 1 and 0. float32 is computed in float32 by kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Fused {
    /// The output's element type: float32, float64 or bool.
    pub dtype: DType,
    /// The output's shape, which the inputs broadcast to.
    pub shape: Shape,
}

impl Operator for Fused {
    const NAME: &'static str = "fused";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [tensors @ .., program] = inputs else { return Err(OpError::Inputs(1, MAX_INPUTS + 1, 0)) };
        if tensors.len() > MAX_INPUTS {
            return Err(OpError::Inputs(1, MAX_INPUTS + 1, inputs.len()));
        }
        if program.dtype != DType::U8 {
            return Err(OpError::DType(tensors.len(), program.dtype));
        }
        for (i, x) in tensors.iter().enumerate() {
            if !matches!(x.dtype, DType::F32 | DType::F64 | DType::Bool) {
                return Err(OpError::DType(i, x.dtype));
            }
        }
        if !matches!(self.dtype, DType::F32 | DType::F64 | DType::Bool) {
            return Err(OpError::Attribute("dtype", self.dtype as u64));
        }
        let shape = broadcast_to(tensors.iter().map(|x| x.shape), self.shape)?;
        Ok(TensorType::new(self.dtype, shape))
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [tensors @ .., program] = inputs else { return Err(OpError::Inputs(1, MAX_INPUTS + 1, 0)) };
        let program = Program::new(program.data, tensors.len()).ok_or(OpError::Attribute("program", 0))?;
        let shape = y.ty.shape;
        for i in 0..y.elements() {
            let mut x = [0.0; MAX_INPUTS];
            for (to, tensor) in x.iter_mut().zip(tensors) {
                *to = tensor.real(position(&shape, &strides(&tensor.ty.shape, &shape), i));
            }
            y.set_real(i, program.element(x));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;

    /// `max(a * 2 + b, 0)`.
    fn program() -> Vec<u8> {
        let (mul, add, max) = (Function::Mul as u8, Function::Add as u8, Function::Max as u8);
        let mut bytes = vec![3, 2, 0, 0];
        bytes.extend([2f32, 0.0].iter().flat_map(|v| v.to_le_bytes()));
        bytes.extend([mul, 0, 2, 0, add, 4, 1, 0, max, 5, 3, 0]);
        bytes
    }

    #[test]
    fn a_program_runs_once_an_element() {
        let program = program();
        let op = Fused { dtype: DType::F32, shape: Shape::new(&[2, 2]).unwrap() };
        let ty = |dtype, dims: &[u32]| TensorType::new(dtype, Shape::new(dims).unwrap());
        let types = [ty(DType::F32, &[2, 2]), ty(DType::F32, &[2]), ty(DType::U8, &[program.len() as u32])];
        let out_ty = op.output(&types).unwrap();
        let bytes = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let (a, b) = (bytes(&[1.0, 2.0, -3.0, 4.0]), bytes(&[0.5, -10.0]));
        let quant = QuantRef::default();
        let data: [&[u8]; 3] = [&a, &b, &program];
        let args: [Arg<'_>; 3] = core::array::from_fn(|i| Arg { ty: types[i], quant, data: data[i] });
        let mut out = [0u8; 16];
        op.reference(&args, &mut ArgMut { ty: out_ty, quant, data: &mut out }).unwrap();
        assert_eq!(out.to_vec(), bytes(&[2.5, 0.0, 0.0, 0.0]));
    }

    #[test]
    fn broken_programs_are_refused() {
        let good = program();
        assert!(Program::new(&good, 2).is_some());
        for cut in 0..good.len() {
            assert!(Program::new(&good[..cut], 2).is_none(), "{cut} bytes");
        }
        // Values that come later, unknown functions, one byte too many, too many inputs.
        for (at, byte) in [(13, 7), (12, 0), (12, 200), (2, 1), (0, 4)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(Program::new(&bad, 2).is_none(), "byte {at} as {byte}");
        }
        assert!(Program::new(&[good.clone(), vec![0]].concat(), 2).is_none());
        assert!(Program::new(&good, MAX_INPUTS + 1).is_none());
    }
}
