//! Another shape for the same elements.

use kiln_core::{Shape, TensorType};

use crate::{Arg, ArgMut, Cost, Effect, OpError, Operator};

/// The input's elements under another shape of as many elements. A view: no step, no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Reshape {
    /// The output's shape.
    pub shape: Shape,
}

impl Operator for Reshape {
    const NAME: &'static str = "reshape";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let (from, to) = (x.shape.elements(), self.shape.elements());
        match (from, to) {
            (Some(from), Some(to)) if from == to => Ok(TensorType::new(x.dtype, self.shape)),
            (Some(from), Some(to)) => Err(OpError::Mismatch("elements before and after", from, to)),
            _ => Err(OpError::TooLarge),
        }
    }

    fn effect(&self) -> Effect {
        Effect::View(0)
    }

    fn cost(&self, _: &[TensorType], _: &TensorType) -> Cost {
        Cost::default()
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        super::copy::copy_bytes(inputs, y)
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let shape = b.ty(at.input(0)?).shape;
        Ok(crate::build::gradients([Some(b.reshape(at.gradient, shape)?)]))
    }
}
