//! A board and the parts it is described by.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Isa;

/// One board, complete and checked: see [`Board::load`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Board {
    /// The name the board is chosen by; also the name of its file.
    pub name: String,
    /// A line for people.
    pub title: String,
    /// The chip, as its maker writes it.
    pub chip: String,
    /// The CPU core, as compilers write it: `cortex-m4`.
    pub cpu: String,
    /// What the CPU can execute; for the host board, the CPU this is running on.
    pub isa: Isa,
    /// The rustc target triple firmware is built for.
    pub target: String,
    /// The `-Ctarget-cpu` firmware is built with; rustc's default for the target where there is
    /// none.
    pub target_cpu: Option<String>,
    /// CPU clock in Hz; none for the host board.
    pub clock_hz: Option<u64>,
    /// Memory regions, none overlapping another. The first of each kind is the main one: firmware
    /// starts in the first flash region and keeps data and stack in the first RAM region. A board
    /// with an operating system has RAM only. Empty for the host board, whose memory is not planned by
    /// region.
    pub memory: Vec<MemoryRegion>,
    /// How programs are run on it.
    pub run: Run,
    /// The firmware crate models are built into; none where Kiln builds firmware without one, or none at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareCrate>,
    /// Clock cycles that an instruction takes, for estimates of time; none where nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<Cycles>,
}

impl Board {
    /// The regions of one kind, the main one first.
    pub fn regions(&self, kind: MemoryKind) -> impl Iterator<Item = &MemoryRegion> {
        self.memory.iter().filter(move |region| region.kind == kind)
    }

    /// Bytes of flash over all regions; zero for boards with an operating system.
    pub fn flash_bytes(&self) -> u64 {
        self.regions(MemoryKind::Flash).map(|r| r.bytes).sum()
    }

    /// Bytes of RAM over all regions; zero for the host board.
    pub fn ram_bytes(&self) -> u64 {
        self.regions(MemoryKind::Ram).map(|r| r.bytes).sum()
    }

    /// Whether programs for it are files that an operating system starts, rather than firmware.
    pub fn has_system(&self) -> bool {
        matches!(self.run, Run::Host {} | Run::QemuUser { .. } | Run::Linux {})
    }

    /// Whether this is the computer Kiln itself runs on.
    pub fn is_host(&self) -> bool {
        self.run == Run::Host {}
    }
}

/// A crate that sets a real board up by its HAL and runs a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirmwareCrate {
    /// Its directory's name, beside the board files.
    #[serde(rename = "crate")]
    pub name: String,
}

/// How long a CPU takes, in the simplest model there is: so many clock cycles an instruction, on average over a network.
/// `docs/time-estimates.md` says where the figures of the embedded boards come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cycles {
    /// Clock cycles for each instruction, waiting for memory included; more than 0.
    pub per_instruction: f64,
    /// By which fraction a run may differ from that, up or down: 0.4 for 40 %. From 0 to 2.
    pub error: f64,
    /// What the figures are taken from.
    pub source: String,
}

/// A contiguous range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryRegion {
    /// A name for reports and linker scripts: letters, digits and `_`.
    pub name: String,
    /// What it holds.
    pub kind: MemoryKind,
    /// The first address.
    pub start: u64,
    /// Its size in bytes; the region ends within the address space of the board's CPU.
    pub bytes: u64,
    /// Whether the CPU reaches it without wait states; `true` where a file does not say.
    #[serde(default = "yes")]
    pub fast: bool,
}

impl MemoryRegion {
    /// The first address after the region.
    pub fn end(&self) -> u64 {
        // Checked when the board was read; the saturation is for regions made by hand.
        self.start.saturating_add(self.bytes)
    }
}

fn yes() -> bool {
    true
}

/// What a memory region holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// Keeps code and constants over a reset; not written while a model runs.
    Flash,
    /// Read and written while a model runs.
    Ram,
}

/// The word that board files use.
impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How programs get onto a board and are run there.
// Braces on every variant: serde checks for unknown fields only there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Run {
    /// In this process: the board is the computer itself.
    Host {},
    /// By QEMU's full-system emulation, files passing through semihosting.
    Qemu {
        /// The emulator's program name: `qemu-system-arm`.
        binary: String,
        /// The value of its `-M` option.
        machine: String,
        /// Further arguments, for machines that need some.
        #[serde(default)]
        args: Vec<String>,
    },
    /// By QEMU's emulation of a Linux process.
    QemuUser {
        /// The emulator's program name: `qemu-aarch64`.
        binary: String,
        /// Where the emulated CPU's shared libraries lie on this computer: the value of its `-L` option.
        sysroot: String,
    },
    /// A chip that `probe-rs` programs through a debug probe.
    ProbeRs {
        /// The value of its `--chip` option.
        chip: String,
    },
    /// A board whose boot loader shows up as a drive and takes a UF2 file.
    Uf2 {
        /// The family number the UF2 file carries, in hexadecimal: `0xe48bff56`.
        family: String,
    },
    /// A chip whose boot loader `espflash` speaks to.
    Espflash {
        /// The value of its `--chip` option.
        chip: String,
    },
    /// A board whose SAM-BA boot loader `bossac` speaks to.
    Bossac {},
    /// A computer with Linux, which programs are copied to.
    Linux {},
}

/// Where a board is, as far as running programs on it goes. The order is that of lists of boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Emulated on this computer.
    Emulated,
    /// Real, and connected to this computer one way or another.
    Real,
    /// This computer.
    Host,
}

impl Run {
    /// The word that board files use.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Host {} => "host",
            Self::Qemu { .. } => "qemu",
            Self::QemuUser { .. } => "qemu-user",
            Self::ProbeRs { .. } => "probe-rs",
            Self::Uf2 { .. } => "uf2",
            Self::Espflash { .. } => "espflash",
            Self::Bossac {} => "bossac",
            Self::Linux {} => "linux",
        }
    }

    /// The family number of [`Run::Uf2`]; `None` for other kinds, and where it is no number of 32 bits.
    pub fn uf2_family(&self) -> Option<u32> {
        let Self::Uf2 { family } = self else { return None };
        let digits = family.strip_prefix("0x").filter(|digits| !digits.starts_with('+'))?;
        u32::from_str_radix(digits, 16).ok()
    }

    /// Where the board is.
    pub fn place(&self) -> Place {
        match self {
            Self::Host {} => Place::Host,
            Self::Qemu { .. } | Self::QemuUser { .. } => Place::Emulated,
            Self::ProbeRs { .. } | Self::Uf2 { .. } | Self::Espflash { .. } | Self::Bossac {} | Self::Linux {} => {
                Place::Real
            }
        }
    }
}
