//! NaN, infinities, zeros, and numbers that overflow on the way.

use kiln_core::DType;
use kiln_ops::{Cast, Function, LogSoftmax, Map, Op, Pool2d, PoolKind, Reduce, ReduceKind, Signature, Softmax};

use crate::cases::{CLOSE, Case, one_node, ty};

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

/// An operator of rows of float32.
fn case(op: impl Into<Op>, rows: &[&[f32]]) -> Case {
    let op = op.into();
    let types: Vec<_> = rows.iter().map(|row| ty(DType::F32, &[1, row.len() as u32])).collect();
    let bytes = |row: &&[f32]| row.iter().flat_map(|value| value.to_le_bytes()).collect();
    let name = format!("{op:?} of {rows:?}");
    Case { name, graph: one_node(op, &types), inputs: rows.iter().map(bytes).collect(), tolerance: CLOSE }
}

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let a = [NAN, 1.0, NAN, INF, -INF, INF, 0.0, -0.0, 3.0];
    let b = [1.0, NAN, NAN, 1.0, 1.0, -INF, -0.0, 0.0, INF];
    for &function in Function::ALL {
        let rows: &[&[f32]] = match (function, function.signature()) {
            (_, Signature::Logic | Signature::Select) => continue,
            // Of angles without end a GPU gives what it likes.
            (Function::Sin | Function::Cos, _) => continue,
            (Function::Log | Function::Sqrt, _) => &[&[0.0, INF, 1.0, NAN]],
            (Function::Pow, _) => &[
                &[2.0, -2.0, -2.0, -1.5, 0.0, 0.0, 7.0, 1.0, -3.0, 4.0, 0.0, -2.0],
                &[10.0, 3.0, 2.0, -3.0, 0.0, 2.5, 0.0, 9.5, 0.0, 0.5, 3.0, 0.5],
            ],
            _ if function.arity() == 2 => &[&a, &b],
            _ => &[&a],
        };
        cases.push(case(Map { function }, rows));
    }
    for row in [
        &[1.0, NAN, 3.0][..],
        &[NAN, 1.0, 2.0],
        &[1.0, 2.0, NAN],
        &[NAN, NAN, NAN],
        &[-INF, -INF, -INF],
        &[INF, 1.0, -INF],
        &[-5.0, -7.0, -6.0],
    ] {
        for kind in [ReduceKind::Max, ReduceKind::Min, ReduceKind::Sum] {
            cases.push(case(Reduce { kind, axes: 2 }, &[row]));
        }
    }
    let values = [NAN, INF, -INF, 2147483648.0, -2147483648.0, 2147483520.0, -2147483904.0, 1e20, -1.9, 1.9, -0.0];
    for dtype in [DType::I32, DType::Bool] {
        cases.push(case(Cast { dtype }, &[&values]));
    }
    let large = [-200.0f32, -90.0, -30.0, -1e-6, 1e-6, 0.24, 0.26, 30.0, 90.0, 200.0];
    for function in [Function::Tanh, Function::Sigmoid, Function::Erf, Function::Exp] {
        cases.push(case(Map { function }, &[&large]));
    }
    cases.push(case(Softmax { beta: 1.0 }, &[&[-1e4, 0.0, 1e4, 9.9e3]]));
    cases.push(case(LogSoftmax, &[&[-1e4, 0.0, 1e4, 9.999e3]]));
    cases.push(pool());
    cases
}

/// Maxima pass over NaN, wherever in the window it is.
fn pool() -> Case {
    let values = [NAN, 1.0, 2.0, 3.0, 1.0, NAN, -INF, NAN];
    let op = Pool2d {
        kind: PoolKind::Max,
        kernel: [1, 2],
        strides: [1, 2],
        pads: [0; 4],
        activation: kiln_ops::Activation::None,
    };
    let inputs = vec![values.iter().flat_map(|value| value.to_le_bytes()).collect()];
    let graph = one_node(op.into(), &[ty(DType::F32, &[1, 1, 8, 1])]);
    Case { name: "maximum pool of NaN".into(), graph, inputs, tolerance: 0.0 }
}
