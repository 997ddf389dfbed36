//! Graphs of one node that a GPU's numbers are compared with the host's for: every operator that has kernels, on shapes
//! that are odd, of one element, broadcast, empty and large. Tests and the smoke example go through the same ones.

use kiln_core::{DType, MAX_RANK, Shape, TensorType};
use kiln_ops::{
    Activation, Add, ArgMax, AveragePool2dGrad, Cast, Concat, Conv2d, Conv2dInputGrad, Conv2dWeightGrad, Copy,
    Distribution, Expand, FullyConnected, Function, LogSoftmax, Map, MatMul, MaxPool2dGrad, MaxPool2dPick, Op, Pool2d,
    PoolKind, Random, Reduce, ReduceKind, Reshape, Scatter, Signature, Slice, Softmax, Transpose,
};
use kiln_planner::backend::{Backend, BackendError, Handle};
use kiln_planner::graph::{Entry, Graph, Quant};
use kiln_planner::reference::Evaluator;

/// One comparison.
pub(crate) struct Case {
    /// What it is of.
    pub(crate) name: String,
    pub(crate) graph: Graph,
    pub(crate) inputs: Vec<Vec<u8>>,
    /// The largest difference that is right, relative to 1 or, where that is more, to the number.
    pub(crate) tolerance: f64,
}

/// Functions, sums and products: a few units of the last place, times what a GPU's functions lose.
pub(crate) const CLOSE: f64 = 2e-5;
const EXACT: f64 = 0.0;

/// Numbers that are the same everywhere, in -1 to 1.
pub(crate) fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

pub(crate) fn ty(dtype: DType, dims: &[u32]) -> TensorType {
    TensorType::new(dtype, Shape::new(dims).unwrap())
}

/// Elements of a type, in `low..=high` where they are numbers.
pub(crate) fn elements(ty: &TensorType, seed: u64, [low, high]: [f64; 2]) -> Vec<u8> {
    let mut noise = noise(seed);
    let mut bytes = Vec::new();
    for _ in 0..ty.shape.elements().unwrap() {
        let value = low + (noise() + 1.0) / 2.0 * (high - low);
        match ty.dtype {
            DType::F32 => bytes.extend((value as f32).to_le_bytes()),
            DType::F64 => bytes.extend(value.to_le_bytes()),
            DType::I32 => bytes.extend((value.round() as i32).to_le_bytes()),
            DType::Bool => bytes.push(u8::from(value > (low + high) / 2.0)),
            DType::I8 | DType::U8 => bytes.push(value.round() as i8 as u8),
            other => panic!("no elements of {}", other.name()),
        }
    }
    bytes
}

/// A graph of one node over inputs of these types.
pub(crate) fn one_node(op: Op, types: &[TensorType]) -> Graph {
    let mut graph = Graph::new("case");
    let inputs: Vec<_> =
        types.iter().enumerate().map(|(i, ty)| graph.add_input(format!("{i}"), *ty, Quant::default())).collect();
    graph.entries.push(Entry { name: "run".into(), inputs: inputs.clone(), ..Entry::default() });
    let output = graph.add_node(0, "node", op, &inputs, Quant::default()).unwrap();
    graph.entries[0].outputs.push(output);
    graph.validate().unwrap();
    graph
}

