//! What every operator says of itself.

use kiln_core::TensorType;

use crate::{Arg, ArgMut, OpError};

/// How an operator's output relates to its inputs' memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The output is memory of its own. (Kernels may still let it overlap an input, by their lag.)
    Fresh,
    /// The output is input `i` under another type; nothing is computed.
    View(usize),
}

/// What one run of an operator costs, whatever computes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Multiply-accumulates; padded taps count, as is usual.
    pub macs: u64,
    /// Bytes of all inputs and the output.
    pub bytes: u64,
}

impl Cost {
    /// The cost of `macs` over these tensors.
    pub fn new(macs: u64, inputs: &[TensorType], output: &TensorType) -> Cost {
        let bytes = inputs.iter().chain([output]).map(|t| t.bytes().unwrap_or(u64::MAX));
        Cost { macs, bytes: bytes.fold(0, u64::saturating_add) }
    }
}

/// An operator of the list.
pub trait Coded: Operator + crate::Words + Into<crate::Op> + TryFrom<crate::Op> {
    /// Its opcode: explicit, never reused.
    const CODE: u16;
}

/// An operator: attributes with rules.
pub trait Operator: Copy {
    /// The name in snake case.
    const NAME: &'static str;

    /// Checks the inputs and gives the output's type. The output's quantization is the graph's to
    /// choose, not the operator's.
    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError>;

    /// The axis of the output that gets shorter when `axis` of input `input` does, where each of its indices
    /// is computed from the same index of the input alone. `None`: an element of the output depends on more
    /// of that axis, so it may not vary at run time. `inputs` fit [`Operator::output`].
    fn varies(&self, _inputs: &[TensorType], _input: usize, _axis: usize) -> Option<usize> {
        None
    }

    /// How the output relates to the inputs' memory.
    fn effect(&self) -> Effect {
        Effect::Fresh
    }

    /// The cost of one run; of most operators, the bytes they move.
    fn cost(&self, inputs: &[TensorType], output: &TensorType) -> Cost {
        Cost::new(0, inputs, output)
    }

    /// Computes the output, plainly. `inputs` and `output` must fit [`Operator::output`]; data
    /// shorter than its type reads as zero.
    fn reference(&self, inputs: &[Arg<'_>], output: &mut ArgMut<'_>) -> Result<(), OpError>;

    /// Adds to `b` the gradients by the inputs that are asked for. They are made of operators, so they have
    /// gradients themselves. Without one of its own, an operator can't be differentiated.
    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let _ = b;
        Err(OpError::NoGradient(at.wanted.iter().position(|w| *w).unwrap_or(0)))
    }
}
