//! The files of a replay, in the process's working directory.

use core::ffi::CStr;

use kiln_device::replay::{Files, Handles, INPUT_FILE, Sink};

/// Permissions of a file that is made, before the process's mask.
const READ_WRITE: libc::mode_t = 0o666;

/// A file the system has open; it closes it when the process ends.
#[derive(Clone, Copy)]
struct Descriptor(libc::c_int);

fn open(name: &CStr, flags: libc::c_int) -> Option<Descriptor> {
    // SAFETY: the address of a string that ends in NUL, flags, and the permissions that O_CREAT asks for.
    let descriptor = unsafe { libc::open(name.as_ptr(), flags | libc::O_CLOEXEC, READ_WRITE as libc::c_uint) };
    (descriptor >= 0).then_some(Descriptor(descriptor))
}

/// The files of a replay.
#[derive(Default)]
pub(crate) struct SystemFiles(Handles<Descriptor>);

impl Files for SystemFiles {
    fn open_input(&mut self) -> bool {
        self.0.input = open(INPUT_FILE, libc::O_RDONLY);
        self.0.input.is_some()
    }

    fn read(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let Descriptor(descriptor) = self.0.input?;
        // SAFETY: a descriptor, and address and length of a buffer that may be written.
        let count = unsafe { libc::read(descriptor, bytes.as_mut_ptr().cast(), bytes.len()) };
        // An error is a negative number.
        usize::try_from(count).ok()
    }

    fn create(&mut self, sink: Sink) -> bool {
        let file = self.0.sink(sink);
        *file = open(sink.name(), libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC);
        file.is_some()
    }

    fn write(&mut self, sink: Sink, bytes: &[u8]) -> bool {
        let Some(Descriptor(descriptor)) = *self.0.sink(sink) else {
            return false;
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            // SAFETY: a descriptor, and address and length of bytes that may be read.
            let count = unsafe { libc::write(descriptor, rest.as_ptr().cast(), rest.len()) };
            // Nothing written is as much a failure as an error: it would be tried for ever.
            let written = usize::try_from(count).ok().filter(|&count| count > 0);
            let Some(after) = written.and_then(|count| rest.get(count..)) else {
                return false;
            };
            rest = after;
        }
        true
    }
}
