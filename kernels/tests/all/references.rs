//! Operators' references as rows: the same bytes as the reference itself, from any operation a row is made for.

use kiln_core::{Call, DType, Direction, RowRange, Window};
use kiln_kernels::table::{KERNELS, Kernel, REFERENCES, reference};
use kiln_ops::Op;

use crate::generate::{SHAPES, case};
use crate::support::{Case, Guarded, Job, Random, Words};

/// A case of every kernel's generator that has a reference, for some seeds.
fn each(seeds: u64, mut f: impl FnMut(&'static Kernel, &Case, u64)) {
    for kernel in KERNELS {
        for seed in 0..seeds {
            let case = case(kernel.number, &mut Random::new(seed));
            if let Some(reference) = case.operation(reference) {
                f(reference, &case, seed);
            }
        }
    }
}

#[test]
fn every_operator_has_one() {
    let views = ["reshape"];
    for (code, name) in Op::ALL.iter().filter(|(_, name)| !views.contains(name)) {
        let found = REFERENCES.iter().find(|k| k.number == 0x8000 + code);
        let found = found.unwrap_or_else(|| panic!("{name} has no row in kernels/src/reference.rs: add one"));
        assert_eq!(found.name, format!("reference: {name}"));
        assert_eq!(found.row_name, format!("reference::{}", name.to_uppercase()));
    }
    assert_eq!(REFERENCES.len() + views.len(), Op::ALL.len());
}

#[test]
fn rows_compute_what_references_do() {
    let mut seen = std::collections::BTreeSet::new();
    each(SHAPES / 10 + 1, |kernel, case, seed| {
        seen.insert(kernel.number);
        let prepared = case.prepare(kernel);
        assert_eq!(prepared.rows, 1);
        let job = Job::new(kernel, &kernel.portable, case, &prepared, Direction::Up);
        let got = job.run(&[(0, 1)], &mut Random::new(seed));
        assert!(got == case.reference(), "{} differs for seed {seed}: {case:?}", kernel.name);
    });
    let missing: Vec<_> = REFERENCES.iter().filter(|k| !seen.contains(&k.number)).map(|k| k.name).collect();
    assert!(cfg!(miri) || missing.is_empty(), "no case for {missing:?}");
}

/// Runs a reference if its check lets it; guards and inputs must stay as they are.
fn attempt(kernel: &Kernel, sources: &[Vec<u8>], output: usize, parameters: &[u8], rows: u32) -> bool {
    let mut inputs: Vec<Guarded> = sources.iter().map(|s| Guarded::new(s, 0)).collect();
    let mut to = Guarded::new(&vec![0; output], 0);
    let windows: Vec<Window> = inputs.iter_mut().map(Guarded::window).collect();
    let outputs = [to.window()];
    let call = Call::new(&windows, &outputs, &[], parameters, RowRange { begin: 0, end: rows });
    let accepted = kernel.portable.check(&call);
    if accepted {
        // SAFETY: checked.
        unsafe { kernel.portable.run(&call) };
    }
    to.bytes();
    assert!(inputs.iter().zip(sources).all(|(i, s)| i.bytes() == s), "{} wrote to an input", kernel.name);
    accepted
}

#[test]
fn checks_refuse_what_does_not_fit() {
    let (mut ran, mut refused) = (0, 0);
    each(if cfg!(miri) { 1 } else { 40 }, |kernel, case, seed| {
        let prepared = case.prepare(kernel);
        let (sources, output) = (case.sources(&prepared), case.output.bytes());
        let parameters = prepared.parameters.bytes();
        assert!(attempt(kernel, &sources, output, parameters, 1));
        assert!(!attempt(kernel, &sources, output, parameters, 2));
        assert!(!attempt(kernel, &sources, output - 1, parameters, 1), "{}", kernel.name);
        for i in 0..sources.len() {
            let mut short = sources.clone();
            short[i].pop();
            assert!(!attempt(kernel, &short, output, parameters, 1), "{} window {i}", kernel.name);
        }
        assert!(!attempt(kernel, &sources, output, &parameters[4..], 1), "{}", kernel.name);
        let mut random = Random::new(seed);
        for _ in 0..20 {
            let mut words = Words(prepared.parameters.0.clone());
            let at = random.size(0, words.0.len() as u32 - 1) as usize;
            words.0[at] = if random.one_in(2) { random.size(0, 9) } else { random.word() };
            let accepted = attempt(kernel, &sources, output, words.bytes(), 1);
            *if accepted { &mut ran } else { &mut refused } += 1;
        }
    });
    println!("{ran} ran, {refused} were refused");
    assert!(cfg!(miri) || ran > 100 && refused > 100);
}

/// References work on slices, so a plan whose output lies in an input must not get as far.
#[test]
fn an_output_within_an_input_is_refused() {
    each(2, |kernel, case, _| {
        let prepared = case.prepare(kernel);
        let sources = case.sources(&prepared);
        let mut inputs: Vec<Guarded> = sources.iter().map(|s| Guarded::new(s, 0)).collect();
        let mut windows: Vec<Window> = inputs.iter_mut().map(Guarded::window).collect();
        let bytes = case.output.bytes();
        let mut shared = Guarded::new(&vec![0; bytes + sources[0].len()], 0);
        windows[0] = Window { ptr: shared.window().ptr, len: sources[0].len() };
        for (from, fine) in [(sources[0].len() - 1, false), (sources[0].len(), true), (0, false)] {
            let outputs = [Window { ptr: windows[0].ptr.wrapping_add(from), len: bytes }];
            let rows = RowRange { begin: 0, end: 1 };
            let call = Call::new(&windows, &outputs, &[], prepared.parameters.bytes(), rows);
            assert_eq!(kernel.portable.check(&call), fine, "{} from byte {from}", kernel.name);
        }
    });
}

/// What no kernel is made for: float64, and quantized arithmetic only where the reference means it.
#[test]
fn references_do_not_apply_to() {
    let base = crate::generate::conv2d(DType::I8, &mut Random::new(3));
    let applies = |case: &Case| case.operation(|o| reference(o).is_some());
    assert!(applies(&base));
    let mut case = base.clone();
    case.inputs[1].constant = false;
    assert!(applies(&case));
    let mut case = base.clone();
    case.inputs[1].zero_points[0] = 1;
    assert!(!applies(&case));
    let mut case = base.clone();
    case.output.scales.clear();
    assert!(!applies(&case));
    let mut case = base.clone();
    case.output.ty = case.inputs[0].ty;
    assert!(!applies(&case));
    let mut case = crate::generate::case(7, &mut Random::new(3));
    case.output.scales[0] = 0.5;
    assert!(!applies(&case));
}
