//! A set of small integers, and a hasher for looking sets and offset lists up.
//!
//! The maps built on it are only asked for membership, never iterated.

use std::hash::{BuildHasherDefault, Hasher};

/// A set of integers below a capacity fixed at creation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Bits(Box<[u64]>);

impl Bits {
    pub(super) fn new(capacity: usize) -> Self {
        Self(vec![0; capacity.div_ceil(64)].into())
    }

    pub(super) fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    pub(super) fn has(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 != 0
    }

    pub(super) fn union(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }

    pub(super) fn words(&self) -> usize {
        self.0.len()
    }
}

/// Multiplies and rotates word by word: the keys are ours, so no flood has to be feared.
#[derive(Default)]
pub(super) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let mut raw = [0; 8];
            raw.copy_from_slice(word);
            self.write_u64(u64::from_le_bytes(raw));
        }
        for &byte in words.remainder() {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

pub(super) type Words = BuildHasherDefault<WordHasher>;
