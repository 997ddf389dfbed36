//! Images as sides of a product: what lies under the taps of windows, or what windows gave, as lines of a matrix
//! that is never made, but packed from the image block by block.

use kiln_core::Window;

use crate::product::{Lines, Outputs, clear, copy};
use crate::spatial::{Image, Spatial, ceil_div};
use crate::vector::Vector;

/// A pixel of a batch that is walked in raster order.
#[derive(Clone, Copy)]
struct Pixel {
    image: u32,
    y: u32,
    x: u32,
}

impl Pixel {
    /// Number `n` of images of this size.
    #[inline(always)]
    fn number(n: usize, of: &Image) -> Pixel {
        // Pixels of a call are fewer than 2^32 rows of 2^32.
        let row = n.checked_div(of.width as usize).unwrap_or(0);
        let x = n.wrapping_sub(row.wrapping_mul(of.width as usize));
        let image = row.checked_div(of.height as usize).unwrap_or(0);
        let y = row.wrapping_sub(image.wrapping_mul(of.height as usize));
        Pixel { image: image as u32, y: y as u32, x: x as u32 }
    }

    #[inline(always)]
    fn next(&mut self, of: &Image) {
        self.x = self.x.wrapping_add(1);
        if self.x == of.width {
            self.x = 0;
            self.y = self.y.wrapping_add(1);
            if self.y == of.height {
                self.y = 0;
                self.image = self.image.wrapping_add(1);
            }
        }
    }
}

/// The results of windows, one a line, as rows of an output.
pub(crate) struct Pixels<'a> {
    window: Window,
    image: &'a Image,
    /// The channel that column 0 is.
    channel: usize,
    pitch: Option<usize>,
}

impl<'a> Pixels<'a> {
    pub(crate) fn new(window: Window, image: &'a Image, channel: usize) -> Pixels<'a> {
        let row = image.width.checked_mul(image.pixel_pitch);
        let even = row == Some(image.row_pitch) && image.height.checked_mul(image.row_pitch) == Some(image.image_pitch);
        Pixels { window, image, channel, pitch: even.then_some((image.pixel_pitch / 4) as usize) }
    }

    /// Elements from one pixel to the next, if that is the same for all pixels of all images.
    #[inline(always)]
    pub(crate) fn pitch(&self) -> Option<usize> {
        self.pitch
    }

    /// Its first element.
    #[inline(always)]
    pub(crate) fn start(&self) -> *mut f32 {
        self.window.ptr.cast::<f32>().wrapping_add(self.channel)
    }
}

impl Outputs for Pixels<'_> {
    #[inline(always)]
    fn row(&self, row: usize) -> *mut f32 {
        if let Some(pitch) = self.pitch {
            return self.start().wrapping_add(row.wrapping_mul(pitch));
        }
        let Pixel { image, y, x } = Pixel::number(row, self.image);
        self.image.pixel(self.window, image, y, x).cast::<f32>().wrapping_add(self.channel)
    }
}

/// Which way taps lead from a line's pixel to the one that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taps {
    /// A line is a window, read is the image under it.
    Under,
    /// A line is a pixel of the image, read are the results of the windows over it.
    Over,
}

/// A line for each pixel of one image: for each tap of the kernel in raster order the channels, of one group, of the
/// pixel of the other image that the tap leads to; zeros where there is none.
pub(crate) struct Gathered<'a> {
    pub(crate) window: Window,
    pub(crate) spatial: &'a Spatial,
    pub(crate) taps: Taps,
    /// The group's first channel, and how many it has.
    pub(crate) channels: (usize, usize),
}

impl Gathered<'_> {
    /// Where tap `k` leads along an axis (0 height, 1 width) from index `at`, if inside.
    #[inline(always)]
    fn led(&self, axis: usize, at: u32, k: u32) -> Option<u32> {
        let s = self.spatial;
        let of = |pair: &[u32; 2]| if axis == 0 { pair[0] } else { pair[1] };
        let size = |image: &Image| if axis == 0 { image.height } else { image.width };
        let (stride, pad) = (of(&s.strides), of(&s.pads));
        // Sums stay within 32 bits: `axis_is_sound`.
        let reach = k.wrapping_mul(of(&s.dilations));
        match self.taps {
            Taps::Under => {
                let moved = at.wrapping_mul(stride).wrapping_add(reach).checked_sub(pad)?;
                (moved < size(&s.input)).then_some(moved)
            }
            Taps::Over => {
                let moved = at.wrapping_add(pad).checked_sub(reach)?;
                if stride == 1 {
                    return (moved < size(&s.output)).then_some(moved);
                }
                let to = moved.checked_div(stride)?;
                (to < size(&s.output) && to.wrapping_mul(stride) == moved).then_some(to)
            }
        }
    }
}

