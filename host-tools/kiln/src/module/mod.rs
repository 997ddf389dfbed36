//! Modules: what has tensors that are trained, kept in files and moved between devices.

mod buffer;
mod changes;
mod mode;
mod path;
mod plain;
mod walks;

pub use buffer::Buffer;
pub use changes::Changes;
pub use mode::Mode;
pub use path::ModulePath;
pub use plain::Counter;

use std::path::Path;

use crate::tensor::{Bool, Float, Int, Kind, Tensor};
use crate::{Device, Error, Record, RecordError};

/// Something made of tensors: a layer, a network, an optimizer's state, or all that training goes on from.
///
/// Derived for structs whose fields are modules; [`Module::visit`] is the only method to write by hand. Clones share
/// their tensors and cost little.
///
/// ```
/// use kiln::nn::{Conv2d, Linear};
/// use kiln::{Device, Module, Tensor};
///
/// #[derive(Module, Clone, Debug)]
/// struct Net {
///     features: Conv2d,
///     scores: Linear,
/// }
///
/// impl Net {
///     fn forward(&self, images: &Tensor<4>) -> Tensor<2> {
///         let x = self.features.forward(images).relu().max_pool2d([2, 2], [2, 2], [0; 4]);
///         self.scores.forward(&x.flatten(1, 3))
///     }
/// }
///
/// let device = Device::cpu();
/// let net = Net {
///     features: Conv2d::new([1, 4], [3, 3], &device),
///     scores: Linear::new(4 * 3 * 3, 10, &device),
/// };
/// assert_eq!(net.num_params(), 4 * 9 + 4 + 10 * 36 + 10);
/// assert_eq!(net.forward(&Tensor::zeros([2, 8, 8, 1], &device)).dims(), [2, 10]);
/// ```
///
/// A field that is no module is refused, unless it is left out:
///
/// ```compile_fail,E0277
/// #[derive(kiln::Module, Clone)]
/// struct Timed {
///     since: std::time::Instant,
/// }
/// ```
///
/// ```
/// #[derive(kiln::Module, Clone)]
/// struct Timed {
///     #[module(skip)]
///     since: std::time::Instant,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no module",
    label = "has no tensors that can be visited",
    note = "derive `kiln::Module` for it, or leave the field out with #[module(skip)]"
)]
pub trait Module: Clone {
    /// Shows every tensor to `visitor`, always in the same order, each under `path` and its own name.
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V);

    /// How many numbers are trained, or could be.
    fn num_params(&self) -> usize {
        walks::num_params(self)
    }

    /// A copy for evaluation: nothing is tracked, dropout lets everything pass, batch normalization uses the
    /// statistics that it has. Values are shared with this module as they are now.
    fn valid(&self) -> Self {
        walks::valid(self)
    }

    /// The same module on another device.
    fn to_device(&self, device: &Device) -> Result<Self, Error> {
        walks::to_device(self, device)
    }

    /// Its tensors, computed and copied out of the device.
    fn to_record(&self) -> Result<Record, Error> {
        Record::of(self)
    }

    /// Writes its tensors to a safetensors file, which takes the place of an older one only when it is complete.
    fn save(&self, path: impl AsRef<Path>) -> Result<(), RecordError> {
        self.to_record()?.write(path)
    }

    /// Takes on the tensors of a safetensors file. The file has the same tensors under the same names, or nothing
    /// changes.
    fn load(&mut self, path: impl AsRef<Path>) -> Result<(), RecordError> {
        Record::read(path)?.restore(self)
    }
}

/// What is shown every tensor of a module, and may replace it.
pub trait Visitor {
    /// A parameter: what is trained, or could be.
    fn parameter<const D: usize>(&mut self, path: &ModulePath<'_>, tensor: &mut Tensor<D>);

    /// A tensor that goes with the module and is not trained.
    fn buffer<const D: usize, K: Kind>(&mut self, path: &ModulePath<'_>, tensor: &mut Tensor<D, K>);

    /// A number that goes with the module, such as steps done.
    fn counter(&mut self, path: &ModulePath<'_>, number: &mut u64) {
        let _ = (path, number);
    }

    /// Whether a layer is being trained.
    fn mode(&mut self, mode: &mut Mode) {
        let _ = mode;
    }
}

impl<const D: usize> Module for Tensor<D, Float> {
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V) {
        visitor.parameter(path, self);
    }
}

impl<const D: usize> Module for Tensor<D, Int> {
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V) {
        visitor.buffer(path, self);
    }
}

impl<const D: usize> Module for Tensor<D, Bool> {
    fn visit<V: Visitor>(&mut self, path: &ModulePath<'_>, visitor: &mut V) {
        visitor.buffer(path, self);
    }
}
