//! Rows at exactly their lag, one element short of it, and the lag against brute force.

use kiln_core::{DType, Direction};
use kiln_kernels::table::{KERNELS, Kernel};
use kiln_ops::Op;

use crate::generate::{SHAPES, case};
use crate::rows::agree;
use crate::support::{Case, Job, Random, Source};

/// Overlaps the output with every input that has a lag: at the lag, beyond it, and one element short of
/// it. Counts the runs, those that could be tried too short, and those that broke.
fn overlap(kernel: &Kernel, direction: Direction) -> [u32; 3] {
    let [mut overlapped, mut short, mut broken] = [0; 3];
    for seed in 0..SHAPES {
        let case = case(kernel.number, &mut Random::new(seed));
        let prepared = case.prepare(kernel);
        let job = Job::new(kernel, &kernel.portable, &case, &prepared, direction);
        let want = case.reference();
        for (window, source) in prepared.windows.iter().enumerate() {
            let Source::Input(input) = *source else { continue };
            let Some(lag) = case.lag(kernel, input, direction) else { continue };
            let same = |trail: u64| {
                let got = job.run_overlapped(window, trail as usize);
                agree(kernel.number, &case, &got, &want)
            };
            overlapped += 1;
            for trail in [lag, lag + 4 * (seed % 3), lag + 64] {
                assert!(same(trail), "{} {direction:?} at lag {trail}, seed {seed}: {case:?}", kernel.name);
            }
            let element = kernel.portable.align() as u64;
            if lag >= element {
                short += 1;
                broken += !same(lag - element) as u32;
            }
        }
    }
    [overlapped, short, broken]
}

/// Rows whose output overlaps no input.
const APART: [u16; 12] = [45, 47, 50, 51, 52, 53, 54, 96, 97, 98, 99, 100];

#[test]
fn at_its_lag_every_row_computes_the_same() {
    for kernel in KERNELS {
        assert!(!kernel.directions.is_empty());
        for &direction in kernel.directions {
            let [overlapped, short, broken] = overlap(kernel, direction);
            println!("{} {direction:?}: {overlapped} overlapped, {broken} of {short} broke below the lag", kernel.name);
            assert_eq!(overlapped > 0, !APART.contains(&kernel.number), "{} overlaps or does not", kernel.name);
            // One element closer destroys something that is still needed. Often the result hides it
            // (one changed input, small weights, saturation): that lags are exact, `lags_are_exact`
            // shows; here some must break.
            assert!(cfg!(miri) || broken * 5 >= short, "{}: {broken} of {short} broke", kernel.name);
        }
    }
}

/// A tensor added to itself, in place.
#[test]
fn one_input_in_two_roles() {
    for number in [6, 17, 21, 37] {
        let kernel = kiln_kernels::table::kernel(number).unwrap();
        for seed in 0..SHAPES {
            let mut case = case(number, &mut Random::new(seed));
            case.inputs[1] = case.inputs[0].clone();
            if !case.operation(|o| (kernel.applies)(o)) {
                continue;
            }
            let prepared = case.prepare(kernel);
            let bytes = case.inputs[0].data.clone();
            let mut memory = crate::support::Guarded::new(&bytes, 0);
            let window = memory.window();
            let (inputs, outputs) = ([window, window], [window]);
            let rows = kiln_core::RowRange { begin: 0, end: prepared.rows };
            let call = kiln_core::Call::new(&inputs, &outputs, &[], prepared.parameters.bytes(), rows);
            assert!(kernel.portable.check(&call));
            // SAFETY: checked; the row's lag is 0 for both inputs.
            unsafe { kernel.portable.run(&call) };
            assert!(agree(number, &case, memory.bytes(), &case.reference()));
        }
    }
}

