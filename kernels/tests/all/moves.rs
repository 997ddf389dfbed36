//! Random cases for operators that move elements, convert them, or make them up.

use kiln_core::{DType, MAX_RANK, Shape};
use kiln_ops::{Cast, Concat, Distribution, Expand, Random as RandomOp, Scatter, Slice};

use crate::generate::{any_dims, most, ty, values};
use crate::support::{Case, Random, Tensor};
use crate::training::{finish, plain};

/// Bytes of any dtype.
fn bytes(dtype: DType, dims: &[u32], random: &mut Random) -> Tensor {
    let ty = ty(dtype, dims);
    plain(ty, random.bytes(ty.bytes().unwrap() as usize))
}

fn any_dtype(random: &mut Random) -> DType {
    random.pick(&[DType::I8, DType::F16, DType::F32, DType::I64, DType::Bool])
}

fn some_dims(random: &mut Random) -> Vec<u32> {
    let most_axes = if random.one_in(4) { 8 } else { 4 };
    let rank = random.range(1, most_axes);
    (0..rank).map(|_| random.size(1, if rank > 4 { 3 } else { most(7) })).collect()
}

/// Slices and expansions.
pub(crate) fn strided(random: &mut Random) -> Case {
    let (dtype, dims) = (any_dtype(random), some_dims(random));
    if random.one_in(2) {
        let own: Vec<u32> = dims.iter().map(|&d| if random.one_in(3) { 1 } else { d }).collect();
        let missing = if random.one_in(3) { random.size(0, own.len() as u32) as usize } else { 0 };
        let x = bytes(dtype, &own[missing..], random);
        return finish(Expand { shape: Shape::new(&dims).unwrap() }, vec![x], random).unwrap();
    }
    let (begin, step, size) = places(&dims, random);
    let x = bytes(dtype, &dims, random);
    finish(Slice { begin, size: Shape::new(&size).unwrap(), step }, vec![x], random).unwrap()
}

/// Indices along each of some dimensions: where they begin, how far apart, how many.
fn places(dims: &[u32], random: &mut Random) -> ([u32; MAX_RANK], [u32; MAX_RANK], Vec<u32>) {
    let (mut begin, mut step) = ([0; MAX_RANK], [1; MAX_RANK]);
    let mut sizes = Vec::new();
    for (axis, &dim) in dims.iter().enumerate() {
        if random.one_in(3) {
            sizes.push(dim);
            continue;
        }
        begin[axis] = random.size(0, dim - 1);
        step[axis] = random.pick(&[1, 1, 2, 3]);
        sizes.push(random.size(1, (dim - begin[axis]).div_ceil(step[axis])));
    }
    (begin, step, sizes)
}

pub(crate) fn scatter(random: &mut Random) -> Case {
    let (dtype, dims) = (any_dtype(random), some_dims(random));
    let (begin, step, size) = places(&dims, random);
    let x = bytes(dtype, &size, random);
    finish(Scatter { begin, shape: Shape::new(&dims).unwrap(), step }, vec![x], random).unwrap()
}

pub(crate) fn concat(random: &mut Random) -> Case {
    let (dtype, mut dims) = (any_dtype(random), some_dims(random));
    let axis = random.size(0, dims.len() as u32 - 1) as u8;
    let most_inputs = if random.one_in(8) { 15 } else { 4 };
    let count = random.range(1, most_inputs);
    let inputs = (0..count).map(|_| {
        dims[axis as usize] = random.size(1, 4);
        bytes(dtype, &dims, random)
    });
    let inputs = inputs.collect();
    finish(Concat { axis }, inputs, random).unwrap()
}

pub(crate) fn cast(random: &mut Random) -> Case {
    let dtypes = [DType::F32, DType::I32, DType::I8, DType::U8, DType::Bool];
    let (from, to) = (random.pick(&dtypes), random.pick(&dtypes));
    let ty = ty(from, &any_dims(random));
    let n = ty.shape.elements().unwrap() as usize;
    let data = match from {
        DType::F32 => {
            let value = |random: &mut Random| match random.range(0, 9) {
                0 => random.pick(&[f32::NAN, f32::INFINITY, -3e9, 3e9, 255.5, -128.5, 0.0, -0.0]),
                _ => (random.float() * 400.0 - 200.0) as f32,
            };
            (0..n).flat_map(|_| value(random).to_le_bytes()).collect()
        }
        DType::Bool => (0..n).map(|_| random.range(0, 1) as u8).collect(),
        _ => values(from, n, random),
    };
    finish(Cast { dtype: to }, vec![plain(ty, data)], random).unwrap()
}

pub(crate) fn numbers(random: &mut Random) -> Case {
    let shape = Shape::new(&any_dims(random)).unwrap();
    let distribution = random.pick(&[Distribution::Uniform, Distribution::Normal]);
    let key = bytes(DType::I32, &[4], random);
    finish(RandomOp { shape, distribution }, vec![key], random).unwrap()
}
