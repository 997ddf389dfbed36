//! Another order of the dimensions.

use kiln_core::{MAX_RANK, Shape, TensorType};

use crate::{Arg, ArgMut, OpError, Operator};

/// The input with its dimensions in another order, any dtype: dimension `i` of the output is
/// dimension `permutation[i]` of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Transpose {
    /// For each dimension of the output the input's; beyond the rank each its own number.
    pub permutation: [u8; MAX_RANK],
}

impl Transpose {
    /// The transposition by `permutation`, one axis of the input for each of the output; `None`
    /// where it is not a permutation or has more than [`MAX_RANK`] axes.
    pub fn new(permutation: &[usize]) -> Option<Transpose> {
        let mut op = Transpose { permutation: core::array::from_fn(|axis| axis as u8) };
        let places = op.permutation.get_mut(..permutation.len())?;
        for (place, &axis) in places.iter_mut().zip(permutation) {
            *place = u8::try_from(axis).ok()?;
        }
        op.is_permutation(permutation.len()).then_some(op)
    }

    /// The input's axis for each axis of an output of this rank.
    pub fn axes(&self, rank: usize) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + '_ {
        self.permutation.iter().take(rank).map(|&axis| axis as usize)
    }

    /// Whether the first `rank` entries are a permutation and the others their own numbers.
    fn is_permutation(&self, rank: usize) -> bool {
        let all = (0..rank).all(|axis| self.axes(rank).any(|a| a == axis));
        all && self.permutation.iter().enumerate().skip(rank).all(|(i, &axis)| axis as usize == i)
    }
}

impl Operator for Transpose {
    const NAME: &'static str = "transpose";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let rank = x.shape.rank();
        if !self.is_permutation(rank) {
            return Err(OpError::Attribute("permutation (a byte an axis)", u64::from_be_bytes(self.permutation)));
        }
        let mut dims = [1u32; MAX_RANK];
        for (dim, axis) in dims.iter_mut().zip(self.axes(rank)) {
            *dim = x.shape.dim(axis);
        }
        let shape = Shape::new(dims.get(..rank).unwrap_or(&[])).map_err(|_| OpError::TooLarge)?;
        Ok(TensorType::new(x.dtype, shape))
    }

    fn varies(&self, inputs: &[TensorType], _: usize, axis: usize) -> Option<usize> {
        self.axes(inputs.first()?.shape.rank()).position(|from| from == axis)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let bits = x.ty.dtype.bits() as usize;
        let rank = y.ty.shape.rank();
        for i in 0..y.ty.shape.elements().unwrap_or(0) as usize {
            // The output's index along each axis, innermost first, times the input's stride there.
            let mut rest = i;
            let mut from = 0;
            for place in (0..rank).rev() {
                let axis = self.permutation.get(place).map_or(0, |&axis| axis as usize);
                let dim = (y.ty.shape.dim(place) as usize).max(1);
                let inner = x.ty.shape.dims().iter().skip(axis + 1);
                let stride = inner.fold(1usize, |product, &d| product.wrapping_mul(d as usize));
                from += rest % dim * stride;
                rest /= dim;
            }
            copy_element(x.data, from, y.data, i, bits);
        }
        Ok(())
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let rank = b.ty(at.output).shape.rank();
        let mut back = *self;
        for (i, axis) in self.axes(rank).enumerate() {
            if let Some(place) = back.permutation.get_mut(axis) {
                *place = i as u8;
            }
        }
        Ok(crate::build::gradients([Some(b.transpose(at.gradient, back)?)]))
    }
}

/// Copies an element of `bits` bits: 4, or whole bytes.
fn copy_element(from: &[u8], at: usize, to: &mut [u8], i: usize, bits: usize) {
    if bits == 4 {
        let half = from.get(at / 2).map_or(0, |byte| byte >> (at % 2 * 4) & 15);
        if let Some(byte) = to.get_mut(i / 2) {
            *byte = *byte & !(15 << (i % 2 * 4)) | half << (i % 2 * 4);
        }
        return;
    }
    let size = bits / 8;
    let source = from.get(at * size..).and_then(|rest| rest.get(..size));
    let place = to.get_mut(i * size..).and_then(|rest| rest.get_mut(..size));
    if let (Some(source), Some(place)) = (source, place) {
        for (to, &from) in place.iter_mut().zip(source) {
            *to = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;
    use kiln_core::DType;

    fn transposed(op: Transpose, dtype: DType, dims: &[u32], data: &[u8]) -> (TensorType, Vec<u8>) {
        let ty = TensorType::new(dtype, Shape::new(dims).unwrap());
        let yt = op.output(&[ty]).unwrap();
        let mut out = vec![0xee; yt.bytes().unwrap() as usize];
        let quant = QuantRef::default();
        op.reference(&[Arg { ty, quant, data }], &mut ArgMut { ty: yt, quant, data: &mut out }).unwrap();
        (yt, out)
    }

    #[test]
    fn a_matrix_of_every_element_size() {
        let op = Transpose::new(&[1, 0]).unwrap();
        for dtype in DType::ALL.into_iter().filter(|d| d.bits() >= 8) {
            let size = dtype.bits() as usize / 8;
            let element = |i: u8| vec![i; size];
            let data: Vec<u8> = (0..6).flat_map(element).collect();
            let (ty, out) = transposed(op, dtype, &[2, 3], &data);
            assert_eq!(ty.shape.dims(), [3, 2]);
            assert_eq!(out, [0, 3, 1, 4, 2, 5].into_iter().flat_map(element).collect::<Vec<u8>>());
        }
        // Two to a byte, the first in the low half: 0 1 2 / 3 4 5.
        let (_, out) = transposed(op, DType::I4, &[2, 3], &[0x10, 0x32, 0x54]);
        assert_eq!(out, [0x30, 0x41, 0x52]);
    }

    #[test]
    fn eight_dimensions_and_back() {
        let there = Transpose::new(&[7, 2, 0, 5, 1, 6, 3, 4]).unwrap();
        let mut back = [0; 8];
        for (i, axis) in there.axes(8).enumerate() {
            back[axis] = i;
        }
        let dims = [2, 1, 3, 2, 1, 2, 3, 2];
        let data: Vec<u8> = (0..144).collect();
        let (ty, moved) = transposed(there, DType::I8, &dims, &data);
        assert_eq!(ty.shape.dims(), [2, 3, 2, 2, 1, 3, 2, 1]);
        assert_ne!(moved, data);
        assert_eq!(transposed(Transpose::new(&back).unwrap(), DType::I8, ty.shape.dims(), &moved).1, data);
    }

    #[test]
    fn what_is_no_permutation_is_refused() {
        assert_eq!(Transpose::new(&[0, 0]), None);
        assert_eq!(Transpose::new(&[0, 2]), None);
        assert_eq!(Transpose::new(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), None);
        let ty = TensorType::new(DType::F32, Shape::new(&[2, 3]).unwrap());
        let cube = TensorType::new(DType::F32, Shape::new(&[2, 3, 4]).unwrap());
        let op = Transpose::new(&[1, 0, 2]).unwrap();
        assert!(op.output(&[cube]).is_ok());
        // Beyond the rank nothing moves, so a permutation of more axes may suit fewer.
        assert!(op.output(&[ty]).is_ok());
        let op = Transpose::new(&[0, 2, 1]).unwrap();
        assert!(matches!(op.output(&[ty]), Err(OpError::Attribute(_, _))));
        assert_eq!(op.output(&[]), Err(OpError::Inputs(1, 1, 0)));
    }
}
