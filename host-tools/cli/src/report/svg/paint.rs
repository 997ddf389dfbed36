//! SVG elements: what is written, and how it is coloured.

use std::fmt::Write;

use super::layout::{Bar, Rect};
use super::names::Name;
use super::words::{LINE, escape};
use crate::report::json::Kind;

const FONTS: &str = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace";

/// Fills of intermediates, so that those that touch do not run into each other.
pub(super) const TINTS: [&str; 4] = ["#d7e7f7", "#dbf0d9", "#f8efcf", "#f5dfe6"];

/// Fills differ in lightness too, so that they stay apart in grey: inputs are dark, outputs
/// middling, intermediates light; scratch has a dashed outline besides.
pub(super) fn kind_fill(kind: Kind, tint: usize) -> &'static str {
    match kind {
        Kind::Input => "#3b6ea8",
        Kind::Output => "#f2b84b",
        Kind::Scratch => "#b795d4",
        _ => TINTS[tint % TINTS.len()],
    }
}

pub(super) fn fill(bar: &Bar<'_>) -> &'static str {
    kind_fill(bar.tensor.kind, bar.tint)
}

pub(super) fn kind_stroke(kind: Kind) -> &'static str {
    match kind {
        Kind::Input => r##"stroke="#1d3f66" stroke-width="1.5""##,
        Kind::Output => r##"stroke="#6e4505" stroke-width="1.5""##,
        Kind::Scratch => r##"stroke="#4a2d66" stroke-dasharray="4 2""##,
        _ => r##"stroke="#44586c""##,
    }
}

pub(super) fn stroke(bar: &Bar<'_>) -> &'static str {
    kind_stroke(bar.tensor.kind)
}

/// Where a text's position lies in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy)]
pub(super) struct Paint {
    colour: &'static str,
    bold: bool,
    size: u32,
    /// The colour of a rim, for text over something else than a plain fill.
    halo: Option<&'static str>,
}

impl Paint {
    pub(super) fn plain(colour: &'static str) -> Paint {
        Paint { colour, bold: false, size: 12, halo: None }
    }

    pub(super) fn bold(colour: &'static str) -> Paint {
        Paint { bold: true, ..Paint::plain(colour) }
    }

    pub(super) fn small(colour: &'static str) -> Paint {
        Paint { size: 11, ..Paint::plain(colour) }
    }

    pub(super) fn title(colour: &'static str) -> Paint {
        Paint { size: 16, ..Paint::bold(colour) }
    }

    pub(super) fn with_halo(self, halo: Option<&'static str>) -> Paint {
        Paint { halo, ..self }
    }
}

/// The picture being drawn; what comes later lies above.
#[derive(Default)]
pub(super) struct Canvas {
    body: String,
    /// Pairs of fills that stripes are made of, in the order they were asked for.
    hatches: Vec<(&'static str, &'static str)>,
}

impl Canvas {
    fn line_of(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    pub(super) fn rect(&mut self, rect: Rect, fill: &str, stroke: &str) {
        self.line_of(format_args!(r#"<rect {} fill="{fill}" stroke="{stroke}"/>"#, place(rect)));
    }

    /// A rectangle that says something to a reader who points at it.
    pub(super) fn bar(&mut self, class: &str, rect: Rect, fill: &str, stroke: &str, note: &str) {
        let (place, note) = (place(rect), escape(note));
        self.line_of(format_args!(
            r#"<rect class="{class}" {place} fill="{fill}" {stroke}><title>{note}</title></rect>"#
        ));
    }

    pub(super) fn swatch(&mut self, rect: Rect, fill: &str, stroke: &str) {
        self.line_of(format_args!(r#"<rect {} fill="{fill}" {stroke}/>"#, place(rect)));
    }

    pub(super) fn frame(&mut self, rect: Rect, colour: &str) {
        self.line_of(format_args!(
            r#"<rect {} fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="7 4" pointer-events="none"/>"#,
            place(rect)
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, more: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let gap = if more.is_empty() { "" } else { " " };
        self.line_of(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}"{gap}{more}/>"#
        ));
    }

    /// A small triangle that points down to `x`, `y`.
    pub(super) fn triangle(&mut self, x: f64, y: f64, colour: &str) {
        let (left, right, top) = (x - 5.0, x + 5.0, y - 6.0);
        self.line_of(format_args!(r#"<path d="M{left:.1} {top:.1}H{right:.1}L{x:.1} {y:.1}Z" fill="{colour}"/>"#));
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, paint: Paint, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let mut look = String::new();
        if paint.bold {
            look.push_str(r#" font-weight="bold""#);
        }
        if paint.size != 12 {
            let _ = write!(look, r#" font-size="{}""#, paint.size);
        }
        let (colour, text) = (paint.colour, escape(text));
        if let Some(halo) = paint.halo {
            // A second text below: not every reader knows how to paint a stroke before its fill.
            self.line_of(format_args!(
                r##"<text x="{x:.1}" y="{y:.1}"{anchor}{look} aria-hidden="true" fill="none" stroke="{halo}" stroke-width="4" stroke-linejoin="round">{text}</text>"##
            ));
        }
        self.line_of(format_args!(r#"<text x="{x:.1}" y="{y:.1}"{anchor}{look} fill="{colour}">{text}</text>"#));
    }

    /// A tensor's name, with a line to its bar where it stands beside it.
    pub(super) fn name(&mut self, name: &Name) {
        self.body.push_str("<g pointer-events=\"none\">\n");
        if let Some((from, to)) = name.leader {
            self.line(from, to, super::INK, "");
            let (x, y) = from;
            self.line_of(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="2" fill="{}"/>"#, super::INK));
        }
        let paint = Paint::plain(if name.on_dark { "#ffffff" } else { super::INK }).with_halo(name.halo);
        for (line, text) in name.lines.iter().enumerate() {
            self.text(name.rect.x, name.rect.y + LINE * line as f64 + 11.0, Anchor::Start, paint, text);
        }
        self.body.push_str("</g>\n");
    }

    /// Stripes of two fills, as a fill.
    pub(super) fn hatch(&mut self, older: &'static str, newer: &'static str) -> String {
        let pair = (older, newer);
        let index = self.hatches.iter().position(|known| *known == pair).unwrap_or_else(|| {
            self.hatches.push(pair);
            self.hatches.len() - 1
        });
        format!("url(#shared{index})")
    }

    /// The whole file.
    pub(super) fn finish(&self, title: &str, width: f64, height: f64) -> String {
        let (width, height, title) = (width.ceil(), height.ceil(), escape(title));
        let mut text = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" font-family="{FONTS}" font-size="12">
<title>{title}</title>
<defs>
"##
        );
        for (index, (older, newer)) in self.hatches.iter().enumerate() {
            let _ = writeln!(
                text,
                r##"<pattern id="shared{index}" width="14" height="14" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="14" height="14" fill="{newer}"/><rect width="7" height="14" fill="{older}"/><path d="M0.5 0V14M7 0V14" stroke="#6b7f93" stroke-width="0.8"/></pattern>"##
            );
        }
        let _ = write!(
            text,
            r##"</defs>
<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>
{}</svg>
"##,
            self.body
        );
        text
    }
}

fn place(rect: Rect) -> String {
    format!(r#"x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}""#, rect.x, rect.y, rect.width, rect.height)
}
