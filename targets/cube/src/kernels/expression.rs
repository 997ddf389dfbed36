//! Functions of each element: an expression becomes one kernel, compiled when it is first met.

use cubecl::prelude::*;
use kiln_ops::Function;
use kiln_planner::backend::BackendError;

use super::position;
use crate::gpu::{Buffer, Gpu};

/// What a word of an input is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Load {
    /// A float32.
    Float,
    /// An int32.
    Integer,
    /// 0 or 1.
    Truth,
}

/// What the result is stored as.
pub(crate) type Store = Load;

/// How an input is walked through.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Walk {
    /// Element by element, as the output.
    Same,
    /// It has one element.
    One,
    /// By strides.
    Strided,
}

/// An expression over inputs, immediates and earlier results, numbered in that order. Values are float32 or, all of
/// them, int32; truth is 1 and 0. Without instructions the first input is only stored as another type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Expression {
    /// Whether values are int32.
    pub(crate) integer: bool,
    /// What each input is and how it is walked through.
    pub(crate) inputs: Vec<(Load, Walk)>,
    /// How many immediates there are.
    pub(crate) immediates: usize,
    /// Functions with the numbers of what they take.
    pub(crate) instructions: Vec<(Function, [u8; 3])>,
    /// What the result is stored as.
    pub(crate) store: Store,
    /// The rank of the output.
    pub(crate) rank: usize,
}

/// Computes an expression. `layout`: the output's dimensions, the strides of each input, the immediates' bits.
pub(crate) fn expression(
    gpu: &Gpu,
    expression: &Expression,
    inputs: &[&Buffer],
    layout: &Buffer,
    elements: usize,
) -> Result<Buffer, BackendError> {
    let output = gpu.empty(elements)?;
    if elements > 0 {
        let (count, dim) = gpu.threads(elements);
        let inputs = inputs.iter().map(|buffer| buffer.arg()).collect();
        let launch = if expression.integer { integers::launch } else { floats::launch };
        launch(gpu.client(), count, dim, inputs, layout.arg(), output.arg(), expression.clone());
    }
    Ok(output)
}

#[cube(launch)]
fn floats(inputs: &Sequence<Box<[u32]>>, layout: &[u32], output: &mut [u32], #[comptime] expression: Expression) {
    if ABSOLUTE_POS < output.len() {
        let mut values = Sequence::<f32>::new();
        #[unroll]
        for i in 0..comptime!(expression.inputs.len()) {
            let word = word(inputs, layout, i, comptime!(expression.inputs[i].1), comptime!(expression.rank));
            values.push(match comptime!(expression.inputs[i].0) {
                Load::Float => f32::reinterpret(word),
                Load::Integer => f32::cast_from(i32::reinterpret(word)),
                Load::Truth => float_truth(word != 0),
            });
        }
        #[unroll]
        for i in 0..comptime!(expression.immediates) {
            let at = comptime!(expression.rank * (1 + expression.inputs.len()) + i);
            values.push(f32::reinterpret(layout[at]));
        }
        #[unroll]
        for i in 0..comptime!(expression.instructions.len()) {
            let operands = comptime!(expression.instructions[i].1);
            let function = comptime!(expression.instructions[i].0);
            let a = values[comptime!(operand(function, operands, 0))];
            let b = values[comptime!(operand(function, operands, 1))];
            let c = values[comptime!(operand(function, operands, 2))];
            values.push(float(function, a, b, c));
        }
        let last = comptime!(expression.inputs.len() + expression.immediates + expression.instructions.len() - 1);
        let result = values[last];
        output[ABSOLUTE_POS] = match comptime!(expression.store) {
            Load::Float => u32::reinterpret(result),
            Load::Integer => u32::reinterpret(truncated(result)),
            Load::Truth => u32::cast_from(holds(result)),
        };
    }
}

#[cube(launch)]
fn integers(inputs: &Sequence<Box<[u32]>>, layout: &[u32], output: &mut [u32], #[comptime] expression: Expression) {
    if ABSOLUTE_POS < output.len() {
        let mut values = Sequence::<i32>::new();
        #[unroll]
        for i in 0..comptime!(expression.inputs.len()) {
            let word = word(inputs, layout, i, comptime!(expression.inputs[i].1), comptime!(expression.rank));
            values.push(i32::reinterpret(word));
        }
        #[unroll]
        for i in 0..comptime!(expression.instructions.len()) {
            let operands = comptime!(expression.instructions[i].1);
            let function = comptime!(expression.instructions[i].0);
            let a = values[comptime!(operand(function, operands, 0))];
            let b = values[comptime!(operand(function, operands, 1))];
            let c = values[comptime!(operand(function, operands, 2))];
            values.push(integer(function, a, b, c));
        }
        let last = comptime!(expression.inputs.len() + expression.instructions.len() - 1);
        let result = values[last];
        output[ABSOLUTE_POS] = match comptime!(expression.store) {
            Load::Float => u32::reinterpret(f32::cast_from(result)),
            Load::Integer => u32::reinterpret(result),
            Load::Truth => u32::cast_from(result != 0),
        };
    }
}

/// Which value an operand is. Those beyond a function's inputs mean nothing; the first always exists.
fn operand(function: Function, operands: [u8; 3], i: usize) -> usize {
    operands[if i < function.arity() { i } else { 0 }] as usize
}

