//! What an ELF file contains: sections, symbols and whose code they are.

use std::path::{Path, PathBuf};
use std::{fs, io};

use object::elf::{PF_X, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_NOBITS};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionFlags, SectionIndex, SegmentFlags};
use object::{SymbolKind, read};
use rustc_demangle::demangle;

use crate::forbidden::{Forbidden, reason};

/// An ELF file that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolsError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not an ELF file, or a damaged one.
    #[error("{} is not a good ELF file: {source}", .path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
        /// Why.
        source: read::Error,
    },
    /// A segment's bytes are not all there.
    #[error("{}: the segment for address 0x{address:x} is cut off", .path.display())]
    CutOff {
        /// The file.
        path: PathBuf,
        /// The segment's address.
        address: u64,
    },
    /// It does not say which code refers to what, so nothing can be said about what is reached.
    #[error("{} has no references: link it with `--emit-relocs`", .path.display())]
    NoReferences {
        /// The file.
        path: PathBuf,
    },
    /// It has no symbols, so nothing can be said about it.
    #[error("{} has no symbols: link it without stripping them", .path.display())]
    Stripped {
        /// The file.
        path: PathBuf,
    },
}

/// Sections and symbols of a linked program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// The sections that occupy memory on the device, in address order.
    pub sections: Vec<Section>,
    /// The symbols in them, in address order, one for each address: aliases are left out.
    pub symbols: Vec<Symbol>,
    /// Address of the first executable segment; 0 where there is none.
    pub code: u64,
    /// All symbol names, demangled, aliases included.
    names: Vec<String>,
}

/// A section that occupies memory on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name: `.text`.
    pub name: String,
    /// What it holds.
    pub kind: SectionKind,
    /// The address it has while the program runs.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// Instructions, and the constants between them; in flash.
    Code,
    /// Constants; in flash.
    Constants,
    /// Variables with initial values; in RAM, and the values in flash.
    Data,
    /// Variables without; in RAM.
    Zeroed,
}

/// A function or variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name as a Rust path, without hashes.
    pub name: String,
    /// What the section it is in holds.
    pub kind: SectionKind,
    /// Its address.
    pub address: u64,
    /// Its size in bytes. Where the file does not say, up to the next symbol.
    pub bytes: u64,
    /// Whose it is.
    pub origin: Origin,
}

/// Whose a symbol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Kiln's engine and kernels, the model's crate, and what the compiler took from `core` for
    /// them.
    Kiln,
    /// The compiler's run-time library: `memcpy`, integer division, floating point.
    Builtins,
    /// Start-up, fault handlers, semihosting and the replay loop: not part of an application.
    Platform,
}

/// Bytes by kind of section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Instructions, bytes of flash.
    pub text: u64,
    /// Constants with the vector table, bytes of flash.
    pub rodata: u64,
    /// Initialized variables, bytes of flash and of RAM.
    pub data: u64,
    /// Other variables, bytes of RAM.
    pub bss: u64,
}

impl Sizes {
    /// Bytes of flash.
    pub fn flash(&self) -> u64 {
        self.text + self.rodata + self.data
    }

    /// Bytes of RAM, without the stack.
    pub fn ram(&self) -> u64 {
        self.data + self.bss
    }
}

impl Elf {
    /// Reads the ELF file at `path`.
    ///
    /// # Errors
    ///
    /// [`SymbolsError`].
    pub fn read(path: &Path) -> Result<Self, SymbolsError> {
        let bytes = fs::read(path).map_err(|source| SymbolsError::Read { path: path.to_owned(), source })?;
        let not_elf = |source| SymbolsError::NotElf { path: path.to_owned(), source };
        let elf = Self::parse(&bytes).map_err(not_elf)?;
        if elf.names.is_empty() {
            return Err(SymbolsError::Stripped { path: path.to_owned() });
        }
        Ok(elf)
    }

