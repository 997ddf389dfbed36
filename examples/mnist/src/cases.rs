//! The folder `model/`: the int8 network, digits that this crate draws, and what the network must say of them.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};
use kiln::{CaseGroup, Cases, Export};

use crate::data::{Images, SIDE};
use crate::drawn::{self, VARIANTS};
use crate::export::{Accuracies, right};

/// The drawn image that `three.png` shows.
const THREE: usize = 3 * VARIANTS;

/// Writes the folder, and gives how many of the drawn digits are read correctly.
pub fn write(network: &Export, accuracies: Accuracies, directory: &Path) -> Result<usize> {
    let images = drawn::images();
    let right = right(network, &images)?;
    let percent = 100.0 * accuracies.int8;
    let origin = format!(
        "{} digits drawn by src/drawn.rs, {right} of which are read correctly; of MNIST's test images {percent:.2} %",
        images.len()
    );
    let numbers: Vec<usize> = (0..images.len()).collect();
    let group = CaseGroup {
        name: "drawn",
        origin: &origin,
        inputs: numbers.iter().map(|&i| network.stored(&[&images.pixels(i)])).collect::<Result<_, _>>()?,
        classes: Some(images.digits(&numbers).iter().map(|&digit| digit as u64).collect()),
    };
    // The outputs are those of the operators' references.
    let licence = Some("MIT OR Apache-2.0");
    Cases { graph: network.graph(), licence, runtime: None, groups: &[group] }.write(directory)?;
    png(&directory.join("three.png"), SIDE, images.bytes(THREE))?;
    png(&directory.join("drawn.png"), VARIANTS * SIDE, &sheet(&images))?;
    Ok(right)
}

/// All drawn images as one, a digit a row.
fn sheet(images: &Images) -> Vec<u8> {
    let rows = (0..images.len() / VARIANTS).flat_map(|digit| (0..SIDE).map(move |y| (digit, y)));
    let strips = rows.flat_map(|(digit, y)| {
        (0..VARIANTS).map(move |variant| &images.bytes(digit * VARIANTS + variant)[y * SIDE..][..SIDE])
    });
    strips.flatten().copied().collect()
}

/// Writes a grey picture.
fn png(path: &Path, width: usize, pixels: &[u8]) -> Result<()> {
    let context = || path.display().to_string();
    let file = BufWriter::new(File::create(path).with_context(context)?);
    let mut encoder = png::Encoder::new(file, width as u32, (pixels.len() / width) as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels)).with_context(context)
}
