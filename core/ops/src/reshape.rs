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

    fn varies(&self, inputs: &[TensorType], _: usize, axis: usize) -> Option<usize> {
        // An axis of the same size with as many elements within each of its indices, and so around it too.
        let within = |shape: &Shape, axis: usize| {
            shape.dims().iter().skip(axis + 1).fold(1u64, |product, &dim| product.saturating_mul(dim as u64))
        };
        let x = inputs.first()?.shape;
        let (size, inside) = (x.dim(axis), within(&x, axis));
        (0..self.shape.rank()).find(|&to| self.shape.dim(to) == size && within(&self.shape, to) == inside)
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::DType;

    #[test]
    fn an_axis_that_varies_is_found_again_or_not() {
        let shape = |dims: &[u32]| Shape::new(dims).unwrap();
        let to = |from: &[u32], to: &[u32], axis: usize| {
            Reshape { shape: shape(to) }.varies(&[TensorType::new(DType::I8, shape(from))], 0, axis)
        };
        assert_eq!(to(&[5, 2, 3], &[5, 6], 0), Some(0));
        assert_eq!(to(&[5, 2, 3], &[1, 5, 3, 2], 0), Some(1));
        assert_eq!(to(&[2, 5, 3], &[2, 5, 3, 1], 1), Some(1));
        // Merged with its neighbour, or as long by chance.
        assert_eq!(to(&[5, 2, 3], &[10, 3], 0), None);
        assert_eq!(to(&[2, 5, 2], &[5, 4], 1), None);
    }
}
