//! Rows against references: whole, and cut into ranges.

use kiln_core::{DType, Direction, Row};
use kiln_kernels::table::{KERNELS, Kernel, kernel};

use crate::generate::{SHAPES, case, log_softmax_of, softmax_of};
use crate::support::{Case, Job, Random, floats};

/// Rows that sum products, or elements, in another order than their references or with other roundings: equal
/// within [`OF_THE_SUM`] times the sum of the terms' magnitudes.
pub(crate) const SUMS: [u16; 13] = [43, 45, 51, 52, 53, 56, 57, 58, 96, 97, 98, 99, 100];
/// See [`SUMS`].
const OF_THE_SUM: f32 = 2e-6;
/// Rows that compute in single precision what references compute in double: equal within 1e-6, of the value
/// where that is above 1.
const SINGLE: [u16; 6] = [38, 39, 42, 101, 102, 103];

/// Whether a row's outputs are what the reference computes. But for float32 rows of the lists above, they are
/// equal bit for bit.
pub(crate) fn agree(number: u16, case: &Case, got: &[u8], want: &[u8]) -> bool {
    let magnitudes = if SUMS.contains(&number) { case.magnitudes() } else { vec![] };
    agree_within(number, case.output.ty.dtype, got, want, &magnitudes)
}

/// The same of a part of the outputs, for rows that do not sum.
pub(crate) fn agree_within(number: u16, dtype: DType, got: &[u8], want: &[u8], magnitudes: &[f32]) -> bool {
    if dtype != DType::F32 {
        return got == want;
    }
    let tolerance = if SINGLE.contains(&number) { 1e-6 } else { 0.0 };
    // Quotients in double precision are rounded twice where they are subnormal.
    let smallest = if number == 40 { f32::from_bits(1) } else { 0.0 };
    let mut pairs = floats(got).into_iter().zip(floats(want)).enumerate();
    got.len() == want.len()
        && pairs.all(|(i, (g, w))| {
            let sum = magnitudes.get(i).map_or(0.0, |m| m * OF_THE_SUM);
            let most = (tolerance * w.abs().max(1.0)).max(sum).max(smallest);
            g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= most
        })
}

/// A kernel's portable row and, if it has one for this CPU, the native.
fn bodies(kernel: &Kernel) -> impl Iterator<Item = &Row> {
    [&kernel.portable].into_iter().chain(&kernel.native)
}

#[test]
fn every_row_equals_its_reference() {
    for kernel in KERNELS {
        for seed in 0..SHAPES {
            let mut random = Random::new(seed);
            let case = case(kernel.number, &mut random);
            let prepared = case.prepare(kernel);
            let want = case.reference();
            for (&direction, row) in kernel.directions.iter().flat_map(|d| bodies(kernel).map(move |row| (d, row))) {
                let job = Job::new(kernel, row, &case, &prepared, direction);
                let rows = prepared.rows;
                let got = job.run(&[(0, rows)], &mut random);
                assert!(
                    agree(kernel.number, &case, &got, &want),
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
                (59, softmax_of(DType::I8, &[1, length], random)),
                (13, log_softmax_of(DType::I8, &[1, length], random)),
            ];
            for (number, mut case) in cases {
                if seed == 0 {
                    case.inputs[0].data.fill(5);
                }
                let kernel = kernel(number).unwrap();
                if !case.operation(|o| (kernel.applies)(o)) {
                    assert!(number == 59 && length > 8191);
                    continue;
                }
                let prepared = case.prepare(kernel);
                let job = Job::new(kernel, &kernel.portable, &case, &prepared, Direction::Up);
                let got = job.run(&[(0, 1)], &mut Random::new(seed));
                assert!(got == case.reference(), "{}, {length}, seed {seed}", kernel.name);
            }
        }
    }
}