/// Runs the first entry of a graph.
pub(crate) fn run(backend: &dyn Backend, graph: &Graph, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, BackendError> {
    let mut prepared = backend.prepare(graph, 0)?;
    let handles = inputs.iter().map(|bytes| backend.write(bytes)).collect::<Result<Vec<Handle>, _>>()?;
    prepared.run(handles)?.iter().map(|handle| backend.read(handle)).collect()
}

/// What references compute.
fn reference(graph: &Graph, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let inputs: Vec<&[u8]> = inputs.iter().map(|bytes| &bytes[..]).collect();
    let mut values = Evaluator::new(graph).run(0, &inputs).unwrap();
    graph.entries[0].outputs.iter().filter_map(|id| values.remove(id)).collect()
}

/// The largest difference of two tensors, relative to 1 or, where that is more, to the number: infinite where one is a
/// number and the other is not, or where integers or bools differ.
pub(crate) fn difference(dtype: DType, got: &[u8], want: &[u8]) -> f64 {
    if dtype != DType::F32 {
        return if got == want { 0.0 } else { f64::INFINITY };
    }
    assert_eq!(got.len(), want.len());
    let numbers =
        |bytes: &[u8]| -> Vec<f32> { bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect() };
    let pairs = numbers(got).into_iter().zip(numbers(want));
    pairs.fold(0.0, |most: f64, (got, want)| {
        if got == want || got.is_nan() && want.is_nan() {
            return most;
        }
        let off = f64::from(got - want).abs() / f64::from(want).abs().max(1.0);
        if off.is_nan() { f64::INFINITY } else { most.max(off) }
    })
}

/// Where two back ends differ for a case.
pub(crate) fn compare(case: &Case, gpu: &dyn Backend, host: &dyn Backend) -> Result<f64, BackendError> {
    let got = run(gpu, &case.graph, &case.inputs)?;
    // Plans have no empty tensors; references have.
    let want = run(host, &case.graph, &case.inputs).unwrap_or_else(|_| reference(&case.graph, &case.inputs));
    let types = case.graph.types(&case.graph.entries[0].outputs);
    let each = types.iter().zip(got.iter().zip(&want)).map(|(ty, (got, want))| difference(ty.dtype, got, want));
    Ok(each.fold(0.0, f64::max))
}

struct Cases(Vec<Case>);

impl Cases {
    fn add(
        &mut self,
        name: impl Into<String>,
        op: impl Into<Op>,
        types: &[TensorType],
        range: [f64; 2],
        tolerance: f64,
    ) {
        let seed = 1000 * self.0.len() as u64;
        let inputs = types.iter().zip(seed..).map(|(ty, seed)| elements(ty, seed, range)).collect();
        let op = op.into();
        let graph = one_node(op, types);
        self.0.push(Case { name: format!("{} {}", op.name(), name.into()), graph, inputs, tolerance });
    }
}

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Cases(Vec::new());
    functions(&mut cases);
    casts(&mut cases);
    reductions(&mut cases);
    products(&mut cases);
    convolutions(&mut cases);
    pools(&mut cases);
    movements(&mut cases);
    others(&mut cases);
    cases.0
}

/// Shapes of up to three inputs that broadcast.
const SHAPES: [[&[u32]; 3]; 7] = [
    [&[7, 5], &[7, 5], &[7, 5]],
    [&[3, 1, 5], &[4, 1], &[1]],
    [&[], &[2, 3], &[2, 1]],
    [&[1], &[1], &[1, 1]],
    [&[2, 1, 3, 1, 2, 1], &[1, 5, 1, 2, 1, 3], &[3]],
    [&[0, 3], &[1, 3], &[3]],
    [&[100_003], &[1], &[100_003]],
];

fn functions(cases: &mut Cases) {
    for &function in Function::ALL {
        let (range, tolerance) = match function {
            Function::Log | Function::Sqrt => ([1e-3, 20.0], CLOSE),
            Function::Pow => ([0.1, 3.0], CLOSE),
            Function::Exp => ([-5.0, 5.0], CLOSE),
            Function::Add | Function::Sub | Function::Mul | Function::Min | Function::Max => ([-9.0, 9.0], EXACT),
            Function::Neg | Function::Abs | Function::Sign | Function::Floor | Function::Select => ([-9.0, 9.0], EXACT),
            _ => ([-3.0, 3.0], CLOSE),
        };
        for shapes in SHAPES {
            let types = |dtype: DType| -> Vec<TensorType> {
                let first = if function.signature() == Signature::Select { DType::Bool } else { dtype };
                let dtypes = [first, dtype, dtype];
                shapes.iter().zip(dtypes).take(function.arity()).map(|(dims, dtype)| ty(dtype, dims)).collect()
            };
            let mut add = |dtype: DType, range: [f64; 2], tolerance: f64| {
                let types = types(dtype);
                let name = format!(
                    "{} {} {:?}",
                    function.name(),
                    dtype.name(),
                    types.iter().map(|t| t.shape).collect::<Vec<_>>()
                );
                cases.add(name, Map { function }, &types, range, tolerance);
            };
            match function.signature() {
                Signature::Logic => add(DType::Bool, [0.0, 1.0], EXACT),
                Signature::Float => add(DType::F32, range, tolerance),
                _ => {
                    add(DType::F32, range, tolerance);
                    // Few, so that equal ones and zeros are among them.
                    add(DType::I32, [-4.0, 4.0], EXACT);
                }
            }
        }
    }
    for activation in [Activation::None, Activation::Relu, Activation::Relu6, Activation::ReluN1To1] {
        let x = ty(DType::F32, &[3, 17]);
        cases.add(format!("{activation:?}"), Add { activation }, &[x, x], [-7.0, 7.0], EXACT);
    }
}