/// The word of input `i` for this thread's element.
#[cube]
fn word(
    inputs: &Sequence<Box<[u32]>>,
    layout: &[u32],
    #[comptime] i: usize,
    #[comptime] walk: Walk,
    #[comptime] rank: usize,
) -> u32 {
    let at = match comptime!(walk) {
        Walk::Same => ABSOLUTE_POS,
        Walk::One => 0usize.runtime(),
        Walk::Strided => position(layout, 0usize, comptime!(rank * (1 + i)), ABSOLUTE_POS, rank),
    };
    inputs[i][at]
}

#[cube]
fn float_truth(truth: bool) -> f32 {
    select(truth, 1.0f32, 0.0f32)
}

/// Whether it is not 0, which NaN is not: to be unequal is an ordered comparison on GPUs, and false of NaN.
#[cube]
fn holds(x: f32) -> bool {
    !(x == 0.0f32)
}

/// Toward zero; saturates, and NaN becomes 0.
#[cube]
fn truncated(x: f32) -> i32 {
    let low = x <= -2147483648.0f32;
    let high = x >= 2147483648.0f32;
    let outside = low || high || x.is_nan();
    let inside = i32::cast_from(select(outside, 0.0f32, x));
    // The smallest int32 is no literal.
    let least = -2147483647i32 - 1i32;
    select(high, 2147483647i32, select(low, least, inside))
}

#[allow(unstable_name_collisions, reason = "CubeCL's error function, whatever the standard library will have")]
/// A function of float32: what [`Function::real`] says.
#[cube]
fn float(#[comptime] function: Function, a: f32, b: f32, c: f32) -> f32 {
    match comptime!(function) {
        Function::Add => a + b,
        Function::Sub => a - b,
        Function::Mul => a * b,
        Function::Div => a / b,
        Function::Min => select(b < a || b.is_nan(), b, a),
        Function::Max => select(b > a || b.is_nan(), b, a),
        Function::Pow => power(a, b),
        Function::Neg => -a,
        Function::Abs => a.abs(),
        Function::Sign => select(a > 0.0f32, 1.0f32, select(a < 0.0f32, -1.0f32, a)),
        Function::Exp => a.exp(),
        Function::Log => a.ln(),
        Function::Sqrt => a.sqrt(),
        Function::Sin => a.sin(),
        Function::Cos => a.cos(),
        Function::Tanh => hyperbolic_tangent(a),
        Function::Sigmoid => {
            let e = (-a.abs()).exp();
            select(a >= 0.0f32, 1.0f32, e) / (1.0f32 + e)
        }
        Function::Erf => a.erf(),
        Function::Floor => a.floor(),
        Function::Equal => float_truth(a == b),
        Function::Less => float_truth(a < b),
        Function::LessEqual => float_truth(a <= b),
        Function::And => float_truth(holds(a) && holds(b)),
        Function::Or => float_truth(holds(a) || holds(b)),
        Function::Not => float_truth(a == 0.0f32),
        Function::Select => select(holds(a), b, c),
    }
}

/// A GPU's own power is that of 2 times a logarithm: it knows neither negative bases nor 0 to the power 0.
#[cube]
fn power(a: f32, b: f32) -> f32 {
    let size = a.abs().powf(b);
    let whole = b.floor() == b;
    let odd = (b * 0.5f32).floor() * 2.0f32 != b;
    // No literal is NaN.
    let nan = f32::reinterpret(u32::reinterpret(a) | 0x7fc0_0000u32);
    let negative = select(whole, select(odd, -size, size), nan);
    select(b == 0.0f32 || a == 1.0f32, 1.0f32, select(a < 0.0f32, negative, size))
}

/// By exponentials that do not overflow, and near 0, where their difference cancels, by the series.
#[cube]
fn hyperbolic_tangent(a: f32) -> f32 {
    let e = (-2.0f32 * a.abs()).exp();
    let far = (1.0f32 - e) / (1.0f32 + e);
    let square = a * a;
    let near = a + a * square * (-0.333_333_34f32 + square * (0.133_333_34f32 - square * 0.053_968_254f32));
    select(a.abs() < 0.25f32, near, select(a < 0.0f32, -far, far))
}

/// A function of int32: what [`Function::integer`] says, wrapped around.
#[cube]
fn integer(#[comptime] function: Function, a: i32, b: i32, c: i32) -> i32 {
    match comptime!(function) {
        Function::Add => a + b,
        Function::Sub => a - b,
        Function::Mul => a * b,
        Function::Div => select(b == 0, 0i32, a / select(b == 0, 1i32, b)),
        Function::Min => select(b < a, b, a),
        Function::Max => select(b > a, b, a),
        Function::Neg => 0i32 - a,
        Function::Abs => select(a < 0, 0i32 - a, a),
        Function::Sign => select(a > 0, 1i32, select(a < 0, -1i32, 0i32)),
        Function::Equal => i32::cast_from(a == b),
        Function::Less => i32::cast_from(a < b),
        Function::LessEqual => i32::cast_from(a <= b),
        Function::And => i32::cast_from(a != 0 && b != 0),
        Function::Or => i32::cast_from(a != 0 || b != 0),
        Function::Not => i32::cast_from(a == 0),
        Function::Select => select(a != 0, b, c),
        // Of floating-point numbers only: no operator gives them integers.
        _ => a,
    }
}
