//! From an operator to the kernels that compute it.

mod compound;
mod elementwise;
mod movement;
mod reduction;

use kiln_core::{DType, TensorType};
use kiln_ops::{Activation, Distribution, Function, Op, Program, strides};
use kiln_planner::backend::BackendError;

use crate::gpu::{Buffer, Gpu};
use crate::kernels::{self, Convolution, ConvolutionKind, LONG, Load, Pool, PoolKind};
use crate::library;
use compound::{fully_connected, softmax};
use elementwise::{Elementwise, clamp};
use movement::{cut, dense, gather, spread};
use reduction::{arg_max, passes, reduce};

/// An operator that is ready to run: computes its output from its inputs, all as words.
pub(crate) type Step = Box<dyn Fn(&Gpu, &[&Buffer]) -> Result<Buffer, BackendError> + Send>;

/// The most rounds that loops of one thread take: Mesa's driver for CPUs ends them after 65,535, without a word.
const MOST_ROUNDS: u64 = 1 << 15;

/// What a node computes, as far as kernels are concerned.
pub(crate) struct Task<'a> {
    pub(crate) op: &'a Op,
    pub(crate) inputs: &'a [TensorType],
    pub(crate) output: &'a TensorType,
    /// The bytes of the last input, where they are known: a chain's program.
    pub(crate) program: Option<&'a [u8]>,
}

/// Whether a tensor of this type can be words that kernels read.
pub(crate) fn is_words(ty: &TensorType) -> bool {
    load(ty).is_some()
}

fn load(ty: &TensorType) -> Option<Load> {
    match ty.dtype {
        DType::F32 => Some(Load::Float),
        DType::I32 => Some(Load::Integer),
        DType::Bool => Some(Load::Truth),
        _ => None,
    }
}

