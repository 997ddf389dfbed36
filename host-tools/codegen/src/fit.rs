//! What a plan needs of a board's memory, and whether the board has it.

use kiln_boards::{Board, MemoryKind, MemoryRegion};
use kiln_kernels::code::code_bytes;
use kiln_planner::Planned;

/// Bytes that firmware with a plan takes of a board's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// RAM: state and arena.
    pub ram: u64,
    /// Code, as estimated before anything is built; `None` where no code was measured for the CPU family.
    pub code: Option<u64>,
    /// Flash: records, constants and code. Without the code where that is not known.
    pub flash: u64,
}

impl Needs {
    /// What `planned` needs.
    pub fn of(planned: &Planned) -> Needs {
        let kernels: Vec<u16> = planned.kernels.iter().map(|kernel| kernel.number).collect();
        let code = code_bytes(planned.target, &kernels);
        Needs { ram: planned.ram_bytes, code, flash: planned.image_bytes() + code.unwrap_or(0) }
    }
}

/// The region a plan uses: the board's first of its kind. One bank of RAM holds state and arena, and firmware keeps its
/// constants with its code.
pub fn main_region(board: &Board, kind: MemoryKind) -> Option<&MemoryRegion> {
    board.regions(kind).next()
}

/// What a board has too little of for a plan, a sentence each; empty when it fits.
pub fn shortages(planned: &Planned, board: &Board) -> Vec<String> {
    let Needs { ram, flash, .. } = Needs::of(planned);
    let needs = [("RAM", MemoryKind::Ram, ram), ("flash", MemoryKind::Flash, flash)];
    let short = needs.into_iter().filter_map(|(what, kind, needed)| {
        let region = main_region(board, kind).filter(|region| needed > region.bytes)?;
        Some(format!(
            "{what} region {}: {needed} bytes needed, {} available, {} too few",
            region.name,
            region.bytes,
            needed - region.bytes
        ))
    });
    short.collect()
}
