use super::super::tests::{attack, wanted};
use super::*;

fn encode(color: ColorType, depth: BitDepth, size: (u32, u32), palette: &[u8], data: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, size.0, size.1);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if !palette.is_empty() {
        encoder.set_palette(palette.to_vec());
    }
    encoder.write_header().unwrap().write_image_data(data).unwrap();
    file
}

fn picture(color: ColorType, size: (u32, u32), data: &[u8]) -> Vec<u8> {
    encode(color, BitDepth::Eight, size, &[], data)
}

/// An int8 input that stores the byte minus 128.
fn plain(height: u64, width: u64, channels: u64) -> Wanted {
    wanted(DType::I8, &[1, height, width, channels], 1.0, -128)
}

/// What `read` gives, as the bytes that the numbers came from.
fn bytes(file: &[u8], w: &Wanted) -> (Vec<u8>, String) {
    let (data, notes) = read(file, w, None).unwrap();
    (data.iter().map(|stored| stored ^ 0x80).collect(), notes.join("; "))
}

#[test]
fn colours_and_gray_of_every_kind() {
    let rgb = [10, 20, 30, 255, 0, 1];
    // Two pixels side by side: width 2, height 1.
    let (data, notes) = bytes(&picture(ColorType::Rgb, (2, 1), &rgb), &plain(1, 2, 3));
    assert_eq!(data, rgb);
    assert!(!notes.contains("alpha") && !notes.contains("gray"), "{notes}");
    let rgba = picture(ColorType::Rgba, (2, 1), &[10, 20, 30, 0, 255, 0, 1, 99]);
    let (data, notes) = bytes(&rgba, &plain(1, 2, 3));
    assert_eq!(data, rgb);
    assert!(notes.contains("alpha is dropped"), "{notes}");
    // 0.299·10 + 0.587·20 + 0.114·30 = 18.15; 0.299·255 + 0.114 = 76.359.
    let (data, notes) = bytes(&rgba, &plain(1, 2, 1));
    assert_eq!(data, [18, 76]);
    assert!(notes.contains("0.299 red"), "{notes}");
    assert_eq!((luma(255, 255, 255), luma(0, 0, 0), luma(0, 255, 0)), (255, 0, 150));
    let (data, notes) = bytes(&picture(ColorType::Grayscale, (2, 1), &[7, 250]), &plain(1, 2, 3));
    assert_eq!(data, [7, 7, 7, 250, 250, 250]);
    assert!(notes.contains("alike"), "{notes}");
    assert_eq!(bytes(&picture(ColorType::Grayscale, (2, 1), &[7, 250]), &plain(1, 2, 1)).0, [7, 250]);
    let (data, notes) = bytes(&picture(ColorType::GrayscaleAlpha, (2, 1), &[7, 1, 250, 2]), &plain(1, 2, 1));
    assert_eq!(data, [7, 250]);
    assert!(notes.contains("alpha"), "{notes}");
    let palette = encode(ColorType::Indexed, BitDepth::Eight, (2, 1), &[255, 0, 1, 10, 20, 30], &[1, 0]);
    assert_eq!(bytes(&palette, &plain(1, 2, 3)).0, rgb);
    // Four pixels of two bits: 0, 1, 2, 3 become 0, 85, 170, 255.
    let gray = encode(ColorType::Grayscale, BitDepth::Two, (4, 1), &[], &[0b00_01_10_11]);
    assert_eq!(bytes(&gray, &plain(1, 4, 1)).0, [0, 85, 170, 255]);
}

