//! Rows at exactly their lag, one element short of it, and the lag against brute force.

use kiln_core::DType;
use kiln_kernels::table::{Direction, KERNELS};
use kiln_ops::Op;

use crate::generate::{SHAPES, case};
use crate::rows::agree;
use crate::support::{Case, Random, Source, run_overlapped};

#[test]
fn at_its_lag_every_row_computes_the_same() {
    for kernel in KERNELS {
        assert_eq!(kernel.direction, Direction::Up);
        let (mut overlapped, mut short, mut broken) = (0, 0, 0);
        for seed in 0..SHAPES {
            let case = case(kernel.number, &mut Random::new(seed));
            let prepared = case.prepare(kernel);
            let sources = case.sources(&prepared);
            let (bytes, parameters) = (case.output.bytes(), prepared.parameters.bytes());
            let want = case.reference();
            for (window, source) in prepared.windows.iter().enumerate() {
                let Source::Input(input) = *source else { continue };
                let Some(lag) = case.lag(kernel, input) else { continue };
                let at = |trail: u64| {
                    let row = &kernel.portable;
                    run_overlapped(row, &sources, bytes, parameters, prepared.rows, window, trail as usize)
                };
                let dtype = case.output.ty.dtype;
                let same = |got: &[u8]| agree(kernel.number, dtype, got, &want);
                overlapped += 1;
                // Exactly at the lag, and anywhere before it.
                for trail in [lag, lag + 4 * (seed % 3), lag + 64] {
                    assert!(same(&at(trail)), "{} at lag {trail}, seed {seed}: {case:?}", kernel.name);
                }
                let step = kernel.portable.align as u64;
                if lag >= step {
                    short += 1;
                    broken += !same(&at(lag - step)) as u32;
                }
            }
        }
        assert!(overlapped > 0, "{} never overlaps", kernel.name);
        // One element closer destroys something that is still needed; only by luck (a weight of 0,
        // saturation) does the result not show it.
        if !cfg!(miri) {
            assert!(broken * 4 >= short, "{}: {broken} of {short} broke below the lag", kernel.name);
        }
        println!("{}: {overlapped} overlapped; {broken} of {short} break one element below the lag", kernel.name);
    }
}

/// A tensor added to itself, in place.
#[test]
fn one_input_in_two_roles() {
    for number in [6, 37] {
        let kernel = kiln_kernels::table::kernel(number).unwrap();
        for seed in 0..SHAPES {
            let mut case = case(number, &mut Random::new(seed));
            case.inputs[1] = case.inputs[0].clone();
            let prepared = case.prepare(kernel);
            let bytes = case.inputs[0].data.clone();
            let mut memory = crate::support::Guarded::new(&bytes, 0);
            let window = memory.window();
            let (inputs, outputs) = ([window, window], [window]);
            let rows = kiln_core::RowRange { begin: 0, end: prepared.rows };
            let call = kiln_core::Call::new(&inputs, &outputs, &[], prepared.parameters.bytes(), rows);
            assert!((kernel.portable.check)(&call));
            // SAFETY: checked; the row's lag is 0 for both inputs.
            unsafe { (kernel.portable.run)(&call) };
            assert!(agree(number, case.output.ty.dtype, memory.bytes(), &case.reference()));
        }
    }
}

/// The lag as its definition says it, from the list of every read and write.
fn lag_by_brute_force(case: &Case) -> u64 {
    let (x, y) = (&case.inputs[0].ty, &case.output.ty);
    let size = (x.dtype.bits() / 8) as i64;
    // For each output element in the order of the walk: the lowest input element read for it.
    let mut lowest: Vec<Option<i64>> = Vec::new();
    let mut windows = |window: kiln_ops::Window2d, inputs_of: &dyn Fn(u32) -> u32| {
        let (xd, yd) = (x.shape.dims(), y.shape.dims());
        for n in 0..yd[0] {
            for oy in 0..yd[1] {
                for ox in 0..yd[2] {
                    for o in 0..yd[3] {
                        let mut least = None;
                        for ky in 0..window.kernel[0] {
                            for kx in 0..window.kernel[1] {
                                let taps = (window.tap(0, oy, ky, xd[1]), window.tap(1, ox, kx, xd[2]));
                                let (Some(iy), Some(ix)) = taps else { continue };
                                let at = ((n * xd[1] + iy) * xd[2] + ix) * xd[3] + inputs_of(o);
                                least = Some(least.unwrap_or(i64::MAX).min(at as i64));
                            }
                        }
                        lowest.push(least);
                    }
                }
            }
        }
    };
    match case.op {
        Op::Conv2d(op) => {
            let w = &case.inputs[1].ty;
            let per_group = w.shape.last();
            let outputs = w.shape.dim(0) / op.groups;
            windows(op.window(w), &|o| o / outputs * per_group);
        }
        Op::Pool2d(op) => windows(op.window(), &|o| o),
        Op::FullyConnected(_) => {
            let w = &case.inputs[1].ty.shape;
            let (outputs, inputs) = (w.dim(0) as u64, w.dim(1) as u64);
            let elements = y.shape.elements().unwrap();
            lowest.extend((0..elements).map(|i| Some((i / outputs * inputs) as i64)));
        }
        _ => return 0,
    }
    let mut lag = 0;
    let mut later = i64::MAX;
    for (i, least) in lowest.iter().enumerate().rev() {
        // Element `i` ends before its successor's reads.
        if later != i64::MAX {
            lag = lag.max((i as i64 + 1 - later) * size);
        }
        later = later.min(least.unwrap_or(i64::MAX));
    }
    lag as u64
}

#[test]
fn lags_are_exact() {
    for kernel in KERNELS {
        for seed in 0..SHAPES {
            let case = case(kernel.number, &mut Random::new(seed));
            let lag = case.lag(kernel, 0).unwrap();
            assert_eq!(lag, lag_by_brute_force(&case), "{}, seed {seed}: {case:?}", kernel.name);
        }
    }
}

#[test]
fn lags_known_by_hand() {
    use kiln_core::{Shape, TensorType};
    use kiln_ops::{Activation, Conv2d};
    let conv = |groups: u32, per_group: u32| {
        let mut case = crate::generate::conv2d(DType::F32, &mut Random::new(1));
        let op = Conv2d {
            strides: [1, 1],
            dilations: [1, 1],
            pads: [1; 4],
            groups,
            activation: Activation::None,
        };
        case.op = op.into();
        let ty = |dims: &[u32]| TensorType::new(DType::I8, Shape::new(dims).unwrap());
        case.inputs.truncate(2);
        for t in case.inputs.iter_mut().chain([&mut case.output]) {
            (t.scales, t.zero_points) = (vec![0.1], vec![0]);
        }
        case.inputs[0].ty = ty(&[1, 25, 5, 64]);
        case.inputs[1].ty = ty(&[64, 3, 3, per_group]);
        case.inputs[1].data = vec![0; 64 * 9 * per_group as usize];
        case.output.ty = ty(&[1, 25, 5, 64]);
        case
    };
    let number = |n| kiln_kernels::table::kernel(n).unwrap();
    let (width, channels) = (5, 64);
    assert_eq!(conv(64, 1).lag(number(2), 0), Some((width + 1) * channels));
    assert_eq!(conv(1, 64).lag(number(1), 0), Some((width + 2) * channels - 1));
    // Weights are needed to the end.
    assert_eq!(conv(1, 64).lag(number(1), 1), None);
}
