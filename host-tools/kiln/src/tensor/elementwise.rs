//! Functions of each element.

use std::ops;
use std::sync::Arc;

use kiln_core::{Shape, TensorType};
use kiln_ops::{Cast, Function, Map};

use super::{Bool, Float, Int, Kind, Tensor, record};
use crate::node::Node;

/// Records a function of each element.
#[track_caller]
fn map<const D: usize, K: Kind>(function: Function, inputs: &[&Arc<Node>]) -> Tensor<D, K> {
    record(Map { function }, inputs)
}

impl<const D: usize, K: Kind> Tensor<D, K> {
    /// A number of this tensor's kind, as an input of the plan: another number is the same plan.
    #[track_caller]
    fn scalar(&self, value: f64) -> Arc<Node> {
        let ty = TensorType::new(K::DTYPE, Shape::SCALAR);
        let bytes = kiln_passes::element(K::DTYPE, value).unwrap_or_default();
        Tensor::<0, K>::from_bytes(&bytes, ty, self.device()).node().clone()
    }

    #[track_caller]
    fn with<R: Kind>(&self, function: Function, other: &Self) -> Tensor<D, R> {
        map(function, &[self.node(), other.node()])
    }

    #[track_caller]
    fn with_scalar<R: Kind>(&self, function: Function, scalar: f64) -> Tensor<D, R> {
        map(function, &[self.node(), &self.scalar(scalar)])
    }

    /// Where both are equal.
    #[track_caller]
    pub fn equal(&self, other: &Self) -> Tensor<D, Bool> {
        self.with(Function::Equal, other)
    }

    /// This where `mask` holds not, `other` where it does.
    #[track_caller]
    pub fn mask_where(&self, mask: &Tensor<D, Bool>, other: &Self) -> Self {
        map(Function::Select, &[mask.node(), other.node(), self.node()])
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $function:ident,)*) => {
        impl<const D: usize> Tensor<D, Float> {
            $($(#[$doc])*
            pub fn $name(&self) -> Self {
                map(Function::$function, &[self.node()])
            })*
        }
    };
}

unary! {
    /// `e` to the power of each element.
    exp => Exp,
    /// The natural logarithm.
    log => Log,
    /// The square root.
    sqrt => Sqrt,
    /// The sine of angles in radians.
    sin => Sin,
    /// The cosine of angles in radians.
    cos => Cos,
    /// The hyperbolic tangent.
    tanh => Tanh,
    /// `1 / (1 + exp(-x))`.
    sigmoid => Sigmoid,
    /// The error function.
    erf => Erf,
    /// The largest whole number that is not larger.
    floor => Floor,
    /// The absolute value.
    abs => Abs,
    /// -1, 0 or 1.
    sign => Sign,
}

macro_rules! arithmetic {
    ($kind:ident, $element:ty) => {
        impl<const D: usize> Tensor<D, $kind> {
            /// The sum with a number.
            #[track_caller]
            pub fn add_scalar(&self, scalar: $element) -> Self {
                self.with_scalar(Function::Add, scalar as f64)
            }

            /// The difference from a number.
            #[track_caller]
            pub fn sub_scalar(&self, scalar: $element) -> Self {
                self.with_scalar(Function::Sub, scalar as f64)
            }

            /// The product with a number.
            #[track_caller]
            pub fn mul_scalar(&self, scalar: $element) -> Self {
                self.with_scalar(Function::Mul, scalar as f64)
            }

            /// The quotient by a number.
            #[track_caller]
            pub fn div_scalar(&self, scalar: $element) -> Self {
                self.with_scalar(Function::Div, scalar as f64)
            }

            /// The smaller of two, element by element.
            #[track_caller]
            pub fn min_pair(&self, other: &Self) -> Self {
                self.with(Function::Min, other)
            }

            /// The larger of two, element by element.
            #[track_caller]
            pub fn max_pair(&self, other: &Self) -> Self {
                self.with(Function::Max, other)
            }

            /// Nothing below `low`, nothing above `high`.
            #[track_caller]
            pub fn clamp(&self, low: $element, high: $element) -> Self {
                self.with_scalar::<$kind>(Function::Max, low as f64).with_scalar(Function::Min, high as f64)
            }

            /// Where it is less than `other`.
            #[track_caller]
            pub fn lower(&self, other: &Self) -> Tensor<D, Bool> {
                self.with(Function::Less, other)
            }

            /// Where it is less than `other` or equal.
            #[track_caller]
            pub fn lower_equal(&self, other: &Self) -> Tensor<D, Bool> {
                self.with(Function::LessEqual, other)
            }

            /// Where it is more than `other`.
            #[track_caller]
            pub fn greater(&self, other: &Self) -> Tensor<D, Bool> {
                other.with(Function::Less, self)
            }

            /// Where it is more than `other` or equal.
            #[track_caller]
            pub fn greater_equal(&self, other: &Self) -> Tensor<D, Bool> {
                other.with(Function::LessEqual, self)
            }

            /// Where it is less than a number.
            #[track_caller]
            pub fn lower_elem(&self, other: $element) -> Tensor<D, Bool> {
                self.with_scalar(Function::Less, other as f64)
            }

            /// Where it is more than a number.
            #[track_caller]
            pub fn greater_elem(&self, other: $element) -> Tensor<D, Bool> {
                map(Function::Less, &[&self.scalar(other as f64), self.node()])
            }

            /// Where it is a number.
            #[track_caller]
            pub fn equal_elem(&self, other: $element) -> Tensor<D, Bool> {
                self.with_scalar(Function::Equal, other as f64)
            }

            /// `value` where `mask` holds, this elsewhere.
            #[track_caller]
            pub fn mask_fill(&self, mask: &Tensor<D, Bool>, value: $element) -> Self {
                map(Function::Select, &[mask.node(), &self.scalar(value as f64), self.node()])
            }
        }

        operator!($kind, Add, add, Add, add_scalar, $element);
        operator!($kind, Sub, sub, Sub, sub_scalar, $element);
        operator!($kind, Mul, mul, Mul, mul_scalar, $element);
        operator!($kind, Div, div, Div, div_scalar, $element);

        impl<const D: usize> ops::Neg for Tensor<D, $kind> {
            type Output = Self;

            fn neg(self) -> Self {
                map(Function::Neg, &[self.node()])
            }
        }
    };
}

