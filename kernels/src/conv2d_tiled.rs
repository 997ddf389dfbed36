//! int8 convolution of one group as a product of matrices ([`crate::tiled`]), for CPUs that multiply one number at a time.
//!
//! Windows: image; weights and constants as `tiled` packs them; scratch for the windows of two pixels, a word a tap; then the output
//! image. Rows are output image rows. The walk is the plain convolution's, but two pixels at a time, across the ends of rows: both
//! windows are read before the first of their outputs is written, and nothing is read of them afterwards.

use kiln_core::{Call, Direction, Row};

use crate::conv2d::Conv2dParameters;
use crate::tiled::{Biased, Form, Signed, Tile};

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
    let scratch = call.scratch(0).ptr.cast::<i32>();
    let mut tile = Tile::new(scratch, taps(p).unwrap_or(0), p.epilogue);
    let mut walk = Walk::new(call, p);
    while walk.left > 0 {
        walk.next();
        // SAFETY: `check` proved that scratch holds a word a tap, that taps inside the image are inside its window, that
        // weights and constants are there for every channel, that there is a tap, and the alignment of words.
        unsafe {
            if walk.inside() {
                walk.gather_inside::<F>(scratch);
            } else {
                walk.gather_edges::<F>(scratch);
            }
            let outputs = [walk.first.output, walk.second.output];
            tile.run::<F>(call.input(1).ptr, call.input(2).ptr, p.spatial.output.channels as usize, outputs);
        }
    }
}

/// A pixel to compute.
#[derive(Clone, Copy)]
struct Pixel {
    /// The byte under the first tap; outside the image a pointer that is not used.
    source: *const u8,
    /// Its row and its column there.
    y: i32,
    x: i32,
    output: *mut u8,
}

/// The pixels of a call, two after two.
struct Walk<'a> {
    call: &'a Call<'a>,
    p: &'a Conv2dParameters,
    /// Pixels to come.
    left: usize,
    /// The one after the two: its row, counted over all images, and how many of that row follow it.
    row: u32,
    follow: u32,
    pixel: Pixel,
    /// The two; the same twice where it is alone.
    first: Pixel,
    second: Pixel,
}

