//! Runs a model over the cases of a file: how a device is verified.
//!
//! The input file holds the cases one after another, each the model's inputs in order, raw bytes.
//! The output file gets the outputs of each case in the same manner. The dump file gets one record
//! for every step of every case: case, step and length as little-endian `u32`, then the bytes.

use core::convert::Infallible;
use core::ffi::CStr;

use crate::Exit;

/// Name of the file cases are read from, in the emulator's working directory.
pub const INPUT_FILE: &CStr = c"kiln-in.bin";
/// Name of the file outputs are written to.
pub const OUTPUT_FILE: &CStr = c"kiln-out.bin";
/// Name of the file step records are written to.
pub const DUMP_FILE: &CStr = c"kiln-dump.bin";

/// A model that can be run over a file of cases.
pub trait Replay {
    /// How many inputs it has.
    fn input_count(&self) -> usize;

    /// The bytes of an input; empty for an index that is too large. Filled before every run,
    /// because a run may overwrite them.
    fn input(&mut self, index: usize) -> &mut [u8];

    /// How many outputs it has.
    fn output_count(&self) -> usize;

    /// The bytes of an output, valid after a run; empty for an index that is too large.
    fn output(&self, index: usize) -> &[u8];

    /// Runs the model once.
    fn run(&mut self);

    /// Runs the model once, giving `sink` each step's index and the bytes it wrote, in order.
    fn run_dumping(&mut self, sink: &mut dyn FnMut(u32, &[u8]));
}

/// The files of a replay. On a device they are reached through semihosting.
pub trait Files {
    /// Opens the input file; `false` if that fails.
    fn open_input(&mut self) -> bool;

    /// Reads up to `bytes.len()` bytes of the input file and returns how many; 0 at its end, `None`
    /// if reading fails.
    fn read(&mut self, bytes: &mut [u8]) -> Option<usize>;

    /// Makes a file to write to, empty; `false` if that fails.
    fn create(&mut self, sink: Sink) -> bool;

    /// Writes all of `bytes` to a file made before; `false` if that fails.
    fn write(&mut self, sink: Sink, bytes: &[u8]) -> bool;
}

/// A file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// [`OUTPUT_FILE`].
    Output,
    /// [`DUMP_FILE`].
    Dump,
}

impl Sink {
    /// The file's name.
    pub fn name(self) -> &'static CStr {
        match self {
            Sink::Output => OUTPUT_FILE,
            Sink::Dump => DUMP_FILE,
        }
    }
}

/// What a platform calls its open files by; none is open at first. They are not closed: that is done when the
/// program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handles<H> {
    /// The input file.
    pub input: Option<H>,
    output: Option<H>,
    dump: Option<H>,
}

impl<H> Default for Handles<H> {
    fn default() -> Self {
        Handles { input: None, output: None, dump: None }
    }
}

impl<H> Handles<H> {
    /// The file that a sink is.
    pub fn sink(&mut self, sink: Sink) -> &mut Option<H> {
        match sink {
            Sink::Output => &mut self.output,
            Sink::Dump => &mut self.dump,
        }
    }
}

/// Runs every case and writes the outputs. A model without input bytes is run once.
pub fn replay<M: Replay, F: Files>(model: &mut M, files: &mut F) -> Exit {
    if let Err(exit) = open(files, &[Sink::Output]) {
        return exit;
    }
    let Err(exit) = every_case(model, files, |model, files, _case| {
        run_model(model);
        write_outputs(model, files)
    });
    exit
}

/// As [`replay()`], and writes what each step wrote as well.
pub fn dump<M: Replay, F: Files>(model: &mut M, files: &mut F) -> Exit {
    if let Err(exit) = open(files, &[Sink::Output, Sink::Dump]) {
        return exit;
    }
    let Err(exit) = every_case(model, files, |model, files, case| {
        let mut written = true;
        model.run_dumping(&mut |step, bytes| {
            written = written && write_record(files, case, step, bytes);
        });
        if !written {
            return Err(Exit::WriteDump);
        }
        write_outputs(model, files)
    });
    exit
}

/// Opens the input file and makes those that are written.
pub(crate) fn open<F: Files>(files: &mut F, sinks: &[Sink]) -> Result<(), Exit> {
    if !files.open_input() {
        return Err(Exit::OpenInput);
    }
    for &sink in sinks {
        if !files.create(sink) {
            return Err(match sink {
                Sink::Output => Exit::OpenOutput,
                Sink::Dump => Exit::OpenDump,
            });
        }
    }
    Ok(())
}

/// Runs the model. A function of its own, never inlined, so that in an ELF the code of a model can
/// be told from the code of the replay.
#[inline(never)]
pub fn run_model<M: Replay>(model: &mut M) {
    model.run();
}

/// Reads case after case and gives each to `run`. Ends with [`Exit::Done`] or the first error.
fn every_case<M: Replay, F: Files>(
    model: &mut M,
    files: &mut F,
    mut run: impl FnMut(&mut M, &mut F, u32) -> Result<(), Exit>,
) -> Result<Infallible, Exit> {
    let mut case: u32 = 0;
    loop {
        let filled = fill_inputs(model, files)?;
        // Without input bytes the end of the file cannot be told from a case.
        let only_one = filled == Filled::Nothing;
        if filled == Filled::AtEnd || (only_one && case > 0) {
            return Err(Exit::Done);
        }
        run(model, files, case)?;
        case = case.wrapping_add(1);
    }
}

/// How much of a case was read.
#[derive(PartialEq, Eq)]
pub(crate) enum Filled {
    /// All input bytes.
    Case,
    /// No byte: the file ends here.
    AtEnd,
    /// No byte: the model has no input bytes.
    Nothing,
}

pub(crate) fn fill_inputs<M: Replay, F: Files>(model: &mut M, files: &mut F) -> Result<Filled, Exit> {
    let mut filled = Filled::Nothing;
    for index in 0..model.input_count() {
        let mut rest = model.input(index);
        while !rest.is_empty() {
            let count = files.read(rest).ok_or(Exit::ReadInput)?;
            if count == 0 {
                return match filled {
                    Filled::Nothing => Ok(Filled::AtEnd),
                    _ => Err(Exit::PartialCase),
                };
            }
            filled = Filled::Case;
            // A reader that claims more bytes than there is room for is broken, not at its end.
            rest = rest.get_mut(count..).ok_or(Exit::ReadInput)?;
        }
    }
    Ok(filled)
}

pub(crate) fn write_outputs<M: Replay, F: Files>(model: &M, files: &mut F) -> Result<(), Exit> {
    for index in 0..model.output_count() {
        if !files.write(Sink::Output, model.output(index)) {
            return Err(Exit::WriteOutput);
        }
    }
    Ok(())
}

pub(crate) fn write_record<F: Files>(files: &mut F, case: u32, step: u32, bytes: &[u8]) -> bool {
    // A device's memory is addressed with 32 bits, so no length is cut here.
    let length = bytes.len() as u32;
    [case, step, length].into_iter().all(|number| files.write(Sink::Dump, &number.to_le_bytes()))
        && files.write(Sink::Dump, bytes)
}
