//! What of an ELF file is written to flash.

use std::path::Path;

use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf, read};

use crate::symbols::SymbolsError;

/// Bytes that are loaded to consecutive addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where the first byte is kept: for variables with initial values their place in flash.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The segments of the ELF file at `path` that hold bytes, in the file's order.
///
/// # Errors
///
/// [`SymbolsError::Read`] and [`SymbolsError::NotElf`].
pub fn segments(path: &Path) -> Result<Vec<Segment>, SymbolsError> {
    let bytes = std::fs::read(path).map_err(|source| SymbolsError::Read { path: path.to_owned(), source })?;
    let segments = parse(&bytes).map_err(|source| SymbolsError::NotElf { path: path.to_owned(), source })?;
    segments.map_err(|address| SymbolsError::CutOff { path: path.to_owned(), address })
}

/// The segments, or the address of one whose bytes are not in the file.
type Loaded = Result<Vec<Segment>, u64>;

fn parse(bytes: &[u8]) -> Result<Loaded, read::Error> {
    match read::FileKind::parse(bytes)? {
        read::FileKind::Elf32 => loaded::<elf::FileHeader32<Endianness>>(bytes),
        _ => loaded::<elf::FileHeader64<Endianness>>(bytes),
    }
}

fn loaded<H: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Result<Loaded, read::Error> {
    let header = H::parse(bytes)?;
    let endian = header.endian()?;
    let mut segments = Vec::new();
    for segment in header.program_headers(endian, bytes)? {
        let address = segment.p_paddr(endian).into();
        let Ok(data) = segment.data(endian, bytes) else { return Ok(Err(address)) };
        if segment.p_type(endian) == elf::PT_LOAD && !data.is_empty() {
            segments.push(Segment { address, bytes: data.to_vec() });
        }
    }
    Ok(Ok(segments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_elf_file_is_refused() {
        for bytes in [&b""[..], b"\x7fELF", b"\x7fELF\x01\x01\x01 and then nothing that makes sense"] {
            assert!(parse(bytes).is_err());
        }
    }
}
