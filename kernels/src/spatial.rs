//! Sliding windows over images: parameters, the proof that they stay inside their windows, the walk.

use kiln_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use kiln_core::{Call, Window};

/// An image batch in memory: pixels of `channels` elements side by side, 24 bytes.
///
/// Pitches are distances in bytes. They need not be dense: a patch keeps the pitches of the image it
/// was cut from, and a part of a concatenation keeps those of the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Image {
    /// Rows.
    pub height: u32,
    /// Pixels in a row.
    pub width: u32,
    /// Elements in a pixel.
    pub channels: u32,
    /// From one image of the batch to the next: at least `height * row_pitch`.
    pub image_pitch: u32,
    /// From one row to the next: at least `width * pixel_pitch`.
    pub row_pitch: u32,
    /// From one pixel to the next: at least the bytes of `channels` elements.
    pub pixel_pitch: u32,
}

impl Image {
    /// Where a pixel begins.
    #[inline(always)]
    pub(crate) fn pixel(&self, window: Window, image: u32, y: u32, x: u32) -> *mut u8 {
        let step = |i: u32, pitch: u32| (i as usize).wrapping_mul(pitch as usize);
        let at = step(image, self.image_pitch).wrapping_add(step(y, self.row_pitch));
        window.ptr.wrapping_add(at).wrapping_add(step(x, self.pixel_pitch))
    }

    /// Whether `images` images of elements of `size` bytes (a power of two) lie inside `window`,
    /// every element aligned if the window is.
    pub(crate) fn fits(&self, window: Window, images: u32, size: u32) -> bool {
        let used = self.channels as u64 * size as u64;
        let (image, row, pixel) = (self.image_pitch as u64, self.row_pitch as u64, self.pixel_pitch as u64);
        // Each line bounds the next: with them the sum below can't exceed `images * image_pitch`.
        used <= pixel
            && self.width as u64 * pixel <= row
            && self.height as u64 * row <= image
            && (self.image_pitch | self.row_pitch | self.pixel_pitch) & size.wrapping_sub(1) == 0
            && self.channels != 0
            && self.width != 0
            && self.height != 0
            && (images as u64).saturating_sub(1) * image
                + (self.height as u64).saturating_sub(1) * row
                + (self.width as u64).saturating_sub(1) * pixel
                + used
                <= window.len as u64
    }
}

/// The geometry of convolutions and pools, 84 bytes. Arrays are height, width.
///
/// Bottom and right padding are not stated: a tap below or right of the input is padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Spatial {
    /// What is read.
    pub input: Image,
    /// What is written.
    pub output: Image,
    /// Taps.
    pub kernel: [u32; 2],
    /// Steps between windows.
    pub strides: [u32; 2],
    /// Distance between taps.
    pub dilations: [u32; 2],
    /// Padding at the top and at the left.
    pub pads: [u32; 2],
    /// Reserved for line buffers (input rows kept in a ring of so many): 0, anything else is refused.
    pub ring_rows: u32,
}

/// The taps of one window along one axis that fall inside the input: `first..end` of all. The
/// others are padding.
#[derive(Clone, Copy)]
pub(crate) struct Taps {
    pub(crate) first: u32,
    pub(crate) end: u32,
    /// The input index of tap `first`.
    pub(crate) at: u32,
}

/// One output pixel and the window over it.
#[derive(Clone, Copy)]
pub(crate) struct Pixel {
    /// The first channel of the input pixel under the first tap inside the image.
    pub(crate) input: *const u8,
    /// The first channel of the output pixel.
    pub(crate) output: *mut u8,
    pub(crate) rows: Taps,
    pub(crate) columns: Taps,
}

pub(crate) fn ceil_div(n: u32, d: u32) -> u32 {
    let quotient = n.checked_div(d).unwrap_or(0);
    quotient.wrapping_add((quotient.wrapping_mul(d) != n) as u32)
}

