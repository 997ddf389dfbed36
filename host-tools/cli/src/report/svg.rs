//! The arena drawn as SVG: steps from left to right, addresses from top to bottom, to scale.
//!
//! The same report gives the same bytes, and the file needs nothing beside itself: no style sheet,
//! no font of its own, no script. Text is set in a monospaced font, whose width is known, so that
//! nothing is cut off or overlaps whatever fonts the reader has.

mod labels;
mod layout;
mod names;
mod notes;
mod paint;
mod words;

use super::json::{PlanReport, Tensor};
use super::table::thousands;
use layout::{Layout, Overlap, Rect, bytes_text, steps_text};
use paint::{Anchor, Canvas, Paint};

/// Above the plot: a triangle, the step's number, its operator in up to three lines.
const STEP_HEAD: f64 = 80.0;
/// A plot wider than this has its addresses at the right too.
const FAR: f64 = 1600.0;
/// Around everything.
const MARGIN: f64 = 20.0;

const INK: &str = "#1b2733";
const FAINT: &str = "#d5dce3";
const MARK: &str = "#b3261e";

/// The picture of a plan, as a whole SVG file.
///
/// Shapes are in pixels at a font of 12. Every tensor that takes bytes of the arena has one `rect`
/// of class `bar`, over the steps it lives through; those that share bytes have one of class
/// `shared` over what they share.
pub fn svg(report: &PlanReport) -> String {
    let report = &side_by_side(report);
    let axis = words::text_width(&bytes_text(layout::end(report)));
    let left = MARGIN + axis + 12.0;
    let layout = Layout::new(report, left, 0.0);
    let far = layout.plot.width > FAR;
    let width = (layout.plot.right() + if far { left } else { MARGIN }).max(notes::NARROWEST);
    let head = notes::Head::new(report, &layout, width - 2.0 * MARGIN);
    let layout = Layout::new(report, left, MARGIN + head.height() + STEP_HEAD);

    let mut canvas = Canvas::default();
    head.draw(&mut canvas, MARGIN, MARGIN);
    columns(&mut canvas, report, &layout);
    addresses(&mut canvas, report, &layout);
    for bar in &layout.bars {
        canvas.bar("bar", bar.rect, paint::fill(bar), paint::stroke(bar), &tooltip(bar.tensor, &bar.tag));
    }
    for overlap in &layout.overlaps {
        shared(&mut canvas, &layout, overlap);
    }
    ram_end(&mut canvas, report, &layout);
    let frame = peak(&mut canvas, report, &layout);
    for mut name in names::place(&layout) {
        if frame.is_some_and(|frame| name.rect.meets_edge_of(&frame)) {
            name.halo = name.halo.or(name.ground);
        }
        canvas.name(&name);
    }
    let below = layout.plot.bottom() + 1.5 * MARGIN;
    let bottom = notes::list(&mut canvas, &layout, MARGIN, below, width - 2.0 * MARGIN);
    let title = format!("Memory map of {} on {}", words::legible(&report.model), words::legible(&report.board));
    canvas.finish(&title, width, bottom + MARGIN)
}

/// The report with its banks, where the arena is spread over several, drawn one below another.
fn side_by_side(report: &PlanReport) -> PlanReport {
    let mut report = report.clone();
    let below = |bank: u8| report.ram.banks.iter().take(bank.into()).map(|bank| bank.arena).sum::<u64>();
    let moved: Vec<u64> = report.tensors.iter().map(|tensor| below(tensor.bank) + tensor.offset).collect();
    report.tensors.iter_mut().zip(moved).for_each(|(tensor, offset)| tensor.offset = offset);
    report
}

/// The steps' heads and the stripes under them.
fn columns(canvas: &mut Canvas, report: &PlanReport, layout: &Layout<'_>) {
    let plot = layout.plot;
    canvas.rect(plot, "#f7f9fb", "none");
    for step in 0..layout.steps {
        let x = layout.x(step);
        if step % 2 == 1 {
            canvas.rect(Rect { x, width: layout.column, ..plot }, "#eef2f6", "none");
        }
        let centre = x + layout.column / 2.0;
        canvas.text(centre, plot.y - 44.0, Anchor::Middle, Paint::bold(INK), &step.to_string());
        let Some(record) = report.steps.get(step) else { continue };
        let chars = ((layout.column - 4.0) / words::CHAR) as usize;
        for (line, word) in words::wrap(record.op, chars, 3).iter().enumerate() {
            let y = plot.y - 31.0 + line as f64 * 12.0;
            canvas.text(centre, y, Anchor::Middle, Paint::small(INK), word);
        }
        let hover = Rect { x, y: plot.y - 56.0, width: layout.column, height: 56.0 };
        let note = format!("step {step}: {} ({}) '{}'", record.op, record.kernel, words::legible(&record.name));
        canvas.bar("step", hover, "#ffffff00", "stroke=\"none\"", &note);
    }
}

