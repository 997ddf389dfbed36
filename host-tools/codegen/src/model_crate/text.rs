//! Foreign text inside generated files: nothing in it may end a string or a comment early.

/// The most characters of a name that documentation shows.
const SHOWN: usize = 64;

/// A name for documentation, to stand between backticks.
pub(crate) fn doc(name: &str) -> String {
    let mut text = String::new();
    let mut chars = name.chars();
    for c in chars.by_ref().take(SHOWN) {
        match c {
            '`' => text.push('\''),
            '\\' | '\'' | '"' => text.push(c),
            // Line breaks, and characters that change the direction of text, which rustc refuses.
            c => text.extend(c.escape_debug()),
        }
    }
    if chars.next().is_some() {
        text.push('…');
    }
    text
}

/// A string for a TOML file, quotes included.
pub(super) fn toml(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// The items of an array, in brackets: on one line where that is short, else one a line.
pub(super) fn array(items: &[String]) -> String {
    let line = items.join(", ");
    if line.chars().count() <= 60 {
        return format!("[{line}]");
    }
    let lines: Vec<String> = items.iter().map(|item| format!("    {item},\n")).collect();
    format!("[\n{}]", lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_documentation_stay_on_their_line() {
        assert_eq!(doc("a`b\nc\u{202e}d\\\"é"), "a'b\\nc\\u{202e}d\\\"é");
        assert_eq!(doc(&"x".repeat(100)).chars().count(), SHOWN + 1);
        assert_eq!(doc(&"x".repeat(SHOWN)), "x".repeat(SHOWN));
    }

    #[test]
    fn toml_strings_are_escaped() {
        assert_eq!(toml("a \"b\"\\c\né"), "\"a \\\"b\\\"\\\\c\\u000Aé\"");
    }
}
