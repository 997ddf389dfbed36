//! Everything but the batch as one axis.

use crate::{Module, Tensor};

/// `[N, ..]` to `[N, features]`.
#[derive(Module, Clone, Copy, Debug, Default)]
pub struct Flatten;

impl Flatten {
    /// The same elements under their new shape.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: &Tensor<D>) -> Tensor<2> {
        let dims = x.dims();
        let Some((&batch, features)) = dims.split_first() else { panic!("Flatten: a single number has no batch") };
        x.reshape([batch, features.iter().product()])
    }
}
