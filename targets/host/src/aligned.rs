//! Bytes on the heap at a multiple of 16.

use std::alloc::{Layout, alloc_zeroed};

/// Bytes whose first is at a multiple of 16, as plans and arenas need.
#[derive(Clone, Default)]
pub struct AlignedBytes {
    words: Vec<u128>,
    len: usize,
}

impl AlignedBytes {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBytes {
        AlignedBytes { words: vec![0; len.div_ceil(16)], len }
    }

    /// `len` zero bytes, or `None` where there is no memory for them.
    pub fn try_zeroed(len: usize) -> Option<AlignedBytes> {
        let count = len.div_ceil(16);
        if count == 0 {
            return Some(AlignedBytes::default());
        }
        let layout = Layout::array::<u128>(count).ok()?;
        // Asking for zeros, rather than writing them, commits no page until it is used.
        // SAFETY: the layout is not empty.
        let words: *mut u128 = unsafe { alloc_zeroed(layout) }.cast();
        if words.is_null() {
            return None;
        }
        // SAFETY: allocated just above by the global allocator for exactly `count` words, all zero.
        Some(AlignedBytes { words: unsafe { Vec::from_raw_parts(words, count, count) }, len })
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> AlignedBytes {
        let mut aligned = AlignedBytes::zeroed(bytes.len());
        aligned.as_mut().copy_from_slice(bytes);
        aligned
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the words are initialized, `len` of their bytes exist, and u8 has no alignment.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }
}

impl AsMut<[u8]> for AlignedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_ref`; every byte value is a valid part of a u128.
        unsafe { core::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.len) }
    }
}
