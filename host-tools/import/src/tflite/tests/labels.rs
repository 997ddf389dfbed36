//! Labels in an archive behind a model, and archives that are none.

use super::draft::{BufferDraft, Draft};
use crate::import_tflite;

/// Written by Python's `zipfile`: labels.txt, deflated, with the lines "left", "middle middle middle middle" and
/// "right"; notes.md, stored, with three lines.
const ARCHIVE: &[u8] =
    b"PK\x03\x04\x14\0\0\0\x08\0\0\0!X\x04J\xd9q\x17\0\0\0'\0\0\0\n\0\0\0labels.txt\xcbIM+\xe1\xca\xcdLI\
    \xc9IU\xc0Fq\x15e\xa6g\x94p\x01\0PK\x03\x04\x14\0\0\0\0\0\0\0!X\xd9\x0eg\n\x06\0\0\0\x06\0\0\0\x08\0\
    \0\0notes.mda\nb\nc\nPK\x01\x02\x14\x03\x14\0\0\0\x08\0\0\0!X\x04J\xd9q\x17\0\0\0'\0\0\0\n\0\0\0\0\0\
    \0\0\0\0\0\0\x80\x01\0\0\0\0labels.txtPK\x01\x02\x14\x03\x14\0\0\0\0\0\0\0!X\xd9\x0eg\n\x06\0\0\0\
    \x06\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\x80\x01?\0\0\0notes.mdPK\x05\x06\0\0\0\0\x02\0\x02\0n\0\0\0k\0\
    \0\0\0\0";

/// A layer with three outputs whose metadata says that files follow.
fn model(metadata: &'static str) -> Vec<u8> {
    let mut draft = Draft::new();
    draft.buffers[1].data = Some((1..=12).collect());
    draft.buffers[2].data = Some(vec![0; 12]);
    for (tensor, outputs) in [(1, vec![3, 4]), (2, vec![3]), (3, vec![1, 3])] {
        draft.tensors[tensor].shape = outputs;
    }
    for quant in draft.tensors[1..=2].iter_mut().filter_map(|tensor| tensor.quant.as_mut()) {
        quant.scales.truncate(1);
        quant.zero_points = Some(vec![0]);
    }
    draft.buffers.push(BufferDraft { data: Some(b"\0\0\0\0M001".to_vec()), ..BufferDraft::default() });
    draft.metadata = vec![(metadata, 3)];
    draft.bytes()
}

fn labels(parts: &[&[u8]]) -> Vec<String> {
    import_tflite(&parts.concat(), "m").unwrap().labels
}

/// An archive of stored texts, its offsets counted from `base`.
fn stored(texts: &[(&str, &str)], base: u32) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, text) in texts {
        let sum = kiln_core::crc::crc32(text.as_bytes());
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for field in [sum, text.len() as u32, text.len() as u32] {
            common.extend(field.to_le_bytes());
        }
        common.extend([name.len() as u8, 0, 0, 0]);
        directory.extend([b"PK\x01\x02\x14\x03", &common[..], &[0; 10]].concat());
        directory.extend((base + bytes.len() as u32).to_le_bytes());
        directory.extend(name.bytes());
        bytes.extend([b"PK\x03\x04", &common[..], name.as_bytes(), text.as_bytes()].concat());
    }
    let counts = [texts.len() as u8, 0, texts.len() as u8, 0];
    let sizes = [directory.len() as u32, base + bytes.len() as u32].map(u32::to_le_bytes).concat();
    [&bytes[..], &directory, b"PK\x05\x06\0\0\0\0", &counts, &sizes, &[0, 0]].concat()
}

#[test]
fn a_text_with_a_line_for_each_element() {
    let model = model("TFLITE_METADATA");
    assert_eq!(labels(&[&model, ARCHIVE]), ["left", "middle middle middle middle", "right"]);
    // Offsets count from the model's begin where the archive was made in place.
    let base = model.len() as u32;
    for base in [0, base] {
        let archive = stored(&[("labels.txt", "a\r\n\r\nc\r\n\n\n")], base);
        assert_eq!(labels(&[&model, &archive]), ["a", "", "c"]);
    }
    // Behind the archive's end comes a comment.
    let mut commented = ARCHIVE.to_vec();
    commented[ARCHIVE.len() - 2] = 7;
    assert_eq!(labels(&[&model, &commented, b"PK\x05comm"]).len(), 3);
}

#[test]
fn none_where_it_is_not_clear() {
    let with = model("TFLITE_METADATA");
    assert!(labels(&[&with]).is_empty());
    assert!(labels(&[&model("min_runtime_version"), ARCHIVE]).is_empty());
    for texts in [
        &[("labels.txt", "a\nb")][..],
        &[("labels.txt", "")],
        &[("labels.csv", "a\nb\nc")],
        &[("labels-de.txt", "a\nb\nc"), ("labels-en.txt", "d\ne\nf")],
    ] {
        assert!(labels(&[&with, &stored(texts, 0)]).is_empty(), "{texts:?}");
    }
    let both = stored(&[("vocabulary.txt", "a\nb"), ("labels.txt", "d\ne\nf")], 0);
    assert_eq!(labels(&[&with, &both]), ["d", "e", "f"]);
}

#[test]
fn a_damaged_archive_is_passed_over() {
    let model = model("TFLITE_METADATA");
    let good = labels(&[&model, ARCHIVE]);
    assert_eq!(good.len(), 3);
    for end in 0..ARCHIVE.len() {
        assert!(labels(&[&model, &ARCHIVE[..end]]).is_empty(), "cut to {end} bytes");
    }
    for at in 0..ARCHIVE.len() {
        for bits in [1, 0x80, 0xFF] {
            let mut changed = ARCHIVE.to_vec();
            changed[at] ^= bits;
            let found = labels(&[&model, &changed]);
            assert!(found.is_empty() || found == good, "byte {at}: {found:?}");
        }
    }
}

#[test]
fn an_archive_that_grows_without_end_is_not_inflated() {
    use std::io::Write;
    // 64 MiB of zeros in 64 KiB, which say that they are three bytes.
    let mut deflated = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    deflated.write_all(&vec![0; 64 << 20]).unwrap();
    let deflated = deflated.finish().unwrap();
    let text = "a\nb\nc";
    for size in [3, 64 << 20] {
        let mut archive = stored(&[("labels.txt", text)], 0);
        let from = 30 + "labels.txt".len();
        archive.splice(from..from + text.len(), deflated.iter().copied());
        let central = archive.len() - 22 - 46 - "labels.txt".len();
        archive[central + 10] = 8;
        archive[central + 20..central + 24].copy_from_slice(&(deflated.len() as u32).to_le_bytes());
        archive[central + 24..central + 28].copy_from_slice(&(size as u32).to_le_bytes());
        let end = archive.len() - 22;
        archive[end + 16..end + 20].copy_from_slice(&(central as u32).to_le_bytes());
        assert!(labels(&[&model("TFLITE_METADATA"), &archive]).is_empty());
    }
}
