//! NumPy's broadcasting: shapes are aligned at their innermost dimension, and a dimension of 1, or
//! one that is missing, is repeated.

use kiln_core::{MAX_RANK, Shape, TensorType};

use crate::spatial::counted;
use crate::{Arg, ArgMut, OpError, Operator};

/// The shape that `shapes` broadcast to.
pub fn broadcast(shapes: impl Iterator<Item = Shape> + Clone) -> Result<Shape, OpError> {
    let rank = shapes.clone().map(|s| s.rank()).max().unwrap_or(0);
    let mut dims = [1u32; MAX_RANK];
    for shape in shapes {
        let missing = rank - shape.rank();
        for (to, &dim) in dims.iter_mut().skip(missing).zip(shape.dims()) {
            if *to != dim && *to != 1 && dim != 1 {
                return Err(OpError::Mismatch("dimensions that should broadcast", *to as u64, dim as u64));
            }
            if *to == 1 {
                *to = dim;
            }
        }
    }
    counted(dims.get(..rank).unwrap_or(&[]))
}

/// Checks that `shapes` broadcast to exactly `shape`.
pub(crate) fn broadcast_to(shapes: impl Iterator<Item = Shape> + Clone, shape: Shape) -> Result<Shape, OpError> {
    let found = broadcast(shapes.chain([shape]))?;
    if found != shape {
        let count = |s: &Shape| s.elements().unwrap_or(u64::MAX);
        return Err(OpError::Mismatch("elements after broadcasting and asked for", count(&found), count(&shape)));
    }
    Ok(found)
}

/// How far apart, in elements, neighbours along each axis of `to` lie in a dense tensor of shape
/// `from`: 0 along axes that are repeated.
pub fn strides(from: &Shape, to: &Shape) -> [usize; MAX_RANK] {
    let mut strides = [0; MAX_RANK];
    let missing = to.rank().saturating_sub(from.rank());
    let mut stride = 1usize;
    for (axis, &dim) in from.dims().iter().enumerate().rev() {
        if let (true, Some(place)) = (dim != 1, strides.get_mut(axis + missing)) {
            *place = stride;
        }
        stride = stride.wrapping_mul(dim as usize);
    }
    strides
}

/// The dense strides of a shape along the axes that are wanted; 0 along the others.
pub(crate) fn strides_in(shape: &Shape, wanted: impl Fn(usize) -> bool) -> [usize; MAX_RANK] {
    let mut strides = [0; MAX_RANK];
    let mut stride = 1usize;
    for (axis, &dim) in shape.dims().iter().enumerate().rev() {
        if let (true, Some(place)) = (wanted(axis), strides.get_mut(axis)) {
            *place = stride;
        }
        stride = stride.wrapping_mul(dim as usize);
    }
    strides
}

/// Where element `i` of a dense tensor of shape `shape` is found with these strides.
pub fn position(shape: &Shape, strides: &[usize; MAX_RANK], i: usize) -> usize {
    let mut rest = i;
    let mut at = 0usize;
    for (&dim, &stride) in shape.dims().iter().zip(strides).rev() {
        let dim = (dim as usize).max(1);
        at = at.wrapping_add((rest % dim).wrapping_mul(stride));
        rest /= dim;
    }
    at
}

/// The input repeated along axes of 1 (and along leading axes it lacks) until it has `shape`; any
/// dtype of whole bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Expand {
    /// The output's shape.
    pub shape: Shape,
}

impl Operator for Expand {
    const NAME: &'static str = "expand";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        if x.dtype.bits() < 8 {
            return Err(OpError::DType(0, x.dtype));
        }
        if x.shape.rank() > self.shape.rank() {
            return Err(OpError::Rank(0, self.shape.rank(), x.shape.rank()));
        }
        let shape = broadcast_to([x.shape].into_iter(), self.shape)?;
        Ok(TensorType::new(x.dtype, shape))
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let strides = strides(&x.ty.shape, &y.ty.shape);
        for i in 0..y.elements() {
            y.copy(i, x, position(&self.shape, &strides, i));
        }
        Ok(())
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let shape = b.ty(at.input(0)?).shape;
        Ok(crate::build::gradients([Some(b.sum_to(at.gradient, shape)?)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[u32]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn shapes_broadcast_as_numpys_do() {
        let all = |shapes: &[&[u32]]| broadcast(shapes.iter().map(|d| shape(d)));
        assert_eq!(all(&[&[8, 1, 6, 1], &[7, 1, 5]]), Ok(shape(&[8, 7, 6, 5])));
        assert_eq!(all(&[&[], &[3]]), Ok(shape(&[3])));
        assert_eq!(all(&[&[1, 3], &[0, 1]]), Ok(shape(&[0, 3])));
        assert!(matches!(all(&[&[2, 1], &[8, 4, 3]]), Err(OpError::Mismatch(_, 2, 4))));
    }

    #[test]
    fn repeated_axes_have_no_stride() {
        let (from, to) = (shape(&[3, 1]), shape(&[2, 3, 4]));
        assert_eq!(strides(&from, &to)[..3], [0, 1, 0]);
        let at: Vec<usize> = (0..24).map(|i| position(&to, &strides(&from, &to), i)).collect();
        assert_eq!(at[..12], [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
        assert_eq!(at[12..], at[..12]);
    }
}
