//! The files of a replay, on the computer that emulates or debugs this device.
//!
//! Speaks Arm's "Semihosting for AArch32 and AArch64", which RISC-V's "Semihosting" takes over: operation
//! number in one register, address of a block of words in the next, result in the first. The published
//! crates for it check file handles with assertions, and firmware must have no panic path.

use core::arch::asm;
use core::ffi::CStr;

use crate::Exit;
use crate::profile::{Setup, StackUse, profile};
use crate::replay::{Files, Handles, INPUT_FILE, Replay, Sink, dump, replay};

// Operations and constants, by the names of the specification.
const SYS_OPEN: u32 = 0x01;
const SYS_WRITE: u32 = 0x05;
const SYS_READ: u32 = 0x06;
const SYS_EXIT: u32 = 0x18;
const SYS_EXIT_EXTENDED: u32 = 0x20;
const ADP_STOPPED_APPLICATION_EXIT: usize = 0x20026;
/// C's "rb".
const MODE_READ: usize = 1;
/// C's "wb".
const MODE_WRITE: usize = 5;

/// Asks the debugger or emulator for an operation.
///
/// # Safety
///
/// The words of `block` must be what the operation expects: each address among them must be valid
/// for the reads or writes it does there.
#[cfg(target_arch = "arm")]
unsafe fn call(operation: u32, block: *const usize) -> usize {
    let result;
    // SAFETY: the host changes r0 and what the operation is to write, which the caller vouches for.
    // Memory is not declared untouched, so the compiler keeps buffers up to date.
    unsafe {
        asm!("bkpt 0xab", inout("r0") operation as usize => result, in("r1") block, options(nostack));
    }
    result
}

/// Asks the debugger or emulator for an operation.
///
/// # Safety
///
/// As on Arm.
#[cfg(target_arch = "riscv32")]
unsafe fn call(operation: u32, block: *const usize) -> usize {
    let result;
    // SAFETY: the host changes a0 and what the operation is to write, which the caller vouches for.
    // The shifts write no register: they are what tells this breakpoint from others. All three must
    // be uncompressed, and on one page, which the alignment sees to.
    unsafe {
        asm!(
            ".option push",
            ".option norvc",
            ".balign 16",
            "slli zero, zero, 0x1f",
            "ebreak",
            "srai zero, zero, 7",
            ".option pop",
            inout("a0") operation as usize => result,
            in("a1") block,
            options(nostack),
        );
    }
    result
}

/// Replays every case of the input file, then ends the emulator: see [`replay()`].
pub fn replay_and_exit<M: Replay>(model: &mut M) -> ! {
    exit(replay(model, &mut HostFiles(Handles::default())))
}

/// Replays every case and keeps what each step wrote, then ends the emulator: see [`dump()`].
pub fn dump_and_exit<M: Replay>(model: &mut M) -> ! {
    exit(dump(model, &mut HostFiles(Handles::default())))
}

/// Replays every case over painted memory, then ends the emulator: see [`profile()`].
pub fn profile_and_exit<S: Setup>(setup: &mut S, stack: &impl StackUse) -> ! {
    exit(profile(setup, &mut HostFiles(Handles::default()), stack))
}

/// Ends the emulator with `code` as its exit status.
pub fn exit(code: Exit) -> ! {
    let block = [ADP_STOPPED_APPLICATION_EXIT, code as usize];
    // SAFETY: reason and status, as the operation expects; neither is an address.
    unsafe { call(SYS_EXIT_EXTENDED, block.as_ptr()) };
    // A host that does not know the operation returns. The older one has the reason in r1 itself.
    loop {
        // SAFETY: the operation takes a number in place of the block and reads no memory.
        unsafe { call(SYS_EXIT, ADP_STOPPED_APPLICATION_EXIT as *const usize) };
    }
}

/// A file the host has open.
#[derive(Clone, Copy)]
struct Handle(usize);

fn open(name: &CStr, mode: usize) -> Option<Handle> {
    let block = [name.as_ptr() as usize, mode, name.count_bytes()];
    // SAFETY: address of a string that ends in NUL, mode, and length without the NUL.
    let handle = unsafe { call(SYS_OPEN, block.as_ptr()) };
    (handle != usize::MAX).then_some(Handle(handle))
}

/// The files of a replay, reached through semihosting.
struct HostFiles(Handles<Handle>);

impl Files for HostFiles {
    fn open_input(&mut self) -> bool {
        self.0.input = open(INPUT_FILE, MODE_READ);
        self.0.input.is_some()
    }

    fn read(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let Handle(handle) = self.0.input?;
        let block = [handle, bytes.as_mut_ptr() as usize, bytes.len()];
        // SAFETY: handle, and address and length of a buffer that may be written.
        let not_read = unsafe { call(SYS_READ, block.as_ptr()) };
        // An error is a number above the length.
        bytes.len().checked_sub(not_read)
    }

    fn create(&mut self, sink: Sink) -> bool {
        let file = self.0.sink(sink);
        *file = open(sink.name(), MODE_WRITE);
        file.is_some()
    }

    fn write(&mut self, sink: Sink, bytes: &[u8]) -> bool {
        let Some(Handle(handle)) = *self.0.sink(sink) else {
            return false;
        };
        let block = [handle, bytes.as_ptr() as usize, bytes.len()];
        // SAFETY: handle, and address and length of bytes that may be read.
        let not_written = unsafe { call(SYS_WRITE, block.as_ptr()) };
        not_written == 0
    }
}
