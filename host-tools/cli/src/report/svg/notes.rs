//! What stands around the plot: the title, what the colours mean, and the list of tensors.

use unicode_width::UnicodeWidthStr;

use super::layout::{Layout, Rect, bytes_text, ram_end, steps_text};
use super::paint::{Anchor, Canvas, Paint, TINTS, fill, kind_fill, kind_stroke};
use super::words::{CHAR, LINE, legible, text_width};
use super::{INK, MARK};
use crate::report::json::{Kind, PlanReport};
use crate::report::table::{shorten, thousands};

/// The picture is at least so wide, so that its title has room.
pub(super) const NARROWEST: f64 = 640.0;
/// Between the title's characters, which are larger.
const TITLE_CHAR: f64 = CHAR * 16.0 / 12.0;
const SWATCH: (f64, f64) = (24.0, 12.0);
/// Between entries of the legend, and between columns of the list.
const GAP: f64 = 26.0;
/// Characters that a name takes in the list at most.
const LISTED: f64 = 40.0;
/// A row of the legend or of the list.
const ROW: f64 = 18.0;

/// What a mark of the picture means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Kind(Kind),
    Shared,
    Fullest,
    RamEnd,
}

impl Mark {
    fn text(self) -> &'static str {
        match self {
            Mark::Kind(kind) => kind.word(),
            Mark::Shared => "shared by a step's output and its input",
            Mark::Fullest => "fullest step",
            Mark::RamEnd => "end of RAM",
        }
    }
}

/// Title, facts and legend, broken into lines of a width.
pub(super) struct Head {
    title: String,
    facts: Vec<String>,
    legend: Vec<Vec<Mark>>,
}

impl Head {
    pub(super) fn new(report: &PlanReport, layout: &Layout<'_>, width: f64) -> Head {
        let title = format!("{} on {}", legible(&report.model), legible(&report.board));
        let mut marks = Vec::new();
        for kind in [Kind::Input, Kind::Intermediate, Kind::Output, Kind::Scratch] {
            if layout.bars.iter().any(|bar| bar.tensor.kind == kind) {
                marks.push(Mark::Kind(kind));
            }
        }
        let more = [
            (Mark::Shared, !layout.overlaps.is_empty()),
            (Mark::Fullest, report.peak.is_some()),
            (Mark::RamEnd, ram_end(report, layout.end).is_some()),
        ];
        marks.extend(more.into_iter().filter_map(|(mark, shown)| shown.then_some(mark)));
        let chars = (width / CHAR) as usize;
        let facts = facts(report);
        let fact = |text: &String| text.width() as f64 * CHAR;
        Head {
            title: shorten(&title, (width / TITLE_CHAR) as usize),
            facts: lines(facts, width, 3.0 * CHAR, fact).iter().map(|l| shorten(&l.join(" · "), chars)).collect(),
            legend: lines(marks, width, GAP, |mark| entry_width(*mark)),
        }
    }

    pub(super) fn height(&self) -> f64 {
        24.0 + LINE * self.facts.len() as f64 + 10.0 + ROW * self.legend.len() as f64 + 14.0
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, x: f64, y: f64) {
        canvas.text(x, y + 14.0, Anchor::Start, Paint::title(INK), &self.title);
        let mut y = y + 24.0;
        for line in &self.facts {
            canvas.text(x, y + 11.0, Anchor::Start, Paint::plain(INK), line);
            y += LINE;
        }
        y += 10.0;
        for line in &self.legend {
            let mut x = x;
            for &mark in line {
                entry(canvas, mark, x, y);
                x += entry_width(mark) + GAP;
            }
            y += ROW;
        }
    }
}

fn facts(report: &PlanReport) -> Vec<String> {
    let ram = &report.ram;
    let arena = bytes_text(ram.arena);
    let mut facts = vec![match report.optimal {
        true => format!("arena {arena}, proven the least possible"),
        false => format!("arena {arena}, lower bound {}", bytes_text(ram.lower_bound)),
    }];
    if ram.state > 0 {
        facts.push(format!("state {} on top", bytes_text(ram.state)));
    }
    if let Some(peak) = &report.peak {
        let op = report.steps.get(peak.step).map_or(String::new(), |step| format!(", {}", step.op));
        facts.push(format!("fullest at step {}{op}", peak.step));
    }
    for short in &report.short {
        let what = if short.memory == "ram" { "RAM" } else { "flash" };
        facts.push(format!("{what} short by {}", bytes_text(short.needed.saturating_sub(short.limit))));
    }
    facts
}

