//! A QEMU plugin that counts what a run of a model costs: instructions, loads and stores, of the whole run and
//! of each step.
//!
//! Nothing in the firmware is changed for it. The run is a function, known by its address: it begins with the
//! first instruction of that function, and ends when the instruction behind the call is reached. The steps are
//! found the same way, by the addresses of the kernels' bodies: the executor calls one for each step, in order.
//! What belongs to no step is the executor's. One virtual CPU is counted.
//!
//! Arguments:
//!
//! - `out=FILE`: what is written, see `counter`
//! - `run=0xADDRESS`: the function that is a run
//! - `row=0xADDRESS`, any number of times: a kernel's body
//! - `word=BYTES`: a larger access counts as several, one a word, as the load of several registers does
//! - `code=0xADDRESS`: for a process, its first executable segment in the ELF file, from which it is known how far
//!   the loader moved it

mod counter;
mod options;
// The functions of QEMU are missing in a test's program.
#[cfg(not(test))]
mod qemu;