/// The output elements, by their numbers, that a row reads for before it writes the first of them, tile after tile in the order
/// it visits them.
fn tiles(number: u16, case: &Case, direction: Direction) -> Vec<Vec<usize>> {
    let count = case.output.ty.shape.elements().unwrap() as usize;
    let dims: Vec<usize> = case.output.ty.shape.dims().iter().map(|&d| d as usize).collect();
    let chunks = |size: usize| -> Vec<Vec<usize>> {
        match direction {
            Direction::Up => (0..count).collect::<Vec<_>>().chunks(size).map(<[usize]>::to_vec).collect(),
            Direction::Down => (0..count).rev().collect::<Vec<_>>().chunks(size).map(<[usize]>::to_vec).collect(),
        }
    };
    match number {
        // Three pixels.
        14 => chunks(3 * dims[3]),
        // Three pixels of a row.
        29 => {
            let (width, channels) = (dims[2], dims[3]);
            let rows: Vec<Vec<usize>> =
                (0..count).collect::<Vec<_>>().chunks(width * channels).map(<[usize]>::to_vec).collect();
            let mut tiles: Vec<_> =
                rows.iter().flat_map(|row| row.chunks(3 * channels).map(<[usize]>::to_vec)).collect();
            if direction == Direction::Down {
                tiles.reverse();
            }
            tiles
        }
        // Each output, the channels of a stretch of a row one after another.
        23 => {
            let (width, channels) = (dims[2], dims[3]);
            let mut tiles = Vec::new();
            for row in 0..dims[0] * dims[1] {
                for first in (0..width).step_by(24) {
                    for channel in 0..channels {
                        let pixels = first..(first + 24).min(width);
                        tiles.extend(pixels.map(|x| vec![(row * width + x) * channels + channel]));
                    }
                }
            }
            if direction == Direction::Down {
                tiles.reverse();
            }
            tiles
        }
        22 | 27 => chunks(2 * dims[3]),
        // Four channels of three pixels where as many follow one another with windows inside the image, else of one; channels that are left
        // over one by one.
        56 => {
            let Op::Conv2d(op) = case.op else { unreachable!() };
            let (xs, window) = (case.inputs[0].ty.shape.dims(), op.window(&case.inputs[1].ty));
            let inside = |pixel: usize| {
                let (y, x) = ((pixel / dims[2] % dims[1]) as u32, (pixel % dims[2]) as u32);
                (0..window.kernel[0]).all(|k| window.tap(0, y, k, xs[1]).is_some())
                    && (0..window.kernel[1]).all(|k| window.tap(1, x, k, xs[2]).is_some())
            };
            let channels = dims[3];
            let mut pixels: Vec<usize> = (0..count / channels).collect();
            if direction == Direction::Down {
                pixels.reverse();
            }
            let (mut tiles, mut rest) = (Vec::new(), &pixels[..]);
            while !rest.is_empty() {
                let together = rest.iter().take(3).filter(|&&pixel| inside(pixel)).count();
                let (tile, more) = rest.split_at(if together == 3 { 3 } else { 1 });
                rest = more;
                let element = |pixel: usize, channel: usize| pixel * channels + channel;
                for four in 0..channels / 4 {
                    let of = |&pixel: &usize| (4 * four..4 * four + 4).map(move |channel| element(pixel, channel));
                    tiles.push(tile.iter().flat_map(of).collect());
                }
                for &pixel in tile {
                    tiles.extend((channels / 4 * 4..channels).map(|channel| vec![element(pixel, channel)]));
                }
            }
            tiles
        }
        // Four channels of a pixel, those that are left over one by one.
        57 => {
            let pixels = (0..count).collect::<Vec<_>>();
            let parts = |pixel: &[usize]| {
                let (fours, ones) = pixel.split_at(pixel.len() / 4 * 4);
                [(fours, 4), (ones, 1)]
                    .map(|(part, size)| part.chunks(size).map(<[usize]>::to_vec).collect::<Vec<_>>())
                    .concat()
            };
            let mut tiles: Vec<Vec<usize>> = pixels.chunks(dims[3]).flat_map(parts).collect();
            if direction == Direction::Down {
                tiles.reverse();
            }
            tiles
        }
        // Four pixels.
        18 => chunks(4 * dims[3]),
        // Four channels of a stretch of a row, or eight.
        15 | 19 => {
            let Op::Conv2d(op) = case.op else { unreachable!() };
            let (width, channels) = (dims[2], dims[3]);
            let kernel = case.inputs[1].ty.shape.dims();
            let most = match (number, op.strides[1]) {
                (15, 1) => 24,
                (15, _) => 5,
                (_, stride) => {
                    let columns = if stride == 1 { 78 } else { 39 } / kernel[1];
                    let most = columns.saturating_sub(kernel[2]) / stride + 1;
                    width.div_ceil(width.div_ceil(most as usize))
                }
            };
            let together = if number == 15 { 4 } else { 8 };
            let mut tiles = Vec::new();
            for row in 0..dims[0] * dims[1] {
                for first in (0..width).step_by(most) {
                    for part in (0..channels).step_by(together) {
                        let pixels = first..(first + most).min(width);
                        let part = part..(part + together).min(channels);
                        let of = |x: usize| part.clone().map(move |c| (row * width + x) * channels + c);
                        tiles.push(pixels.flat_map(of).collect());
                    }
                }
            }
            if direction == Direction::Down {
                tiles.reverse();
            }
            tiles
        }
        // Four outputs of a vector.
        16 | 20 => {
            let outputs = *dims.last().unwrap();
            let vectors = (0..count).collect::<Vec<_>>();
            vectors.chunks(outputs).flat_map(|vector| vector.chunks(4).map(<[usize]>::to_vec)).collect()
        }
        // Four channels of a pixel, or sixteen.
        25 | 26 => {
            let channels = dims[3];
            let pixels = (0..count).collect::<Vec<_>>();
            let parts = |pixel: &[usize]| -> Vec<Vec<usize>> {
                pixel.chunks(if number == 25 { 4 } else { 16 }).map(<[usize]>::to_vec).collect()
            };
            let mut tiles: Vec<Vec<usize>> = pixels.chunks(channels).flat_map(parts).collect();
            if direction == Direction::Down {
                tiles.reverse();
            }
            tiles
        }
        // Eight channels of a pixel; of these the last ones of the walk once more where fewer are left.
        30 | 31 => {
            let channels = dims[3];
            let mut tiles = Vec::new();
            for pixel in 0..count / channels {
                let pixel = if direction == Direction::Up { pixel } else { count / channels - 1 - pixel };
                for first in (0..channels).step_by(8) {
                    let first = first.min(channels - 8);
                    let first = if direction == Direction::Up { first } else { channels - 8 - first };
                    tiles.push((first..first + 8).map(|c| pixel * channels + c).collect());
                }
            }
            tiles
        }
        // Sixteen outputs of a vector, or four, or one, where fewer are left.
        24 | 28 | 58 => {
            let outputs = *dims.last().unwrap();
            let vectors = (0..count).collect::<Vec<_>>();
            let parts = |vector: &[usize]| {
                let (sixteens, rest) = vector.split_at(if number == 58 { 0 } else { outputs / 16 * 16 });
                let (fours, ones) = rest.split_at(rest.len() / 4 * 4);
                [(sixteens, 16), (fours, 4), (ones, 1)]
                    .map(|(part, size)| part.chunks(size).map(<[usize]>::to_vec).collect::<Vec<_>>())
                    .concat()
            };
            vectors.chunks(outputs).flat_map(parts).collect()
        }
        _ => chunks(1),
    }
}

