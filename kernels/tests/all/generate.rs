//! Random cases for every operator.

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::{
    Activation, Add, AveragePool2dPart, Conv2d, Copy, Dequantize, FullyConnected, LOG_SOFTMAX_OUTPUT, LogSoftmax, Op,
    Pool2d, PoolKind, Quantize, Softmax, Transpose,
};

use crate::support::{Case, Random, Tensor};
use crate::{gradients, moves, training};

/// Shapes a test goes through for each row; Miri is slow.
pub(crate) const SHAPES: u64 = if cfg!(miri) { 2 } else { 300 };

/// The largest size that a dimension takes.
pub(crate) const fn most(size: u32) -> u32 {
    if cfg!(miri) && size > 3 { 3 } else { size }
}

/// The generator that suits a kernel's number.
pub(crate) fn case(number: u16, random: &mut Random) -> Case {
    match number {
        1 => conv2d(DType::I8, random),
        2 => depthwise(DType::I8, random),
        3 => fully_connected(DType::I8, random),
        4 => pool(PoolKind::Average, DType::I8, random),
        5 => pool(PoolKind::Max, DType::I8, random),
        6 => fine(add(DType::I8, random), random),
        7 => softmax(DType::I8, random),
        8 => copy(random),
        9 => transpose(random),
        10 => quantize(DType::F32, random),
        11 => quantize(DType::I8, random),
        12 => dequantize(random),
        13 => log_softmax(DType::I8, random),
        14 => suited(number, || conv2d(DType::I8, random)),
        29 => suited(number, || three_columns(random)),
        15 => suited(number, || depthwise_3x3(random)),
        17 => suited(number, || add(DType::I8, random)),
        16 => suited(number, || fully_connected(DType::I8, random)),
        22 | 27 => suited(number, || conv2d(DType::I8, random)),
        18 => suited(number, || wide_conv2d(DType::I8, random)),
        19 => suited(number, || single_depthwise(DType::I8, random)),
        20 => suited(number, || fully_connected(DType::I8, random)),
        21 => suited(number, || add(DType::I8, random)),
        25 | 30 => suited(number, || wide_pool(PoolKind::Average, random)),
        26 | 31 => suited(number, || wide_pool(PoolKind::Max, random)),
        23 => suited(number, || depthwise_3x3(random)),
        24 | 28 => suited(number, || dense(DType::I8, [random.size(20, 140), random.size(4, 50)], random)),
        32 => conv2d(DType::F32, random),
        33 => depthwise(DType::F32, random),
        34 => fully_connected(DType::F32, random),
        35 => pool(PoolKind::Average, DType::F32, random),
        36 => pool(PoolKind::Max, DType::F32, random),
        37 => add(DType::F32, random),
        38 => softmax(DType::F32, random),
        39 => log_softmax(DType::F32, random),
        40 => training::map_f32(random),
        41 => training::map_i32(random),
        42 => training::map_math_f32(random),
        43 => training::reduce(random),
        44 => training::arg_max(random),
        45 => training::matmul(random),
        46 => moves::strided(random),
        47 => moves::scatter(random),
        48 => moves::concat(random),
        49 => moves::cast(random),
        50 => moves::numbers(random),
        51 => gradients::conv2d_input(random),
        52 => gradients::conv2d_weight(random),
        53 => gradients::average_pool(random),
        54 => gradients::max_pool(random),
        55 => gradients::max_pool_pick(random),
        56 => tamed(suited(number, || wide_conv2d(DType::F32, random)), random),
        57 => tamed(suited(number, || single_depthwise(DType::F32, random)), random),
        58 => tamed(suited(number, || fully_connected(DType::F32, random)), random),
        59 => suited(number, || softmax(DType::I8, random)),
        60 => average_part(DType::I8, random),
        61 => average_part(DType::F32, random),
        96 => training::matmul(random),
        97 => tamed(fully_connected(DType::F32, random), random),
        98 => tamed(suited(number, || conv2d(DType::F32, random)), random),
        99 => suited(number, || gradients::conv2d_input(random)),
        100 => suited(number, || gradients::conv2d_weight(random)),
        101 => softmax(DType::F32, random),
        102 => log_softmax(DType::F32, random),
        103 => training::map_math_f32(random),
        _ => panic!("row {number} has no generator: add one"),
    }
}

