//! How many instructions a run takes, before anything is built.
//!
//! Each kernel's instructions are taken to be a sum of its [`Workload`]'s quantities, each times what one of them was
//! measured to cost on a CPU family. `kiln-ci instructions --measure` counts layers of many shapes under emulation, fits
//! the figures and writes them; `kiln-ci instructions` holds the estimate against models, which are not among the layers.

use kiln_core::TargetId;

use crate::instruction_figures::FAMILIES;
use crate::workload::{QUANTITIES, Workload};

/// The figures of one CPU family.
pub struct Family {
    /// The family.
    pub target: TargetId,
    /// Instructions of the executor in a run.
    pub run: f64,
    /// Instructions of the executor for each step.
    pub step: f64,
    /// The kernels.
    pub rows: &'static [RowInstructions],
}

/// The figures of one kernel.
pub struct RowInstructions {
    /// The kernel's number.
    pub number: u16,
    /// Instructions for each of its workload's [quantities](Workload::quantities).
    pub each: [f64; QUANTITIES],
}

/// Instructions that the kernel `number` takes for `workload` on `target`, without the executor's. `None` where that
/// was not measured, which is for families that firmware is not built for, and for kernels newer than the figures.
pub fn step_instructions(target: TargetId, number: u16, workload: &Workload) -> Option<f64> {
    let row = family(target)?.rows.iter().find(|row| row.number == number)?;
    Some(row.each.iter().zip(workload.quantities()).map(|(each, quantity)| each * quantity).sum())
}

/// Instructions of a run with these steps, each a kernel's number and its workload. `None` as for
/// [`step_instructions`]: where one step is not known, neither is the sum.
pub fn instructions<'w>(target: TargetId, steps: impl IntoIterator<Item = (u16, &'w Workload)>) -> Option<f64> {
    let family = family(target)?;
    let one = |(number, workload): (u16, &Workload)| Some(family.step + step_instructions(target, number, workload)?);
    Some(family.run + steps.into_iter().map(one).sum::<Option<f64>>()?)
}

/// The figures of a CPU family.
pub fn family(target: TargetId) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.target == target)
}
