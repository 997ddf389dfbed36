//! Elements of tensors as numbers.

use kiln_core::DType;
use kiln_core::plan::{DIM_IS_EXTENT, Plan, TensorRecord};

/// Element `index` of raw little-endian `bytes`; `None` past the end, and for the types that are
/// not shown as numbers (int4, float16, bfloat16).
pub(crate) fn element(dtype: DType, bytes: &[u8], index: usize) -> Option<f64> {
    fn fixed<const N: usize>(bytes: &[u8], index: usize) -> Option<[u8; N]> {
        bytes.get(index.checked_mul(N)?..)?.first_chunk().copied()
    }
    Some(match dtype {
        DType::I8 => i8::from_le_bytes(fixed(bytes, index)?).into(),
        DType::U8 | DType::Bool => u8::from_le_bytes(fixed(bytes, index)?).into(),
        DType::I16 => i16::from_le_bytes(fixed(bytes, index)?).into(),
        DType::U16 => u16::from_le_bytes(fixed(bytes, index)?).into(),
        DType::I32 => i32::from_le_bytes(fixed(bytes, index)?).into(),
        DType::U32 => u32::from_le_bytes(fixed(bytes, index)?).into(),
        DType::I64 => i64::from_le_bytes(fixed(bytes, index)?) as f64,
        DType::U64 => u64::from_le_bytes(fixed(bytes, index)?) as f64,
        DType::F32 => f32::from_le_bytes(fixed(bytes, index)?).into(),
        DType::F64 => f64::from_le_bytes(fixed(bytes, index)?),
        DType::F16 | DType::BF16 | DType::I4 => return None,
    })
}

/// What `raw` stands for under a scale and zero point; itself where the scale is 0, that is, where
/// the tensor is not quantized.
pub(crate) fn real(raw: f64, scale: f32, zero_point: i32) -> f64 {
    if scale == 0.0 { raw } else { f64::from(scale) * (raw - f64::from(zero_point)) }
}

/// The index of the largest element, the first of equals.
pub(crate) fn top(output: &[f64]) -> Option<usize> {
    let better = |best: Option<(usize, f64)>, (index, &value): (usize, &f64)| match best {
        Some((_, most)) if value <= most || value.is_nan() => best,
        _ => Some((index, value)),
    };
    output.iter().enumerate().fold(None, better).map(|(index, _)| index)
}

/// A tensor of an entry as plans describe it, in words: `int8 [1, 49, 10, 1]`. Dimensions that
/// vary stand at their maximum.
pub(crate) fn describe(plan: &Plan<'_>, tensor: &TensorRecord) -> String {
    let dims = tensor.dims.iter().take(tensor.rank as usize).map(|&dim| match dim & DIM_IS_EXTENT {
        0 => dim.to_string(),
        _ => plan.extents().get((dim & 0xFFFF) as usize).map_or("?".to_owned(), |extent| extent.max.to_string()),
    });
    let dtype = DType::from_code(tensor.dtype).map_or("elements of an unknown type", DType::name);
    format!("{dtype} [{}]", dims.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_type() {
        assert_eq!(element(DType::I8, &[0, 0x80], 1), Some(-128.0));
        assert_eq!(element(DType::U16, &[0, 0, 0x34, 0x12], 1), Some(0x1234 as f64));
        assert_eq!(element(DType::F32, &1.5f32.to_le_bytes(), 0), Some(1.5));
        assert_eq!(element(DType::I32, &[0; 7], 1), None);
        assert_eq!(element(DType::I4, &[0], 0), None);
        assert_eq!(real(3.0, 0.5, 1), 1.0);
        assert_eq!(real(3.0, 0.0, 7), 3.0);
    }

    #[test]
    fn the_largest_of_equals_is_the_first() {
        assert_eq!((top(&[1.0, 3.0, 3.0]), top(&[f64::NAN, 1.0]), top(&[])), (Some(1), Some(1), None));
    }
}
