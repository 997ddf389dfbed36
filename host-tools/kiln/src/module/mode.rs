//! Training or evaluation.

use super::{Module, ModulePath, Visitor};

/// Whether a layer is being trained: a field of layers that behave differently then. [`Module::valid`] turns it to
/// [`Mode::Evaluation`] in its copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// What a new layer does.
    #[default]
    Training,
    /// What the copy of [`Module::valid`] does.
    Evaluation,
}

impl Module for Mode {
    fn visit<V: Visitor>(&mut self, _: &ModulePath<'_>, visitor: &mut V) {
        visitor.mode(self);
    }
}
