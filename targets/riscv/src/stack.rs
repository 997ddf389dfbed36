//! How much stack a run used: paint what is free, run, look how far the paint was overwritten.
//!
//! Needs the symbols `_stack_start` (the stack's first address, at its high end) and `__estack` (its low end) of
//! riscv-rt's linker script, and one hart that runs.

kiln_device::platform_stack!(_stack_start, __estack, "mv {}, sp");
