//! New tensors.

use kiln_core::TensorType;
use kiln_ops::{Distribution, Expand, Random};

use super::{Element, Float, Int, Kind, Tensor, record, shape_of};
use crate::Device;
use crate::node::Node;

/// Nested arrays of numbers, as [`Tensor::from_floats`] takes them.
pub trait Nested<const D: usize> {
    /// The dimensions, outermost first.
    const DIMS: [usize; D];

    /// The numbers, the innermost dimension varying fastest.
    fn flatten(self, to: &mut Vec<f32>);
}

impl<const A: usize> Nested<1> for [f32; A] {
    const DIMS: [usize; 1] = [A];

    fn flatten(self, to: &mut Vec<f32>) {
        to.extend(self);
    }
}

impl<const A: usize, const B: usize> Nested<2> for [[f32; B]; A] {
    const DIMS: [usize; 2] = [A, B];

    fn flatten(self, to: &mut Vec<f32>) {
        self.into_iter().for_each(|row| row.flatten(to));
    }
}

impl<const A: usize, const B: usize, const C: usize> Nested<3> for [[[f32; C]; B]; A] {
    const DIMS: [usize; 3] = [A, B, C];

    fn flatten(self, to: &mut Vec<f32>) {
        self.into_iter().for_each(|row| row.flatten(to));
    }
}

impl<const A: usize, const B: usize, const C: usize, const E: usize> Nested<4> for [[[[f32; E]; C]; B]; A] {
    const DIMS: [usize; 4] = [A, B, C, E];

    fn flatten(self, to: &mut Vec<f32>) {
        self.into_iter().for_each(|row| row.flatten(to));
    }
}

impl<const D: usize> Tensor<D, Float> {
    /// A tensor of numbers as nested arrays.
    #[track_caller]
    pub fn from_floats<N: Nested<D>>(numbers: N, device: &Device) -> Self {
        let mut flat = Vec::new();
        numbers.flatten(&mut flat);
        Tensor::from_slice(&flat, N::DIMS, device)
    }

    /// Random numbers, other ones at each call; [`Device::seed`] begins them anew.
    #[track_caller]
    pub fn random(dims: [usize; D], distribution: Distribution, device: &Device) -> Self {
        // The key is an input of the plan, so that the next draw is the same plan.
        let key = Tensor::<1, Int>::from_slice(&device.next_key(), [4], device);
        record(Random { shape: shape_of(&dims), distribution }, &[key.node()])
    }
}

impl<const D: usize, K: Kind> Tensor<D, K> {
    /// `value` everywhere.
    #[track_caller]
    pub fn full<E: Element<Kind = K> + Into<f64>>(dims: [usize; D], value: E, device: &Device) -> Self {
        filled(dims, value.into(), device)
    }

    /// 0 (or false) everywhere.
    #[track_caller]
    pub fn zeros(dims: [usize; D], device: &Device) -> Self {
        filled(dims, 0.0, device)
    }

    /// 1 (or true) everywhere.
    #[track_caller]
    pub fn ones(dims: [usize; D], device: &Device) -> Self {
        filled(dims, 1.0, device)
    }

    /// 0 everywhere, in this tensor's shape.
    pub fn zeros_like(&self) -> Self {
        Tensor::zeros(self.dims(), self.device())
    }

    /// 1 everywhere, in this tensor's shape.
    pub fn ones_like(&self) -> Self {
        Tensor::ones(self.dims(), self.device())
    }
}

impl Tensor<1, Int> {
    /// The numbers of a range.
    #[track_caller]
    pub fn arange(range: std::ops::Range<i32>, device: &Device) -> Self {
        let numbers: Vec<i32> = range.collect();
        Tensor::from_slice(&numbers, [numbers.len()], device)
    }
}

/// A number everywhere, as part of the graph.
#[track_caller]
fn filled<const D: usize, K: Kind>(dims: [usize; D], value: f64, device: &Device) -> Tensor<D, K> {
    let ty = TensorType::new(K::DTYPE, kiln_core::Shape::SCALAR);
    let scalar = Node::scalar(device, ty, value);
    record(Expand { shape: shape_of(&dims) }, &[&scalar])
}
