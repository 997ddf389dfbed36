//! Input files of `kiln run`: raw elements, or `.npy`, `.png` and `.wav` files, told apart by
//! their names. What is read has exactly the input's elements, or is refused: nothing is resized,
//! cut or padded.

mod audio;
mod image;
mod npy;
mod stack;

use std::path::Path;

use kiln_build::model_file::read_file;
use kiln_core::DType;
use kiln_core::plan::{DIM_IS_EXTENT, Plan, TensorRecord};

pub use image::ImageRange;
pub(crate) use npy::{npy_bytes, npy_descr};
pub(crate) use stack::{Stack, count};

use crate::CliError;
use crate::report::table::{counted, printable, thousands};
use crate::values::describe;

/// Bytes of a file with a header that are read whatever the input's size, so that a file with the
/// wrong shape is told its shape rather than its size.
const ROOM: u64 = 64 << 20;

/// The lower-case extension of a file's name; empty without one.
pub(crate) fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

/// An input of a plan, as files must fill it.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// What messages call it: `input 0 ('x')`.
    pub(crate) who: String,
    /// Its type in words: `int8 [1, 6, 6, 2]`.
    pub(crate) text: String,
    pub(crate) dtype: DType,
    /// Outermost first; dimensions that vary stand at their maximum.
    pub(crate) dims: Vec<u64>,
    pub(crate) bytes: u64,
    /// 0 where the tensor is not quantized.
    pub(crate) scale: f32,
    pub(crate) zero_point: i32,
}

/// Elements as the plan takes them, and what was done to get them, for the user to know.
pub(crate) type Elements = (Vec<u8>, Vec<String>);

impl Wanted {
    /// Input `index` of an entry; `None` for a type that this version does not know.
    pub(crate) fn of(plan: &Plan<'_>, tensor: &TensorRecord, index: usize) -> Option<Wanted> {
        let dim = |&dim: &u32| match dim & DIM_IS_EXTENT {
            0 => Some(dim.into()),
            _ => plan.extents().get((dim & 0xFFFF) as usize).map(|extent| extent.max.into()),
        };
        Some(Wanted {
            who: format!("input {index} ('{}')", printable(plan.text(tensor.name))),
            text: describe(plan, tensor),
            dtype: DType::from_code(tensor.dtype)?,
            dims: tensor.dims.iter().take(tensor.rank as usize).map(dim).collect::<Option<_>>()?,
            bytes: tensor.bytes,
            scale: tensor.scale,
            zero_point: tensor.zero_point,
        })
    }

    /// The number of elements.
    pub(crate) fn elements(&self) -> u64 {
        self.dims.iter().fold(1, |product, &dim| product.saturating_mul(dim))
    }

    /// The least and the greatest stored value, where real numbers can be quantized into this input.
    pub(crate) fn quantized(&self) -> Option<(f64, f64)> {
        match self.dtype {
            _ if self.scale.is_nan() || self.scale <= 0.0 => None,
            DType::I8 => Some((i8::MIN.into(), i8::MAX.into())),
            DType::U8 => Some((u8::MIN.into(), u8::MAX.into())),
            DType::I16 => Some((i16::MIN.into(), i16::MAX.into())),
            _ => None,
        }
    }

    /// Real numbers as this input stores them: as float32, or quantized, stored = real / scale +
    /// zero point, with the quotient rounded half away from zero and the sum clamped to the type's
    /// range. The note says which. The problem is one sentence without the file's name.
    pub(crate) fn store(&self, reals: &[f64]) -> Result<Elements, String> {
        if let Some(index) = reals.iter().position(|real| real.is_nan()) {
            return Err(format!("element {index} is not a number (NaN); remove it from the data first"));
        }
        if self.dtype == DType::F32 {
            return Ok((reals.iter().flat_map(|&real| (real as f32).to_le_bytes()).collect(), Vec::new()));
        }
        let Some((least, greatest)) = self.quantized() else {
            return Err(format!(
                "{} is {} without a scale, so real numbers can't be stored in it; give its elements as .npy or raw",
                self.who, self.text
            ));
        };
        let (mut data, mut clamped) = (Vec::with_capacity(reals.len()), 0);
        for &real in reals {
            let exact = (real / f64::from(self.scale)).round() + f64::from(self.zero_point);
            let stored = exact.clamp(least, greatest);
            clamped += u64::from(stored != exact);
            let width = self.dtype.bits() as usize / 8;
            data.extend((stored as i32).to_le_bytes().into_iter().take(width));
        }
        let mut notes = vec![format!(
            "quantized to {} with scale {} and zero point {}",
            self.dtype.name(),
            self.scale,
            self.zero_point
        )];
        if clamped > 0 {
            let of = counted(reals.len(), "element");
            notes.push(format!("{} of {of} are beyond what the input can hold and were clamped", thousands(clamped)));
        }
        Ok((data, notes))
    }
}

/// Reads the file for an input; notes say what was done to it. `range` is what an image's bytes
/// stand for, where the user says so.
pub(crate) fn read(path: &Path, wanted: &Wanted, range: Option<ImageRange>) -> Result<Elements, CliError> {
    let limit = ROOM.saturating_add(wanted.bytes.saturating_mul(16));
    let read = || read_file(path, limit);
    let elements = match extension(path).as_str() {
        "npy" => npy::read(&read()?, wanted),
        "png" => image::read(&read()?, wanted, range),
        "wav" => audio::read(&read()?, wanted),
        _ => return Ok((raw(path, wanted)?, Vec::new())),
    };
    elements.map_err(|problem| CliError::input(path, problem))
}

fn raw(path: &Path, wanted: &Wanted) -> Result<Vec<u8>, CliError> {
    let wrong = |have: u64| {
        let problem = format!(
            "{} is {}, {} bytes, but the file has {have}; \
             give its elements raw, little-endian, without a header, or as a .npy file",
            wanted.who, wanted.text, wanted.bytes
        );
        CliError::input(path, problem)
    };
    // The size is compared before the bytes are read: the file may be anything.
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() != wanted.bytes => return Err(wrong(metadata.len())),
        _ => {}
    }
    let data = read_file(path, wanted.bytes)?;
    if data.len() as u64 == wanted.bytes { Ok(data) } else { Err(wrong(data.len() as u64)) }
}

#[cfg(test)]
mod tests;
