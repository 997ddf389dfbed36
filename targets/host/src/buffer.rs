//! Memory that a host's plans work in.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment of a buffer's first byte: a cache line, and the widest vector register.
const ALIGN: usize = 64;
/// Bytes behind a buffer's end that exist too: kernels may read (and ignore) up to 255.
const TAIL: usize = 256;

/// Bytes on the heap, aligned for every kernel, with room behind them that kernels may read.
pub struct Buffer {
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: a buffer owns its bytes, like a vector.
unsafe impl Send for Buffer {}
// SAFETY: shared, it can only be read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zero bytes, or `None` where there is no memory for them.
    pub fn zeroed(len: usize) -> Option<Buffer> {
        let layout = Buffer::layout(len)?;
        // SAFETY: the layout is not empty.
        let first = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Buffer { first, len })
    }

    /// A copy of `bytes`, or `None` where there is no memory for it.
    pub fn copy_of(bytes: &[u8]) -> Option<Buffer> {
        let mut buffer = Buffer::zeroed(bytes.len())?;
        buffer.as_mut_slice().copy_from_slice(bytes);
        Some(buffer)
    }

    fn layout(len: usize) -> Option<Layout> {
        Layout::from_size_align(len.checked_add(TAIL)?, ALIGN).ok()
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: allocated for at least `len` bytes, all initialized.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }

    /// The first byte.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.first.as_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(layout) = Buffer::layout(self.len) {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.first.as_ptr(), layout) };
        }
    }
}
