//! The reports that people read.

use super::Comparison;
use super::compare::Delta;
use super::json::{Cost, ProfileReport};
use crate::console::Style;
use crate::report::table::{Align, Table, printable, thousands};

/// The whole report.
pub fn profile(report: &ProfileReport, style: Style) -> String {
    format!("{}\n{}\n{}\n{}", header(report), steps(report, style), memory(report), flash(report, style))
}

fn header(report: &ProfileReport) -> String {
    format!(
        "{} on {} ({}), one run of '{}', counted under emulation: instructions are not cycles\n",
        printable(&report.model),
        report.board,
        report.target,
        printable(&report.entry)
    )
}

fn steps(report: &ProfileReport, style: Style) -> String {
    let columns = [
        ("step", Align::Right),
        ("operator", Align::Left),
        ("name", Align::Left),
        ("kernel", Align::Left),
        ("instructions", Align::Right),
        ("MACs", Align::Right),
        ("a MAC", Align::Right),
        ("loads", Align::Right),
        ("stores", Align::Right),
        ("share", Align::Right),
    ];
    let mut table = Table::new(&columns, 2);
    let mut row = |index: String, words: [&str; 3], cost: &Cost| {
        let words = words.map(str::to_owned);
        table.row(std::iter::once(index).chain(words).chain([
            thousands(cost.instructions),
            if cost.macs == 0 { String::new() } else { thousands(cost.macs) },
            cost.instructions_per_mac.map_or(String::new(), |ratio| format!("{ratio:.2}")),
            thousands(cost.loads),
            thousands(cost.stores),
            share(cost.instructions, report.total.instructions),
        ]));
    };
    for step in &report.steps {
        row(step.index.to_string(), [&step.op, &step.name, &step.kernel], &step.cost);
    }
    row(String::new(), ["executor", "", ""], &report.executor);
    row(String::new(), ["total", "", ""], &report.total);
    table.render(style.width)
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { String::new() } else { format!("{:.1} %", part as f64 / whole as f64 * 100.0) }
}

fn memory(report: &ProfileReport) -> String {
    let ram = &report.ram;
    let bytes = |bytes: Option<u64>, not: &str| bytes.map_or(not.to_owned(), |b| format!("{} bytes", thousands(b)));
    let computed = match report.stack.computed {
        Some(computed) => format!("{} bytes at most, by the linked program; ", thousands(computed)),
        None => String::new(),
    };
    format!(
        "Stack  {computed}{}\nRAM    {} bytes without stack; arena {}, of which {} touched, the last at {}; state {}\n",
        bytes(report.stack.painted, "not measured, it is the system's") + " by painting",
        thousands(ram.total),
        thousands(ram.arena),
        thousands(ram.arena_touched),
        ram.arena_end.checked_sub(1).map_or("none".to_owned(), thousands),
        thousands(ram.state),
    )
}

fn flash(report: &ProfileReport, style: Style) -> String {
    let mut table = Table::new(&[("section", Align::Left), ("bytes", Align::Right), ("what", Align::Left)], 2);
    for section in &report.flash.sections {
        table.row([section.name.clone(), thousands(section.bytes), "in all".to_owned()]);
        for part in &section.parts {
            table.row([String::new(), thousands(part.bytes), part.name.clone()]);
        }
    }
    format!(
        "Flash  {} bytes; code without the platform's {}\n{}",
        thousands(report.flash.total),
        thousands(report.flash.code),
        table.render(style.width)
    )
}

/// What changed.
pub fn comparison(comparison: &Comparison<'_>, style: Style) -> String {
    let columns = [
        ("step", Align::Right),
        ("operator", Align::Left),
        ("name", Align::Left),
        ("before", Align::Right),
        ("now", Align::Right),
        ("change", Align::Right),
        ("", Align::Right),
    ];
    let mut steps = Table::new(&columns, 2);
    for step in comparison.steps() {
        let cells = [step.index.map_or(String::new(), |index| index.to_string()), step.op, step.name];
        steps.row(cells.into_iter().chain(change(step.instructions)));
    }
    let mut totals = Table::new(&[("", Align::Left), columns[3], columns[4], columns[5], columns[6]], 0);
    for (what, delta) in comparison.totals() {
        totals.row(std::iter::once(what.to_owned()).chain(change(delta)));
    }
    format!("{}\ninstructions\n{}\n{}", header(comparison.new), steps.render(style.width), totals.render(style.width))
}

fn change(delta: Delta) -> [String; 4] {
    let Delta { old, new } = delta;
    let number = |number: Option<u64>| number.map_or("none".to_owned(), thousands);
    let (difference, ratio) = match (old, new) {
        (Some(old), Some(new)) => {
            let sign = if new > old {
                "+"
            } else if new < old {
                "-"
            } else {
                ""
            };
            let ratio = if old == 0 || old == new {
                String::new()
            } else {
                format!("{:+.1} %", (new as f64 / old as f64 - 1.0) * 100.0)
            };
            (format!("{sign}{}", thousands(old.abs_diff(new))), ratio)
        }
        _ => (String::new(), String::new()),
    };
    [number(old), number(new), difference, ratio]
}