/// Things in lines of at most `width`, each line with one at least.
fn lines<T>(things: Vec<T>, width: f64, gap: f64, wide: impl Fn(&T) -> f64) -> Vec<Vec<T>> {
    let mut lines: Vec<Vec<T>> = Vec::new();
    let mut used = 0.0;
    for thing in things {
        let needs = wide(&thing);
        match lines.last_mut() {
            Some(line) if used + gap + needs <= width => {
                used += gap + needs;
                line.push(thing);
            }
            _ => {
                used = needs;
                lines.push(vec![thing]);
            }
        }
    }
    lines
}

fn entry_width(mark: Mark) -> f64 {
    SWATCH.0 + 6.0 + text_width(mark.text())
}

/// A swatch and what it means.
fn entry(canvas: &mut Canvas, mark: Mark, x: f64, y: f64) {
    let (width, height) = SWATCH;
    let rect = Rect { x, y, width, height };
    match mark {
        Mark::Kind(Kind::Intermediate) => {
            let part = width / TINTS.len() as f64;
            for (index, tint) in TINTS.iter().enumerate() {
                canvas.rect(Rect { x: x + part * index as f64, width: part, ..rect }, tint, "none");
            }
            canvas.swatch(rect, "none", kind_stroke(Kind::Intermediate));
        }
        Mark::Kind(kind) => canvas.swatch(rect, kind_fill(kind, 0), kind_stroke(kind)),
        Mark::Shared => {
            let hatch = canvas.hatch(kind_fill(Kind::Intermediate, 0), kind_fill(Kind::Intermediate, 1));
            canvas.swatch(rect, &hatch, kind_stroke(Kind::Intermediate));
        }
        Mark::Fullest => canvas.frame(rect, MARK),
        Mark::RamEnd => {
            let middle = y + height / 2.0;
            canvas.line((x, middle), (rect.right(), middle), MARK, "stroke-width=\"2\"");
        }
    }
    canvas.text(rect.right() + 6.0, y + 10.0, Anchor::Start, Paint::plain(INK), mark.text());
}

/// A row of the list: tag, name, bytes, offset, steps.
type Row = [String; 5];

fn widths(rows: &[Row]) -> [f64; 5] {
    let mut widths = [0.0; 5];
    for row in rows {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = text_width(cell).max(*widest);
        }
    }
    widths
}

/// Every tensor with its whole place, in as many columns as `width` has room for. Gives where the
/// list ends.
pub(super) fn list(canvas: &mut Canvas, layout: &Layout<'_>, x: f64, y: f64, width: f64) -> f64 {
    let mut rows: Vec<Row> = layout
        .bars
        .iter()
        .map(|bar| {
            let t = bar.tensor;
            let steps = steps_text(t.first_step, t.last_step);
            [bar.tag.clone(), legible(&t.name), bytes_text(t.bytes), format!("at {}", thousands(t.offset)), steps]
        })
        .collect();
    if rows.is_empty() {
        canvas.text(x, y + 11.0, Anchor::Start, Paint::plain(INK), "The arena has no tensors.");
        return y + ROW;
    }
    let between = 2.0 * CHAR;
    let swatch = SWATCH.0 / 2.0 + 6.0;
    // Names have what the numbers leave.
    let [tag, _, bytes, offset, steps] = widths(&rows);
    let room = width - (swatch + tag + bytes + offset + steps + 4.0 * between);
    let chars = (room / CHAR).clamp(8.0, LISTED) as usize;
    for [_, name, ..] in &mut rows {
        *name = shorten(name, chars);
    }
    let widths = widths(&rows);
    let wide = swatch + widths.iter().sum::<f64>() + 4.0 * between;
    let columns = (((width + GAP) / (wide + GAP)) as usize).clamp(1, rows.len());
    let high = rows.len().div_ceil(columns);
    for (index, (row, bar)) in rows.iter().zip(&layout.bars).enumerate() {
        let top = y + ROW * (index % high) as f64;
        let mut at = x + (wide + GAP) * (index / high) as f64;
        let rect = Rect { x: at, y: top + 1.0, width: SWATCH.0 / 2.0, height: SWATCH.1 };
        canvas.swatch(rect, fill(bar), kind_stroke(bar.tensor.kind));
        at += swatch;
        for (column, (cell, cell_width)) in row.iter().zip(widths).enumerate() {
            let paint = if column == 0 { Paint::bold(INK) } else { Paint::plain(INK) };
            // Numbers stand at the right.
            match column {
                2 | 3 => canvas.text(at + cell_width, top + 11.0, Anchor::End, paint, cell),
                _ => canvas.text(at, top + 11.0, Anchor::Start, paint, cell),
            }
            at += cell_width + between;
        }
    }
    y + ROW * high as f64
}
