//! Kiln in a Linux process without Rust's standard library: how a plan is replayed on a small computer
//! by the same code as on a microcontroller. Applications on such computers have the standard library and
//! use Kiln's host target.
//!
//! The feature `emulation` (Linux only) brings a panic handler that ends the process with a code of
//! [`Exit`].
//!
//! No heap and no panic path.
#![no_std]

#[cfg(target_os = "linux")]
mod files;

pub use kiln_device::{Exit, Replay, Setup, replay};

#[cfg(target_os = "linux")]
pub use process::{dump_and_exit, exit, profile_and_exit, replay_and_exit};

#[cfg(target_os = "linux")]
mod process {
    use kiln_device::profile::{NotMeasured, profile};
    use kiln_device::replay::{dump, replay};

    use super::{Exit, Replay, Setup, files::SystemFiles};

    /// Replays every case of the input file, then ends the process: see [`replay()`].
    pub fn replay_and_exit<M: Replay>(model: &mut M) -> ! {
        exit(replay(model, &mut SystemFiles::default()))
    }

    /// Replays every case and keeps what each step wrote, then ends the process: see [`dump()`].
    pub fn dump_and_exit<M: Replay>(model: &mut M) -> ! {
        exit(dump(model, &mut SystemFiles::default()))
    }

    /// Replays every case over a painted arena, then ends the process: see [`profile()`]. A process's stack is
    /// the system's, and is not measured.
    pub fn profile_and_exit<S: Setup>(setup: &mut S) -> ! {
        exit(profile(setup, &mut SystemFiles::default(), &NotMeasured))
    }

    /// Ends the process with `code` as its exit status.
    pub fn exit(code: Exit) -> ! {
        // SAFETY: takes a number, ends the process at once and runs nothing of it any more.
        unsafe { libc::_exit(code as libc::c_int) }
    }

    /// Required by the language. Nothing may panic, so the linker drops it; a check of the program's
    /// symbols proves that it did.
    #[cfg(all(feature = "emulation", panic = "abort", not(test)))]
    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        exit(Exit::Panic)
    }
}
