//! Reductions along axes.

use kiln_core::{DType, MAX_RANK, Shape, TensorType};

use crate::broadcast::{position, strides_in};
use crate::{Arg, ArgMut, OpError, Operator};

/// What a reduction computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub enum ReduceKind {
    /// The sum; 0 of no elements.
    Sum,
    /// The largest element; minus infinity (or the least integer) of none.
    Max,
    /// The smallest element.
    Min,
}

/// A reduction along some axes, which stay with 1 element each. float32, float64 or int32; a sum of
/// float32 is taken in the order of the elements in memory by the reference, in any order by kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Reduce {
    /// What is computed.
    pub kind: ReduceKind,
    /// The axes: bit `i` for axis `i`.
    pub axes: u8,
}

/// The shape after a reduction.
fn reduced(shape: &Shape, axes: u8) -> Result<Shape, OpError> {
    if shape.rank() < MAX_RANK && axes >> shape.rank() != 0 {
        return Err(OpError::Attribute("axes (a bit an axis)", axes as u64));
    }
    let mut dims = [1u32; MAX_RANK];
    for (axis, (to, &dim)) in dims.iter_mut().zip(shape.dims()).enumerate() {
        *to = if axes >> axis & 1 == 1 { 1 } else { dim };
    }
    Shape::new(dims.get(..shape.rank()).unwrap_or(&[])).map_err(|_| OpError::TooLarge)
}

fn numeric(x: &TensorType) -> Result<(), OpError> {
    match x.dtype {
        DType::F32 | DType::F64 | DType::I32 => Ok(()),
        other => Err(OpError::DType(0, other)),
    }
}

impl Operator for Reduce {
    const NAME: &'static str = "reduce";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        numeric(x)?;
        Ok(TensorType::new(x.dtype, reduced(&x.shape, self.axes)?))
    }

    fn varies(&self, _: &[TensorType], _: usize, axis: usize) -> Option<usize> {
        (self.axes >> axis & 1 == 0).then_some(axis)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let float = x.ty.dtype != DType::I32;
        // An output element's first input, and then all inputs that its reduced axes reach.
        let outer = strides_in(&x.ty.shape, |axis| self.axes >> axis & 1 == 0);
        let inner = strides_in(&x.ty.shape, |axis| self.axes >> axis & 1 == 1);
        let mut dims = [1u32; MAX_RANK];
        for (axis, (to, &dim)) in dims.iter_mut().zip(x.ty.shape.dims()).enumerate() {
            *to = if self.axes >> axis & 1 == 1 { dim } else { 1 };
        }
        let inner_shape = Shape::new(dims.get(..x.ty.shape.rank()).unwrap_or(&[])).map_err(|_| OpError::TooLarge)?;
        let count = inner_shape.elements().unwrap_or(0) as usize;
        for i in 0..y.elements() {
            let start = position(&y.ty.shape, &outer, i);
            let reached = (0..count).map(|k| start.wrapping_add(position(&inner_shape, &inner, k)));
            if float {
                let elements = reached.map(|at| x.real(at));
                let result = match self.kind {
                    ReduceKind::Sum => elements.fold(0.0, |sum, v| sum + v),
                    ReduceKind::Max => elements.fold(f64::NEG_INFINITY, |m, v| if v > m || v.is_nan() { v } else { m }),
                    ReduceKind::Min => elements.fold(f64::INFINITY, |m, v| if v < m || v.is_nan() { v } else { m }),
                };
                y.set_real(i, result);
            } else {
                let elements = reached.map(|at| x.integer(at));
                let result = match self.kind {
                    ReduceKind::Sum => elements.fold(0i64, |sum, v| sum.wrapping_add(v)),
                    ReduceKind::Max => elements.fold(i32::MIN as i64, i64::max),
                    ReduceKind::Min => elements.fold(i32::MAX as i64, i64::min),
                };
                y.set_integer(i, result);
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
        let x = at.input(0)?;
        let (ty, d) = (b.ty(x), at.gradient);
        if ty.dtype == DType::I32 {
            return Ok(crate::build::gradients([None]));
        }
        let gradient = match self.kind {
            ReduceKind::Sum => b.expand(d, ty.shape)?,
            // Elements that are equal to the extreme share its gradient.
            ReduceKind::Max | ReduceKind::Min => {
                let extreme = b.map(crate::Function::Equal, &[x, at.output])?;
                let ones = b.cast(extreme, ty.dtype)?;
                let count = b.reduce(ReduceKind::Sum, ones, self.axes)?;
                let share = b.map(crate::Function::Div, &[d, count])?;
                b.mul(ones, share)?
            }
        };
        Ok(crate::build::gradients([Some(gradient)]))
    }
}

/// The index of the largest element along an axis, the first of several, as int32; the axis stays with
/// 1 element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct ArgMax {
    /// The axis.
    pub axis: u8,
}

