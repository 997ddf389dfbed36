//! Parts of tensors, and tensors as parts.

use kiln_core::{DType, MAX_RANK, Shape, TensorType};

use crate::broadcast::{position, strides_in};
use crate::spatial::counted;
use crate::{Arg, ArgMut, OpError, Operator};

/// Every `step`-th element along each axis, `size` of them from `begin` on. Any dtype of whole bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Slice {
    /// The first index along each axis; 0 beyond the rank.
    pub begin: [u32; MAX_RANK],
    /// The output's shape.
    pub size: Shape,
    /// The distance between indices, at least 1; 1 beyond the rank.
    pub step: [u32; MAX_RANK],
}

fn whole_bytes(i: usize, x: &TensorType) -> Result<(), OpError> {
    if x.dtype.bits() < 8 { Err(OpError::DType(i, x.dtype)) } else { Ok(()) }
}

impl Slice {
    /// The first element's position in an input of this shape, and the strides of the output's axes in it.
    fn walk(&self, input: &Shape) -> (usize, [usize; MAX_RANK]) {
        let mut strides = strides_in(input, |_| true);
        let mut start = 0usize;
        for ((stride, &begin), &step) in strides.iter_mut().zip(&self.begin).zip(&self.step) {
            start = start.wrapping_add(stride.wrapping_mul(begin as usize));
            *stride = stride.wrapping_mul(step as usize);
        }
        (start, strides)
    }
}

impl Operator for Slice {
    const NAME: &'static str = "slice";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        whole_bytes(0, x)?;
        if self.size.rank() != x.shape.rank() {
            return Err(OpError::Rank(0, self.size.rank(), x.shape.rank()));
        }
        for axis in 0..MAX_RANK {
            let (begin, step) = (self.begin[axis] as u64, self.step[axis] as u64);
            if step == 0 {
                return Err(OpError::Attribute("step", 0));
            }
            let (size, dim) = (self.size.dim(axis) as u64, x.shape.dim(axis) as u64);
            // One past the last index that is read.
            let end = if size == 0 { begin } else { begin + (size - 1) * step + 1 };
            if end > dim {
                return Err(OpError::Mismatch("the slice's end and the dimension", end, dim));
            }
        }
        Ok(TensorType::new(x.dtype, counted(self.size.dims())?))
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let (start, strides) = self.walk(&x.ty.shape);
        for i in 0..y.elements() {
            y.copy(i, x, start.wrapping_add(position(&self.size, &strides, i)));
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
        let gradient = b.op(Scatter { begin: self.begin, shape, step: self.step }.into(), &[at.gradient])?;
        Ok(crate::build::gradients([Some(gradient)]))
    }
}

/// Zeros with the input's elements among them: the opposite of [`Slice`], and its gradient. Padding with
/// zeros is this with a step of 1. Any dtype of whole bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Scatter {
    /// Where the input's first element goes along each axis; 0 beyond the rank.
    pub begin: [u32; MAX_RANK],
    /// The output's shape.
    pub shape: Shape,
    /// The distance between the input's elements in the output, at least 1; 1 beyond the rank.
    pub step: [u32; MAX_RANK],
}

impl Scatter {
    fn slice(&self, size: Shape) -> Slice {
        Slice { begin: self.begin, size, step: self.step }
    }
}

impl Operator for Scatter {
    const NAME: &'static str = "scatter";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let ty = TensorType::new(x.dtype, counted(self.shape.dims())?);
        self.slice(x.shape).output(&[ty])?;
        Ok(ty)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        y.data.fill(0);
        let (start, strides) = self.slice(x.ty.shape).walk(&self.shape);
        for i in 0..x.ty.shape.elements().unwrap_or(0) as usize {
            y.copy(start.wrapping_add(position(&x.ty.shape, &strides, i)), x, i);
        }
        Ok(())
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let size = b.ty(at.input(0)?).shape;
        Ok(crate::build::gradients([Some(b.op(self.slice(size).into(), &[at.gradient])?)]))
    }
}