impl Lines for Gathered<'_> {
    #[inline(always)]
    unsafe fn pack<V: Vector>(
        &self,
        (first, count): (usize, usize),
        (from, n): (usize, usize),
        to: *mut f32,
        pitch: usize,
    ) {
        let s = self.spatial;
        let (lines, read) = match self.taps {
            Taps::Under => (&s.output, &s.input),
            Taps::Over => (&s.input, &s.output),
        };
        let (channel, depth) = self.channels;
        let width = s.kernel[1];
        // Where a window row's taps follow one another in memory, they are one piece, unless the edge cuts it.
        let whole = (read.pixel_pitch as usize) == depth.wrapping_mul(4);
        let together = self.taps == Taps::Under && whole && s.dilations[1] == 1;
        // From what one line reads to what the next one does, in bytes.
        let stride = if self.taps == Taps::Under { s.strides[1] as usize } else { 1 };
        let step = (read.pixel_pitch as usize).wrapping_mul(stride);
        let start = Pixel::number(first, lines);
        let tap = from.checked_div(depth).unwrap_or(0);
        let mut within = from.wrapping_sub(tap.wrapping_mul(depth));
        let mut ky = (tap as u32).checked_div(width).unwrap_or(0);
        let mut kx = (tap as u32).wrapping_sub(ky.wrapping_mul(width));
        let mut done = 0usize;
        while done < n {
            // The rest of the tap's channels, or of the row's taps.
            let left = depth.wrapping_sub(within);
            let piece = if together {
                let more = width.wrapping_sub(kx).wrapping_sub(1) as usize;
                left.wrapping_add(more.wrapping_mul(depth)).min(n.wrapping_sub(done))
            } else {
                left.min(n.wrapping_sub(done))
            };
            // The last tap of the piece.
            let ahead = within.wrapping_add(piece).wrapping_sub(1).checked_div(depth).unwrap_or(0) as u32;
            let (low, high) = self.inside((kx, kx.wrapping_add(ahead)));
            let mut pixel = start;
            let mut to = to.wrapping_add(done);
            let mut left = count;
            while left > 0 {
                // The pixels that are left of an image's row.
                let run = (lines.width.wrapping_sub(pixel.x) as usize).min(left);
                let end = pixel.x.wrapping_add(run as u32);
                let y = self.led(0, pixel.y, ky);
                while pixel.x < end {
                    let after = to.wrapping_add(pitch);
                    // SAFETY: the caller's promise for what is written; what is read are channels of a pixel inside
                    // the image, or of neighbouring pixels of its row that follow one another.
                    unsafe {
                        match y {
                            None => clear::<V>(to, piece),
                            Some(y) if pixel.x < low || pixel.x >= high => {
                                self.edge::<V>(pixel, (y, kx), within, to, piece);
                            }
                            Some(y) => {
                                let x = self.led(1, pixel.x, kx).unwrap_or(0);
                                let mut at = read.pixel(self.window, pixel.image, y, x).cast_const();
                                let to_channel = channel.wrapping_add(within).wrapping_mul(4);
                                at = at.wrapping_add(to_channel);
                                // The pixels of the row of which the whole piece is inside.
                                let n = high.min(end).wrapping_sub(pixel.x);
                                for _ in 0..n {
                                    copy::<V>(at.cast(), to, piece);
                                    at = at.wrapping_add(step);
                                    to = to.wrapping_add(pitch);
                                }
                                pixel.x = pixel.x.wrapping_add(n);
                                continue;
                            }
                        }
                    }
                    pixel.x = pixel.x.wrapping_add(1);
                    to = after;
                }
                left = left.wrapping_sub(run);
                pixel.x = pixel.x.wrapping_sub(1);
                pixel.next(lines);
            }
            done = done.wrapping_add(piece);
            within = within.wrapping_add(piece);
            while within >= depth && depth != 0 {
                within = within.wrapping_sub(depth);
                kx = kx.wrapping_add(1);
            }
            if kx >= width {
                kx = 0;
                ky = ky.wrapping_add(1);
            }
        }
    }
}

impl Gathered<'_> {
    /// The columns of lines from which all of some taps along the width lead inside, one column further each time;
    /// none where windows over a pixel are further apart.
    fn inside(&self, (first, last): (u32, u32)) -> (u32, u32) {
        let s = self.spatial;
        let (stride, pad) = (s.strides[1], s.pads[1]);
        // Sums stay within 32 bits: `axis_is_sound`.
        let reach = [first, last].map(|k| k.wrapping_mul(s.dilations[1]));
        match self.taps {
            Taps::Under => (
                ceil_div(pad.saturating_sub(reach[0]), stride),
                ceil_div(s.input.width.wrapping_add(pad).saturating_sub(reach[1]), stride),
            ),
            Taps::Over if stride == 1 => {
                (reach[0].saturating_sub(pad), s.output.width.wrapping_add(reach[0]).saturating_sub(pad))
            }
            Taps::Over => (0, 0),
        }
    }

    /// A piece of a line, tap by tap, from channel `within` of tap `kx` on; row `y` is read.
    ///
    /// # Safety
    ///
    /// `n` elements can be written; the CPU has these vectors.
    #[inline(always)]
    unsafe fn edge<V: Vector>(&self, pixel: Pixel, (y, kx): (u32, u32), within: usize, to: *mut f32, n: usize) {
        let read = if self.taps == Taps::Under { &self.spatial.input } else { &self.spatial.output };
        let (channel, depth) = self.channels;
        let (mut kx, mut within, mut done) = (kx, within, 0usize);
        while done < n {
            let piece = depth.wrapping_sub(within).min(n.wrapping_sub(done));
            let to = to.wrapping_add(done);
            // SAFETY: as in `pack`.
            unsafe {
                match self.led(1, pixel.x, kx) {
                    None => clear::<V>(to, piece),
                    Some(x) => {
                        let at = read.pixel(self.window, pixel.image, y, x).cast::<f32>().cast_const();
                        copy::<V>(at.wrapping_add(channel).wrapping_add(within), to, piece);
                    }
                }
            }
            (within, kx) = (0, kx.wrapping_add(1));
            done = done.wrapping_add(piece.max(1));
        }
    }
}

