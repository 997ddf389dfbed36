//! Parameters that no planner makes: what a check accepts stays inside the windows.

use kiln_core::{Call, Direction, Row, RowRange, Window};
use kiln_kernels::table::KERNELS;

use crate::generate::case;
use crate::support::{Guarded, Random, Words, scratch};

const TRIES: u64 = if cfg!(miri) { 10 } else { 20_000 };

/// Runs `row` if its check lets it; guards and inputs must stay as they are.
fn attempt(row: &Row, sources: &[Vec<u8>], output: &[u8], sizes: &[usize], parameters: &[u8], rows: RowRange) -> bool {
    let mut inputs: Vec<Guarded> = sources.iter().map(|s| Guarded::new(s, 0)).collect();
    let mut to = Guarded::new(output, 0);
    let windows: Vec<Window> = inputs.iter_mut().map(Guarded::window).collect();
    let outputs = [to.window()];
    let mut own = scratch(sizes);
    let windows_of_scratch: Vec<Window> = own.iter_mut().map(Guarded::window).collect();
    let mut call = Call::new(&windows, &outputs, &windows_of_scratch, parameters, rows);
    if !row.check(&call) {
        return false;
    }
    for direction in [Direction::Up, Direction::Down] {
        call.direction = direction;
        // SAFETY: the check answered true, and does not depend on the direction.
        unsafe { row.run(&call) };
    }
    to.bytes();
    for guarded in &own {
        guarded.bytes();
    }
    for (input, source) in inputs.iter().zip(sources) {
        assert!(input.bytes() == source, "row {} wrote to an input", row.number());
    }
    true
}

fn word(random: &mut Random) -> u32 {
    match random.range(0, 6) {
        0 => random.word(),
        1 => random.pick(&[0, 1, u32::MAX, i32::MAX as u32, 1 << 31, 1 << 16, u32::MAX - 1]),
        _ => random.size(0, 9),
    }
}

#[test]
fn random_parameters() {
    for kernel in KERNELS {
        let mut random = Random::new(kernel.number as u64);
        let prepared = case(kernel.number, &mut random).prepare(kernel);
        let words = prepared.parameters.0.len();
        for _ in 0..TRIES {
            let sources: Vec<Vec<u8>> =
                (0..random.range(0, 3)).map(|_| vec![0x42; random.size(0, 16) as usize * 4]).collect();
            let output = vec![0; random.size(0, 16) as usize * 4];
            let parameters = Words((0..words).map(|_| word(&mut random)).collect());
            let rows = RowRange { begin: word(&mut random), end: word(&mut random) };
            attempt(&kernel.portable, &sources, &output, &prepared.scratch, parameters.bytes(), rows);
        }
    }
}

/// Valid calls with one or two words changed, or a window cut short: near enough to valid that many
/// pass the check.
#[test]
fn mutated_parameters() {
    for kernel in KERNELS {
        let (mut passed, mut refused) = (0u64, 0u64);
        for seed in 0..TRIES {
            let mut random = Random::new(seed);
            let case = case(kernel.number, &mut random);
            let prepared = case.prepare(kernel);
            let mut sources = case.sources(&prepared);
            let mut output = vec![0; case.output.bytes()];
            let mut parameters = prepared.parameters.clone();
            let mut rows = RowRange { begin: 0, end: prepared.rows };
            for _ in 0..random.range(0, 2) {
                let i = random.size(0, parameters.0.len() as u32 - 1) as usize;
                parameters.0[i] = match random.range(0, 3) {
                    0 => word(&mut random),
                    1 => parameters.0[i].wrapping_add(1),
                    2 => parameters.0[i].wrapping_sub(1),
                    _ => parameters.0[i].wrapping_mul(2),
                };
            }
            match random.range(0, 5) {
                0 => rows.end = word(&mut random),
                1 => rows.end += 1,
                2 => {
                    output.pop();
                }
                3 => {
                    let i = random.size(0, sources.len() as u32 - 1) as usize;
                    sources[i].pop();
                }
                _ => {}
            }
            let ran = attempt(&kernel.portable, &sources, &output, &prepared.scratch, parameters.bytes(), rows);
            *if ran { &mut passed } else { &mut refused } += 1;
        }
        println!("{}: {passed} ran, {refused} were refused", kernel.name);
        let both = passed > TRIES / 20 && refused > TRIES / 20;
        assert!(cfg!(miri) || both, "{}: {passed} ran, {refused} refused", kernel.name);
    }
}

/// A window one byte short is refused, and so are line buffers until they exist.
#[test]
fn every_window_is_checked() {
    for kernel in KERNELS {
        for seed in 0..if cfg!(miri) { 1 } else { 50 } {
            let case = case(kernel.number, &mut Random::new(seed));
            let prepared = case.prepare(kernel);
            let sources = case.sources(&prepared);
            let output = vec![0; case.output.bytes()];
            let rows = RowRange { begin: 0, end: prepared.rows };
            let words = &prepared.parameters;
            let (row, scratch) = (&kernel.portable, &prepared.scratch);
            assert!(attempt(row, &sources, &output, scratch, words.bytes(), rows));
            assert!(!attempt(row, &sources, &output[1..], scratch, words.bytes(), rows), "{}", kernel.name);
            // A slice need not read its input to the end.
            let whole = if kernel.number == 46 { 0 } else { sources.len() };
            for i in 0..whole {
                let mut short = sources.clone();
                short[i].pop();
                assert!(!attempt(row, &short, &output, scratch, words.bytes(), rows), "{} window {i}", kernel.name);
            }
            for i in 0..scratch.len() {
                let mut short = scratch.clone();
                short[i] -= 1;
                assert!(!attempt(row, &sources, &output, &short, words.bytes(), rows), "{} scratch {i}", kernel.name);
            }
            let more = RowRange { begin: 0, end: prepared.rows + 1 };
            assert!(!attempt(row, &sources, &output, scratch, words.bytes(), more), "{}", kernel.name);
            assert!(!attempt(row, &sources, &output, scratch, &words.bytes()[4..], rows), "{}", kernel.name);
            if let 1 | 2 | 4 | 5 | 32 | 33 | 35 | 36 | 51..=57 | 98..=100 = kernel.number {
                // Line buffers; and pitches of 0, over which loops could run for ever.
                for (word, value) in [(20, 3), (3, 0), (4, 0), (5, 0), (9, 0), (10, 0), (11, 0)] {
                    let mut changed = words.clone();
                    changed.0[word] = value;
                    let ran = attempt(row, &sources, &output, scratch, changed.bytes(), rows);
                    assert!(!ran, "{} with word {word} = {value}", kernel.name);
                }
            }
        }
    }
}
