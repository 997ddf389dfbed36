//! How much stack a run used: paint what is free, run, look how far the paint was overwritten.
//!
//! Needs the symbols `_stack_start` (the stack's first address, at its high end) and `_stack_end`
//! (its low end) of cortex-m-rt's linker script.

use core::arch::asm;

use kiln_device::profile::StackUse;
use kiln_device::stack::Stack;

unsafe extern "C" {
    static mut _stack_start: u32;
    static mut _stack_end: u32;
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
    // SAFETY: the pointer is this function's own; interrupts that come meanwhile have gone again when it writes on.
    unsafe { stack().paint(pointer()) };
}

/// Bytes of stack in use at the deepest point since [`paint`], counted from the stack's start.
/// Interrupt handlers count as well.
#[inline(never)]
pub fn used() -> usize {
    stack().used()
}

/// Measures what a run uses by painting: a frame's words that were never written don't count at the deepest point, and
/// less than 128 bytes count as that many.
pub struct Painted;

impl StackUse for Painted {
    #[inline(never)]
    fn used_by(&self, run: impl FnOnce()) -> Option<u32> {
        paint();
        let before = in_use();
        run();
        Some(used().wrapping_sub(before) as u32)
    }
}

#[inline(always)]
fn stack() -> Stack {
    // SAFETY: the linker script puts both symbols at multiples of 4, and nothing but the stack between them.
    unsafe { Stack::new((&raw mut _stack_end) as usize, (&raw mut _stack_start) as usize) }
}

#[inline(always)]
fn pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register and changes nothing.
    unsafe { asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}
