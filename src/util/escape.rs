//! Escaping of text that users wrote, such as keys of labels, in messages.

/// Replaces control and invisible formatting characters, so that a key can neither begin a new line nor reorder text.
pub(crate) fn escape_control(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hidden_characters_are_escaped() {
        assert_eq!(escape_control("a.b/c d\"é"), "a.b/c d\"é");
        assert_eq!(escape_control("a\n\u{1b}[0m\u{202e}b"), "a\\n\\u{1b}[0m\\u{202e}b");
    }
}