/// An infix operator of tensors, owned or borrowed, and of a tensor and a number.
macro_rules! operator {
    ($kind:ident, $trait:ident, $method:ident, $function:ident, $scalar:ident, $element:ty) => {
        impl<const D: usize> ops::$trait for Tensor<D, $kind> {
            type Output = Self;

            #[track_caller]
            fn $method(self, other: Self) -> Self {
                self.with(Function::$function, &other)
            }
        }

        impl<const D: usize> ops::$trait<&Tensor<D, $kind>> for &Tensor<D, $kind> {
            type Output = Tensor<D, $kind>;

            #[track_caller]
            fn $method(self, other: &Tensor<D, $kind>) -> Tensor<D, $kind> {
                self.with(Function::$function, other)
            }
        }

        impl<const D: usize> ops::$trait<$element> for Tensor<D, $kind> {
            type Output = Self;

            #[track_caller]
            fn $method(self, other: $element) -> Self {
                self.$scalar(other)
            }
        }

        impl<const D: usize> ops::$trait<$element> for &Tensor<D, $kind> {
            type Output = Tensor<D, $kind>;

            #[track_caller]
            fn $method(self, other: $element) -> Tensor<D, $kind> {
                self.$scalar(other)
            }
        }
    };
}

arithmetic!(Float, f32);
arithmetic!(Int, i32);

impl<const D: usize> Tensor<D, Float> {
    /// With a number that is part of the graph: another number is another plan.
    pub(crate) fn with_constant(&self, function: Function, constant: f64) -> Self {
        let constant = Node::scalar(self.device(), TensorType::new(Float::DTYPE, Shape::SCALAR), constant);
        map(function, &[self.node(), &constant])
    }

    /// With a tensor of fewer axes, repeated along the outer ones.
    #[track_caller]
    pub(crate) fn with_inner<const E: usize>(&self, function: Function, inner: &Tensor<E, Float>) -> Self {
        const { assert!(E <= D) };
        map(function, &[self.node(), inner.node()])
    }

    /// `max(x, 0)`.
    pub fn relu(&self) -> Self {
        self.with_constant(Function::Max, 0.0)
    }

    /// The square.
    pub fn square(&self) -> Self {
        self.with(Function::Mul, self)
    }

    /// Each element to the power of another's.
    #[track_caller]
    pub fn powf(&self, exponent: &Self) -> Self {
        self.with(Function::Pow, exponent)
    }

    /// Each element to a power.
    #[track_caller]
    pub fn powf_scalar(&self, exponent: f32) -> Self {
        self.with_scalar(Function::Pow, exponent as f64)
    }

    /// `x Phi(x)`, where Phi is the standard normal distribution: the Gaussian error linear unit.
    pub fn gelu(&self) -> Self {
        let half = (self * std::f32::consts::FRAC_1_SQRT_2).erf().add_scalar(1.0);
        self * &half * 0.5
    }

    /// Truncated toward zero.
    pub fn int(&self) -> Tensor<D, Int> {
        record(Cast { dtype: Int::DTYPE }, &[self.node()])
    }
}

impl<const D: usize> Tensor<D, Int> {
    /// The same numbers as floating point.
    pub fn float(&self) -> Tensor<D, Float> {
        record(Cast { dtype: Float::DTYPE }, &[self.node()])
    }
}

impl<const D: usize> Tensor<D, Bool> {
    /// 1 where it holds, else 0.
    pub fn float(&self) -> Tensor<D, Float> {
        record(Cast { dtype: Float::DTYPE }, &[self.node()])
    }

    /// 1 where it holds, else 0.
    pub fn int(&self) -> Tensor<D, Int> {
        record(Cast { dtype: Int::DTYPE }, &[self.node()])
    }

    /// Where it does not hold.
    pub fn bool_not(&self) -> Self {
        map(Function::Not, &[self.node()])
    }

    /// Where both hold.
    #[track_caller]
    pub fn bool_and(&self, other: &Self) -> Self {
        self.with(Function::And, other)
    }

    /// Where one holds, or both.
    #[track_caller]
    pub fn bool_or(&self, other: &Self) -> Self {
        self.with(Function::Or, other)
    }
}
