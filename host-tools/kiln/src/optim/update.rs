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
pub(super) fn update<M: Module, R: Rule>(module: &mut M, gradients: &Gradients, rule: &mut R) -> Finish {
    let mut step = Step { gradients, rule, done: HashMap::new(), finish: Finish::default() };
    module.visit(&ModulePath::ROOT, &mut step);
    let mut finish = step.finish;
    finish.0.extend(gradients.of_held().cloned());
    finish
}

struct Step<'a, R> {
    gradients: &'a Gradients,
    rule: &'a mut R,
    /// New values by the old nodes' numbers: a parameter in two places stays one.
    done: HashMap<u64, Held>,
    finish: Finish,
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
        self.finish.0.push(tensor.node().clone());
    }

    fn buffer<const D: usize, K: Kind>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D, K>) {
        self.finish.0.push(tensor.node().clone());
    }
}

/// Nodes to be computed together.
#[derive(Default)]
pub(super) struct Finish(Vec<Arc<Node>>);

impl Finish {
    /// Adds the tensors of `module`, and computes everything.
    #[track_caller]
    pub(super) fn with<M: Module>(mut self, module: &mut M) -> Result<(), Error> {
        module.visit(&ModulePath::ROOT, &mut self);
        let mut nodes = self.0;
        nodes.retain(|node| node.state().value.is_none());
        let Some(first) = nodes.first() else { return Ok(()) };
        assert!(nodes.iter().all(|node| node.device == first.device), "a step over tensors of several devices");
        realize(&first.device, &nodes, Purpose::Finish)
    }
}

impl Visitor for Finish {
    fn parameter<const D: usize>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        self.0.push(tensor.node().clone());
    }

    fn buffer<const D: usize, K: Kind>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D, K>) {
        self.0.push(tensor.node().clone());
    }
}
