//! What is done with every tensor of a module.

use super::{Mode, Module, ModulePath, Visitor};
use crate::tensor::{Kind, Tensor};
use crate::{Device, Error};

struct Count(usize);

impl Visitor for Count {
    fn parameter<const D: usize>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        self.0 += tensor.elements();
    }

    fn buffer<const D: usize, K: Kind>(&mut self, _: &ModulePath<'_>, _: &mut Tensor<D, K>) {}
}

pub(crate) fn num_params<M: Module>(module: &M) -> usize {
    let mut count = Count(0);
    module.clone().visit(&ModulePath::ROOT, &mut count);
    count.0
}

struct Valid;

impl Visitor for Valid {
    fn parameter<const D: usize>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        *tensor = tensor.detach();
    }

    fn buffer<const D: usize, K: Kind>(&mut self, _: &ModulePath<'_>, _: &mut Tensor<D, K>) {}

    fn mode(&mut self, mode: &mut Mode) {
        *mode = Mode::Evaluation;
    }
}

pub(crate) fn valid<M: Module>(module: &M) -> M {
    let mut copy = module.clone();
    copy.visit(&ModulePath::ROOT, &mut Valid);
    copy
}

struct Move<'a> {
    to: &'a Device,
    failed: Option<Error>,
}

impl Move<'_> {
    fn tensor<const D: usize, K: Kind>(&mut self, tensor: &mut Tensor<D, K>) {
        if self.failed.is_none() {
            match tensor.to_device(self.to) {
                Ok(moved) => *tensor = moved,
                Err(error) => self.failed = Some(error),
            }
        }
    }
}

impl Visitor for Move<'_> {
    fn parameter<const D: usize>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        self.tensor(tensor);
    }

    fn buffer<const D: usize, K: Kind>(&mut self, _: &ModulePath<'_>, tensor: &mut Tensor<D, K>) {
        self.tensor(tensor);
    }
}

pub(crate) fn to_device<M: Module>(module: &M, device: &Device) -> Result<M, Error> {
    let mut copy = module.clone();
    let mut visitor = Move { to: device, failed: None };
    copy.visit(&ModulePath::ROOT, &mut visitor);
    visitor.failed.map_or(Ok(copy), Err)
}