impl<'a> Walk<'a> {
    #[inline(always)]
    fn new(call: &'a Call<'a>, p: &'a Conv2dParameters) -> Walk<'a> {
        let rows = call.rows.end.saturating_sub(call.rows.begin);
        let up = call.direction == Direction::Up;
        let none = Pixel { source: core::ptr::null(), y: 0, x: 0, output: core::ptr::null_mut() };
        let mut walk = Walk {
            call,
            p,
            left: (rows as usize).wrapping_mul(p.spatial.output.width as usize),
            row: if up { call.rows.begin } else { call.rows.end.wrapping_sub(1) },
            follow: 0,
            pixel: none,
            first: none,
            second: none,
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
        self.pixel.output = s.output.pixel(self.call.output(0), image, y, x);
        let y = y.wrapping_mul(s.strides[0]).wrapping_sub(s.pads[0]) as i32;
        let x = x.wrapping_mul(s.strides[1]).wrapping_sub(s.pads[1]) as i32;
        (self.pixel.y, self.pixel.x) = (y, x);
        // Signed, as wrapping arithmetic is.
        let down = (y as isize).wrapping_mul(s.input.row_pitch as isize);
        let right = (x as isize).wrapping_mul(s.input.pixel_pitch as isize);
        let image = s.input.pixel(self.call.input(0), image, 0, 0);
        self.pixel.source = image.wrapping_offset(down.wrapping_add(right));
    }

    /// Goes to the next two pixels.
    #[inline(always)]
    fn next(&mut self) {
        self.first = self.pixel;
        self.go_on();
        self.second = self.first;
        if self.left > 0 {
            self.second = self.pixel;
            self.go_on();
        }
    }

    /// Goes past a pixel.
    #[inline(never)]
    fn go_on(&mut self) {
        let s = &self.p.spatial;
        let up = self.call.direction == Direction::Up;
        self.left = self.left.wrapping_sub(1);
        if self.follow == 0 {
            self.row = if up { self.row.wrapping_add(1) } else { self.row.wrapping_sub(1) };
            return self.enter();
        }
        self.follow = self.follow.wrapping_sub(1);
        let (mut right, mut output) = (s.strides[1] as isize, s.output.pixel_pitch as isize);
        if !up {
            (right, output) = (right.wrapping_neg(), output.wrapping_neg());
        }
        let pixel = &mut self.pixel;
        pixel.x = pixel.x.wrapping_add(right as i32);
        pixel.source = pixel.source.wrapping_offset(right.wrapping_mul(s.input.pixel_pitch as isize));
        pixel.output = pixel.output.wrapping_offset(output);
    }

    /// Whether both windows are inside the image.
    #[inline(never)]
    fn inside(&self) -> bool {
        let s = &self.p.spatial;
        let last = |axis: usize| s.kernel[axis].wrapping_sub(1).wrapping_mul(s.dilations[axis]);
        let (down, right) = (last(0), last(1));
        let inside = |pixel: &Pixel| {
            let within = |at: i32, last: u32, size: u32| at >= 0 && (at as u32).wrapping_add(last) < size;
            within(pixel.y, down, s.input.height) && within(pixel.x, right, s.input.width)
        };
        inside(&self.first) && inside(&self.second)
    }

    /// Makes words of windows inside the image.
    ///
    /// # Safety
    ///
    /// They can be read, and `to` has a word a tap.
    #[inline(never)]
    unsafe fn gather_inside<F: Form>(&self, to: *mut i32) {
        let s = &self.p.spatial;
        let (down, right) = s.tap_steps();
        let (depth, width) = (self.p.group_inputs as usize, s.kernel[1] as usize);
        // Where taps follow one another without a gap, all of a window row is one run.
        let (runs, length) = if right == depth { (1, depth.wrapping_mul(width)) } else { (width, depth) };
        let (mut to, mut first, between) = (to, self.first.source, self.second.source.addr());
        let between = between.wrapping_sub(first.addr());
        for _ in 0..s.kernel[0] {
            let mut from = first;
            for _ in 0..runs {
                // SAFETY: a run of each window, and its words.
                unsafe { F::words(from, from.wrapping_add(between), to, length) };
                to = to.wrapping_add(length);
                from = from.wrapping_add(right);
            }
            first = first.wrapping_add(down);
        }
    }

    /// Makes words of windows, with the zero point where a tap is padding.
    ///
    /// # Safety
    ///
    /// Taps inside the image can be read, and `to` has a word a tap.
    #[inline(never)]
    unsafe fn gather_edges<F: Form>(&self, to: *mut i32) {
        let s = &self.p.spatial;
        let (down, right) = s.tap_steps();
        let depth = self.p.group_inputs as usize;
        let mut to = to;
        let (mut first, mut second) = (self.first, self.second);
        for _ in 0..s.kernel[0] {
            let (mut a, mut b) = (first, second);
            for _ in 0..s.kernel[1] {
                let inside = |pixel: &Pixel| (pixel.y as u32) < s.input.height && (pixel.x as u32) < s.input.width;
                // SAFETY: a tap's bytes of each window that has it inside the image, and their words.
                unsafe {
                    match (inside(&a), inside(&b)) {
                        (true, true) => F::words(a.source, b.source, to, depth),
                        (a_inside, b_inside) => {
                            let zero = self.p.epilogue.input_zero as u8;
                            for i in 0..depth {
                                let a = if a_inside { a.source.wrapping_add(i).read() } else { zero };
                                let b = if b_inside { b.source.wrapping_add(i).read() } else { zero };
                                to.wrapping_add(i).write(F::word(a, b));
                            }
                        }
                    }
                }
                to = to.wrapping_add(depth);
                for pixel in [&mut a, &mut b] {
                    pixel.source = pixel.source.wrapping_add(right);
                    pixel.x = pixel.x.wrapping_add(s.dilations[1] as i32);
                }
            }
            for pixel in [&mut first, &mut second] {
                pixel.source = pixel.source.wrapping_add(down);
                pixel.y = pixel.y.wrapping_add(s.dilations[0] as i32);
            }
        }
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
    use crate::tiled::POSITIONS;
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
