//! What a step of training made of a module.

use std::sync::Arc;

use super::{Module, ModulePath, Visitor};
use crate::node::{Held, Node};
use crate::tensor::{Kind, Recorded, Tensor};

/// Tensors of a module and what took their place: the assignments of a [traced](crate::Trace) training step.
pub struct Changes(Vec<(Any, Any)>);

/// A tensor of any rank and kind.
struct Any(Held);

impl crate::tensor::Sealed for Any {
    fn recorded(&self) -> &Arc<Node> {
        self.0.node()
    }
}

impl Recorded for Any {}

impl Changes {
    /// The tensors that are others in `after` than in `before`, which was cloned into it: parameters and buffers.
    ///
    /// # Panics
    ///
    /// If the two have not the same tensors.
    #[track_caller]
    pub fn between<M: Module>(before: &M, after: &M) -> Changes {
        let [old, new] = [before, after].map(|module| {
            let mut all = All::default();
            module.clone().visit(&ModulePath::ROOT, &mut all);
            all.0
        });
        assert!(old.len() == new.len(), "modules of {} and {} tensors", old.len(), new.len());
        let pairs = old.into_iter().zip(new);
        Changes(
            pairs.filter(|(old, new)| old.node().number != new.node().number).map(|(o, n)| (Any(o), Any(n))).collect(),
        )
    }

    /// The assignments as [`Trace::entry`](crate::Trace::entry) takes them: pairs of a tensor and its new value.
    pub fn assigns(&self) -> Vec<(&dyn Recorded, &dyn Recorded)> {
        self.0.iter().map(|(old, new)| (old as &dyn Recorded, new as &dyn Recorded)).collect()
    }
}

#[derive(Default)]
struct All(Vec<Held>);

impl Visitor for All {
    fn parameter<const D: usize>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        self.0.push(Held::new(tensor.node().clone()));
    }

    fn buffer<const D: usize, K: Kind>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D, K>) {
        self.0.push(Held::new(tensor.node().clone()));
    }
}
