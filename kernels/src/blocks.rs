//! Rows that are blocks of elements: how element-by-element kernels cut their tensors.

use kiln_core::Window;
use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A tensor cut into blocks of one size, the last perhaps shorter, 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Blocks {
    /// Elements of a row.
    pub row_length: u32,
    /// Elements of all rows together.
    pub length: u32,
}

impl Blocks {
    /// Elements of `row`; 0 beyond the last.
    #[inline(always)]
    pub(crate) fn elements(&self, row: u32) -> u32 {
        // Rows that `fit` accepted begin before `length`.
        self.length.wrapping_sub(row.wrapping_mul(self.row_length)).min(self.row_length)
    }

    /// Whether `rows` rows, `pitch` bytes apart and of elements of `size` bytes (a power of two), lie
    /// inside `window`, every element aligned if the window is.
    #[inline(never)]
    pub(crate) fn fit(&self, window: Window, rows: u32, pitch: u32, size: u32) -> bool {
        let Some(last) = rows.checked_sub(1) else { return true };
        let used = self.row_length as u64 * size as u64;
        // `used <= pitch` makes the last row the one that reaches farthest.
        self.row_length != 0
            && (last as u64 * self.row_length as u64) < self.length as u64
            && used <= pitch as u64
            && pitch & size.wrapping_sub(1) == 0
            && last as u64 * pitch as u64 + self.elements(last) as u64 * size as u64 <= window.len as u64
    }
}

/// How planning cuts a tensor.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::TensorType;

    use super::Blocks;

    /// Elements of a row of a tensor of rank 1: small enough to share among threads.
    const PIECE: u32 = 1024;

    /// The blocks of a tensor and how many rows they are. A row is an image row of a tensor of rank 4
    /// (so that rows agree with convolution's), otherwise a vector of the innermost dimension; outer
    /// dimensions multiply rows.
    pub(crate) fn cut(ty: &TensorType) -> Option<(Blocks, u32)> {
        let length = u32::try_from(ty.shape.elements()?).ok().filter(|&n| n > 0)?;
        let row_length = match *ty.shape.dims() {
            [] => 1,
            [n] => n.min(PIECE),
            [.., a, b] if ty.shape.rank() >= 4 => a.checked_mul(b)?,
            [.., a] => a,
        };
        Some((Blocks { row_length, length }, length.div_ceil(row_length)))
    }
}
