//! How firmware gets onto real boards: the commands, and the tools they take.

use std::path::Path;

use kiln_boards::{Board, Run};

/// The steps that put firmware on a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Commands for a shell, and sentences where something is done by hand, in order.
    pub steps: Vec<String>,
    /// The programs the commands need.
    pub tools: Vec<Tool>,
}

/// A program of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub program: &'static str,
    /// How to get it.
    pub install: &'static str,
}

const PROBE_RS: Tool =
    Tool { program: "probe-rs", install: "`cargo install probe-rs-tools --locked`, or https://probe.rs" };
const PICOTOOL: Tool = Tool {
    program: "picotool",
    install: "Debian and Ubuntu: `apt-get install picotool`, macOS: `brew install picotool`, or \
              https://github.com/raspberrypi/picotool",
};
const ESPFLASH: Tool = Tool { program: "espflash", install: "`cargo install espflash --locked`" };
const OBJCOPY: Tool = Tool {
    program: "rust-objcopy",
    install: "`cargo install cargo-binutils --locked` and `rustup component add llvm-tools`",
};
const BOSSAC: Tool = Tool {
    program: "bossac",
    install: "Debian and Ubuntu: `apt-get install bossa-cli`, or Arduino's own with its IDE",
};
const SCP: Tool = Tool { program: "scp", install: "Debian and Ubuntu: `apt-get install openssh-client`" };

impl Tool {
    /// Whether it is in PATH.
    pub fn installed(&self) -> bool {
        which::which(self.program).is_ok()
    }
}

/// The steps that put the ELF file `firmware` on `board`; none for a board that is not real.
pub fn recipe(board: &Board, firmware: &Path) -> Option<Recipe> {
    let elf = firmware.display();
    let with = |extension: &str| firmware.with_extension(extension).display().to_string();
    let (steps, tools) = match &board.run {
        Run::Host {} | Run::Qemu { .. } | Run::QemuUser { .. } => return None,
        Run::ProbeRs { chip } => (vec![format!("probe-rs run --chip {chip} {elf}")], vec![PROBE_RS]),
        Run::Uf2 { family } => {
            let uf2 = with("uf2");
            let convert = format!("picotool uf2 convert {elf} {uf2} --family {family}");
            let copy = format!("hold BOOTSEL while plugging the board in, and copy {uf2} to the drive that appears");
            (vec![convert, copy], vec![PICOTOOL])
        }
        Run::Espflash { chip } => (vec![format!("espflash flash --chip {chip} {elf}")], vec![ESPFLASH]),
        Run::Bossac {} => {
            let bin = with("bin");
            let convert = format!("rust-objcopy -O binary {elf} {bin}");
            let press = "press the reset button twice, which starts the boot loader".to_owned();
            (vec![convert, press, format!("bossac --port=PORT -U -i -e -w {bin} -R")], vec![OBJCOPY, BOSSAC])
        }
        Run::Linux {} => (vec![format!("scp {elf} USER@{}:", board.name)], vec![SCP]),
    };
    Some(Recipe { steps, tools })
}

#[cfg(test)]
mod tests {
    use kiln_boards::Place;

    use super::*;

    #[test]
    fn every_real_board_has_a_recipe_that_names_its_chip_and_its_tools() {
        for board in Board::all().unwrap() {
            let found = recipe(&board, Path::new("out/fw.elf"));
            assert_eq!(found.is_some(), board.run.place() == Place::Real, "{}", board.name);
            let Some(Recipe { steps, tools }) = found else { continue };
            let text = steps.join("\n");
            for tool in tools {
                assert!(text.contains(tool.program) && !tool.install.is_empty(), "{text}");
            }
            assert!(text.contains("out/fw.elf"), "{text}");
        }
        let steps = |name: &str| recipe(&Board::builtin(name).unwrap(), Path::new("fw.elf")).unwrap().steps.concat();
        assert!(steps("nucleo-l4r5zi").contains("--chip STM32L4R5ZITx fw.elf"));
        assert!(steps("raspberry-pi-pico").contains("fw.elf fw.uf2 --family 0xe48bff56"));
    }
}
