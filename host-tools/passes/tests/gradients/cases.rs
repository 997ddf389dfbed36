//! An operator each, over inputs where it is smooth.

use kiln_core::{DType, MAX_RANK, Shape};
use kiln_ops::{
    Activation, Add, AveragePool2dGrad, Cast, Concat, Conv2d, Conv2dInputGrad, Conv2dWeightGrad, Copy, Expand,
    FullyConnected, Function, LogSoftmax, Map, MatMul, MaxPool2dGrad, MaxPool2dPick, Op, Pool2d, PoolKind, Reduce,
    ReduceKind, Reshape, Scatter, Signature, Slice, Softmax, Transpose,
};

/// An operator and what it is tried on.
pub(crate) struct Case {
    pub(crate) op: Op,
    pub(crate) inputs: Vec<Input>,
}

/// An input.
pub(crate) struct Input {
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<u32>,
    /// Numbers are drawn from here.
    pub(crate) range: (f64, f64),
}

fn input(dims: &[u32]) -> Input {
    Input { dtype: DType::F64, dims: dims.to_vec(), range: (-1.5, 1.5) }
}

fn shape(dims: &[u32]) -> Shape {
    Shape::new(dims).unwrap()
}

fn axes(first: &[u32], rest: u32) -> [u32; MAX_RANK] {
    std::array::from_fn(|i| first.get(i).copied().unwrap_or(rest))
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |op: Op, inputs: Vec<Input>| cases.push(Case { op, inputs });
    functions(&mut add);
    structure(&mut add);
    windows(&mut add);
    cases
}

fn functions(add: &mut impl FnMut(Op, Vec<Input>)) {
    for &function in Function::ALL {
        let range = match function {
            Function::Log | Function::Sqrt | Function::Pow => (0.3, 2.0),
            _ => (-1.5, 1.5),
        };
        // Every way of broadcasting, over the functions.
        let shapes: [&[u32]; 3] = [&[2, 1, 3], &[4, 1], &[]];
        let one = |i: usize| {
            let mut one = input(shapes[(i + function as usize) % 3]);
            one.range = range;
            let logic = function.signature() == Signature::Logic;
            if logic || function.signature() == Signature::Select && i == 0 {
                one.dtype = DType::Bool;
            }
            // Away from 0.
            if function == Function::Div && i == 1 {
                one.range = (0.5, 2.0);
            }
            one
        };
        add(Map { function }.into(), (0..function.arity()).map(one).collect());
    }
    for activation in [Activation::None, Activation::Relu, Activation::Relu6, Activation::ReluN1To1] {
        add(Add { activation }.into(), vec![input(&[3, 4]), input(&[3, 4])]);
    }
}

fn structure(add: &mut impl FnMut(Op, Vec<Input>)) {
    for kind in [ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min] {
        for axes in [0b000, 0b010, 0b101, 0b111] {
            add(Reduce { kind, axes }.into(), vec![input(&[2, 3, 4])]);
        }
    }
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let a = if transpose_a { [2, 4, 3] } else { [2, 3, 4] };
        let b = if transpose_b { [2, 5, 4] } else { [2, 4, 5] };
        add(MatMul { transpose_a, transpose_b }.into(), vec![input(&a), input(&b)]);
    }
    add(Expand { shape: shape(&[2, 3, 4]) }.into(), vec![input(&[3, 1])]);
    let (begin, step) = (axes(&[1, 0], 0), axes(&[2, 3], 1));
    add(Slice { begin, size: shape(&[2, 2]), step }.into(), vec![input(&[4, 5])]);
    add(Scatter { begin, shape: shape(&[5, 6]), step }.into(), vec![input(&[2, 2])]);
    add(Concat { axis: 1 }.into(), vec![input(&[2, 1, 3]), input(&[2, 4, 3]), input(&[2, 2, 3])]);
    add(Cast { dtype: DType::F64 }.into(), vec![input(&[3])]);
    add(Reshape { shape: shape(&[6, 2]) }.into(), vec![input(&[3, 4])]);
    add(Copy.into(), vec![input(&[3])]);
    add(Transpose::new(&[2, 0, 1]).unwrap().into(), vec![input(&[2, 3, 4])]);
    add(Softmax { beta: 1.0 }.into(), vec![input(&[3, 4])]);
    add(Softmax { beta: 0.5 }.into(), vec![input(&[5])]);
    add(LogSoftmax.into(), vec![input(&[3, 4])]);
}

fn windows(add: &mut impl FnMut(Op, Vec<Input>)) {
    for (keep_dims, activation) in [(false, Activation::None), (true, Activation::Relu)] {
        let op = FullyConnected { keep_dims, activation };
        add(op.into(), vec![input(&[2, 3, 4]), input(&[5, 4]), input(&[5])]);
        add(op.into(), vec![input(&[2, 3, 4]), input(&[5, 4])]);
    }
    for (groups, strides, dilations, pads, activation) in [
        (1, [1, 1], [1, 1], [0; 4], Activation::None),
        (2, [2, 1], [1, 2], [1, 2, 1, 0], Activation::Relu),
        (4, [1, 2], [2, 1], [2, 1, 0, 1], Activation::Relu6),
    ] {
        let conv = Conv2d { strides, dilations, pads, groups, activation };
        let (x, w) = ([1, 5, 6, 4], [4, 3, 2, 4 / groups]);
        add(conv.into(), vec![input(&x), input(&w), input(&[4])]);
        add(conv.into(), vec![input(&x), input(&w)]);
        let conv = Conv2d { activation: Activation::None, ..conv };
        let [height, width] = conv.window(&ty(&w)).output(x[1], x[2]).unwrap();
        let y = [1, height, width, 4];
        add(Conv2dInputGrad { conv, size: [5, 6] }.into(), vec![input(&y), input(&w)]);
        add(Conv2dWeightGrad { conv, kernel: [3, 2] }.into(), vec![input(&x), input(&y)]);
    }
    for (kernel, strides, pads) in [([2, 2], [2, 2], [0; 4]), ([3, 2], [1, 2], [1, 1, 2, 0])] {
        let pool = |kind, activation| Pool2d { kind, kernel, strides, pads, activation };
        let x = [2, 5, 6, 2];
        for (kind, activation) in [(PoolKind::Average, Activation::None), (PoolKind::Max, Activation::Relu)] {
            add(pool(kind, activation).into(), vec![input(&x)]);
        }
        let (average, max) = (pool(PoolKind::Average, Activation::None), pool(PoolKind::Max, Activation::None));
        let [height, width] = max.window().output(x[1], x[2]).unwrap();
        let y = [2, height, width, 2];
        add(AveragePool2dGrad { pool: average, size: [5, 6] }.into(), vec![input(&y)]);
        add(MaxPool2dGrad { pool: max }.into(), vec![input(&x), input(&y)]);
        add(MaxPool2dPick { pool: max }.into(), vec![input(&x), input(&x)]);
    }
}

fn ty(dims: &[u32]) -> kiln_core::TensorType {
    kiln_core::TensorType::new(DType::F64, shape(dims))
}
