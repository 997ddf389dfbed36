//! The zip archive that packaging tools append to a model, as far as texts in it are concerned.
//!
//! Source: PKWARE's APPNOTE.TXT, sections 4.3.7 (local header), 4.3.12 (central directory) and 4.3.16 (its end).
//! Whatever does not fit is passed over: a model is no worse for an archive that can't be read.

use std::io::Read;

use flate2::read::DeflateDecoder;
use kiln_core::crc::crc32;

/// Entries that are looked at, and bytes that one may have once it is inflated.
const MOST: (usize, u64) = (64, 1 << 20);

const END: &[u8; 4] = b"PK\x05\x06";
const END_BYTES: usize = 22;
/// The end may be followed by a comment of so many bytes.
const COMMENT: usize = 0xFFFF;
const CENTRAL: &[u8; 4] = b"PK\x01\x02";
const CENTRAL_BYTES: usize = 46;
const LOCAL: &[u8; 4] = b"PK\x03\x04";
const LOCAL_BYTES: usize = 30;

/// The texts (`.txt`, UTF-8, at most 1 MiB) in a zip archive at the end of `bytes`, each with its name. What can't be
/// read is left out: only stored and deflated entries are, the first 64 of them, and none that is damaged.
pub fn appended_texts(bytes: &[u8]) -> Vec<(&str, String)> {
    directory(bytes).unwrap_or_default()
}

fn directory(bytes: &[u8]) -> Option<Vec<(&str, String)>> {
    let tail = bytes.len().saturating_sub(END_BYTES + COMMENT);
    let end = tail + bytes.get(tail..)?.windows(END.len()).rposition(|window| window == END)?;
    let record = bytes.get(end..)?.get(..END_BYTES)?;
    let (count, size, offset) = (u16_at(record, 10)?, u32_at(record, 12)?, u32_at(record, 16)?);
    let mut at = end.checked_sub(size)?;
    // Offsets count from the archive's first byte, which may be the model's or lie behind the model.
    let base = at.checked_sub(offset)?;
    let mut texts = Vec::new();
    for _ in 0..count.min(MOST.0) {
        let header = bytes.get(at..)?.get(..CENTRAL_BYTES)?;
        if !header.starts_with(CENTRAL) {
            break;
        }
        let [name, extra, comment] = [28, 30, 32].map(|field| u16_at(header, field).unwrap_or(0));
        let start = at + CENTRAL_BYTES;
        let name = bytes.get(start..start + name)?;
        at = start + name.len() + extra + comment;
        if let Some(text) = std::str::from_utf8(name).ok().filter(|name| name.ends_with(".txt")).and_then(|name| {
            let content = content(bytes.get(base.checked_add(u32_at(header, 42)?)?..)?, header)?;
            Some((name, String::from_utf8(content).ok()?))
        }) {
            texts.push(text);
        }
    }
    Some(texts)
}

/// An entry's bytes, inflated and checked; `entry` begins with its local header.
fn content(entry: &[u8], central: &[u8]) -> Option<Vec<u8>> {
    const ENCRYPTED: usize = 1;
    let local = entry.get(..LOCAL_BYTES).filter(|local| local.starts_with(LOCAL))?;
    let start = LOCAL_BYTES + u16_at(local, 26)? + u16_at(local, 28)?;
    let packed = entry.get(start..)?.get(..u32_at(central, 20)?)?;
    let size = u32_at(central, 24)? as u64;
    if size > MOST.1 || u16_at(central, 8)? & ENCRYPTED != 0 {
        return None;
    }
    let content = match u16_at(central, 10)? {
        0 => packed.to_vec(),
        8 => {
            let mut content = Vec::new();
            // One more than it should have tells that it has more.
            DeflateDecoder::new(packed).take(size + 1).read_to_end(&mut content).ok()?;
            content
        }
        _ => return None,
    };
    let sound = content.len() as u64 == size && crc32(&content) as usize == u32_at(central, 16)?;
    sound.then_some(content)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at..)?.first_chunk().map(|&field| u16::from_le_bytes(field).into())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at..)?.first_chunk().and_then(|&field| u32::from_le_bytes(field).try_into().ok())
}
