//! Writing to the terminal: what is printed, how wide, and whether in colour.

use std::io::{self, ErrorKind, IsTerminal, Write};

use crate::CliError;
use crate::report::table::{cut, printable};

/// Columns when the output is no terminal.
const DEFAULT_WIDTH: usize = 100;
/// The narrowest and widest that reports are laid out for.
const WIDTHS: (usize, usize) = (60, 240);

/// Writes results to standard output. A reader that has gone away (`kiln plan … | head`) is no
/// error: what it did not want to read is dropped.
pub fn out(text: &str) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::Stdout(error)),
        _ => Ok(()),
    }
}

/// Writes a line of progress or an error to standard error; what it quotes from files can't steer the terminal.
pub fn progress(line: &str) {
    let line = harmless(line);
    // Where standard error is closed nobody is left to be told.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// The longest quoted name and the longest line of a message, in columns.
const LONGEST: (usize, usize) = (120, 1_000);

/// `text` with its control characters but line ends escaped, and without the middle of names and lines that
/// are too long to be read: names from files reach errors, and must not reach the terminal as commands or
/// fill it.
pub fn harmless(text: &str) -> String {
    let lines = text.split('\n').map(|line| cut(&brief_quotes(&printable(line)), LONGEST.1));
    lines.collect::<Vec<_>>().join("\n")
}

/// A line with what stands in single quotes cut where it is too long.
fn brief_quotes(line: &str) -> String {
    if line.len() <= LONGEST.0 {
        return line.to_owned();
    }
    let (mut brief, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once('\'') {
        brief.push_str(before);
        brief.push('\'');
        rest = after;
        // Behind a letter it is an apostrophe.
        if !before.ends_with(char::is_alphanumeric)
            && let Some((quoted, after)) = rest.split_once('\'')
        {
            brief.push_str(&cut(quoted, LONGEST.0));
            brief.push('\'');
            rest = after;
        }
    }
    brief + rest
}

/// How reports are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Columns to use.
    pub width: usize,
    /// Whether colours may be used.
    pub colour: bool,
}

impl Style {
    /// Without colour, for a file or a pipe.
    pub const PLAIN: Style = Style { width: DEFAULT_WIDTH, colour: false };

    /// The style for standard output: the terminal's width, and colour unless `NO_COLOR` is set
    /// (see <https://no-color.org>).
    pub fn of_stdout() -> Style {
        if !io::stdout().is_terminal() {
            return Style::PLAIN;
        }
        let width = terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(width, _)| width.0 as usize);
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Style { width: width.clamp(WIDTHS.0, WIDTHS.1), colour }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_and_lines_give_way_in_the_middle() {
        let long = "x".repeat(100_000);
        let text = harmless(&format!("it can't be read: '{long}' and node '{long}' don't agree;\ndo this instead"));
        let (first, second) = text.split_once('\n').unwrap();
        assert!(first.len() < 320, "{first}");
        assert!(first.starts_with("it can't be read: 'xxx") && first.ends_with("xxx' don't agree;"), "{first}");
        assert!(first.contains("xxx' and node 'xxx") && second == "do this instead", "{first}");
        // Not in quotes, or in one alone.
        for text in [format!("name {long} is wrong"), format!("name '{long} is wrong")] {
            let text = harmless(&text);
            assert!(text.len() < 1_010 && text.starts_with("name ") && text.ends_with(" is wrong"), "{text}");
        }
        let short = "a 'name' that's\ta bit\x1b[31m long\n\n".to_owned();
        assert_eq!(harmless(&short), "a 'name' that's\\ta bit\\u{1b}[31m long\n\n");
    }
}