fn casts(cases: &mut Cases) {
    let dtypes = [DType::F32, DType::I32, DType::Bool];
    for from in dtypes {
        for to in dtypes {
            for dims in [&[7, 3][..], &[1], &[0], &[4099]] {
                let name = format!("{} to {} {dims:?}", from.name(), to.name());
                cases.add(name, Cast { dtype: to }, &[ty(from, dims)], [-300.0, 300.0], EXACT);
            }
        }
    }
}

fn reductions(cases: &mut Cases) {
    let shapes: [(&[u32], &[u8]); 7] = [
        (&[3, 4, 5, 2], &[0, 1, 2, 4, 8, 3, 5, 9, 10, 6, 11, 13, 15]),
        (&[1], &[1]),
        (&[7, 1, 9], &[2, 5, 7]),
        (&[1000, 33], &[1, 2, 3]),
        (&[2, 0, 3], &[2, 5]),
        (&[], &[0]),
        (&[3, 70_001], &[2, 3]),
    ];
    for (dims, sets) in shapes {
        for &axes in sets {
            for kind in [ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min] {
                for dtype in [DType::F32, DType::I32] {
                    // Long sums in another order, of numbers that cancel.
                    let float = kind == ReduceKind::Sum && dtype == DType::F32;
                    let tolerance = if float { 1e-4 } else { EXACT };
                    let name = format!("{kind:?} {} {dims:?} axes {axes:b}", dtype.name());
                    cases.add(name, Reduce { kind, axes }, &[ty(dtype, dims)], [-9.0, 9.0], tolerance);
                }
            }
        }
        for axis in 0..dims.len() {
            // Longer axes are left to the CPU.
            if (1..1 << 15).contains(&dims[axis]) {
                for dtype in [DType::F32, DType::I32] {
                    let name = format!("{} {dims:?} axis {axis}", dtype.name());
                    cases.add(name, ArgMax { axis: axis as u8 }, &[ty(dtype, dims)], [-4.0, 4.0], EXACT);
                }
            }
        }
    }
}

fn products(cases: &mut Cases) {
    for [batch, m, n, k] in [
        [1, 1, 1, 1],
        [2, 3, 5, 7],
        [1, 64, 64, 64],
        [3, 65, 33, 17],
        [1, 200, 1, 300],
        [1, 1, 130, 9],
        [1, 10, 800, 64],
        [2, 4, 3, 0],
        [0, 4, 3, 2],
        [1, 257, 255, 129],
        [1, 3, 2, 70_001],
    ] {
        for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let a = if transpose_a { [batch, k, m] } else { [batch, m, k] };
            let b = if transpose_b { [batch, n, k] } else { [batch, k, n] };
            let name = format!("{batch} of {m} x {k} x {n} {transpose_a} {transpose_b}");
            let op = MatMul { transpose_a, transpose_b };
            // A long sum loses more, on both sides.
            let tolerance = if k > 1000 { 2e-4 } else { CLOSE };
            cases.add(name, op, &[ty(DType::F32, &a), ty(DType::F32, &b)], [-1.0, 1.0], tolerance);
        }
    }
    for (x, o, i, keep_dims) in
        [(&[4, 6][..], 3, 6, false), (&[2, 5, 9], 7, 9, true), (&[2, 5, 9], 7, 45, false), (&[64, 800], 10, 800, false)]
    {
        for activation in [Activation::None, Activation::Relu6] {
            for biased in [true, false] {
                let mut types = vec![ty(DType::F32, x), ty(DType::F32, &[o, i])];
                types.extend(biased.then(|| ty(DType::F32, &[o])));
                let name = format!("{x:?} {o} {activation:?} {biased}");
                cases.add(name, FullyConnected { keep_dims, activation }, &types, [-1.0, 1.0], CLOSE);
            }
        }
    }
}