impl Spatial {
    /// Whether the walk over `call.rows` reads only inside input 0 and writes only inside output 0.
    pub(crate) fn check(&self, call: &Call<'_>, size: u32) -> bool {
        let (rows, height) = (call.rows.end, self.output.height);
        let images = ceil_div(rows, height);
        height != 0
            && self.ring_rows == 0
            && self.axis_is_sound(0, self.input.height, height)
            && self.axis_is_sound(1, self.input.width, self.output.width)
            && (rows == 0
                || self.input.fits(call.input(0), images, size) && self.output.fits(call.output(0), images, size))
    }

    /// The same for gradients, which walk rows of the image that windows slide over: whether `rows` of them lie
    /// inside each of `images`, and the results of its windows inside `results`.
    pub(crate) fn check_backwards(&self, rows: u32, images: &[Window], results: Window, size: u32) -> bool {
        let height = self.input.height;
        let count = ceil_div(rows, height);
        height != 0
            && self.ring_rows == 0
            && self.axis_is_sound(0, height, self.output.height)
            && self.axis_is_sound(1, self.input.width, self.output.width)
            && images.iter().all(|&window| self.input.fits(window, count, size))
            && self.output.fits(results, count, size)
    }

    /// The output indices along `axis` (0 height, 1 width) of the windows that reach over input index `at`, whether
    /// or not a tap falls on it: `first..end`. [`Spatial::axis_is_sound`] keeps the sums within 32 bits.
    #[inline(never)]
    pub(crate) fn windows_over(&self, axis: usize, at: u32) -> (u32, u32) {
        let of = |pair: &[u32; 2]| if axis == 0 { pair[0] } else { pair[1] };
        let size = if axis == 0 { self.output.height } else { self.output.width };
        let (stride, moved) = (of(&self.strides), at.wrapping_add(of(&self.pads)));
        let reach = of(&self.kernel).wrapping_sub(1).wrapping_mul(of(&self.dilations));
        let first = ceil_div(moved.saturating_sub(reach), stride);
        let last = moved.checked_div(stride).unwrap_or(0);
        (first, last.saturating_add(1).min(size))
    }

    /// The tap of window `o` along `axis` that falls on input index `at`, if one does.
    #[inline(always)]
    pub(crate) fn tap_on(&self, axis: usize, o: u32, at: u32) -> Option<u32> {
        let of = |pair: &[u32; 2]| if axis == 0 { pair[0] } else { pair[1] };
        let moved = at.wrapping_add(of(&self.pads)).checked_sub(o.wrapping_mul(of(&self.strides)))?;
        let dilation = of(&self.dilations);
        if dilation == 1 {
            return (moved < of(&self.kernel)).then_some(moved);
        }
        let tap = moved.checked_div(dilation)?;
        (tap < of(&self.kernel) && tap.wrapping_mul(dilation) == moved).then_some(tap)
    }

    /// Whether positions along `axis` stay within 31 bits, so that [`Spatial::taps`] can't overflow.
    #[inline(never)]
    pub(crate) fn axis_is_sound(&self, axis: usize, input: u32, output: u32) -> bool {
        let of = |pair: &[u32; 2]| if axis == 0 { pair[0] } else { pair[1] };
        let (kernel, stride, dilation, pad) =
            (of(&self.kernel), of(&self.strides), of(&self.dilations), of(&self.pads));
        let most = i32::MAX as u64;
        let moved = (output as u64).saturating_sub(1) * stride as u64;
        let reach = (kernel as u64).saturating_sub(1) * dilation as u64;
        kernel != 0
            && stride != 0
            && dilation != 0
            && moved.saturating_add(reach) <= most
            && input as u64 <= most
            && pad as u64 <= most
    }

    /// The taps inside an input of `size` for output index `at`.
    #[inline(always)]
    pub(crate) fn taps(at: u32, size: u32, kernel: u32, stride: u32, dilation: u32, pad: u32) -> Taps {
        let origin = (at.wrapping_mul(stride) as i32).wrapping_sub(pad as i32);
        let (first, end) = Self::taps_from(origin, size, kernel, dilation);
        if first >= end {
            return Taps { first: 0, end: 0, at: 0 };
        }
        Taps { first, end, at: (origin as u32).wrapping_add(first.wrapping_mul(dilation)) }
    }

