//! How firmware gets onto real boards: the steps, the tools they take, and doing them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs, io};

use kiln_boards::{Board, Run};

use crate::drive;
use crate::image::segments;
use crate::symbols::SymbolsError;
use crate::uf2::{self, Uf2Error};

/// The steps that put firmware on a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// The programs the commands need.
    pub tools: Vec<Tool>,
}

/// A step of a recipe. Its text is a command for a shell, or a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A program is run with these arguments.
    Command(&'static str, Vec<String>),
    /// Kiln makes a UF2 file of the ELF file.
    Uf2 {
        /// The firmware.
        elf: PathBuf,
        /// The file that is made.
        uf2: PathBuf,
        /// The boot loader's family.
        family: u32,
    },
    /// A file is copied to the drive that the boot loader shows up as.
    Drive {
        /// The file.
        file: PathBuf,
        /// The boot loader's family.
        family: u32,
    },
    /// Something is done by hand.
    ByHand(String),
}

/// A program of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub program: &'static str,
    /// How to get it.
    pub install: &'static str,
}

/// Firmware that did not get onto its board. What is missing can be had; a message says how.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlashError {
    /// A program is not there.
    #[error("{} is not in PATH; get it: {}", .0.program, .0.install)]
    Missing(Tool),
    /// No boot loader is there to take the file.
    #[error(
        "no drive of the boot loader is mounted: hold BOOTSEL while plugging the board in and run this again, or copy \
         {} to the drive that appears", .0.display()
    )]
    NoDrive(PathBuf),
    /// Several boot loaders are there.
    #[error(
        "{} boards are waiting: {}; unplug all but one, or copy {} to the drive that is meant",
        drives.len(), shown(drives), file.display()
    )]
    ManyDrives {
        /// The file to copy.
        file: PathBuf,
        /// Their drives.
        drives: Vec<PathBuf>,
    },
    /// A step that only a person can do.
    #[error("by hand: {0}")]
    ByHand(String),
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Start {
        /// The program.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A program said that it failed.
    #[error("{program} failed ({status}); what it says is above")]
    Failed {
        /// The program.
        program: &'static str,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// A file could not be read or written.
    #[error("cannot write {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The firmware can't be read.
    #[error(transparent)]
    Elf(#[from] SymbolsError),
    /// The firmware can't be a UF2 file.
    #[error(transparent)]
    Uf2(#[from] Uf2Error),
}

const PROBE_RS: Tool =
    Tool { program: "probe-rs", install: "`cargo install probe-rs-tools --locked`, or https://probe.rs" };
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

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(program, arguments) => {
                write!(f, "{program}")?;
                arguments.iter().try_for_each(|argument| write!(f, " {}", quoted(argument)))
            }
            Self::Uf2 { uf2, family, .. } => write!(f, "{}: made by Kiln, for family 0x{family:08x}", uf2.display()),
            Self::Drive { file, .. } => write!(
                f,
                "hold BOOTSEL while plugging the board in, and copy {} to the drive that appears",
                file.display()
            ),
            Self::ByHand(text) => write!(f, "{text}"),
        }
    }
}

/// The steps that put the ELF file `firmware` on `board`; none for a board that is not real.
pub fn recipe(board: &Board, firmware: &Path) -> Option<Recipe> {
    let elf = firmware.display().to_string();
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>();
    let (steps, tools) = match &board.run {
        Run::Host {} | Run::Qemu { .. } | Run::QemuUser { .. } => return None,
        Run::ProbeRs { chip } => {
            (vec![Step::Command(PROBE_RS.program, words(&["run", "--chip", chip, &elf]))], vec![PROBE_RS])
        }
        Run::Uf2 { .. } => {
            let family = board.run.uf2_family()?;
            let uf2 = firmware.with_extension("uf2");
            let convert = Step::Uf2 { elf: firmware.to_owned(), uf2: uf2.clone(), family };
            (vec![convert, Step::Drive { file: uf2, family }], vec![])
        }
        Run::Espflash { chip } => {
            (vec![Step::Command(ESPFLASH.program, words(&["flash", "--chip", chip, &elf]))], vec![ESPFLASH])
        }
        Run::Bossac {} => {
            let bin = firmware.with_extension("bin").display().to_string();
            let convert = Step::Command(OBJCOPY.program, words(&["-O", "binary", &elf, &bin]));
            let press = Step::ByHand("press the reset button twice, which starts the boot loader".to_owned());
            let write = Step::ByHand(format!("bossac --port=PORT -U -i -e -w {} -R", quoted(&bin)));
            (vec![convert, press, write], vec![OBJCOPY, BOSSAC])
        }
        Run::Linux {} => (vec![Step::ByHand(format!("scp {} USER@{}:", quoted(&elf), board.name))], vec![SCP]),
    };
    Some(Recipe { steps, tools })
}

