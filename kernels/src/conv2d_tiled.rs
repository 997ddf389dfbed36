//! int8 convolution of one group as a product of matrices ([`crate::tiled`]), for CPUs that multiply one number at a time.
//!
//! Windows: image; weights and constants as `tiled` packs them; scratch for the windows of two pixels, a word a tap, for sums, and for
//! a padded tap; then the output image. Rows are output image rows. The walk is the plain convolution's, but two pixels at a time,
//! across the ends of rows: both windows are read before the first of their outputs is written, and nothing is read of them
//! afterwards.

use kiln_core::{Call, Direction, Row};

use crate::conv2d::Conv2dParameters;
use crate::spatial::Spatial;
use crate::tiled::{Biased, Form, POSITIONS, ROOM, Signed, Tile};

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

/// Bytes of scratch: words of the taps, room for sums, a padded tap.
fn scratch(taps: usize, depth: u32) -> Option<usize> {
    taps.checked_add(ROOM)?.checked_mul(4)?.checked_add(depth as usize)
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
            weights.is_some_and(|n| call.input(1).holds(n, 1))
                && scratch(taps, p.group_inputs).is_some_and(|n| call.scratch(0).holds(n, 1))
        })
}

unsafe fn run<F: Form>(call: &Call<'_>) {
    let Some(p) = call.parameters::<Conv2dParameters>() else { return };
    let taps = taps(p).unwrap_or(0);
    let mut tile = Tile::new(call.scratch(0).ptr.cast(), taps, &p.epilogue);
    let zeros = tile.x.wrapping_add(taps).wrapping_add(ROOM).cast::<u8>();
    for channel in 0..p.group_inputs as usize {
        // SAFETY: `check` proved that scratch holds a byte a channel behind the words.
        unsafe { zeros.wrapping_add(channel).write(p.epilogue.input_zero as u8) };
    }
    let mut walk = Walk::new(call, p);
    while walk.left > 0 {
        tile.outputs = walk.next();
        // SAFETY: `check` proved that scratch holds a word a tap and sums, that taps inside the image are inside its window, that
        // weights and constants are there for every channel, that there is a tap, and the alignment of words.
        unsafe {
            if walk.inside() {
                walk.gather_inside::<F>(tile.x);
            } else {
                walk.gather_edges::<F>(tile.x, zeros);
            }
            tile.multiply::<F>(call.input(1).ptr, call.input(2).ptr, p.spatial.output.channels as usize);
        }
    }
}

/// Where a window lies.
#[derive(Clone, Copy)]
struct Place {
    /// The byte under the first tap; outside the image a pointer that is not used.
    source: *const u8,
    /// Its row and its column there.
    y: i32,
    x: i32,
}

/// The pixels of a call, two after two.
struct Walk<'a> {
    call: &'a Call<'a>,
    p: &'a Conv2dParameters,
    /// Pixels to come.
    left: usize,
    /// The one after the two: its row, counted over all images, how many of that row follow it, its window, its outputs.
    row: u32,
    follow: u32,
    place: Place,
    output: *mut u8,
    /// The windows of the two; the same twice where it is alone.
    first: Place,
    second: Place,
}

