//! The drives that boot loaders show up as.
//!
//! Source: the UF2 specification, "Files exposed by bootloaders": the drive holds `INFO_UF2.TXT` with a line `Board-ID`, whose
//! first part is the CPU.

use std::fs;
use std::path::{Path, PathBuf};

/// How the boot loaders' boards are called, by the families they take.
const BOARDS: [(&str, &[u32]); 2] = [("RPI-RP2", &[0xe48b_ff56]), ("RP2350", &[0xe48b_ff59, 0xe48b_ff5a, 0xe48b_ff5b])];

/// The mounted drives of boot loaders that take files of this family.
pub(crate) fn mounted(family: u32) -> Vec<PathBuf> {
    found_among(mount_points(), family)
}

fn found_among(mut places: Vec<PathBuf>, family: u32) -> Vec<PathBuf> {
    places.sort();
    places.dedup();
    places.retain(|place| takes(place, family));
    places
}

/// Whether a directory is the drive of a boot loader that takes files of this family.
fn takes(directory: &Path, family: u32) -> bool {
    let Ok(text) = fs::read_to_string(directory.join("INFO_UF2.TXT")) else { return false };
    let mut ids = text.lines().filter_map(|line| line.strip_prefix("Board-ID:")).map(str::trim);
    let Some(id) = ids.next() else { return false };
    BOARDS.iter().any(|(board, families)| id.starts_with(board) && families.contains(&family))
}

/// Where drives may be mounted.
fn mount_points() -> Vec<PathBuf> {
    if cfg!(windows) {
        return ('A'..='Z').map(|letter| PathBuf::from(format!("{letter}:\\"))).collect();
    }
    // Linux lists them all; macOS has them in one directory.
    let listed = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let listed = listed.lines().filter_map(mount_point);
    let volumes = fs::read_dir("/Volumes").into_iter().flatten().flatten().map(|entry| entry.path());
    listed.chain(volumes).collect()
}

/// The directory of a line of `/proc/self/mounts`, for file systems that a boot loader's drive may have. Others are left
/// alone: looking into one that lies on a network can take long.
fn mount_point(line: &str) -> Option<PathBuf> {
    let mut fields = line.split(' ');
    let (place, kind) = (fields.nth(1)?, fields.next()?);
    ["vfat", "msdos", "exfat", "fuseblk"].contains(&kind).then(|| PathBuf::from(unescaped(place)))
}

/// Spaces and the like are written as a backslash and three octal digits.
fn unescaped(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        result.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                result.push(char::from(code));
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                result.push('\\');
                rest = after;
            }
        }
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICO: u32 = 0xe48b_ff56;
    const PICO_2: u32 = 0xe48b_ff59;

    #[test]
    fn drives_are_told_by_the_board_they_name() {
        let folder = tempfile::tempdir().unwrap();
        let drive = |name: &str, text: Option<&str>| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            text.inspect(|text| fs::write(path.join("INFO_UF2.TXT"), text).unwrap());
            path
        };
        let pico = drive("b", Some("UF2 Bootloader v3.0\r\nModel: Raspberry Pi RP2\r\nBoard-ID: RPI-RP2\r\n"));
        let pico_2 = drive("a", Some("UF2 Bootloader v1.0\nModel: Raspberry Pi RP2350\nBoard-ID: RP2350\n"));
        let places = vec![
            drive("c", None),
            pico.clone(),
            drive("d", Some("Board-ID: SAMD21G18A-Zero-v0\n")),
            drive("e", Some("Model: RPI-RP2")),
            pico_2.clone(),
            pico.clone(),
            folder.path().join("gone"),
        ];
        assert_eq!(found_among(places.clone(), PICO), [pico]);
        assert_eq!(found_among(places.clone(), PICO_2), [pico_2]);
        assert_eq!(found_among(places, 7), [] as [PathBuf; 0]);
    }

    #[test]
    fn mount_points_are_read_from_the_systems_list() {
        let line = r"/dev/sdb1 /media/me/RPI\040RP2 vfat rw,nosuid 0 0";
        assert_eq!(mount_point(line), Some(PathBuf::from("/media/me/RPI RP2")));
        assert_eq!(mount_point("server:/x /mnt nfs rw 0 0"), None);
        assert_eq!(mount_point("one"), None);
        assert_eq!(unescaped(r"a\134b\9\"), r"a\b\9\");
    }
}
