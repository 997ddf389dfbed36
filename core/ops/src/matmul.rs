//! Matrix products.

use kiln_core::{DType, MAX_RANK, TensorType};

use crate::spatial::counted;
use crate::{Arg, ArgMut, Cost, OpError, Operator};

/// The product of matrices in the innermost two dimensions: `[..., M, K]` by `[..., K, N]` to
/// `[..., M, N]`, outer dimensions equal. float32 or float64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct MatMul {
    /// The first lies as `[..., K, M]`.
    pub transpose_a: bool,
    /// The second lies as `[..., N, K]`.
    pub transpose_b: bool,
}

/// The sizes of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatMulSizes {
    /// How many products.
    pub batch: u64,
    /// Rows of the output.
    pub m: u32,
    /// Columns of the output.
    pub n: u32,
    /// Elements summed for each.
    pub k: u32,
}

impl MatMul {
    /// The sizes for inputs of these types.
    pub fn sizes(&self, a: &TensorType, b: &TensorType) -> Result<MatMulSizes, OpError> {
        let matrix = |i: usize, x: &TensorType, transposed: bool| match x.shape.dims() {
            [outer @ .., rows, columns] => {
                let batch = outer.iter().try_fold(1u64, |p, &d| p.checked_mul(d as u64)).ok_or(OpError::TooLarge)?;
                Ok((batch, if transposed { [*columns, *rows] } else { [*rows, *columns] }))
            }
            dims => Err(OpError::Rank(i, 2, dims.len())),
        };
        let (batch, [m, k]) = matrix(0, a, self.transpose_a)?;
        let (_, [other, n]) = matrix(1, b, self.transpose_b)?;
        if a.shape.rank() != b.shape.rank() {
            return Err(OpError::Rank(1, a.shape.rank(), b.shape.rank()));
        }
        for axis in 0..a.shape.rank() - 2 {
            let (a, b) = (a.shape.dim(axis), b.shape.dim(axis));
            if a != b {
                return Err(OpError::Mismatch("outer dimensions of the matrices", a as u64, b as u64));
            }
        }
        if k != other {
            return Err(OpError::Mismatch(
                "columns of the first matrix and rows of the second",
                k as u64,
                other as u64,
            ));
        }
        Ok(MatMulSizes { batch, m, n, k })
    }
}

/// Two inputs of one floating-point type.
pub(crate) fn floats(inputs: &[TensorType]) -> Result<(&TensorType, &TensorType), OpError> {
    let [a, b] = inputs else { return Err(OpError::Inputs(2, 2, inputs.len())) };
    if !matches!(a.dtype, DType::F32 | DType::F64) {
        return Err(OpError::DType(0, a.dtype));
    }
    if a.dtype != b.dtype { Err(OpError::DType(1, b.dtype)) } else { Ok((a, b)) }
}

