//! Images and digits in the IDX format.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use kiln::{Device, Int, Tensor};

/// Pixels along a side.
pub const SIDE: usize = 28;
/// Pixels of an image.
pub const PIXELS: usize = SIDE * SIDE;

/// Images and which digit each shows.
pub struct Images {
    pixels: Vec<u8>,
    digits: Vec<u8>,
}

impl Images {
    /// Images of [`PIXELS`] bytes each, behind each other, and the digits that they show.
    ///
    /// # Panics
    ///
    /// There are more or fewer images than digits.
    pub fn new(pixels: Vec<u8>, digits: Vec<u8>) -> Images {
        assert_eq!(pixels.len(), digits.len() * PIXELS, "an image for each digit");
        Images { pixels, digits }
    }

    /// The images to train with, and those to test with, of a folder: `train-images-idx3-ubyte` (or `train10k-…`),
    /// `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, each plain or as `.gz`.
    pub fn of_folder(folder: &Path) -> Result<(Images, Images)> {
        Ok((Images::read(folder, &["train", "train10k"])?, Images::read(folder, &["t10k"])?))
    }

    fn read(folder: &Path, names: &[&str]) -> Result<Images> {
        let (file, pixels) = idx(folder, names, "images-idx3-ubyte", &[SIDE, SIDE])?;
        let (digit_file, digits) = idx(folder, names, "labels-idx1-ubyte", &[])?;
        ensure!(
            pixels.len() == digits.len() * PIXELS,
            "{} has {} images, and {} as many labels as {}",
            file.display(),
            pixels.len() / PIXELS,
            digit_file.display(),
            digits.len()
        );
        if let Some(digit) = digits.iter().find(|d| **d > 9) {
            bail!("{}: {digit} is no digit", digit_file.display());
        }
        Ok(Images { pixels, digits })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.digits.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.digits.is_empty()
    }

    /// The first images only.
    pub fn truncate(&mut self, len: usize) {
        self.digits.truncate(len);
        self.pixels.truncate(len * PIXELS);
    }

    /// The pixels of an image, from 0 (black) to 255, row by row.
    pub fn bytes(&self, number: usize) -> &[u8] {
        &self.pixels[number * PIXELS..][..PIXELS]
    }

    /// The pixels of an image, from 0 to 1.
    pub fn pixels(&self, number: usize) -> Vec<f32> {
        self.bytes(number).iter().map(|&pixel| f32::from(pixel) / 255.0).collect()
    }

    /// Which digits the images of these numbers show.
    pub fn digits(&self, numbers: &[usize]) -> Vec<i32> {
        numbers.iter().map(|&i| self.digits[i].into()).collect()
    }

    /// The images of these numbers, `[N, 28, 28, 1]`, and their digits. `shift` says how many pixels down and right
    /// each image is moved; what comes in is black.
    pub fn batch(
        &self,
        numbers: &[usize],
        mut shift: impl FnMut() -> [i32; 2],
        device: &Device,
    ) -> (Tensor<4>, Tensor<1, Int>) {
        let mut pixels = vec![0f32; numbers.len() * PIXELS];
        for (to, &number) in pixels.chunks_exact_mut(PIXELS).zip(numbers) {
            let from = self.bytes(number);
            let [down, right] = shift();
            let source = |at: usize, by: i32| usize::try_from(at as i32 - by).ok().filter(|at| *at < SIDE);
            for (y, row) in to.chunks_exact_mut(SIDE).enumerate() {
                let Some(from_y) = source(y, down) else { continue };
                for (x, pixel) in row.iter_mut().enumerate() {
                    if let Some(from_x) = source(x, right) {
                        *pixel = f32::from(from[from_y * SIDE + from_x]) / 255.0;
                    }
                }
            }
        }
        let images = Tensor::from_slice(&pixels, [numbers.len(), SIDE, SIDE, 1], device);
        (images, Tensor::from_slice(&self.digits(numbers), [numbers.len()], device))
    }
}

/// The first file of `folder` with one of these names, and its bytes; each item has the shape `item`.
fn idx(folder: &Path, names: &[&str], kind: &str, item: &[usize]) -> Result<(PathBuf, Vec<u8>)> {
    let candidates = names.iter().flat_map(|name| ["", ".gz"].map(|end| folder.join(format!("{name}-{kind}{end}"))));
    let Some(file) = candidates.into_iter().find(|file| file.exists()) else {
        bail!("{}: has no {}-{kind}, nor that as .gz", folder.display(), names[0]);
    };
    let context = || file.display().to_string();
    let mut bytes = fs::read(&file).with_context(context)?;
    if file.extension().is_some_and(|e| e == "gz") {
        let mut plain = Vec::new();
        GzDecoder::new(&bytes[..]).read_to_end(&mut plain).with_context(context)?;
        bytes = plain;
    }
    let items = items(&bytes, item).with_context(context)?;
    Ok((file, items.to_vec()))
}

/// The items of an IDX file of bytes.
fn items<'b>(bytes: &'b [u8], item: &[usize]) -> Result<&'b [u8]> {
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(4 * at..4 * at + 4)?.try_into().ok()?) as usize);
    let rank = item.len() + 1;
    // Two zeros, the type of bytes, the rank.
    ensure!(word(0) == Some(0x0800 | rank), "not an IDX file of bytes with {rank} dimensions");
    let dims: Option<Vec<usize>> = (2..=rank).map(word).collect();
    ensure!(dims.as_deref() == Some(item), "its items have the shape {dims:?}, not {item:?}");
    let data = bytes.get(4 * (rank + 1)..).unwrap_or_default();
    let expected = word(1).and_then(|count| count.checked_mul(item.iter().product()));
    ensure!(expected == Some(data.len()), "{} bytes of items instead of {expected:?}", data.len());
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_refused() {
        let labels = [0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9];
        assert_eq!(items(&labels, &[]).unwrap(), [7, 8, 9]);
        for len in 0..labels.len() {
            assert!(items(&labels[..len], &[]).is_err(), "{len}");
        }
        assert!(items(&labels, &[28, 28]).is_err());
        let image = [&[0, 0, 8, 3, 255, 255, 255, 255, 0, 0, 0, 28, 0, 0, 0, 28][..], &[0; 784]].concat();
        assert!(items(&image, &[28, 28]).unwrap_err().to_string().contains("784 bytes"));
    }

    #[test]
    fn images_are_shifted_and_what_comes_in_is_black() {
        let mut pixels = vec![0; PIXELS];
        (pixels[0], pixels[PIXELS - 1]) = (255, 51);
        let images = Images { pixels, digits: vec![4] };
        let (shifted, digits) = images.batch(&[0, 0], || [1, 2], &Device::cpu());
        let values = shifted.to_vec().unwrap();
        assert_eq!((values[SIDE + 2], values.iter().sum::<f32>()), (1.0, 2.0));
        assert_eq!(digits.to_vec().unwrap(), [4, 4]);
        let (plain, _) = images.batch(&[0], || [0, 0], &Device::cpu());
        assert_eq!(plain.to_vec().unwrap()[PIXELS - 1], 0.2);
    }
}
