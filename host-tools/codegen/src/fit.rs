//! What a plan needs of a board's memory, and whether the board has it.

use kiln_boards::{Board, MemoryKind, MemoryRegion};
use kiln_core::MAX_BANKS;
use kiln_kernels::code::code_bytes;
use kiln_planner::{Options, Planned, Room};

use crate::target_of;

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

/// Of the first region of RAM at most so much is left, where a plan is spread over several or made to fit: stack and the firmware's
/// own data lie there too.
const LEFT: u64 = 4096;

/// Bytes of the first region of RAM that a plan may take which is made to fit.
pub fn free(region: &MemoryRegion) -> u64 {
    region.bytes - LEFT.min(region.bytes / 4)
}

/// The options for a plan that may be spread over the board's regions of RAM, where the first does not hold it.
pub fn options_for(board: &Board) -> Options {
    let mut rooms = [Room::default(); MAX_BANKS];
    if board.regions(MemoryKind::Ram).count() < 2 {
        return Options::for_target(target_of(board));
    }
    for (number, (room, region)) in rooms.iter_mut().zip(board.regions(MemoryKind::Ram)).enumerate() {
        let free = if number == 0 { free(region) } else { region.bytes };
        *room = Room { bytes: region.bytes, free, fast: region.fast };
    }
    Options { rooms, ..Options::for_target(target_of(board)) }
}

/// Whether a plan is spread over several regions of RAM.
pub fn is_spread(planned: &Planned) -> bool {
    planned.banks.len() > 1 && !planned.shared_arena
}

/// The regions of RAM that a plan uses, each with the bytes it takes there.
pub fn ram_regions<'b>(planned: &Planned, board: &'b Board) -> Vec<(&'b MemoryRegion, u64)> {
    let sizes = if is_spread(planned) { planned.banks.clone() } else { vec![planned.ram_bytes] };
    board.regions(MemoryKind::Ram).zip(sizes).collect()
}

/// The region a plan uses: the board's first of its kind. One bank of RAM holds state and arena, unless it
/// [is spread](is_spread), and firmware keeps its constants with its code.
pub fn main_region(board: &Board, kind: MemoryKind) -> Option<&MemoryRegion> {
    board.regions(kind).next()
}

/// What a board has too little of for a plan, a sentence each; empty when it fits.
pub fn shortages(planned: &Planned, board: &Board) -> Vec<String> {
    let ram = ram_regions(planned, board).into_iter().map(|(region, needed)| ("RAM", region, needed));
    let flash = main_region(board, MemoryKind::Flash).map(|region| ("flash", region, Needs::of(planned).flash));
    let short = ram.chain(flash).filter(|(_, region, needed)| *needed > region.bytes).map(|(what, region, needed)| {
        format!(
            "{what} region {}: {needed} bytes needed, {} available, {} too few",
            region.name,
            region.bytes,
            needed - region.bytes
        )
    });
    short.collect()
}