/// The axis of addresses: round numbers, the arena's end, and where RAM ends before that.
fn addresses(canvas: &mut Canvas, report: &PlanReport, layout: &Layout<'_>) {
    let plot = layout.plot;
    let end = plot.bottom();
    let limit = layout::ram_end(report, layout.end);
    let free = |y: f64, other: f64| (y - other).abs() >= 14.0;
    for tick in layout.ticks() {
        let y = layout.y(tick);
        canvas.line((plot.x, y), (plot.right(), y), FAINT, "");
        if free(y, end) && limit.is_none_or(|limit| free(y, layout.y(limit))) {
            address(canvas, plot, y, Paint::plain(INK), &layout::round_text(tick));
        }
    }
    canvas.line((plot.x - 4.0, end), (plot.right(), end), INK, "stroke-width=\"2\"");
    address(canvas, plot, end, Paint::bold(INK), &bytes_text(layout.end));
    if let Some(limit) = limit
        && free(layout.y(limit), end)
    {
        address(canvas, plot, layout.y(limit), Paint::bold(MARK), &bytes_text(limit));
    }
}

/// Where RAM ends, through the bars that go beyond it.
fn ram_end(canvas: &mut Canvas, report: &PlanReport, layout: &Layout<'_>) {
    if let Some(limit) = layout::ram_end(report, layout.end) {
        let (y, plot) = (layout.y(limit), layout.plot);
        canvas.line((plot.x - 4.0, y), (plot.right(), y), MARK, "stroke-width=\"2\"");
    }
}

/// An address beside the plot.
fn address(canvas: &mut Canvas, plot: Rect, y: f64, paint: Paint, text: &str) {
    canvas.text(plot.x - 6.0, y + 4.0, Anchor::End, paint, text);
    if plot.width > FAR {
        canvas.text(plot.right() + 6.0, y + 4.0, Anchor::Start, paint, text);
    }
}

/// Bytes that two tensors share, in stripes of both.
fn shared(canvas: &mut Canvas, layout: &Layout<'_>, overlap: &Overlap) {
    let (Some(older), Some(newer)) = (layout.bars.get(overlap.older), layout.bars.get(overlap.newer)) else { return };
    let note = format!(
        "{} and {} share {} in {}",
        older.tag,
        newer.tag,
        bytes_text(overlap.bytes),
        steps_text(overlap.first_step, overlap.last_step)
    );
    let hatch = canvas.hatch(paint::fill(older), paint::fill(newer));
    canvas.bar("shared", overlap.rect, &hatch, "stroke=\"#44586c\"", &note);
}

/// The frame around the fullest step, as drawn.
fn peak(canvas: &mut Canvas, report: &PlanReport, layout: &Layout<'_>) -> Option<Rect> {
    let peak = report.peak.as_ref()?;
    let (x, top, plot) = (layout.x(peak.step), layout.plot.y - 58.0, layout.plot);
    let frame = Rect { x, y: top, width: layout.column, height: plot.bottom() - top };
    canvas.frame(frame, MARK);
    let centre = x + layout.column / 2.0;
    canvas.triangle(centre, top - 1.0, MARK);
    canvas.text(centre, top - 10.0, Anchor::Middle, Paint::bold(MARK), "fullest");
    Some(frame)
}

/// What a reader sees who points at a bar.
fn tooltip(tensor: &Tensor, tag: &str) -> String {
    let shape = match (tensor.dtype, &tensor.shape) {
        (Some(dtype), Some(shape)) => format!("{dtype} {shape:?}, "),
        _ => String::new(),
    };
    format!(
        "{tag}: {}\n{}, {shape}{} at offset {}, {}",
        words::legible(&tensor.name),
        tensor.kind.word(),
        bytes_text(tensor.bytes),
        thousands(tensor.offset),
        steps_text(tensor.first_step, tensor.last_step)
    )
}

#[cfg(test)]
#[path = "svg_tests.rs"]
mod tests;
