//! How much stack code used: paint what is free, run it, look how far the paint was overwritten.

use core::arch::asm;
use core::ptr;

use crate::profile::StackUse;

/// The word free stack is filled with.
const PAINT: u32 = 0x5AFE_57AC;

/// Bytes below the stack pointer that are left alone while painting, so that the painting
/// function's own frame survives.
const MARGIN: usize = 128;

/// Memory a stack grows into, from its high end down.
pub struct Stack {
    bottom: usize,
    top: usize,
}

impl Stack {
    /// The stack from its lowest address, `bottom`, up to before `top`; both multiples of 4.
    ///
    /// # Safety
    ///
    /// It is memory that may be read and written, holds the stack of the code that calls the methods, and below
    /// the stack pointer no object.
    pub unsafe fn new(bottom: usize, top: usize) -> Stack {
        Stack { bottom, top }
    }

    /// Its bytes.
    pub fn size(&self) -> usize {
        self.top.wrapping_sub(self.bottom)
    }

    /// Fills what is free of it.
    #[inline(never)]
    pub fn paint(&self) {
        let mut address = self.bottom;
        let limit = stack_pointer().saturating_sub(MARGIN) & !3;
        while address < limit {
            // SAFETY: the address is a multiple of 4 between the stack's end and the current frames (MARGIN
            // below the stack pointer), memory that no object occupies.
            unsafe { ptr::write_volatile(address as *mut u32, PAINT) };
            address += 4;
        }
    }

    /// The lowest address in use since [`Stack::paint`].
    #[inline(never)]
    pub fn deepest(&self) -> usize {
        let mut address = self.bottom;
        while address < self.top {
            // SAFETY: the address is a multiple of 4 within the stack, which is readable memory.
            if unsafe { ptr::read_volatile(address as *const u32) } != PAINT {
                break;
            }
            address += 4;
        }
        address
    }
}

impl StackUse for Stack {
    /// As painting shows it: a frame's words that were never written don't count at the deepest point, and less
    /// than MARGIN bytes count as that many.
    #[inline(never)]
    fn used_by(&self, run: impl FnOnce()) -> Option<u32> {
        self.paint();
        let before = stack_pointer();
        run();
        Some(before.wrapping_sub(self.deepest()) as u32)
    }
}

#[inline(always)]
fn stack_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register and changes nothing.
    #[cfg(target_arch = "arm")]
    unsafe {
        asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags))
    };
    // SAFETY: the same.
    #[cfg(target_arch = "riscv32")]
    unsafe {
        asm!("mv {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags))
    };
    pointer
}
