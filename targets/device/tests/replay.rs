//! The replay loop against files in memory, good ones and ones that fail.

use kiln_device::profile::{NotMeasured, PATTERNS, StackUse, profile};
use kiln_device::replay::{Files, Replay, Sink, dump, replay};
use kiln_device::{Exit, Setup};

/// Two inputs of 3 and 1 bytes; one output: the three bytes plus the one.
#[derive(Default)]
struct Adder {
    bytes: [u8; 3],
    add: [u8; 1],
    sum: [u8; 3],
}

impl Replay for Adder {
    fn input_count(&self) -> usize {
        2
    }
    fn input(&mut self, index: usize) -> &mut [u8] {
        match index {
            0 => &mut self.bytes,
            1 => &mut self.add,
            _ => &mut [],
        }
    }
    fn output_count(&self) -> usize {
        1
    }
    fn output(&self, _: usize) -> &[u8] {
        &self.sum
    }
    fn run(&mut self) {
        self.sum = self.bytes.map(|b| b.wrapping_add(self.add[0]));
        // Inputs do not survive a run, which the loop must not rely on.
        self.bytes = [0xEE; 3];
    }
    fn run_dumping(&mut self, sink: &mut dyn FnMut(u32, &[u8])) {
        sink(0, &self.add);
        self.run();
        sink(1, &self.sum);
    }
}

/// A model without inputs.
struct Constant;

impl Replay for Constant {
    fn input_count(&self) -> usize {
        0
    }
    fn input(&mut self, _: usize) -> &mut [u8] {
        &mut []
    }
    fn output_count(&self) -> usize {
        1
    }
    fn output(&self, _: usize) -> &[u8] {
        &[7]
    }
    fn run(&mut self) {}
    fn run_dumping(&mut self, _: &mut dyn FnMut(u32, &[u8])) {}
}

/// Files in memory: reads come in chunks of at most `chunk` bytes, and what is named in `broken`
/// fails.
struct Memory {
    input: Vec<u8>,
    output: Vec<u8>,
    dump: Vec<u8>,
    chunk: usize,
    broken: &'static str,
    writes_left: usize,
}

impl Memory {
    fn new(input: &[u8]) -> Self {
        Self {
            input: input.to_vec(),
            output: vec![],
            dump: vec![],
            chunk: usize::MAX,
            broken: "",
            writes_left: usize::MAX,
        }
    }
}

impl Files for Memory {
    fn open_input(&mut self) -> bool {
        self.broken != "open input"
    }
    fn read(&mut self, bytes: &mut [u8]) -> Option<usize> {
        match self.broken {
            "read" => return None,
            "read too much" => return Some(bytes.len() + 1),
            _ => {}
        }
        let count = bytes.len().min(self.chunk).min(self.input.len());
        for (to, from) in bytes.iter_mut().zip(self.input.drain(..count)) {
            *to = from;
        }
        Some(count)
    }
    fn create(&mut self, sink: Sink) -> bool {
        match sink {
            Sink::Output => self.broken != "create output",
            Sink::Dump => self.broken != "create dump",
        }
    }
    fn write(&mut self, sink: Sink, bytes: &[u8]) -> bool {
        if self.writes_left == 0 {
            return false;
        }
        self.writes_left -= 1;
        match sink {
            Sink::Output => self.output.extend(bytes),
            Sink::Dump => self.dump.extend(bytes),
        }
        true
    }
}

const CASES: [u8; 8] = [1, 2, 3, 10, 255, 0, 1, 1];

#[test]
fn every_case_is_run_whatever_the_reads_bring() {
    for chunk in 1..9 {
        let mut files = Memory { chunk, ..Memory::new(&CASES) };
        assert_eq!(replay(&mut Adder::default(), &mut files), Exit::Done);
        assert_eq!(files.output, [11, 12, 13, 0, 1, 2]);
        assert!(files.dump.is_empty());
    }
}

#[test]
fn an_empty_file_holds_no_case() {
    let mut files = Memory::new(&[]);
    assert_eq!(replay(&mut Adder::default(), &mut files), Exit::Done);
    assert!(files.output.is_empty());
}

#[test]
fn a_model_without_inputs_runs_once() {
    let mut files = Memory::new(&CASES);
    assert_eq!(replay(&mut Constant, &mut files), Exit::Done);
    assert_eq!(files.output, [7]);
}

#[test]
fn a_file_that_ends_within_a_case_is_an_error_after_the_whole_cases() {
    for cut in [5, 6, 7] {
        let mut files = Memory::new(&CASES[..cut]);
        assert_eq!(replay(&mut Adder::default(), &mut files), Exit::PartialCase);
        assert_eq!(files.output, [11, 12, 13]);
    }
}

#[test]
fn a_dump_holds_a_record_for_each_step_of_each_case() {
    let mut files = Memory::new(&CASES);
    assert_eq!(dump(&mut Adder::default(), &mut files), Exit::Done);
    assert_eq!(files.output, [11, 12, 13, 0, 1, 2]);
    assert_eq!(files.dump, records(&[(0, 0, &[10]), (0, 1, &[11, 12, 13]), (1, 0, &[1]), (1, 1, &[0, 1, 2])]));
}

