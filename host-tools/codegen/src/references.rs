//! What code reaches, by the references the linker left in the file (`--emit-relocs`).
//!
//! Firmware with a HAL may hold code that panics. Kiln's part of it must not reach any, and this follows every
//! reference from Kiln's functions on to prove it. A call through a pointer is not followed; Kiln makes such calls to
//! kernels only, which are Kiln's functions themselves and so among those the search begins at.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind, SymbolKind, read};
use rustc_demangle::demangle;

use crate::forbidden::{Forbidden, reason};
use crate::symbols::SymbolsError;

/// A chain of functions from one of Kiln's to one that Kiln must not reach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reached {
    /// The names on the way, Kiln's function first.
    pub way: Vec<String>,
    /// What is reached.
    pub forbidden: Forbidden,
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.way {
            write!(f, "{name} → ")?;
        }
        write!(f, "{}", self.forbidden)
    }
}

/// Kiln's functions in an ELF file and what they reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The functions the search began at, sorted.
    pub functions: Vec<String>,
    /// Each thing they must not reach and do, once. Empty where all is well.
    pub reached: Vec<Reached>,
}

/// Follows all references from Kiln's functions in the ELF file at `path`: those of its crates, of the model's crate
/// (`model`, as code calls it) and of the firmware's module `trial`.
///
/// # Errors
///
/// [`SymbolsError`]; [`SymbolsError::NoReferences`] where the linker kept none.
pub fn audit(path: &Path, model: &str) -> Result<Audit, SymbolsError> {
    let bytes = std::fs::read(path).map_err(|source| SymbolsError::Read { path: path.to_owned(), source })?;
    let not_elf = |source| SymbolsError::NotElf { path: path.to_owned(), source };
    let graph = Graph::read(&bytes).map_err(not_elf)?;
    if graph.functions.is_empty() {
        return Err(SymbolsError::Stripped { path: path.to_owned() });
    }
    if graph.references.is_empty() {
        return Err(SymbolsError::NoReferences { path: path.to_owned() });
    }
    Ok(graph.audit(model))
}

/// Functions by address, and which refers to which.
#[derive(Default)]
struct Graph {
    /// Names and ends by first address.
    functions: BTreeMap<u64, (String, u64)>,
    /// Addresses of functions, first the one that refers.
    references: BTreeMap<u64, BTreeSet<u64>>,
}

impl Graph {
    fn read(bytes: &[u8]) -> Result<Self, read::Error> {
        let file = read::File::parse(bytes)?;
        let mut graph = Self::default();
        for symbol in file.symbols() {
            if symbol.kind() == SymbolKind::Text && symbol.is_definition() {
                // The lowest bit of a Thumb function's address is not part of it.
                let address = symbol.address() & !1;
                let name = format!("{:#}", demangle(symbol.name()?));
                let end = address.saturating_add(symbol.size().max(1));
                graph.functions.entry(address).or_insert((name, end));
            }
        }
        // Other sections' references are not code's, and those of debug information count from 0.
        for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
            for (at, relocation) in section.relocations() {
                let RelocationTarget::Symbol(index) = relocation.target() else { continue };
                let target = file.symbol_by_index(index)?.address() & !1;
                if let Some(from) = graph.function_at(at)
                    && graph.functions.contains_key(&target)
                {
                    graph.references.entry(from).or_default().insert(target);
                }
            }
        }
        Ok(graph)
    }

    /// The first address of the function that `address` lies in.
    fn function_at(&self, address: u64) -> Option<u64> {
        let (&start, (_, end)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some(start)
    }

    fn audit(&self, model: &str) -> Audit {
        let own = |(_, (name, _)): &(&u64, &(String, u64))| is_kilns(name, model);
        let begin: Vec<u64> = self.functions.iter().filter(own).map(|(&address, _)| address).collect();
        // From each function reached, the one it was reached from; breadth first, so ways are short.
        let mut from: BTreeMap<u64, Option<u64>> = begin.iter().map(|&address| (address, None)).collect();
        let mut todo: std::collections::VecDeque<u64> = begin.iter().copied().collect();
        let mut reached = Vec::new();
        while let Some(address) = todo.pop_front() {
            let name = self.name(address);
            if let Some(reason) = reason(name) {
                let forbidden = Forbidden { reason, name: name.to_owned() };
                reached.push(Reached { way: self.way(&from, address), forbidden });
                continue;
            }
            for &next in self.references.get(&address).into_iter().flatten() {
                from.entry(next).or_insert_with(|| {
                    todo.push_back(next);
                    Some(address)
                });
            }
        }
        let mut functions: Vec<String> = begin.iter().map(|&address| self.name(address).to_owned()).collect();
        functions.sort();
        reached.sort();
        Audit { functions, reached }
    }

    fn name(&self, address: u64) -> &str {
        self.functions.get(&address).map_or("", |(name, _)| name)
    }

    /// The names before `address` on the way to it.
    fn way(&self, from: &BTreeMap<u64, Option<u64>>, address: u64) -> Vec<String> {
        let step = |at: &u64| from.get(at).copied().flatten();
        let mut way: Vec<String> =
            std::iter::successors(step(&address), step).map(|at| self.name(at).to_owned()).collect();
        way.reverse();
        way
    }
}

