//! Dropout.

use kiln_ops::Distribution;

use crate::module::Mode;
use crate::{Module, Tensor};

/// Dropout (Srivastava et al., 2014): in training each element becomes 0 with a probability, and what stays is
/// divided by the probability of staying. The random numbers come from the device's counter, so that every step
/// is the same plan.
#[derive(Module, Clone, Debug)]
pub struct Dropout {
    /// The probability of becoming 0.
    pub probability: f32,
    /// Whether it drops anything.
    pub mode: Mode,
}

impl Dropout {
    /// Dropout with a probability.
    ///
    /// # Panics
    ///
    /// If it is not in `0 <= probability < 1`.
    #[track_caller]
    pub fn new(probability: f32) -> Dropout {
        assert!((0.0..1.0).contains(&probability), "Dropout: {probability} is no probability from 0 to below 1");
        Dropout { probability, mode: Mode::default() }
    }

    /// The same shape.
    pub fn forward<const D: usize>(&self, x: &Tensor<D>) -> Tensor<D> {
        if self.mode == Mode::Evaluation || self.probability == 0.0 {
            return x.clone();
        }
        let keep = 1.0 - self.probability;
        let stays = Tensor::<D>::random(x.dims(), Distribution::Uniform, x.device()).lower_elem(keep);
        x * &stays.float().mul_scalar(1.0 / keep)
    }
}
