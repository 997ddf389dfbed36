//! What firmware is made with on each kind of board: Kiln's crate for it and the linker's scripts.

use kiln_boards::{Board, MemoryKind, MemoryRegion};
use kiln_core::MAX_BANKS;

/// What a firmware crate needs beside its model. Every platform's crate offers `Replay`, `Setup`, `Exit`, `exit`,
/// `replay_and_exit`, `dump_and_exit` and `profile_and_exit`, and has start-up code that calls the symbol `main`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Platform {
    /// Kiln's crate for it.
    pub(crate) package: &'static str,
    /// That crate's directory in Kiln's source tree.
    pub(crate) directory: &'static str,
    /// Linker scripts, in order; [`MEMORY`] is the board's own.
    pub(crate) scripts: &'static [&'static str],
    /// What the board's linker script says after its regions.
    aliases: &'static str,
}

/// The name of the linker script with a board's regions.
pub(crate) const MEMORY: &str = "memory.x";

const CORTEX_M: Platform = Platform {
    package: "kiln-cortex-m",
    directory: "targets/cortex-m",
    // It takes in `memory.x` by itself.
    scripts: &["link.x"],
    aliases: "",
};

const RISCV: Platform = Platform {
    package: "kiln-riscv",
    directory: "targets/riscv",
    scripts: &[MEMORY, "link.x"],
    aliases: r#"
REGION_ALIAS("REGION_TEXT", FLASH);
REGION_ALIAS("REGION_RODATA", FLASH);
REGION_ALIAS("REGION_DATA", RAM);
REGION_ALIAS("REGION_BSS", RAM);
REGION_ALIAS("REGION_HEAP", RAM);
REGION_ALIAS("REGION_STACK", RAM);
"#,
};

const LINUX: Platform = Platform { package: "kiln-linux", directory: "targets/linux", scripts: &[], aliases: "" };

impl Platform {
    /// The platform of a board; none where there is no start-up code for it.
    pub(crate) fn of(board: &Board) -> Option<Platform> {
        let target = board.target.as_str();
        if target.starts_with("thumb") {
            Some(CORTEX_M)
        } else if target.starts_with("riscv32") && target.ends_with("-none-elf") {
            Some(RISCV)
        } else if target.contains("-linux-") {
            Some(LINUX)
        } else {
            None
        }
    }

    /// The name code calls the platform's crate by.
    pub(crate) fn krate(&self) -> String {
        self.package.replace('-', "_")
    }

    /// The linker script with a board's regions. Start-up code demands that the main ones are called FLASH
    /// and RAM.
    pub(crate) fn memory_x(&self, board: &Board) -> String {
        let mut text = format!("/* Written by Kiln for board {}. */\nMEMORY\n{{\n", board.name);
        for kind in [MemoryKind::Flash, MemoryKind::Ram] {
            let (main, access) = match kind {
                MemoryKind::Flash => ("FLASH", "rx"),
                MemoryKind::Ram => ("RAM", "rwx"),
            };
            for (i, region) in board.regions(kind).enumerate() {
                let name = if i == 0 { main } else { &region.name };
                text +=
                    &format!("  {name} ({access}) : ORIGIN = 0x{:08x}, LENGTH = 0x{:x}\n", region.start, region.bytes);
            }
        }
        text + "}\n" + self.aliases + &banks(board)
    }

    /// The firmware's build script: tells the linker its scripts.
    pub(crate) fn build_rs(&self) -> String {
        let arguments: String = self
            .scripts
            .iter()
            .map(|script| format!("    println!(\"cargo::rustc-link-arg-bins=-T{script}\");\n"))
            .collect();
        format!(
            r#"//! Written by Kiln: tells the linker where memory is.

fn main() {{
    let directory = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::rerun-if-changed={MEMORY}");
    println!("cargo::rustc-link-search={{directory}}");
{arguments}}}
"#
        )
    }
}

/// The section of a bank of RAM that is not the first.
pub(crate) fn bank_section(bank: usize) -> String {
    format!(".kiln_bank{bank}")
}

/// Sections in the regions of RAM beside the main one, for plans that are spread over several. Start-up code neither loads
/// nor clears them.
fn banks(board: &Board) -> String {
    let regions = board.regions(MemoryKind::Ram).take(MAX_BANKS).enumerate().skip(1);
    let one = |(bank, region): (usize, &MemoryRegion)| {
        let section = bank_section(bank);
        format!("  {section} (NOLOAD) : ALIGN(16) {{ *({section}); }} > {}\n", region.name)
    };
    let sections: String = regions.map(one).collect();
    if sections.is_empty() { sections } else { format!("\nSECTIONS\n{{\n{sections}}} INSERT AFTER .bss;\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_regions_get_the_names_start_up_code_wants() {
        let board = Board::builtin("mps2-an386").unwrap();
        let text = Platform::of(&board).unwrap().memory_x(&board);
        assert!(text.contains("FLASH (rx) : ORIGIN = 0x00000000, LENGTH = 0x400000"), "{text}");
        assert!(text.contains("RAM (rwx) : ORIGIN = 0x20000000, LENGTH = 0x400000"), "{text}");
    }

    #[test]
    fn boards_of_one_kind_share_a_platform() {
        for (board, package) in [
            ("microbit", "kiln-cortex-m"),
            ("mps3-an547", "kiln-cortex-m"),
            ("qemu-riscv32", "kiln-riscv"),
            ("qemu-aarch64", "kiln-linux"),
        ] {
            assert_eq!(Platform::of(&Board::builtin(board).unwrap()).unwrap().package, package);
        }
    }
}
