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

/// The lag of a walk over vectors that reads a whole vector for each element it writes.
pub(crate) fn vectors(vectors: u32, input_bytes: u32, output_bytes: u32, size: u32) -> u64 {
    let drift = i64::from(output_bytes) - i64::from(input_bytes);
    let own = i64::from(output_bytes) - i64::from(size);
    let last = i64::from(vectors) - 1;
    drift.max(0).saturating_mul(last).saturating_add(own) as u64
}
