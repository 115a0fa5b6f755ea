//! Quoting for shell, PowerShell, YAML, TOML, fstab and systemd.

use std::fmt::Write;

/// One word of a POSIX shell, in single quotes only when it contains special characters.
pub(crate) fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { single_quoted(word) }
}

/// One word of a POSIX shell, always in single quotes.
pub(crate) fn single_quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A verbatim PowerShell string. Quotes are doubled, also typographic ones, which PowerShell treats as plain quotes.
pub(crate) fn powershell_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('\'');
    for c in text.chars() {
        out.push(c);
        if "'\u{2018}\u{2019}\u{201A}\u{201B}".contains(c) {
            out.push(c);
        }
    }
    out.push('\'');
    out
}

/// A double-quoted ASCII string whose escapes are valid in both YAML and TOML.
pub(crate) fn double_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            _ if (c as u32) <= 0xFFFF => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            _ => {
                let _ = write!(out, "\\U{:08X}", c as u32);
            }
        }
    }
    out.push('"');
    out
}

/// Text for `Environment='...'` of a unit file, in which systemd 219 (Amazon Linux 2) reads single quotes and specifiers.
/// A `%` that begins no specifier needs no escape. The text contains no backslash, except at the end of a line.
pub(crate) fn environment_escaped(text: &str) -> String {
    const SPECIFIERS: &str = "%HINPRUbcfhimnprstuv";
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\'' => out.push('\\'),
            '%' if rest.peek().is_some_and(|next| SPECIFIERS.contains(*next)) => out.push('%'),
            _ => {}
        }
        out.push(c);
    }
    out
}

/// A field of `/etc/fstab`, with white space, `#` and the backslash as octal escapes.
pub(crate) fn fstab_escaped(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    for c in field.chars() {
        match c {
            ' ' | '\t' | '\n' | '\\' | '#' => {
                let _ = write!(out, "\\{:03o}", c as u32);
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_quoted_only_if_needed() {
        assert_eq!(shell_quoted("bench"), "bench");
        assert_eq!(shell_quoted("https://a.b/c"), "https://a.b/c");
        assert_eq!(shell_quoted(""), "''");
        assert_eq!(shell_quoted("~"), "'~'");
        assert_eq!(shell_quoted("a b"), "'a b'");
        assert_eq!(shell_quoted("it's"), r"'it'\''s'");
        assert_eq!(fstab_escaped("/my data"), r"/my\040data");
    }

    #[test]
    fn environment_escapes_quotes_and_specifiers() {
        assert_eq!(environment_escaped("--a='b c' --d=\"e\""), r#"--a=\'b c\' --d="e""#);
        assert_eq!(environment_escaped("--a=b<5%,c<7%"), "--a=b<5%,c<7%");
        assert_eq!(environment_escaped("--a=%H%%,%z"), "--a=%%H%%%,%z");
    }

    #[test]
    fn powershell_doubles_all_five_quote_characters() {
        assert_eq!(powershell_quoted("a b"), "'a b'");
        assert_eq!(powershell_quoted(r#"$(x) `n "y""#), r#"'$(x) `n "y"'"#);
        for quote in ['\'', '\u{2018}', '\u{2019}', '\u{201A}', '\u{201B}'] {
            assert_eq!(powershell_quoted(&format!("a{quote}; x")), format!("'a{quote}{quote}; x'"));
        }
    }

    proptest! {
        #[test]
        fn quoted_string_round_trips_in_yaml_and_toml(text in any::<String>()) {
            let quoted = double_quoted(&text);
            prop_assert!(quoted.is_ascii());
            let yaml: String = serde_yaml::from_str(&quoted).unwrap();
            prop_assert_eq!(&yaml, &text);
            let toml: toml::Table = format!("v = {quoted}").parse().unwrap();
            prop_assert_eq!(toml["v"].as_str().unwrap(), &text);
        }
    }
}