impl<'a> Walk<'a> {
    #[inline(always)]
    fn new(call: &'a Call<'a>, p: &'a Conv2dParameters) -> Walk<'a> {
        let rows = call.rows.end.saturating_sub(call.rows.begin);
        let up = call.direction == Direction::Up;
        let none = Place { source: core::ptr::null(), y: 0, x: 0 };
        let mut walk = Walk {
            call,
            p,
            left: (rows as usize).wrapping_mul(p.spatial.output.width as usize),
            row: if up { call.rows.begin } else { call.rows.end.wrapping_sub(1) },
            follow: 0,
            place: none,
            output: core::ptr::null_mut(),
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
        self.output = s.output.pixel(self.call.output(0), image, y, x);
        let y = y.wrapping_mul(s.strides[0]).wrapping_sub(s.pads[0]);
        let x = x.wrapping_mul(s.strides[1]).wrapping_sub(s.pads[1]);
        (self.place.y, self.place.x) = (y as i32, x as i32);
        // Signed, as wrapping arithmetic is.
        let down = (y as i32 as isize).wrapping_mul(s.input.row_pitch as isize);
        let right = (x as i32 as isize).wrapping_mul(s.input.pixel_pitch as isize);
        let image = s.input.pixel(self.call.input(0), image, 0, 0);
        self.place.source = image.wrapping_offset(down.wrapping_add(right));
    }

    /// Goes to the next two pixels and says where their outputs are.
    #[inline(always)]
    fn next(&mut self) -> [*mut u8; POSITIONS] {
        let first = self.output;
        self.first = self.place;
        self.go_on();
        if self.left == 0 {
            self.second = self.first;
            return [first; POSITIONS];
        }
        let second = self.output;
        self.second = self.place;
        self.go_on();
        [first, second]
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
        self.place.x = self.place.x.wrapping_add(right as i32);
        self.place.source = self.place.source.wrapping_offset(right.wrapping_mul(s.input.pixel_pitch as isize));
        self.output = self.output.wrapping_offset(output);
    }

    /// Whether both windows are inside the image.
    #[inline(never)]
    fn inside(&self) -> bool {
        let s = &self.p.spatial;
        // `check` proved that the sums stay within 31 bits.
        let within = |axis: usize, at: i32, size: u32| {
            let last = s.kernel[axis].wrapping_sub(1).wrapping_mul(s.dilations[axis]);
            at >= 0 && (at as u32).wrapping_add(last) < size
        };
        within(0, self.first.y.min(self.second.y), s.input.height)
            && within(0, self.first.y.max(self.second.y), s.input.height)
            && within(1, self.first.x.min(self.second.x), s.input.width)
            && within(1, self.first.x.max(self.second.x), s.input.width)
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
        let between = self.second.source.addr().wrapping_sub(self.first.source.addr());
        let (mut to, mut line) = (to, self.first.source);
        for _ in 0..s.kernel[0] {
            let mut from = line;
            for _ in 0..runs {
                // SAFETY: a run of each window, and its words.
                unsafe { F::words(from, from.wrapping_add(between), to, length) };
                to = to.wrapping_add(length);
                from = from.wrapping_add(right);
            }
            line = line.wrapping_add(down);
        }
    }

    /// Makes words of windows, with the zero point where a tap is padding.
    ///
    /// # Safety
    ///
    /// Taps inside the image can be read, `zeros` has a byte a channel, and `to` has a word a tap.
    #[inline(never)]
    unsafe fn gather_edges<F: Form>(&self, to: *mut i32, zeros: *const u8) {
        let p = self.p;
        let mut to = to;
        for y in 0..p.spatial.kernel[0] {
            for x in 0..p.spatial.kernel[1] {
                let depth = p.group_inputs as usize;
                let first = self.first.tap(&p.spatial, y, x, zeros);
                let second = self.second.tap(&p.spatial, y, x, zeros);
                // SAFETY: a tap's bytes of each window, and their words.
                unsafe { F::words(first, second, to, depth) };
                to = to.wrapping_add(depth);
            }
        }
    }
}

impl Place {
    /// The bytes under tap `y`, `x`, or `zeros` where it is padding.
    #[inline(never)]
    fn tap(&self, s: &Spatial, y: u32, x: u32, zeros: *const u8) -> *const u8 {
        let (y, x) = (y.wrapping_mul(s.dilations[0]), x.wrapping_mul(s.dilations[1]));
        if (self.y as u32).wrapping_add(y) >= s.input.height || (self.x as u32).wrapping_add(x) >= s.input.width {
            return zeros;
        }
        let (down, right) = (y.wrapping_mul(s.input.row_pitch), x.wrapping_mul(s.input.pixel_pitch));
        self.source.wrapping_add(down as usize).wrapping_add(right as usize)
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
    use crate::tiled::CHANNELS;
    use crate::tiled::host::{Packing, emit as emit_constants, suit};
    use crate::workload::Workload;

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
        work: Some(work),
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
        work: Some(work),
    };

    /// Products a pixel below which three channels and fewer are not worth the words of a tile.
    const WORTH: usize = 96;

    fn applies(operation: &Operation<'_>, packing: Packing) -> bool {
        let suits = parameters(operation, DType::I8).is_some_and(|(_, p)| {
            let outputs = p.spatial.output.channels as usize;
            let worth = taps(&p).and_then(|taps| taps.checked_mul(outputs)).is_some_and(|products| products >= WORTH);
            p.groups == 1 && (outputs >= CHANNELS || worth)
        });
        suits && quantization_suits(operation) && channels(operation, |channels| suit(channels, packing)) == Some(true)
    }

    fn prepare(operation: &Operation<'_>, packing: Packing, emit: &mut dyn Emit) -> Result<(), OpError> {
        emit.input(0);
        channels(operation, |channels| emit_constants(channels, packing, emit));
        let bytes = parameters(operation, DType::I8).and_then(|(_, p)| scratch(taps(&p)?, p.group_inputs));
        emit.scratch(bytes.unwrap_or(0) as u64);
        finish(operation, DType::I8, emit)
    }

    fn lag_of(operation: &Operation<'_>, input: usize, direction: Direction) -> Option<u64> {
        let (_, p) = parameters(operation, DType::I8).filter(|_| input == 0)?;
        lag::tiles(&p.spatial, operation.output.ty.shape.dim(0), POSITIONS as u32, direction)
    }

    /// Taps multiplied by four channels and by one, tiles, outputs; what is gathered is counted by pixels.
    fn work(operation: &Operation<'_>) -> Option<Workload> {
        let (_, p) = parameters(operation, DType::I8)?;
        let [x, w, ..] = operation.inputs else { return None };
        let inputs = [x.ty, w.ty];
        let plain = Workload::of(&operation.op, &inputs, &operation.output.ty);
        let (taps, channels) = (taps(&p)? as f64, p.spatial.output.channels);
        let tiles = (plain.vectors / 2.0).ceil();
        Some(Workload {
            products: tiles * taps * f64::from(channels / 4),
            lines: tiles * taps * f64::from(channels % 4),
            // Pixels under the windows: each costs, however many channels it has.
            padding: plain.vectors * p.spatial.kernel.map(f64::from).iter().product::<f64>(),
            outputs: tiles * f64::from(channels),
            vectors: tiles,
            ..plain
        })
    }
}
