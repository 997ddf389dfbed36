//! Convolutions and fully connected layers, seen as one: rows of weights, one row an output channel.

use kiln_core::{DType, fixed};
use kiln_ops::{Op, QuantRef, Window2d, channel_multiplier, output_multiplier};
use kiln_planner::graph::{Graph, Node, Value};

use super::interval::{Channels, Interval};

/// Where a tap falls, over all positions of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tap {
    /// Always inside the image.
    Inside,
    /// On padding at some positions.
    Edge,
    /// Always on padding.
    Outside,
}

/// An int8 convolution or fully connected layer with constant weights.
pub(super) struct Layer<'g> {
    /// Output channels.
    pub(super) rows: usize,
    /// Groups of channels that do not see each other.
    pub(super) groups: usize,
    /// Input channels of a group.
    pub(super) columns: usize,
    taps: Vec<Tap>,
    /// int8: rows, taps, columns.
    weights: &'g [u8],
    /// int32, one a row.
    bias: Option<&'g [u8]>,
    /// The weights' zero points; convolution ignores them.
    zero_points: &'g [i32],
    x_zero: i8,
    y_zero: i8,
    /// How a row's sum is scaled.
    multipliers: Vec<(i32, i32)>,
    /// What the result is clamped to.
    clamp: (i32, i32),
}

/// An int8 value's scale and zero point, where it has one each that TFLite allows.
pub(super) fn int8_quant(value: &Value) -> Option<(f32, i8)> {
    match (&value.quant.scales[..], &value.quant.zero_points[..]) {
        (&[scale], &[zero]) if value.ty.dtype == DType::I8 => Some((scale, i8::try_from(zero).ok()?)),
        _ => None,
    }
}

impl<'g> Layer<'g> {
    /// A node as a layer; `None` if it is none, or not of int8 with constant weights and bias.
    pub(super) fn of(graph: &'g Graph, node: &Node) -> Option<Layer<'g>> {
        let (&[x, w], bias) = node.inputs.split_first_chunk()?;
        let (x_value, w_value, y_value) = (graph.value(x), graph.value(w), graph.value(node.output));
        let (_, x_zero) = int8_quant(x_value)?;
        let (y_scale, y_zero) = int8_quant(y_value)?;
        let weights = graph.constant_data(w)?;
        let bias = match bias {
            [bias] => Some(graph.constant_data(*bias)?),
            _ => None,
        };
        let (x_quant, w_quant, y_quant) = (x_value.quant.view(), w_value.quant.view(), y_value.quant.view());
        let dims = w_value.ty.shape.dims();
        let rows = dims.first().map_or(0, |&rows| rows as usize);
        let along_rows = w_quant.axis == 0 && w_quant.scales.len() == rows;
        if weights.is_empty() || !(w_quant.scales.len() == 1 || along_rows) {
            return None;
        }
        let (groups, taps, activation, zero_points, multiplier): (_, _, _, &[i32], Multiplier) = match node.op {
            Op::Conv2d(conv) => {
                let taps = taps(&conv.window(&w_value.ty), x_value, y_value);
                (conv.groups as usize, taps, conv.activation, &[], channel_multiplier)
            }
            Op::FullyConnected(dense) => {
                if w_quant.zero_points.iter().any(|&zero| i8::try_from(zero).is_err()) {
                    return None;
                }
                (1, vec![Tap::Inside], dense.activation, &w_value.quant.zero_points, output_multiplier)
            }
            _ => return None,
        };
        let columns = dims.last().map_or(0, |&columns| columns as usize);
        let multipliers = (0..rows).map(|row| multiplier(&x_quant, &w_quant, &y_quant, row)).collect();
        let clamp = activation.quantized_bounds(y_scale, y_zero.into(), -128, 127);
        Some(Layer { rows, groups, columns, taps, weights, bias, zero_points, x_zero, y_zero, multipliers, clamp })
    }

    /// Whether each channel is a group of its own: one in, one out.
    pub(super) fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.columns == 1 && self.rows == self.groups
    }

