//! Raw windows into memory.

/// A raw window: where a tensor (or a part of one) lies. Never a slice: the windows of one step may
/// overlap, as far as its row's lag allows, so references to both would alias.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// First byte.
    pub ptr: *mut u8,
    /// Bytes that may be touched from `ptr` on.
    pub len: usize,
}

impl Window {
    /// The window without bytes; what [`Call`](crate::Call) answers for an operand it has not.
    pub const EMPTY: Window = Window { ptr: core::ptr::null_mut(), len: 0 };

    /// The window over a slice that a kernel only reads.
    pub const fn reading(bytes: &[u8]) -> Window {
        Window { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() }
    }

    /// The window over a slice that a kernel may write.
    pub const fn writing(bytes: &mut [u8]) -> Window {
        Window { ptr: bytes.as_mut_ptr(), len: bytes.len() }
    }

    /// Whether `count` elements of `size` bytes, the first at the window's start, lie inside it.
    pub const fn holds(&self, count: usize, size: usize) -> bool {
        match count.checked_mul(size) {
            Some(bytes) => bytes <= self.len,
            None => false,
        }
    }
}
