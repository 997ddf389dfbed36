//! The reports that people read.

use super::json::{Kind, PlanReport, Region, Short};
use super::map::map;
use super::table::{Align, Table, counted, memory, printable, shorten, thousands};
use super::time;
use crate::console::Style;

/// The whole report on one board.
pub fn plan(report: &PlanReport, style: Style) -> String {
    if !report.ram.banks.is_empty() {
        let maps: String = (0..report.ram.banks.len()).map(|bank| bank_map(report, bank, style)).collect();
        return format!("{}\n{}{maps}", header(report), steps(report, style));
    }
    let map = map(report, style);
    let shared = if map.contains('▓') { "; ▓ is shared by a step's output and input" } else { "" };
    let map = match map.is_empty() {
        true => String::new(),
        false => format!("\nArena, {} bytes{shared}\n{map}", thousands(report.ram.arena)),
    };
    format!("{}\n{}{map}", header(report), steps(report, style))
}

/// What of the arena lies in one of several banks.
fn bank_map(report: &PlanReport, bank: usize, style: Style) -> String {
    let Some(record) = report.ram.banks.get(bank) else { return String::new() };
    let mut own = report.clone();
    own.tensors.retain(|tensor| tensor.region != Region::Arena || usize::from(tensor.bank) == bank);
    own.ram.arena = record.arena;
    let map = map(&own, style);
    if map.is_empty() {
        return String::new();
    }
    let shared = if map.contains('▓') { "; ▓ is shared by a step's output and input" } else { "" };
    format!("\nArena in {}, {} bytes{shared}\n{map}", printable(&record.region), thousands(record.arena))
}

fn header(report: &PlanReport) -> String {
    let (ram, flash) = (&report.ram, &report.flash);
    let verdict = if report.fits { "fits" } else { "does not fit" };
    let arena = match (report.optimal, ram.arena.saturating_sub(ram.lower_bound)) {
        (true, _) => "proven the least possible".to_owned(),
        (false, gap) => {
            format!("within {} bytes of the lower bound {}", thousands(gap), thousands(ram.lower_bound))
        }
    };
    let mut text = format!("{} on {} ({}): {verdict}\n", printable(&report.model), report.board, report.target);
    // Models that take turns need the largest of their arenas, but each one's state.
    let (turns, apart) = if ram.shared_arena { (", for models to share by turns", ", apart") } else { ("", "") };
    text.push_str(&format!(
        "RAM    {}\n       arena {}, {arena}{turns}; state {}{apart}\n",
        of(ram.total, ram.limit, ram.region.as_deref()),
        thousands(ram.arena),
        thousands(ram.state),
    ));
    for bank in &ram.banks {
        let name = Some(bank.region.as_str());
        text.push_str(&format!("       spread: {}\n", of(bank.total, Some(bank.limit), name)));
    }
    text.push_str(&format!(
        "Flash  {}\n       constants {}, plan records {}{}\n",
        of(flash.total, flash.limit, flash.region.as_deref()),
        thousands(flash.constants),
        thousands(flash.plan),
        match flash.code {
            Some(code) => format!(", code {} (estimate)", thousands(code)),
            None => "; code comes on top".to_owned(),
        },
    ));
    let macs: u64 = report.steps.iter().map(|s| s.macs).sum();
    text.push_str(&format!(
        "Work   {}, {} multiply-accumulates\n",
        counted(report.steps.len(), "step"),
        thousands(macs)
    ));
    for again in &report.again {
        text.push_str(&format!(
            "Again  {} of '{}', {} multiply-accumulates more, for {} bytes of arena less\n",
            counted(again.steps, "step"),
            printable(&again.entry),
            thousands(again.macs),
            thousands(again.saved)
        ));
    }
    if let Some(patches) = &report.patches {
        text.push_str(&format!(
            "Patch  the first {}, up to '{}', in {} of {}; what two need is {}: {} multiply-accumulates more\n",
            counted(patches.operators, "operator"),
            printable(&patches.last),
            match patches.count {
                1 => "1 patch".to_owned(),
                count => format!("{count} patches"),
            },
            counted(patches.rows as usize, "row"),
            if patches.kept { "kept" } else { "computed twice" },
            thousands(patches.macs)
        ));
    }
    if let Some(fed) = &report.fed {
        text.push_str(&format!("Feed   the input comes by rows, at most {} bytes at a time\n", thousands(fed.most)));
    }
    let removed = &report.removed;
    if removed.macs > 0 || removed.constant_bytes > 0 {
        text.push_str(&format!(
            "       dead: {} multiply-accumulates and {} bytes of constants removed, exactly\n",
            thousands(removed.macs),
            thousands(removed.constant_bytes)
        ));
    }
    text.push_str(&format!("Time   {}\n", time::line(report)));
    text
}

/// "8,704 of 4,194,304 bytes (DATA)".
fn of(needed: u64, limit: Option<u64>, region: Option<&str>) -> String {
    let limit = limit.map_or(String::new(), |limit| format!(" of {}", thousands(limit)));
    let region = region.map_or(String::new(), |region| format!(" ({})", printable(region)));
    format!("{}{limit} bytes{region}", thousands(needed))
}

