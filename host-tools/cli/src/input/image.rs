//! PNG pictures as inputs `[1, height, width, channels]` with 1 or 3 channels.

use std::io::Cursor;

use kiln_core::DType;
use png::{BitDepth, ColorType, DecodeOptions, Decoder, Limits, Transformations};

use super::{Elements, Wanted};

/// Memory the decoder may take, whatever a file asks for.
const DECODER_BYTES: usize = 64 << 20;

/// The real numbers that the bytes 0 to 255 of a picture stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum ImageRange {
    /// The byte itself
    #[value(name = "0..255")]
    Bytes,
    /// The byte divided by 255
    #[value(name = "0..1")]
    Unit,
    /// The byte divided by 127.5, minus 1
    #[value(name = "-1..1")]
    Symmetric,
}

impl ImageRange {
    /// The number that a byte stands for.
    pub(super) fn real(self, byte: u8) -> f64 {
        match self {
            ImageRange::Bytes => byte.into(),
            ImageRange::Unit => f64::from(byte) / 255.0,
            ImageRange::Symmetric => f64::from(byte) / 127.5 - 1.0,
        }
    }

    /// The range for an input and why: what the user says, or what its quantization suggests. The problem
    /// is one sentence.
    pub(super) fn choose(wanted: &Wanted, said: Option<ImageRange>) -> Result<(ImageRange, &'static str), String> {
        if let Some(range) = said {
            return Ok((range, "as --image-range says"));
        }
        ImageRange::guess(wanted).ok_or_else(|| {
            format!(
                "nothing says which numbers {}, {}, wants for the bytes 0 to 255 of a picture; \
                 give --image-range 0..255, 0..1 or -1..1, as the model was trained",
                wanted.who, wanted.text
            )
        })
    }

    /// The range that an input's scale and zero point suggest, and why.
    pub(super) fn guess(wanted: &Wanted) -> Option<(ImageRange, &'static str)> {
        let (least, greatest) = wanted.quantized()?;
        let real = |stored: f64| f64::from(wanted.scale) * (stored - f64::from(wanted.zero_point));
        let zero = f64::from(wanted.zero_point);
        if real(least).abs().max(real(greatest).abs()) > 2.0 {
            Some((ImageRange::Bytes, "the input's range reaches beyond 2"))
        } else if zero == least {
            Some((ImageRange::Unit, "0 is the least number the input holds"))
        } else if (zero - (least + greatest) / 2.0).abs() < 1.0 {
            // Either of the two values beside the middle: the range has an even number of them.
            Some((ImageRange::Symmetric, "the input's range is symmetric"))
        } else {
            None
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            ImageRange::Bytes => "0..255",
            ImageRange::Unit => "0..1 (byte / 255)",
            ImageRange::Symmetric => "-1..1 (byte / 127.5 - 1)",
        }
    }
}

/// The elements of a picture for an input. The problem is one sentence without the file's name.
pub(super) fn read(file: &[u8], wanted: &Wanted, range: Option<ImageRange>) -> Result<Elements, String> {
    let &[1, height, width, channels @ (1 | 3)] = wanted.dims.as_slice() else {
        return Err(format!(
            "{} is {}, and pictures fit inputs [1, height, width, 1 or 3] only; give its elements as .npy or raw",
            wanted.who, wanted.text
        ));
    };
    if wanted.dtype != DType::F32 && wanted.quantized().is_none() {
        return Err(format!(
            "{} is {}, and pictures fit float32 and quantized inputs only; give its elements as .npy or raw",
            wanted.who, wanted.text
        ));
    }
    let (range, why) = ImageRange::choose(wanted, range)?;
    let (pixels, color) = decode(file, wanted, width, height)?;
    let mut notes = vec![format!("the picture's bytes are taken as numbers {}: {why}", range.words())];
    let per_pixel = color.samples();
    if matches!(per_pixel, 2 | 4) {
        notes.push("alpha is dropped".to_owned());
    }
    let gray = per_pixel <= 2;
    match (gray, channels) {
        (true, 3) => notes.push("gray is given to red, green and blue alike".to_owned()),
        (false, 1) => notes.push("colour is made gray: 0.299 red + 0.587 green + 0.114 blue, rounded".to_owned()),
        _ => {}
    }
    let mut reals = Vec::with_capacity(pixels.len());
    for pixel in pixels.chunks_exact(per_pixel) {
        match (pixel, channels) {
            (&[gray] | &[gray, _], channels) => reals.extend((0..channels).map(|_| range.real(gray))),
            (&[r, g, b] | &[r, g, b, _], 1) => reals.push(range.real(luma(r, g, b))),
            (pixel, _) => reals.extend(pixel.iter().take(3).map(|&byte| range.real(byte))),
        }
    }
    let (data, stored) = wanted.store(&reals)?;
    notes.extend(stored);
    Ok((data, notes))
}

/// The luma of ITU-R BT.601, rounded to the nearest byte.
fn luma(r: u8, g: u8, b: u8) -> u8 {
    ((299 * u32::from(r) + 587 * u32::from(g) + 114 * u32::from(b) + 500) / 1000) as u8
}

/// The bytes of a picture of exactly this size, and what a pixel is.
fn decode(file: &[u8], wanted: &Wanted, width: u64, height: u64) -> Result<(Vec<u8>, ColorType), String> {
    let failed = |e: png::DecodingError| format!("not a readable PNG file: {e}; save or copy the picture again");
    let mut options = DecodeOptions::default();
    // Texts and colour profiles are not used, so what is in them can't matter.
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = Decoder::new_with_options(Cursor::new(file), options);
    decoder.set_limits(Limits { bytes: DECODER_BYTES });
    // Palettes and gray of fewer bits become bytes.
    decoder.set_transformations(Transformations::EXPAND);
    let info = decoder.read_header_info().map_err(failed)?;
    if (u64::from(info.width), u64::from(info.height)) != (width, height) {
        return Err(format!(
            "{} is {}, a picture {width} wide and {height} high, but this one is {} wide and {} high; \
             scale or crop it to that size first",
            wanted.who, wanted.text, info.width, info.height
        ));
    }
    if info.bit_depth == BitDepth::Sixteen {
        return Err("the picture has 16 bits a channel, and at most 8 are read; save it with 8".to_owned());
    }
    let mut reader = decoder.read_info().map_err(failed)?;
    let size = reader.output_buffer_size().ok_or("the picture is too large; save a smaller one")?;
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels).map_err(failed)?;
    pixels.truncate(frame.buffer_size());
    if (u64::from(frame.width), u64::from(frame.height)) != (width, height) {
        return Err("its first frame is not the whole picture; save it as a plain PNG file".to_owned());
    }
    Ok((pixels, frame.color_type))
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
