//! NumPy's `.npy` files, versions 1.0 to 3.0 (format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).
//!
//! The header is read here rather than by a crate: those there are build a Python parser for it,
//! allocate the length a file claims, and overflow on the shape it claims. What Kiln can use is
//! three fixed fields, read without recursion and without allocating more than the file has.

use kiln_core::DType;

use super::{Elements, Wanted};
use crate::report::table::printable;
use crate::values::element;

const MAGIC: &[u8] = b"\x93NUMPY";
const AGAIN: &str = "save the array again with numpy.save";

/// The longest descr and the most dimensions that are read; NumPy's own types and arrays have fewer.
const DESCR: usize = 32;
const DIMS: usize = 64;

/// What a header says.
#[derive(PartialEq, Eq, Debug, Default)]
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<u64>,
}

/// The elements of a file for an input. The problem is one sentence without the file's name.
pub(super) fn read(file: &[u8], wanted: &Wanted) -> Result<Elements, String> {
    let (header, data) = split(file)?;
    let (dtype, big) = dtype_of(&header.descr).ok_or_else(|| {
        let descr = printable(&header.descr);
        format!("{} is {}, but the array's dtype is '{descr}'; convert it with .astype", wanted.who, wanted.text)
    })?;
    if !same_shape(&header.shape, &wanted.dims) {
        return Err(format!(
            "{} is {}, but the array's shape is {:?}; reshape it, only leading 1s may differ",
            wanted.who, wanted.text, header.shape
        ));
    }
    let width = dtype.bits() as usize / 8;
    let count = header.shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
    let count = count.filter(|&count| count.checked_mul(width as u64) == Some(data.len() as u64)).ok_or_else(|| {
        format!(
            "its shape {:?} and dtype '{}' do not match its {} bytes of data; {AGAIN}",
            header.shape,
            header.descr,
            data.len()
        )
    })?;
    let mut bytes = Vec::with_capacity(data.len());
    for index in 0..count as usize {
        let at = if header.fortran { fortran_offset(&header.shape, count as usize, index) } else { index };
        let item = data.get(at * width..).and_then(|rest| rest.get(..width)).unwrap_or_default();
        if big { bytes.extend(item.iter().rev()) } else { bytes.extend(item) }
    }
    let float = matches!(dtype, DType::F32 | DType::F64);
    if dtype == wanted.dtype {
        Ok((bytes, Vec::new()))
    } else if float && wanted.quantized().is_some() {
        let reals: Vec<f64> = (0..count as usize).map_while(|i| element(dtype, &bytes, i)).collect();
        let (data, mut notes) = wanted.store(&reals)?;
        if let Some(first) = notes.first_mut() {
            *first = format!("{} {first}", dtype.name());
        }
        Ok((data, notes))
    } else {
        let floats = if wanted.quantized().is_some() { ", or real numbers with .astype('float32')" } else { "" };
        let name = wanted.dtype.name();
        let do_this = match npy_descr(wanted.dtype) {
            Some(_) => format!("give its elements with .astype('{name}'){floats}"),
            None => "NumPy has no such type, give its elements raw".to_owned(),
        };
        Err(format!("{} is {}, but the array's dtype is {}; {do_this}", wanted.who, wanted.text, dtype.name()))
    }
}

/// How many inputs lie one behind the other in an array whose first dimension counts them, and the array's
/// shape; `None` where it is none such, or only one. `start` is the file's beginning at least.
pub(super) fn stacked(start: &[u8], wanted: &Wanted) -> Option<(u64, Vec<u64>)> {
    let shape = split(start).ok()?.0.shape;
    let (&count, one) = shape.split_first()?;
    (!same_shape(&shape, &wanted.dims) && same_shape(one, &wanted.dims)).then(|| (count, shape.clone()))
}

/// Where element `index` in C order (last dimension fastest) lies in Fortran order (first fastest).
fn fortran_offset(shape: &[u64], count: usize, index: usize) -> usize {
    let (mut rest, mut stride, mut offset) = (index, count, 0);
    // No dimension is 0 where there is an element to ask about.
    for dim in shape.iter().rev().map(|&dim| (dim as usize).max(1)) {
        stride /= dim;
        offset += rest % dim * stride;
        rest /= dim;
    }
    offset
}

fn same_shape(a: &[u64], b: &[u64]) -> bool {
    let body = |shape: &[u64]| shape.iter().skip_while(|&&dim| dim == 1).copied().collect::<Vec<_>>();
    body(a) == body(b)
}

