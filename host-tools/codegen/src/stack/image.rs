//! The code of a linked image: its functions, and the kernels it lists.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use kiln_core::Plan;
use kiln_core::zerocopy::IntoBytes;
use object::elf::{SHF_EXECINSTR, SHT_NOBITS};
use object::read;
use object::{Architecture, Object, ObjectSection, ObjectSymbol, SectionFlags};

use super::instruction::Instruction;
use super::{StackError, aarch64, riscv, thumb};
use crate::symbols::{Elf, SectionKind, Symbol, SymbolsError};

/// A linked program, as far as its stack is concerned.
pub(super) struct Image {
    /// Decodes an instruction.
    pub(super) decode: fn(&[u8], u64) -> Option<Instruction>,
    /// The frame pointer's number.
    pub(super) frame_pointer: u8,
    /// Its functions by address.
    pub(super) functions: BTreeMap<u64, Symbol>,
    /// The kernels it lists.
    pub(super) rows: Vec<ListedRow>,
    /// The crate that lists them: the model's.
    pub(super) model: Option<String>,
    /// Whether its plan has an entry `reset`, which loading runs. Assumed where there is no plan.
    pub(super) resets: bool,
    sections: Vec<Bytes>,
    /// Addresses from which on bytes are instructions, or not.
    kinds: BTreeMap<u64, bool>,
}

/// The functions of a kernel that a model's crate lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedRow {
    /// Addresses of the functions that prove a call safe.
    pub(super) check: u64,
    /// Address of the body.
    pub(super) run: u64,
}

struct Bytes {
    address: u64,
    bytes: Vec<u8>,
}

impl Image {
    /// Reads the ELF file at `path`.
    pub(super) fn read(path: &Path) -> Result<Self, StackError> {
        let elf = Elf::read(path)?;
        let bytes = fs::read(path).map_err(|source| SymbolsError::Read { path: path.to_owned(), source })?;
        let bad = |source| SymbolsError::NotElf { path: path.to_owned(), source };
        let file = read::File::parse(&*bytes).map_err(bad)?;
        type Decode = fn(&[u8], u64) -> Option<Instruction>;
        let (decode, frame_pointer): (Decode, u8) = match file.architecture() {
            Architecture::Arm => (thumb::decode, 7),
            Architecture::Riscv32 => (riscv::decode, 8),
            Architecture::Aarch64 => (aarch64::decode, 29),
            other => return Err(StackError::Architecture(format!("{other:?}"))),
        };
        let mut image = Self {
            decode,
            frame_pointer,
            functions: BTreeMap::new(),
            rows: Vec::new(),
            model: None,
            resets: true,
            sections: Vec::new(),
            kinds: BTreeMap::new(),
        };
        for section in file.sections() {
            if let SectionFlags::Elf { sh_type, .. } = section.flags()
                && sh_type != SHT_NOBITS
                && section.address().checked_add(section.size()).is_some()
            {
                let bytes = section.data().map_err(bad)?.to_vec();
                image.sections.push(Bytes { address: section.address(), bytes });
            }
        }
        image.sections.retain(|section| !section.bytes.is_empty());
        for symbol in file.symbols() {
            // `$t`, `$x`, `$a` begin instructions, `$d` begins constants between them.
            let in_code = symbol.section_index().and_then(|index| file.section_by_index(index).ok()).is_some_and(
                |section| matches!(section.flags(), SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(SHF_EXECINSTR)),
            );
            let kind = symbol.name().ok().and_then(|name| name.strip_prefix('$')).and_then(|name| name.chars().next());
            if let (true, Some(kind)) = (in_code, kind) {
                image.kinds.insert(symbol.address() & !1, kind != 'd');
            }
        }
        let code = elf.symbols.iter().filter(|s| s.kind == SectionKind::Code && s.bytes > 0);
        image.functions = code.map(|symbol| (symbol.address, symbol.clone())).collect();
        image.find_rows(&elf, &file);
        image.find_plan(&elf);
        Ok(image)
    }

