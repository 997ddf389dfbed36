//! How much stack a run used: paint what is free, run, look how far the paint was overwritten.
//!
//! Needs the symbols `_stack_start` (the stack's first address, at its high end) and `__estack`
//! (its low end) of riscv-rt's linker script.

use kiln_device::stack::Stack;

unsafe extern "C" {
    static mut _stack_start: u32;
    static mut __estack: u32;
}

/// All memory the stack may grow into.
pub fn whole() -> Stack {
    // SAFETY: the linker script gives the stack all RAM that no static occupies, and nothing but the stack lies
    // in it.
    unsafe { Stack::new((&raw mut __estack) as usize, (&raw mut _stack_start) as usize) }
}

/// Bytes of memory the stack may grow into, all of it counted.
pub fn size() -> usize {
    whole().size()
}

/// Fills the free part of the stack. Call it with as shallow a stack as can be, before the run.
pub fn paint() {
    whole().paint();
}

/// Bytes of stack in use at the deepest point since [`paint`], counted from the stack's start.
/// Interrupt handlers count as well.
pub fn used() -> usize {
    ((&raw mut _stack_start) as usize).wrapping_sub(whole().deepest())
}
