//! Writing to the terminal: what is printed, how wide, and whether in colour.

use std::io::{self, ErrorKind, IsTerminal, Write};

use crate::CliError;

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

/// `text` with its control characters but line ends escaped: names from files reach errors, and
/// must not reach the terminal as commands.
pub fn harmless(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
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