/// The first case that the kernel takes: those over products leave narrow ones to others.
fn suited(number: u16, mut case: impl FnMut() -> Case) -> Case {
    let kernel = kiln_kernels::table::kernel(number).unwrap();
    first(|| Some(case()).filter(|case| case.operation(|o| (kernel.applies)(o))))
}

/// The same case over numbers whose sums do not overflow, so that any order gives about the same.
fn tamed(mut case: Case, random: &mut Random) -> Case {
    for input in &mut case.inputs {
        input.data = training::tame(input.ty.shape.dims(), random).data;
    }
    case
}

pub(crate) fn ty(dtype: DType, dims: &[u32]) -> TensorType {
    TensorType::new(dtype, Shape::new(dims).unwrap())
}

fn activation(random: &mut Random) -> Activation {
    random.pick(&[Activation::None, Activation::None, Activation::Relu, Activation::Relu6, Activation::ReluN1To1])
}

/// Values of a dtype: random ones, or nothing but extremes.
pub(crate) fn values(dtype: DType, n: usize, random: &mut Random) -> Vec<u8> {
    match dtype {
        DType::F32 => {
            let wild = random.one_in(10);
            let value = |random: &mut Random| match random.range(0, 40) {
                0 if wild => random.pick(&[f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, -0.0]),
                _ => (random.float() * 8.0 - 4.0) as f32,
            };
            (0..n).flat_map(|_| value(random).to_le_bytes()).collect()
        }
        DType::I32 => {
            let extreme = random.one_in(10);
            let value = |random: &mut Random| match extreme {
                true => random.pick(&[i32::MIN, i32::MAX, 0]),
                false => random.range(-20_000, 20_000) as i32,
            };
            (0..n).flat_map(|_| value(random).to_le_bytes()).collect()
        }
        _ => match random.range(0, 7) {
            0 => vec![0x80; n],
            1 => vec![0x7f; n],
            2 => (0..n).map(|_| random.pick(&[0x80, 0x7f])).collect(),
            _ => random.bytes(n),
        },
    }
}

/// A scale: mostly about what networks have, sometimes far off.
fn scale(random: &mut Random) -> f32 {
    let exponent = if random.one_in(8) { random.range(-20, 12) } else { random.range(-9, -2) };
    ((0.5 + random.float()) * 2f64.powi(exponent as i32)) as f32
}

fn zero_point(random: &mut Random) -> i32 {
    match random.range(0, 5) {
        0 => -128,
        1 => 127,
        2 => 0,
        _ => random.range(-128, 127) as i32,
    }
}

/// A tensor, with one scale if it is int8.
fn tensor(dtype: DType, dims: &[u32], random: &mut Random) -> Tensor {
    let ty = ty(dtype, dims);
    let data = values(dtype, ty.shape.elements().unwrap() as usize, random);
    let quantized = dtype == DType::I8;
    let (scales, zero_points) =
        if quantized { (vec![scale(random)], vec![zero_point(random)]) } else { (vec![], vec![]) };
    Tensor { ty, scales, zero_points, data, constant: false }
}

/// Constant weights, with one scale or one a channel.
fn weights(dtype: DType, dims: &[u32], random: &mut Random) -> Tensor {
    let mut w = Tensor { constant: true, ..tensor(dtype, dims, random) };
    if dtype == DType::I8 {
        let scales = if random.one_in(3) { 1 } else { dims[0] };
        w.scales = (0..scales).map(|_| scale(random)).collect();
        w.zero_points = vec![0; if random.one_in(4) { 1 } else { scales as usize }];
    }
    w
}

fn bias(dtype: DType, n: u32, random: &mut Random) -> Tensor {
    let dtype = if dtype == DType::I8 { DType::I32 } else { dtype };
    Tensor { constant: true, ..tensor(dtype, &[n], random) }
}

pub(crate) fn output(op: Op, inputs: &[Tensor], random: &mut Random) -> Option<Tensor> {
    let types: Vec<TensorType> = inputs.iter().map(|t| t.ty).collect();
    let ty = op.output(&types).ok()?;
    let mut y = tensor(ty.dtype, &[1], random);
    y.ty = ty;
    y.data.clear();
    Some(y)
}

/// Padding smaller than the window, as operators ask for.
pub(crate) fn pads(kernel: [u32; 2], dilations: [u32; 2], random: &mut Random) -> [u32; 4] {
    let most = |axis: usize| (kernel[axis] - 1) * dilations[axis];
    if random.one_in(3) {
        return [0; 4];
    }
    [most(0), most(1), most(0), most(1)].map(|m| random.size(0, m))
}

