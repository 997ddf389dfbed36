//! The report of `kiln quantize`.

use std::fmt::Write as _;

use kiln_passes::quantize::{Calibration, Method, Quantized};
use kiln_planner::Planned;
use kiln_planner::graph::{Graph, ValueId};

use super::{Layers, Scores};
use crate::console::Style;
use crate::report::table::{Align, Table, counted, thousands};

/// What there is to report.
pub(crate) struct Outcomes<'a> {
    pub(crate) model: &'a str,
    pub(crate) board: &'a str,
    pub(crate) method: Method,
    pub(crate) calibrated_with: u64,
    /// In words, what samples the scores are of.
    pub(crate) tested_on: &'a str,
    /// The float32 graph.
    pub(crate) graph: &'a Graph,
    pub(crate) calibration: &'a Calibration,
    pub(crate) quantized: &'a Quantized,
    pub(crate) scores: &'a Scores,
    pub(crate) layers: Option<&'a Layers>,
    /// The float32 plan, and the int8 one.
    pub(crate) before: &'a Planned,
    pub(crate) after: &'a Planned,
}

/// The report as text.
pub(crate) fn show(outcomes: &Outcomes<'_>, style: Style) -> String {
    let Outcomes { model, method, scores, quantized, .. } = outcomes;
    let mut text = format!(
        "{model}: float32 to int8, ranges by {method} from {}\n\n",
        counted(outcomes.calibrated_with as usize, "sample")
    );
    text.push_str(&tensors(outcomes, style));
    for kept in &quantized.kept_float {
        let _ = writeln!(text, "stays float32: {} '{}', {}", kept.op, kept.node, kept.why);
    }
    let samples = counted(scores.samples as usize, "sample");
    let _ = writeln!(text, "\nOn the {samples} {}, planned for {}\n", outcomes.tested_on, outcomes.board);
    text.push_str(&models(outcomes, style));
    text.push('\n');
    text.push_str(&agreement(outcomes));
    text
}

/// A line for each int8 tensor.
fn tensors(outcomes: &Outcomes<'_>, style: Style) -> String {
    let mut columns = vec![
        ("operator", Align::Left),
        ("tensor", Align::Left),
        ("least", Align::Right),
        ("greatest", Align::Right),
        ("scale", Align::Right),
        ("zero point", Align::Right),
    ];
    if outcomes.layers.is_some() {
        columns.push(("SQNR", Align::Right));
    }
    let mut table = Table::new(&columns, 1);
    let nodes = || outcomes.graph.entries.iter().flat_map(|entry| &entry.nodes);
    for &(old, new) in &outcomes.quantized.activations {
        let quant = outcomes.quantized.graph.value(new).quant.view();
        let observed = outcomes.calibration.range(old, outcomes.method);
        let end = |value: Option<f64>| value.map_or("-".to_owned(), number);
        let noise = outcomes.layers.and_then(|layers| layers.get(&old)).and_then(|noise| noise.decibels());
        table.row([
            nodes().find(|n| n.output == old).map_or("input", |n| n.op.name()).to_owned(),
            outcomes.graph.value(old).name.clone(),
            end(observed.map(|range| range.low)),
            end(observed.map(|range| range.high)),
            number(quant.scale(0).into()),
            quant.zero_point(0).to_string(),
            noise.map_or("-".to_owned(), decibels),
        ]);
    }
    table.render(style.width)
}

/// Both models side by side.
fn models(outcomes: &Outcomes<'_>, style: Style) -> String {
    let columns = [("", Align::Left), ("float32", Align::Right), ("int8", Align::Right), ("difference", Align::Right)];
    let mut table = Table::new(&columns, 0);
    if let Some((before, after)) = outcomes.scores.accuracies() {
        let of = outcomes.scores.labelled;
        let what = match of == outcomes.scores.samples {
            true => "accuracy".to_owned(),
            false => format!("accuracy of {} with a class", thousands(of)),
        };
        let points = format!("{:+.2} points", after - before);
        table.row([what, format!("{before:.2} %"), format!("{after:.2} %"), points]);
    }
    let mut size = |what: &str, before: u64, after: u64| {
        let change = match before {
            0 => "-".to_owned(),
            _ => format!("{:+.1} %", 100.0 * (after as f64 / before as f64 - 1.0)),
        };
        table.row([what.to_owned(), thousands(before), thousands(after), change]);
    };
    let (before, after) = (outcomes.before, outcomes.after);
    size("constants (bytes)", before.constants_bytes, after.constants_bytes);
    size("plan and constants (bytes)", before.bytes.len() as u64, after.bytes.len() as u64);
    size("RAM (bytes)", before.ram_bytes, after.ram_bytes);
    table.render(style.width)
}

/// How close the outputs are.
fn agreement(outcomes: &Outcomes<'_>) -> String {
    let (scores, graph) = (outcomes.scores, outcomes.graph);
    let outputs = graph.entries.first().map(|entry| entry.outputs.as_slice()).unwrap_or_default();
    let several = |id: &ValueId| graph.value(*id).ty.shape.elements().is_some_and(|n| n > 1);
    let mut text = String::new();
    if outputs.first().is_some_and(several) {
        let share = 100.0 * scores.agree as f64 / scores.samples.max(1) as f64;
        let _ = writeln!(text, "same class: {share:.2} % of the samples");
    }
    for (id, noise) in outputs.iter().zip(&scores.outputs) {
        let _ = writeln!(
            text,
            "output '{}': SQNR {}, largest error {}, mean {}",
            graph.value(*id).name,
            noise.decibels().map_or("-".to_owned(), decibels),
            number(noise.largest()),
            number(noise.mean())
        );
    }
    text
}

fn decibels(value: f64) -> String {
    if value.is_finite() { format!("{value:.1} dB") } else { "exact".to_owned() }
}

/// A number in about five characters.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(1e-4..1e6).contains(&size) => format!("{value:.3e}"),
        size => {
            let digits = (3 - size.log10().floor() as i32).clamp(0, 8) as usize;
            format!("{value:.digits$}")
        }
    }
}