    fn parse(bytes: &[u8]) -> Result<Self, read::Error> {
        let file = read::File::parse(bytes)?;
        let mut sections = Vec::new();
        for section in file.sections() {
            let name = section.name()?.to_owned();
            // Start-up code for RISC-V makes a section of what is left of RAM.
            if name == ".stack" {
                continue;
            }
            if let Some(kind) = section_kind(&section) {
                let (address, bytes) = (section.address(), section.size());
                sections.push((address, section.index(), Section { name, kind, address, bytes }));
            }
        }
        sections.sort_by_key(|(address, ..)| *address);

        let mut names = Vec::new();
        let mut symbols = Vec::new();
        for symbol in file.symbols() {
            let mangled = symbol.name()?;
            // `$t` and `$d` tell instructions from constants, `.L` begins labels within a function: they name
            // nothing.
            if mangled.is_empty() || mangled.starts_with('$') || mangled.starts_with(".L") {
                continue;
            }
            // Undefined symbols count: they are asked for, too.
            let name = format!("{:#}", demangle(mangled));
            if symbol.kind() != SymbolKind::File {
                names.push(name.clone());
            }
            let in_section = symbol.section_index().and_then(|index| find(&sections, index));
            if let Some((_, _, section)) = in_section {
                symbols.push(Symbol {
                    origin: origin(&name),
                    name,
                    kind: section.kind,
                    // The lowest bit of a Thumb function's address is not part of it.
                    address: match section.kind {
                        SectionKind::Code => symbol.address() & !1,
                        _ => symbol.address(),
                    },
                    bytes: symbol.size(),
                });
            }
        }
        let executable = |segment: &read::Segment<'_, '_>| match segment.flags() {
            SegmentFlags::Elf { p_flags, .. } => p_flags.contains(PF_X),
            _ => false,
        };
        let code = file.segments().filter(executable).map(|segment| segment.address()).min().unwrap_or(0);
        keep_one_an_address(&mut symbols);
        fill_in_sizes(&mut symbols, &sections);
        Ok(Self { sections: sections.into_iter().map(|(_, _, section)| section).collect(), symbols, code, names })
    }

    /// The symbols firmware must not have: allocator, panics, formatting. Sorted, none twice.
    pub fn forbidden(&self) -> Vec<Forbidden> {
        let mut found: Vec<Forbidden> = self
            .names
            .iter()
            .filter_map(|name| reason(name).map(|reason| Forbidden { name: name.clone(), reason }))
            .collect();
        found.sort();
        found.dedup();
        found
    }

    /// Whether a symbol's name contains `part`, such as the path of a kernel.
    pub fn mentions(&self, part: &str) -> bool {
        self.names.iter().any(|name| name.contains(part))
    }

    /// The bodies of kernels. A body is a function `run…` of `kiln_kernels`; its address is taken, so it can't be
    /// inlined away.
    pub fn kernel_bodies(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| is_kernel_body(&symbol.name))
    }

    /// Bytes by kind of section.
    pub fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        for section in &self.sections {
            *match section.kind {
                SectionKind::Code => &mut sizes.text,
                SectionKind::Constants => &mut sizes.rodata,
                SectionKind::Data => &mut sizes.data,
                SectionKind::Zeroed => &mut sizes.bss,
            } += section.bytes;
        }
        sizes
    }

    /// Bytes of the model's plan, constants included: the static `PLAN` of its crate.
    pub fn plan_bytes(&self) -> u64 {
        let plans = self.symbols.iter().filter(|s| s.kind == SectionKind::Constants && s.name.ends_with("::PLAN"));
        plans.map(|plan| plan.bytes).sum()
    }

    /// Bytes of instructions an application pays for using Kiln: all of them, less those of
    /// [`Origin::Platform`]. What no symbol covers, such as padding, counts as Kiln's.
    pub fn kiln_code_bytes(&self) -> u64 {
        self.sizes().text.saturating_sub(self.code_bytes(Origin::Platform))
    }

    /// Bytes of instructions in symbols of one origin.
    pub fn code_bytes(&self, origin: Origin) -> u64 {
        self.symbols
            .iter()
            .filter(|symbol| symbol.kind == SectionKind::Code && symbol.origin == origin)
            .map(|symbol| symbol.bytes)
            .sum()
    }
}

fn section_kind<'data>(section: &impl ObjectSection<'data>) -> Option<SectionKind> {
    let SectionFlags::Elf { sh_type, sh_flags } = section.flags() else {
        return None;
    };
    let has = |flag| sh_flags.contains(flag);
    if !has(SHF_ALLOC) || section.size() == 0 {
        None
    } else if sh_type == SHT_NOBITS {
        Some(SectionKind::Zeroed)
    } else if has(SHF_EXECINSTR) {
        Some(SectionKind::Code)
    } else if has(SHF_WRITE) {
        Some(SectionKind::Data)
    } else {
        Some(SectionKind::Constants)
    }
}

type Placed = (u64, SectionIndex, Section);

fn find(sections: &[Placed], index: SectionIndex) -> Option<&Placed> {
    sections.iter().find(|(_, own, _)| *own == index)
}

