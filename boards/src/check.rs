//! What must hold between the fields of a board.

use crate::{Board, IsaFamily, IsaFeature, MemoryKind, MemoryRegion, Place, Run, host};

/// Bits that CPUs of a family address memory with.
fn address_bits(family: IsaFamily) -> u32 {
    match family {
        // The most that Armv8-A and x86-64 have in physical addresses.
        IsaFamily::Aarch64 | IsaFamily::X86_64 => 52,
        _ => 32,
    }
}

/// The first field that is wrong, with a sentence about it that follows the field's name.
pub(crate) fn problem(board: &Board) -> Option<(String, String)> {
    [name, isa, target, clock, memory, run, firmware, cycles].iter().find_map(|check| check(board))
}

fn found(field: impl Into<String>, problem: impl Into<String>) -> Option<(String, String)> {
    Some((field.into(), problem.into()))
}

fn name(board: &Board) -> Option<(String, String)> {
    plain("name", &board.name)
}

/// A name that may be part of a path.
fn plain(field: &str, name: &str) -> Option<(String, String)> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(allowed) {
        return found(field, format!("is `{}`: expected lower-case letters, digits, `-` and `_`", name.escape_debug()));
    }
    None
}

/// Words of board files, for messages.
fn words<T: std::fmt::Display>(list: &[T]) -> String {
    list.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn firmware(board: &Board) -> Option<(String, String)> {
    let krate = board.firmware.as_ref()?;
    if board.run.place() != Place::Real {
        return found("firmware", "is for real boards only: for this one Kiln writes firmware by itself");
    }
    plain("firmware.crate", &krate.name)
}

/// The most that an estimate of time may be off: beyond three times as long it says nothing.
const MAX_ERROR: f64 = 2.0;

fn cycles(board: &Board) -> Option<(String, String)> {
    let cycles = board.cycles.as_ref()?;
    if board.run.place() != Place::Real {
        let kind = board.run.kind();
        return found(
            "cycles",
            format!("is for real boards only: with run.kind `{kind}` no clock counts; leave it out"),
        );
    }
    if !(cycles.per_instruction.is_finite() && cycles.per_instruction > 0.0) {
        let value = cycles.per_instruction;
        return found("cycles.per_instruction", format!("is {value}: expected a number above 0"));
    }
    if !(0.0..=MAX_ERROR).contains(&cycles.error) {
        let value = cycles.error;
        return found("cycles.error", format!("is {value}: expected a fraction from 0 to {MAX_ERROR}, 0.4 for 40 %"));
    }
    if cycles.source.trim().is_empty() {
        return found("cycles.source", "is empty: expected what the figures are taken from");
    }
    None
}

fn isa(board: &Board) -> Option<(String, String)> {
    if board.isa.family == IsaFamily::Portable && !board.is_host() {
        return found("isa.family", "is `portable`, which is for the host board only: expected the CPU's own family");
    }
    if board.is_host() && board.isa.family != host::isa().family {
        let family = board.isa.family;
        return found("isa.family", format!("is `{family}`, but run.kind `host` is this computer: leave it out"));
    }
    if board.has_system() && board.isa.family.is_cortex_m() {
        let (kind, family) = (board.run.kind(), board.isa.family);
        let expected = "expected a kind for firmware, such as `probe-rs`";
        return found("run.kind", format!("is `{kind}`, but {family} CPUs run no Linux: {expected}"));
    }
    let possible = board.isa.family.possible_features();
    for (i, feature) in board.isa.features.iter().enumerate() {
        if board.isa.features.iter().skip(i + 1).any(|f| f == feature) {
            return found("isa.features", format!("names `{feature}` twice"));
        }
        if !possible.contains(feature) {
            let family = board.isa.family;
            let expected = match possible {
                [] => "expected none".to_owned(),
                _ => format!("expected some of {}", words(possible)),
            };
            return found("isa.features", format!("has `{feature}`, which {family} CPUs cannot have: {expected}"));
        }
    }
    None
}

fn target(board: &Board) -> Option<(String, String)> {
    let prefix = board.isa.family.triple_prefix();
    if !board.target.starts_with(prefix) {
        return found(
            "target",
            format!(
                "is `{}`, which does not match isa.family: expected a triple beginning with `{prefix}`",
                board.target.escape_debug()
            ),
        );
    }
    let (kind, written) = (board.run.kind(), board.target.escape_debug());
    let problem = if board.is_host() {
        let wrong = board.target != host::TARGET;
        wrong.then(|| format!("is `{written}`, but run.kind `{kind}` is this computer: leave it out"))
    } else if board.has_system() {
        let wrong = !board.target.contains("-linux-");
        wrong.then(|| {
            format!("is `{written}`, but run.kind `{kind}` runs Linux programs: expected a triple with `-linux-`")
        })
    } else {
        let wrong = !board.target.split('-').any(|part| part == "none");
        wrong.then(|| format!("is `{written}`, but run.kind `{kind}` runs firmware: expected a triple with `-none`"))
    };
    if let Some(problem) = problem {
        return found("target", problem);
    }
    if board.target.ends_with("eabihf") && !board.isa.has(IsaFeature::Fpu) {
        return found(
            "target",
            "passes floats in FPU registers, but isa.features has no `fpu`: \
             expected a triple ending in `eabi`",
        );
    }
    None
}

fn clock(board: &Board) -> Option<(String, String)> {
    if board.clock_hz == Some(0) {
        return found("clock_hz", "is 0: expected the CPU clock in Hz");
    }
    None
}

fn memory(board: &Board) -> Option<(String, String)> {
    if board.is_host() {
        return match board.memory.is_empty() {
            true => None,
            false => {
                found("memory", "has regions, but this computer's memory is not planned by region: leave them out")
            }
        };
    }
    let needed: &[MemoryKind] =
        if board.has_system() { &[MemoryKind::Ram] } else { &[MemoryKind::Flash, MemoryKind::Ram] };
    for &kind in needed {
        if board.regions(kind).next().is_none() {
            return found("memory", format!("has no region of kind `{kind}`: expected at least one"));
        }
    }
    if board.has_system()
        && let Some(flash) = board.regions(MemoryKind::Flash).next()
    {
        return found(
            "memory",
            format!(
                "has the region {} of kind `flash`, but programs of run.kind `{}` lie in RAM: leave it out",
                flash.name.escape_debug(),
                board.run.kind()
            ),
        );
    }
    for (i, region) in board.memory.iter().enumerate() {
        if let Some(problem) = region_problem(region, address_bits(board.isa.family)) {
            return Some(problem);
        }
        // Start-up code calls the main regions FLASH and RAM, so no other region may.
        for (reserved, kind) in [("FLASH", MemoryKind::Flash), ("RAM", MemoryKind::Ram)] {
            let is_main = board.regions(kind).next() == Some(region);
            if region.name == reserved && !is_main {
                return found("memory", format!("calls a region {reserved} that is not the first of kind `{kind}`"));
            }
        }
        for other in board.memory.iter().skip(i + 1) {
            if region.name == other.name {
                return found("memory", format!("has two regions called {}", region.name.escape_debug()));
            }
            if region.start < other.end() && other.start < region.end() {
                return found(
                    "memory",
                    format!(
                        "regions {} (0x{:08x} to 0x{:08x}) and {} (0x{:08x} to 0x{:08x}) overlap",
                        region.name,
                        region.start,
                        region.end(),
                        other.name,
                        other.start,
                        other.end()
                    ),
                );
            }
        }
    }
    None
}

fn region_problem(region: &MemoryRegion, address_bits: u32) -> Option<(String, String)> {
    // The name goes into linker scripts, and `[run]` tools may be given it as well.
    let mut characters = region.name.chars();
    let good = characters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !good {
        return found(
            "memory.name",
            format!("is `{}`: expected a letter, then letters, digits and `_`", region.name.escape_debug()),
        );
    }
    let field = |name: &str| format!("memory.{}.{name}", region.name);
    if region.bytes == 0 {
        return found(field("bytes"), "is 0: expected the region's size in bytes");
    }
    let space = 1u64 << address_bits;
    if region.start >= space || region.bytes > space - region.start {
        return found(
            field("bytes"),
            format!(
                "is {}: the region starts at 0x{:x} and must end within the {address_bits}-bit address space",
                region.bytes, region.start
            ),
        );
    }
    // Linker scripts place vector tables and stacks at these addresses.
    if !region.start.is_multiple_of(8) || !region.bytes.is_multiple_of(8) {
        return found(field("start"), "and `bytes` must be multiples of 8, which the stack needs");
    }
    None
}

fn run(board: &Board) -> Option<(String, String)> {
    let fields: &[(&str, &str)] = match &board.run {
        Run::Qemu { binary, machine, .. } => &[("binary", binary), ("machine", machine)],
        Run::QemuUser { binary, sysroot } => &[("binary", binary), ("sysroot", sysroot)],
        Run::ProbeRs { chip } | Run::Espflash { chip } => &[("chip", chip)],
        Run::Uf2 { family } => &[("family", family)],
        Run::Host {} | Run::Bossac {} | Run::Linux {} => &[],
    };
    for (field, text) in fields {
        if text.trim().is_empty() {
            return found(format!("run.{field}"), "is empty");
        }
    }
    if let Run::Uf2 { family } = &board.run
        && board.run.uf2_family().is_none()
    {
        let family = family.escape_debug();
        return found(
            "run.family",
            format!("is `{family}`: expected a hexadecimal number like `0xe48bff56`, of at most 32 bits"),
        );
    }
    None
}