/// Tensors behind one another along an axis; all other dimensions are equal. Any dtype of whole bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Concat {
    /// The axis.
    pub axis: u8,
}

impl Operator for Concat {
    const NAME: &'static str = "concat";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        // A step has one operand for the output.
        const MOST: usize = kiln_core::MAX_OPERANDS - 1;
        let [first, others @ ..] = inputs else { return Err(OpError::Inputs(1, MOST, 0)) };
        if inputs.len() > MOST {
            return Err(OpError::Inputs(1, MOST, inputs.len()));
        }
        whole_bytes(0, first)?;
        let (axis, rank) = (self.axis as usize, first.shape.rank());
        if axis >= rank {
            return Err(OpError::Attribute("axis", axis as u64));
        }
        let mut dims = [1u32; MAX_RANK];
        for (to, &dim) in dims.iter_mut().zip(first.shape.dims()) {
            *to = dim;
        }
        for (i, x) in others.iter().enumerate() {
            if x.dtype != first.dtype {
                return Err(OpError::DType(i + 1, x.dtype));
            }
            if x.shape.rank() != rank {
                return Err(OpError::Rank(i + 1, rank, x.shape.rank()));
            }
            for (at, (to, &dim)) in dims.iter_mut().zip(x.shape.dims()).enumerate() {
                if at == axis {
                    *to = to.checked_add(dim).ok_or(OpError::TooLarge)?;
                } else if *to != dim {
                    return Err(OpError::Mismatch("dimensions beside the axis", *to as u64, dim as u64));
                }
            }
        }
        Ok(TensorType::new(first.dtype, counted(dims.get(..rank).unwrap_or(&[]))?))
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let strides = strides_in(&y.ty.shape, |_| true);
        let mut start = 0usize;
        for x in inputs {
            for i in 0..x.ty.shape.elements().unwrap_or(0) as usize {
                y.copy(start.wrapping_add(position(&x.ty.shape, &strides, i)), x, i);
            }
            let stride = strides.get(self.axis as usize).copied().unwrap_or(0);
            start = start.wrapping_add(stride.wrapping_mul(x.ty.shape.dim(self.axis as usize) as usize));
        }
        Ok(())
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let mut all = crate::build::gradients([]);
        let mut begin = [0u32; MAX_RANK];
        for (i, (&x, place)) in at.inputs.iter().zip(&mut all).enumerate() {
            let size = b.ty(x).shape;
            if at.wants(i) {
                *place = Some(b.op(Slice { begin, size, step: [1; MAX_RANK] }.into(), &[at.gradient])?);
            }
            if let Some(at) = begin.get_mut(self.axis as usize) {
                *at = at.wrapping_add(size.dim(self.axis as usize));
            }
        }
        Ok(all)
    }
}

/// Another element type: float32, float64, int32, bool (and int8, uint8 without quantization). To an integer,
/// real numbers are truncated toward zero and saturate; to bool, anything but 0 is true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Cast {
    /// The output's element type.
    pub dtype: DType,
}

