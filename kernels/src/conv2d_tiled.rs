//! int8 convolution of one group as a product of matrices ([`crate::tiled`]), for CPUs that multiply one number at a time.
//!
//! Windows: image; weights and constants as `tiled` packs them; scratch for the windows of two pixels, a word a tap; then the output
//! image. Rows are output image rows. The walk is the plain convolution's, but two pixels at a time, across the ends of rows: both
//! windows are read before the first of their outputs is written, and nothing is read of them afterwards.

use kiln_core::{Call, Direction, Row};

use crate::conv2d::Conv2dParameters;
use crate::tiled::{Biased, Form, Layer, POSITIONS, Signed, pair};

/// int8 convolution on CPUs whose loads of signed bytes have immediate offsets.
pub const CONV2D_TILED_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(22, 1, 0, check, run::<Signed>) };
/// int8 convolution on Armv6-M.
pub const CONV2D_TILED_BIASED_S8: Row =
    // SAFETY: `check` proves that `run` stays inside the windows.
    unsafe { Row::new(27, 1, 0, check, run::<Biased>) };

/// The taps of a window, channels and all.
fn taps(p: &Conv2dParameters) -> Option<usize> {
    let [height, width] = p.spatial.kernel.map(|n| n as usize);
    height.checked_mul(width)?.checked_mul(p.group_inputs as usize)
}

fn check(call: &Call<'_>) -> bool {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return false };
    let s = &p.spatial;
    let outputs = s.output.channels as usize;
    let aligned = call.input(2).ptr.addr() | call.scratch(0).ptr.addr();
    s.check(call, 1)
        && p.groups == 1
        && p.group_inputs == s.input.channels
        && p.group_inputs != 0
        && aligned & 3 == 0
        && call.input(2).holds(outputs, 9)
        && taps(p).is_some_and(|taps| {
            let weights = taps.checked_mul(outputs);
            weights.is_some_and(|n| call.input(1).holds(n, 1)) && call.scratch(0).holds(taps, 4)
        })
}

unsafe fn run<F: Form>(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let layer = Layer {
        weights: call.input(1).ptr,
        block: call.input(2).ptr,
        channels: p.spatial.output.channels as usize,
        taps: taps(p).unwrap_or(0),
        epilogue: &p.epilogue,
    };
    let to = call.scratch(0).ptr.cast::<i32>();
    let mut walk = Walk::new(call, p);
    while walk.left > 0 {
        let tile = walk.next();
        // SAFETY: `check` proved that scratch holds a word a tap, that taps inside the image are inside its window, that
        // weights and constants are there for every channel, that there is a tap, and the alignment of words.
        unsafe {
            gather::<F>(p, &tile, to);
            layer.tile::<F>(to, tile.map(|pixel| pixel.output));
        }
    }
}

/// A pixel to compute.
#[derive(Clone, Copy)]
struct Pixel {
    /// The byte under the first tap; outside the image a pointer that is not used.
    source: *const u8,
    /// Its row and its column there.
    at: [i32; 2],
    output: *mut u8,
}

/// The pixels of a call, one after the other.
struct Walk<'a> {
    call: &'a Call<'a>,
    p: &'a Conv2dParameters,
    /// Pixels to come.
    left: usize,
    /// The next one: its row, counted over all images, and how many of that row follow it.
    row: u32,
    follow: u32,
    pixel: Pixel,
    /// From one to the next of a row.
    right: i32,
    steps: [isize; 2],
}