/// The type that a descr such as `<f4` names, and whether its bytes are big-endian.
fn dtype_of(descr: &str) -> Option<(DType, bool)> {
    let dtype = DType::ALL.into_iter().find(|&d| npy_descr(d).is_some_and(|name| name.get(1..) == descr.get(1..)))?;
    match descr.get(..1)? {
        "|" if dtype.bits() == 8 => Some((dtype, false)),
        "<" => Some((dtype, false)),
        ">" => Some((dtype, true)),
        _ => None,
    }
}

/// How `.npy` headers call a type, little-endian; `None` for those that NumPy does not have.
pub(crate) fn npy_descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "|b1",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::I16 => "<i2",
        DType::U16 => "<u2",
        DType::I32 => "<i4",
        DType::U32 => "<u4",
        DType::I64 => "<i8",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::BF16 | DType::I4 => return None,
    })
}

/// A `.npy` file, version 1.0, of little-endian elements in C order.
pub(crate) fn npy_bytes(descr: &str, dims: &[u64], data: &[u8]) -> Vec<u8> {
    let shape: String = dims.iter().map(|dim| format!("{dim}, ")).collect();
    // Python writes a tuple of one with a comma, and longer ones without one at the end.
    let shape = if dims.len() == 1 { shape.trim_end() } else { shape.trim_end_matches(", ") };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The data begins at a multiple of 64, after ten bytes, the text and a line end.
    let padded = (10 + text.len() + 1).next_multiple_of(64) - 11;
    text.extend(std::iter::repeat_n(' ', padded - text.len()));
    text.push('\n');
    // Eight dimensions of ten digits at most: the length is far below 65,536.
    let mut file = [MAGIC, &[1, 0], &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat();
    file.extend(data);
    file
}

/// A file's header and its data.
fn split(file: &[u8]) -> Result<(Header, &[u8]), String> {
    let rest =
        file.strip_prefix(MAGIC).ok_or(format!("not a .npy file: it does not begin with \\x93NUMPY; {AGAIN}"))?;
    let short = || format!("its header is truncated, the file has only {} bytes; copy it again", file.len());
    let (length, rest) = match rest.split_first_chunk().ok_or_else(short)? {
        ([1, 0], rest) => rest.split_first_chunk().map(|(n, rest)| (u16::from_le_bytes(*n).into(), rest)),
        ([2 | 3, 0], rest) => rest.split_first_chunk().map(|(n, rest)| (u32::from_le_bytes(*n), rest)),
        ([major, minor], _) => {
            return Err(format!("it has .npy version {major}.{minor}, and 1.0, 2.0 and 3.0 are read; {AGAIN}"));
        }
    }
    .ok_or_else(short)?;
    let (text, data) = rest.split_at_checked(length as usize).ok_or_else(short)?;
    let header = std::str::from_utf8(text).ok().and_then(parse);
    let header = header.ok_or(format!("its header is damaged or of a structured array; {AGAIN}, without fields"))?;
    Ok((header, data))
}

/// The three fields of a header, in any order, each once.
fn parse(text: &str) -> Option<Header> {
    let mut header = Header::default();
    let mut seen = Vec::new();
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    while !rest.is_empty() {
        let (key, after) = string(rest)?;
        let value = after.trim_start().strip_prefix(':')?.trim_start();
        rest = match key {
            "descr" => {
                let (descr, after) = string(value)?;
                header.descr = Some(descr).filter(|descr| descr.len() <= DESCR)?.to_owned();
                after
            }
            "fortran_order" => {
                header.fortran = value.starts_with("True");
                value.strip_prefix("True").or(value.strip_prefix("False"))?
            }
            "shape" => {
                let (tuple, after) = value.strip_prefix('(')?.split_once(')')?;
                header.shape = dims(tuple.trim())?;
                after
            }
            _ => return None,
        };
        if seen.contains(&key) {
            return None;
        }
        seen.push(key);
        rest = rest.trim_start();
        rest = rest.strip_prefix(',').map_or(rest, str::trim_start);
    }
    (seen.len() == 3).then_some(header)
}

/// A quoted string at the beginning, without escapes, and what follows it.
fn string(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text.get(1..)?.split_once(quote)
}

/// The numbers of a tuple; Python 2 wrote some with an `L`.
fn dims(tuple: &str) -> Option<Vec<u64>> {
    let tuple = tuple.strip_suffix(',').unwrap_or(tuple);
    if tuple.is_empty() {
        return Some(Vec::new());
    }
    if tuple.split(',').count() > DIMS {
        return None;
    }
    tuple.split(',').map(|dim| dim.trim().trim_end_matches('L').parse().ok()).collect()
}

#[cfg(test)]
#[path = "npy_tests.rs"]
mod tests;
