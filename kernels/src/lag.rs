//! How far an output must trail an input that it overlaps: exact for the plain kernels' walks.
//!
//! A walk up writes output elements in ascending order. After an element whose bytes end at `e` is
//! written, the lowest input byte still to be read is some `r`; the output may destroy it unless
//! `output start + e <= input start + r`. The lag is the largest `e - r`, and at least 0.

use kiln_core::Direction;

use crate::spatial::{Spatial, Taps};

/// The lag of a walk over pixels in raster order, or in reverse, that reads each group's channels of
/// the window before it writes the group's outputs one by one: `groups` groups of `inputs` to
/// `outputs` channels. Images are dense.
///
/// A walk down is a walk up in a mirror: distances count from the images' ends, and what was the
/// first group is the last.
pub(crate) fn windows(spatial: &Spatial, images: u32, groups: [u32; 3], size: u32, direction: Direction) -> u64 {
    let [groups, group_inputs, group_outputs] = groups.map(i64::from);
    let size = i64::from(size);
    let (input, output) = (&spatial.input, &spatial.output);
    let up = direction == Direction::Up;
    let mirrored = |at: i64, used: i64, whole: u32| if up { at } else { i64::from(whole) - at - used };
    // The pixel whose byte is read first in its direction: the first tap inside, or the last.
    let tap = |taps: &Taps, dilation: u32| {
        let far = i64::from(taps.end) - i64::from(taps.first) - 1;
        i64::from(taps.at) + if up { 0 } else { far * i64::from(dilation) }
    };
    let mut lag = 0i64;
    // From the pixel visited last to the first, so that the lowest byte that later ones read is at hand.
    let mut later = i64::MAX;
    for y in 0..output.height {
        let y = if up { output.height - 1 - y } else { y };
        let rows = spatial.row_taps(y);
        for x in 0..output.width {
            let x = if up { output.width - 1 - x } else { x };
            let columns = spatial.column_taps(x);
            let reads = rows.first < rows.end && columns.first < columns.end;
            let lowest = tap(&rows, spatial.dilations[0]) * i64::from(input.row_pitch)
                + tap(&columns, spatial.dilations[1]) * i64::from(input.pixel_pitch);
            let lowest = mirrored(lowest, groups * group_inputs * size, input.image_pitch);
            let written = i64::from(y) * i64::from(output.row_pitch) + i64::from(x) * i64::from(output.pixel_pitch);
            let written = mirrored(written, groups * group_outputs * size, output.image_pitch);
            // Of a group, the last output but one is written while the group is still to be read.
            // What a group needs grows evenly with its number: the first and the last decide.
            for group in [0, groups - 1] {
                let own = if reads { lowest + group * group_inputs * size } else { i64::MAX };
                let end = written + ((group + 1) * group_outputs - 1) * size;
                lag = lag.max(end.saturating_sub(own.min(later)));
            }
            if reads {
                later = later.min(lowest);
            }
        }
    }
    // Every image repeats this, displaced by the difference of the pitches.
    let drift = i64::from(output.image_pitch) - i64::from(input.image_pitch);
    let last = i64::from(images) - 1;
    lag.saturating_add(drift.max(0).saturating_mul(last)) as u64
}

/// The most pixels that a walk in tiles is followed over.
const FOLLOWED: u64 = 1 << 24;

/// A walk over dense images, followed pixel by pixel.
struct Followed<'a> {
    spatial: &'a Spatial,
    images: u32,
    up: bool,
}

