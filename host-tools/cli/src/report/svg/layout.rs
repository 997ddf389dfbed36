//! Where everything stands: bytes and steps as pixels.

use super::paint::TINTS;
use crate::report::json::{PlanReport, Region, Tensor};
use crate::report::table::thousands;

/// The plot's width, where few steps leave a choice; many make it wider.
const PLOT_WIDTH: f64 = 960.0;
/// A step's width: at least what a short name takes, at most what one can take in at a glance.
const COLUMN: (f64, f64) = (88.0, 132.0);
/// The plot's height; the more tensors lie above each other, the more.
const PLOT_HEIGHT: (f64, f64) = (440.0, 960.0);
/// Height for each of the tensors that lie above each other.
const TENSOR_HEIGHT: f64 = 34.0;
/// No bar is lower than this: a tensor of a few bytes is to be seen too.
const THINNEST: f64 = 3.0;
/// Most lines across the plot.
const TICKS: u64 = 10;

/// A rectangle in pixels, from its upper left corner.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Rect {
    pub(super) fn right(&self) -> f64 {
        self.x + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.y + self.height
    }

    /// Whether its left or right edge, or the other's, goes through both.
    pub(super) fn meets_edge_of(&self, other: &Rect) -> bool {
        self.meets(other) && (self.x < other.x || self.right() > other.right())
    }

    pub(super) fn meets(&self, other: &Rect) -> bool {
        self.x < other.right() && other.x < self.right() && self.y < other.bottom() && other.y < self.bottom()
    }
}

/// A tensor as drawn.
pub(super) struct Bar<'r> {
    /// Letters that name it in the picture: A to Z, AA and so on.
    pub tag: String,
    /// Its position in the list.
    pub index: usize,
    pub tensor: &'r Tensor,
    pub rect: Rect,
    /// Number of its tint, different from those of most bars that it touches.
    pub tint: usize,
}

/// What two bars share: the step's output lies over its dying input.
pub(super) struct Overlap {
    pub older: usize,
    pub newer: usize,
    pub bytes: u64,
    pub first_step: usize,
    pub last_step: usize,
    pub rect: Rect,
}

/// The plot.
pub(super) struct Layout<'r> {
    pub plot: Rect,
    /// Steps across it; at least one.
    pub steps: usize,
    /// A step's width.
    pub column: f64,
    /// Bytes from top to bottom; at least one.
    pub end: u64,
    pub bars: Vec<Bar<'r>>,
    pub overlaps: Vec<Overlap>,
    /// The bars that live at each step.
    pub alive: Vec<Vec<usize>>,
}

fn drawn(report: &PlanReport) -> impl Iterator<Item = &Tensor> {
    report.tensors.iter().filter(|t| t.region == Region::Arena && t.bytes > 0)
}

/// The first address below the plot.
pub(super) fn end(report: &PlanReport) -> u64 {
    drawn(report).map(|t| t.offset.saturating_add(t.bytes)).max().unwrap_or(0).max(report.ram.arena).max(1)
}

/// Where the board's RAM ends in the arena, if it is too small for an arena that goes to `end`.
pub(super) fn ram_end(report: &PlanReport, end: u64) -> Option<u64> {
    let ram = &report.ram;
    let before = ram.total.saturating_sub(ram.arena);
    ram.limit.map(|limit| limit.saturating_sub(before)).filter(|&limit| limit < end)
}

