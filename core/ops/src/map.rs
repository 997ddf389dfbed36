//! Functions of single elements, one row each, and the operator that applies one to tensors.
//!
//! A row gives the function's number, its name, what it takes, the function over real numbers and
//! over integers, and its gradient. Kernels, fused chains and back ends read the same rows.

use kiln_core::{DType, TensorType};

use crate::broadcast::{broadcast, position, strides};
use crate::{Arg, ArgMut, Cost, OpError, Operator};

/// What element types a function takes and gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signature {
    /// Floating point to the same type.
    Float,
    /// Floating point or int32 to the same type.
    Arithmetic,
    /// Two of floating point or int32, to bool.
    Comparison,
    /// bool to bool.
    Logic,
    /// A bool, then two of one type: that type.
    Select,
}

/// Makes [`Function`] out of the list.
macro_rules! functions {
    ($($(#[$doc:meta])* $code:literal => $name:ident $text:literal $signature:ident [$($x:ident),+]
        real $real:expr; integer $integer:expr; gradient |$b:ident, $y:ident, $d:ident| $gradient:expr;)*) => {
        /// A function of one element of each input. The numbers are part of files and never reused.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "host", serde(into = "u8", try_from = "u8"))]
        #[repr(u8)]
        pub enum Function {
            $($(#[$doc])* $name = $code,)*
        }

        impl Function {
            /// Every function.
            pub const ALL: &'static [Function] = &[$(Function::$name,)*];

            /// The function with number `code`.
            pub const fn from_code(code: u8) -> Option<Function> {
                match code { $($code => Some(Function::$name),)* _ => None }
            }

            /// The name in snake case.
            pub const fn name(self) -> &'static str {
                match self { $(Function::$name => $text,)* }
            }

            /// What it takes and gives.
            pub const fn signature(self) -> Signature {
                match self { $(Function::$name => Signature::$signature,)* }
            }

            /// How many inputs it takes.
            pub const fn arity(self) -> usize {
                match self { $(Function::$name => [$(stringify!($x)),+].len(),)* }
            }

            /// The function over real numbers; truth is 1 and 0.
            #[allow(unused_variables, reason = "rows name what they take, whether it is used or not")]
            pub fn real(self, x: [f64; 3]) -> f64 {
                match self { $(Function::$name => { let [$($x,)+ ..] = x; $real })* }
            }

            /// The function over integers, as wide as wraps around where a tensor's elements do.
            #[allow(unused_variables, reason = "rows name what they take, whether it is used or not")]
            pub fn integer(self, x: [i64; 3]) -> i64 {
                match self { $(Function::$name => { let [$($x,)+ ..] = x; $integer })* }
            }

            /// The gradients by each input, all of the output's shape.
            #[cfg(feature = "host")]
            #[allow(unused_variables, reason = "rows name what they take, whether it is used or not")]
            fn gradient<B: crate::Build>(
                self,
                builder: &mut B,
                at: &crate::Differential<'_, B::Value>,
            ) -> Result<[Option<B::Value>; 3], OpError> {
                match self {
                    $(Function::$name => {
                        let mut inputs = at.inputs.iter().copied();
                        $(let $x = inputs.next().ok_or(OpError::Inputs(self.arity(), self.arity(), at.inputs.len()))?;)+
                        let ($b, $y, $d) = (builder, at.output, at.gradient);
                        Ok(three($gradient))
                    })*
                }
            }
        }
    };
}

functions! {
    /// `a + b`.
    1 => Add "add" Arithmetic [a, b]
        real a + b; integer a.wrapping_add(b);
        gradient |g, y, d| [Some(d), Some(d)];
    /// `a - b`.
    2 => Sub "sub" Arithmetic [a, b]
        real a - b; integer a.wrapping_sub(b);
        gradient |g, y, d| [Some(d), Some(g.neg(d)?)];
    /// `a * b`.
    3 => Mul "mul" Arithmetic [a, b]
        real a * b; integer a.wrapping_mul(b);
        gradient |g, y, d| [Some(g.mul(d, b)?), Some(g.mul(d, a)?)];
    /// `a / b`; integers truncate toward zero, and a division by zero gives 0.
    4 => Div "div" Arithmetic [a, b]
        real a / b; integer a.checked_div(b).unwrap_or(0);
        gradient |g, y, d| {
            let by_a = g.map(Function::Div, &[d, b])?;
            let by_b = g.mul(by_a, y)?;
            [Some(by_a), Some(g.neg(by_b)?)]
        };
    /// The smaller; where equal, the gradient goes to `a`.
    5 => Min "min" Arithmetic [a, b]
        real if b < a || b.is_nan() { b } else { a }; integer a.min(b);
        gradient |g, y, d| {
            let second = g.map(Function::Less, &[b, a])?;
            let first = g.map(Function::Not, &[second])?;
            [Some(g.mask(first, d)?), Some(g.mask(second, d)?)]
        };
    /// The larger; where equal, the gradient goes to `b`, so that `max(x, 0)` has none at 0.
    6 => Max "max" Arithmetic [a, b]
        real if b > a || b.is_nan() { b } else { a }; integer a.max(b);
        gradient |g, y, d| {
            // As `b < a`, but so that `a` need not be kept until then.
            let first = g.map(Function::Less, &[b, y])?;
            let second = g.map(Function::Not, &[first])?;
            [Some(g.mask(first, d)?), Some(g.mask(second, d)?)]
        };
    /// `a` to the power `b`.
    7 => Pow "pow" Float [a, b]
        real libm::pow(a, b); integer 0;
        gradient |g, y, d| {
            let less = g.map_scalar(Function::Sub, b, 1.0)?;
            let power = g.map(Function::Pow, &[a, less])?;
            let slope = g.mul(power, b)?;
            // Where a is 0, the logarithm is not finite, but y is 0 or 1 and does not change with b.
            let zero = g.scalar(g.ty(a).dtype, 0.0)?;
            let positive = g.map(Function::Less, &[zero, a])?;
            let one = g.scalar(g.ty(a).dtype, 1.0)?;
            let safe = g.map(Function::Select, &[positive, a, one])?;
            let log = g.map(Function::Log, &[safe])?;
            let by_b = g.mul(log, y)?;
            [Some(g.mul(d, slope)?), Some(g.mul(d, by_b)?)]
        };
    /// `-a`.
    16 => Neg "neg" Arithmetic [a]
        real -a; integer a.wrapping_neg();
        gradient |g, y, d| [Some(g.neg(d)?)];
    /// `|a|`.
    17 => Abs "abs" Arithmetic [a]
        real a.abs(); integer a.wrapping_abs();
        gradient |g, y, d| {
            let sign = g.map(Function::Sign, &[a])?;
            [Some(g.mul(d, sign)?)]
        };
    /// -1, 0 or 1.
    18 => Sign "sign" Arithmetic [a]
        real if a > 0.0 { 1.0 } else if a < 0.0 { -1.0 } else { a }; integer a.signum();
        gradient |g, y, d| [None];
    /// `e` to the power `a`.
    19 => Exp "exp" Float [a]
        real libm::exp(a); integer 0;
        gradient |g, y, d| [Some(g.mul(d, y)?)];
    /// The natural logarithm.
    20 => Log "log" Float [a]
        real libm::log(a); integer 0;
        gradient |g, y, d| [Some(g.map(Function::Div, &[d, a])?)];
    /// The square root.
    21 => Sqrt "sqrt" Float [a]
        real libm::sqrt(a); integer 0;
        gradient |g, y, d| {
            let half = g.map_scalar(Function::Mul, d, 0.5)?;
            [Some(g.map(Function::Div, &[half, y])?)]
        };
    /// The sine of an angle in radians.
    22 => Sin "sin" Float [a]
        real libm::sin(a); integer 0;
        gradient |g, y, d| {
            let slope = g.map(Function::Cos, &[a])?;
            [Some(g.mul(d, slope)?)]
        };
    /// The cosine of an angle in radians.
    23 => Cos "cos" Float [a]
        real libm::cos(a); integer 0;
        gradient |g, y, d| {
            let slope = g.map(Function::Sin, &[a])?;
            let slope = g.neg(slope)?;
            [Some(g.mul(d, slope)?)]
        };
    /// The hyperbolic tangent.
    24 => Tanh "tanh" Float [a]
        real libm::tanh(a); integer 0;
        gradient |g, y, d| {
            let square = g.mul(y, y)?;
            let lost = g.mul(d, square)?;
            [Some(g.map(Function::Sub, &[d, lost])?)]
        };
    /// `1 / (1 + exp(-a))`.
    25 => Sigmoid "sigmoid" Float [a]
        real if a >= 0.0 { 1.0 / (1.0 + libm::exp(-a)) } else { let e = libm::exp(a); e / (1.0 + e) }; integer 0;
        gradient |g, y, d| {
            let part = g.mul(d, y)?;
            let lost = g.mul(part, y)?;
            [Some(g.map(Function::Sub, &[part, lost])?)]
        };
    /// The error function.
    26 => Erf "erf" Float [a]
        real libm::erf(a); integer 0;
        gradient |g, y, d| {
            let square = g.mul(a, a)?;
            let exponent = g.neg(square)?;
            let bell = g.map(Function::Exp, &[exponent])?;
            let slope = g.map_scalar(Function::Mul, bell, core::f64::consts::FRAC_2_SQRT_PI)?;
            [Some(g.mul(d, slope)?)]
        };
    /// The largest whole number that is not larger.
    27 => Floor "floor" Float [a]
        real libm::floor(a); integer 0;
        gradient |g, y, d| [None];
    /// Whether `a == b`.
    32 => Equal "equal" Comparison [a, b]
        real f64::from(a == b); integer i64::from(a == b);
        gradient |g, y, d| [None];
    /// Whether `a < b`.
    33 => Less "less" Comparison [a, b]
        real f64::from(a < b); integer i64::from(a < b);
        gradient |g, y, d| [None];
    /// Whether `a <= b`.
    34 => LessEqual "less_equal" Comparison [a, b]
        real f64::from(a <= b); integer i64::from(a <= b);
        gradient |g, y, d| [None];
    /// Whether both hold.
    40 => And "and" Logic [a, b]
        real f64::from(a != 0.0 && b != 0.0); integer i64::from(a != 0 && b != 0);
        gradient |g, y, d| [None];
    /// Whether one holds, or both.
    41 => Or "or" Logic [a, b]
        real f64::from(a != 0.0 || b != 0.0); integer i64::from(a != 0 || b != 0);
        gradient |g, y, d| [None];
    /// Whether it does not hold.
    42 => Not "not" Logic [a]
        real f64::from(a == 0.0); integer i64::from(a == 0);
        gradient |g, y, d| [None];
    /// `a` where `c` holds, else `b`.
    48 => Select "select" Select [c, a, b]
        real if c != 0.0 { a } else { b }; integer if c != 0 { a } else { b };
        gradient |g, y, d| {
            let other = g.map(Function::Not, &[c])?;
            [None, Some(g.mask(c, d)?), Some(g.mask(other, d)?)]
        };
}

#[cfg(feature = "host")]
fn three<V: Copy, const N: usize>(first: [Option<V>; N]) -> [Option<V>; 3] {
    core::array::from_fn(|i| first.get(i).copied().flatten())
}

#[cfg(feature = "host")]
impl From<Function> for u8 {
    fn from(function: Function) -> u8 {
        function as u8
    }
}

#[cfg(feature = "host")]
impl TryFrom<u8> for Function {
    type Error = &'static str;

    fn try_from(code: u8) -> Result<Function, &'static str> {
        Function::from_code(code).ok_or("a function that this build does not have")
    }
}

impl Function {
    /// The element type it gives for inputs of these; an error where it does not take them.
    pub fn result(self, inputs: &[TensorType]) -> Result<DType, OpError> {
        if inputs.len() != self.arity() {
            return Err(OpError::Inputs(self.arity(), self.arity(), inputs.len()));
        }
        let signature = self.signature();
        for (i, x) in inputs.iter().enumerate() {
            let float = matches!(x.dtype, DType::F32 | DType::F64);
            let good = match signature {
                Signature::Float => float,
                Signature::Arithmetic | Signature::Comparison => float || x.dtype == DType::I32,
                Signature::Logic => x.dtype == DType::Bool,
                Signature::Select if i == 0 => x.dtype == DType::Bool,
                Signature::Select => float || matches!(x.dtype, DType::I32 | DType::Bool),
            };
            let first = usize::from(signature == Signature::Select);
            let same = i < first || inputs.get(first).is_some_and(|other| other.dtype == x.dtype);
            if !good || !same {
                return Err(OpError::DType(i, x.dtype));
            }
        }
        Ok(match (signature, inputs.last()) {
            (Signature::Comparison | Signature::Logic, _) | (_, None) => DType::Bool,
            (_, Some(x)) => x.dtype,
        })
    }
}

/// A function of each element. Inputs broadcast as NumPy's do; element types as the function's
/// [`Signature`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "host", derive(serde::Serialize, serde::Deserialize))]
pub struct Map {
    /// The function.
    pub function: Function,
}

impl Operator for Map {
    const NAME: &'static str = "map";

    fn output(&self, inputs: &[TensorType]) -> Result<TensorType, OpError> {
        let dtype = self.function.result(inputs)?;
        Ok(TensorType::new(dtype, broadcast(inputs.iter().map(|x| x.shape))?))
    }

    fn varies(&self, inputs: &[TensorType], input: usize, axis: usize) -> Option<usize> {
        let rank = inputs.iter().map(|x| x.shape.rank()).max()?;
        Some(axis + rank - inputs.get(input)?.shape.rank())
    }

    fn cost(&self, inputs: &[TensorType], output: &TensorType) -> Cost {
        Cost::new(0, inputs, output)
    }

    fn reference(&self, inputs: &[Arg<'_>], y: &mut ArgMut<'_>) -> Result<(), OpError> {
        let shape = y.ty.shape;
        let mut args = [None; 3];
        for (to, x) in args.iter_mut().zip(inputs) {
            *to = Some((x, strides(&x.ty.shape, &shape)));
        }
        let float = inputs.iter().any(|x| matches!(x.ty.dtype, DType::F32 | DType::F64));
        for i in 0..y.elements() {
            let at = args.map(|arg| arg.map(|(x, strides)| (x, position(&shape, &strides, i))));
            if float {
                let x = at.map(|arg| arg.map_or(0.0, |(x, at)| x.real(at)));
                y.set_real(i, self.function.real(x));
            } else {
                let x = at.map(|arg| arg.map_or(0, |(x, at)| x.integer(at)));
                y.set_integer(i, self.function.integer(x));
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
        if !matches!(b.ty(at.output).dtype, DType::F32 | DType::F64) {
            return Ok(crate::build::gradients([None; 3]));
        }
        let mut all = self.function.gradient(b, at)?;
        for (i, gradient) in all.iter_mut().enumerate() {
            *gradient = match *gradient {
                Some(value) if at.wants(i) => Some(b.sum_to(value, b.ty(at.input(i)?).shape)?),
                _ => None,
            };
        }
        Ok(crate::build::gradients(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantRef;
    use kiln_core::Shape;

    #[test]
    fn numbers_and_names_are_unique() {
        for (i, a) in Function::ALL.iter().enumerate() {
            assert_eq!(Function::from_code(*a as u8), Some(*a));
            assert!(Function::ALL[i + 1..].iter().all(|b| a.name() != b.name() && *a as u8 != *b as u8));
        }
        assert_eq!(Function::from_code(0), None);
    }

    #[test]
    fn dtypes_follow_the_signature() {
        let ty = |dtype| TensorType::new(dtype, Shape::new(&[2]).unwrap());
        let (f, i, b) = (ty(DType::F32), ty(DType::I32), ty(DType::Bool));
        assert_eq!(Function::Add.result(&[f, f]), Ok(DType::F32));
        assert_eq!(Function::Add.result(&[i, i]), Ok(DType::I32));
        assert_eq!(Function::Add.result(&[f, i]), Err(OpError::DType(1, DType::I32)));
        assert_eq!(Function::Exp.result(&[i]), Err(OpError::DType(0, DType::I32)));
        assert_eq!(Function::Less.result(&[i, i]), Ok(DType::Bool));
        assert_eq!(Function::Select.result(&[b, f, f]), Ok(DType::F32));
        assert_eq!(Function::Select.result(&[b, b, b]), Ok(DType::Bool));
        assert_eq!(Function::Select.result(&[f, f, f]), Err(OpError::DType(0, DType::F32)));
        assert_eq!(Function::Not.result(&[b, b]), Err(OpError::Inputs(1, 1, 2)));
    }

    #[test]
    fn a_column_and_a_row_make_a_table() {
        let ty = |dims: &[u32]| TensorType::new(DType::I32, Shape::new(dims).unwrap());
        let bytes = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let (a, b) = (bytes(&[10, 20]), bytes(&[1, 2, i32::MAX]));
        let op = Map { function: Function::Add };
        let out_ty = op.output(&[ty(&[2, 1]), ty(&[3])]).unwrap();
        assert_eq!(out_ty, ty(&[2, 3]));
        let mut out = [0u8; 24];
        let quant = QuantRef::default();
        let args = [Arg { ty: ty(&[2, 1]), quant, data: &a }, Arg { ty: ty(&[3]), quant, data: &b }];
        op.reference(&args, &mut ArgMut { ty: out_ty, quant, data: &mut out }).unwrap();
        assert_eq!(out.to_vec(), bytes(&[11, 12, i32::MIN + 9, 21, 22, i32::MIN + 19]));
    }

    #[test]
    fn not_a_number_passes_through_minimum_and_maximum() {
        for function in [Function::Min, Function::Max] {
            assert!(function.real([f64::NAN, 1.0, 0.0]).is_nan());
            assert!(function.real([1.0, f64::NAN, 0.0]).is_nan());
        }
        assert_eq!(Function::Sigmoid.real([-800.0, 0.0, 0.0]), 0.0);
    }
}