/// The lag as its definition says it, from the list of every read and write.
fn lag_by_brute_force(case: &Case, tiles: &[Vec<usize>], direction: Direction) -> u64 {
    let (x, y) = (&case.inputs[0].ty, &case.output.ty);
    let [size, written] = [x, y].map(|ty| (ty.dtype.bits() / 8) as i64);
    // For each output element, ascending: the lowest and the highest input element read for it.
    let mut reads: Vec<Option<(i64, i64)>> = Vec::new();
    let mut windows = |window: kiln_ops::Window2d, inputs_of: &dyn Fn(u32) -> u32| {
        let (xd, yd) = (x.shape.dims(), y.shape.dims());
        for n in 0..yd[0] {
            for oy in 0..yd[1] {
                for ox in 0..yd[2] {
                    for o in 0..yd[3] {
                        let mut span: Option<(i64, i64)> = None;
                        for ky in 0..window.kernel[0] {
                            for kx in 0..window.kernel[1] {
                                let taps = (window.tap(0, oy, ky, xd[1]), window.tap(1, ox, kx, xd[2]));
                                let (Some(iy), Some(ix)) = taps else { continue };
                                let at = (((n * xd[1] + iy) * xd[2] + ix) * xd[3] + inputs_of(o)) as i64;
                                let (low, high) = span.unwrap_or((at, at));
                                span = Some((low.min(at), high.max(at)));
                            }
                        }
                        reads.push(span);
                    }
                }
            }
        }
    };
    match case.op {
        Op::Conv2d(op) => {
            // All channels of a group are read for each of its outputs.
            let w = &case.inputs[1].ty;
            let per_group = w.shape.last();
            let outputs = w.shape.dim(0) / op.groups;
            windows(op.window(w), &|o| o / outputs * per_group);
            for span in reads.iter_mut().flatten() {
                span.1 += per_group as i64 - 1;
            }
        }
        Op::Pool2d(op) => windows(op.window(), &|o| o),
        Op::AveragePool2dPart(_) => {
            let kernel = [x.shape.dim(1), x.shape.dim(2)];
            windows(kiln_ops::Window2d { kernel, strides: [1; 2], dilations: [1; 2], pads: [0; 4] }, &|o| o);
        }
        Op::FullyConnected(_) => {
            let w = &case.inputs[1].ty.shape;
            let (outputs, inputs) = (w.dim(0) as i64, w.dim(1) as i64);
            let vectors = (0..y.shape.elements().unwrap() as i64).map(|i| i / outputs * inputs);
            reads.extend(vectors.map(|first| Some((first, first + inputs - 1))));
        }
        Op::Transpose(op) => {
            let axes: Vec<usize> = op.axes(y.shape.rank()).collect();
            let count = y.shape.elements().unwrap();
            let first = |i: u64| {
                let (mut rest, mut from) = (i, 0);
                for (&axis, &dim) in axes.iter().zip(y.shape.dims()).rev() {
                    let inner: u64 = x.shape.dims()[axis + 1..].iter().map(|&d| d as u64).product();
                    from += rest % dim as u64 * inner;
                    rest /= dim as u64;
                }
                from as i64
            };
            reads.extend((0..count).map(|i| Some((first(i), first(i)))));
        }
        Op::MaxPool2dPick(op) => windows(op.pool.window(), &|o| o),
        Op::Dequantize(_) | Op::Cast(_) => {
            let count = y.shape.elements().unwrap() as i64;
            reads.extend((0..count).map(|i| Some((i, i))));
        }
        _ => return 0,
    }
    // Down is up in a mirror.
    let (first, last) = (x.shape.elements().unwrap() as i64 - 1, reads.len() as i64 - 1);
    let read = |element: usize| match direction {
        Direction::Up => reads[element].map(|(low, _)| low),
        Direction::Down => reads[element].map(|(_, high)| first - high),
    };
    let place = |element: usize| match direction {
        Direction::Up => element as i64,
        Direction::Down => last - element as i64,
    };
    let mut lag = 0;
    let mut later = i64::MAX;
    for tile in tiles.iter().rev() {
        // A tile's elements are written when those after it are still to be read for.
        if later != i64::MAX {
            let end = tile.iter().map(|&element| place(element) + 1).max().unwrap();
            lag = lag.max(end * written - later * size);
        }
        later = tile.iter().filter_map(|&element| read(element)).fold(later, i64::min);
    }
    lag as u64
}

