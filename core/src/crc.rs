//! CRC-32 (ISO-HDLC, the one of zlib and PNG: reflected polynomial 0xEDB88320).
//!
//! A table of 16 words takes 64 bytes of flash; a whole plan is read once, at load.

const fn nibbles() -> [u32; 16] {
    let mut table = [0u32; 16];
    let mut i = 0;
    while i < 16 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 4 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

static TABLE: [u32; 16] = nibbles();

/// The checksum before any byte.
pub const START: u32 = 0xFFFF_FFFF;

/// Continues a checksum over `bytes`.
pub fn update(mut crc: u32, bytes: &[u8]) -> u32 {
    for &byte in bytes {
        crc ^= byte as u32;
        // Masked to four bits, so the index is always inside the table.
        crc = (crc >> 4) ^ TABLE[(crc & 15) as usize];
        crc = (crc >> 4) ^ TABLE[(crc & 15) as usize];
    }
    crc
}

/// Ends a checksum.
pub fn finish(crc: u32) -> u32 {
    !crc
}

/// The checksum of one piece.
pub fn crc32(bytes: &[u8]) -> u32 {
    finish(update(START, bytes))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(super::crc32(b"123456789"), 0xCBF4_3926);
    }
}
