//! The gradients of pools.

use kiln_core::{DType, TensorType};

use crate::conv2d::{offset, positions};
use crate::spatial::{counted, four, nhwc};
use crate::{Activation, Arg, ArgMut, OpError, Operator, Pool2d, PoolKind};

/// The gradient of an average pool: gradient `[N, OH, OW, C]` to `[N, H, W, C]`. float32 or float64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct AveragePool2dGrad {
    /// The pool: an average without activation.
    pub pool: Pool2d,
    /// Height and width of its image.
    pub size: [u32; 2],
}

/// The gradient of a maximum pool: image `[N, H, W, C]` and gradient `[N, OH, OW, C]` to `[N, H, W, C]`. Of
/// several equal maxima in a window the first gets all. float32 or float64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct MaxPool2dGrad {
    /// The pool: a maximum without activation.
    pub pool: Pool2d,
}

/// Picks from `[N, H, W, C]` what lies where another image has its windows' maxima: image, then what is picked
/// from; output `[N, OH, OW, C]`. The gradient of [`MaxPool2dGrad`]. float32 or float64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct MaxPool2dPick {
    /// The pool: a maximum without activation.
    pub pool: Pool2d,
}

fn check(pool: &Pool2d, kind: PoolKind, x: &TensorType, y: Option<&TensorType>) -> Result<TensorType, OpError> {
    if pool.kind != kind {
        return Err(OpError::Attribute("kind", pool.kind as u64));
    }
    if pool.activation != Activation::None {
        return Err(OpError::Attribute("activation", pool.activation as u64));
    }
    if !matches!(x.dtype, DType::F32 | DType::F64) {
        return Err(OpError::DType(0, x.dtype));
    }
    let found = pool.output(&[*x])?;
    if let Some(y) = y {
        if y.dtype != x.dtype {
            return Err(OpError::DType(1, y.dtype));
        }
        nhwc(1, y)?;
        for axis in 0..4 {
            let (found, given) = (found.shape.dim(axis), y.shape.dim(axis));
            if found != given {
                return Err(OpError::Mismatch("the pool's output and the gradient", found as u64, given as u64));
            }
        }
    }
    Ok(found)
}

/// The indices of the image that a window covers.
fn taps(pool: &Pool2d, x: [u32; 4], at: (u32, u32, u32, u32)) -> impl Iterator<Item = usize> + Clone {
    let (b, oy, ox, c) = at;
    let (window, kernel) = (pool.window(), pool.kernel);
    let rows = (0..kernel[0]).filter_map(move |k| window.tap(0, oy, k, x[1]));
    rows.flat_map(move |iy| {
        (0..kernel[1]).filter_map(move |k| window.tap(1, ox, k, x[2])).map(move |ix| offset(x, [b, iy, ix, c]))
    })
}

/// Where the maximum of a window lies.
fn maximum(pool: &Pool2d, x: &Arg<'_>, dims: [u32; 4], at: (u32, u32, u32, u32)) -> Option<usize> {
    taps(pool, dims, at).reduce(|best, tap| if x.real(tap) > x.real(best) { tap } else { best })
}

impl Operator for AveragePool2dGrad {
    const NAME: &'static str = "average_pool2d_grad";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [d] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        let [n, _, _, c] = nhwc(0, d)?;
        let x = TensorType::new(d.dtype, counted(&[n, self.size[0], self.size[1], c])?);
        check(&self.pool, PoolKind::Average, &x, Some(d))?;
        Ok(x)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [d] = inputs else { return Err(OpError::Inputs(1, 1, inputs.len())) };
        y.data.fill(0);
        let (x_dims, d_dims) = (four(&y.ty), four(&d.ty));
        for at in positions(d_dims) {
            let taps = taps(&self.pool, x_dims, at);
            let share = d.real(offset(d_dims, [at.0, at.1, at.2, at.3])) / taps.clone().count() as f64;
            taps.for_each(|tap| y.add_real(tap, share));
        }
        Ok(())
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        Ok(crate::build::gradients([Some(b.op(self.pool.into(), &[at.gradient])?)]))
    }
}

impl Operator for MaxPool2dGrad {
    const NAME: &'static str = "max_pool2d_grad";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x, d] = inputs else { return Err(OpError::Inputs(2, 2, inputs.len())) };
        check(&self.pool, PoolKind::Max, x, Some(d))?;
        Ok(*x)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x, d] = inputs else { return Err(OpError::Inputs(2, 2, inputs.len())) };
        y.data.fill(0);
        let (x_dims, d_dims) = (four(&x.ty), four(&d.ty));
        for at in positions(d_dims) {
            if let Some(place) = maximum(&self.pool, x, x_dims, at) {
                y.add_real(place, d.real(offset(d_dims, [at.0, at.1, at.2, at.3])));
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
        let picked = b.op(MaxPool2dPick { pool: self.pool }.into(), &[at.input(0)?, at.gradient])?;
        // Which element is the largest changes nowhere but where two are equal.
        Ok(crate::build::gradients([None, Some(picked)]))
    }
}

impl Operator for MaxPool2dPick {
    const NAME: &'static str = "max_pool2d_pick";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let [x, from] = inputs else { return Err(OpError::Inputs(2, 2, inputs.len())) };
        let y = check(&self.pool, PoolKind::Max, x, None)?;
        if from.dtype != x.dtype {
            return Err(OpError::DType(1, from.dtype));
        }
        if from.shape != x.shape {
            let count = |t: &TensorType| t.shape.elements().unwrap_or(u64::MAX);
            return Err(OpError::Mismatch("the two images (elements)", count(x), count(from)));
        }
        Ok(y)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x, from] = inputs else { return Err(OpError::Inputs(2, 2, inputs.len())) };
        let (x_dims, y_dims) = (four(&x.ty), four(&y.ty));
        for at in positions(y_dims) {
            let picked = maximum(&self.pool, x, x_dims, at).map_or(0.0, |place| from.real(place));
            y.set_real(offset(y_dims, [at.0, at.1, at.2, at.3]), picked);
        }
        Ok(())
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let spread = b.op(MaxPool2dGrad { pool: self.pool }.into(), &[at.input(0)?, at.gradient])?;
        Ok(crate::build::gradients([None, Some(spread)]))
    }
}

/// The gradient of a pool by its image.
#[cfg(feature = "host")]
pub(crate) fn pool_grad<B: crate::Build>(
    pool: &Pool2d,
    b: &mut B,
    at: &crate::Differential<'_, B::Value>,
) -> Result<B::Value, OpError> {
    let d = crate::conv2d_grad::through(pool.activation, b, at)?;
    let pool = Pool2d { activation: Activation::None, ..*pool };
    let x = at.input(0)?;
    let shape = b.ty(x).shape;
    match pool.kind {
        PoolKind::Average => b.op(AveragePool2dGrad { pool, size: [shape.dim(1), shape.dim(2)] }.into(), &[d]),
        PoolKind::Max => b.op(MaxPool2dGrad { pool }.into(), &[x, d]),
    }
}