impl Task<'_> {
    /// Whether there are kernels for it. A chain's program is not needed for the answer: they know every function.
    pub(crate) fn is_supported(&self, gpu: &Gpu) -> bool {
        let tensors = self.tensors();
        let floats = tensors.iter().chain([self.output]).all(|ty| ty.dtype == DType::F32);
        let kernels = match self.op {
            Op::Conv2d(_) | Op::FullyConnected(_) | Op::Pool2d(_) | Op::Softmax(_) | Op::Add(_) => floats,
            Op::LogSoftmax(_) | Op::MatMul(_) | Op::Conv2dInputGrad(_) | Op::Conv2dWeightGrad(_) => floats,
            Op::AveragePool2dGrad(_) | Op::MaxPool2dGrad(_) | Op::MaxPool2dPick(_) => floats,
            Op::ArgMax(_) | Op::Reduce(_) => tensors.iter().all(|ty| ty.dtype != DType::Bool),
            Op::Reshape(_) | Op::Copy(_) | Op::Transpose(_) | Op::Expand(_) | Op::Slice(_) | Op::Scatter(_) => true,
            Op::Concat(_) | Op::Cast(_) | Op::Random(_) | Op::Map(_) => true,
            // The inputs, the output, and the layout.
            Op::Fused(_) => tensors.len() + 2 <= gpu.max_buffers(),
            Op::Quantize(_) | Op::Dequantize(_) | Op::AveragePool2dPart(_) => false,
        };
        kernels && self.rounds() <= MOST_ROUNDS && tensors.iter().chain([self.output]).all(is_words)
    }

    /// How many rounds of its loops a thread takes at most.
    fn rounds(&self) -> u64 {
        let product = |sizes: &[u32]| sizes.iter().map(|&size| u64::from(size)).product::<u64>();
        let input = |i: usize| self.inputs.get(i).map_or([1; 4], four);
        match self.op {
            Op::Conv2d(_) => product(&input(1)[1..]),
            Op::Conv2dInputGrad(op) => {
                let [o, height, width, _] = input(1);
                product(&[o / op.conv.groups.max(1), height, width])
            }
            Op::Conv2dWeightGrad(_) => kernels::weight_rounds(four(self.output), input(1)),
            Op::Pool2d(op) => product(&op.kernel),
            Op::AveragePool2dGrad(op) => product(&op.pool.kernel),
            Op::MaxPool2dPick(op) => product(&op.pool.kernel),
            // It looks through every window that an element is in.
            Op::MaxPool2dGrad(op) => product(&op.pool.kernel).saturating_mul(product(&op.pool.kernel)),
            Op::ArgMax(op) => u64::from(self.inputs.first().map_or(1, |x| x.shape.dim(op.axis as usize))),
            _ => 0,
        }
    }

    /// How many words its kernels need between them.
    pub(crate) fn scratch(&self) -> usize {
        let elements = count(self.output);
        match self.op {
            Op::FullyConnected(op) if self.inputs.len() > 2 || op.activation != Activation::None => elements,
            Op::Softmax(_) | Op::LogSoftmax(_) => 2 * elements + 2 * self.output.shape.outer().unwrap_or(0) as usize,
            Op::Conv2dWeightGrad(_) => {
                kernels::weight_scratch(four(self.output), self.inputs.get(1).map_or([1; 4], four))
            }
            // Parts, or what is left after one group of axes.
            Op::Reduce(op) => {
                let passes = self.inputs.first().map_or(Vec::new(), |x| passes(&x.shape, op.axes));
                let left = |[outer, count, inner]: [usize; 3]| outer * inner * count.div_ceil(LONG);
                passes.into_iter().map(left).filter(|&left| left > elements).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// The inputs that are tensors: a chain's program is bytes, and part of the kernel.
    pub(crate) fn tensors(&self) -> &[TensorType] {
        match (self.op, self.inputs) {
            (Op::Fused(_), [tensors @ .., _]) => tensors,
            (_, inputs) => inputs,
        }
    }

    /// Makes it ready; it must be supported.
    pub(crate) fn step(&self, gpu: &Gpu) -> Result<Step, BackendError> {
        let output = *self.output;
        Ok(match *self.op {
            Op::Map(map) => {
                let operands = core::array::from_fn(|i| i as u8);
                self.expression(gpu, &[(map.function, operands)], &[])?
            }
            Op::Cast(_) => self.expression(gpu, &[], &[])?,
            Op::Add(add) => {
                let (mut instructions, mut immediates) = (vec![(Function::Add, [0, 1, 0])], Vec::new());
                clamp(add.activation, 2, &mut instructions, &mut immediates);
                self.expression(gpu, &instructions, &immediates)?
            }
            Op::Fused(_) => {
                let inputs = self.inputs.len().saturating_sub(1);
                let bytes = self.program.unwrap_or_default();
                let program = Program::new(bytes, inputs).ok_or_else(|| gpu.refused("fused", "a wrong program"))?;
                let instructions: Vec<_> = program.instructions().map(|i| (i.function, i.operands)).collect();
                let immediates: Vec<f32> = program.immediates().collect();
                self.expression(gpu, &instructions, &immediates)?
            }
            Op::Reshape(_) | Op::Copy(_) => Box::new(|gpu, inputs| first(gpu, inputs).cloned()),
            Op::Transpose(op) => {
                let dense = dense(&self.inputs[0].shape);
                let axes: Vec<usize> = op.axes(output.shape.rank()).map(|axis| dense[axis]).collect();
                gather(gpu, &output.shape, 0, &axes)?
            }
            Op::Expand(_) => gather(gpu, &output.shape, 0, &strides(&self.inputs[0].shape, &output.shape))?,
            Op::Slice(op) => {
                let (start, walk) = cut(&self.inputs[0].shape, &op.begin, &op.step);
                gather(gpu, &output.shape, start, &walk)?
            }
            Op::Scatter(op) => {
                let (start, walk) = cut(&output.shape, &op.begin, &op.step);
                spread(gpu, &output, vec![(self.inputs[0].shape, start)], walk)?
            }
            Op::Concat(op) => {
                let walk = dense(&output.shape);
                let mut start = 0;
                let mut parts = Vec::new();
                for input in self.inputs {
                    parts.push((input.shape, start));
                    start += walk[op.axis as usize] * input.shape.dim(op.axis as usize) as usize;
                }
                spread(gpu, &output, parts, walk)?
            }
            Op::Reduce(op) => reduce(gpu, op, &self.inputs[0], &output)?,
            Op::ArgMax(op) => arg_max(gpu, op, &self.inputs[0], &output)?,
            Op::MatMul(op) => {
                let sizes = op.sizes(&self.inputs[0], &self.inputs[1]).map_err(|e| gpu.refused("matmul", e))?;
                let transposed = [op.transpose_a, op.transpose_b];
                Box::new(move |gpu, inputs| {
                    let [a, b] = two(gpu, inputs)?;
                    library::matmul(gpu, a, b, sizes, transposed)
                })
            }
            Op::FullyConnected(op) => fully_connected(gpu, op.activation, self.inputs, &output)?,
            Op::Softmax(op) => softmax(gpu, &output, op.beta, false)?,
            Op::LogSoftmax(_) => softmax(gpu, &output, 1.0, true)?,
            Op::Random(op) => {
                let (elements, normal) = (count(&output), op.distribution == Distribution::Normal);
                Box::new(move |gpu, inputs| kernels::random(gpu, first(gpu, inputs)?, elements, normal))
            }
            Op::Conv2d(op) => {
                let sizes = [four(&self.inputs[0]), four(&self.inputs[1]), four(&output)];
                convolution(Convolution::new(gpu, ConvolutionKind::Forward, &op, sizes)?)
            }
            Op::Conv2dInputGrad(op) => {
                let sizes = [four(&output), four(&self.inputs[1]), four(&self.inputs[0])];
                convolution(Convolution::new(gpu, ConvolutionKind::InputGradient, &op.conv, sizes)?)
            }
            Op::Conv2dWeightGrad(op) => {
                let sizes = [four(&self.inputs[0]), four(&output), four(&self.inputs[1])];
                convolution(Convolution::new(gpu, ConvolutionKind::WeightGradient, &op.conv, sizes)?)
            }
            Op::Pool2d(op) => {
                let kind = match op.kind {
                    kiln_ops::PoolKind::Average => PoolKind::Average,
                    kiln_ops::PoolKind::Max => PoolKind::Max,
                };
                pool(Pool::new(gpu, kind, &op, [four(&self.inputs[0]), four(&output)])?)
            }
            Op::AveragePool2dGrad(op) => {
                let sizes = [four(&output), four(&self.inputs[0])];
                pool(Pool::new(gpu, PoolKind::AverageGradient, &op.pool, sizes)?)
            }
            Op::MaxPool2dGrad(op) => {
                let sizes = [four(&output), four(&self.inputs[1])];
                pool(Pool::new(gpu, PoolKind::MaxGradient, &op.pool, sizes)?)
            }
            Op::MaxPool2dPick(op) => {
                let sizes = [four(&self.inputs[0]), four(&output)];
                pool(Pool::new(gpu, PoolKind::MaxPick, &op.pool, sizes)?)
            }
            Op::Quantize(_) | Op::Dequantize(_) | Op::AveragePool2dPart(_) => {
                return Err(gpu.refused(self.op.name(), "it has no kernel"));
            }
        })
    }

    /// An expression over the tensors, broadcast to the output.
    fn expression(
        &self,
        gpu: &Gpu,
        instructions: &[(Function, [u8; 3])],
        immediates: &[f32],
    ) -> Result<Step, BackendError> {
        let tensors = self.tensors();
        // A chain's values are floating-point numbers whatever it reads and gives.
        let float =
            matches!(self.op, Op::Fused(_)) || tensors.iter().chain([self.output]).any(|ty| ty.dtype == DType::F32);
        let from_integer = matches!(self.op, Op::Cast(_)) && tensors.iter().all(|ty| ty.dtype == DType::I32);
        let integer = !float || from_integer;
        let expression = Elementwise::new(gpu, integer, tensors, self.output, instructions, immediates)?;
        Ok(Box::new(move |gpu, inputs| expression.run(gpu, inputs)))
    }
}

fn count(ty: &TensorType) -> usize {
    ty.shape.elements().unwrap_or(0) as usize
}

fn four(ty: &TensorType) -> [u32; 4] {
    core::array::from_fn(|axis| ty.shape.dim(axis))
}

fn convolution(convolution: Convolution) -> Step {
    Box::new(move |gpu, inputs| convolution.run(gpu, inputs))
}

fn pool(pool: Pool) -> Step {
    Box::new(move |gpu, inputs| pool.run(gpu, inputs))
}

fn first<'b>(gpu: &Gpu, inputs: &[&'b Buffer]) -> Result<&'b Buffer, BackendError> {
    inputs.first().copied().ok_or_else(|| gpu.refused("an operator", "it has no input"))
}

fn two<'b>(gpu: &Gpu, inputs: &[&'b Buffer]) -> Result<[&'b Buffer; 2], BackendError> {
    match inputs {
        [a, b, ..] => Ok([a, b]),
        _ => Err(gpu.refused("an operator", "it has one input")),
    }
}
