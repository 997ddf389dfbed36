//! What a kernel has to do for an operation, in quantities that its instructions grow with.

use kiln_core::TensorType;
use kiln_ops::{Op, Window2d};

/// How many [`Workload::quantities`] there are.
pub const QUANTITIES: usize = 9;

/// The quantities of one operation, whatever kernel computes it. They are read off the types alone, so they are known
/// before anything is planned. Floating point, since nothing here must be exact and nothing may overflow.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Workload {
    /// Taps inside the image, each with its weight or, in a pool, alone; elements times columns of a matrix; bytes of a
    /// transposition.
    pub products: f64,
    /// Taps on padding.
    pub padding: f64,
    /// Stretches that lie side by side in memory: rows of a window for each output element, lines of a transposition. Of the last part of an
    /// average, the outputs that are divided.
    pub lines: f64,
    /// Output elements; bytes where they are only copied.
    pub outputs: f64,
    /// Output pixels or vectors: output elements without the innermost dimension.
    pub vectors: f64,
    /// What lies under the window of each output pixel, channels and all, padding included: kernels that multiply it by
    /// several channels gather it once.
    pub gathered: f64,
    /// Output pixels whose windows reach over padding.
    pub edges: f64,
    /// What lies under the windows of those.
    pub gathered_at_edges: f64,
}

impl Workload {
    /// The workload of `op`, whose types fit its rule ([`Op::output`]); quantities that they do not give are 0.
    pub fn of(op: &Op, inputs: &[TensorType], output: &TensorType) -> Workload {
        let outputs = elements(output);
        let channels = f64::from(output.shape.last().max(1));
        let plain = Workload { outputs, vectors: outputs / channels, ..Workload::default() };
        let Some(x) = inputs.first() else { return plain };
        let images = (x, output);
        match op {
            Op::Conv2d(conv) => match inputs.get(1) {
                Some(w) => windows(&conv.window(w), images, f64::from(w.shape.last()), plain),
                None => plain,
            },
            Op::AveragePool2dPart(part) => {
                let lines = if part.last { outputs } else { 0.0 };
                Workload { products: elements(x), lines, ..plain }
            }
            Op::Pool2d(pool) => windows(&pool.window(), images, 1.0, plain),
            Op::FullyConnected(_) => {
                let columns = inputs.get(1).map_or(0.0, |w| f64::from(w.shape.last()));
                Workload { products: outputs * columns, ..plain }
            }
            // Element by element in rows, which are an image's where it is one, whatever its last dimension is.
            Op::Quantize(_) | Op::Dequantize(_) => {
                let rows = crate::blocks::host::cut(output).map_or(0, |(_, rows)| rows);
                Workload { outputs, vectors: f64::from(rows), ..Workload::default() }
            }
            Op::Copy(_) => Workload { outputs: output.bytes().map_or(0.0, |bytes| bytes as f64), ..plain },
            Op::Transpose(transpose) => {
                // Innermost axes that follow one another in the input as well make one line.
                let mut line = 1.0;
                let mut inner = None;
                for (axis, from) in transpose.axes(output.shape.rank()).enumerate().rev() {
                    if inner.is_some_and(|inner| from + 1 != inner) {
                        break;
                    }
                    line *= f64::from(output.shape.dim(axis).max(1));
                    inner = Some(from);
                }
                let products = output.bytes().map_or(0.0, |bytes| bytes as f64);
                Workload { products, lines: outputs / line, ..plain }
            }
            _ => plain,
        }
    }

    /// The quantities in the order of a kernel's figures; the last is 1, what any call costs.
    pub fn quantities(&self) -> [f64; QUANTITIES] {
        let (products, padding, lines) = (self.products, self.padding, self.lines);
        let (gathered, edges, at_edges) = (self.gathered, self.edges, self.gathered_at_edges);
        [products, padding, lines, self.outputs, self.vectors, gathered, edges, at_edges, 1.0]
    }
}

/// The quantities of a window that slides over `x`, with `depth` products a tap for each output element.
fn windows(window: &Window2d, (x, output): (&TensorType, &TensorType), depth: f64, plain: Workload) -> Workload {
    let inside = |axis| taps_inside(window, axis, x.shape.dim(axis + 1), output.shape.dim(axis + 1));
    let (rows, columns) = (inside(0), inside(1));
    let [kernel_rows, kernel_columns] = window.kernel.map(f64::from);
    let (width, channels) = (f64::from(output.shape.dim(2)), f64::from(output.shape.last()));
    let each = f64::from(output.shape.dim(0)) * channels;
    let products = each * rows * columns * depth;
    let all = plain.outputs * kernel_rows * kernel_columns * depth;
    let under = kernel_rows * kernel_columns * depth;
    let gathered = plain.vectors * under;
    let whole = |axis| windows_inside(window, axis, x.shape.dim(axis + 1), output.shape.dim(axis + 1));
    let edges = (plain.vectors - f64::from(output.shape.dim(0)) * whole(0) * whole(1)).max(0.0);
    let (padding, lines, gathered_at_edges) = ((all - products).max(0.0), each * rows * width, edges * under);
    Workload { products, padding, lines, gathered, edges, gathered_at_edges, ..plain }
}

