//! Comparing outputs with what they should be.

use kiln_core::DType;

use super::io_json::CheckSpec;

/// How outputs are compared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Check {
    /// Bit for bit.
    Exact,
    /// `|got - want| <= atol + rtol * |want|`, floats only.
    Close {
        /// Absolute tolerance.
        atol: f64,
        /// Relative tolerance.
        rtol: f64,
    },
}

impl Check {
    /// The check a folder asks for.
    pub fn from_spec(spec: &CheckSpec) -> Result<Check, String> {
        match (spec.kind.as_str(), spec.atol, spec.rtol) {
            ("exact", _, _) => Ok(Check::Exact),
            (kind, None, None) => Err(format!("check.kind is {kind:?} without atol and rtol")),
            (_, atol, rtol) => Ok(Check::Close { atol: atol.unwrap_or(0.0), rtol: rtol.unwrap_or(0.0) }),
        }
    }

    /// Elements of `got` that are not as `want`, counted, with the first of them.
    pub fn compare(&self, dtype: DType, got: &[u8], want: &[u8]) -> Comparison {
        let size = (dtype.bits() as usize / 8).max(1);
        let mut comparison = Comparison { elements: want.len() / size, differing: 0, first: None };
        for (index, (g, w)) in got.chunks(size).zip(want.chunks(size)).enumerate() {
            if self.same(dtype, g, w) {
                continue;
            }
            comparison.differing += 1;
            comparison.first.get_or_insert_with(|| Difference {
                element: index,
                got: show(dtype, g),
                want: show(dtype, w),
            });
        }
        if got.len() != want.len() {
            comparison.differing += 1;
            comparison.first.get_or_insert_with(|| Difference {
                element: got.len().min(want.len()) / size,
                got: format!("{} bytes", got.len()),
                want: format!("{} bytes", want.len()),
            });
        }
        comparison
    }

    fn same(&self, dtype: DType, got: &[u8], want: &[u8]) -> bool {
        let &Check::Close { atol, rtol } = self else { return got == want };
        match (real(dtype, got), real(dtype, want)) {
            (Some(g), Some(w)) if g.is_nan() || w.is_nan() => g.is_nan() && w.is_nan(),
            (Some(g), Some(w)) => g == w || (g - w).abs() <= atol + rtol * w.abs(),
            _ => got == want,
        }
    }
}

/// What a comparison found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comparison {
    /// Elements compared.
    pub elements: usize,
    /// Elements that differ.
    pub differing: usize,
    /// The first of them.
    pub first: Option<Difference>,
}

/// An element that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Its index in the dense tensor.
    pub element: usize,
    /// What came out.
    pub got: String,
    /// What should have.
    pub want: String,
}

fn real(dtype: DType, bytes: &[u8]) -> Option<f64> {
    match dtype {
        DType::F32 => Some(f32::from_le_bytes(bytes.try_into().ok()?) as f64),
        DType::F64 => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

/// An element in words.
fn show(dtype: DType, bytes: &[u8]) -> String {
    let number = || {
        Some(match dtype {
            DType::I8 => i8::from_le_bytes(bytes.try_into().ok()?).to_string(),
            DType::U8 | DType::Bool => bytes.first()?.to_string(),
            DType::I16 => i16::from_le_bytes(bytes.try_into().ok()?).to_string(),
            DType::I32 => i32::from_le_bytes(bytes.try_into().ok()?).to_string(),
            DType::F32 | DType::F64 => real(dtype, bytes)?.to_string(),
            _ => return None,
        })
    };
    number().unwrap_or_else(|| format!("{bytes:02x?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_counts_and_names_the_first() {
        let c = Check::Exact.compare(DType::I8, &[1, 2, 255, 4], &[1, 3, 254, 4]);
        assert_eq!((c.elements, c.differing), (4, 2));
        assert_eq!(c.first, Some(Difference { element: 1, got: "2".into(), want: "3".into() }));
        assert_eq!(Check::Exact.compare(DType::I8, &[1], &[1, 2]).differing, 1);
    }

    #[test]
    fn close_allows_what_it_says_and_no_more() {
        let check = Check::Close { atol: 0.01, rtol: 0.1 };
        let f = |v: f32| v.to_le_bytes();
        let same = |a: f32, b: f32| check.compare(DType::F32, &f(a), &f(b)).differing == 0;
        assert!(same(1.1, 1.0) && same(0.009, 0.0) && same(f32::NAN, f32::NAN) && same(f32::INFINITY, f32::INFINITY));
        assert!(!same(1.12, 1.0) && !same(0.02, 0.0) && !same(f32::NAN, 0.0) && !same(f32::INFINITY, 1.0));
    }
}