fn convolution(dtype: DType, groups: u32, per_group: u32, multiplier: u32, random: &mut Random) -> Option<Case> {
    let kernel = [random.size(1, most(4)), random.size(1, most(4))];
    let strides = [random.size(1, 3), random.size(1, 3)];
    let dilations = if random.one_in(3) { [random.size(1, 3), random.size(1, 3)] } else { [1, 1] };
    let op =
        Conv2d { strides, dilations, pads: pads(kernel, dilations, random), groups, activation: activation(random) };
    let size = [random.size(1, most(9)), random.size(1, most(9))];
    convolved(dtype, op, kernel, size, per_group, multiplier, random)
}

/// A convolution over some images of this size.
fn convolved(
    dtype: DType,
    op: Conv2d,
    kernel: [u32; 2],
    [height, width]: [u32; 2],
    per_group: u32,
    multiplier: u32,
    random: &mut Random,
) -> Option<Case> {
    let outputs = op.groups * multiplier;
    let x = tensor(dtype, &[random.size(1, 3), height, width, op.groups * per_group], random);
    let w = weights(dtype, &[outputs, kernel[0], kernel[1], per_group], random);
    let mut inputs = vec![x, w];
    if !random.one_in(4) {
        inputs.push(bias(dtype, outputs, random));
    }
    let op = Op::from(op);
    let mut output = output(op, &inputs, random)?;
    spread(&mut output, &inputs, kernel[0] * kernel[1] * per_group, random);
    Some(Case { op, inputs, output })
}

/// Mostly, an output scale that lets sums of `terms` products use the range without saturating.
fn spread(output: &mut Tensor, inputs: &[Tensor], terms: u32, random: &mut Random) {
    let (Some(x), Some(w)) = (inputs[0].scales.first(), inputs[1].scales.first()) else { return };
    if !random.one_in(4) {
        output.scales = vec![x * w * (terms as f32).sqrt() * random.range(30, 200) as f32];
    }
}

/// The first that suits its operator.
fn first(attempt: impl FnMut() -> Option<Case>) -> Case {
    std::iter::repeat_with(attempt).flatten().next().unwrap()
}

pub(crate) fn conv2d(dtype: DType, random: &mut Random) -> Case {
    first(|| {
        let groups = random.pick(&[1, 1, 1, 2, 3]);
        let (per_group, multiplier) = (random.size(1, most(9)), random.size(1, most(5)));
        convolution(dtype, groups, per_group, multiplier, random)
    })
}

/// Windows three columns wide and one column apart, over channels in fours.
fn three_columns(random: &mut Random) -> Case {
    first(|| {
        let (kernel, strides) = ([random.size(1, most(4)), 3], [random.size(1, 3), 1]);
        let dilations = [random.size(1, 3), 1];
        let pads = pads(kernel, dilations, random);
        let op = Conv2d { strides, dilations, pads, groups: 1, activation: activation(random) };
        let size = [random.size(1, most(6)), random.size(1, 36)];
        convolved(DType::I8, op, kernel, size, 4 * random.size(1, most(4)), 2 * random.size(1, most(3)), random)
    })
}

/// One group, of channels that may be many or come in sixteens.
fn wide_conv2d(dtype: DType, random: &mut Random) -> Case {
    first(|| {
        let (few, many) = (random.size(1, most(9)), random.size(1, most(40)));
        let inputs = random.pick(&[few, many, 16, 32]);
        convolution(dtype, 1, inputs, random.size(4, most(19)), random)
    })
}

pub(crate) fn depthwise(dtype: DType, random: &mut Random) -> Case {
    first(|| {
        let (groups, multiplier) = (random.size(1, most(9)), random.pick(&[1, 1, 1, 2, 3]));
        convolution(dtype, groups, 1, multiplier, random)
    })
}

/// Windows of 3 by 3, over images that may be wide, of channels that may come in fours.
fn depthwise_3x3(random: &mut Random) -> Case {
    first(|| {
        let strides = [random.size(1, 3), random.size(1, 2)];
        let pads = pads([3; 2], [1; 2], random);
        let groups = if random.one_in(2) { random.size(1, most(9)) } else { 4 * random.size(1, most(4)) };
        let op = Conv2d { strides, dilations: [1; 2], pads, groups, activation: activation(random) };
        convolved(DType::I8, op, [3; 2], [random.size(1, most(6)), random.size(1, most(52))], 1, 1, random)
    })
}

