//! Memory between canaries: whoever writes outside is found out.

use kiln_core::zerocopy::IntoBytes;

const CANARY: u8 = 0xc9;

/// Bytes at a multiple of 16, with canaries before and behind.
pub(crate) struct Guarded {
    words: Vec<u128>,
    side: usize,
    len: usize,
}

impl Guarded {
    /// `len` bytes with 256 of canary on each side, or with none: then they are the whole of an
    /// allocation, and tools that watch those see reads outside too.
    pub(crate) fn new(len: usize, canaries: bool) -> Guarded {
        let side = if canaries { 256 } else { 0 };
        let word = u128::from_ne_bytes([CANARY; 16]);
        Guarded { words: vec![word; (len + 2 * side).div_ceil(16)], side, len }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.words.as_mut_bytes()[self.side..self.side + self.len]
    }

    /// Whether all canaries live.
    pub(crate) fn whole(&self) -> bool {
        let all = self.words.as_bytes();
        all[..self.side].iter().chain(&all[self.side + self.len..]).all(|&b| b == CANARY)
    }
}
