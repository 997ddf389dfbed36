//! Where the bars' names go: inside where there is room, beside a bar that is too low for text,
//! and never over each other.

use super::labels::Labels;
use super::layout::{Bar, Layout, Overlap, Rect, bytes_text};
use super::paint::fill;
use super::words::{CHAR, LINE, text_width};
use crate::report::json::Kind;

/// Between a bar's edge and its text.
const PAD: f64 = 4.0;
/// Text may come so much nearer to a bar's edges than lines come to each other.
const SLACK: f64 = 2.5;
const WHITE: &str = "#ffffff";
/// Fewer characters of a name than these say nothing.
const SHORTEST: usize = 4;
/// Lines of text beside a bar that its name may stand away from it.
const REACH: usize = 12;
/// Between the lines that lead to names below each other.
const INDENT: f64 = 10.0;

/// A bar's name as placed.
pub(super) struct Name {
    pub lines: Vec<String>,
    /// What the text covers.
    pub rect: Rect,
    /// The rim that it needs over stripes or over other bars.
    pub halo: Option<&'static str>,
    /// The plain fill that it stands on, if it does.
    pub ground: Option<&'static str>,
    pub on_dark: bool,
    /// From the bar to the text.
    pub leader: Option<((f64, f64), (f64, f64))>,
}

/// A name for every bar that there is room for; the list below the picture has them all.
pub(super) fn place(layout: &Layout<'_>) -> Vec<Name> {
    let mut names = Vec::with_capacity(layout.bars.len());
    let labels = Labels::new(layout.bars.iter().map(|bar| bar.tensor.name.as_str()));
    let (roomy, mut low): (Vec<&Bar<'_>>, Vec<&Bar<'_>>) =
        layout.bars.iter().partition(|bar| bar.rect.height + SLACK >= LINE);
    names.extend(roomy.into_iter().filter_map(|bar| inside(layout, &labels, bar)));
    // From the lowest up: a name stands further right the more bars above it still need a line
    // down past it.
    low.sort_by(|a, b| b.rect.y.total_cmp(&a.rect.y).then(b.index.cmp(&a.index)));
    for (done, bar) in low.iter().enumerate() {
        let waiting = low.get(done + 1..).unwrap_or_default();
        if let Some(name) = beside(layout, &labels, bar, waiting, &names).or_else(|| over(bar, &names)) {
            names.push(name);
        }
    }
    names
}

/// The name where most of it can be read: in a part of the bar that is not striped if there is one.
fn inside(layout: &Layout<'_>, labels: &Labels, bar: &Bar<'_>) -> Option<Name> {
    let (first, last) = (bar.tensor.first_step, bar.tensor.last_step);
    let overlaps: Vec<&Overlap> = layout.overlaps.iter().filter(|o| [o.older, o.newer].contains(&bar.index)).collect();
    // The steps from or to any one of its own; in a long life, near its begin and its end.
    let near = |&step: &usize| step < first + 16 || step + 16 > last;
    let spans = (first..=last).filter(near).flat_map(|step| [(first, step), (step, last), (step, step)]);
    let mut best: Option<(usize, Name)> = None;
    for (from, to) in spans {
        for (rect, striped) in free_parts(layout, &overlaps, bar, from, to) {
            let Some(lines) = compose(labels, bar, rect) else { continue };
            let shown: usize = lines.iter().map(|line| line.chars().count()).sum();
            // Over stripes only where nothing else will do.
            let score = if striped { shown.min(bar.tag.len()) } else { shown + 64 };
            if best.as_ref().is_none_or(|(most, _)| score > *most) {
                best = Some((score, name(bar, rect, lines, striped)));
            }
        }
    }
    best.map(|(_, name)| name)
}

/// The part of the bar at steps `from..=to` and its largest part there without stripes; with
/// whether it has stripes.
fn free_parts(layout: &Layout<'_>, overlaps: &[&Overlap], bar: &Bar<'_>, from: usize, to: usize) -> Vec<(Rect, bool)> {
    let x = layout.x(from);
    let whole = Rect { x, width: layout.x(to + 1) - x, ..bar.rect };
    let meets = overlaps.iter().filter(|o| o.rect.meets(&whole));
    let mut stripes: Vec<(f64, f64)> = meets.map(|o| (o.rect.y, o.rect.bottom())).collect();
    if stripes.is_empty() {
        return vec![(whole, false)];
    }
    stripes.sort_by(|a, b| a.0.total_cmp(&b.0));
    stripes.push((whole.bottom(), whole.bottom()));
    let (mut y, mut largest) = (whole.y, Rect { height: 0.0, ..whole });
    for (begin, end) in stripes {
        if begin - y > largest.height {
            largest = Rect { y, height: begin - y, ..whole };
        }
        y = y.max(end);
    }
    vec![(largest, false), (whole, true)]
}

