//! A part of an image is a smaller problem with its own padding and the pitches of the whole.

use kiln_core::zerocopy::{FromBytes, IntoBytes};
use kiln_core::{Call, DType, Direction, RowRange, Window};
use kiln_kernels::parameters::{Image, Spatial};
use kiln_kernels::table::kernel;
use kiln_ops::{Op, Window2d};

use crate::generate::{SHAPES, case};
use crate::rows::SUMS;
use crate::support::{Guarded, Job, Random, scratch};

/// The part of one axis: output `begin..end` needs input `first..end` with `pad` before it.
struct Axis {
    output: (u32, u32),
    input: (u32, u32),
    pad: u32,
}

fn axis(window: &Window2d, axis: usize, input: u32, output: u32, random: &mut Random) -> Axis {
    let begin = random.size(0, output - 1);
    let end = random.size(begin + 1, output);
    let (stride, pad) = (window.strides[axis] as i64, window.pads[axis] as i64);
    let reach = (window.kernel[axis] as i64 - 1) * window.dilations[axis] as i64;
    let from = begin as i64 * stride - pad;
    let to = (end as i64 - 1) * stride - pad + reach + 1;
    let first = from.clamp(0, input as i64 - 1);
    let last = to.clamp(first + 1, input as i64);
    Axis { output: (begin, end), input: (first as u32, last as u32), pad: (first - from).max(0) as u32 }
}

/// Narrows `image` to a rectangle and gives the rectangle's first byte.
fn narrow(image: &mut Image, rows: (u32, u32), columns: (u32, u32)) -> usize {
    image.height = rows.1 - rows.0;
    image.width = columns.1 - columns.0;
    rows.0 as usize * image.row_pitch as usize + columns.0 as usize * image.pixel_pitch as usize
}

#[test]
fn a_patch_equals_the_crop_of_the_whole() {
    for number in [1, 2, 4, 5, 18, 32, 33, 35, 36, 56, 57] {
        let kernel = kernel(number).unwrap();
        let row = kernel.portable;
        for seed in 0..SHAPES {
            let mut random = Random::new(seed);
            let case = case(number, &mut random);
            let window = match case.op {
                Op::Conv2d(op) => op.window(&case.inputs[1].ty),
                Op::Pool2d(op) => op.window(),
                _ => unreachable!(),
            };
            let (xs, ys) = (case.inputs[0].ty.shape, case.output.ty.shape);
            let rows = axis(&window, 0, xs.dim(1), ys.dim(1), &mut random);
            let columns = axis(&window, 1, xs.dim(2), ys.dim(2), &mut random);
            let prepared = case.prepare(kernel);
            let mut parameters = prepared.parameters.clone();
            let size = size_of::<Spatial>();
            let mut bytes = parameters.bytes().to_vec();
            let mut spatial = Spatial::read_from_bytes(&bytes[..size]).unwrap();
            let x_at = narrow(&mut spatial.input, rows.input, columns.input);
            let y_at = narrow(&mut spatial.output, rows.output, columns.output);
            spatial.pads = [rows.pad, columns.pad];
            bytes[..size].copy_from_slice(spatial.as_bytes());
            parameters = crate::support::Words::new(&bytes);

            // Images of the batch lie a whole image apart, so the patch runs for all of them.
            let mut inputs: Vec<Guarded> = case.sources(&prepared).iter().map(|s| Guarded::new(s, 0)).collect();
            let mut output = Guarded::new(&vec![0x7e; case.output.bytes()], 0);
            let mut windows: Vec<Window> = inputs.iter_mut().map(Guarded::window).collect();
            windows[0] = Window { ptr: windows[0].ptr.wrapping_add(x_at), len: windows[0].len - x_at };
            let whole = output.window();
            let outputs = [Window { ptr: whole.ptr.wrapping_add(y_at), len: whole.len - y_at }];
            let end = spatial.output.height * ys.dim(0);
            let mut own = scratch(&prepared.scratch);
            let own: Vec<Window> = own.iter_mut().map(Guarded::window).collect();
            let mut call = Call::new(&windows, &outputs, &own, parameters.bytes(), RowRange { begin: 0, end });
            call.direction = random.pick(&[Direction::Up, Direction::Down]);
            assert!(row.check(&call), "{} refuses a patch, seed {seed}", kernel.name);
            // SAFETY: checked; nothing overlaps.
            unsafe { row.run(&call) };

            let element = if case.output.ty.dtype == DType::F32 { 4 } else { 1 };
            let channels = ys.dim(3) as usize * element;
            // Sums in another order than the reference's, or with other roundings, are still the same sums.
            let want = if SUMS.contains(&number) {
                Job::new(kernel, &row, &case, &prepared, Direction::Up).run(&[(0, prepared.rows)], &mut random)
            } else {
                case.reference()
            };
            let got = output.bytes();
            for (pixel, (g, w)) in got.chunks(channels).zip(want.chunks(channels)).enumerate() {
                let x = pixel as u32 % ys.dim(2);
                let y = pixel as u32 / ys.dim(2) % ys.dim(1);
                let inside =
                    (rows.output.0..rows.output.1).contains(&y) && (columns.output.0..columns.output.1).contains(&x);
                if inside {
                    let same = crate::rows::agree_within(number, case.output.ty.dtype, g, w, &[]);
                    assert!(same, "{} pixel {y}, {x}, seed {seed}: {case:?}", kernel.name);
                } else {
                    assert!(g.iter().all(|&b| b == 0x7e), "{} wrote outside its patch", kernel.name);
                }
            }
        }
    }
}