impl Operator for Cast {
    const NAME: &'static str = "cast";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let known =
            |d| matches!(d, DType::F32 | DType::F64 | DType::I32 | DType::Bool | DType::I8 | DType::U8 | DType::I64);
        if !known(x.dtype) {
            return Err(OpError::DType(0, x.dtype));
        }
        if !known(self.dtype) {
            return Err(OpError::Attribute("dtype", self.dtype as u64));
        }
        Ok(TensorType::new(self.dtype, x.shape))
    }

    fn varies(&self, _: &[TensorType], _: usize, axis: usize) -> Option<usize> {
        Some(axis)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let float = matches!(x.ty.dtype, DType::F32 | DType::F64);
        for i in 0..y.elements() {
            if float {
                y.set_real(i, x.real(i));
            } else {
                y.set_integer(i, x.integer(i));
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
        let dtype = b.ty(at.input(0)?).dtype;
        let smooth = [dtype, self.dtype].iter().all(|d| matches!(d, DType::F32 | DType::F64));
        Ok(crate::build::gradients([if smooth { Some(b.cast(at.gradient, dtype)?) } else { None }]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;

    fn ty(dtype: DType, dims: &[u32]) -> TensorType {
        TensorType::new(dtype, Shape::new(dims).unwrap())
    }

    fn run(op: impl Operator, inputs: &[(TensorType, &[u8])]) -> (TensorType, Vec<u8>) {
        let types: Vec<TensorType> = inputs.iter().map(|i| i.0).collect();
        let out_ty = op.output(&types).unwrap();
        let mut out = vec![0xee; out_ty.bytes().unwrap() as usize];
        let quant = QuantRef::default();
        let args: Vec<Arg<'_>> = inputs.iter().map(|&(ty, data)| Arg { ty, quant, data }).collect();
        op.reference(&args, &mut ArgMut { ty: out_ty, quant, data: &mut out }).unwrap();
        (out_ty, out)
    }

    fn axes(first: &[u32], rest: u32) -> [u32; MAX_RANK] {
        core::array::from_fn(|i| first.get(i).copied().unwrap_or(rest))
    }

    #[test]
    fn a_slice_there_and_back() {
        let data: Vec<u8> = (0..20).collect();
        let size = Shape::new(&[2, 3]).unwrap();
        let (begin, step) = (axes(&[1, 0], 0), axes(&[2, 2], 1));
        let (_, out) = run(Slice { begin, size, step }, &[(ty(DType::I8, &[4, 5]), &data)]);
        assert_eq!(out, [5, 7, 9, 15, 17, 19]);
        let shape = Shape::new(&[4, 5]).unwrap();
        let (_, back) = run(Scatter { begin, shape, step }, &[(ty(DType::I8, &[2, 3]), &out)]);
        assert_eq!(back, [0, 0, 0, 0, 0, 5, 0, 7, 0, 9, 0, 0, 0, 0, 0, 15, 0, 17, 0, 19]);
        let beyond = Slice { begin: axes(&[1, 1], 0), size, step };
        assert!(matches!(beyond.output(&[ty(DType::I8, &[4, 5])]), Err(OpError::Mismatch(_, 6, 5))));
    }

    #[test]
    fn concatenation_along_each_axis() {
        let (a, b) = ([1u8, 2, 3, 4], [5u8, 6]);
        let square = (ty(DType::I8, &[2, 2]), &a[..]);
        let (t, out) = run(Concat { axis: 0 }, &[square, (ty(DType::I8, &[1, 2]), &b)]);
        assert_eq!((t.shape.dims(), &out[..]), (&[3, 2][..], &[1, 2, 3, 4, 5, 6][..]));
        let (t, out) = run(Concat { axis: 1 }, &[square, (ty(DType::I8, &[2, 1]), &b)]);
        assert_eq!((t.shape.dims(), &out[..]), (&[2, 3][..], &[1, 2, 5, 3, 4, 6][..]));
        let wrong = Concat { axis: 1 }.output(&[square.0, ty(DType::I8, &[3, 1])]);
        assert!(matches!(wrong, Err(OpError::Mismatch(_, 2, 3))));
    }

    #[test]
    fn casts_truncate_and_saturate() {
        let values = [-1.9f32, 1e20, f32::NAN, 0.0];
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let (_, out) = run(Cast { dtype: DType::I32 }, &[(ty(DType::F32, &[4]), &data)]);
        let got: Vec<i32> = out.chunks(4).map(|c| i32::from_le_bytes(c.try_into().unwrap())).collect();
        assert_eq!(got, [-1, i32::MAX, 0, 0]);
        let (_, out) = run(Cast { dtype: DType::Bool }, &[(ty(DType::F32, &[4]), &data)]);
        assert_eq!(out, [1, 1, 1, 0]);
    }
}
