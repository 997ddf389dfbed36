//! How much stack a run used: paint what is free, run, look how far the paint was overwritten.
//!
//! Needs the symbols `_stack_start` (the stack's first address, at its high end) and `_stack_end`
//! (its low end) of cortex-m-rt's linker script.

kiln_device::platform_stack!(_stack_start, _stack_end, "mov {}, sp");
