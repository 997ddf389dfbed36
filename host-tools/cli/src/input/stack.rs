//! Files that hold many samples of an input, one behind the other: raw elements, a `.npy` array with one
//! more dimension in front, or CIFAR-10's binary form. Any other file holds one, as `kiln run` takes it.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use kiln_build::model_file::{MAX_BYTES, read_file};
use kiln_core::DType;

use super::{ImageRange, Wanted, extension, npy};
use crate::CliError;

/// The samples of one file, as the plan takes them.
#[derive(Debug)]
pub(crate) struct Stack {
    /// The elements of all samples.
    pub(crate) elements: Vec<u8>,
    /// The class of each, where the file says it.
    pub(crate) classes: Vec<u8>,
    /// What was done to the file's numbers.
    pub(crate) notes: Vec<String>,
}

/// A record of <https://www.cs.toronto.edu/~kriz/cifar.html>: a byte with the class, then 32 rows of 32
/// bytes of red, of green, of blue.
const CIFAR_RECORD: u64 = 1 + 3 * CIFAR_PLANE as u64;
const CIFAR_PLANE: usize = 32 * 32;

/// Bytes at a file's beginning that hold a `.npy` header.
const HEADER: u64 = 64 << 10;

/// What a file holds.
enum Form {
    One,
    Raw(u64),
    Array(u64, Vec<u64>),
    Cifar(u64),
}

fn form(path: &Path, wanted: &Wanted) -> Result<Form, CliError> {
    let failed = |source| CliError::File { path: path.to_owned(), source };
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    let whole = |size: u64| (size > 0 && bytes > 0 && bytes.is_multiple_of(size)).then(|| bytes / size);
    match extension(path).as_str() {
        "png" | "wav" => Ok(Form::One),
        "npy" => {
            let mut start = Vec::new();
            File::open(path).and_then(|file| file.take(HEADER).read_to_end(&mut start)).map_err(failed)?;
            Ok(npy::stacked(&start, wanted).map_or(Form::One, |(count, shape)| Form::Array(count, shape)))
        }
        _ => Ok(match (whole(wanted.bytes), whole(CIFAR_RECORD)) {
            (Some(1), _) => Form::One,
            (Some(count), _) => Form::Raw(count),
            (None, Some(count)) if wanted.dims == [1, 32, 32, 3] => Form::Cifar(count),
            // Reading it says what is wrong.
            _ => Form::One,
        }),
    }
}

/// How many samples of an input a file holds; whether they can be read shows when they are.
pub(crate) fn count(path: &Path, wanted: &Wanted) -> Result<u64, CliError> {
    Ok(match form(path, wanted)? {
        Form::One => 1,
        Form::Raw(count) | Form::Array(count, _) | Form::Cifar(count) => count,
    })
}

impl Stack {
    /// Reads a file; `range` is what an image's bytes stand for, where the user says so.
    pub(crate) fn read(path: &Path, wanted: &Wanted, range: Option<ImageRange>) -> Result<Stack, CliError> {
        let (elements, notes) = match form(path, wanted)? {
            Form::One => super::read(path, wanted, range)?,
            Form::Raw(_) => (read_file(path, MAX_BYTES)?, Vec::new()),
            Form::Array(count, shape) => {
                let bytes = wanted.bytes.saturating_mul(count);
                let all = Wanted { dims: shape, bytes, ..wanted.clone() };
                let array = npy::read(&read_file(path, MAX_BYTES)?, &all);
                array.map_err(|problem| CliError::input(path, problem))?
            }
            Form::Cifar(_) => {
                let stack = cifar(&read_file(path, MAX_BYTES)?, wanted, range);
                return stack.map_err(|problem| CliError::input(path, problem));
            }
        };
        Ok(Stack { elements, classes: Vec::new(), notes })
    }
}

/// CIFAR-10 records. The problem is one sentence without the file's name.
fn cifar(file: &[u8], wanted: &Wanted, range: Option<ImageRange>) -> Result<Stack, String> {
    if wanted.dtype != DType::F32 && wanted.quantized().is_none() {
        return Err(format!("{} is {}, which pictures can't be stored in", wanted.who, wanted.text));
    }
    let (range, why) = ImageRange::choose(wanted, range)?;
    let (mut classes, mut reals) = (Vec::new(), Vec::with_capacity(file.len()));
    for record in file.chunks_exact(CIFAR_RECORD as usize) {
        let Some((&class, planes)) = record.split_first() else { continue };
        classes.push(class);
        let [red, green, blue] = [0, 1, 2].map(|plane| planes.iter().skip(plane * CIFAR_PLANE));
        for ((&r, &g), &b) in red.zip(green).zip(blue).take(CIFAR_PLANE) {
            reals.extend([r, g, b].map(|byte| range.real(byte)));
        }
    }
    let (elements, stored) = wanted.store(&reals)?;
    let mut notes = vec![format!("CIFAR-10 records, whose bytes are taken as numbers {}: {why}", range.words())];
    notes.extend(stored);
    Ok(Stack { elements, classes, notes })
}

#[cfg(test)]
#[path = "stack_tests.rs"]
mod tests;