#[test]
fn the_range_comes_from_the_input_or_the_user() {
    let guess = |dtype, scale, zero| ImageRange::guess(&wanted(dtype, &[1], scale, zero)).map(|(range, _)| range);
    assert_eq!(guess(DType::I8, 1.0, -128), Some(ImageRange::Bytes));
    assert_eq!(guess(DType::U8, 1.0, 0), Some(ImageRange::Bytes));
    assert_eq!(guess(DType::I8, 1.0 / 255.0, -128), Some(ImageRange::Unit));
    assert_eq!(guess(DType::U8, 1.0 / 255.0, 0), Some(ImageRange::Unit));
    for zero in [-1, 0] {
        assert_eq!(guess(DType::I8, 1.0 / 127.5, zero), Some(ImageRange::Symmetric));
        assert_eq!(guess(DType::U8, 1.0 / 127.5, zero + 128), Some(ImageRange::Symmetric));
    }
    assert_eq!(guess(DType::I8, 1.0 / 127.5, 1), None);
    assert_eq!(guess(DType::I8, 1.0 / 127.5, -100), None);
    assert_eq!(guess(DType::F32, 0.0, 0), None);
    assert_eq!(guess(DType::I8, 0.0, 0), None);

    let file = picture(ColorType::Grayscale, (4, 1), &[0, 1, 128, 255]);
    let get = |dtype, scale, zero, range| read(&file, &wanted(dtype, &[1, 1, 4, 1], scale, zero), range).unwrap();
    // byte / 255 / (1/255) - 128.
    assert_eq!(get(DType::I8, 1.0 / 255.0, -128, None).0, [0x80, 0x81, 0, 0x7F]);
    // (byte / 127.5 - 1) * 128: -128, -126.996, 0.502, 128; clamped to 127.
    let (data, notes) = get(DType::I8, 1.0 / 128.0, 0, None);
    assert_eq!(data, [0x80, 0x81, 1, 0x7F]);
    assert!(notes[0].contains("-1..1") && notes[0].contains("symmetric"), "{notes:?}");
    assert!(notes.last().unwrap().starts_with("1 of 4 elements"), "{notes:?}");
    let floats = |range| -> Vec<f32> {
        let (data, notes) = get(DType::F32, 0.0, 0, Some(range));
        assert!(notes[0].contains("--image-range"), "{notes:?}");
        data.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    assert_eq!(floats(ImageRange::Bytes), [0.0, 1.0, 128.0, 255.0]);
    assert_eq!(floats(ImageRange::Unit), [0.0, 1.0 / 255.0, 128.0 / 255.0, 1.0]);
    assert_eq!(floats(ImageRange::Symmetric), [-1.0, -0.992_156_86, 0.003_921_569, 1.0]);
    let problem = read(&file, &wanted(DType::F32, &[1, 1, 4, 1], 0.0, 0), None).unwrap_err();
    assert!(problem.contains("give --image-range 0..255, 0..1 or -1..1"), "{problem}");
}

#[test]
fn what_does_not_fit_is_refused_with_what_to_do() {
    let refused = |file: &[u8], w: &Wanted, words: &[&str]| {
        let problem = read(file, w, None).unwrap_err();
        words.iter().for_each(|word| assert!(problem.contains(word), "no '{word}' in: {problem}"));
    };
    let file = picture(ColorType::Grayscale, (2, 3), &[0; 6]);
    assert!(read(&file, &plain(3, 2, 1), None).is_ok());
    refused(&file, &plain(2, 3, 1), &["3 wide and 2 high", "this one is 2 wide and 3 high", "scale or crop"]);
    refused(&file, &wanted(DType::I8, &[1, 3, 2, 4], 1.0, -128), &["[1, height, width, 1 or 3]"]);
    refused(&file, &wanted(DType::I8, &[2, 3, 2, 1], 1.0, -128), &["[1, height, width, 1 or 3]"]);
    refused(&file, &wanted(DType::I8, &[1, 6], 1.0, -128), &["[1, height, width, 1 or 3]"]);
    refused(&file, &wanted(DType::I32, &[1, 3, 2, 1], 1.0, 0), &["float32 and quantized inputs only"]);
    refused(&file, &wanted(DType::I8, &[1, 3, 2, 1], 0.0, 0), &["float32 and quantized inputs only"]);
    refused(b"GIF89a", &plain(3, 2, 1), &["not a readable PNG", "again"]);
    let deep = encode(ColorType::Grayscale, BitDepth::Sixteen, (2, 3), &[], &[0; 12]);
    refused(&deep, &plain(3, 2, 1), &["16 bits", "save it with 8"]);
}

/// Writes the checksums that a changed file's chunks ask for, so that what is in them gets read.
fn reseal(file: &[u8]) -> Vec<u8> {
    let mut sealed = file.to_vec();
    let mut at = 8;
    while let Some(length) = sealed.get(at..).and_then(|rest| rest.first_chunk()) {
        let end = at + 8 + u32::from_be_bytes(*length) as usize;
        let Some(sum) = sealed.get(at + 4..end).map(kiln_core::crc::crc32) else { break };
        let Some(place) = sealed.get_mut(end..end + 4) else { break };
        place.copy_from_slice(&sum.to_be_bytes());
        at = end + 4;
    }
    sealed
}

#[test]
fn hostile_files() {
    let w = plain(3, 2, 3);
    let palette = encode(ColorType::Indexed, BitDepth::Four, (2, 3), &[1; 48], &[0x12; 3]);
    for whole in [picture(ColorType::Rgba, (2, 3), &[9; 24]), palette] {
        attack(&whole, &w, |file| read(file, &w, None));
        let accepted = std::cell::Cell::new(0);
        attack(&whole, &w, |file| {
            let result = read(&reseal(file), &w, None);
            accepted.set(accepted.get() + u32::from(result.is_ok()));
            result
        });
        assert!(accepted.get() > 500, "{} accepted: the checksums kept the attack out", accepted.get());
    }
}