impl Recipe {
    /// The tools that are not in PATH.
    pub fn missing(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter().filter(|tool| !tool.installed())
    }

    /// Makes the files of the recipe, and does nothing else.
    ///
    /// # Errors
    ///
    /// [`FlashError`], for firmware that can't be a UF2 file.
    pub fn prepare(&self) -> Result<(), FlashError> {
        self.steps.iter().filter(|step| matches!(step, Step::Uf2 { .. })).try_for_each(Step::run)
    }

    /// Does all steps in order. Programs write to this process's terminal.
    ///
    /// # Errors
    ///
    /// [`FlashError`], for the first step that can't be done; a tool that is missing is found before any is.
    pub fn run(&self) -> Result<(), FlashError> {
        match self.missing().next() {
            Some(tool) => Err(FlashError::Missing(*tool)),
            None => self.steps.iter().try_for_each(Step::run),
        }
    }
}

impl Step {
    fn run(&self) -> Result<(), FlashError> {
        match self {
            Self::Command(program, arguments) => {
                let status = Command::new(program).args(arguments).status();
                let status = status.map_err(|source| FlashError::Start { program, source })?;
                if status.success() { Ok(()) } else { Err(FlashError::Failed { program, status }) }
            }
            Self::Uf2 { elf, uf2, family } => write(uf2, &uf2::encode(&segments(elf)?, *family)?),
            Self::Drive { file, family } => {
                let drives = drive::mounted(*family);
                let [drive] = &drives[..] else {
                    let file = file.clone();
                    return Err(if drives.is_empty() {
                        FlashError::NoDrive(file)
                    } else {
                        FlashError::ManyDrives { file, drives }
                    });
                };
                copy(file, &drive.join("kiln.uf2"))
            }
            Self::ByHand(text) => Err(FlashError::ByHand(text.clone())),
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), FlashError> {
    fs::write(path, bytes).map_err(|source| FlashError::File { path: path.to_owned(), source })
}

/// Copies a file's bytes and waits until they are on the drive; a boot loader's drive knows no permissions.
fn copy(from: &Path, to: &Path) -> Result<(), FlashError> {
    let error = |source| FlashError::File { path: to.to_owned(), source };
    let bytes = fs::read(from).map_err(error)?;
    let mut file = fs::File::create(to).map_err(error)?;
    io::Write::write_all(&mut file, &bytes).map_err(error)?;
    // The board starts the firmware with the last block and its drive is gone: that this then fails is a good sign.
    let _ = file.sync_all();
    Ok(())
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<String>>().join(", ")
}

/// An argument as a shell takes it.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:@,+~\\".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use kiln_boards::Place;

    use super::*;

    fn text(steps: &[Step]) -> String {
        steps.iter().map(|step| format!("{step}\n")).collect()
    }

    #[test]
    fn every_real_board_has_a_recipe_that_names_its_chip_and_its_tools() {
        for board in Board::all().unwrap() {
            let found = recipe(&board, Path::new("out/fw.elf"));
            assert_eq!(found.is_some(), board.run.place() == Place::Real, "{}", board.name);
            let Some(Recipe { steps, tools }) = found else { continue };
            let text = text(&steps);
            for tool in tools {
                assert!(text.contains(tool.program) && !tool.install.is_empty(), "{text}");
            }
            assert!(text.contains("out/fw."), "{text}");
        }
        let steps = |name: &str| text(&recipe(&Board::builtin(name).unwrap(), Path::new("fw.elf")).unwrap().steps);
        assert_eq!(steps("nucleo-l4r5zi"), "probe-rs run --chip STM32L4R5ZITx fw.elf\n");
        let pico = steps("raspberry-pi-pico");
        assert!(pico.contains("fw.uf2: made by Kiln, for family 0xe48bff56"), "{pico}");
        assert!(pico.contains("copy fw.uf2 to the drive"), "{pico}");
    }

    #[test]
    fn arguments_are_quoted_where_a_shell_would_take_them_apart() {
        for (argument, text) in
            [("a/b-1.elf", "a/b-1.elf"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''"), ("$x;", "'$x;'")]
        {
            assert_eq!(quoted(argument), text);
        }
    }

    #[test]
    fn a_missing_tool_is_found_before_anything_is_done() {
        let gone = Tool { program: "no-such-program-anywhere", install: "`make it`" };
        let folder = tempfile::tempdir().unwrap();
        let uf2 = folder.path().join("fw.uf2");
        let make = Step::Uf2 { elf: folder.path().join("fw.elf"), uf2: uf2.clone(), family: 1 };
        let error = Recipe { steps: vec![make], tools: vec![gone] }.run().unwrap_err().to_string();
        assert!(error.contains("no-such-program-anywhere is not in PATH; get it: `make it`"), "{error}");
        assert!(!uf2.exists());
    }
}