/// The weights of a group as lines of the gradient by the image: a line for each tap and each of the group's outputs,
/// with the group's input channels.
pub(crate) struct Weights {
    /// The first output's first tap.
    pub(crate) start: *const f32,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    /// Elements of all taps of an output.
    pub(crate) filter: usize,
}

impl Lines for Weights {
    #[inline(always)]
    unsafe fn pack<V: Vector>(
        &self,
        (first, count): (usize, usize),
        (from, n): (usize, usize),
        mut to: *mut f32,
        pitch: usize,
    ) {
        let mut tap = first.checked_div(self.outputs).unwrap_or(0);
        let mut output = first.wrapping_sub(tap.wrapping_mul(self.outputs));
        for _ in 0..count {
            let at = output.wrapping_mul(self.filter).wrapping_add(tap.wrapping_mul(self.inputs)).wrapping_add(from);
            // SAFETY: the caller's promise.
            unsafe { copy::<V>(self.start.wrapping_add(at), to, n) };
            to = to.wrapping_add(pitch);
            output = output.wrapping_add(1);
            if output == self.outputs {
                output = 0;
                tap = tap.wrapping_add(1);
            }
        }
    }
}

/// A line for each tap of the kernel and each input channel of a group, in that order: what the windows see there,
/// window after window; zeros in the padding.
pub(crate) struct Seen<'a> {
    pub(crate) window: Window,
    pub(crate) spatial: &'a Spatial,
    /// The group's first channel, and how many it has.
    pub(crate) channels: (usize, usize),
}

impl Lines for Seen<'_> {
    #[inline(always)]
    unsafe fn pack<V: Vector>(
        &self,
        (first, count): (usize, usize),
        (from, n): (usize, usize),
        to: *mut f32,
        pitch: usize,
    ) {
        let s = self.spatial;
        let (channel, depth) = self.channels;
        let step = (s.input.pixel_pitch as usize).wrapping_mul(s.strides[1] as usize);
        let taps = Gathered { window: self.window, spatial: s, taps: Taps::Under, channels: self.channels };
        let start = Pixel::number(from, &s.output);
        for line in 0..count {
            let number = first.wrapping_add(line);
            let tap = number.checked_div(depth).unwrap_or(0);
            let to_channel = channel.wrapping_add(number.wrapping_sub(tap.wrapping_mul(depth))).wrapping_mul(4);
            let ky = (tap as u32).checked_div(s.kernel[1]).unwrap_or(0);
            let kx = (tap as u32).wrapping_sub(ky.wrapping_mul(s.kernel[1]));
            let (low, high) = taps.inside((kx, kx));
            let mut pixel = start;
            let mut to = to.wrapping_add(line.wrapping_mul(pitch));
            let mut left = n;
            while left > 0 {
                // The windows that are left of a row: before the image, inside, behind it.
                let run = (s.output.width.wrapping_sub(pixel.x) as usize).min(left);
                let end = pixel.x.wrapping_add(run as u32);
                let (low, high) = (low.clamp(pixel.x, end), high.clamp(pixel.x, end));
                let inside = high.saturating_sub(low) as usize;
                let y = taps.led(0, pixel.y, ky).filter(|_| inside > 0);
                let x = taps.led(1, low, kx);
                // SAFETY: the caller's promise for what is written; what is read is a channel of pixels inside the
                // image, `step` apart in its row.
                unsafe {
                    match (y, x) {
                        (Some(y), Some(x)) => {
                            let before = low.wrapping_sub(pixel.x) as usize;
                            clear::<V>(to, before);
                            let to = to.wrapping_add(before);
                            let mut at = s.input.pixel(self.window, pixel.image, y, x).wrapping_add(to_channel);
                            if step == 4 {
                                copy::<V>(at.cast::<f32>().cast_const(), to, inside);
                            } else {
                                for i in 0..inside {
                                    to.wrapping_add(i).write(at.cast::<f32>().read());
                                    at = at.wrapping_add(step);
                                }
                            }
                            clear::<V>(to.wrapping_add(inside), end.wrapping_sub(high) as usize);
                        }
                        _ => clear::<V>(to, run),
                    }
                }
                to = to.wrapping_add(run);
                left = left.wrapping_sub(run);
                pixel.x = end.wrapping_sub(1);
                pixel.next(&s.output);
            }
        }
    }
}
