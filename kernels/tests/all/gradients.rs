//! Random cases for the gradients of convolutions and pools.

use kiln_core::DType;
use kiln_ops::{
    Activation, AveragePool2dGrad, Conv2d, Conv2dInputGrad, Conv2dWeightGrad, MaxPool2dGrad, MaxPool2dPick, Op, Pool2d,
    PoolKind,
};

use crate::generate::{conv2d, depthwise, pool};
use crate::support::{Case, Random, Tensor};
use crate::training::{finish, tame};

/// A convolution without activation, the dimensions of its image, its weights and its result.
fn convolution(random: &mut Random) -> (Conv2d, [Vec<u32>; 3]) {
    let case = if random.one_in(3) { depthwise(DType::F32, random) } else { conv2d(DType::F32, random) };
    let Op::Conv2d(op) = case.op else { unreachable!() };
    let dims = |t: &Tensor| t.ty.shape.dims().to_vec();
    let all = [dims(&case.inputs[0]), dims(&case.inputs[1]), dims(&case.output)];
    (Conv2d { activation: Activation::None, ..op }, all)
}

pub(crate) fn conv2d_input(random: &mut Random) -> Case {
    let (conv, [x, w, y]) = convolution(random);
    let inputs = vec![tame(&y, random), tame(&w, random)];
    finish(Conv2dInputGrad { conv, size: [x[1], x[2]] }, inputs, random).unwrap()
}

pub(crate) fn conv2d_weight(random: &mut Random) -> Case {
    let (conv, [x, w, y]) = convolution(random);
    let inputs = vec![tame(&x, random), tame(&y, random)];
    finish(Conv2dWeightGrad { conv, kernel: [w[1], w[2]] }, inputs, random).unwrap()
}

/// A pool without activation, its image and its result.
fn pooled(kind: PoolKind, random: &mut Random) -> (Pool2d, Tensor, Tensor) {
    let case = pool(kind, DType::F32, random);
    let Op::Pool2d(op) = case.op else { unreachable!() };
    let mut x = case.inputs[0].clone();
    if random.one_in(2) {
        // Many equal maxima.
        x.data = x.data.chunks(4).flat_map(|_| (random.range(0, 2) as f32).to_le_bytes()).collect();
    }
    (Pool2d { activation: Activation::None, ..op }, x, case.output)
}

pub(crate) fn average_pool(random: &mut Random) -> Case {
    let (pool, x, y) = pooled(PoolKind::Average, random);
    let size = [x.ty.shape.dim(1), x.ty.shape.dim(2)];
    let d = tame(y.ty.shape.dims(), random);
    finish(AveragePool2dGrad { pool, size }, vec![d], random).unwrap()
}

pub(crate) fn max_pool(random: &mut Random) -> Case {
    let (pool, x, y) = pooled(PoolKind::Max, random);
    let d = tame(y.ty.shape.dims(), random);
    finish(MaxPool2dGrad { pool }, vec![x, d], random).unwrap()
}

pub(crate) fn max_pool_pick(random: &mut Random) -> Case {
    let (pool, x, _) = pooled(PoolKind::Max, random);
    let from = tame(x.ty.shape.dims(), random);
    finish(MaxPool2dPick { pool }, vec![x, from], random).unwrap()
}