/// Case, step and bytes of each record, as a dump file holds them.
fn records(records: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let mut file = vec![];
    for (case, step, bytes) in records {
        for number in [*case, *step, bytes.len() as u32] {
            file.extend(number.to_le_bytes());
        }
        file.extend(*bytes);
    }
    file
}

/// Five bytes, the first of which are the input of the model in them; the byte behind the input becomes the
/// input's sum, and the output.
struct Lent {
    arena: [u8; 5],
    inputs: usize,
}

struct Sum<'a>(&'a mut [u8; 5], usize);

impl Setup for Lent {
    fn arena(&mut self) -> &mut [u8] {
        &mut self.arena
    }
    fn set_up(&mut self) -> impl Replay {
        Sum(&mut self.arena, self.inputs)
    }
}

impl Replay for Sum<'_> {
    fn input_count(&self) -> usize {
        1
    }
    fn input(&mut self, _: usize) -> &mut [u8] {
        &mut self.0[..self.1]
    }
    fn output_count(&self) -> usize {
        1
    }
    fn output(&self, _: usize) -> &[u8] {
        &self.0[self.1..=self.1]
    }
    fn run(&mut self) {
        self.0[self.1] = self.0[..self.1].iter().sum();
    }
    fn run_dumping(&mut self, _: &mut dyn FnMut(u32, &[u8])) {}
}

/// A stack of which every run uses 300 bytes.
struct Always300;

impl StackUse for Always300 {
    fn used_by(&self, run: impl FnOnce()) -> Option<u32> {
        run();
        Some(300)
    }
}

#[test]
fn a_profile_tells_stack_and_arena_over_one_pattern_and_the_other() {
    let [a, b] = PATTERNS;
    let mut files = Memory::new(&[1, 2, 3, 4, 5, 6]);
    assert_eq!(profile(&mut Lent { arena: [0; 5], inputs: 2 }, &mut files, &Always300), Exit::Done);
    assert_eq!(files.output, [3, 7, 11]);
    let used = 300u32.to_le_bytes();
    let expected = records(&[
        (0, 0, &used),
        (0, 1, &[1, 2, 3, a, a]),
        (1, 0, &used),
        (1, 1, &[3, 4, 7, b, b]),
        (2, 0, &used),
        (2, 1, &[5, 6, 11, a, a]),
    ]);
    assert_eq!(files.dump, expected);
}

#[test]
fn a_profile_of_a_model_without_inputs_runs_once_with_each_pattern() {
    let [a, b] = PATTERNS;
    let mut files = Memory::new(&[]);
    assert_eq!(profile(&mut Lent { arena: [0; 5], inputs: 0 }, &mut files, &NotMeasured), Exit::Done);
    assert_eq!(files.output, [0, 0]);
    assert_eq!(files.dump, records(&[(0, 0, &[]), (0, 1, &[0, a, a, a, a]), (1, 0, &[]), (1, 1, &[0, b, b, b, b])]));
}

#[test]
fn each_failure_has_its_code() {
    let with = |broken, writes_left| Memory { broken, writes_left, ..Memory::new(&CASES) };
    let all = usize::MAX;
    for (broken, writes, expected) in [
        ("open input", all, Exit::OpenInput),
        ("create output", all, Exit::OpenOutput),
        ("read", all, Exit::ReadInput),
        ("read too much", all, Exit::ReadInput),
        ("", 0, Exit::WriteOutput),
        ("", 1, Exit::WriteOutput),
    ] {
        assert_eq!(replay(&mut Adder::default(), &mut with(broken, writes)), expected);
    }
    for (broken, writes, expected) in [
        ("create dump", all, Exit::OpenDump),
        ("", 0, Exit::WriteDump),
        ("", 7, Exit::WriteDump),
        ("", 8, Exit::WriteOutput),
    ] {
        assert_eq!(dump(&mut Adder::default(), &mut with(broken, writes)), expected);
    }
    for (broken, writes, expected) in [
        ("open input", all, Exit::OpenInput),
        ("create output", all, Exit::OpenOutput),
        ("create dump", all, Exit::OpenDump),
        ("read", all, Exit::ReadInput),
        ("", 0, Exit::WriteOutput),
        ("", 1, Exit::WriteDump),
        ("", 5, Exit::WriteDump),
    ] {
        let mut setup = Lent { arena: [0; 5], inputs: 2 };
        assert_eq!(profile(&mut setup, &mut with(broken, writes), &NotMeasured), expected);
    }
}

#[test]
fn codes_are_found_by_their_number() {
    for exit in Exit::ALL {
        assert_eq!(Exit::from_status(exit as i32), Some(exit));
        assert!(!exit.meaning().is_empty());
    }
    assert_eq!(Exit::from_status(1), None);
}