/// Windows and taps beyond which none is counted as padding: counting takes as many steps as the fewer of the two, and a
/// file may claim any number.
const COUNTED: u32 = 1 << 16;

/// How many taps along an axis lie inside the image, over all places of the window.
fn taps_inside(window: &Window2d, axis: usize, size: u32, outputs: u32) -> f64 {
    let of = |pair: &[u32]| pair.get(axis).copied().unwrap_or(0);
    let (taps, stride, dilation) = (of(&window.kernel), of(&window.strides), of(&window.dilations));
    let pad = i64::from(of(&window.pads));
    // Of the numbers i below `count`, those with 0 <= offset + i * step < size.
    let within = |offset: i64, step: u32, count: u32| {
        let step = i64::from(step.max(1));
        let first = (-offset).max(0) as u64;
        let first = first.div_ceil(step as u64) as i64;
        let end = ((i64::from(size) - offset).max(0) as u64).div_ceil(step as u64) as i64;
        (end.min(i64::from(count)) - first).max(0) as f64
    };
    match taps.min(outputs) {
        COUNTED.. => f64::from(taps) * f64::from(outputs),
        _ if taps <= outputs => {
            (0..taps).map(|k| within(i64::from(k) * i64::from(dilation) - pad, stride, outputs)).sum()
        }
        _ => (0..outputs).map(|o| within(i64::from(o) * i64::from(stride) - pad, dilation, taps)).sum(),
    }
}

/// How many windows along an axis lie inside the image with all their taps.
fn windows_inside(window: &Window2d, axis: usize, size: u32, outputs: u32) -> f64 {
    let of = |pair: &[u32]| i64::from(pair.get(axis).copied().unwrap_or(0));
    let (stride, pad) = (of(&window.strides).max(1), of(&window.pads));
    let reach = (of(&window.kernel) - 1).saturating_mul(of(&window.dilations));
    let first = pad.unsigned_abs().div_ceil(stride.unsigned_abs()) as i64;
    let room = i64::from(size) - 1 - reach + pad;
    let end = if room < 0 { 0 } else { room / stride + 1 };
    (end.min(i64::from(outputs)) - first).max(0) as f64
}

fn elements(ty: &TensorType) -> f64 {
    ty.shape.elements().map_or(0.0, |elements| elements as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_inside_are_those_that_the_window_finds() {
        let mut checked = 0;
        for kernel in [1, 2, 3, 5, 10] {
            for (stride, dilation) in [(1, 1), (2, 1), (3, 1), (1, 2), (2, 3)] {
                for (before, after) in [(0, 0), (1, 1), (0, 1), (2, 1)] {
                    for size in [1, 2, 3, 7, 49] {
                        let pads = [before, before, after, after];
                        let window =
                            Window2d { kernel: [kernel; 2], strides: [stride; 2], dilations: [dilation; 2], pads };
                        let Ok([outputs, _]) = window.output(size, size) else { continue };
                        let found = (0..outputs).flat_map(|o| (0..kernel).map(move |k| (o, k)));
                        let found = found.filter(|(o, k)| window.tap(0, *o, *k, size).is_some()).count();
                        assert_eq!(taps_inside(&window, 0, size, outputs), found as f64, "{window:?} over {size}");
                        let all = |o: u32| (0..kernel).all(|k| window.tap(0, o, k, size).is_some());
                        let whole = (0..outputs).filter(|&o| all(o)).count();
                        assert_eq!(windows_inside(&window, 0, size, outputs), whole as f64, "{window:?} over {size}");
                        checked += 1;
                    }
                }
            }
        }
        assert!(checked > 200, "{checked}");
    }

    #[test]
    fn huge_windows_take_no_time() {
        let window = Window2d { kernel: [1 << 31; 2], strides: [1; 2], dilations: [1; 2], pads: [0; 4] };
        assert_eq!(taps_inside(&window, 0, u32::MAX, 1 << 31), (1u64 << 62) as f64);
    }
}
