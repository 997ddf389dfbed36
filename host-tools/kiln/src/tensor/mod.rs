//! Tensors.

mod create;
mod data;
mod elementwise;
mod image;
mod linear;
mod print;
mod reduce;
mod shape;

use std::marker::PhantomData;
use std::sync::Arc;

use kiln_core::{DType, Shape, TensorType};
use kiln_ops::Op;

pub use create::Nested;
pub use data::Element;
pub use image::ConvOptions;

use crate::node::{Held, Node};
use crate::realize::{Purpose, realize};
use crate::{Device, Error, Gradients};

/// What a tensor's elements are: [`Float`], [`Int`] or [`Bool`].
pub trait Kind: Copy + Send + Sync + 'static {
    /// The element type.
    const DTYPE: DType;
}

/// float32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Float;
/// int32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Int;
/// Truth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bool;

impl Kind for Float {
    const DTYPE: DType = DType::F32;
}
impl Kind for Int {
    const DTYPE: DType = DType::I32;
}
impl Kind for Bool {
    const DTYPE: DType = DType::Bool;
}

/// A tensor of rank `D`: a recorded computation, or its result. Clones are the same tensor and cost nothing.
pub struct Tensor<const D: usize, K: Kind = Float> {
    held: Held,
    kind: PhantomData<K>,
}

impl<const D: usize, K: Kind> Clone for Tensor<D, K> {
    fn clone(&self) -> Self {
        Tensor { held: self.held.clone(), kind: PhantomData }
    }
}

impl<const D: usize, K: Kind> Tensor<D, K> {
    pub(crate) fn from_node(node: Arc<Node>) -> Self {
        debug_assert_eq!((node.ty.shape.rank(), node.ty.dtype), (D, K::DTYPE));
        Tensor { held: Held::new(node), kind: PhantomData }
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        self.held.node()
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> [usize; D] {
        std::array::from_fn(|axis| self.node().ty.shape.dim(axis) as usize)
    }

    /// How many elements it has.
    pub fn elements(&self) -> usize {
        self.node().ty.shape.elements().unwrap_or(0) as usize
    }

    /// Where it lives.
    pub fn device(&self) -> &Device {
        &self.node().device
    }

    /// Computes it now, with everything held that lies on the way.
    pub fn realize(&self) -> Result<(), Error> {
        realize(self.device(), std::slice::from_ref(self.node()), Purpose::Look)
    }

    /// Whether it is computed.
    pub fn is_realized(&self) -> bool {
        self.node().state().value.is_some()
    }

    /// The same values, through which no gradient goes.
    pub fn detach(&self) -> Self {
        Tensor::from_node(self.node().cut(false))
    }
}

impl<const D: usize> Tensor<D, Float> {
    /// The same values as a parameter: gradients may be asked for by it, and none goes further back.
    pub fn require_grad(&self) -> Self {
        Tensor::from_node(self.node().cut(true))
    }

    /// Whether it is a parameter, or computed from one.
    pub fn is_tracked(&self) -> bool {
        self.node().tracked
    }

    /// The gradients of this number by every parameter that it was computed from, to be asked for with
    /// [`Tensor::grad`]. They are recorded, not computed.
    ///
    /// # Errors
    ///
    /// [`Error`] if this is not one number, depends on no parameter, or an operator on the way has no gradient.
    pub fn backward(&self) -> Result<Gradients, Error> {
        Gradients::of(self.node())
    }

    /// The gradient by this parameter.
    pub fn grad(&self, gradients: &Gradients) -> Option<Tensor<D, Float>> {
        gradients.get(self)
    }
}

/// Records an operator.
#[track_caller]
pub(crate) fn record<const D: usize, K: Kind>(op: impl Into<Op>, inputs: &[&Arc<Node>]) -> Tensor<D, K> {
    let op = op.into();
    let Some(first) = inputs.first() else { unreachable!("operators over tensors have inputs") };
    let describe = || {
        let one = |node: &&Arc<Node>| format!("{} {:?}", node.ty.dtype.name(), node.ty.shape);
        inputs.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    if let Some(other) = inputs.iter().find(|node| node.device != first.device) {
        panic!("{}({}): tensors of two devices, {:?} and {:?}", label(&op), describe(), first.device, other.device);
    }
    let types: Vec<TensorType> = inputs.iter().map(|node| node.ty).collect();
    let ty = match op.output(&types) {
        Ok(ty) => ty,
        Err(error) => panic!("{}({}): {error}", label(&op), describe()),
    };
    let inputs = inputs.iter().map(|&node| node.clone()).collect();
    Tensor::from_node(Node::op(&first.device, ty, op, inputs))
}

/// An operator's name as a user of tensors knows it.
fn label(op: &Op) -> &'static str {
    match op {
        Op::Map(map) => map.function.name(),
        op => op.name(),
    }
}

/// A shape of dimensions that a program states.
#[track_caller]
pub(crate) fn shape_of(dims: &[usize]) -> Shape {
    match Shape::from_usize(dims) {
        Ok(shape) => shape,
        Err(error) => panic!("no tensor has the shape {dims:?}: {error:?}"),
    }
}

pub(crate) use private::Sealed;

/// A tensor of any rank and kind: for what is done with several at once.
pub trait Recorded: private::Sealed {}

impl<const D: usize, K: Kind> Recorded for Tensor<D, K> {}

mod private {
    use std::sync::Arc;

    use crate::node::Node;

    /// Keeps [`Recorded`](super::Recorded) to tensors.
    pub trait Sealed {
        /// The recorded node.
        #[doc(hidden)]
        #[expect(private_interfaces, reason = "for this crate alone")]
        fn recorded(&self) -> &Arc<Node>;
    }

    impl<const D: usize, K: super::Kind> Sealed for super::Tensor<D, K> {
        #[expect(private_interfaces, reason = "for this crate alone")]
        fn recorded(&self) -> &Arc<Node> {
            self.node()
        }
    }
}

/// Computes several tensors at once, with everything held that lies on the way: how a step of training ends, with
/// its new parameters. One by one they would compute again and again what they have in common.
///
/// Gradients are not expected to be asked of them any more: what those would read is not kept.
///
/// # Panics
///
/// If they live on different devices.
#[track_caller]
pub fn realize_all(tensors: &[&dyn Recorded]) -> Result<(), Error> {
    let nodes: Vec<Arc<Node>> = tensors.iter().map(|tensor| tensor.recorded().clone()).collect();
    let Some(first) = nodes.first() else { return Ok(()) };
    assert!(nodes.iter().all(|node| node.device == first.device), "realize_all: tensors of several devices");
    realize(&first.device, &nodes, Purpose::Finish)
}