impl<'a> Walk<'a> {
    #[inline(never)]
    fn new(call: &'a Call<'a>, p: &'a Conv2dParameters) -> Walk<'a> {
        let s = &p.spatial;
        let up = call.direction == Direction::Up;
        let rows = call.rows.end.saturating_sub(call.rows.begin);
        let stride = s.strides[1];
        let to_right = [stride.wrapping_mul(s.input.pixel_pitch) as isize, s.output.pixel_pitch as isize];
        let mut walk = Walk {
            call,
            p,
            left: (rows as usize).wrapping_mul(s.output.width as usize),
            row: if up { call.rows.begin } else { call.rows.end.wrapping_sub(1) },
            follow: 0,
            pixel: Pixel { source: core::ptr::null(), at: [0; 2], output: core::ptr::null_mut() },
            right: if up { stride as i32 } else { (stride as i32).wrapping_neg() },
            steps: if up { to_right } else { to_right.map(isize::wrapping_neg) },
        };
        if walk.left > 0 {
            walk.enter();
        }
        walk
    }

    /// Goes to the first pixel of the row, or to the last.
    #[inline(never)]
    fn enter(&mut self) {
        let s = &self.p.spatial;
        let image = self.row.checked_div(s.output.height).unwrap_or(0);
        let y = self.row.wrapping_sub(image.wrapping_mul(s.output.height));
        self.follow = s.output.width.wrapping_sub(1);
        let x = if self.call.direction == Direction::Up { 0 } else { self.follow };
        let first = |at: u32, axis: usize| at.wrapping_mul(s.strides[axis]).wrapping_sub(s.pads[axis]) as i32;
        let at = [first(y, 0), first(x, 1)];
        // Signed, as wrapping arithmetic is.
        let to_first = (at[0] as isize).wrapping_mul(s.input.row_pitch as isize);
        let to_first = to_first.wrapping_add((at[1] as isize).wrapping_mul(s.input.pixel_pitch as isize));
        let source = s.input.pixel(self.call.input(0), image, 0, 0).wrapping_offset(to_first);
        self.pixel = Pixel { source, at, output: s.output.pixel(self.call.output(0), image, y, x) };
    }

    /// The next two pixels; the last one twice where it is alone.
    #[inline(never)]
    fn next(&mut self) -> [Pixel; POSITIONS] {
        let first = self.pixel;
        self.go_on();
        let second = if self.left > 0 { self.pixel } else { first };
        if self.left > 0 {
            self.go_on();
        }
        [first, second]
    }

    /// Goes past a pixel.
    #[inline(never)]
    fn go_on(&mut self) {
        self.left = self.left.wrapping_sub(1);
        if self.follow > 0 {
            self.follow = self.follow.wrapping_sub(1);
            let pixel = &mut self.pixel;
            pixel.at[1] = pixel.at[1].wrapping_add(self.right);
            pixel.source = pixel.source.wrapping_offset(self.steps[0]);
            pixel.output = pixel.output.wrapping_offset(self.steps[1]);
        } else {
            let up = self.call.direction == Direction::Up;
            self.row = if up { self.row.wrapping_add(1) } else { self.row.wrapping_sub(1) };
            self.enter();
        }
    }
}

/// Makes words of the windows of two pixels, with the zero point where a tap is padding.
///
/// # Safety
///
/// Taps inside the image can be read, and `to` has a word a tap.
#[inline(never)]
unsafe fn gather<F: Form>(p: &Conv2dParameters, tile: &[Pixel; POSITIONS], to: *mut i32) {
    let s = &p.spatial;
    let [height, width] = s.kernel;
    let depth = p.group_inputs as usize;
    let (down, right) = s.tap_steps();
    let inside = |pixel: &Pixel| {
        let within = |axis: usize, size: u32| {
            let last = s.kernel[axis].wrapping_sub(1).wrapping_mul(s.dilations[axis]);
            pixel.at[axis] >= 0 && (pixel.at[axis] as u32).wrapping_add(last) < size
        };
        within(0, s.input.height) && within(1, s.input.width)
    };
    let inside = tile.iter().all(inside);
    // Where taps follow one another without a gap, all of a window row is one run.
    let (runs, length) =
        if inside && right == depth { (1, depth.wrapping_mul(width as usize)) } else { (width, depth) };
    let zero = p.epilogue.input_zero as u8;
    let mut to = to;
    let mut lines = tile.map(|pixel| pixel.source);
    for ky in 0..height {
        let mut sources = lines;
        for kx in 0..runs {
            let (mut from, mut steps) = (sources, [1; POSITIONS]);
            if !inside {
                for ((from, step), pixel) in from.iter_mut().zip(&mut steps).zip(tile) {
                    let y = (pixel.at[0] as u32).wrapping_add(ky.wrapping_mul(s.dilations[0]));
                    let x = (pixel.at[1] as u32).wrapping_add(kx.wrapping_mul(s.dilations[1]));
                    if y >= s.input.height || x >= s.input.width {
                        (*from, *step) = (&raw const zero, 0);
                    }
                }
            }
            // SAFETY: bytes of the image for taps inside it, and the taps' words.
            unsafe { pair::<F>(from, steps, to, length) };
            to = to.wrapping_add(length);
            sources = sources.map(|source| source.wrapping_add(right));
        }
        lines = lines.map(|line| line.wrapping_add(down));
    }
}

/// How planning chooses and prepares the rows.
#[cfg(feature = "host")]
pub(crate) mod host {
    use kiln_core::{DType, TargetId};
    use kiln_ops::OpError;

    use super::*;
    use crate::conv2d::host::{finish, parameters, quantization_suits};
    use crate::conv2d_paired::host::channels;
    use crate::lag;
    use crate::table::{Emit, Kernel, Operation};
    use crate::tiled::host::{Packing, emit as emit_constants, suit};

    pub(crate) const CONV2D_TILED_S8: Kernel = Kernel {
        number: super::CONV2D_TILED_S8.number(),
        name: "conv2d_tiled_s8",
        row_name: "CONV2D_TILED_S8",
        targets: &[TargetId::RV32IMC, TargetId::ARMV7M],
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| applies(operation, Packing::Signed),
        prepare: |operation, emit| prepare(operation, Packing::Signed, emit),
        lag: lag_of,
        portable: super::CONV2D_TILED_S8,
        native: None,
        work: None,
    };

    pub(crate) const CONV2D_TILED_BIASED_S8: Kernel = Kernel {
        number: super::CONV2D_TILED_BIASED_S8.number(),
        name: "conv2d_tiled_biased_s8",
        row_name: "CONV2D_TILED_BIASED_S8",
        targets: &[TargetId::ARMV6M],
        directions: &[Direction::Up, Direction::Down],
        applies: |operation| applies(operation, Packing::Biased),
        prepare: |operation, emit| prepare(operation, Packing::Biased, emit),
        lag: lag_of,
        portable: super::CONV2D_TILED_BIASED_S8,
        native: None,
        work: None,
    };

    fn applies(operation: &Operation<'_>, packing: Packing) -> bool {
        let suits = parameters(operation, DType::I8).is_some_and(|(_, p)| p.groups == 1);
        suits && quantization_suits(operation) && channels(operation, |channels| suit(channels, packing)) == Some(true)
    }

    fn prepare(operation: &Operation<'_>, packing: Packing, emit: &mut dyn Emit) -> Result<(), OpError> {
        emit.input(0);
        channels(operation, |channels| emit_constants(channels, packing, emit));
        let taps = parameters(operation, DType::I8).and_then(|(_, p)| taps(&p));
        emit.scratch(4 * taps.unwrap_or(0) as u64);
        finish(operation, DType::I8, emit)
    }

    fn lag_of(operation: &Operation<'_>, input: usize, direction: Direction) -> Option<u64> {
        let (_, p) = parameters(operation, DType::I8).filter(|_| input == 0)?;
        lag::tiles(&p.spatial, operation.output.ty.shape.dim(0), POSITIONS as u32, direction)
    }
}