    /// The taps of a window at `origin` that fall inside an input of `size`: the first one, and one behind the last.
    #[inline(always)]
    pub(crate) fn taps_from(origin: i32, size: u32, kernel: u32, dilation: u32) -> (u32, u32) {
        if origin >= size as i32 {
            return (0, 0);
        }
        let first = if origin < 0 { ceil_div(origin.unsigned_abs(), dilation) } else { 0 };
        (first, ceil_div(size.wrapping_sub(origin as u32), dilation).min(kernel))
    }

    #[inline(always)]
    pub(crate) fn row_taps(&self, y: u32) -> Taps {
        self.taps_along(0, y)
    }

    #[inline(always)]
    pub(crate) fn column_taps(&self, x: u32) -> Taps {
        self.taps_along(1, x)
    }

    /// [`Spatial::taps`] along an axis, 0 or 1; which reads what it needs itself, so that calls are short.
    #[inline(never)]
    fn taps_along(&self, axis: usize, at: u32) -> Taps {
        let of = |pair: &[u32; 2]| pair.get(axis & 1).copied().unwrap_or(0);
        let size = if axis == 0 { self.input.height } else { self.input.width };
        Self::taps(at, size, of(&self.kernel), of(&self.strides), of(&self.dilations), of(&self.pads))
    }

    /// Bytes from one tap of a window to the next, down and right.
    #[inline(always)]
    pub(crate) fn tap_steps(&self) -> (usize, usize) {
        (
            (self.dilations[0] as usize).wrapping_mul(self.input.row_pitch as usize),
            (self.dilations[1] as usize).wrapping_mul(self.input.pixel_pitch as usize),
        )
    }

    /// Stretches of at most `most` outputs that a row is cut into, and the columns under all of them: those inside the image, and
    /// those beside it.
    #[cfg(feature = "host")]
    pub(crate) fn stretches(&self, most: u32) -> [f64; 3] {
        let (mut stretches, mut columns, mut beside) = (0u32, 0u32, 0u32);
        for x in (0..self.output.width).step_by(most as usize) {
            let outputs = most.min(self.output.width - x);
            let left = i64::from(x * self.strides[1]) - i64::from(self.pads[1]);
            let end = left + i64::from((outputs - 1) * self.strides[1] + self.kernel[1]);
            let inside = (end.min(i64::from(self.input.width)) - left.max(0)).max(0);
            stretches += 1;
            columns += inside as u32;
            beside += (end - left - inside) as u32;
        }
        [stretches, columns, beside].map(f64::from)
    }

    /// Visits the pixels of `call.rows` in raster order, or in reverse where the call walks down. Row
    /// `r` is row `r % height` of image `r / height`.
    #[inline(always)]
    pub(crate) fn for_each_pixel(&self, call: &Call<'_>, mut visit: impl FnMut(&Pixel)) {
        let height = self.output.height;
        let width = self.output.width as usize;
        let count = call.rows.end.saturating_sub(call.rows.begin) as usize;
        let place = |base: *mut u8, of: &Image, image: u32, y: u32| {
            let to_image = (image as usize).wrapping_mul(of.image_pitch as usize);
            let to_row = (y as usize).wrapping_mul(of.row_pitch as usize);
            base.wrapping_add(to_image).wrapping_add(to_row)
        };
        for row in 0..count {
            let row = call.rows.begin.wrapping_add(call.direction.pick(row, count) as u32);
            let image = row.checked_div(height).unwrap_or(0);
            let y = row.wrapping_sub(image.wrapping_mul(height));
            let rows = self.row_taps(y);
            let input = place(call.input(0).ptr, &self.input, image, rows.at);
            let output = place(call.output(0).ptr, &self.output, image, y);
            for x in 0..width {
                let x = call.direction.pick(x, width);
                let columns = self.column_taps(x as u32);
                let to_pixel = (columns.at as usize).wrapping_mul(self.input.pixel_pitch as usize);
                let output = output.wrapping_add(x.wrapping_mul(self.output.pixel_pitch as usize));
                visit(&Pixel { input: input.wrapping_add(to_pixel), output, rows, columns });
            }
        }
    }
}