fn name(bar: &Bar<'_>, room: Rect, lines: Vec<String>, striped: bool) -> Name {
    let height = LINE * lines.len() as f64;
    let width = lines.iter().map(|line| text_width(line)).fold(0.0, f64::max);
    // Near the top of a high bar, in the middle of a low one.
    let y = room.y + ((room.height - height) / 2.0).min(PAD);
    let on_dark = bar.tensor.kind == Kind::Input && !striped;
    let (halo, ground) = if striped { (Some(WHITE), None) } else { (None, Some(fill(bar))) };
    Name { lines, rect: Rect { x: room.x + PAD, y, width, height }, halo, ground, on_dark, leader: None }
}

/// Tag, name and bytes in as many lines as there is room for; `None` without room for the tag.
fn compose(labels: &Labels, bar: &Bar<'_>, room: Rect) -> Option<Vec<String>> {
    let chars = ((room.width - 2.0 * PAD).max(0.0) / CHAR) as usize;
    let lines = ((room.height + SLACK) / LINE) as usize;
    let (tag, bytes) = (&bar.tag, bytes_text(bar.tensor.bytes));
    let rest = chars.checked_sub(tag.len() + 1);
    match (lines, rest) {
        (0, _) => None,
        (1, Some(rest)) => match rest.checked_sub(bytes.len() + 1) {
            Some(rest) if rest >= SHORTEST => Some(vec![format!("{tag} {} {bytes}", labels.of(bar, rest))]),
            _ if rest >= bytes.len() => Some(vec![format!("{tag} {bytes}")]),
            _ => Some(vec![tag.clone()]),
        },
        (_, Some(rest)) if rest >= SHORTEST && chars >= bytes.len() => {
            let broken = labels.broken(bar, chars, lines - 1);
            let mut lines = broken.unwrap_or_else(|| vec![format!("{tag} {}", labels.of(bar, rest))]);
            lines.push(bytes);
            Some(lines)
        }
        _ if chars >= bytes.len().max(tag.len()) => Some(vec![tag.clone(), bytes]),
        _ if chars >= tag.len() => Some(vec![tag.clone()]),
        _ => None,
    }
}

/// The name below or above a bar that is too low for text, with a line that leads there.
fn beside(layout: &Layout<'_>, labels: &Labels, bar: &Bar<'_>, waiting: &[&Bar<'_>], names: &[Name]) -> Option<Name> {
    let (first, last) = (bar.tensor.first_step, bar.tensor.last_step);
    for step in (first..=last).take(16) {
        let others = waiting.iter().filter(|w| (w.tensor.first_step..=w.tensor.last_step).contains(&step)).count();
        let column = Rect { x: layout.x(step), width: layout.column, ..layout.plot };
        let lead = column.x + PAD + 2.0 + INDENT * others.min(4) as f64;
        let room = Rect { x: lead, width: column.right() - lead, height: 2.0 * LINE, ..column };
        let Some(lines) = compose(labels, bar, room) else { continue };
        let (width, height) = (lines.iter().map(|l| text_width(l)).fold(0.0, f64::max), LINE * lines.len() as f64);
        let from = (lead, bar.rect.y + bar.rect.height / 2.0);
        // Only these can be in the way of what stays inside the column.
        let near: Vec<&Name> =
            names.iter().filter(|n| n.rect.x < column.right() && column.x < n.rect.right()).collect();
        for away in 0..REACH {
            let away = PAD + away as f64 * LINE / 2.0;
            for y in [bar.rect.bottom() + away, bar.rect.y - away - height] {
                let rect = Rect { x: lead + PAD, y, width, height };
                let to = (lead, if y > from.1 { y + height - 2.0 } else { y + 2.0 });
                let line = Rect { x: lead - 1.0, y: from.1.min(to.1), width: 2.0, height: (to.1 - from.1).abs() };
                let seen = y >= layout.plot.y && rect.bottom() <= layout.plot.bottom();
                let bars = layout.alive.get(step).into_iter().flatten().filter_map(|&i| layout.bars.get(i));
                let free = seen
                    && bars.into_iter().all(|other| !other.rect.meets(&rect))
                    && near.iter().all(|n| !n.rect.meets(&rect) && !n.rect.meets(&line) && !crosses(n, &rect));
                if free {
                    return Some(Name {
                        lines,
                        rect,
                        halo: None,
                        ground: Some(WHITE),
                        on_dark: false,
                        leader: Some((from, to)),
                    });
                }
            }
        }
    }
    None
}

/// Whether a name's line goes through `rect`.
fn crosses(name: &Name, rect: &Rect) -> bool {
    name.leader.is_some_and(|((x, y), (_, end))| {
        Rect { x: x - 1.0, y: y.min(end), width: 2.0, height: (end - y).abs() }.meets(rect)
    })
}

/// The tag alone at the bar's right end, over whatever lies around it.
fn over(bar: &Bar<'_>, names: &[Name]) -> Option<Name> {
    let width = text_width(&bar.tag);
    let y = bar.rect.y + bar.rect.height / 2.0 - LINE / 2.0;
    let rect = Rect { x: bar.rect.right() - PAD - width, y, width, height: LINE };
    let free = names.iter().all(|n| !n.rect.meets(&rect) && !crosses(n, &rect));
    free.then(|| Name {
        lines: vec![bar.tag.clone()],
        rect,
        halo: Some(WHITE),
        ground: None,
        on_dark: false,
        leader: None,
    })
}
