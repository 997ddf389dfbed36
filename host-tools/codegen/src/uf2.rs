//! UF2: the file a boot loader takes that shows up as a drive.
//!
//! Source: Microsoft's specification, <https://github.com/microsoft/uf2>. A file is a row of blocks of 512 bytes; each
//! carries 256 bytes for an address of flash and says how many blocks there are. All numbers are little-endian.

use std::collections::BTreeMap;

use crate::image::Segment;

/// Bytes of a block.
pub const BLOCK: usize = 512;

/// Bytes of flash a block carries: a page of the flash chips that boot loaders write.
pub const PAYLOAD: usize = 256;

/// Bytes of flash that are erased at once.
const SECTOR: u32 = 4096;

const MAGIC: [u32; 2] = [0x0A32_4655, 0x9E5D_5157];
const LAST_MAGIC: u32 = 0x0AB1_6F30;

/// The flag of blocks that carry a family number.
const FAMILY: u32 = 0x2000;

/// Where data begins in a block, and how much there may be.
const DATA: usize = 32;
const DATA_BYTES: usize = 476;

/// The families of the RP2350: Arm secure, RISC-V, Arm non-secure.
const RP2350: [u32; 3] = [0xe48b_ff59, 0xe48b_ff5a, 0xe48b_ff5b];

/// The family that any RP2350 takes, whatever partition it is for.
const RP2350_ABSOLUTE: u32 = 0xe48b_ff57;

/// The last page of the RP2350's flash window.
const RP2350_LAST_PAGE: u32 = 0x10ff_ff00;

/// An image that can't be a UF2 file, or bytes that are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Uf2Error {
    /// Nothing to write.
    #[error("the firmware has no bytes for flash")]
    Empty,
    /// A byte beyond the addresses a block can name.
    #[error("the firmware has bytes at 0x{0:x}, beyond the 32-bit addresses of UF2")]
    Address(u64),
    /// Two segments claim one address.
    #[error("two segments of the firmware claim address 0x{0:08x}")]
    Overlap(u64),
    /// The file is no row of whole blocks.
    #[error("a UF2 file of {0} bytes: expected a multiple of 512, and one block at least")]
    Length(usize),
    /// A field of a block is wrong.
    #[error("block {block} of the UF2 file: its {field} is 0x{found:x}, expected {expected}")]
    Field {
        /// Which block, from 0.
        block: usize,
        /// Which field.
        field: &'static str,
        /// What it holds.
        found: u32,
        /// What it should hold.
        expected: &'static str,
    },
}

/// One block that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The family number.
    pub family: u32,
    /// The address of its first byte.
    pub address: u32,
    /// Its number, from 0.
    pub number: u32,
    /// How many blocks it belongs to.
    pub count: u32,
    /// The bytes it carries.
    pub bytes: Vec<u8>,
}

/// The UF2 file that writes `segments`, for boot loaders of one family.
///
/// Pages that a sector lacks up to the last page are written too, as erased flash: the RP2040's boot loader erases by
/// counting blocks, not by addresses. For the RP2350 one more block comes first, of the absolute family: without, errata
/// RP2350-E10 has the boot loader lose one.
///
/// # Errors
///
/// [`Uf2Error`].
pub fn encode(segments: &[Segment], family: u32) -> Result<Vec<u8>, Uf2Error> {
    let pages = pages(segments)?;
    let mut file = Vec::new();
    if RP2350.contains(&family) {
        file.extend(block(RP2350_ABSOLUTE, RP2350_LAST_PAGE, 0, 2, &[0xef; PAYLOAD]));
    }
    // At most one block for each 256 of 2^32 addresses.
    let count = pages.len() as u32;
    for (number, (address, page)) in (0u32..).zip(&pages) {
        file.extend(block(family, *address, number, count, page));
    }
    Ok(file)
}