impl Operator for MatMul {
    const NAME: &'static str = "matmul";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let (a, b) = floats(inputs)?;
        let sizes = self.sizes(a, b)?;
        let mut dims = [1u32; MAX_RANK];
        let rank = a.shape.rank();
        for (axis, to) in dims.iter_mut().take(rank).enumerate() {
            *to = match rank - axis {
                2 => sizes.m,
                1 => sizes.n,
                _ => a.shape.dim(axis),
            };
        }
        Ok(TensorType::new(a.dtype, counted(dims.get(..rank).unwrap_or(&[]))?))
    }

    fn varies(&self, inputs: &[TensorType], input: usize, axis: usize) -> Option<usize> {
        let rank = inputs.first()?.shape.rank();
        // Products of a batch; rows of the first matrix.
        let rows = input == 0 && !self.transpose_a && axis + 2 == rank;
        (axis + 2 < rank || rows).then_some(axis)
    }

    fn cost(&self, inputs: &[TensorType], output: &TensorType) -> Cost {
        let k = match inputs {
            [a, b] => self.sizes(a, b).map_or(0, |s| s.k as u64),
            _ => 0,
        };
        Cost::new(output.shape.elements().unwrap_or(0).saturating_mul(k), inputs, output)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [a, b] = inputs else { return Err(OpError::Inputs(2, 2, inputs.len())) };
        let sizes = self.sizes(&a.ty, &b.ty)?;
        let (m, n, k) = (sizes.m as usize, sizes.n as usize, sizes.k as usize);
        for batch in 0..sizes.batch as usize {
            for i in 0..m {
                for j in 0..n {
                    let sum = (0..k).fold(0.0, |sum, l| {
                        let at_a = if self.transpose_a { l * m + i } else { i * k + l };
                        let at_b = if self.transpose_b { j * k + l } else { l * n + j };
                        sum + a.real(batch * m * k + at_a) * b.real(batch * k * n + at_b)
                    });
                    y.set_real((batch * m + i) * n + j, sum);
                }
            }
        }
        Ok(())
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let (x, w, d) = (at.input(0)?, at.input(1)?, at.gradient);
        let (ta, tb) = (self.transpose_a, self.transpose_b);
        let by_a = match (at.wants(0), ta) {
            (false, _) => None,
            (true, false) => Some(b.matmul(d, w, [false, !tb])?),
            (true, true) => Some(b.matmul(w, d, [tb, true])?),
        };
        let by_b = match (at.wants(1), tb) {
            (false, _) => None,
            (true, false) => Some(b.matmul(x, d, [!ta, false])?),
            (true, true) => Some(b.matmul(d, x, [true, ta])?),
        };
        Ok(crate::build::gradients([by_a, by_b]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;
    use kiln_core::Shape;

    fn ty(dims: &[u32]) -> TensorType {
        TensorType::new(DType::F32, Shape::new(dims).unwrap())
    }

    #[test]
    fn all_ways_to_lie_give_one_product() {
        let bytes = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        // [1 2 3; 4 5 6] by [1 0; 0 1; 2 2].
        let (a, a_t) = (bytes(&[1., 2., 3., 4., 5., 6.]), bytes(&[1., 4., 2., 5., 3., 6.]));
        let (b, b_t) = (bytes(&[1., 0., 0., 1., 2., 2.]), bytes(&[1., 0., 2., 0., 1., 2.]));
        for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
            let op = MatMul { transpose_a, transpose_b };
            let types = [
                ty(if transpose_a { &[1, 3, 2] } else { &[1, 2, 3] }),
                ty(if transpose_b { &[1, 2, 3] } else { &[1, 3, 2] }),
            ];
            assert_eq!(op.output(&types), Ok(ty(&[1, 2, 2])));
            assert_eq!(op.cost(&types, &ty(&[1, 2, 2])).macs, 12);
            let quant = QuantRef::default();
            let args = [
                Arg { ty: types[0], quant, data: if transpose_a { &a_t } else { &a } },
                Arg { ty: types[1], quant, data: if transpose_b { &b_t } else { &b } },
            ];
            let mut out = [0u8; 16];
            op.reference(&args, &mut ArgMut { ty: ty(&[1, 2, 2]), quant, data: &mut out }).unwrap();
            assert_eq!(out.to_vec(), bytes(&[7., 8., 16., 17.]));
        }
    }

    #[test]
    fn the_rule_names_what_disagrees() {
        let op = MatMul { transpose_a: false, transpose_b: false };
        assert!(matches!(op.output(&[ty(&[2, 3]), ty(&[4, 5])]), Err(OpError::Mismatch(_, 3, 4))));
        assert!(matches!(op.output(&[ty(&[7, 2, 3]), ty(&[8, 3, 5])]), Err(OpError::Mismatch(_, 7, 8))));
        assert_eq!(op.output(&[ty(&[3]), ty(&[3, 5])]), Err(OpError::Rank(0, 2, 1)));
        assert_eq!(op.output(&[ty(&[1, 2, 3]), ty(&[3, 5])]), Err(OpError::Rank(1, 3, 2)));
    }
}
