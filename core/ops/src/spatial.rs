//! Sliding windows over NHWC images, shared by the rules of convolution and pooling.

use kiln_core::{Shape, TensorType};

use crate::OpError;

/// A window's geometry along height and width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window2d {
    /// Window height and width.
    pub kernel: [u32; 2],
    /// Steps between windows.
    pub strides: [u32; 2],
    /// Distance between taps.
    pub dilations: [u32; 2],
    /// Padding: top, left, bottom, right.
    pub pads: [u32; 4],
}

const AXES: [&str; 2] = ["height", "width"];

impl Window2d {
    /// The output's height and width over an input of `height` by `width`.
    pub fn output(&self, height: u32, width: u32) -> Result<[u32; 2], OpError> {
        let mut out = [0u32; 2];
        for (axis, size) in [height, width].into_iter().enumerate() {
            let (kernel, stride, dilation) = (self.kernel[axis], self.strides[axis], self.dilations[axis]);
            for (name, value) in [("kernel", kernel), ("stride", stride), ("dilation", dilation)] {
                if value == 0 {
                    return Err(OpError::Attribute(name, 0));
                }
            }
            let span = (kernel as u64 - 1) * dilation as u64 + 1;
            let (before, after) = (self.pads[axis] as u64, self.pads[axis + 2] as u64);
            if before >= span || after >= span {
                return Err(OpError::Attribute("padding", before.max(after)));
            }
            let padded = size as u64 + before + after;
            if span > padded {
                return Err(OpError::Window(AXES[axis], span, padded));
            }
            let steps = (padded - span).checked_div(stride as u64).ok_or(OpError::Attribute("stride", 0))?;
            out[axis] = u32::try_from(steps + 1).map_err(|_| OpError::TooLarge)?;
        }
        Ok(out)
    }

    /// The input index of tap `k` of the window at output index `o` along `axis` (0 height, 1
    /// width), or `None` when it falls on padding.
    pub fn tap(&self, axis: usize, o: u32, k: u32, size: u32) -> Option<u32> {
        let at = o as i64 * self.strides[axis] as i64 + k as i64 * self.dilations[axis] as i64 - self.pads[axis] as i64;
        (0..size as i64).contains(&at).then_some(at as u32)
    }

    /// Whether an index of the output along an axis of NHWC sees that index of the input alone: true for
    /// images, and along height and width where the window has one tap; channels are the operator's own.
    pub(crate) fn keeps_apart(&self, axis: usize) -> bool {
        let Some(at) = axis.checked_sub(1) else { return true };
        let all = |list: &[u32], want: u32| list.get(at) == Some(&want);
        let pads = [self.pads.get(at), self.pads.get(at + 2)];
        at < 2 && all(&self.kernel, 1) && all(&self.strides, 1) && pads == [Some(&0); 2]
    }
}

/// TFLite's SAME padding along one axis: before and after, the odd one after.
pub fn same_padding(size: u32, kernel: u32, stride: u32, dilation: u32) -> (u32, u32) {
    let span = (kernel.max(1) as u64 - 1) * dilation as u64 + 1;
    let out = (size as u64).div_ceil(stride.max(1) as u64);
    let needed = (out.saturating_sub(1) * stride as u64 + span).saturating_sub(size as u64);
    ((needed / 2) as u32, (needed - needed / 2) as u32)
}

/// The four dimensions of an NHWC input.
pub(crate) fn nhwc(index: usize, input: &TensorType) -> Result<[u32; 4], OpError> {
    input.shape.dims().try_into().map_err(|_| OpError::Rank(index, 4, input.shape.rank()))
}

/// The four dimensions of a tensor that a rule has accepted.
pub(crate) fn four(ty: &TensorType) -> [u32; 4] {
    core::array::from_fn(|axis| ty.shape.dim(axis))
}

/// A shape whose elements can be counted.
pub(crate) fn counted(dims: &[u32]) -> Result<Shape, OpError> {
    let shape = Shape::new(dims).map_err(|_| OpError::TooLarge)?;
    match shape.elements() {
        Some(n) if n <= i64::MAX as u64 / 16 => Ok(shape),
        _ => Err(OpError::TooLarge),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_padding_puts_the_odd_one_after() {
        assert_eq!(same_padding(49, 10, 2, 1), (4, 5));
        assert_eq!(same_padding(10, 4, 2, 1), (1, 1));
        assert_eq!(same_padding(32, 3, 1, 1), (1, 1));
        assert_eq!(same_padding(32, 3, 2, 1), (0, 1));
        assert_eq!(same_padding(8, 1, 2, 1), (0, 0));
    }

    #[test]
    fn windows_count_and_refuse() {
        let w = Window2d { kernel: [10, 4], strides: [2, 2], dilations: [1, 1], pads: [4, 1, 5, 1] };
        assert_eq!(w.output(49, 10), Ok([25, 5]));
        assert_eq!(w.tap(0, 0, 3, 49), None);
        assert_eq!(w.tap(0, 0, 4, 49), Some(0));
        assert_eq!([0, 1, 2, 3].map(|axis| w.keeps_apart(axis)), [true, false, false, false]);
        let row = Window2d { kernel: [1, 3], strides: [1, 1], dilations: [1, 1], pads: [0, 1, 0, 1] };
        assert_eq!([0, 1, 2, 3].map(|axis| row.keeps_apart(axis)), [true, true, false, false]);
        let w = Window2d { kernel: [3, 3], strides: [1, 0], dilations: [1, 1], pads: [0; 4] };
        assert_eq!(w.output(8, 8), Err(OpError::Attribute("stride", 0)));
        let w = Window2d { kernel: [3, 3], strides: [1, 1], dilations: [4, 1], pads: [0; 4] };
        assert_eq!(w.output(8, 8), Err(OpError::Window("height", 9, 8)));
    }
}
