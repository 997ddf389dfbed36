//! Expressions, laid out for the shapes of one step.

use kiln_core::TensorType;
use kiln_ops::{Activation, Function, strides};
use kiln_planner::backend::BackendError;

use super::{count, load};
use crate::gpu::{Buffer, Gpu};
use crate::kernels::{Expression, Load, Walk, expression};

/// An expression over tensors that broadcast to its output.
pub(super) struct Elementwise {
    expression: Expression,
    layout: Buffer,
    elements: usize,
}

impl Elementwise {
    /// The expression of these instructions; `integer` says whether its values are int32.
    pub(super) fn new(
        gpu: &Gpu,
        integer: bool,
        inputs: &[TensorType],
        output: &TensorType,
        instructions: &[(Function, [u8; 3])],
        immediates: &[f32],
    ) -> Result<Elementwise, BackendError> {
        let rank = output.shape.rank();
        let mut layout = output.shape.dims().to_vec();
        let mut walks = Vec::with_capacity(inputs.len());
        for input in inputs {
            // As many elements are the same ones in the same order.
            let walk = match input.shape.elements() {
                own if own == output.shape.elements() => Walk::Same,
                Some(1) => Walk::One,
                _ => Walk::Strided,
            };
            walks.push((load(input).unwrap_or(Load::Float), walk));
            layout.extend(strides(&input.shape, &output.shape)[..rank].iter().map(|&stride| stride as u32));
        }
        layout.extend(immediates.iter().map(|value| value.to_bits()));
        let expression = Expression {
            integer,
            inputs: walks,
            immediates: immediates.len(),
            instructions: instructions.to_vec(),
            store: load(output).unwrap_or(Load::Float),
            rank,
        };
        Ok(Elementwise { expression, layout: gpu.write_words(&layout)?, elements: count(output) })
    }

    pub(super) fn run(&self, gpu: &Gpu, inputs: &[&Buffer]) -> Result<Buffer, BackendError> {
        expression(gpu, &self.expression, inputs, &self.layout, self.elements)
    }

    /// Whether it gives its input as it is.
    pub(super) fn is_empty(&self) -> bool {
        self.expression.instructions.is_empty()
    }
}

/// Adds what an activation does to the last value, NaN passing through. Values are `inputs` inputs, then the immediates
/// that it adds, then instructions, which so far read inputs only.
pub(super) fn clamp(
    activation: Activation,
    inputs: u8,
    instructions: &mut Vec<(Function, [u8; 3])>,
    immediates: &mut Vec<f32>,
) {
    let (low, high) = activation.bounds();
    let bounds = [(low, false), (high, true)].into_iter().filter(|(bound, _)| bound.is_finite());
    let bounds: Vec<(f32, bool)> = bounds.collect();
    immediates.extend(bounds.iter().map(|(bound, _)| *bound));
    let mut x = if instructions.is_empty() { 0 } else { inputs + bounds.len() as u8 + instructions.len() as u8 - 1 };
    for (i, (_, upper)) in bounds.iter().enumerate() {
        let bound = inputs + i as u8;
        let next = inputs + bounds.len() as u8 + instructions.len() as u8;
        let outside = if *upper { [bound, x, 0] } else { [x, bound, 0] };
        instructions.push((Function::Less, outside));
        instructions.push((Function::Select, [next, bound, x]));
        x = next + 1;
    }
}