fn steps(report: &PlanReport, style: Style) -> String {
    let mut columns = vec![
        ("step", Align::Right),
        ("operator", Align::Left),
        ("name", Align::Left),
        ("kernel", Align::Left),
        ("MACs", Align::Right),
        ("output", Align::Right),
        ("scratch", Align::Right),
    ];
    // A column of zeros would only take the names' room.
    if report.steps.iter().all(|s| s.scratch == 0) {
        columns.pop();
    }
    let mut table = Table::new(&columns, 2);
    for step in &report.steps {
        let output = report.tensors.iter().filter(|t| step.outputs.contains(&t.name)).map(|t| t.bytes).sum();
        table.row([
            step.index.to_string(),
            step.op.to_owned(),
            step.name.clone(),
            step.kernel.to_owned(),
            thousands(step.macs),
            thousands(output),
            thousands(step.scratch),
        ]);
    }
    table.render(style.width)
}

/// A table of boards, one line each.
pub fn boards(model: &str, reports: &[PlanReport], style: Style) -> String {
    let columns = [
        ("board", Align::Left),
        ("CPU family", Align::Left),
        ("RAM", Align::Right),
        ("of", Align::Right),
        ("flash", Align::Right),
        ("of", Align::Right),
        ("time (estimate)", Align::Right),
        ("", Align::Left),
    ];
    // Names stay whole, since they are what is typed next.
    let mut table = Table::new(&columns, 1);
    let limit = |bytes: Option<u64>| bytes.map_or("any".to_owned(), memory);
    for report in reports {
        let short: Vec<String> = report.short.iter().map(short).collect();
        table.row([
            report.board.clone(),
            report.target.clone(),
            thousands(report.ram.total),
            limit(report.ram.limit),
            thousands(report.flash.total),
            limit(report.flash.limit),
            time::cell(&report.time),
            if short.is_empty() { "fits".to_owned() } else { format!("short of {}", short.join(" and ")) },
        ]);
    }
    format!(
        "{}: bytes of RAM and of flash (constants, plan records and, where it can be estimated, code);\n\
         time of a run, where it can be estimated\n\n{}",
        printable(model),
        table.render(style.width)
    )
}

fn short(short: &Short) -> String {
    let missing = thousands(short.needed.saturating_sub(short.limit));
    format!("{} by {missing}", if short.memory == "ram" { "RAM" } else { "flash" })
}

/// Why a model does not fit: the region, bytes needed and there, and what takes them.
pub fn shortage(report: &PlanReport) -> String {
    let mut text = format!("{} does not fit board '{}'", report.model, report.board);
    for short in &report.short {
        let ram = short.memory == "ram";
        let what = if ram { "RAM" } else { "flash" };
        let region = short.region.as_ref().map_or(String::new(), |region| format!(" region {region}"));
        text.push_str(&format!(
            "\n{what}{region}: {} bytes needed, {} available, {} too few",
            thousands(short.needed),
            thousands(short.limit),
            thousands(short.needed.saturating_sub(short.limit)),
        ));
        text.push_str(&if ram { blame_ram(report) } else { blame_flash(report) });
    }
    if let Some(least) = report.ram.least {
        let room = match report.ram.limit.and_then(|limit| limit.checked_sub(least)) {
            Some(left) => format!(", which leaves {} for the stack: --ram {least} takes it", thousands(left)),
            None => String::new(),
        };
        text.push_str(&format!(
            "\nPatches, or computing values again, would bring it to {} bytes at least{room}.",
            thousands(least)
        ));
        if report.fed.is_none() {
            text.push_str(" With --ram and --feed, an image that comes by rows may take less.");
        }
    }
    text.push_str("\nTake a board with more memory (kiln plan MODEL --board all lists them) or a smaller model.");
    text
}

/// Columns that a name takes at most in an error.
const NAME: usize = 76;
/// How many tensors are blamed by name.
const BLAMED: usize = 6;

fn blame_ram(report: &PlanReport) -> String {
    let state = match report.ram.state {
        0 => String::new(),
        state => format!("\n  state takes {} bytes throughout", thousands(state)),
    };
    let Some(peak) = &report.peak else { return state };
    let step = report.steps.get(peak.step);
    let step = step.map_or(String::new(), |s| format!(", {} '{}'", s.op, shorten(&printable(&s.name), NAME)));
    let tensors: Vec<(&str, u64)> = peak.tensors.iter().map(|name| (name.as_str(), bytes(report, name))).collect();
    format!("{state}\n  the arena is fullest at step {}{step}:{}", peak.step, largest(&tensors))
}

fn blame_flash(report: &PlanReport) -> String {
    let constants = report.tensors.iter().filter(|t| t.kind == Kind::Constant);
    let mut constants: Vec<(&str, u64)> = constants.map(|t| (t.name.as_str(), t.bytes)).collect();
    constants.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let code =
        report.flash.code.map_or(String::new(), |code| format!("\n  code takes about {} bytes", thousands(code)));
    format!("{code}\n  the largest constants:{}", largest(&constants))
}

fn bytes(report: &PlanReport, name: &str) -> u64 {
    report.tensors.iter().find(|t| t.region == Region::Arena && t.name == name).map_or(0, |t| t.bytes)
}

fn largest(tensors: &[(&str, u64)]) -> String {
    let mut text = String::new();
    for (name, bytes) in tensors.iter().take(BLAMED) {
        text.push_str(&format!("\n  {:>12}  {}", thousands(*bytes), shorten(&printable(name), NAME)));
    }
    if let Some(rest @ 1..) = tensors.len().checked_sub(BLAMED) {
        text.push_str(&format!("\n  and {} more", counted(rest, "tensor")));
    }
    text
}