fn convolutions(cases: &mut Cases) {
    let plain = Conv2d { strides: [1, 1], dilations: [1, 1], pads: [0; 4], groups: 1, activation: Activation::None };
    let shapes: [(Conv2d, [u32; 4], [u32; 4]); 8] = [
        (plain, [1, 1, 1, 1], [1, 1, 1, 1]),
        (plain, [2, 5, 7, 3], [4, 3, 2, 3]),
        (Conv2d { strides: [2, 2], pads: [1; 4], ..plain }, [3, 28, 28, 1], [8, 3, 3, 1]),
        // Rows that a gradient by weights adds up in parts.
        (Conv2d { pads: [1; 4], ..plain }, [70, 30, 31, 2], [3, 3, 3, 2]),
        (Conv2d { strides: [2, 3], pads: [1, 0, 2, 1], ..plain }, [1, 9, 8, 2], [5, 3, 3, 2]),
        (Conv2d { dilations: [2, 3], pads: [2, 3, 1, 0], ..plain }, [2, 9, 11, 4], [3, 3, 3, 4]),
        (Conv2d { groups: 3, pads: [1; 4], ..plain }, [1, 6, 5, 6], [9, 3, 3, 2]),
        (Conv2d { groups: 5, strides: [2, 1], pads: [1; 4], ..plain }, [2, 7, 7, 5], [10, 3, 3, 1]),
    ];
    for (conv, x, w) in shapes {
        let (image, weights) = (ty(DType::F32, &x), ty(DType::F32, &w));
        let y = conv.output_of(&image, &weights);
        for activation in [Activation::None, Activation::Relu, Activation::ReluN1To1] {
            for biased in [true, false] {
                let mut types = vec![image, weights];
                types.extend(biased.then(|| ty(DType::F32, &[w[0]])));
                let op = Conv2d { activation, ..conv };
                cases.add(format!("{x:?} {w:?} {activation:?} {biased}"), op, &types, [-1.0, 1.0], CLOSE);
            }
        }
        let name = format!("{x:?} {w:?}");
        let size = [x[1], x[2]];
        cases.add(&*name, Conv2dInputGrad { conv, size }, &[y, weights], [-1.0, 1.0], CLOSE);
        let kernel = [w[1], w[2]];
        // Sums over all images and places: long ones lose more, on both sides.
        let tolerance = if x[0] > 10 { 1e-3 } else { 5.0 * CLOSE };
        cases.add(&*name, Conv2dWeightGrad { conv, kernel }, &[image, y], [-1.0, 1.0], tolerance);
    }
}

trait OutputOf {
    fn output_of(&self, x: &TensorType, w: &TensorType) -> TensorType;
}

impl OutputOf for Conv2d {
    fn output_of(&self, x: &TensorType, w: &TensorType) -> TensorType {
        Op::from(*self).output(&[*x, *w]).unwrap()
    }
}

fn pools(cases: &mut Cases) {
    let plain =
        Pool2d { kind: PoolKind::Max, kernel: [2, 2], strides: [2, 2], pads: [0; 4], activation: Activation::None };
    for (pool, x) in [
        (plain, [2, 14, 14, 16]),
        (plain, [1, 2, 2, 1]),
        (Pool2d { kernel: [3, 3], strides: [1, 2], pads: [1, 1, 2, 1], ..plain }, [2, 7, 9, 3]),
        (Pool2d { kernel: [2, 3], strides: [3, 1], pads: [0, 2, 1, 0], ..plain }, [1, 8, 5, 5]),
    ] {
        let image = ty(DType::F32, &x);
        let y = Op::from(pool).output(&[image]).unwrap();
        let name = format!("{x:?} {:?}", pool.kernel);
        let average = Pool2d { kind: PoolKind::Average, ..pool };
        for activation in [Activation::None, Activation::Relu] {
            for pool in [pool, average] {
                let name = format!("{:?} {name} {activation:?}", pool.kind);
                cases.add(name, Pool2d { activation, ..pool }, &[image], [-2.0, 2.0], CLOSE);
            }
        }
        cases.add(&*name, AveragePool2dGrad { pool: average, size: [x[1], x[2]] }, &[y], [-2.0, 2.0], CLOSE);
        cases.add(&*name, MaxPool2dGrad { pool }, &[image, y], [-2.0, 2.0], CLOSE);
        cases.add(&*name, MaxPool2dPick { pool }, &[image, image], [-2.0, 2.0], EXACT);
    }
}

