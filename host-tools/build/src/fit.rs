//! Whether a plan fits a board.

use kiln_boards::{Board, MemoryKind, MemoryRegion};
use kiln_planner::Planned;

/// The region a plan uses: the board's first of its kind. One bank of RAM holds state and arena, and firmware keeps its
/// constants with its code.
pub fn main_region(board: &Board, kind: MemoryKind) -> Option<&MemoryRegion> {
    board.regions(kind).next()
}

/// What a board has too little of for a plan, a sentence each; empty when it fits. Code comes on top.
pub fn shortages(planned: &Planned, board: &Board) -> Vec<String> {
    let needs = [("RAM", MemoryKind::Ram, planned.ram_bytes), ("flash", MemoryKind::Flash, planned.bytes.len() as u64)];
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
