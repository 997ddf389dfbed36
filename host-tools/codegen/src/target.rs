//! The CPU family of a board, as plans name it.

use kiln_boards::{Board, IsaFamily};
use kiln_core::TargetId;

/// The CPU family that plans for `board` are made for.
pub fn target_of(board: &Board) -> TargetId {
    match board.isa.family {
        IsaFamily::Armv6M => TargetId::ARMV6M,
        IsaFamily::Armv7M => TargetId::ARMV7M,
        IsaFamily::Armv7eM => TargetId::ARMV7EM,
        IsaFamily::Armv8MMain => TargetId::ARMV8M,
        IsaFamily::Armv81MMain => TargetId::ARMV81M,
        IsaFamily::Rv32 => TargetId::RV32IMC,
        IsaFamily::Aarch64 => TargetId::AARCH64,
        IsaFamily::X86_64 => TargetId::X86_64,
        IsaFamily::Portable => TargetId::PORTABLE,
    }
}
