//! How long a run takes on a board: estimated instructions, times the board's cycles for one, over its clock.

use kiln_boards::Board;
use kiln_planner::{Planned, PlannedEntry};

use super::json::{PlanReport, Time};
use super::table::{significant, thousands};

/// What is known of a run of `entry` on `board`.
pub(super) fn time(planned: &Planned, entry: &PlannedEntry, board: &Board) -> Time {
    let instructions = entry.instructions(planned.target);
    let cycles = board.cycles.as_ref();
    let seconds = instructions.zip(cycles).zip(board.clock_hz);
    Time {
        instructions: instructions.map(|instructions| instructions.round() as u64),
        cycles_per_instruction: cycles.map(|cycles| cycles.per_instruction),
        clock_hz: board.clock_hz.filter(|_| cycles.is_some()),
        error: cycles.map(|cycles| cycles.error),
        seconds: seconds.map(|((instructions, cycles), hertz)| instructions * cycles.per_instruction / hertz as f64),
    }
}

/// The line about time in the report on one board.
pub(super) fn line(report: &PlanReport) -> String {
    let time = &report.time;
    let instructions = time.instructions.map(|n| format!("{} instructions", count(n)));
    match (time.seconds, time.error, time.cycles_per_instruction, time.clock_hz, instructions) {
        (Some(seconds), Some(error), Some(cycles), Some(hertz), Some(instructions)) => format!(
            "about {} at {} MHz (estimate, {}: {instructions}, {cycles:?} cycles each)",
            duration(seconds),
            significant(hertz as f64 / 1e6, 4),
            spread(error)
        ),
        (.., Some(instructions)) => format!("not known for this board; about {instructions} (estimate)"),
        (.., None) => "not known: some kernels were not measured on this CPU family".to_owned(),
    }
}

/// The cell about time in the table of boards: "0.35 s ±40 %", or a dash.
pub(super) fn cell(time: &Time) -> String {
    match time.seconds.zip(time.error) {
        Some((seconds, error)) => format!("{} {}", duration(seconds), spread(error)),
        None => "—".to_owned(),
    }
}

/// "±40 %".
fn spread(error: f64) -> String {
    format!("±{:.0} %", error * 100.0)
}

/// Two digits: an estimate has no more.
fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        0.0995.. => (seconds, "s"),
        0.0000995.. => (seconds * 1e3, "ms"),
        _ => (seconds * 1e6, "µs"),
    };
    format!("{} {unit}", significant(value, 2))
}

/// "29.7 M", "583 k", "4,359".
fn count(number: u64) -> String {
    match number {
        0..10_000 => thousands(number),
        10_000..1_000_000 => format!("{} k", significant(number as f64 / 1e3, 3)),
        _ => format!("{} M", significant(number as f64 / 1e6, 3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_counts_have_the_digits_that_estimates_have() {
        let durations = [0.3463, 0.0346, 0.000_346, 0.000_034_6, 12.34, 123.4, 0.0995, 0.099_49, 3.96e-8, 0.996];
        let texts = ["0.35 s", "35 ms", "0.35 ms", "35 µs", "12 s", "123 s", "0.1 s", "99 ms", "0.04 µs", "1 s"];
        assert_eq!(durations.map(duration), texts);
        assert_eq!([0, 9_999, 10_000, 583_412, 29_708_387].map(count), ["0", "9,999", "10 k", "583 k", "29.7 M"]);
        assert_eq!([0.4, 0.555, 2.0, 0.0].map(spread), ["±40 %", "±56 %", "±200 %", "±0 %"]);
    }
}