impl Operator for ArgMax {
    const NAME: &'static str = "arg_max";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        if !matches!(x.dtype, DType::F32 | DType::F64 | DType::I32 | DType::I8) {
            return Err(OpError::DType(0, x.dtype));
        }
        if self.axis as usize >= x.shape.rank() {
            return Err(OpError::Attribute("axis", self.axis as u64));
        }
        if x.shape.dim(self.axis as usize) == 0 {
            return Err(OpError::Attribute("size of the axis", 0));
        }
        Ok(TensorType::new(DType::I32, reduced(&x.shape, 1 << self.axis)?))
    }

    fn varies(&self, _: &[TensorType], _: usize, axis: usize) -> Option<usize> {
        (axis != self.axis as usize).then_some(axis)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let outer = strides_in(&x.ty.shape, |axis| axis != self.axis as usize);
        let stride = strides_in(&x.ty.shape, |axis| axis == self.axis as usize)[self.axis as usize % MAX_RANK];
        for i in 0..y.elements() {
            let start = position(&y.ty.shape, &outer, i);
            let mut best = 0;
            for k in 1..x.ty.shape.dim(self.axis as usize) as usize {
                if x.real(start + k * stride) > x.real(start + best * stride) {
                    best = k;
                }
            }
            y.set_integer(i, best as i64);
        }
        Ok(())
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        _: &mut B,
        _: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        Ok(crate::build::gradients([None]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;

    fn run(op: impl Operator, dims: &[u32], values: &[f32]) -> (TensorType, Vec<u8>) {
        let ty = TensorType::new(DType::F32, Shape::new(dims).unwrap());
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let out_ty = op.output(&[ty]).unwrap();
        let mut out = vec![0; out_ty.bytes().unwrap() as usize];
        let quant = QuantRef::default();
        op.reference(&[Arg { ty, quant, data: &data }], &mut ArgMut { ty: out_ty, quant, data: &mut out }).unwrap();
        (out_ty, out)
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
    }

    #[test]
    fn every_set_of_axes_of_a_cube() {
        let values: Vec<f32> = (0..12).map(|v| v as f32).collect();
        let sum = |axes| {
            let (ty, out) = run(Reduce { kind: ReduceKind::Sum, axes }, &[2, 3, 2], &values);
            (ty.shape.dims().to_vec(), floats(&out))
        };
        assert_eq!(sum(0b000), (vec![2, 3, 2], values.clone()));
        assert_eq!(sum(0b001), (vec![1, 3, 2], vec![6.0, 8.0, 10.0, 12.0, 14.0, 16.0]));
        assert_eq!(sum(0b010), (vec![2, 1, 2], vec![6.0, 9.0, 24.0, 27.0]));
        assert_eq!(sum(0b101), (vec![1, 3, 1], vec![14.0, 22.0, 30.0]));
        assert_eq!(sum(0b111), (vec![1, 1, 1], vec![66.0]));
        let ty = TensorType::new(DType::F32, Shape::new(&[2]).unwrap());
        let op = Reduce { kind: ReduceKind::Sum, axes: 0b10 };
        assert!(matches!(op.output(&[ty]), Err(OpError::Attribute(_, 2))));
    }

    #[test]
    fn extremes_and_where_they_are() {
        let values = [1.0, 5.0, 5.0, -2.0, -7.0, -2.5];
        let extreme = |kind| floats(&run(Reduce { kind, axes: 0b10 }, &[2, 3], &values).1);
        assert_eq!(extreme(ReduceKind::Max), [5.0, -2.0]);
        assert_eq!(extreme(ReduceKind::Min), [1.0, -7.0]);
        let (ty, out) = run(ArgMax { axis: 1 }, &[2, 3], &values);
        assert_eq!((ty.shape.dims(), ty.dtype), (&[2, 1][..], DType::I32));
        assert_eq!(out, [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(run(ArgMax { axis: 0 }, &[2, 3], &values).1, [0; 12]);
    }
}
