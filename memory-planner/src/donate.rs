//! Outputs outside the arena that may be written over inputs whose memory nobody needs after the run.

use kiln_ops::Op;

use crate::graph::{Entry, Graph};
use crate::lower::{Lowered, Storage};

/// An output that lies over an input, if that is given away at a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Over {
    /// Which of the entry's outputs.
    pub output: usize,
    /// Which of its inputs.
    pub input: usize,
    /// Whether threads may share the rows of the step that writes it: each reads of the input only what it writes.
    pub shared: bool,
}

/// Finds outputs that can lie over `donated` inputs (indices), and makes the steps that write them wait for everything
/// that reads what was there. First come outputs that a step computes from the input itself, element by element.
pub(crate) fn donate(graph: &Graph, entry: &Entry, lowered: &mut Lowered, donated: &[usize]) -> Vec<Over> {
    let bytes = |slot: usize| {
        let id = entry.inputs.iter().chain(&entry.outputs).nth(slot);
        id.and_then(|id| graph.value(*id).ty.bytes()).unwrap_or(0)
    };
    let inputs = entry.inputs.len();
    let mut free: Vec<usize> = donated.iter().copied().filter(|&input| input < inputs && bytes(input) > 0).collect();
    let mut over: Vec<Over> = Vec::new();
    for in_place in [true, false] {
        for writer in 0..lowered.steps.len() {
            let Storage::External(slot) = lowered.steps[writer].output else { continue };
            if over.iter().any(|o| inputs + o.output == slot) {
                continue;
            }
            let reads = |input: usize| lowered.steps[writer].inputs.contains(&Storage::External(input));
            let fits = |&input: &usize| {
                let step = &lowered.steps[writer];
                bytes(input) == bytes(slot)
                    && reads(input) == in_place
                    && (!in_place || step.in_place.contains(&input))
                    && !waits(lowered, writer, input)
            };
            let Some(at) = free.iter().position(fits) else { continue };
            let input = free.remove(at);
            let readers = readers(lowered, input).filter(|&reader| reader != writer).collect::<Vec<_>>();
            let step = &mut lowered.steps[writer];
            step.after.extend(readers);
            let each = matches!(step.op, Op::Map(_) | Op::Fused(_));
            over.push(Over { output: slot - inputs, input, shared: !in_place || each });
        }
    }
    over
}

/// The steps that read an input.
fn readers(lowered: &Lowered, input: usize) -> impl Iterator<Item = usize> + '_ {
    (0..lowered.steps.len()).filter(move |&step| lowered.steps[step].inputs.contains(&Storage::External(input)))
}

/// Whether a step that reads `input` waits for `writer`, so that the writer can't wait for it.
fn waits(lowered: &Lowered, writer: usize, input: usize) -> bool {
    let mut before = vec![Vec::new(); lowered.steps.len()];
    for (step, s) in lowered.steps.iter().enumerate() {
        let made = s.inputs.iter().filter_map(|storage| match storage {
            Storage::Buffer(b) => lowered.buffers[*b].step,
            _ => None,
        });
        before[step] = made.chain(s.after.iter().copied()).collect();
    }
    let mut open: Vec<usize> = readers(lowered, input).filter(|&reader| reader != writer).collect();
    let mut seen = vec![false; lowered.steps.len()];
    while let Some(step) = open.pop() {
        if step == writer {
            return true;
        }
        if !std::mem::replace(&mut seen[step], true) {
            open.extend(&before[step]);
        }
    }
    false
}