impl<'a> Followed<'a> {
    /// `None` for more pixels than it is worth to follow.
    fn new(spatial: &'a Spatial, images: u32, direction: Direction) -> Option<Followed<'a>> {
        let walk = Followed { spatial, images, up: direction == Direction::Up };
        (walk.each().checked_mul(u64::from(images))? <= FOLLOWED).then_some(walk)
    }

    /// Output pixels of an image.
    fn each(&self) -> u64 {
        u64::from(self.spatial.output.height) * u64::from(self.spatial.output.width)
    }

    /// Where, from the input's beginning or walking down from its end, the pixel begins that is read first for output pixel
    /// `x` of row `row`, counted over all images; `i64::MAX` where none is.
    fn lowest(&self, row: u64, x: u64) -> i64 {
        let s = self.spatial;
        let height = u64::from(s.output.height);
        let (image, y) = (row / height, row % height);
        let (rows, columns) = (s.row_taps(y as u32), s.column_taps(x as u32));
        if rows.first >= rows.end || columns.first >= columns.end {
            return i64::MAX;
        }
        let far = |taps: &Taps, dilation: u32| i64::from(taps.end - taps.first - 1) * i64::from(dilation);
        let corner = |taps: &Taps, dilation: u32| i64::from(taps.at) + if self.up { 0 } else { far(taps, dilation) };
        let at = image as i64 * i64::from(s.input.image_pitch)
            + corner(&rows, s.dilations[0]) * i64::from(s.input.row_pitch)
            + corner(&columns, s.dilations[1]) * i64::from(s.input.pixel_pitch);
        let whole = i64::from(self.images) * i64::from(s.input.image_pitch);
        if self.up { at } else { whole - at - i64::from(s.input.pixel_pitch) }
    }

    /// Whether the window of that pixel is inside the image.
    fn is_inside(&self, row: u64, x: u64) -> bool {
        let s = self.spatial;
        let (rows, columns) = (s.row_taps((row % u64::from(s.output.height)) as u32), s.column_taps(x as u32));
        [rows.end - rows.first, columns.end - columns.first] == s.kernel
    }
}

/// The lag of a walk over pixels in raster order, or in reverse, that reads the windows of `together` pixels, across the ends
/// of rows and images, before it writes their outputs. Elements are of one byte, images dense. `None` for more pixels than it
/// is worth to follow.
pub(crate) fn tiles(spatial: &Spatial, images: u32, together: u32, direction: Direction) -> Option<u64> {
    let walk = Followed::new(spatial, images, direction)?;
    let (width, total) = (u64::from(spatial.output.width), walk.each() * u64::from(images));
    let bytes = i64::from(spatial.output.channels);
    let (mut lag, mut later) = (0i64, i64::MAX);
    // From the pixel visited last to the first; a tile ends where so many whole ones have gone before.
    for visit in (0..total).rev() {
        if (visit + 1) % u64::from(together) == 0 || visit + 1 == total {
            lag = lag.max(((visit + 1) as i64 * bytes).saturating_sub(later));
        }
        let number = if walk.up { visit } else { total - 1 - visit };
        // Its own tile is read as a whole: what it reads counts for the tiles before it.
        later = later.min(walk.lowest(number / width, number % width));
    }
    Some(lag as u64)
}

/// The lag of a walk over pixels in raster order, or in reverse, that takes `together` at a time where as many follow one
/// another with windows inside the image, else one. Of each tile, `channels` channels at a time, ascending, read all windows and then are written; then those
/// that are left over, one by one, pixel by pixel. Elements of input and output have one size; images and `None` as for [`tiles`].
pub(crate) fn tiles_in_parts(
    spatial: &Spatial,
    images: u32,
    [together, part]: [u32; 2],
    direction: Direction,
) -> Option<u64> {
    let walk = Followed::new(spatial, images, direction)?;
    let (pitch, channels) = (i64::from(spatial.output.pixel_pitch), i64::from(spatial.output.channels));
    let (size, part, width) = (pitch / channels, i64::from(part), u64::from(spatial.output.width));
    let (parts, left) = (channels / part, channels % part);
    let total = walk.each() * u64::from(images);
    let place = |visit: u64| {
        let number = if walk.up { visit } else { total - 1 - visit };
        (number / width, number % width)
    };
    let lowest = |visit: u64| {
        let (row, x) = place(visit);
        walk.lowest(row, x)
    };
    let inside = |visit: u64| {
        let (row, x) = place(visit);
        walk.is_inside(row, x)
    };
    // How far along the walk `n` channels from `first` on reach.
    let end = |visit: u64, first: i64, n: i64| {
        visit as i64 * pitch + size * if walk.up { first + n } else { channels - first }
    };
    let (mut lag, mut later) = (0i64, i64::MAX);
    // From the pixel visited last to the first.
    let (mut visit, together) = (total, u64::from(together));
    // Where the pixels inside begin that the last one is among, and where those end that are taken together.
    let (mut begin, mut end_of_tiles) = (total, 0);
    while visit > 0 {
        if visit <= begin {
            begin = (0..visit).rev().take_while(|&before| inside(before)).last().unwrap_or(visit);
            end_of_tiles = visit - (visit - begin) % together;
        }
        let tile = if begin < visit && visit <= end_of_tiles { together } else { 1 };
        visit -= tile;
        let needed = |from: u64| (from..visit + tile).map(lowest).min().unwrap_or(i64::MAX);
        let all = needed(visit);
        // What parts write grows evenly, or shrinks, with their number: the first, and the last two, decide.
        for number in [0, parts - 2, parts - 1].into_iter().filter(|number| *number >= 0) {
            let own = if number + 1 < parts || left > 0 { all } else { i64::MAX };
            lag = lag.max(end(visit + tile - 1, number * part, part).saturating_sub(own.min(later)));
        }
        for (pixel, channel) in (visit..visit + tile).flat_map(|pixel| (0..left).map(move |channel| (pixel, channel))) {
            let own = needed(if channel + 1 < left { pixel } else { pixel + 1 });
            lag = lag.max(end(pixel, parts * part + channel, 1).saturating_sub(own.min(later)));
        }
        later = later.min(all);
    }
    Some(lag as u64)
}

/// The lag of a walk over rows that are cut into stretches of `pixels` pixels from the left, and these into `channels` channels at
/// a time, the last perhaps fewer, each channel its own input channel's: all that these read is read before the first of them is written.
/// Elements of input and output have one size; images and `None` as for [`tiles`].
pub(crate) fn stretches(
    spatial: &Spatial,
    images: u32,
    [pixels, channels]: [u32; 2],
    direction: Direction,
) -> Option<u64> {
    let parts = i64::from(spatial.output.channels.div_ceil(channels));
    let (channels, all) = (i64::from(channels), i64::from(spatial.output.channels));
    // Walking down, the last channels are the first part.
    let up = direction == Direction::Up;
    let passed = |n: i64| if up { all.min(n * channels) } else { all - (parts - n) * channels };
    parted(spatial, images, pixels, parts, passed, passed, direction)
}

/// The lag of a walk over pixels that takes `channels` channels at a time, as [`stretches`] of one pixel; where these leave some over,
/// the last of as many are taken once more, with those that are left. There are at least so many.
pub(crate) fn again(spatial: &Spatial, images: u32, channels: u32, direction: Direction) -> Option<u64> {
    let parts = i64::from(spatial.output.channels.div_ceil(channels));
    let (channels, all) = (i64::from(channels), i64::from(spatial.output.channels));
    let passed = |n: i64| all.min(n * channels);
    let begins = |n: i64| (all - channels).min(n * channels);
    parted(spatial, images, 1, parts, passed, begins, direction)
}

/// The lag of a walk over stretches and `parts` of their channels: `passed` says how many channels the first parts are, and `begins` how
/// many lie before what a part reads.
fn parted(
    spatial: &Spatial,
    images: u32,
    pixels: u32,
    parts: i64,
    passed: impl Fn(i64) -> i64,
    begins: impl Fn(i64) -> i64,
    direction: Direction,
) -> Option<u64> {
    let walk = Followed::new(spatial, images, direction)?;
    let width = u64::from(spatial.output.width);
    let rows = u64::from(images) * u64::from(spatial.output.height);
    let pixels = u64::from(pixels);
    let pitch = i64::from(spatial.output.pixel_pitch);
    let size = pitch / i64::from(spatial.output.channels);
    let stretches = width.div_ceil(pixels);
    let (mut lag, mut later) = (0i64, i64::MAX);
    for visit in (0..rows * stretches).rev() {
        let number = if walk.up { visit } else { rows * stretches - 1 - visit };
        let (row, first) = (number / stretches, number % stretches * pixels);
        let own = first..(first + pixels).min(width);
        let lowest = own.clone().map(|x| walk.lowest(row, x)).min().unwrap_or(i64::MAX);
        // The pixel of the stretch that lies farthest along the walk, from where that begins.
        let far = if walk.up { row * width + own.end - 1 } else { rows * width - 1 - (row * width + own.start) };
        // What the parts write and need grows evenly with their number: the first, and the last two, decide.
        for part in [0, parts - 2, parts - 1].into_iter().filter(|part| *part >= 0) {
            let next = if part + 1 < parts { lowest.saturating_add(size * begins(part + 1)) } else { i64::MAX };
            let end = far as i64 * pitch + size * passed(part + 1);
            lag = lag.max(end.saturating_sub(next.min(later)));
        }
        later = later.min(lowest);
    }
    Some(lag as u64)
}

/// The lag of a walk over rows that are cut into stretches of `pixels` pixels from the left: one channel after another goes along
/// a stretch, each its own input channel's, and writes an output when its window has been read. Elements, images and `None` as for
/// [`tiles`].
pub(crate) fn channels_along(spatial: &Spatial, images: u32, pixels: u32, direction: Direction) -> Option<u64> {
    let walk = Followed::new(spatial, images, direction)?;
    let width = u64::from(spatial.output.width);
    let rows = u64::from(images) * u64::from(spatial.output.height);
    let (pixels, channels) = (u64::from(pixels), i64::from(spatial.output.channels));
    let pitch = i64::from(spatial.output.pixel_pitch);
    let stretches = width.div_ceil(pixels);
    let (mut lag, mut later) = (0i64, i64::MAX);
    for visit in (0..rows * stretches).rev() {
        let number = if walk.up { visit } else { rows * stretches - 1 - visit };
        let (row, first) = (number / stretches, number % stretches * pixels);
        let own = first..(first + pixels).min(width);
        let lowest = own.clone().map(|x| walk.lowest(row, x)).min().unwrap_or(i64::MAX);
        // What channels write and need grows evenly with their number: the last two decide.
        for channel in [channels - 2, channels - 1].into_iter().filter(|channel| *channel >= 0) {
            let next = if channel + 1 < channels { lowest.saturating_add(channel + 1) } else { i64::MAX };
            let mut needed = next.min(later);
            // From the pixel visited last to the first.
            for visit in (0..own.end - own.start).rev() {
                let x = if walk.up { own.start + visit } else { own.end - 1 - visit };
                let far = if walk.up { row * width + x } else { rows * width - 1 - (row * width + x) };
                lag = lag.max((far as i64 * pitch + channel + 1).saturating_sub(needed));
                needed = needed.min(walk.lowest(row, x).saturating_add(channel));
            }
        }
        later = later.min(lowest);
    }
    Some(lag as u64)
}

/// The lag of a walk over vectors that reads a whole vector for each element it writes.
pub(crate) fn vectors(vectors: u32, input_bytes: u32, output_bytes: u32, size: u32) -> u64 {
    let drift = i64::from(output_bytes) - i64::from(input_bytes);
    let own = i64::from(output_bytes) - i64::from(size);
    let last = i64::from(vectors) - 1;
    drift.max(0).saturating_mul(last).saturating_add(own) as u64
}

/// The lag of a walk up over vectors of bytes that reads a whole vector for each `part` outputs, which it writes together.
pub(crate) fn vectors_in_parts(vectors: u32, inputs: u32, outputs: u32, part: u32) -> u64 {
    let drift = i64::from(outputs) - i64::from(inputs);
    let last = i64::from(vectors) - 1;
    // Within a vector, all but the last part are written while it is still to be read; behind it, the next vector is.
    let within = i64::from((outputs - 1) / part * part);
    let own = if within > 0 { drift.max(0) * last + within } else { 0 };
    let between = if last > 0 { drift.max(drift * last) } else { 0 };
    own.max(between).max(0) as u64
}