/// One output a channel: windows of any form, or of 3 by 3 over images that may be wide, of many channels.
fn single_depthwise(dtype: DType, random: &mut Random) -> Case {
    if random.one_in(3) {
        return first(|| convolution(dtype, random.size(1, most(20)), 1, 1, random));
    }
    first(|| {
        let strides = [random.size(1, 3), random.size(1, 3)];
        let (pads, groups) = (pads([3; 2], [1; 2], random), random.size(1, most(28)));
        let op = Conv2d { strides, dilations: [1; 2], pads, groups, activation: activation(random) };
        convolved(dtype, op, [3; 2], [random.size(1, most(6)), random.size(1, most(52))], 1, 1, random)
    })
}

fn fully_connected(dtype: DType, random: &mut Random) -> Case {
    first(|| {
        let size = [random.size(1, most(40)), random.size(1, most(20))];
        Some(dense(dtype, size, random))
    })
}

/// A layer of so many columns and outputs.
fn dense(dtype: DType, [columns, outputs]: [u32; 2], random: &mut Random) -> Case {
    first(|| {
        let keep_dims = random.one_in(2);
        let dims: &[u32] = if keep_dims { &[2, 3, columns] } else { &[random.size(1, most(4)), columns] };
        let x = tensor(dtype, dims, random);
        let mut w = weights(dtype, &[outputs, columns], random);
        if dtype == DType::I8 && random.one_in(4) {
            w.zero_points = vec![random.range(-128, 127) as i32; w.scales.len()];
        }
        let mut inputs = vec![x, w];
        if !random.one_in(4) {
            inputs.push(bias(dtype, outputs, random));
        }
        let op = Op::from(FullyConnected { keep_dims, activation: activation(random) });
        let mut output = output(op, &inputs, random)?;
        spread(&mut output, &inputs, columns, random);
        Some(Case { op, inputs, output })
    })
}

pub(crate) fn pool(kind: PoolKind, dtype: DType, random: &mut Random) -> Case {
    pool_of(kind, dtype, 9, random)
}

/// Rows of an image, with sums above them or without.
fn average_part(dtype: DType, random: &mut Random) -> Case {
    first(|| {
        let [n, h, w, c] = [2, 4, 5, 9].map(|size| random.size(1, most(size)));
        let (last, activation) = (random.one_in(2), activation(random));
        let mut inputs = vec![tensor(dtype, &[n, h, w, c], random)];
        if random.one_in(2) {
            let (sum, count) = (if dtype == DType::I8 { DType::I32 } else { dtype }, (n * c) as usize);
            inputs.push(training::plain(ty(sum, &[n, 1, 1, c]), values(sum, count, random)));
        }
        let taps = h * w + random.size(0, 300);
        let op = Op::from(AveragePool2dPart { taps, last, activation });
        let output = output(op, &inputs, random)?;
        Some(Case { op, inputs, output })
    })
}

/// A pool over more channels than a vector has.
fn wide_pool(kind: PoolKind, random: &mut Random) -> Case {
    pool_of(kind, DType::I8, 40, random)
}

fn pool_of(kind: PoolKind, dtype: DType, channels: u32, random: &mut Random) -> Case {
    first(|| {
        let kernel = [random.size(1, most(5)), random.size(1, most(5))];
        let op = Op::from(Pool2d {
            kind,
            kernel,
            strides: [random.size(1, 3), random.size(1, 3)],
            pads: pads(kernel, [1, 1], random),
            activation: activation(random),
        });
        let channels = random.size(1, most(channels));
        let dims = [random.size(1, 3), random.size(1, most(9)), random.size(1, most(9)), channels];
        let inputs = vec![tensor(dtype, &dims, random)];
        let mut output = output(op, &inputs, random)?;
        output.scales = inputs[0].scales.clone();
        output.zero_points = inputs[0].zero_points.clone();
        Some(Case { op, inputs, output })
    })
}

pub(crate) fn any_dims(random: &mut Random) -> Vec<u32> {
    if random.one_in(8) {
        return vec![random.size(1, most(3000))];
    }
    (0..random.range(1, 5)).map(|_| random.size(1, most(6))).collect()
}

