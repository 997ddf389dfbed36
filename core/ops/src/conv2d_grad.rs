//! The gradients of a convolution: with the convolution itself three operators, linear in each input, that
//! are each other's gradients.

use kiln_core::TensorType;

use crate::conv2d::{offset, positions};
use crate::matmul::floats;
use crate::spatial::{counted, four, nhwc};
use crate::{Activation, Arg, ArgMut, Conv2d, Cost, OpError, Operator};

/// The gradient of a convolution by its image, which is also the transposed convolution. Inputs: gradient
/// (or image) `[N, OH, OW, O]` and the convolution's weights `[O, KH, KW, C / groups]`; output
/// `[N, H, W, C]`. float32 or float64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Conv2dInputGrad {
    /// The convolution; its activation must be none.
    pub conv: Conv2d,
    /// Height and width of its image.
    pub size: [u32; 2],
}

/// The gradient of a convolution by its weights. Inputs: image `[N, H, W, C]` and gradient
/// `[N, OH, OW, O]`; output `[O, KH, KW, C / groups]`. float32 or float64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Conv2dWeightGrad {
    /// The convolution; its activation must be none.
    pub conv: Conv2d,
    /// Height and width of its window.
    pub kernel: [u32; 2],
}

/// Checks that convolving `x` with `w` gives `y`.
fn forward(conv: &Conv2d, x: &TensorType, w: &TensorType, y: &TensorType) -> Result<(), OpError> {
    if conv.activation != Activation::None {
        return Err(OpError::Attribute("activation", conv.activation as u64));
    }
    let found = conv.output(&[*x, *w])?;
    for axis in 0..4 {
        let (found, given) = (found.shape.dim(axis), y.shape.dim(axis));
        if found != given {
            return Err(OpError::Mismatch("the convolution's output and the gradient", found as u64, given as u64));
        }
    }
    Ok(())
}

/// Calls `each` with the indices of image, weights and output of every multiplication of a convolution.
fn products(conv: &Conv2d, x: &TensorType, w: &TensorType, y: &TensorType, mut each: impl FnMut(usize, usize, usize)) {
    let (xd, wd, yd) = (four(x), four(w), four(y));
    let window = conv.window(w);
    let per_output_group = (wd[0] / conv.groups.max(1)).max(1);
    for (b, oy, ox, o) in positions(yd) {
        let group = o / per_output_group;
        for ky in 0..wd[1] {
            for kx in 0..wd[2] {
                let (Some(iy), Some(ix)) = (window.tap(0, oy, ky, xd[1]), window.tap(1, ox, kx, xd[2])) else {
                    continue;
                };
                for k in 0..wd[3] {
                    let at_x = offset(xd, [b, iy, ix, group * wd[3] + k]);
                    each(at_x, offset(wd, [o, ky, kx, k]), offset(yd, [b, oy, ox, o]));
                }
            }
        }
    }
}

impl Operator for Conv2dInputGrad {
    const NAME: &'static str = "conv2d_input_grad";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let (d, w) = floats(inputs)?;
        let [n, ..] = nhwc(0, d)?;
        let [.., per_group] = nhwc(1, w)?;
        let channels = per_group.checked_mul(self.conv.groups).ok_or(OpError::TooLarge)?;
        let x = TensorType::new(d.dtype, counted(&[n, self.size[0], self.size[1], channels])?);
        forward(&self.conv, &x, w, d)?;
        Ok(x)
    }

    fn cost(&self, inputs: &[TensorType], output: &TensorType) -> Cost {
        let macs = match inputs {
            [d, w] => self.conv.cost(&[*output, *w], d).macs,
            _ => 0,
        };
        Cost::new(macs, inputs, output)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [d, w] = inputs else { return Err(OpError::Inputs(2, 2, inputs.len())) };
        y.data.fill(0);
        let ty = y.ty;
        products(&self.conv, &ty, &w.ty, &d.ty, |x, w_at, y_at| y.add_real(x, d.real(y_at) * w.real(w_at)));
        Ok(())
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let (d, w) = (at.input(0)?, at.input(1)?);
        let by_d = if at.wants(0) { Some(b.op(self.conv.into(), &[at.gradient, w])?) } else { None };
        let by_w = if at.wants(1) { Some(weight_grad(self.conv, b, at.gradient, d, w)?) } else { None };
        Ok(crate::build::gradients([by_d, by_w]))
    }
}

impl Operator for Conv2dWeightGrad {
    const NAME: &'static str = "conv2d_weight_grad";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let (x, d) = floats(inputs)?;
        let [.., channels] = nhwc(0, x)?;
        let [.., o] = nhwc(1, d)?;
        if self.conv.groups == 0 || !channels.is_multiple_of(self.conv.groups) {
            return Err(OpError::Mismatch("input channels and groups", channels as u64, self.conv.groups as u64));
        }
        let w = [o, self.kernel[0], self.kernel[1], channels / self.conv.groups];
        let w = TensorType::new(x.dtype, counted(&w)?);
        forward(&self.conv, x, &w, d)?;
        Ok(w)
    }

    fn cost(&self, inputs: &[TensorType], output: &TensorType) -> Cost {
        let macs = match inputs {
            [x, d] => self.conv.cost(&[*x, *output], d).macs,
            _ => 0,
        };
        Cost::new(macs, inputs, output)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let [x, d] = inputs else { return Err(OpError::Inputs(2, 2, inputs.len())) };
        y.data.fill(0);
        let ty = y.ty;
        products(&self.conv, &x.ty, &ty, &d.ty, |x_at, w, y_at| y.add_real(w, x.real(x_at) * d.real(y_at)));
        Ok(())
    }

    #[cfg(feature = "host")]
    fn gradient<B: crate::Build>(
        &self,
        b: &mut B,
        at: &crate::Differential<'_, B::Value>,
    ) -> Result<crate::Gradients<B::Value>, OpError> {
        let (x, d) = (at.input(0)?, at.input(1)?);
        let by_x = if at.wants(0) { Some(input_grad(self.conv, b, d, at.gradient, x)?) } else { None };
        let by_d = if at.wants(1) { Some(b.op(self.conv.into(), &[x, at.gradient])?) } else { None };
        Ok(crate::build::gradients([by_x, by_d]))
    }
}

