//! Reports: what a plan needs on a board, as one structure that text and JSON are made from.

pub mod json;
pub mod map;
mod operands;
#[cfg(test)]
mod sample;
pub mod svg;
pub mod table;
pub mod text;
mod time;

use std::collections::HashMap;

use kiln_boards::{Board, MemoryKind, MemoryRegion};
use kiln_codegen::fit::{Needs, is_spread, main_region, ram_regions};
use kiln_kernels::instructions::step_instructions;
use kiln_planner::{Planned, PlannedEntry, PlannedTensor};
use kiln_target_host::RunError;

use crate::CliError;
use json::{Again, Bank, Fed, Flash, Kind, Peak, PlanReport, Ram, Region, Removed, Short, Step, Tensor};
use operands::Operands;

/// The report on `planned`, from whose graph cleaning took `removed`, for `board`, whose RAM counts as at most `ram`
/// bytes.
///
/// # Errors
///
/// The planner's own records do not load or have no entry, which is a defect of the planner.
pub fn report(
    model: &str,
    planned: &Planned,
    removed: kiln_passes::Removed,
    board: &Board,
    ram: Option<u64>,
) -> Result<PlanReport, CliError> {
    let broken = |what: String| CliError::BadInput(format!("{model}: the planner's records {what}; report this"));
    let entry = planned.main_entry().ok_or_else(|| broken("have no entry".into()))?;
    let operands =
        Operands::read(planned, entry).map_err(|error| broken(format!("do not load: {}", RunError::Plan(error))))?;
    let names = unique_names(&entry.tensors);
    let name = |tensor: Option<usize>| tensor.and_then(|t| names.get(t)).cloned().unwrap_or_default();
    let steps = entry.steps.iter().zip(&operands.steps).enumerate().map(|(index, (step, windows))| Step {
        index,
        op: step.op.name(),
        name: step.name.clone(),
        kernel: step.kernel.name,
        macs: step.cost.macs,
        instructions: step_instructions(planned.target, step.kernel.number, &step.workload).map(|n| n.round() as u64),
        inputs: windows.inputs.iter().map(|&t| name(t)).collect(),
        outputs: windows.outputs.iter().map(|&t| name(t)).collect(),
        scratch: step.scratch,
    });
    let tensors = entry.tensors.iter().zip(&names).enumerate();
    let tensors =
        tensors.map(|(index, (tensor, name))| tensor_row(tensor, name, operands.kind(index), planned.arena_base));
    let needs = Needs::of(planned);
    let (ram_region, flash_region) = (main_region(board, MemoryKind::Ram), main_region(board, MemoryKind::Flash));
    let banks = banks(planned, board);
    let ram_bytes = match &banks[..] {
        [] => ram_region.map(|r| r.bytes),
        several => Some(several.iter().map(|bank| bank.limit).sum()),
    };
    let ram_name = match &banks[..] {
        [] => ram_region.map(|r| r.name.clone()),
        several => Some(several.iter().map(|bank| bank.region.as_str()).collect::<Vec<_>>().join(" + ")),
    };
    let mut report = PlanReport {
        format: json::FORMAT,
        model: model.to_owned(),
        board: board.name.clone(),
        target: planned.target.name().map_or(planned.target.0.to_string(), str::to_owned),
        entry: entry.name.clone(),
        fits: true,
        ram: Ram {
            arena: planned.arena_bytes,
            lower_bound: planned.entries.iter().map(|e| e.lower_bound).max().unwrap_or(0),
            state: planned.state_bytes,
            io: operands.io,
            total: needs.ram,
            limit: ram_bytes.into_iter().chain(ram).min(),
            region: ram_name,
            least: None,
            shared_arena: planned.shared_arena,
            banks,
        },
        flash: Flash {
            constants: planned.constants_bytes,
            plan: planned.records_bytes(),
            code: needs.code,
            total: needs.flash,
            limit: flash_region.map(|r| r.bytes),
            region: flash_region.map(|r| r.name.clone()),
        },
        removed: Removed { macs: removed.macs, constant_bytes: removed.constant_bytes },
        time: time::time(planned, entry, board),
        // The arena is the largest entry's: where that one can't be less, neither can the whole.
        optimal: planned.entries.iter().any(|e| e.arena == planned.arena_bytes && e.optimal),
        peak: (!entry.steps.is_empty()).then(|| peak(entry, &names)),
        short: Vec::new(),
        again: planned.entries.iter().filter_map(again).collect(),
        patches: None,
        fed: entry.fed.map(|(_, bytes)| Fed { input: 0, most: bytes }),
        steps: steps.collect(),
        tensors: tensors.collect(),
    };
    report.short = shortages(&report);
    report.fits = report.short.is_empty();
    Ok(report)
}

