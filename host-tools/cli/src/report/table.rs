//! Plain tables: aligned columns, one of which gives way where the line would be too long.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How a column's cells stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// At the left: words.
    Left,
    /// At the right: numbers.
    Right,
}

/// Columns narrower than this are not cut further.
const NARROWEST: usize = 8;
/// Between columns.
const GAP: &str = "  ";

/// A table being filled.
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    flexible: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns, of which number `flexible` is shortened where it must be.
    pub fn new(columns: &[(&'static str, Align)], flexible: usize) -> Table {
        Table { columns: columns.to_vec(), flexible, rows: Vec::new() }
    }

    /// Adds a row; cells beyond the columns are dropped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().take(self.columns.len()).map(|cell| printable(&cell)).collect());
    }

    /// The table in at most `width` columns, where its fixed columns leave room for that.
    pub fn render(&self, width: usize) -> String {
        let heads: Vec<String> = self.columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        let lines = || std::iter::once(&heads).chain(&self.rows);
        let mut widths: Vec<usize> = vec![0; self.columns.len()];
        for line in lines() {
            for (widest, cell) in widths.iter_mut().zip(line) {
                *widest = (*widest).max(cell.width());
            }
        }
        let total = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
        if let Some(flexible) = widths.get_mut(self.flexible) {
            let excess = total.saturating_sub(width);
            *flexible = flexible.saturating_sub(excess).max(NARROWEST.min(*flexible));
        }
        let mut text = String::new();
        for line in lines() {
            let cells = line.iter().zip(&widths).zip(&self.columns);
            let cells: Vec<String> = cells.map(|((cell, &w), (_, align))| pad(&shorten(cell, w), w, *align)).collect();
            text.push_str(cells.join(GAP).trim_end());
            text.push('\n');
        }
        text
    }
}

fn pad(cell: &str, width: usize, align: Align) -> String {
    let spaces = " ".repeat(width.saturating_sub(cell.width()));
    match align {
        Align::Left => format!("{cell}{spaces}"),
        Align::Right => format!("{spaces}{cell}"),
    }
}

/// `text` in at most `width` columns. Of the names that TFLite joins with semicolons when it fuses
/// operators only the first stays. Where that is not enough the middle gives way, since names made
/// by converters begin alike and end in what tells them apart.
pub fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    if let Some((first, _)) = text.split_once(';')
        && width > 2
    {
        return format!("{};…", shorten(first, width - 2));
    }
    cut(text, width)
}

/// `text` in at most `width` columns, without its middle where it is longer.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let take = |chars: &mut dyn Iterator<Item = char>, room: usize| {
        let mut used = 0;
        let mut taken = Vec::new();
        for c in chars {
            used += c.width().unwrap_or(0);
            if used > room {
                break;
            }
            taken.push(c);
        }
        taken
    };
    let head = take(&mut text.chars(), room / 3);
    let mut tail = take(&mut text.chars().rev(), room - room / 3);
    tail.reverse();
    head.into_iter().chain(['…']).chain(tail).collect()
}

/// A name from a file, safe to print: control characters would reach the terminal.
pub fn printable(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_control() {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    text
}

/// Columns that a name takes in a sentence.
const NAME: usize = 80;

/// A name from a file as sentences quote it: safe to print, and not longer than a line.
pub fn brief(name: &str) -> String {
    cut(&printable(name), NAME)
}

/// A number with commas between thousands.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number to so many significant digits, whole digits all kept, zeros at the end left out: "0.35", "12", "123".
pub fn significant(number: f64, digits: i32) -> String {
    let magnitude = if number > 0.0 { number.log10().floor() as i32 + 1 } else { 1 };
    let decimals = usize::try_from(digits - magnitude).unwrap_or(0);
    let text = format!("{number:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

/// The size of a memory in the largest unit of which it is a whole number: "256 KiB", "1 GiB", "5,500 B". From 1 MiB on, what is no whole
/// number of KiB is rounded down, so that nobody counts on what is not there.
pub fn memory(bytes: u64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", thousands(bytes / unit)),
        None if bytes == 0 || bytes < 1 << 20 && !bytes.is_multiple_of(1 << 10) => format!("{} B", thousands(bytes)),
        None => format!("{} KiB", thousands(bytes >> 10)),
    }
}

/// `count` with its noun: "1 step", "13 steps".
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{} {noun}s", thousands(count as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(significant(0.034_63, 2), "0.035");
        assert_eq!(significant(0.996, 2), "1");
        assert_eq!(significant(120.0, 4), "120");
        assert_eq!(significant(16.384, 4), "16.38");
        assert_eq!(significant(0.0, 2), "0");
        assert_eq!(memory(1 << 30), "1 GiB");
        assert_eq!(memory(4 << 20), "4 MiB");
        assert_eq!(memory(1_376 << 10), "1,376 KiB");
        assert_eq!(memory(2_096_896), "2,047 KiB");
        assert_eq!(memory(1_023), "1,023 B");
        assert_eq!(memory(5_500), "5,500 B");
        assert_eq!(memory(0), "0 B");
        assert_eq!(shorten("functional_1/activation/Relu", 10), "fun…n/Relu");
        assert_eq!(shorten("a/Relu;a/BatchNorm;a/Conv2D", 10), "a/Relu;…");
        assert_eq!(shorten("activation/Relu;a/BatchNorm", 10), "ac…/Relu;…");
        assert_eq!(shorten("short", 10), "short");
        assert_eq!(shorten("宽宽宽宽宽宽", 7).width(), 7);
        assert_eq!(printable("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
    }

    #[test]
    fn only_the_flexible_column_gives_way() {
        let mut table = Table::new(&[("#", Align::Right), ("name", Align::Left), ("bytes", Align::Right)], 1);
        table.row(["10".into(), "a name that is much too long".into(), "1,000".into()]);
        table.row(["2".into(), "b".into(), "5".into()]);
        let lines = [" #  name            bytes", "10  a na… too long  1,000", " 2  b                   5"];
        assert_eq!(table.render(25).lines().collect::<Vec<_>>(), lines);
    }
}
