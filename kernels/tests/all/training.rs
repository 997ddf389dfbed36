//! Random cases for the operators that training adds.

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{ArgMax, Function, Fused, Map, MatMul, Op, Reduce, ReduceKind, Signature};

use crate::generate::{any_dims, most, output, ty, values};
use crate::support::{Case, Random, Tensor};

pub(crate) fn plain(ty: TensorType, data: Vec<u8>) -> Tensor {
    Tensor { ty, scales: vec![], zero_points: vec![], data, constant: false }
}

pub(crate) fn finish(op: impl Into<Op>, inputs: Vec<Tensor>, random: &mut Random) -> Option<Case> {
    let op = op.into();
    let output = output(op, &inputs, random)?;
    Some(Case { op, inputs, output })
}

/// Elements: float32 of all kinds, int32, or bool.
fn elements(dtype: DType, dims: &[u32], random: &mut Random) -> Tensor {
    let ty = ty(dtype, dims);
    let n = ty.shape.elements().unwrap() as usize;
    let data = match dtype {
        DType::Bool => (0..n).map(|_| random.range(0, 1) as u8).collect(),
        _ => values(dtype, n, random),
    };
    plain(ty, data)
}

/// float32 elements that sums of products do not overflow with.
pub(crate) fn tame(dims: &[u32], random: &mut Random) -> Tensor {
    let ty = ty(DType::F32, dims);
    let n = ty.shape.elements().unwrap();
    plain(ty, (0..n).flat_map(|_| ((random.float() * 8.0 - 4.0) as f32).to_le_bytes()).collect())
}

/// float32 elements that are small whole numbers, so that a few functions of them are exact.
fn whole(dims: &[u32], random: &mut Random) -> Tensor {
    let ty = ty(DType::F32, dims);
    let n = ty.shape.elements().unwrap();
    plain(ty, (0..n).flat_map(|_| (random.range(-4, 4) as f32).to_le_bytes()).collect())
}

/// Dimensions that broadcast to `dims`: some of 1, some left out.
fn broadcast(dims: &[u32], random: &mut Random) -> Vec<u32> {
    let mut own = dims.to_vec();
    if random.one_in(2) {
        for dim in &mut own {
            if random.one_in(3) {
                *dim = 1;
            }
        }
        let missing = random.size(0, own.len() as u32) as usize;
        own.drain(..missing);
    }
    own
}

/// Whether a function needs a mathematical library.
fn is_math(function: Function) -> bool {
    let own = [Function::Sqrt, Function::Floor];
    function.signature() == Signature::Float && !own.contains(&function)
}

/// One function of tensors of `dtype`; with `math` one of those that need a library.
fn map(dtype: DType, math: bool, random: &mut Random) -> Case {
    let of_dtype = |f: &Function| match f.signature() {
        Signature::Float => dtype == DType::F32,
        Signature::Logic => dtype == DType::F32 && !math,
        _ => true,
    };
    let functions: Vec<Function> =
        Function::ALL.iter().copied().filter(|f| of_dtype(f) && is_math(*f) == math).collect();
    let function = random.pick(&functions);
    let dims = any_dims(random);
    let inputs = (0..function.arity()).map(|i| {
        let dtype = match function.signature() {
            Signature::Logic => DType::Bool,
            Signature::Select if i == 0 => DType::Bool,
            _ => dtype,
        };
        let own = broadcast(&dims, random);
        if math { tame(&own, random) } else { elements(dtype, &own, random) }
    });
    let inputs = inputs.collect();
    finish(Map { function }, inputs, random).unwrap()
}

