//! Building graphs without knowing what a graph is: what gradients are written against.
//!
//! The host's recorded tensors and the planner's graph both implement [`Build`], so a gradient is
//! written once, with its operator, and needs no heap.

use kiln_core::{DType, MAX_OPERANDS, Shape, TensorType};

use crate::{Cast, Expand, Function, Map, MatMul, Op, OpError, Reduce, ReduceKind, Reshape, Transpose};

/// Something that operators can be added to.
pub trait Build {
    /// A tensor in it.
    type Value: Copy;

    /// Element type and shape of a value.
    fn ty(&self, value: Self::Value) -> TensorType;

    /// Adds an operator over `inputs` and gives its output.
    fn op(&mut self, op: Op, inputs: &[Self::Value]) -> Result<Self::Value, OpError>;

    /// A scalar (rank 0) of element type `dtype`.
    fn scalar(&mut self, dtype: DType, value: f64) -> Result<Self::Value, OpError>;

    /// A function, element by element.
    fn map(&mut self, function: Function, inputs: &[Self::Value]) -> Result<Self::Value, OpError> {
        self.op(Map { function }.into(), inputs)
    }

    /// A function of `x` and a scalar of its type.
    fn map_scalar(&mut self, function: Function, x: Self::Value, scalar: f64) -> Result<Self::Value, OpError> {
        let scalar = self.scalar(self.ty(x).dtype, scalar)?;
        self.map(function, &[x, scalar])
    }

    /// `a * b`.
    fn mul(&mut self, a: Self::Value, b: Self::Value) -> Result<Self::Value, OpError> {
        self.map(Function::Mul, &[a, b])
    }

    /// `-x`.
    fn neg(&mut self, x: Self::Value) -> Result<Self::Value, OpError> {
        self.map(Function::Neg, &[x])
    }

    /// `d` where `condition` holds, elsewhere 0.
    fn mask(&mut self, condition: Self::Value, d: Self::Value) -> Result<Self::Value, OpError> {
        let zero = self.scalar(self.ty(d).dtype, 0.0)?;
        self.map(Function::Select, &[condition, d, zero])
    }

    /// The same elements under another shape; the value itself where it has that shape.
    fn reshape(&mut self, x: Self::Value, shape: Shape) -> Result<Self::Value, OpError> {
        if self.ty(x).shape == shape {
            return Ok(x);
        }
        self.op(Reshape { shape }.into(), &[x])
    }

    /// `x` repeated along axes of 1, as broadcasting does; the value itself where it has that shape.
    fn expand(&mut self, x: Self::Value, shape: Shape) -> Result<Self::Value, OpError> {
        if self.ty(x).shape == shape {
            return Ok(x);
        }
        self.op(Expand { shape }.into(), &[x])
    }

    /// A reduction; the axes stay, with 1 element each.
    fn reduce(&mut self, kind: ReduceKind, x: Self::Value, axes: u8) -> Result<Self::Value, OpError> {
        self.op(Reduce { kind, axes }.into(), &[x])
    }

    /// What broadcasting a value of shape `shape` to `x`'s shape turns into, backwards: the sum over
    /// every axis that was repeated.
    fn sum_to(&mut self, x: Self::Value, shape: Shape) -> Result<Self::Value, OpError> {
        let from = self.ty(x).shape;
        let missing = from.rank().saturating_sub(shape.rank());
        let mut axes = 0u8;
        for axis in 0..from.rank() {
            let own = if axis < missing { 1 } else { shape.dim(axis - missing) };
            if own == 1 && from.dim(axis) != 1 {
                axes |= 1 << axis;
            }
        }
        let sum = if axes == 0 { x } else { self.reduce(ReduceKind::Sum, x, axes)? };
        self.reshape(sum, shape)
    }

    /// `x` as another element type; the value itself where it has that type.
    fn cast(&mut self, x: Self::Value, dtype: DType) -> Result<Self::Value, OpError> {
        if self.ty(x).dtype == dtype {
            return Ok(x);
        }
        self.op(Cast { dtype }.into(), &[x])
    }

    /// The product of the innermost two dimensions, either side transposed before.
    fn matmul(&mut self, a: Self::Value, b: Self::Value, transpose: [bool; 2]) -> Result<Self::Value, OpError> {
        self.op(MatMul { transpose_a: transpose[0], transpose_b: transpose[1] }.into(), &[a, b])
    }

    /// The dimensions in another order.
    fn transpose(&mut self, x: Self::Value, op: Transpose) -> Result<Self::Value, OpError> {
        self.op(op.into(), &[x])
    }
}

/// A node to be differentiated.
#[derive(Clone, Copy, Debug)]
pub struct Differential<'a, V> {
    /// What it reads.
    pub inputs: &'a [V],
    /// What it computes.
    pub output: V,
    /// The derivative of the scalar in question by the output, of its type and shape.
    pub gradient: V,
    /// For each input whether its gradient is asked for.
    pub wanted: &'a [bool],
}

impl<V: Copy> Differential<'_, V> {
    /// Input `i`.
    pub fn input(&self, i: usize) -> Result<V, OpError> {
        self.inputs.get(i).copied().ok_or(OpError::Inputs(i + 1, i + 1, self.inputs.len()))
    }

    /// Whether the gradient of input `i` is asked for.
    pub fn wants(&self, i: usize) -> bool {
        self.wanted.get(i).copied().unwrap_or(false)
    }
}

/// A gradient for each input; none where the output does not depend on it smoothly, or where it was
/// not asked for.
pub type Gradients<V> = [Option<V>; MAX_OPERANDS];

/// The gradient of a bias, input 2 of products and convolutions: the sum of `d` over all but the channels.
pub(crate) fn bias_grad<B: Build + ?Sized>(
    b: &mut B,
    at: &Differential<'_, B::Value>,
    d: B::Value,
) -> Result<Option<B::Value>, OpError> {
    match at.inputs.get(2) {
        Some(&bias) if at.wants(2) => {
            let shape = b.ty(bias).shape;
            b.sum_to(d, shape).map(Some)
        }
        _ => Ok(None),
    }
}

/// The gradients of the first inputs; the rest have none.
pub(crate) fn gradients<V: Copy, const N: usize>(first: [Option<V>; N]) -> Gradients<V> {
    let mut all = [None; MAX_OPERANDS];
    for (to, from) in all.iter_mut().zip(first) {
        *to = from;
    }
    all
}
