use super::*;

/// An input to fill, made by hand.
pub(super) fn wanted(dtype: DType, dims: &[u64], scale: f32, zero_point: i32) -> Wanted {
    let elements: u64 = dims.iter().product();
    Wanted {
        who: "input 0 ('x')".to_owned(),
        text: format!("{} {dims:?}", dtype.name()),
        dtype,
        dims: dims.to_vec(),
        bytes: dtype.bytes(elements).unwrap(),
        scale,
        zero_point,
    }
}

/// Numbers that repeat (a 64-bit linear congruential generator, Knuth's constants).
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Reads `whole` cut at every length, and with bytes changed at random; the reader must not panic,
/// and what it accepts must have the input's size.
pub(super) fn attack(whole: &[u8], wanted: &Wanted, read: impl Fn(&[u8]) -> Result<Elements, String>) {
    let fits = |result: Result<Elements, String>| match result {
        Ok((data, _)) => assert_eq!(data.len() as u64, wanted.bytes),
        Err(problem) => assert!(problem.len() > 20 && !problem.contains('\n'), "{problem}"),
    };
    assert!(read(whole).is_ok());
    for length in 0..whole.len() {
        fits(read(&whole[..length]));
    }
    let mut numbers = Numbers(whole.len() as u64);
    for _ in 0..20_000 {
        let mut changed = whole.to_vec();
        for _ in 0..1 + numbers.below(4) {
            let at = numbers.below(changed.len());
            changed[at] = numbers.below(256) as u8;
        }
        fits(read(&changed));
    }
}

#[test]
fn reals_are_rounded_half_away_from_zero_and_clamped() {
    let store = |w: &Wanted, reals: &[f64]| w.store(reals).unwrap();
    let int8 = wanted(DType::I8, &[9], 0.5, 3);
    let reals = [0.0, 0.25, -0.25, 0.74, 0.75, -0.75, 62.0, 1e30, f64::NEG_INFINITY];
    let (data, notes) = store(&int8, &reals);
    // Quotients 0, 0.5, -0.5, 1.48, 1.5, -1.5, 124, then two beyond the type.
    assert_eq!(data, [3, 4, 2, 4, 5, 1, 127, 127, 128]);
    assert_eq!(
        notes,
        [
            "quantized to int8 with scale 0.5 and zero point 3",
            "2 of 9 elements are beyond what the input can hold and were clamped"
        ]
    );
    assert_eq!(store(&wanted(DType::U8, &[4], 0.25, 128), &[-32.0, 0.125, 31.75, 32.0]).0, [0, 129, 255, 255]);
    let int16 = store(&wanted(DType::I16, &[3], 0.25, 0), &[-1.0, 100.0, -9000.0]);
    assert_eq!(int16.0, [0xFC, 0xFF, 0x90, 0x01, 0x00, 0x80]);
    assert_eq!(store(&wanted(DType::F32, &[1], 0.0, 0), &[0.1]).0, 0.1f32.to_le_bytes());
    assert!(int8.store(&[0.0, f64::NAN]).unwrap_err().contains("element 1 is not a number"));
    for scale in [0.0, -1.0, f32::NAN] {
        let problem = wanted(DType::I8, &[1], scale, 0).store(&[0.0]).unwrap_err();
        assert!(problem.contains("without a scale"), "{problem}");
    }
    // What a damaged plan could bring: no panic.
    let _ = wanted(DType::I8, &[1], f32::INFINITY, i32::MIN).store(&[f64::INFINITY]);
}