fn add(dtype: DType, random: &mut Random) -> Case {
    let dims = any_dims(random);
    let inputs = vec![tensor(dtype, &dims, random), tensor(dtype, &dims, random)];
    let op = Op::from(Add { activation: activation(random) });
    let output = output(op, &inputs, random).unwrap();
    Case { op, inputs, output }
}

/// The same case, or one whose output is so fine that no factor of 32 bits makes it.
fn fine(mut case: Case, random: &mut Random) -> Case {
    if random.one_in(5) {
        case.output.scales = vec![1e-12];
    }
    case
}

fn softmax(dtype: DType, random: &mut Random) -> Case {
    let mut dims = any_dims(random);
    if random.one_in(3) {
        *dims.last_mut().unwrap() = random.size(1, most(300));
    }
    softmax_of(dtype, &dims, random)
}

pub(crate) fn softmax_of(dtype: DType, dims: &[u32], random: &mut Random) -> Case {
    let inputs = vec![tensor(dtype, dims, random)];
    let op = Op::from(Softmax { beta: random.pick(&[1.0, 1.0, 0.5, 3.7]) });
    let mut output = output(op, &inputs, random).unwrap();
    if dtype == DType::I8 {
        output.scales = vec![1.0 / 256.0];
        output.zero_points = vec![-128];
    }
    Case { op, inputs, output }
}

fn log_softmax(dtype: DType, random: &mut Random) -> Case {
    let mut dims = any_dims(random);
    if random.one_in(3) {
        *dims.last_mut().unwrap() = random.size(1, most(300));
    }
    log_softmax_of(dtype, &dims, random)
}

pub(crate) fn log_softmax_of(dtype: DType, dims: &[u32], random: &mut Random) -> Case {
    let inputs = vec![tensor(dtype, dims, random)];
    let op = Op::from(LogSoftmax);
    let mut output = output(op, &inputs, random).unwrap();
    if dtype == DType::I8 {
        output.scales = vec![LOG_SOFTMAX_OUTPUT.0];
        output.zero_points = vec![LOG_SOFTMAX_OUTPUT.1];
    }
    Case { op, inputs, output }
}

/// To int8, from float32 or int8.
fn quantize(from: DType, random: &mut Random) -> Case {
    let inputs = vec![tensor(from, &any_dims(random), random)];
    let op = Op::from(Quantize);
    let mut output = output(op, &inputs, random).unwrap();
    if random.one_in(4) {
        // A power of two, so that many quotients end in a half.
        output.scales = vec![2f32.powi(random.range(-5, 1) as i32)];
    }
    Case { op, inputs, output }
}

fn dequantize(random: &mut Random) -> Case {
    let inputs = vec![tensor(DType::I8, &any_dims(random), random)];
    let op = Op::from(Dequantize);
    let output = output(op, &inputs, random).unwrap();
    Case { op, inputs, output }
}

fn transpose(random: &mut Random) -> Case {
    let dtype = random.pick(&[DType::I8, DType::F16, DType::F32, DType::I64]);
    let rank = random.size(1, 8) as usize;
    let longest = if rank < 5 { most(7) } else { 3 };
    let dims: Vec<u32> = (0..rank).map(|_| random.size(1, longest)).collect();
    let ty = ty(dtype, &dims);
    let mut permutation: Vec<usize> = (0..rank).collect();
    for i in 1..rank {
        permutation.swap(i, random.range(0, i as i64) as usize);
    }
    let data = random.bytes(ty.bytes().unwrap() as usize);
    let inputs = vec![Tensor { ty, scales: vec![], zero_points: vec![], data, constant: false }];
    let op = Op::from(Transpose::new(&permutation).unwrap());
    let output = output(op, &inputs, random).unwrap();
    Case { op, inputs, output }
}

fn copy(random: &mut Random) -> Case {
    let dtype = random.pick(&[DType::I8, DType::F32, DType::I4, DType::I64, DType::F16]);
    let dims = any_dims(random);
    let ty = ty(dtype, &dims);
    let data = random.bytes(ty.bytes().unwrap() as usize);
    let x = Tensor { ty, scales: vec![], zero_points: vec![], data, constant: false };
    let output = Tensor { data: vec![], ..x.clone() };
    Case { op: Op::from(Copy), inputs: vec![x], output }
}