/// The regions a plan is spread over; empty where it is in one.
fn banks(planned: &Planned, board: &Board) -> Vec<Bank> {
    let regions = if is_spread(planned) { ram_regions(planned, board) } else { Vec::new() };
    let (_, state) = planned.arena_base;
    let bank = |(number, (region, total)): (usize, (&MemoryRegion, u64))| Bank {
        region: region.name.clone(),
        arena: if number == 0 { total.saturating_sub(state) } else { total },
        total,
        limit: region.bytes,
    };
    regions.into_iter().enumerate().map(bank).collect()
}

/// What an entry computes again.
fn again(entry: &PlannedEntry) -> Option<Again> {
    let again = Some(entry.again).filter(|again| again.steps > 0)?;
    Some(Again { entry: entry.name.clone(), steps: again.steps, macs: again.macs, saved: again.saved })
}

fn shortages(report: &PlanReport) -> Vec<Short> {
    let (ram, flash) = (&report.ram, &report.flash);
    let both = [("ram", ram.total, ram.limit, &ram.region), ("flash", flash.total, flash.limit, &flash.region)];
    let short = both.into_iter().filter_map(|(memory, needed, limit, region)| {
        let limit = limit.filter(|&limit| needed > limit)?;
        Some(Short { memory, region: region.clone(), needed, limit })
    });
    short.collect()
}

fn tensor_row(tensor: &PlannedTensor, name: &str, kind: Kind, arena_base: (u8, u64)) -> Tensor {
    use kiln_planner::Region as Planned;
    let (region, offset) = match tensor.region {
        Planned::Arena | Planned::Scratch if tensor.bank != arena_base.0 => (Region::Arena, tensor.offset),
        Planned::Arena | Planned::Scratch => (Region::Arena, tensor.offset.saturating_sub(arena_base.1)),
        Planned::State => (Region::State, tensor.offset),
        Planned::Constants => (Region::Constants, tensor.offset),
    };
    Tensor {
        name: name.to_owned(),
        kind,
        region,
        // What is in one bank, beside the state or not, says no bank.
        bank: if region == Region::Arena { tensor.bank.saturating_sub(arena_base.0) } else { 0 },
        offset,
        bytes: tensor.bytes,
        first_step: tensor.first_step,
        last_step: tensor.last_step,
        dtype: tensor.ty.map(|ty| ty.dtype.name()),
        shape: tensor.ty.map(|ty| ty.shape.dims().to_vec()),
    }
}

/// The fullest step. Its tensors are found again by what the planner says of them, since only
/// names made unique here tell two of the same name apart.
fn peak(entry: &PlannedEntry, names: &[String]) -> Peak {
    use kiln_planner::Region as Planned;
    let (step, _) = entry.peak();
    let alive = entry.tensors.iter().zip(names).filter(|(t, _)| {
        matches!(t.region, Planned::Arena | Planned::Scratch) && (t.first_step..=t.last_step).contains(&step)
    });
    let mut alive: Vec<(u64, &String)> = alive.map(|(t, name)| (t.bytes, name)).collect();
    alive.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    Peak { step, tensors: alive.into_iter().map(|(_, name)| name.clone()).collect() }
}

/// The tensors' names; one that comes again gets a number.
fn unique_names(tensors: &[PlannedTensor]) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut names = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let mut name = tensor.name.clone();
        while let Some(times) = seen.get_mut(&name) {
            *times += 1;
            name = format!("{} #{times}", tensor.name);
        }
        seen.insert(name.clone(), 1);
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_unique() {
        let tensor = |name: &str| PlannedTensor {
            name: name.into(),
            value: None,
            ty: None,
            region: kiln_planner::Region::Arena,
            bank: 0,
            offset: 0,
            bytes: 1,
            first_step: 0,
            last_step: 0,
        };
        let names = unique_names(&["a", "b", "a", "a #2", "a"].map(tensor));
        assert_eq!(names, ["a", "b", "a #2", "a #2 #2", "a #3"]);
    }
}
