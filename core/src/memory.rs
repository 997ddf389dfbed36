//! The memory a session works in.

use core::marker::PhantomData;

/// How many RAM banks a plan can use.
pub const MAX_BANKS: usize = 4;

/// One to [`MAX_BANKS`] pieces of RAM, in the order of the plan's bank table. Most boards have one:
/// any `&mut [u8]` converts.
pub struct Memory<'m> {
    pub(crate) banks: [(*mut u8, usize); MAX_BANKS],
    pub(crate) count: usize,
    borrow: PhantomData<&'m mut [u8]>,
}

impl<'m> Memory<'m> {
    pub(crate) const NONE: (*mut u8, usize) = (core::ptr::null_mut(), 0);

    /// No memory at all: right for a plan that needs none.
    pub const fn empty() -> Memory<'m> {
        Memory { banks: [Self::NONE; MAX_BANKS], count: 0, borrow: PhantomData }
    }
}

impl<'m> From<&'m mut [u8]> for Memory<'m> {
    fn from(bank: &'m mut [u8]) -> Self {
        let mut memory = Memory::empty();
        memory.banks[0] = (bank.as_mut_ptr(), bank.len());
        memory.count = 1;
        memory
    }
}

impl<'m, const N: usize> From<[&'m mut [u8]; N]> for Memory<'m> {
    /// Banks beyond [`MAX_BANKS`] are not used; a plan that wanted them does not load.
    fn from(banks: [&'m mut [u8]; N]) -> Self {
        let mut memory = Memory::empty();
        for (to, from) in memory.banks.iter_mut().zip(banks) {
            *to = (from.as_mut_ptr(), from.len());
            memory.count += 1;
        }
        memory
    }
}