    /// How many weights there are.
    pub(super) fn weights(&self) -> usize {
        self.weights.len()
    }

    /// A row's taps: the weights of each, one a column.
    pub(super) fn taps_of(&self, row: usize) -> impl Iterator<Item = &'g [u8]> + use<'g> {
        let size = self.taps.len() * self.columns;
        self.weights[row * size..][..size].chunks_exact(self.columns)
    }

    /// A row's weights, its tap before each; those that always fall on padding are left out.
    fn row(&self, row: usize) -> impl Iterator<Item = (Tap, usize, i64)> + '_ {
        let zero = match self.zero_points {
            [] => 0,
            [zero] => *zero,
            many => many[row],
        };
        let taps = self.taps_of(row).zip(&self.taps);
        taps.filter(|(_, tap)| **tap != Tap::Outside).flat_map(move |(weights, tap)| {
            let weight = move |(column, &byte): (usize, &u8)| (*tap, column, i64::from(byte as i8) - i64::from(zero));
            weights.iter().enumerate().map(weight)
        })
    }

    /// A row's bias.
    fn bias(&self, row: usize) -> i64 {
        let bytes = self.bias.and_then(|bias| bias.get(row * 4..)?.first_chunk());
        bytes.map_or(0, |bytes| i32::from_le_bytes(*bytes).into())
    }

    /// What each output channel can hold for inputs that hold `x`.
    pub(super) fn output(&self, x: &Channels) -> Channels {
        let x = x.in_rows_of(self.groups * self.columns);
        let zero = i64::from(self.x_zero);
        let centred = |i| (i64::from(x.get(i).low) - zero, i64::from(x.get(i).high) - zero);
        let inputs: Vec<(i64, i64)> = (0..self.groups * self.columns).map(centred).collect();
        let rows = (0..self.rows).map(|row| {
            let inputs = &inputs[row / (self.rows / self.groups) * self.columns..];
            let mut sum = (self.bias(row), self.bias(row));
            for (tap, column, weight) in self.row(row) {
                let (low, high) = inputs[column];
                let (mut least, mut most) = if weight < 0 { (high, low) } else { (low, high) };
                (least, most) = (least * weight, most * weight);
                if tap == Tap::Edge {
                    (least, most) = (least.min(0), most.max(0));
                }
                sum = (sum.0 + least, sum.1 + most);
            }
            self.scaled(row, sum.0)
                .zip(self.scaled(row, sum.1))
                .map_or(Interval::ANY, |(low, high)| Interval { low, high })
        });
        Channels::new(rows.collect::<Vec<_>>())
    }

    /// The output for a sum, which rises with it; `None` where some 32-bit step would wrap, so that it might not.
    fn scaled(&self, row: usize, sum: i64) -> Option<i8> {
        let (multiplier, shift) = self.multipliers[row];
        let sum = i32::try_from(sum).ok()?;
        i32::try_from(i64::from(sum) << shift.max(0)).ok()?;
        let scaled = fixed::multiply_by_quantized_multiplier(sum, multiplier, shift).checked_add(self.y_zero.into())?;
        i8::try_from(scaled.max(self.clamp.0).min(self.clamp.1)).ok()
    }

    /// Which columns can go for inputs that hold `x`: those whose weights are all 0, and those of constants that add
    /// the same at every position of the output. Of a layer with one group.
    pub(super) fn spare_columns(&self, x: &Channels) -> Vec<bool> {
        let mut read = vec![false; self.columns];
        let mut on_edge = vec![false; self.columns];
        for (tap, column, weight) in (0..self.rows).flat_map(|row| self.row(row)) {
            read[column] |= weight != 0;
            on_edge[column] |= weight != 0 && tap == Tap::Edge;
        }
        let x = x.in_rows_of(self.columns);
        let spare = |column: usize| {
            let constant = x.get(column).constant();
            !read[column] || constant.is_some_and(|value| value == self.x_zero || !on_edge[column])
        };
        (0..self.columns).map(spare).collect()
    }

    /// The biases after `gone` columns, which can go for inputs that hold `x`; `None` if one leaves 32 bits.
    pub(super) fn folded_bias(&self, x: &Channels, gone: &dyn Fn(usize) -> bool) -> Option<Vec<i32>> {
        let x = x.in_rows_of(self.columns);
        let zero = i64::from(self.x_zero);
        // A channel that isn't constant goes if its weights are 0, and adds nothing.
        let constant = |column| x.get(column).constant().map_or(0, |value| i64::from(value) - zero);
        let added: Vec<i64> = (0..self.columns).map(|c| if gone(c) { constant(c) } else { 0 }).collect();
        let rows = (0..self.rows).map(|row| {
            let sum = self.row(row).fold(self.bias(row), |sum, (_, column, weight)| sum + weight * added[column]);
            i32::try_from(sum).ok()
        });
        rows.collect()
    }
}