/// The pages that segments touch, with what lies between them in a sector.
fn pages(segments: &[Segment]) -> Result<BTreeMap<u32, [u8; PAYLOAD]>, Uf2Error> {
    let mut pages = BTreeMap::new();
    let mut sorted: Vec<&Segment> = segments.iter().filter(|segment| !segment.bytes.is_empty()).collect();
    sorted.sort_by_key(|segment| segment.address);
    let mut end = 0;
    for segment in sorted {
        if segment.address < end {
            return Err(Uf2Error::Overlap(segment.address));
        }
        for (address, &byte) in (segment.address..).zip(&segment.bytes) {
            let address = u32::try_from(address).map_err(|_| Uf2Error::Address(address))?;
            let offset = address as usize % PAYLOAD;
            let page = pages.entry(address - offset as u32).or_insert([0xff; PAYLOAD]);
            page[offset] = byte;
        }
        end = segment.address + segment.bytes.len() as u64;
    }
    let last = *pages.keys().next_back().ok_or(Uf2Error::Empty)?;
    let touched: Vec<u32> = pages.keys().map(|address| address - address % SECTOR).collect();
    for sector in touched {
        for page in (sector..=last.min(sector + (SECTOR - 1))).step_by(PAYLOAD) {
            pages.entry(page).or_insert([0xff; PAYLOAD]);
        }
    }
    Ok(pages)
}

fn block(family: u32, address: u32, number: u32, count: u32, bytes: &[u8; PAYLOAD]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let head = [MAGIC[0], MAGIC[1], FAMILY, address, PAYLOAD as u32, number, count, family];
    for (to, word) in block.chunks_exact_mut(4).zip(head) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    block[DATA..DATA + PAYLOAD].copy_from_slice(bytes);
    block[BLOCK - 4..].copy_from_slice(&LAST_MAGIC.to_le_bytes());
    block
}

/// The blocks of a UF2 file whose blocks carry families.
///
/// # Errors
///
/// [`Uf2Error::Length`] and [`Uf2Error::Field`].
pub fn decode(file: &[u8]) -> Result<Vec<Block>, Uf2Error> {
    if file.is_empty() || !file.len().is_multiple_of(BLOCK) {
        return Err(Uf2Error::Length(file.len()));
    }
    file.chunks_exact(BLOCK).enumerate().map(|(index, bytes)| decode_block(index, bytes)).collect()
}

