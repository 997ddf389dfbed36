//! Whose the code of a linked image is: what each kernel brings, what kernels share, and the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::stack::{CallGraph, StackError};
use crate::symbols::{Elf, Origin};

/// The code of an image, divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Bytes of all code but the platform's.
    pub total: u64,
    /// Bytes that no kernel adds: the executor, the model's crate, and the run-time library's part for them.
    pub base: u64,
    /// What several kernels use: name and bytes. Names that come again get a number.
    pub shared: Vec<(String, u64)>,
    /// What each kernel brings, in the order in which the model's crate lists them.
    pub rows: Vec<RowCode>,
}

/// The code of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowCode {
    /// Bytes of functions that only this kernel uses.
    pub bytes: u64,
    /// Which of [`Code::shared`] it uses too.
    pub shared: Vec<usize>,
}

impl Code {
    /// Divides the code of an image of replay firmware.
    ///
    /// # Errors
    ///
    /// The file can't be read, or its calls can't be told.
    pub fn read(path: &Path) -> Result<Self, StackError> {
        let elf = Elf::read(path)?;
        let graph = CallGraph::read(path)?;
        let mut base = graph.reached(&graph.roots())?;
        // What the platform brings is no kernel's either.
        base.extend(elf.symbols.iter().filter(|s| s.origin == Origin::Platform).map(|s| s.address));
        let mut rows: Vec<BTreeSet<u64>> = Vec::new();
        for functions in graph.rows() {
            rows.push(graph.reached(&functions)?.difference(&base).copied().collect());
        }
        let users = |function: u64| rows.iter().filter(|row| row.contains(&function)).count();
        let all: BTreeSet<u64> = rows.iter().flatten().copied().collect();
        let shared: Vec<u64> = all.iter().copied().filter(|&function| users(function) > 1).collect();
        let bytes = |function: u64| graph.function(function).map_or(0, |(_, bytes)| bytes);
        let own = |row: &BTreeSet<u64>| RowCode {
            bytes: row.iter().filter(|function| !shared.contains(function)).map(|&function| bytes(function)).sum(),
            shared: (0..shared.len()).filter(|&index| row.contains(&shared[index])).collect(),
        };
        let total = elf.kiln_code_bytes();
        Ok(Self {
            total,
            base: total.saturating_sub(all.iter().map(|&function| bytes(function)).sum()),
            rows: rows.iter().map(own).collect(),
            shared: names(shared.iter().filter_map(|&function| graph.function(function))),
        })
    }
}

/// Makes names unique.
fn names<'a>(functions: impl Iterator<Item = (&'a str, u64)>) -> Vec<(String, u64)> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let unique = functions.map(|(name, bytes)| {
        let times = seen.entry(name).or_default();
        *times += 1;
        (if *times == 1 { name.to_owned() } else { format!("{name} #{times}") }, bytes)
    });
    unique.collect()
}
