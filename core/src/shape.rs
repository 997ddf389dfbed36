//! Shapes and tensor types: small `Copy` values, no heap.

use crate::DType;

/// The largest rank a tensor can have.
pub const MAX_RANK: usize = 8;

/// The dimensions of a tensor, outermost first. A dimension that varies at run time stands here at
/// its stated maximum.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "host", serde(try_from = "Stored"))]
pub struct Shape {
    dims: [u32; MAX_RANK],
    rank: u8,
}

/// A shape as bytes from elsewhere give it, before its rank is known to make sense.
#[cfg(feature = "host")]
#[derive(serde::Deserialize)]
struct Stored {
    dims: [u32; MAX_RANK],
    rank: u8,
}

#[cfg(feature = "host")]
impl TryFrom<Stored> for Shape {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Shape, &'static str> {
        let dims = stored.dims.get(..stored.rank as usize);
        dims.and_then(|dims| Shape::new(dims).ok()).ok_or("a shape's rank is beyond its dimensions")
    }
}

/// Why a shape could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ShapeError {
    /// More than [`MAX_RANK`] dimensions; the number given.
    Rank(usize),
    /// A dimension of more than `u32::MAX`; its axis.
    Dimension(usize),
}

impl Shape {
    /// The shape of a scalar.
    pub const SCALAR: Shape = Shape { dims: [1; MAX_RANK], rank: 0 };

    /// The shape with these dimensions, outermost first.
    pub fn new(dims: &[u32]) -> Result<Shape, ShapeError> {
        let mut shape = Shape::SCALAR;
        match shape.dims.get_mut(..dims.len()) {
            Some(place) => place.copy_from_slice(dims),
            None => return Err(ShapeError::Rank(dims.len())),
        }
        shape.rank = dims.len() as u8;
        Ok(shape)
    }

    /// The same from `usize` dimensions.
    pub fn from_usize(dims: &[usize]) -> Result<Shape, ShapeError> {
        let mut shape = Shape::SCALAR;
        if dims.len() > MAX_RANK {
            return Err(ShapeError::Rank(dims.len()));
        }
        for (axis, (to, &from)) in shape.dims.iter_mut().zip(dims).enumerate() {
            *to = u32::try_from(from).map_err(|_| ShapeError::Dimension(axis))?;
        }
        shape.rank = dims.len() as u8;
        Ok(shape)
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[u32] {
        self.dims.get(..self.rank as usize).unwrap_or(&[])
    }

    /// How many dimensions there are.
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Dimension `axis`; 1 where the shape has no such axis.
    pub fn dim(&self, axis: usize) -> u32 {
        self.dims().get(axis).copied().unwrap_or(1)
    }

    /// The innermost dimension (channels in NHWC); 1 for a scalar.
    pub fn last(&self) -> u32 {
        self.dims().last().copied().unwrap_or(1)
    }

    /// The product of the dimensions, or `None` when it exceeds `u64`.
    pub fn elements(&self) -> Option<u64> {
        self.dims().iter().try_fold(1u64, |product, &d| product.checked_mul(d as u64))
    }

    /// The product of all dimensions but the innermost.
    pub fn outer(&self) -> Option<u64> {
        let dims = self.dims();
        let outer = dims.get(..dims.len().saturating_sub(1)).unwrap_or(&[]);
        outer.iter().try_fold(1u64, |product, &d| product.checked_mul(d as u64))
    }
}

impl core::fmt::Debug for Shape {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.dims().fmt(f)
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Shape {
    fn format(&self, f: defmt::Formatter<'_>) {
        self.dims().format(f);
    }
}

/// What a tensor holds: element type and shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Shape,
}

impl TensorType {
    /// A tensor type.
    pub const fn new(dtype: DType, shape: Shape) -> TensorType {
        TensorType { dtype, shape }
    }

    /// Bytes the tensor takes, or `None` when that exceeds `u64`.
    pub fn bytes(&self) -> Option<u64> {
        self.dtype.bytes(self.shape.elements()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_limits() {
        let s = Shape::new(&[2, 3, 5]).unwrap();
        assert_eq!((s.elements(), s.outer(), s.last(), s.dim(7)), (Some(30), Some(6), 5, 1));
        assert_eq!(Shape::SCALAR.elements(), Some(1));
        assert_eq!(Shape::new(&[1; 9]), Err(ShapeError::Rank(9)));
        assert_eq!(Shape::from_usize(&[1, 1 << 33]), Err(ShapeError::Dimension(1)));
        assert_eq!(Shape::new(&[u32::MAX; 3]).unwrap().elements(), None);
    }
}
