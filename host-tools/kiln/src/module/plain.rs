//! Modules that are made of modules, settings, and numbers that are kept.

use super::{Module, ModulePath, Visitor};
use crate::RandomState;

/// A number that goes with a module and is kept in its files, such as steps or epochs done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counter(pub u64);

impl Module for Counter {
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V) {
        visitor.counter(path, &mut self.0);
    }
}

impl Module for RandomState {
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V) {
        visitor.counter(&path.field("seed"), &mut self.seed);
        let mut draws = self.draws.into();
        visitor.counter(&path.field("draws"), &mut draws);
        self.draws = u32::try_from(draws).unwrap_or(u32::MAX);
    }
}

impl<M: Module> Module for Option<M> {
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V) {
        if let Some(module) = self {
            module.visit(path, visitor);
        }
    }
}

impl<M: Module> Module for Box<M> {
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V) {
        M::visit(self, path, visitor);
    }
}

impl<M: Module> Module for Vec<M> {
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V) {
        self.iter_mut().enumerate().for_each(|(i, module)| module.visit(&path.index(i), visitor));
    }
}

impl<M: Module, const N: usize> Module for [M; N] {
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V) {
        self.iter_mut().enumerate().for_each(|(i, module)| module.visit(&path.index(i), visitor));
    }
}

impl<A: Module, B: Module> Module for (A, B) {
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V) {
        self.0.visit(&path.index(0), visitor);
        self.1.visit(&path.index(1), visitor);
    }
}

/// Settings: nothing of them is visited.
macro_rules! settings {
    ($($ty:ty)*) => {
        $(impl Module for $ty {
            fn visit<V: Visitor>(&mut self, _: &ModulePath<'_>, _: &mut V) {}
        })*
    };
}

settings! { () bool char u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 String &'static str }
