//! Text: how wide it is, where it breaks, and what of it can be written.

use unicode_width::UnicodeWidthStr;

use crate::report::table::{printable, shorten};

/// A character's width at the font's size of 12, in every common monospaced font at most.
pub(super) const CHAR: f64 = 7.25;
/// From one line of text to the next.
pub(super) const LINE: f64 = 14.0;

pub(super) fn text_width(text: &str) -> f64 {
    text.width() as f64 * CHAR
}

/// `name` in at most `lines` lines of `chars` columns, broken behind underscores.
pub(super) fn wrap(name: &str, chars: usize, lines: usize) -> Vec<String> {
    let mut broken: Vec<String> = vec![String::new()];
    for part in name.split_inclusive('_') {
        let more = broken.len() < lines;
        match broken.last_mut() {
            Some(line) if !more || line.is_empty() || line.width() + part.width() <= chars => line.push_str(part),
            _ => broken.push(part.to_owned()),
        }
    }
    broken.iter().map(|line| shorten(line, chars)).collect()
}

/// A name from a file as it can be shown: what XML does not allow, and what would change the
/// direction of the text around it or not be seen, is written as its number.
pub(super) fn legible(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in printable(name).chars() {
        match c {
            '\u{200B}'..='\u{200F}'
            | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{2069}'
            | '\u{FEFF}'
            | '\u{FFFE}'
            | '\u{FFFF}' => text.extend(c.escape_unicode()),
            c => text.push(c),
        }
    }
    text
}

/// Text for an element's inside.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' => safe.push('\n'),
            // Whatever has not been made legible must at least not break the file.
            '\u{FFFE}' | '\u{FFFF}' => safe.push(char::REPLACEMENT_CHARACTER),
            c if c.is_control() => safe.push(char::REPLACEMENT_CHARACTER),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_legible_and_markup_harmless() {
        assert_eq!(legible("a\u{202E}b\u{7}\u{FFFF}\n"), "a\\u{202e}b\\u{7}\\u{ffff}\\n");
        assert_eq!(escape("<a & \"b\">\u{0}"), "&lt;a &amp; &quot;b&quot;&gt;\u{FFFD}");
    }

    #[test]
    fn operators_break_behind_underscores() {
        assert_eq!(wrap("fully_connected", 10, 3), ["fully_", "connected"]);
        assert_eq!(wrap("conv2d", 10, 3), ["conv2d"]);
        assert_eq!(wrap("a_very_long_name_of_an_operator", 6, 2), ["a_", "v…ator"]);
    }
}