/// A chain of functions that are exact over small whole numbers; with `math` one that needs a library within.
fn fused(math: bool, random: &mut Random) -> Case {
    let exact = [
        Function::Add,
        Function::Sub,
        Function::Min,
        Function::Max,
        Function::Neg,
        Function::Abs,
        Function::Sign,
        Function::Floor,
        Function::Equal,
        Function::Less,
        Function::LessEqual,
        Function::And,
        Function::Or,
        Function::Not,
        Function::Select,
        Function::Mul,
    ];
    let dims = any_dims(random);
    let widest = if random.one_in(5) { 12 } else { 3 };
    let inputs = random.size(1, widest) as usize;
    let immediates = random.size(0, 3) as usize;
    let count = random.size(1, if math { 3 } else { 9 }) as usize;
    let mut program = vec![count as u8, immediates as u8, 0, 0];
    program.extend((0..immediates).flat_map(|_| (random.range(-3, 3) as f32).to_le_bytes()));
    let mut products = 0;
    for i in 0..count {
        let mut function = random.pick(&exact);
        if function == Function::Mul {
            products += 1;
            if products > 3 {
                function = Function::Sub;
            }
        }
        if math && i == count / 2 {
            function = random.pick(&[Function::Tanh, Function::Sigmoid, Function::Sin, Function::Erf]);
        }
        // What was computed last is read more often, so that chains are long.
        let known = inputs + immediates + i;
        let operand = |random: &mut Random| match random.one_in(2) && i > 0 {
            true => known - 1,
            false => random.size(0, known as u32 - 1) as usize,
        };
        program.push(function as u8);
        program.extend((0..3).map(|_| operand(random) as u8));
    }
    if math {
        // Whatever comes after reads it, and must not tell nearly equal from equal.
        let smooth = [Function::Add, Function::Sub, Function::Neg, Function::Abs];
        for i in count / 2 + 1..count {
            let at = 4 + 4 * immediates + 4 * i;
            program[at] = random.pick(&smooth) as u8;
            program[at + 1] = (inputs + immediates + i - 1) as u8;
        }
    }
    let dtype = if math { DType::F32 } else { random.pick(&[DType::F32, DType::F32, DType::Bool]) };
    let mut tensors: Vec<Tensor> = (0..inputs)
        .map(|_| {
            let own = broadcast(&dims, random);
            if random.one_in(5) { elements(DType::Bool, &own, random) } else { whole(&own, random) }
        })
        .collect();
    let bytes = ty(DType::U8, &[program.len() as u32]);
    tensors.push(Tensor { constant: true, ..plain(bytes, program) });
    finish(Fused { dtype, shape: Shape::new(&dims).unwrap() }, tensors, random).unwrap()
}

pub(crate) fn map_f32(random: &mut Random) -> Case {
    if random.one_in(2) { map(DType::F32, false, random) } else { fused(false, random) }
}

pub(crate) fn map_i32(random: &mut Random) -> Case {
    map(DType::I32, false, random)
}

pub(crate) fn map_math_f32(random: &mut Random) -> Case {
    if random.one_in(2) { map(DType::F32, true, random) } else { fused(true, random) }
}

pub(crate) fn reduce(random: &mut Random) -> Case {
    let dims = match random.range(0, 9) {
        0 => vec![random.size(1, most(3000))],
        1 => vec![random.size(1, most(5)), random.size(1, most(700))],
        2 => vec![random.size(1, most(700)), random.size(1, most(40))],
        _ => (0..random.range(1, 6)).map(|_| random.size(1, most(5))).collect(),
    };
    let axes = random.size(0, (1 << dims.len()) - 1) as u8;
    let kind = random.pick(&[ReduceKind::Sum, ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min]);
    let x = if kind == ReduceKind::Sum { tame(&dims, random) } else { elements(DType::F32, &dims, random) };
    finish(Reduce { kind, axes }, vec![x], random).unwrap()
}

pub(crate) fn arg_max(random: &mut Random) -> Case {
    let dims = any_dims(random);
    let axis = random.size(0, dims.len() as u32 - 1) as u8;
    // Often several are the largest.
    let x = if random.one_in(2) { whole(&dims, random) } else { elements(DType::F32, &dims, random) };
    finish(ArgMax { axis }, vec![x], random).unwrap()
}

pub(crate) fn matmul(random: &mut Random) -> Case {
    let [m, n] = [random.size(1, most(20)), random.size(1, most(20))];
    let k = if random.one_in(20) { random.size(250, 530).min(most(530)) } else { random.size(1, most(30)) };
    let op = MatMul { transpose_a: random.one_in(2), transpose_b: random.one_in(2) };
    let outer: Vec<u32> = (0..random.range(0, 2)).map(|_| random.size(1, 3)).collect();
    let matrix = |rows: u32, columns: u32, transposed: bool| {
        let mut dims = outer.clone();
        dims.extend(if transposed { [columns, rows] } else { [rows, columns] });
        dims
    };
    let (a, b) = (matrix(m, k, op.transpose_a), matrix(k, n, op.transpose_b));
    let inputs = vec![tame(&a, random), tame(&b, random)];
    finish(op, inputs, random).unwrap()
}