/// [`channel_multiplier`] or [`output_multiplier`].
type Multiplier = fn(&QuantRef<'_>, &QuantRef<'_>, &QuantRef<'_>, usize) -> (i32, i32);

/// Where the taps of a window fall that slides over `x` and gives `y`.
fn taps(window: &Window2d, x: &Value, y: &Value) -> Vec<Tap> {
    let along = |axis: usize| {
        let (size, count) = (x.ty.shape.dim(axis + 1), y.ty.shape.dim(axis + 1));
        (0..window.kernel[axis]).map(move |tap| place(window, axis, tap, size, count))
    };
    let both = |a, b| match (a, b) {
        (Tap::Outside, _) | (_, Tap::Outside) => Tap::Outside,
        (Tap::Inside, Tap::Inside) => Tap::Inside,
        _ => Tap::Edge,
    };
    along(0).flat_map(|row| along(1).map(move |column| both(row, column))).collect()
}

/// Where a tap falls along an axis of `size` inputs and `count` outputs.
fn place(window: &Window2d, axis: usize, tap: u32, size: u32, count: u32) -> Tap {
    let (stride, before) = (u64::from(window.strides[axis]), u64::from(window.pads[axis]));
    // Along the padded image.
    let first = u64::from(tap) * u64::from(window.dilations[axis]);
    let last = first + u64::from(count.saturating_sub(1)) * stride;
    let (begin, end) = (before, before + u64::from(size));
    let entry = first + begin.saturating_sub(first).next_multiple_of(stride.max(1));
    match () {
        () if first >= begin && last < end => Tap::Inside,
        () if entry > last || entry >= end => Tap::Outside,
        () => Tap::Edge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [`place`] against asking every position.
    #[test]
    fn taps_fall_where_every_position_says() {
        let mut kinds = [0; 3];
        for (size, kernel, stride, dilation) in [
            (1, 3, 1, 1),
            (2, 3, 2, 1),
            (5, 3, 2, 1),
            (5, 3, 1, 2),
            (4, 1, 3, 1),
            (7, 2, 5, 3),
            (3, 3, 1, 4),
            (6, 5, 1, 1),
        ] {
            for pads in (0..5).flat_map(|a| (0..5).map(move |b| [a, 0, b, 0])) {
                let window = Window2d { kernel: [kernel, 1], strides: [stride, 1], dilations: [dilation, 1], pads };
                let Ok([count, _]) = window.output(size, 1) else { continue };
                for tap in 0..kernel {
                    let inside = (0..count).filter(|&o| window.tap(0, o, tap, size).is_some()).count();
                    let want = match inside as u32 {
                        0 => Tap::Outside,
                        all if all == count => Tap::Inside,
                        _ => Tap::Edge,
                    };
                    assert_eq!(place(&window, 0, tap, size, count), want, "{window:?} over {size}, tap {tap}");
                    kinds[want as usize] += 1;
                }
            }
        }
        assert!(kinds.iter().all(|n| *n > 20), "{kinds:?}");
    }
}
