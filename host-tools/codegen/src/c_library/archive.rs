//! Takes out of a static library what a program needs of it.
//!
//! rustc puts the whole compiler run-time library into every static library: some 480 members and 5 MB, for the dozen
//! functions that are used. What is kept is the member with the model's functions and those it refers to.

use std::collections::{BTreeSet, HashMap};

use ar_archive_writer::{ArchiveKind, DEFAULT_OBJECT_READER, NewArchiveMember, write_archive_to_stream};
use object::read::archive::ArchiveFile;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SymbolSection, read};
use rustc_demangle::demangle;

use crate::forbidden::{Forbidden, reason};

/// A static library that is not as it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The compiler wrote no ELF files.
    #[error(
        "libraries for C are made of ELF files only, which the compiler does not write for this target; give the board \
             of a microcontroller or of Linux"
    )]
    NotElf,
    /// It could not be read.
    #[error("it can't be read: {0}")]
    Read(#[from] read::Error),
    /// It could not be written.
    #[error("it can't be put together: {0}")]
    Write(std::io::Error),
    /// The model's functions are not in it.
    #[error("there is no `{0}` in it; this is a defect of Kiln: report it")]
    Missing(String),
    /// It could allocate or panic.
    #[error("it could allocate or panic, which none of Kiln's may; report this. It contains:{}", list(.0))]
    Forbidden(Vec<Forbidden>),
    /// A global symbol could clash with another library's.
    #[error("its global symbol `{0}` could clash with another library's; this is a defect of Kiln: report it")]
    Foreign(String),
}

fn list(forbidden: &[Forbidden]) -> String {
    forbidden.iter().map(|f| format!("\n  {f}")).collect()
}

/// Bytes and alignment of a model in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub bytes: u32,
    pub align: u32,
}

/// A library with what is needed.
pub(super) struct Reduced {
    pub library: Vec<u8>,
    pub layout: Layout,
}

/// A member: an object file.
struct Member<'a> {
    name: String,
    bytes: &'a [u8],
    object: object::File<'a>,
}

/// Reduces the library of the model called `name`, after checking it.
pub(super) fn reduce(archive: &[u8], name: &str) -> Result<Reduced, ArchiveError> {
    let members = members(archive)?;
    let mut defined: HashMap<&str, usize> = HashMap::new();
    for (index, member) in members.iter().enumerate() {
        for symbol in member.object.symbols().filter(|s| s.is_global() && s.is_definition()) {
            defined.entry(symbol.name()?).or_insert(index);
        }
    }
    let layout_symbol = format!("{name}_layout");
    let &main = defined.get(layout_symbol.as_str()).ok_or_else(|| ArchiveError::Missing(layout_symbol.clone()))?;
    let prefix = format!("{name}_");
    let global = |s: &object::Symbol<'_, '_>| s.is_global() && s.is_definition();
    for symbol in members[main].object.symbols().filter(global) {
        let symbol = symbol.name()?;
        if !symbol.starts_with(&prefix) {
            return Err(ArchiveError::Foreign(symbol.to_owned()));
        }
    }

    let (mut kept, mut waiting, mut forbidden) = (BTreeSet::new(), vec![main], BTreeSet::new());
    while let Some(index) = waiting.pop() {
        if !kept.insert(index) {
            continue;
        }
        for symbol in members[index].object.symbols() {
            let raw = symbol.name()?;
            let name = format!("{:#}", demangle(raw));
            forbidden.extend(reason(&name).map(|reason| Forbidden { reason, name: name.clone() }));
            if symbol.is_undefined() {
                waiting.extend(defined.get(raw));
            }
        }
    }
    if !forbidden.is_empty() {
        return Err(ArchiveError::Forbidden(forbidden.into_iter().collect()));
    }
    let layout = layout(&members[main].object, &layout_symbol)?;
    Ok(Reduced { library: write(kept.iter().map(|&index| &members[index]))?, layout })
}

fn members(archive: &[u8]) -> Result<Vec<Member<'_>>, ArchiveError> {
    let mut members = Vec::new();
    for member in ArchiveFile::parse(archive)?.members() {
        let member = member?;
        let bytes = member.data(archive)?;
        if !bytes.starts_with(b"\x7fELF") {
            return Err(ArchiveError::NotElf);
        }
        let name = String::from_utf8_lossy(member.name()).into_owned();
        members.push(Member { name, bytes, object: object::File::parse(bytes)? });
    }
    Ok(members)
}

