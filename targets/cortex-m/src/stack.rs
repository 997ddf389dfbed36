//! How much stack a run used: paint what is free, run, look how far the paint was overwritten.
//!
//! Needs the symbols `_stack_start` (the stack's first address, at its high end) and `_stack_end`
//! (its low end) of cortex-m-rt's linker script.

use core::arch::asm;
use core::ptr;

/// The word free stack is filled with.
const PAINT: u32 = 0x5AFE_57AC;

/// Bytes below the stack pointer that are left alone while painting, so that the painting
/// function's own frame survives.
const MARGIN: usize = 128;

unsafe extern "C" {
    static mut _stack_start: u32;
    static mut _stack_end: u32;
}

/// Bytes of memory the stack may grow into, all of it counted.
pub fn size() -> usize {
    top().wrapping_sub(bottom())
}

/// Fills the free part of the stack. Call it with as shallow a stack as can be, before the run.
#[inline(never)]
pub fn paint() {
    let mut address = bottom();
    let limit = stack_pointer().saturating_sub(MARGIN) & !3;
    while address < limit {
        // SAFETY: the address is a multiple of 4 between the end of static data and the current
        // stack frames (MARGIN below the stack pointer), memory that no object occupies.
        unsafe { ptr::write_volatile(address as *mut u32, PAINT) };
        address += 4;
    }
}

/// Bytes of stack in use at the deepest point since [`paint`], counted from the stack's start.
/// Interrupt handlers count as well.
#[inline(never)]
pub fn used() -> usize {
    let mut address = bottom();
    let end = top();
    while address < end {
        // SAFETY: the address is a multiple of 4 within the stack, which is readable memory.
        if unsafe { ptr::read_volatile(address as *const u32) } != PAINT {
            break;
        }
        address += 4;
    }
    end.wrapping_sub(address)
}

fn top() -> usize {
    (&raw mut _stack_start) as usize
}

fn bottom() -> usize {
    (&raw mut _stack_end) as usize
}

fn stack_pointer() -> usize {
    let sp: usize;
    // SAFETY: reads a register and changes nothing.
    unsafe { asm!("mov {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}