    /// The kernels that a static `ROWS` lists. Where the program can be loaded anywhere, its words are in the
    /// relocations.
    fn find_rows(&mut self, elf: &Elf, file: &read::File<'_>) {
        let Some((symbol, krate)) =
            elf.symbols.iter().find_map(|s| Some((s, s.name.strip_suffix("::ROWS").filter(|k| !k.contains("::"))?)))
        else {
            return;
        };
        let width = if file.is_64() { 8 } else { 4 };
        let relocated: BTreeMap<u64, u64> =
            file.dynamic_relocations().into_iter().flatten().map(|(at, r)| (at, r.addend() as u64)).collect();
        let words = (symbol.address..symbol.address.saturating_add(symbol.bytes)).step_by(width);
        let addresses = words.filter_map(|at| {
            let word = || self.bytes(at..at.checked_add(width as u64)?).map(little_endian);
            let word = relocated.get(&at).copied().or_else(word)?;
            // The lowest bit of a Thumb function's address is not part of it.
            self.functions.contains_key(&(word & !1)).then_some(word & !1)
        });
        let addresses: Vec<u64> = addresses.collect();
        let is_check =
            |address: &u64| self.functions.get(address).is_some_and(|s| function(&s.name).starts_with("check"));
        self.rows = addresses
            .chunks_exact(2)
            .map(|pair| match (is_check(&pair[0]), is_check(&pair[1])) {
                (false, true) => ListedRow { check: pair[1], run: pair[0] },
                _ => ListedRow { check: pair[0], run: pair[1] },
            })
            .collect();
        self.model = Some(krate.to_owned());
    }

    fn find_plan(&mut self, elf: &Elf) {
        let plans = elf.symbols.iter().filter(|s| s.name.ends_with("::PLAN"));
        for symbol in plans {
            let range = symbol.address..symbol.address.saturating_add(symbol.bytes);
            let Some(bytes) = self.bytes(range) else { continue };
            // Plans are read in place, at a multiple of 16.
            let mut words = vec![0u128; bytes.len().div_ceil(16)];
            let aligned = words.as_mut_bytes();
            aligned[..bytes.len()].copy_from_slice(bytes);
            if let Ok(plan) = Plan::load_any_target(aligned) {
                self.resets = plan.entry_named("reset").is_some();
            }
        }
    }

    /// An image of code from address 0 on: names, addresses and bytes of its functions.
    #[cfg(test)]
    pub(super) fn of<'a>(
        decode: fn(&[u8], u64) -> Option<Instruction>,
        frame_pointer: u8,
        code: Vec<u8>,
        functions: impl Iterator<Item = (&'a str, u64, u64)>,
    ) -> Self {
        use crate::symbols::Origin;
        let symbol = |(name, address, bytes): (&str, u64, u64)| Symbol {
            name: name.to_owned(),
            kind: SectionKind::Code,
            address,
            bytes,
            origin: Origin::Kiln,
        };
        Self {
            decode,
            frame_pointer,
            functions: functions.map(symbol).map(|symbol| (symbol.address, symbol)).collect(),
            rows: Vec::new(),
            model: None,
            resets: true,
            sections: vec![Bytes { address: 0, bytes: code }],
            kinds: BTreeMap::new(),
        }
    }

    /// Says whether instructions or constants begin at an address.
    #[cfg(test)]
    pub(super) fn mark(&mut self, address: u64, is_code: bool) {
        self.kinds.insert(address, is_code);
    }

    /// The bytes at a range of addresses, where the file has them.
    pub(super) fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        self.sections.iter().find_map(|section| {
            let start = usize::try_from(range.start.checked_sub(section.address)?).ok()?;
            let end = usize::try_from(range.end.checked_sub(section.address)?).ok()?;
            section.bytes.get(start..end)
        })
    }

    /// Whether the byte at an address belongs to an instruction, as far as the file says.
    pub(super) fn is_code(&self, address: u64) -> bool {
        self.kinds.range(..=address).next_back().is_none_or(|(_, code)| *code)
    }
}

/// The last part of a function's path.
pub(super) fn function(name: &str) -> &str {
    let path = name.split("::<").next().unwrap_or(name);
    path.rsplit("::").next().unwrap_or(path)
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}
