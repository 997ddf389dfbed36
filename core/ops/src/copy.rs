//! The same bytes elsewhere.

use kiln_core::TensorType;

use crate::{Arg, ArgMut, OpError, Operator};

/// Copies its input. Importers do not make it; planning does, for an `assign` whose value can't be
/// computed where the state lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Copy;

impl Operator for Copy {
    const NAME: &'static str = "copy";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        match inputs {
            [x] => Ok(*x),
            _ => Err(OpError::Inputs(1, 1, inputs.len())),
        }
    }

    fn varies(&self, _: &[TensorType], _: usize, axis: usize) -> Option<usize> {
        Some(axis)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        copy_bytes(inputs, y)
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let _ = b;
        Ok(crate::build::gradients([Some(at.gradient)]))
    }
}

/// Copies as many bytes as both sides have.
pub(crate) fn copy_bytes(inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
    let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
    for (to, from) in y.data.iter_mut().zip(x.data) {
        *to = *from;
    }
    Ok(())
}
