//! Numbers of bytes as people write them.

/// What a number of bytes may be given as.
const ACCEPTED: &str = "expected bytes: 65536, 0x10000, 64K or 64KiB (K = 1024), 1M or 1MiB";

/// The bytes that `text` says: a decimal or hexadecimal number, the decimal one with K, M or G, or KiB, MiB
/// or GiB, behind it, each 1024 times the one before.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let bytes = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => number(digits, 16),
        None => {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            let (digits, unit) = text.split_at(end);
            let shift = match unit.trim_start() {
                "" => Some(0),
                "K" | "k" | "KiB" => Some(10),
                "M" | "MiB" => Some(20),
                "G" | "GiB" => Some(30),
                _ => None,
            };
            shift.and_then(|shift| number(digits, 10)?.checked_mul(1 << shift))
        }
    };
    bytes.ok_or_else(|| ACCEPTED.to_owned())
}

/// Digits alone: no sign.
fn number(digits: &str, radix: u32) -> Option<u64> {
    if digits.chars().all(|c| c.is_digit(radix)) { u64::from_str_radix(digits, radix).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65_536),
            ("0x4000", 0x4000),
            ("0XfF", 255),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("64KiB", 64 << 10),
            ("64 KiB", 64 << 10),
            ("1M", 1 << 20),
            ("3MiB", 3 << 20),
            ("2GiB", 2 << 30),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn anything_else_is_told_what_is_accepted() {
        for text in ["", "much", "K", "-1", "+1", "1.5K", "64KB", "64kib", "1 000", "0x", "0x+1", "0x4K", "1T", "é"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("64KiB") && error.contains("0x10000"), "{text}: {error}");
        }
        // More than 64 bits.
        for text in ["18446744073709551616", "17179869184G", "0x10000000000000000"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
