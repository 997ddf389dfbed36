//! Whose the bytes of a firmware's flash are.

use std::collections::BTreeMap;

use kiln_codegen::profile::Profile;
use kiln_codegen::symbols::{Elf, Origin, Section, SectionKind, Symbol};
use kiln_planner::{Planned, PlannedEntry};

use super::json;

/// What no symbol covers: padding, tables and texts between functions.
const UNNAMED: &str = "unnamed";

/// Flash by section, and in each by what the bytes are for. Every byte of a section is in one part.
pub(super) fn flash(planned: &Planned, entry: &PlannedEntry, measured: &Profile) -> json::Flash {
    // The executor calls one body for each step, in order.
    let bodies = entry.steps.iter().zip(&measured.run.steps);
    let parts = Parts { kernels: bodies.map(|(step, call)| (call.address, step.kernel.name)).collect(), planned };
    let elf = &measured.elf;
    let sections = elf.sections.iter().filter(|section| section.kind != SectionKind::Zeroed);
    let sections = sections.map(|section| json::Section {
        name: section.name.clone(),
        bytes: section.bytes,
        parts: parts.of(section, elf),
    });
    json::Flash { total: elf.sizes().flash(), code: elf.kiln_code_bytes(), sections: sections.collect() }
}

struct Parts<'a> {
    /// The bodies of kernels by address.
    kernels: BTreeMap<u64, &'a str>,
    planned: &'a Planned,
}

impl Parts<'_> {
    fn of(&self, section: &Section, elf: &Elf) -> Vec<json::Part> {
        let mut parts: BTreeMap<String, u64> = BTreeMap::new();
        let end = section.address.saturating_add(section.bytes);
        let mut covered = section.address;
        // In address order; where symbols overlap, a byte is the first one's.
        for symbol in elf.symbols.iter().filter(|symbol| (section.address..end).contains(&symbol.address)) {
            let from = symbol.address.max(covered);
            let to = symbol.address.saturating_add(symbol.bytes).min(end).max(from);
            add(&mut parts, UNNAMED, from - covered);
            self.add(&mut parts, section, symbol, to - from);
            covered = to;
        }
        add(&mut parts, UNNAMED, end - covered);
        let mut parts: Vec<json::Part> = parts.into_iter().map(|(name, bytes)| json::Part { name, bytes }).collect();
        parts.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        parts
    }

    /// Adds a symbol's bytes to what they belong to.
    fn add(&self, parts: &mut BTreeMap<String, u64>, section: &Section, symbol: &Symbol, bytes: u64) {
        if symbol.name.ends_with("::PLAN") && section.kind == SectionKind::Constants {
            let constants = self.planned.constants_bytes.min(bytes);
            add(parts, "plan: constants", constants);
            return add(parts, "plan: records", bytes - constants);
        }
        let path = symbol.name.trim_start_matches(['<', '&']);
        let mut segments = path.split("::");
        let part = match (segments.next(), segments.next()) {
            // Vectors have names without a path, as the compiler's own functions do.
            _ if section.name == ".vector_table" || symbol.origin == Origin::Platform => "platform".to_owned(),
            (Some("kiln_kernels"), Some(module)) => match self.kernels.get(&symbol.address) {
                Some(kernel) => format!("kernel: {kernel}"),
                None => format!("kernels, shared: {}", module.split([' ', '>']).next().unwrap_or(module)),
            },
            (Some("kiln_core" | "kiln_device" | "core"), _) => "executor".to_owned(),
            (Some("libm"), _) => "libm".to_owned(),
            // Among constants only linker scripts give names without a path: marks, not things.
            (_, None) if section.kind != SectionKind::Code => UNNAMED.to_owned(),
            _ if symbol.origin == Origin::Builtins => "compiler's run-time library".to_owned(),
            _ => "model's crate".to_owned(),
        };
        add(parts, &part, bytes);
    }
}

fn add(parts: &mut BTreeMap<String, u64>, part: &str, bytes: u64) {
    if bytes > 0 {
        *parts.entry(part.to_owned()).or_default() += bytes;
    }
}
