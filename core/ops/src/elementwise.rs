//! Element-by-element operators: one row each.
//!
//! A row gives the name, the real function, and the int8 arithmetic, which is an operator's own
//! because every one rounds differently in TFLite.

use kiln_core::{DType, TensorType, fixed};

use crate::{Activation, Arg, ArgMut, OpError, Operator};

/// Declares binary operators over two tensors of equal shape.
macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $real:expr, $int8:path;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name {
            /// Applied to the result.
            pub activation: Activation,
        }

        impl Operator for $name {
            const NAME: &'static str = $text;

            fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
                binary_output(inputs)
            }

            fn varies(&self, _: &[TensorType], _: usize, axis: usize) -> Option<usize> {
                Some(axis)
            }

            fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
                let [a, b] = inputs else { return Err(OpError::Inputs(2, 2, inputs.len())) };
                if a.ty.dtype == DType::I8 {
                    return $int8(self.activation, a, b, y);
                }
                let real: fn(f32, f32) -> f32 = $real;
                for i in 0..elements(y) {
                    if a.ty.dtype == DType::F64 {
                        y.set_real(i, self.activation.apply_f64(a.real(i) + b.real(i)));
                    } else {
                        y.set_f32(i, self.activation.apply(real(a.f32(i), b.f32(i))));
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
                let d = crate::conv2d_grad::through(self.activation, b, at)?;
                Ok(crate::build::gradients([Some(d), Some(d)]))
            }
        }
    )*};
}

binary! {
    /// `a + b` of two tensors of one shape, float32 or int8 (each with its own quantization).
    Add, "add", |a, b| a + b, add_int8;
}

fn elements(y: &ArgMut<'_>) -> usize {
    y.ty.shape.elements().unwrap_or(0) as usize
}

fn binary_output(inputs: &[TensorType]) -> Result<TensorType, OpError> {
    let [a, b] = inputs else { return Err(OpError::Inputs(2, 2, inputs.len())) };
    if !matches!(a.dtype, DType::F32 | DType::F64 | DType::I8) {
        return Err(OpError::DType(0, a.dtype));
    }
    if b.dtype != a.dtype {
        return Err(OpError::DType(1, b.dtype));
    }
    if a.shape != b.shape {
        let count = |t: &TensorType| t.shape.elements().unwrap_or(u64::MAX);
        return Err(OpError::Mismatch("the two inputs' shapes (elements)", count(a), count(b)));
    }
    Ok(*a)
}

/// The left shift that TFLite's int8 add gives both inputs before it scales them.
pub const ADD_LEFT_SHIFT: u32 = 20;

/// The factors of TFLite's int8 add, in order: of input a, of input b, of the output.
///
/// Both inputs are brought to twice the larger scale, so that each factor is at most a half.
pub fn add_multipliers(a: f32, b: f32, y: f32) -> [f64; 3] {
    let twice = 2.0 * (if a > b { a } else { b }) as f64;
    [a as f64 / twice, b as f64 / twice, twice / ((1u64 << ADD_LEFT_SHIFT) as f64 * y as f64)]
}

/// TFLite's `reference_integer_ops::Add`.
fn add_int8(activation: Activation, a: &Arg<'_>, b: &Arg<'_>, y: &mut ArgMut<'_>) -> Result<(), OpError> {
    for quant in [&a.quant, &b.quant, &y.quant] {
        if quant.scales.len() != 1 {
            return Err(OpError::Quantization("add needs one scale for each tensor"));
        }
    }
    let (low, high) = activation.quantized_bounds(y.quant.scale(0), y.quant.zero_point(0), -128, 127);
    let [ma, mb, my] =
        add_multipliers(a.quant.scale(0), b.quant.scale(0), y.quant.scale(0)).map(fixed::quantize_multiplier);
    let scaled = |arg: &Arg<'_>, (multiplier, shift): (i32, i32), i: usize| {
        let shifted = (arg.i8(i) as i32 - arg.quant.zero_point(0)).wrapping_mul(1 << ADD_LEFT_SHIFT);
        fixed::multiply_by_quantized_multiplier(shifted, multiplier, shift)
    };
    for i in 0..elements(y) {
        let sum = scaled(a, ma, i).wrapping_add(scaled(b, mb, i));
        let out = fixed::multiply_by_quantized_multiplier(sum, my.0, my.1).wrapping_add(y.quant.zero_point(0));
        y.set_i8(i, out.max(low).min(high) as i8);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;
    use kiln_core::Shape;

    #[test]
    fn int8_add_is_close_to_the_real_sum() {
        let ty = TensorType::new(DType::I8, Shape::new(&[256]).unwrap());
        let data: Vec<u8> = (0..=255).collect();
        let other: Vec<u8> = (0..=255u8).map(|v| v.wrapping_mul(77)).collect();
        let (qa, qb, qy) = ((0.3, 5), (0.11, -7), (0.5, 3));
        let quant = |q: &(f32, i32)| (vec![q.0], vec![q.1]);
        let (a, b, y) = (quant(&qa), quant(&qb), quant(&qy));
        let mut out = vec![0u8; 256];
        let view = |q: &'static str, s: &(Vec<f32>, Vec<i32>)| {
            let _ = q;
            (s.0.clone(), s.1.clone())
        };
        let (sa, sb, sy) = (view("a", &a), view("b", &b), view("y", &y));
        let mut arg = ArgMut { ty, quant: QuantRef { scales: &sy.0, zero_points: &sy.1, axis: 0 }, data: &mut out };
        let ins = [
            Arg { ty, quant: QuantRef { scales: &sa.0, zero_points: &sa.1, axis: 0 }, data: &data },
            Arg { ty, quant: QuantRef { scales: &sb.0, zero_points: &sb.1, axis: 0 }, data: &other },
        ];
        Add { activation: Activation::None }.reference(&ins, &mut arg).unwrap();
        for i in 0..256 {
            let real = 0.3 * (data[i] as i8 as f64 - 5.0) + 0.11 * (other[i] as i8 as f64 + 7.0);
            let want = (real / 0.5 + 3.0).clamp(-128.0, 127.0);
            assert!((want - out[i] as i8 as f64).abs() <= 0.51, "element {i}");
        }
    }
}