#[test]
fn lags_are_exact() {
    for kernel in KERNELS {
        for seed in 0..SHAPES {
            let case = case(kernel.number, &mut Random::new(seed));
            for &direction in kernel.directions {
                let Some(lag) = case.lag(kernel, 0, direction) else {
                    assert!(kernel.number >= 40, "{} must not overlap, seed {seed}", kernel.name);
                    continue;
                };
                let want = lag_by_brute_force(&case, &tiles(kernel.number, &case, direction), direction);
                assert_eq!(lag, want, "{} {direction:?}, seed {seed}: {case:?}", kernel.name);
            }
        }
    }
}

#[test]
fn lags_known_by_hand() {
    use kiln_core::{Shape, TensorType};
    use kiln_ops::{Activation, Conv2d};
    let conv = |groups: u32, per_group: u32| {
        let mut case = crate::generate::conv2d(DType::F32, &mut Random::new(1));
        let op = Conv2d { strides: [1, 1], dilations: [1, 1], pads: [1; 4], groups, activation: Activation::None };
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
    for direction in [Direction::Up, Direction::Down] {
        assert_eq!(conv(64, 1).lag(number(2), 0, direction), Some((width + 1) * channels));
        assert_eq!(conv(1, 64).lag(number(1), 0, direction), Some((width + 2) * channels - 1));
        // Weights are needed to the end.
        assert_eq!(conv(1, 64).lag(number(1), 1, direction), None);
    }
}
