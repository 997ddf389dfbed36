//! Memory for a bank, of the right size and alignment by its type.

use crate::Memory;

/// So many zeroed bytes at a multiple of 16, where a bank of a plan may begin. Models that take turns in one piece of
/// RAM share a `Bank` that is large enough for each:
///
/// ```
/// use kiln_core::{Bank, largest};
/// const WAKE_WORD: usize = 8_704;
/// const COMMANDS: usize = 22_592;
///
/// const SHARED_ARENA_BYTES: usize = largest([WAKE_WORD, COMMANDS]);
/// let arena = Bank::<SHARED_ARENA_BYTES>::new();
/// assert_eq!(size_of_val(&arena), 22_592);
/// ```
#[repr(C, align(16))]
pub struct Bank<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Bank<BYTES> {
    /// Zeroed memory.
    pub const fn new() -> Bank<BYTES> {
        Bank([0; BYTES])
    }

    /// The bytes.
    pub const fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl<const BYTES: usize> Default for Bank<BYTES> {
    fn default() -> Bank<BYTES> {
        Bank::new()
    }
}

impl<'m, const BYTES: usize> From<&'m mut Bank<BYTES>> for Memory<'m> {
    fn from(bank: &'m mut Bank<BYTES>) -> Self {
        bank.bytes_mut().into()
    }
}

/// The largest of some sizes: what an arena that several models share must have. 0 of none.
pub const fn largest<const N: usize>(sizes: [usize; N]) -> usize {
    let mut most = 0;
    let mut rest: &[usize] = &sizes;
    while let [first, after @ ..] = rest {
        if *first > most {
            most = *first;
        }
        rest = after;
    }
    most
}