/// Whether a function of this demangled name is Kiln's. How an error is printed is the application's own affair.
fn is_kilns(name: &str, model: &str) -> bool {
    let printing = [" as core::fmt::", " as defmt::"].iter().any(|way| name.contains(way));
    let crates = ["kiln_core", "kiln_kernels", model];
    let within = |krate: &&str| name.contains(&format!("{krate}::"));
    !printing && (name.starts_with("kiln_") || crates.iter().any(within) || name.contains("::trial::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(functions: &[&str], references: &[(u64, u64)]) -> Graph {
        let mut graph = Graph::default();
        for (address, name) in (0..).step_by(4).zip(functions) {
            graph.functions.insert(address, ((*name).to_owned(), address + 4));
        }
        for (from, to) in references {
            graph.references.entry(from * 4).or_default().insert(to * 4);
        }
        graph
    }

    #[test]
    fn what_kiln_reaches_through_others_is_found_with_the_way() {
        let names =
            ["kiln_core::run", "core::slice::copy", "core::panicking::panic", "hal::init", "kiln_kernels::add::run"];
        let audit = graph(&names, &[(0, 1), (1, 2), (1, 0), (3, 2), (4, 1)]).audit("sine_model");
        assert_eq!(audit.functions, ["kiln_core::run", "kiln_kernels::add::run"]);
        let text: Vec<String> = audit.reached.iter().map(Reached::to_string).collect();
        assert_eq!(text, ["kiln_core::run → core::slice::copy → core::panicking::panic (panic)"]);
    }

    #[test]
    fn what_only_others_reach_does_not_count() {
        let audit = graph(&["kiln_core::run", "hal::init", "core::panicking::panic"], &[(1, 2), (1, 0)]).audit("m");
        assert_eq!(audit.reached, []);
    }

    #[test]
    fn kilns_functions_go_by_crate_and_module() {
        for (name, own) in [
            ("kiln_core::session::Session::new", true),
            ("kiln_conv_smlad", true),
            ("<kiln_kernels::conv::Packed as core::clone::Clone>::clone", true),
            ("sine_model::Model::new", true),
            ("nucleo_l4r5zi::trial::run::<nucleo_l4r5zi::run::{closure#0}>", true),
            ("<kiln_core::error::Error as core::fmt::Debug>::fmt", false),
            ("<kiln_core::error::Error as defmt::traits::Format>::format", false),
            ("nucleo_l4r5zi::main", false),
            ("embassy_stm32::rcc::init", false),
        ] {
            assert_eq!(is_kilns(name, "sine_model"), own, "{name}");
        }
    }

    #[test]
    fn addresses_belong_to_the_function_around_them() {
        let graph = graph(&["a", "b"], &[]);
        assert_eq!([0, 3, 4, 7, 8].map(|at| graph.function_at(at)), [Some(0), Some(0), Some(4), Some(4), None]);
    }
}
