//! Tensors as text.

use std::fmt;

use super::{Bool, Float, Int, Kind, Tensor};
use crate::Error;

/// How many elements along an axis are shown at each end where there are more than twice as many.
const EDGE: usize = 3;
/// How many elements a tensor may have to be shown whole.
const WHOLE: usize = 200;

/// Writes the elements from `at` on as nested lists, each through `element`.
fn nested(
    f: &mut fmt::Formatter<'_>,
    dims: &[usize],
    at: usize,
    edge: usize,
    element: &dyn Fn(&mut fmt::Formatter<'_>, usize) -> fmt::Result,
) -> fmt::Result {
    let Some((&dim, inner)) = dims.split_first() else { return element(f, at) };
    let stride: usize = inner.iter().product();
    f.write_str("[")?;
    for i in 0..dim {
        let cut = dim > 2 * edge;
        if cut && i == edge {
            f.write_str(", …")?;
        }
        if cut && (edge..dim - edge).contains(&i) {
            continue;
        }
        if i > 0 {
            f.write_str(", ")?;
        }
        nested(f, inner, at + i * stride, edge, element)?;
    }
    f.write_str("]")
}

fn show<const D: usize, K: Kind, E: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    tensor: &Tensor<D, K>,
    elements: Result<Vec<E>, Error>,
) -> fmt::Result {
    match elements {
        Ok(elements) => {
            let edge = if elements.len() > WHOLE { EDGE } else { usize::MAX / 2 };
            nested(f, &tensor.dims(), 0, edge, &|f, i| match elements.get(i) {
                Some(element) => element.fmt(f),
                None => Ok(()),
            })
        }
        Err(error) => write!(f, "({error})"),
    }
}

macro_rules! printable {
    ($kind:ident) => {
        /// The elements as nested lists, computed if need be, large tensors in part; with the formatter's
        /// precision.
        impl<const D: usize> fmt::Display for Tensor<D, $kind> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                show(f, self, self.to_vec())
            }
        }
    };
}

printable!(Float);
printable!(Int);
printable!(Bool);

/// The type and whether it is computed; nothing is.
impl<const D: usize, K: Kind> fmt::Debug for Tensor<D, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_realized() { "computed" } else { "recorded" };
        write!(f, "Tensor({} {:?}, {state}, {:?})", K::DTYPE.name(), self.dims(), self.device())
    }
}
