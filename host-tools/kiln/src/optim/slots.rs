//! What an optimizer keeps for each parameter.

use std::collections::BTreeMap;

use crate::module::{Module, ModulePath, Visitor};
use crate::node::Held;
use crate::tensor::{Float, Kind, Tensor};

/// A tensor for each parameter of a module, of its shape, zeros at first.
#[derive(Clone, Default)]
pub struct Slots(BTreeMap<String, Held>);

impl Slots {
    /// Zeros for every parameter of `module` that requires a gradient.
    pub fn of<M: Module>(module: &M) -> Slots {
        let mut slots = Slots::default();
        module.clone().visit(&ModulePath::ROOT, &mut Fill(&mut slots));
        slots
    }

    /// The tensor for a parameter; zeros if it has none yet.
    pub(crate) fn get<const D: usize>(&mut self, path: &str, parameter: &Tensor<D>) -> Tensor<D> {
        let Some(held) = self.0.get(path) else {
            // Memory rather than a constant, so that the first step is the same plan as the others.
            let zeros = Tensor::from_slice(&vec![0.0; parameter.elements()], parameter.dims(), parameter.device());
            self.set(path, &zeros);
            return zeros;
        };
        let (mine, wanted) = (held.node().ty.shape, parameter.node().ty.shape);
        assert!(mine == wanted, "the optimizer has {mine:?} for {path}, which has the shape {wanted:?}");
        Tensor::from_node(held.node().clone())
    }

    /// Replaces the tensor for a parameter.
    pub(crate) fn set<const D: usize>(&mut self, path: &str, tensor: &Tensor<D>) {
        self.0.insert(path.to_owned(), Held::new(tensor.node().clone()));
    }
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

struct Fill<'a>(&'a mut Slots);

impl Visitor for Fill<'_> {
    fn parameter<const D: usize>(&mut self, path: &ModulePath<'_>, tensor: &mut Tensor<D>) {
        if tensor.node().parameter {
            self.0.get(&path.to_string(), tensor);
        }
    }

    fn buffer<const D: usize, K: Kind>(&mut self, _: &ModulePath<'_>, _: &mut Tensor<D, K>) {}
}

impl Module for Slots {
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V) {
        fn one<const D: usize, V: Visitor>(held: &mut Held, path: &ModulePath<'_>, visitor: &mut V) {
            let mut tensor = Tensor::<D, Float>::from_node(held.node().clone());
            visitor.buffer(path, &mut tensor);
            *held = Held::new(tensor.node().clone());
        }
        for (name, held) in &mut self.0 {
            let path = path.field(name);
            match held.node().ty.shape.rank() {
                0 => one::<0, V>(held, &path, visitor),
                1 => one::<1, V>(held, &path, visitor),
                2 => one::<2, V>(held, &path, visitor),
                3 => one::<3, V>(held, &path, visitor),
                4 => one::<4, V>(held, &path, visitor),
                5 => one::<5, V>(held, &path, visitor),
                6 => one::<6, V>(held, &path, visitor),
                7 => one::<7, V>(held, &path, visitor),
                _ => one::<{ kiln_core::MAX_RANK }, V>(held, &path, visitor),
            }
        }
    }
}