impl<'r> Layout<'r> {
    /// The plot with its upper left corner at `x` and `y`.
    pub(super) fn new(report: &'r PlanReport, x: f64, y: f64) -> Layout<'r> {
        let steps = drawn(report).map(|t| t.last_step + 1).max().unwrap_or(0).max(report.steps.len()).max(1);
        let column = (PLOT_WIDTH / steps as f64).floor().clamp(COLUMN.0, COLUMN.1);
        let mut alive = vec![Vec::new(); steps];
        for (index, tensor) in drawn(report).enumerate() {
            for list in alive.iter_mut().take(tensor.last_step + 1).skip(tensor.first_step) {
                list.push(index);
            }
        }
        let most = alive.iter().map(Vec::len).max().unwrap_or(0);
        let height = (TENSOR_HEIGHT * most as f64).clamp(PLOT_HEIGHT.0, PLOT_HEIGHT.1);
        let plot = Rect { x, y, width: column * steps as f64, height };
        let mut layout =
            Layout { plot, steps, column, end: end(report), bars: Vec::new(), overlaps: Vec::new(), alive };
        layout.bars = drawn(report)
            .enumerate()
            .map(|(index, tensor)| {
                let until = tensor.offset.saturating_add(tensor.bytes);
                let rect = layout.rect(tensor.first_step, tensor.last_step, tensor.offset, until);
                Bar { tag: tag(index), index, tensor, rect, tint: 0 }
            })
            .collect();
        layout.tint();
        layout.overlaps = layout.find_overlaps();
        layout
    }

    /// Where a step begins.
    pub(super) fn x(&self, step: usize) -> f64 {
        self.plot.x + self.column * step as f64
    }

    /// Where an address lies.
    pub(super) fn y(&self, address: u64) -> f64 {
        self.plot.y + self.plot.height * (address as f64 / self.end as f64)
    }

    fn rect(&self, first_step: usize, last_step: usize, from: u64, to: u64) -> Rect {
        let height = (self.y(to) - self.y(from)).max(THINNEST);
        Rect {
            x: self.x(first_step),
            y: self.y(from).min(self.plot.bottom() - height),
            width: self.column * last_step.saturating_sub(first_step).saturating_add(1) as f64,
            height,
        }
    }

    /// Gives each bar the first tint that no bar has that it touches, or else its number's.
    fn tint(&mut self) {
        for index in 0..self.bars.len() {
            let Some(r) = self.bars.get(index).map(|bar| bar.rect) else { continue };
            let around = Rect { x: r.x - 1.0, y: r.y - 1.0, width: r.width + 2.0, height: r.height + 2.0 };
            let mut taken = [false; TINTS.len()];
            // Earlier ones only: the later ones have none yet. Each is asked once, however many steps both live.
            for other in self.bars.iter().take(index).filter(|other| other.rect.meets(&around)) {
                taken[other.tint % TINTS.len()] = true;
            }
            let tint = taken.iter().position(|taken| !taken).unwrap_or(index % TINTS.len());
            if let Some(bar) = self.bars.get_mut(index) {
                bar.tint = tint;
            }
        }
    }

    /// Each pair of bars that meet, once: at the step at which the newer one begins.
    fn find_overlaps(&self) -> Vec<Overlap> {
        let mut overlaps = Vec::new();
        for (newer, bar) in self.bars.iter().enumerate() {
            let step = bar.tensor.first_step;
            for &older in self.alive.get(step).into_iter().flatten() {
                let Some(other) = self.bars.get(older) else { continue };
                if (other.tensor.first_step, older) >= (step, newer) {
                    continue;
                }
                let from = other.tensor.offset.max(bar.tensor.offset);
                let to = end_of(other.tensor).min(end_of(bar.tensor));
                if from < to {
                    let last_step = other.tensor.last_step.min(bar.tensor.last_step);
                    let rect = self.rect(step, last_step, from, to);
                    overlaps.push(Overlap { older, newer, bytes: to - from, first_step: step, last_step, rect });
                }
            }
        }
        overlaps
    }

    /// Round addresses for the axis: multiples of a power of two.
    pub(super) fn ticks(&self) -> impl Iterator<Item = u64> + use<> {
        let step = self.end.div_ceil(TICKS).checked_next_power_of_two().unwrap_or(1 << 63);
        let end = self.end;
        (0..=end / step).map(move |i| i * step)
    }
}

fn end_of(tensor: &Tensor) -> u64 {
    tensor.offset.saturating_add(tensor.bytes)
}

/// A to Z, AA to ZZ, AAA and so on.
fn tag(index: usize) -> String {
    let mut letters = Vec::new();
    let mut rest = index + 1;
    while rest > 0 {
        rest -= 1;
        letters.push((b'A' + (rest % 26) as u8) as char);
        rest /= 26;
    }
    letters.iter().rev().collect()
}

pub(super) fn bytes_text(bytes: u64) -> String {
    format!("{} B", thousands(bytes))
}

/// A multiple of a power of two, in the largest unit that leaves it whole.
pub(super) fn round_text(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        b if b.is_multiple_of(1 << 20) => format!("{} MiB", thousands(b >> 20)),
        b if b.is_multiple_of(1 << 10) => format!("{} KiB", thousands(b >> 10)),
        b => bytes_text(b),
    }
}

/// "step 3", "steps 3–5".
pub(super) fn steps_text(first: usize, last: usize) -> String {
    if first == last { format!("step {first}") } else { format!("steps {first}–{last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_count_like_columns_of_a_spreadsheet() {
        let tags = [0, 25, 26, 51, 52, 701, 702].map(tag);
        assert_eq!(tags, ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
    }

    #[test]
    fn addresses_are_written_in_whole_units() {
        assert_eq!([0, 96, 1536, 2048, 3 << 20].map(round_text), ["0", "96 B", "1,536 B", "2 KiB", "3 MiB"]);
    }
}
