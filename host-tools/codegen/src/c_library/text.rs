//! Foreign text inside C source.

use crate::model_crate::text::doc;

/// A string literal, quotes included. What is not plain ASCII is written as the octal escapes of its UTF-8 bytes, which,
/// other than hexadecimal ones, end after three digits.
pub(super) fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            // `?` because two of them begin a trigraph.
            b'"' | b'\\' | b'?' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\{byte:03o}")),
        }
    }
    quoted + "\""
}

/// A name to stand in a comment: it ends neither the comment nor the line.
pub(super) fn comment(name: &str) -> String {
    doc(name).replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_hold_any_text() {
        assert_eq!(string("a\"b\\c\nd?é1"), r#""a\"b\\c\012d\?\303\2511""#);
        assert_eq!(string(""), "\"\"");
    }

    #[test]
    fn comments_do_not_end_early() {
        let text = comment("a */ b /* c ??/ \n d \\");
        assert!(!text.contains("*/") && !text.contains("/*") && !text.contains("??") && !text.contains('\n'), "{text}");
    }
}
