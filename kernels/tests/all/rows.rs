//! Rows against references: whole, and cut into ranges.

use kiln_core::{DType, Direction};
use kiln_kernels::table::{KERNELS, kernel};

use crate::generate::{SHAPES, case, log_softmax_of, softmax_of};
use crate::support::{Job, Random};

/// Whether a row's outputs are what the reference computes. All but float32 softmax and its logarithm, which
/// compute exponentials in single precision, are equal bit for bit.
pub(crate) fn agree(number: u16, dtype: DType, got: &[u8], want: &[u8]) -> bool {
    if dtype != DType::F32 {
        return got == want;
    }
    let floats =
        |bytes: &[u8]| -> Vec<f32> { bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect() };
    let tolerance = if matches!(number, 38 | 39) { 1e-6 } else { 0.0 };
    let mut pairs = floats(got).into_iter().zip(floats(want));
    got.len() == want.len()
        && pairs.all(|(g, w)| g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= tolerance * w.abs().max(1.0))
}

#[test]
fn every_row_equals_its_reference() {
    for kernel in KERNELS {
        for seed in 0..SHAPES {
            let mut random = Random::new(seed);
            let case = case(kernel.number, &mut random);
            let prepared = case.prepare(kernel);
            let want = case.reference();
            for &direction in kernel.directions {
                let job = Job::new(kernel, &case, &prepared, direction);
                let rows = prepared.rows;
                let got = job.run(&[(0, rows)], &mut random);
                assert!(
                    agree(kernel.number, case.output.ty.dtype, &got, &want),
                    "{} {direction:?} differs for seed {seed}: {case:?}\ngot  {got:?}\nwant {want:?}",
                    kernel.name
                );

                // Any partition, in any order, computes the same.
                let mut cuts: Vec<u32> = (0..random.range(0, 3)).map(|_| random.size(0, rows)).collect();
                cuts.extend([0, rows]);
                cuts.sort();
                let mut ranges: Vec<(u32, u32)> = cuts.windows(2).map(|w| (w[0], w[1])).collect();
                if random.one_in(2) {
                    ranges.reverse();
                }
                let split = job.run(&ranges, &mut random);
                assert_eq!(split, got, "{} differs when cut at {cuts:?}, seed {seed}", kernel.name);
            }
        }
    }
}

/// The batch is the outermost dimension, so rows are a multiple of it: plans with an extent for the
/// batch scale `row_end`.
#[test]
fn the_batch_multiplies_rows() {
    for kernel in KERNELS {
        for seed in 0..SHAPES {
            let case = case(kernel.number, &mut Random::new(seed));
            let dims = case.output.ty.shape.dims();
            if dims.len() > 1 && case.output.ty.dtype != DType::I4 {
                assert_eq!(case.prepare(kernel).rows % dims[0], 0, "{}: {case:?}", kernel.name);
            }
        }
    }
}

/// From 4096 elements on, the sum of exponentials uses the sign bit; 8192 equal ones wrap it to 0.
#[test]
#[cfg_attr(miri, ignore = "long vectors")]
fn softmax_of_long_vectors() {
    for length in [4095, 4096, 4097, 8191, 8192, 8193] {
        for seed in 0..6 {
            let random = &mut Random::new(seed);
            let cases = [
                (7, softmax_of(DType::I8, &[1, length], random)),
                (13, log_softmax_of(DType::I8, &[1, length], random)),
            ];
            for (number, mut case) in cases {
                if seed == 0 {
                    case.inputs[0].data.fill(5);
                }
                let kernel = kernel(number).unwrap();
                let prepared = case.prepare(kernel);
                let job = Job::new(kernel, &case, &prepared, Direction::Up);
                let got = job.run(&[(0, 1)], &mut Random::new(seed));
                assert!(got == case.reference(), "{}, {length}, seed {seed}", kernel.name);
            }
        }
    }
}
