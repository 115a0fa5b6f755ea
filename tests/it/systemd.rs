//! Reads kubelet arguments as systemd does on Amazon Linux.
//!
//! Follows systemd 219 (`config_parse_environ`, `specifier_printf`, `split`, `cunescape_length` and
//! `unquote_first_word`), `bootstrap.sh` and the kubelet's units of amazon-eks-ami, and systemd 252 (`env-file.c`).

use std::iter::Peekable;
use std::str::Chars;

const SPECIFIERS: &str = "nNpPiIfcrRtUuhsmHbv";

/// The kubelet's words on Amazon Linux 2, where `bootstrap.sh` writes the value of `--kubelet-extra-args` into
/// `Environment='KUBELET_EXTRA_ARGS=...'`. `None` if systemd ignores that line.
pub(crate) fn words_of_unit(extra_args: &str) -> Option<Vec<String>> {
    let file = format!("Environment='KUBELET_EXTRA_ARGS={extra_args}'\n").replace("\\\n", " ");
    let line = file.lines().next()?;
    let assignment = first_word(&without_specifiers(line.strip_prefix("Environment=")?))?;
    let value = assignment.strip_prefix("KUBELET_EXTRA_ARGS=")?;
    let allowed = |c: char| !c.is_ascii_control() || c == '\t';
    value.chars().all(allowed).then(|| unquoted_words(value))
}

/// The kubelet's words on Amazon Linux 2023, where nodeadm writes the flags into the kubelet's `EnvironmentFile=`.
pub(crate) fn words_of_environment_file(flags: &[&str]) -> Vec<String> {
    let text = flags.join(" ");
    let mut value = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\\' { value.extend(rest.next().filter(|c| *c != '\n')) } else { value.push(c) }
    }
    unquoted_words(value.trim_end())
}

/// Replaces specifiers by text that no test expects.
fn without_specifiers(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (c, if c == '%' { rest.next() } else { None }) {
            ('%', Some('%')) => out.push('%'),
            ('%', Some(letter)) if SPECIFIERS.contains(letter) => out.push_str("EXPANDED"),
            ('%', Some(other)) => out.extend(['%', other]),
            ('%', None) => {}
            _ => out.push(c),
        }
    }
    out
}

/// The first assignment, in single quotes. `None` if its end is missing or has more text behind it.
fn first_word(text: &str) -> Option<String> {
    let mut rest = text.strip_prefix('\'')?.chars().peekable();
    let mut out = String::new();
    loop {
        match rest.next()? {
            '\'' => return rest.peek().is_none_or(|c| c.is_ascii_whitespace()).then_some(out),
            '\\' => unescape(&mut rest, &mut out)?,
            c => out.push(c),
        }
    }
}

fn unescape(rest: &mut Peekable<Chars<'_>>, out: &mut String) -> Option<()> {
    match rest.next()? {
        c @ ('\\' | '"' | '\'') => out.push(c),
        'n' => out.push('\n'),
        't' => out.push('\t'),
        's' => out.push(' '),
        other => out.extend(['\\', other]),
    }
    Some(())
}

/// Splits the value of `$KUBELET_EXTRA_ARGS` in `ExecStart=`.
fn unquoted_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote): (Vec<String>, Option<String>, Option<char>) = (Vec::new(), None, None);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (c, quote) {
            ('\\', _) => word.get_or_insert_default().extend(rest.next()),
            (_, Some(open)) if open == c => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (' ' | '\t' | '\n' | '\r', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