/// The gradient by the image `x` of a convolution without activation.
#[cfg(feature = "host")]
pub(crate) fn input_grad<B: crate::Build>(
    conv: Conv2d,
    b: &mut B,
    d: B::Value,
    w: B::Value,
    x: B::Value,
) -> Result<B::Value, OpError> {
    let shape = b.ty(x).shape;
    b.op(Conv2dInputGrad { conv, size: [shape.dim(1), shape.dim(2)] }.into(), &[d, w])
}

/// The gradient by the weights `w` of a convolution without activation.
#[cfg(feature = "host")]
pub(crate) fn weight_grad<B: crate::Build>(
    conv: Conv2d,
    b: &mut B,
    x: B::Value,
    d: B::Value,
    w: B::Value,
) -> Result<B::Value, OpError> {
    let shape = b.ty(w).shape;
    b.op(Conv2dWeightGrad { conv, kernel: [shape.dim(1), shape.dim(2)] }.into(), &[x, d])
}

/// The gradient before an activation: that after it where the result is strictly between the bounds.
#[cfg(feature = "host")]
pub(crate) fn through<B: crate::Build>(
    activation: Activation,
    b: &mut B,
    at: &crate::Differential<'_, B::Value>,
) -> Result<B::Value, OpError> {
    let (low, high) = activation.bounds();
    let dtype = b.ty(at.output).dtype;
    let mut d = at.gradient;
    if low.is_finite() {
        let bound = b.scalar(dtype, low as f64)?;
        let above = b.map(crate::Function::Less, &[bound, at.output])?;
        d = b.mask(above, d)?;
    }
    if high.is_finite() {
        let bound = b.scalar(dtype, high as f64)?;
        let below = b.map(crate::Function::Less, &[at.output, bound])?;
        d = b.mask(below, d)?;
    }
    Ok(d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;
    use kiln_core::{DType, Shape};

    /// `<conv(x, w), d> == <x, input_grad(d, w)> == <w, weight_grad(x, d)>`: what makes them gradients.
    #[test]
    fn the_three_are_adjoint() {
        let mut seed = 1u32;
        let mut random = |ty: &TensorType| -> Vec<u8> {
            let next = |_| {
                seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
                ((seed >> 16) as f64 / 65536.0 - 0.5).to_le_bytes()
            };
            (0..ty.shape.elements().unwrap()).flat_map(next).collect()
        };
        let ty = |dims: &[u32]| TensorType::new(DType::F64, Shape::new(dims).unwrap());
        for (groups, strides, dilations, pads) in
            [(1, [1, 1], [1, 1], [0; 4]), (2, [2, 1], [1, 2], [1, 2, 1, 0]), (4, [1, 3], [2, 1], [2, 1, 0, 1])]
        {
            let conv = Conv2d { strides, dilations, pads, groups, activation: Activation::None };
            let (x, w) = (ty(&[2, 6, 7, 4]), ty(&[8, 3, 2, 4 / groups]));
            let y = conv.output(&[x, w]).unwrap();
            let (xs, ws, ds) = (random(&x), random(&w), random(&y));
            let quant = QuantRef::default();
            fn arg(ty: TensorType, data: &[u8]) -> Arg<'_> {
                Arg { ty, quant: QuantRef::default(), data }
            }
            let run = |op: &dyn Fn(&mut ArgMut<'_>), ty: TensorType| {
                let mut out = vec![0; ty.bytes().unwrap() as usize];
                op(&mut ArgMut { ty, quant, data: &mut out });
                out
            };
            let ys = run(&|out| conv.reference(&[arg(x, &xs), arg(w, &ws)], out).unwrap(), y);
            let input = Conv2dInputGrad { conv, size: [6, 7] };
            assert_eq!(input.output(&[y, w]), Ok(x));
            let dx = run(&|out| input.reference(&[arg(y, &ds), arg(w, &ws)], out).unwrap(), x);
            let weight = Conv2dWeightGrad { conv, kernel: [3, 2] };
            assert_eq!(weight.output(&[x, y]), Ok(w));
            let dw = run(&|out| weight.reference(&[arg(x, &xs), arg(y, &ds)], out).unwrap(), w);
            let dot = |ty: TensorType, a: &[u8], b: &[u8]| -> f64 {
                (0..ty.shape.elements().unwrap() as usize).map(|i| arg(ty, a).real(i) * arg(ty, b).real(i)).sum()
            };
            let forward = dot(y, &ys, &ds);
            assert!((forward - dot(x, &xs, &dx)).abs() < 1e-9, "{forward}");
            assert!((forward - dot(w, &ws, &dw)).abs() < 1e-9, "{forward}");
        }
    }
}
