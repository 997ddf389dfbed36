//! Counting, block by block.

use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A return address that no block has.
const NONE: u64 = u64::MAX;

/// Instructions that run one after another, the last of which may jump.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Address of the first instruction.
    pub(crate) start: u64,
    /// Address behind the last one.
    pub(crate) end: u64,
    /// How many there are.
    pub(crate) instructions: u64,
    /// Whether a function begins here that is counted.
    pub(crate) begins: Begins,
}

/// What begins with a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begins {
    /// Nothing that matters.
    Nothing,
    /// A run of the model.
    Run,
    /// A kernel's body.
    Row,
}

/// Instructions and accesses of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    instructions: u64,
    loads: u64,
    stores: u64,
}

impl Counts {
    fn since(self, earlier: Counts) -> Counts {
        Counts {
            instructions: self.instructions.wrapping_sub(earlier.instructions),
            loads: self.loads.wrapping_sub(earlier.loads),
            stores: self.stores.wrapping_sub(earlier.stores),
        }
    }
}

/// The run that is going on.
#[derive(Default)]
struct Run {
    begin: Counts,
    step_begin: Counts,
    step_row: u64,
    steps: Vec<(u64, Counts)>,
}

/// Counts since the emulator started, and the run that is going on. One virtual CPU writes it; the atomics
/// cost nothing where nobody else does, and keep the counter free of `unsafe`.
pub(crate) struct Counter<W> {
    instructions: AtomicU64,
    loads: AtomicU64,
    stores: AtomicU64,
    /// Address behind the block before this one: where a call returns to, if that block ended in one.
    behind: AtomicU64,
    /// Where the run, and the step in it, returns to.
    run_end: AtomicU64,
    step_end: AtomicU64,
    /// Locked at the beginnings and ends of runs and steps only.
    run: Mutex<(Run, W)>,
}

impl<W: Write> Counter<W> {
    /// A counter that writes to `out`, after each run: `run INSTRUCTIONS LOADS STORES`, then for each of its steps
    /// `step ROW INSTRUCTIONS LOADS STORES`, where `ROW` is the body's address in hexadecimal.
    pub(crate) fn new(out: W) -> Counter<W> {
        Counter {
            instructions: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            stores: AtomicU64::new(0),
            behind: AtomicU64::new(NONE),
            run_end: AtomicU64::new(NONE),
            step_end: AtomicU64::new(NONE),
            run: Mutex::new((Run::default(), out)),
        }
    }

    /// `block` is about to be run.
    pub(crate) fn block(&self, block: &Block) {
        if block.start == self.step_end.load(Relaxed) {
            self.end_step();
        }
        if block.start == self.run_end.load(Relaxed) {
            self.end_run();
        }
        let in_run = self.run_end.load(Relaxed) != NONE;
        match block.begins {
            Begins::Run if !in_run => self.begin_run(),
            Begins::Row if in_run && self.step_end.load(Relaxed) == NONE => self.begin_step(block.start),
            _ => {}
        }
        add(&self.instructions, block.instructions);
        self.behind.store(block.end, Relaxed);
    }

    /// Data are read or written, `words` at once.
    pub(crate) fn access(&self, store: bool, words: u64) {
        add(if store { &self.stores } else { &self.loads }, words);
    }

    fn now(&self) -> Counts {
        Counts {
            instructions: self.instructions.load(Relaxed),
            loads: self.loads.load(Relaxed),
            stores: self.stores.load(Relaxed),
        }
    }

    fn with_run(&self, change: impl FnOnce(&mut Run, &mut W) -> io::Result<()>) {
        // A panic elsewhere has been told already; what is missing in the output is noticed by its reader.
        let mut run = self.run.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (run, out) = &mut *run;
        if let Err(error) = change(run, out) {
            eprintln!("kiln-qemu-plugin: cannot write the counts: {error}");
        }
    }

    fn begin_run(&self) {
        self.run_end.store(self.behind.load(Relaxed), Relaxed);
        self.with_run(|run, _| {
            *run = Run { begin: self.now(), ..Run::default() };
            Ok(())
        });
    }

    fn begin_step(&self, row: u64) {
        self.step_end.store(self.behind.load(Relaxed), Relaxed);
        self.with_run(|run, _| {
            (run.step_begin, run.step_row) = (self.now(), row);
            Ok(())
        });
    }

    fn end_step(&self) {
        self.step_end.store(NONE, Relaxed);
        self.with_run(|run, _| {
            run.steps.push((run.step_row, self.now().since(run.step_begin)));
            Ok(())
        });
    }

    fn end_run(&self) {
        self.run_end.store(NONE, Relaxed);
        self.with_run(|run, out| {
            let Counts { instructions, loads, stores } = self.now().since(run.begin);
            let mut text = format!("run {instructions} {loads} {stores}\n");
            for (row, Counts { instructions, loads, stores }) in &run.steps {
                text.push_str(&format!("step {row:#x} {instructions} {loads} {stores}\n"));
            }
            out.write_all(text.as_bytes())
        });
    }
}

/// Adds to a number only this thread writes.
fn add(number: &AtomicU64, more: u64) {
    number.store(number.load(Relaxed).wrapping_add(more), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(blocks: &[(u64, u64, u64, Begins)]) -> String {
        let counter = Counter::new(Vec::new());
        for &(start, end, instructions, begins) in blocks {
            counter.block(&Block { start, end, instructions, begins });
            counter.access(false, instructions);
            counter.access(true, 1);
        }
        String::from_utf8(counter.run.into_inner().unwrap().1).unwrap()
    }

    #[test]
    fn a_run_ends_where_its_call_returns_to_and_so_do_its_steps() {
        use Begins::*;
        let blocks = [
            (0x10, 0x20, 8, Nothing), // calls the run
            (0x100, 0x110, 5, Run),   // calls a body
            (0x200, 0x208, 3, Row),   // calls another body, of which it is a part
            (0x300, 0x302, 1, Row),
            (0x208, 0x20a, 1, Nothing),
            (0x110, 0x114, 2, Nothing), // calls the other body
            (0x300, 0x302, 1, Row),
            (0x114, 0x118, 2, Nothing),
            (0x20, 0x30, 100, Nothing),
            (0x200, 0x208, 3, Row), // outside any run
        ];
        assert_eq!(written(&blocks), "run 15 15 7\nstep 0x200 5 5 3\nstep 0x300 1 1 1\n");
    }

    #[test]
    fn every_run_is_written_and_one_without_an_end_is_not() {
        use Begins::*;
        let once = [(0x10, 0x20, 8, Nothing), (0x100, 0x110, 5, Run), (0x20, 0x22, 1, Nothing)];
        assert_eq!(written(&[once, once].concat()), "run 5 5 1\nrun 5 5 1\n");
        assert_eq!(written(&once[..2]), "");
    }
}