/// Sorts by address and keeps, of symbols at one address, the one with the largest size.
fn keep_one_an_address(symbols: &mut Vec<Symbol>) {
    symbols.sort_by(|a, b| {
        (a.address, std::cmp::Reverse(a.bytes), &a.name).cmp(&(b.address, std::cmp::Reverse(b.bytes), &b.name))
    });
    symbols.dedup_by_key(|symbol| symbol.address);
}

/// Gives symbols without a size, which assembly and linker scripts make, the bytes up to the next
/// symbol or the end of their section.
fn fill_in_sizes(symbols: &mut [Symbol], sections: &[Placed]) {
    let mut next = u64::MAX;
    for symbol in symbols.iter_mut().rev() {
        if symbol.bytes == 0 {
            let end = sections
                .iter()
                .map(|(start, _, section)| start.saturating_add(section.bytes))
                .filter(|end| *end >= symbol.address)
                .min()
                .unwrap_or(symbol.address);
            symbol.bytes = end.min(next).saturating_sub(symbol.address);
        }
        next = symbol.address;
    }
}

fn is_kernel_body(name: &str) -> bool {
    let path = name.split("::<").next().unwrap_or(name);
    path.starts_with("kiln_kernels::") && path.rsplit("::").next().is_some_and(|f| f == "run" || f.starts_with("run_"))
}

fn origin(name: &str) -> Origin {
    const PLATFORM_CRATES: [&str; 6] =
        ["kiln_device", "kiln_cortex_m", "cortex_m_rt", "kiln_riscv", "riscv_rt", "kiln_linux"];
    const PLATFORM_SYMBOLS: [&str; 16] = [
        "DefaultHandler",
        "DefaultHandler_",
        "DefaultPreInit",
        "ExceptionHandler",
        "HardFault",
        "HardFaultTrampoline",
        "HardFault_",
        "Reset",
        "_abs_start",
        "_default_abort",
        "_default_start_trap",
        "_pre_init_trap",
        "_start",
        "_start_trap",
        "_start_trap_rust",
        "main",
    ];
    // Never inlined into the replay loop and holding nothing but the model's run.
    if name.starts_with("kiln_device::replay::run_model") {
        return Origin::Kiln;
    }
    let root = name.trim_start_matches(['<', '&']).split("::").next().unwrap_or(name);
    if PLATFORM_CRATES.contains(&root) || PLATFORM_SYMBOLS.contains(&name) || name.contains("__cortex_m_rt_") {
        Origin::Platform
    } else if root == "compiler_builtins" || (!name.contains("::") && !name.starts_with("kiln")) {
        Origin::Builtins
    } else {
        Origin::Kiln
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_go_by_crate_and_by_the_names_start_up_code_gives() {
        for (name, expected) in [
            ("kiln_kernels::conv::run", Origin::Kiln),
            ("<kiln_core::plan::Step as core::clone::Clone>::clone", Origin::Kiln),
            ("kiln_device::replay::run_model::<fw::glue::Glue>", Origin::Kiln),
            ("fw::glue::set_up", Origin::Kiln),
            ("core::slice::copy", Origin::Kiln),
            ("kiln_conv_smlad", Origin::Kiln),
            ("memcpy", Origin::Builtins),
            ("__aeabi_uldivmod", Origin::Builtins),
            ("compiler_builtins::mem::memset", Origin::Builtins),
            ("Reset", Origin::Platform),
            ("main", Origin::Platform),
            ("fw::__cortex_m_rt_main", Origin::Platform),
            ("kiln_device::replay::replay::<fw::Glue>", Origin::Platform),
            ("<kiln_device::semihosting::HostFiles as X>::read", Origin::Platform),
            ("<kiln_linux::files::SystemFiles as X>::read", Origin::Platform),
            ("_start_trap_rust", Origin::Platform),
        ] {
            assert_eq!(origin(name), expected, "{name}");
        }
    }

    #[test]
    fn bodies_are_told_from_other_functions_of_kernels() {
        for name in ["kiln_kernels::conv2d::run", "kiln_kernels::pool2d::run_max::<f32>"] {
            assert!(is_kernel_body(name), "{name}");
        }
        for name in ["kiln_kernels::conv2d::check", "kiln_kernels::run::helper", "kiln_core::run", "run"] {
            assert!(!is_kernel_body(name), "{name}");
        }
    }

    #[test]
    fn what_is_no_elf_file_is_refused() {
        for bytes in [&b""[..], b"\x7fELF", b"not an ELF file at all, just some text to read"] {
            assert!(Elf::parse(bytes).is_err());
        }
        let message = Elf::read(Path::new("no/such.elf")).unwrap_err().to_string();
        assert!(message.contains("no/such.elf"), "{message}");
    }
}
