//! The pixels of a call one after the other, for rows that compute several of them together.

use kiln_core::{Call, Direction};

use crate::spatial::{Image, Spatial, ceil_div};

/// A walk over output pixels in raster order, or in reverse where the call walks down, over the ends of rows and images.
pub(crate) struct Pixels<'a> {
    pub(crate) call: &'a Call<'a>,
    spatial: &'a Spatial,
    /// Pixels to come.
    pub(crate) left: usize,
    /// Pixels of a row; all there are where rows follow one another without a gap and windows are single pixels.
    width: u32,
    /// Columns of the row whose windows are inside the image: none where the row's are not.
    inside: (u32, u32),
    /// The columns of rows whose windows are inside.
    columns: (u32, u32),
    /// The next pixel: its row, counted over all images, and its column.
    row: u32,
    x: u32,
    /// The first byte under its window, if that is inside the image.
    pub(crate) source: *const u8,
    /// Its outputs.
    pub(crate) output: *mut u8,
    /// Bytes from one pixel's window, and from its outputs, to those of the next.
    pub(crate) steps: (isize, isize),
}

impl<'a> Pixels<'a> {
    /// The walk over the rows of `call`, whose geometry `Spatial::check` accepted. It has to [`begin`](Pixels::begin).
    #[inline(always)]
    pub(crate) fn new(call: &'a Call<'a>, spatial: &'a Spatial) -> Pixels<'a> {
        let (source, output) = (core::ptr::null(), core::ptr::null_mut());
        let (inside, columns, steps) = ((0, 0), (0, 0), (0, 0));
        let (left, width, row, x) = (0, 0, 0, 0);
        Pixels { call, spatial, left, width, inside, columns, row, x, source, output, steps }
    }

    /// Goes to the first pixel. Written in place: returned, it would be copied.
    #[inline(never)]
    pub(crate) fn begin(&mut self) {
        let (call, s) = (self.call, self.spatial);
        let stride = s.strides[1];
        let rows = call.rows.end.saturating_sub(call.rows.begin);
        let left = (rows as usize).wrapping_mul(s.output.width as usize);
        let dense = |image: &Image| {
            image.width.wrapping_mul(image.pixel_pitch) == image.row_pitch
                && image.height.wrapping_mul(image.row_pitch) == image.image_pitch
        };
        let single = s.kernel == [1; 2] && s.pads == [0; 2] && s.strides == [1; 2];
        let flat = single && s.input.width == s.output.width && s.input.height == s.output.height;
        let flat = flat && dense(&s.input) && dense(&s.output);
        let reach = s.kernel[1].wrapping_sub(1).wrapping_mul(s.dilations[1]);
        let first = ceil_div(s.pads[1], stride);
        let end = match s.input.width.checked_sub(reach) {
            Some(room) if room > 0 => {
                let last = room.wrapping_sub(1).wrapping_add(s.pads[1]).checked_div(stride).unwrap_or(0);
                last.wrapping_add(1).min(s.output.width)
            }
            _ => 0,
        };
        let step = (stride as isize).wrapping_mul(s.input.pixel_pitch as isize);
        let steps = (step, s.output.pixel_pitch as isize);
        let up = call.direction == Direction::Up;
        let width = if flat { left as u32 } else { s.output.width };
        (self.left, self.width) = (left, width);
        self.columns = if flat { (0, width) } else { (first, end) };
        self.steps = if up { steps } else { (steps.0.wrapping_neg(), steps.1.wrapping_neg()) };
        if left > 0 {
            self.enter(if up { call.rows.begin } else { call.rows.end.wrapping_sub(1) });
            if flat && !up {
                self.x = width.wrapping_sub(1);
            }
        }
    }

    /// Goes to the first pixel of a row, or to the last.
    #[inline(never)]
    fn enter(&mut self, row: u32) {
        let s = self.spatial;
        let image = row.checked_div(s.output.height).unwrap_or(0);
        let y = row.wrapping_sub(image.wrapping_mul(s.output.height));
        let x = if self.call.direction == Direction::Up { 0 } else { s.output.width.wrapping_sub(1) };
        let reach = s.kernel[0].wrapping_sub(1).wrapping_mul(s.dilations[0]) as i32;
        let top = (y.wrapping_mul(s.strides[0]) as i32).wrapping_sub(s.pads[0] as i32);
        self.inside = if top >= 0 && top.wrapping_add(reach) < s.input.height as i32 { self.columns } else { (0, 0) };
        // Signed, as wrapping arithmetic is: outside the image the pointer is not used.
        let left = x.wrapping_mul(s.strides[1]).wrapping_sub(s.pads[1]) as i32 as isize;
        let to_left = left.wrapping_mul(s.input.pixel_pitch as isize);
        self.source = s.input.pixel(self.call.input(0), image, top as u32, 0).wrapping_offset(to_left);
        self.output = s.output.pixel(self.call.output(0), image, y, x);
        (self.row, self.x) = (row, x);
    }

    /// Goes on by a pixel.
    #[inline(never)]
    pub(crate) fn go_on(&mut self) {
        self.left = self.left.wrapping_sub(1);
        self.source = self.source.wrapping_offset(self.steps.0);
        self.output = self.output.wrapping_offset(self.steps.1);
        self.arrive(1);
    }

    /// Goes past `n` pixels that [`Pixels::inside`] counted. Pointers have moved already.
    #[inline(never)]
    pub(crate) fn settle(&mut self, n: usize) {
        self.left = self.left.wrapping_sub(n);
        self.arrive(n as u32);
    }

    /// Is `n` pixels further, at most at the row's end, and from there at the next row.
    #[inline(always)]
    fn arrive(&mut self, n: u32) {
        if self.call.direction == Direction::Up {
            self.x = self.x.wrapping_add(n);
            if self.x == self.width {
                self.enter(self.row.wrapping_add(1));
            }
        } else if self.x >= n {
            self.x = self.x.wrapping_sub(n);
        } else {
            self.enter(self.row.wrapping_sub(1));
        }
    }

    /// Whether the next pixel's window is inside the image.
    #[inline(always)]
    pub(crate) fn is_inside(&self) -> bool {
        self.x >= self.inside.0 && self.x < self.inside.1
    }

    /// How many of the next pixels are of one row, with windows inside the image.
    #[inline(always)]
    pub(crate) fn inside(&self) -> usize {
        let (from, end) = self.inside;
        if !self.is_inside() {
            return 0;
        }
        let pixels = match self.call.direction {
            Direction::Up => end.wrapping_sub(self.x),
            Direction::Down => self.x.wrapping_sub(from).wrapping_add(1),
        };
        (pixels as usize).min(self.left)
    }

    /// The next pixel's row, counted over all images, and its column.
    #[inline(always)]
    pub(crate) fn place(&self) -> (u32, u32) {
        (self.row, self.x)
    }

    /// The place after this one.
    #[inline(always)]
    pub(crate) fn after(&self, (row, x): (u32, u32)) -> (u32, u32) {
        let last = self.spatial.output.width.wrapping_sub(1);
        match self.call.direction {
            Direction::Up if x == last => (row.wrapping_add(1), 0),
            Direction::Up => (row, x.wrapping_add(1)),
            Direction::Down if x == 0 => (row.wrapping_sub(1), last),
            Direction::Down => (row, x.wrapping_sub(1)),
        }
    }

    /// Where the first tap of the window at a place is read that is inside the image, which one that is, and how many are, down and to
    /// the right.
    #[inline(always)]
    pub(crate) fn clip(&self, (row, x): (u32, u32)) -> (*const u8, [u32; 2], [u32; 2]) {
        let s = self.spatial;
        let image = row.checked_div(s.output.height).unwrap_or(0);
        let y = row.wrapping_sub(image.wrapping_mul(s.output.height));
        let top = y.wrapping_mul(s.strides[0]).wrapping_sub(s.pads[0]);
        let (first, height) = taps(top as i32, s.input.height, s.kernel[0], s.dilations[0]);
        let line = s.input.pixel(self.call.input(0), image, top.wrapping_add(first.wrapping_mul(s.dilations[0])), 0);
        let left = x.wrapping_mul(s.strides[1]).wrapping_sub(s.pads[1]);
        let (column, width) = taps(left as i32, s.input.width, s.kernel[1], s.dilations[1]);
        let left = left.wrapping_add(column.wrapping_mul(s.dilations[1])) as usize;
        (line.wrapping_add(left.wrapping_mul(s.input.pixel_pitch as usize)), [first, column], [height, width])
    }
}

/// The first tap that is inside the image, and how many are.
#[inline(never)]
fn taps(origin: i32, size: u32, kernel: u32, dilation: u32) -> (u32, u32) {
    let (first, end) = Spatial::taps_from(origin, size, kernel, dilation);
    (first, end.saturating_sub(first))
}
