//! Two measurements of one model on one board.

use super::json::{ProfileReport, Step};
use crate::report::table::thousands;

/// A number before and now; `None` where there was none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Delta {
    pub(super) old: Option<u64>,
    pub(super) new: Option<u64>,
}

/// A step's instructions before and now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StepDelta {
    /// Its position now; `None` for a step that is gone.
    pub(super) index: Option<usize>,
    pub(super) op: String,
    pub(super) name: String,
    pub(super) instructions: Delta,
}

/// An earlier report and a new one.
pub struct Comparison<'a> {
    /// The earlier one.
    pub old: &'a ProfileReport,
    /// The new one.
    pub new: &'a ProfileReport,
}

impl<'a> Comparison<'a> {
    /// Compares `new` with `old`.
    pub fn new(old: &'a ProfileReport, new: &'a ProfileReport) -> Comparison<'a> {
        Comparison { old, new }
    }

    /// The steps as they are now, each beside the one that had its operator and name, then those that are gone.
    pub(super) fn steps(&self) -> Vec<StepDelta> {
        let mut left: Vec<&Step> = self.old.steps.iter().collect();
        let mut steps = Vec::new();
        for step in &self.new.steps {
            let same = left.iter().position(|old| (&old.op, &old.name) == (&step.op, &step.name));
            let old = same.map(|at| left.remove(at).cost.instructions);
            steps.push(delta(Some(step.index), step, Delta { old, new: Some(step.cost.instructions) }));
        }
        let gone = left.into_iter();
        steps.extend(gone.map(|step| delta(None, step, Delta { old: Some(step.cost.instructions), new: None })));
        steps
    }

    /// What there is one number of.
    pub(super) fn totals(&self) -> Vec<(&'static str, Delta)> {
        let both = |number: fn(&ProfileReport) -> Option<u64>| Delta { old: number(self.old), new: number(self.new) };
        vec![
            ("instructions", both(|r| Some(r.total.instructions))),
            ("of the executor", both(|r| Some(r.executor.instructions))),
            ("loads", both(|r| Some(r.total.loads))),
            ("stores", both(|r| Some(r.total.stores))),
            (CODE, both(|r| Some(r.flash.code))),
            ("bytes of flash", both(|r| Some(r.flash.total))),
            (STACK, both(|r| r.stack.painted)),
            (ARENA, both(|r| Some(r.ram.arena))),
            (RAM, both(|r| Some(r.ram.total))),
        ]
    }

    /// What must not grow and did, in words: "instructions 10 -> 12".
    pub fn grown(&self) -> Vec<String> {
        let guarded = |what: &str| ["instructions", CODE, STACK, ARENA, RAM].contains(&what);
        let grown = self.totals().into_iter().filter_map(|(what, delta)| {
            let (old, new) = (delta.old?, delta.new?);
            (guarded(what) && new > old).then(|| format!("{what} {} -> {}", thousands(old), thousands(new)))
        });
        grown.collect()
    }
}

const CODE: &str = "bytes of code";
const STACK: &str = "bytes of stack, painted";
const ARENA: &str = "bytes of arena";
const RAM: &str = "bytes of RAM without stack";

fn delta(index: Option<usize>, step: &Step, instructions: Delta) -> StepDelta {
    StepDelta { index, op: step.op.clone(), name: step.name.clone(), instructions }
}