fn decode_block(index: usize, bytes: &[u8]) -> Result<Block, Uf2Error> {
    let word = |at: usize| bytes.get(at..at + 4).map_or(0, |b| b.iter().rev().fold(0, |w, &b| w << 8 | u32::from(b)));
    let wrong = |field, at, expected| Uf2Error::Field { block: index, field, found: word(at), expected };
    if word(0) != MAGIC[0] {
        return Err(wrong("first magic number", 0, "0xa324655"));
    }
    if word(4) != MAGIC[1] {
        return Err(wrong("second magic number", 4, "0x9e5d5157"));
    }
    if word(BLOCK - 4) != LAST_MAGIC {
        return Err(wrong("last magic number", BLOCK - 4, "0xab16f30"));
    }
    if word(8) & FAMILY == 0 {
        return Err(wrong("flags", 8, "0x2000 among them, a family"));
    }
    let length = word(16) as usize;
    if length > DATA_BYTES {
        return Err(wrong("payload size", 16, "at most 476"));
    }
    if word(20) >= word(24) {
        return Err(wrong("number", 20, "less than the number of blocks"));
    }
    Ok(Block {
        family: word(28),
        address: word(12),
        number: word(20),
        count: word(24),
        bytes: bytes[DATA..DATA + length].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICO: u32 = 0xe48b_ff56;

    fn segment(address: u64, bytes: &[u8]) -> Segment {
        Segment { address, bytes: bytes.to_vec() }
    }

    #[test]
    fn a_block_is_as_the_specification_draws_it() {
        let file = encode(&[segment(0x1000_0000, &[1, 2, 3])], PICO).unwrap();
        assert_eq!(file.len(), 512);
        assert_eq!(&file[..8], b"UF2\nWQ]\x9e");
        let fields = [
            [0x00, 0x20, 0x00, 0x00],
            [0x00, 0x00, 0x00, 0x10],
            [0x00, 0x01, 0x00, 0x00],
            [0; 4],
            [1, 0, 0, 0],
            [0x56, 0xff, 0x8b, 0xe4],
        ];
        assert_eq!(&file[8..32], fields.concat());
        assert_eq!(&file[32..36], [1, 2, 3, 0xff]);
        assert!(file[288..508].iter().all(|&b| b == 0), "nothing behind the payload");
        assert_eq!(&file[508..], [0x30, 0x6f, 0xb1, 0x0a]);
    }

    #[test]
    fn what_is_written_is_read_back_at_odd_sizes_and_addresses() {
        for (address, length) in [(0x1000_0000, 256), (0x1000_00ff, 2), (0x1000_0fff, 4099), (0x1fff_ff01, 255), (0, 1)]
        {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 7 + 1) as u8).collect();
            let blocks = decode(&encode(&[segment(address, &bytes)], PICO).unwrap()).unwrap();
            let mut memory = BTreeMap::new();
            for (index, block) in blocks.iter().enumerate() {
                assert_eq!((block.family, block.number, block.count), (PICO, index as u32, blocks.len() as u32));
                assert!(block.address.is_multiple_of(256) && block.bytes.len() == 256);
                memory.extend((u64::from(block.address)..).zip(block.bytes.iter().copied()));
            }
            for (at, &byte) in (address..).zip(&bytes) {
                assert_eq!(memory.remove(&at), Some(byte), "0x{at:x}");
            }
            assert!(memory.values().all(|&byte| byte == 0xff), "the rest is as erased flash");
        }
    }

    #[test]
    fn a_sector_has_all_its_pages_up_to_the_last() {
        let segments = [segment(0x1000_0000, &[1]), segment(0x1000_0300, &[2]), segment(0x1000_5000, &[3])];
        let blocks = decode(&encode(&segments, PICO).unwrap()).unwrap();
        let addresses: Vec<u32> = blocks.iter().map(|block| block.address).collect();
        let first = (0x1000_0000..0x1000_1000).step_by(256);
        assert_eq!(addresses, first.chain([0x1000_5000]).collect::<Vec<u32>>());
    }

    #[test]
    fn the_rp2350_gets_its_absolute_block_first() {
        for family in RP2350 {
            let blocks = decode(&encode(&[segment(0x1000_0000, &[1])], family).unwrap()).unwrap();
            let [absolute, block] = &blocks[..] else { panic!("{blocks:?}") };
            assert_eq!(
                (absolute.family, absolute.address, absolute.number, absolute.count),
                (0xe48b_ff57, 0x10ff_ff00, 0, 2)
            );
            assert_eq!(absolute.bytes, [0xef; 256]);
            assert_eq!((block.family, block.number, block.count), (family, 0, 1));
        }
    }

    #[test]
    fn images_that_can_not_be_are_refused() {
        assert_eq!(encode(&[], PICO), Err(Uf2Error::Empty));
        assert_eq!(encode(&[segment(5, &[])], PICO), Err(Uf2Error::Empty));
        let twice = [segment(0x1000_0000, &[0; 9]), segment(0x1000_0008, &[0])];
        assert_eq!(encode(&twice, PICO), Err(Uf2Error::Overlap(0x1000_0008)));
        assert_eq!(encode(&[segment(0xffff_ffff, &[0; 2])], PICO), Err(Uf2Error::Address(0x1_0000_0000)));
        assert!(encode(&[segment(0xffff_ffff, &[0])], PICO).is_ok());
    }

    #[test]
    fn files_that_are_none_are_refused_by_the_field() {
        let good = encode(&[segment(0x1000_0000, &[1])], PICO).unwrap();
        assert_eq!(decode(&[]), Err(Uf2Error::Length(0)));
        assert_eq!(decode(&good[..511]), Err(Uf2Error::Length(511)));
        for (at, field) in [(0, "first"), (4, "second"), (9, "flags"), (18, "payload"), (20, "number"), (511, "last")] {
            let mut bad = good.clone();
            bad[at] ^= 0x21;
            let message = decode(&bad).unwrap_err().to_string();
            assert!(message.contains("block 0") && message.contains(field), "{message}");
        }
    }
}
