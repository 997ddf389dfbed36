//! How much stack a run used: paint what is free, run, look how far the paint was overwritten.
//!
//! Platforms say where their stack lies and where its pointer is; the stack grows down.

use core::ptr;

/// The word free stack is filled with.
const PAINT: u32 = 0x5AFE_57AC;

/// Bytes below the stack pointer that are left alone while painting, so that the frames of those who paint
/// survive.
pub const MARGIN: usize = 128;

/// The memory a stack may grow into.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    bottom: usize,
    top: usize,
}

impl Stack {
    /// The stack between two addresses, `top` being where it starts.
    ///
    /// # Safety
    ///
    /// Both are multiples of 4, and what lies between them is memory that nothing but this program's stack uses.
    pub const unsafe fn new(bottom: usize, top: usize) -> Self {
        Self { bottom, top }
    }

    /// Bytes of memory the stack may grow into, all of it counted.
    pub fn size(&self) -> usize {
        self.top.saturating_sub(self.bottom)
    }

    /// Bytes in use while the stack pointer is at `pointer`.
    pub fn in_use(&self, pointer: usize) -> usize {
        self.top.saturating_sub(pointer)
    }

    /// Fills the free part, `pointer` being the stack pointer of a caller.
    ///
    /// # Safety
    ///
    /// `pointer` is the stack pointer of whoever calls this, so that no frame in use lies more than 128 bytes below it.
    #[inline(always)]
    pub unsafe fn paint(&self, pointer: usize) {
        let limit = pointer.saturating_sub(MARGIN) & !3;
        let mut address = self.bottom;
        while address < limit {
            // SAFETY: the address is a multiple of 4 in the stack's memory, and below all frames that are in use:
            // the caller vouches for both.
            unsafe { ptr::write_volatile(address as *mut u32, PAINT) };
            address = address.wrapping_add(4);
        }
    }

    /// Bytes in use at the deepest point since it was painted, counted from the stack's start. Interrupt
    /// handlers count as well. Less than 128 bytes below the painter's stack pointer can't be told.
    pub fn used(&self) -> usize {
        let mut address = self.bottom;
        while address < self.top {
            // SAFETY: the address is a multiple of 4 within the stack, which is readable memory.
            if unsafe { ptr::read_volatile(address as *const u32) } != PAINT {
                break;
            }
            address = address.wrapping_add(4);
        }
        self.top.saturating_sub(address)
    }
}

/// What a platform's module `stack` offers: where its linker script has the stack begin (at its high end) and end, both
/// at multiples of 4 with nothing but the stack between, and the instruction that reads the stack pointer.
#[macro_export]
macro_rules! platform_stack {
    ($start:ident, $end:ident, $read:literal) => {
        unsafe extern "C" {
            static mut $start: u32;
            static mut $end: u32;
        }

        /// Bytes of memory the stack may grow into, all of it counted.
        pub fn size() -> usize {
            stack().size()
        }

        /// Bytes of stack in use where this is called.
        #[inline(always)]
        pub fn in_use() -> usize {
            stack().in_use(pointer())
        }

        /// Fills the free part of the stack. Call it with as shallow a stack as can be, before the run.
        #[inline(never)]
        pub fn paint() {
            // SAFETY: the pointer is this function's own; interrupts that come meanwhile have gone again when it
            // writes on.
            unsafe { stack().paint(pointer()) };
        }

        /// Bytes of stack in use at the deepest point since [`paint`], counted from the stack's start.
        /// Interrupt handlers count as well.
        #[inline(never)]
        pub fn used() -> usize {
            stack().used()
        }

        /// Measures what a run uses by painting: a frame's words that were never written don't count at the deepest
        /// point, and less than 128 bytes count as that many.
        pub struct Painted;

        impl $crate::profile::StackUse for Painted {
            #[inline(never)]
            fn used_by(&self, run: impl FnOnce()) -> Option<u32> {
                paint();
                let before = in_use();
                run();
                Some(used().wrapping_sub(before) as u32)
            }
        }

        #[inline(always)]
        fn stack() -> $crate::stack::Stack {
            // SAFETY: the linker script puts both symbols at multiples of 4, and nothing but the stack between them.
            unsafe { $crate::stack::Stack::new((&raw mut $end) as usize, (&raw mut $start) as usize) }
        }

        #[inline(always)]
        fn pointer() -> usize {
            let pointer: usize;
            // SAFETY: reads a register and changes nothing.
            unsafe { core::arch::asm!($read, out(reg) pointer, options(nomem, nostack, preserves_flags)) };
            pointer
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_ends_above_the_margin_and_tells_how_deep_it_was_overwritten() {
        let mut memory = [0u32; 256];
        let bottom = memory.as_mut_ptr() as usize;
        let top = bottom + 1024;
        // SAFETY: the memory is this test's own, and no frame is in it.
        let stack = unsafe { Stack::new(bottom, top) };
        assert_eq!((stack.size(), stack.in_use(top - 64)), (1024, 64));
        assert_eq!(stack.used(), 1024);
        // SAFETY: as above.
        unsafe { stack.paint(top - 64) };
        assert_eq!(stack.used(), 64 + MARGIN);
        // SAFETY: an element of the memory above.
        unsafe { ptr::write_volatile((top - 600) as *mut u32, 1) };
        assert_eq!(stack.used(), 600);
        // SAFETY: as above.
        unsafe { stack.paint(top) };
        assert_eq!(stack.used(), MARGIN);
    }
}
