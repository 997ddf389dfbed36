//! Runs a model over painted memory: what a run touches of arena and stack.
//!
//! Input and output files are those of a [replay](crate::replay). Before each case the arena is filled with a
//! pattern and the model set up in it anew; the pattern is another one for the next case, so that a byte that
//! happens to equal one pattern is told by the other. The dump file gets two records for each case, in the form of a
//! dump's: [`STACK_RECORD`] and [`ARENA_RECORD`].

use crate::Exit;
use crate::replay::{Files, Filled, Replay, Sink, fill_inputs, open, run_model, write_outputs, write_record};

/// What the arena is filled with: the first before cases of even number, the second before the others.
pub const PATTERNS: [u8; 2] = [0xA5, 0x5A];

/// Number of the record with the bytes of stack a run used, a little-endian `u32`; empty where they are not
/// measured.
pub const STACK_RECORD: u32 = 0;

/// Number of the record with the arena's bytes after a run.
pub const ARENA_RECORD: u32 = 1;

/// A model that can be set up again and again in one arena.
pub trait Setup {
    /// The arena's bytes, while no model is in it.
    fn arena(&mut self) -> &mut [u8];

    /// The model, ready for its first run.
    fn set_up(&mut self) -> impl Replay;
}

/// Measures stack.
pub trait StackUse {
    /// Calls `run` and gives the bytes of stack it used, if they can be measured.
    fn used_by(&self, run: impl FnOnce()) -> Option<u32>;
}

/// Does not measure stack.
pub struct NotMeasured;

impl StackUse for NotMeasured {
    fn used_by(&self, run: impl FnOnce()) -> Option<u32> {
        run();
        None
    }
}

/// Runs every case over painted memory and writes outputs and records. A model without input bytes is run once
/// with each pattern.
pub fn profile<S: Setup, F: Files>(setup: &mut S, files: &mut F, stack: &impl StackUse) -> Exit {
    if let Err(exit) = open(files, &[Sink::Output, Sink::Dump]) {
        return exit;
    }
    let mut case: u32 = 0;
    loop {
        match one_case(setup, files, stack, case) {
            Ok(()) => case = case.wrapping_add(1),
            Err(exit) => return exit,
        }
    }
}

/// Fills bytes one by one: as a fill they would bring along the compiler's `memset`, as if the model needed it.
fn paint(bytes: &mut [u8], pattern: u8) {
    for byte in bytes {
        // SAFETY: a byte that is borrowed to be written.
        unsafe { core::ptr::write_volatile(byte, pattern) };
    }
}

fn one_case<S: Setup, F: Files>(setup: &mut S, files: &mut F, stack: &impl StackUse, case: u32) -> Result<(), Exit> {
    let [even, odd] = PATTERNS;
    paint(setup.arena(), if case & 1 == 0 { even } else { odd });
    let mut model = setup.set_up();
    let filled = fill_inputs(&mut model, files)?;
    if filled == Filled::AtEnd || (filled == Filled::Nothing && case as usize >= PATTERNS.len()) {
        return Err(Exit::Done);
    }
    let used = stack.used_by(|| run_model(&mut model)).map(u32::to_le_bytes);
    write_outputs(&model, files)?;
    drop(model);
    let used = used.as_ref().map_or(&[][..], |bytes| bytes);
    if write_record(files, case, STACK_RECORD, used) && write_record(files, case, ARENA_RECORD, setup.arena()) {
        Ok(())
    } else {
        Err(Exit::WriteDump)
    }
}
