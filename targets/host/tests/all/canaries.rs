//! Memory between canaries: whoever writes outside is found out.

/// Bytes of canary on each side of a piece of memory.
const SIDE: usize = 256;
const CANARY: u8 = 0xc9;

/// `len` bytes at a multiple of 16, with canaries before and behind.
pub(crate) struct Guarded {
    words: Vec<u128>,
    len: usize,
}

impl Guarded {
    pub(crate) fn new(len: usize) -> Guarded {
        let word = u128::from_ne_bytes([CANARY; 16]);
        Guarded { words: vec![word; (len + 2 * SIDE).div_ceil(16)], len }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        use kiln_core::zerocopy::IntoBytes;
        &mut self.words.as_mut_bytes()[SIDE..SIDE + self.len]
    }

    /// Whether all canaries live.
    pub(crate) fn whole(&self) -> bool {
        use kiln_core::zerocopy::IntoBytes;
        let all = self.words.as_bytes();
        all[..SIDE].iter().chain(&all[SIDE + self.len..]).all(|&b| b == CANARY)
    }
}
