//! A step over all parameters of a module.

use std::collections::HashMap;
use std::sync::Arc;

use crate::module::{Module, ModulePath, Visitor};
use crate::node::{Held, Node};
use crate::realize::{Purpose, realize};
use crate::tensor::{Kind, Tensor};
use crate::{Error, Gradients};

/// How one parameter changes.
pub(super) trait Rule {
    /// The new value of `parameter`, whose state is found under `path`.
    fn update<const D: usize>(&mut self, path: &str, parameter: &Tensor<D>, gradient: &Tensor<D>) -> Tensor<D>;
}

/// Applies `rule` to every parameter of `module` that has a gradient, and gives what is to be computed.
pub(super) fn update<M: Module, R: Rule>(module: &mut M, gradients: &Gradients, rule: &mut R) -> Updates {
    let mut step = Step { gradients, rule, done: HashMap::new(), updates: Updates::default() };
    module.visit(&ModulePath::ROOT, &mut step);
    let mut updates = step.updates;
    updates.0.extend(gradients.of_held().cloned());
    updates
}

struct Step<'a, R> {
    gradients: &'a Gradients,
    rule: &'a mut R,
    /// New values by the old nodes' numbers: a parameter in two places stays one.
    done: HashMap<u64, Held>,
    updates: Updates,
}

impl<R: Rule> Visitor for Step<'_, R> {
    fn parameter<const D: usize>(&mut self, path: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        let number = tensor.node().number;
        if let Some(new) = self.done.get(&number) {
            *tensor = Tensor::from_node(new.node().clone());
            return;
        }
        if let Some(gradient) = self.gradients.get(tensor) {
            *tensor = self.rule.update(&path.to_string(), tensor, &gradient).require_grad();
            self.done.insert(number, Held::new(tensor.node().clone()));
        }
        self.updates.0.push(tensor.node().clone());
    }

    fn buffer<const D: usize, K: Kind>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D, K>) {
        self.updates.0.push(tensor.node().clone());
    }
}

/// What a recorded step changes, to be computed together.
#[derive(Default)]
#[must_use = "a step that is only recorded is computed at the next look, with all that it was recorded from"]
pub struct Updates(Vec<Arc<Node>>);

impl Updates {
    /// Adds the tensors of `module`.
    pub(super) fn with<M: Module>(mut self, module: &mut M) -> Updates {
        module.visit(&ModulePath::ROOT, &mut self);
        self
    }

    /// Computes everything at once: one plan.
    ///
    /// # Panics
    ///
    /// If there are tensors of several devices.
    #[track_caller]
    pub fn compute(self) -> Result<(), Error> {
        self.compute_as(Purpose::Finish)
    }

    #[track_caller]
    pub(super) fn compute_as(mut self, purpose: Purpose) -> Result<(), Error> {
        self.0.retain(|node| node.state().value.is_none());
        let Some(first) = self.0.first() else { return Ok(()) };
        assert!(self.0.iter().all(|node| node.device == first.device), "a step over tensors of several devices");
        realize(&first.device, &self.0, purpose)
    }
}

impl Visitor for Updates {
    fn parameter<const D: usize>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        self.0.push(tensor.node().clone());
    }

    fn buffer<const D: usize, K: Kind>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D, K>) {
        self.0.push(tensor.node().clone());
    }
}