/// Reads the two numbers at a symbol.
fn layout(object: &object::File<'_>, name: &str) -> Result<Layout, ArchiveError> {
    let missing = || ArchiveError::Missing(name.to_owned());
    let symbol = object.symbols().find(|symbol| symbol.name() == Ok(name)).ok_or_else(missing)?;
    let SymbolSection::Section(section) = symbol.section() else { return Err(missing()) };
    let section = object.section_by_index(section)?;
    let data = section.data_range(section.address() + symbol.address(), 8)?.ok_or_else(missing)?;
    let word = |at: usize| data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(missing);
    let number = |bytes: [u8; 4]| match object.endianness() {
        Endianness::Little => u32::from_le_bytes(bytes),
        Endianness::Big => u32::from_be_bytes(bytes),
    };
    Ok(Layout { bytes: number(word(0)?), align: number(word(4)?) })
}

/// An archive with an index, the same for the same members.
fn write<'a>(members: impl Iterator<Item = &'a Member<'a>>) -> Result<Vec<u8>, ArchiveError> {
    let members: Vec<NewArchiveMember<'_>> = members
        .map(|member| NewArchiveMember::new(member.bytes, &DEFAULT_OBJECT_READER, member.name.clone()))
        .collect();
    let mut library = std::io::Cursor::new(Vec::new());
    write_archive_to_stream(&mut library, &members, ArchiveKind::Gnu, false, None).map_err(ArchiveError::Write)?;
    Ok(library.into_inner())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A library like those that are generated, with these functions in it.
    fn library(functions: &str) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let source = format!(
            "#![no_std]\n#[panic_handler]\nfn panic(_: &core::panic::PanicInfo<'_>) -> ! {{ loop {{}} }}\n\
             #[unsafe(no_mangle)]\nstatic kws_layout: [u32; 2] = [180, 4];\n{functions}"
        );
        std::fs::write(directory.path().join("lib.rs"), source).unwrap();
        let mut rustc = Command::new("rustc");
        rustc.current_dir(directory.path()).args(["--edition", "2024", "--crate-type", "staticlib", "lib.rs"]);
        let output = rustc.args(["-Cpanic=abort", "-Copt-level=s", "-Clto=fat", "-Ccodegen-units=1"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read(directory.path().join("liblib.a")).unwrap()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_library_is_reduced_to_what_is_used() {
        let whole = library("#[unsafe(no_mangle)]\nextern \"C\" fn kws_third(a: u128) -> u128 { a / 3 }\n");
        let Reduced { library, layout } = reduce(&whole, "kws").unwrap();
        assert_eq!(layout, Layout { bytes: 180, align: 4 });
        let names: Vec<Vec<u8>> =
            ArchiveFile::parse(&library[..]).unwrap().members().map(|member| member.unwrap().name().to_vec()).collect();
        assert!((2..10).contains(&names.len()), "{names:?}");
        assert!(library.len() < whole.len() / 10, "{} of {} bytes", library.len(), whole.len());
        let members = members(&library).unwrap();
        let symbols = members.iter().flat_map(|member| member.object.symbols());
        let defined: Vec<&str> = symbols.filter(|s| s.is_definition()).filter_map(|s| s.name().ok()).collect();
        assert!(defined.contains(&"kws_third") && defined.contains(&"__udivti3"), "{defined:?}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_could_panic_or_clash_is_refused() {
        let panics = library("#[unsafe(no_mangle)]\nextern \"C\" fn kws_get(i: usize) -> u8 { [1, 2, 3][i] }\n");
        let message = reduce(&panics, "kws").err().unwrap().to_string();
        assert!(message.contains("could allocate or panic") && message.contains("panic_bounds_check"), "{message}");
        let foreign = library("#[unsafe(no_mangle)]\nextern \"C\" fn other() -> u8 { 1 }\n");
        assert!(reduce(&foreign, "kws").is_err_and(|error| error.to_string().contains("`other` could clash")));
        let message = reduce(&foreign, "vww").err().unwrap().to_string();
        assert!(message.contains("there is no `vww_layout`"), "{message}");
        assert!(matches!(reduce(b"!<arch>\n", "kws"), Err(ArchiveError::Missing(_))));
        assert!(matches!(reduce(b"no archive", "kws"), Err(ArchiveError::Read(_))));
    }
}
