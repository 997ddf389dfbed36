//! What `kiln profile` measured, as one structure that text, JSON and comparisons are made from.

mod compare;
mod flash;
pub mod json;
pub mod text;

use kiln_boards::Board;
use kiln_codegen::count::Counts;
use kiln_codegen::profile::Profile;
use kiln_planner::{Planned, PlannedEntry};

pub use compare::Comparison;
use json::{Cost, FORMAT, ProfileReport, Ram, Stack, Step};

/// The report on what was measured of `planned`'s `entry` on `board`.
pub fn report(
    model: &str,
    planned: &Planned,
    entry: &PlannedEntry,
    board: &Board,
    measured: &Profile,
) -> ProfileReport {
    let steps = entry.steps.iter().zip(&measured.run.steps).enumerate().map(|(index, (step, counted))| Step {
        index,
        op: step.op.name().to_owned(),
        name: step.name.clone(),
        kernel: step.kernel.name.to_owned(),
        cost: cost(counted.counts, step.cost.macs),
    });
    ProfileReport {
        format: FORMAT,
        model: model.to_owned(),
        board: board.name.clone(),
        target: planned.target.name().map_or(planned.target.0.to_string(), str::to_owned),
        entry: entry.name.clone(),
        total: cost(measured.run.counts, entry.steps.iter().map(|step| step.cost.macs).sum()),
        executor: cost(measured.run.executor(), 0),
        steps: steps.collect(),
        stack: Stack { computed: measured.stack_bound, painted: measured.stack },
        ram: Ram {
            arena: planned.arena_bytes,
            arena_touched: measured.arena.bytes,
            arena_end: measured.arena.end,
            state: planned.state_bytes,
            total: measured.elf.sizes().ram(),
        },
        flash: flash::flash(planned, entry, measured),
    }
}

fn cost(counts: Counts, macs: u64) -> Cost {
    let Counts { instructions, loads, stores } = counts;
    let ratio = (macs > 0).then(|| (instructions as f64 / macs as f64 * 100.0).round() / 100.0);
    Cost { instructions, loads, stores, macs, instructions_per_mac: ratio }
}