fn axes(first: &[u32], rest: u32) -> [u32; MAX_RANK] {
    std::array::from_fn(|i| first.get(i).copied().unwrap_or(rest))
}

fn movements(cases: &mut Cases) {
    for dtype in [DType::F32, DType::I32, DType::Bool] {
        let mut add = |op: Op, dims: &[&[u32]]| {
            let types: Vec<TensorType> = dims.iter().map(|dims| ty(dtype, dims)).collect();
            cases.add(format!("{} {dims:?}", dtype.name()), op, &types, [-9.0, 9.0], EXACT);
        };
        for (permutation, dims) in [
            (&[1, 0][..], &[3, 5][..]),
            (&[0, 3, 1, 2], &[2, 3, 4, 5]),
            (&[2, 1, 0], &[1, 1, 7]),
            (&[5, 4, 3, 2, 1, 0], &[2, 3, 1, 2, 2, 3]),
            (&[1, 0], &[301, 257]),
        ] {
            add(Transpose::new(permutation).unwrap().into(), &[dims]);
        }
        for (from, to) in [(&[1][..], &[5][..]), (&[3, 1], &[2, 3, 4]), (&[], &[2, 2]), (&[1, 7, 1], &[3, 7, 2])] {
            add(Expand { shape: Shape::new(to).unwrap() }.into(), &[from]);
        }
        let slice = |begin: &[u32], size: &[u32], step: &[u32]| Slice {
            begin: axes(begin, 0),
            size: Shape::new(size).unwrap(),
            step: axes(step, 1),
        };
        add(slice(&[1, 0], &[2, 3], &[2, 2]).into(), &[&[4, 5]]);
        add(slice(&[6], &[1], &[1]).into(), &[&[7]]);
        add(slice(&[0, 2, 0], &[2, 0, 3], &[1, 1, 1]).into(), &[&[2, 3, 3]]);
        let scatter = |begin: &[u32], shape: &[u32], step: &[u32]| Scatter {
            begin: axes(begin, 0),
            shape: Shape::new(shape).unwrap(),
            step: axes(step, 1),
        };
        add(scatter(&[1, 0], &[4, 5], &[2, 2]).into(), &[&[2, 3]]);
        add(scatter(&[1, 1], &[5, 6], &[1, 1]).into(), &[&[3, 4]]);
        add(Concat { axis: 1 }.into(), &[&[2, 3, 2], &[2, 1, 2], &[2, 4, 2]]);
        add(Concat { axis: 0 }.into(), &[&[3], &[0], &[5]]);
        add(Reshape { shape: Shape::new(&[6, 4]).unwrap() }.into(), &[&[2, 3, 4]]);
        add(Copy.into(), &[&[3, 3]]);
    }
}

fn others(cases: &mut Cases) {
    for dims in [&[1][..], &[4, 7], &[2, 3, 10], &[64, 10], &[3, 5000], &[2, 70_001]] {
        let x = [ty(DType::F32, dims)];
        cases.add(format!("{dims:?}"), Softmax { beta: 1.0 }, &x, [-8.0, 8.0], CLOSE);
        cases.add(format!("{dims:?} beta"), Softmax { beta: 0.5 }, &x, [-80.0, 80.0], CLOSE);
        cases.add(format!("{dims:?}"), LogSoftmax, &x, [-8.0, 8.0], CLOSE);
    }
    for dims in [&[1][..], &[5, 7], &[100_001], &[0]] {
        let shape = Shape::new(dims).unwrap();
        let key = [ty(DType::I32, &[4])];
        let op = |distribution| Random { shape, distribution };
        cases.add(format!("uniform {dims:?}"), op(Distribution::Uniform), &key, [-2e9, 2e9], EXACT);
        cases.add(format!("normal {dims:?}"), op(Distribution::Normal), &key, [-2e9, 2e9], CLOSE);
    }
}
