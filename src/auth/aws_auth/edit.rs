//! Insertion and removal of entries in a parsed `mapRoles`.

use std::collections::BTreeMap;
use std::ops::Range;

use super::document::{AwsAuthDocument, ListStyle, line_end, line_start};
use super::entry::{AuthEntry, without_path};

/// The text with the entries appended.
pub(super) fn insert_entries(before: &AwsAuthDocument, entries: &[&AuthEntry]) -> String {
    let text = before.text.as_str();
    match (&before.style, before.items.last()) {
        (ListStyle::Flow(_), Some(last)) => {
            splice(text, last.end..last.end, &format!(", {}", format_flow_entries(entries)))
        }
        (ListStyle::Flow(list), None) if !text[list.start + 1..list.end - 1].trim().is_empty() => {
            splice(text, list.start + 1..list.start + 1, &format_flow_entries(entries))
        }
        (ListStyle::Flow(list), None) | (ListStyle::Empty(Some(list)), _) => {
            let list = whole_line(text, list);
            let without_list = splice(text, list.clone(), "");
            append_lines(&without_list, before.end - list.len(), &format_block_entries(entries, 0, before.line_break()))
        }
        (ListStyle::Empty(None), _) => {
            append_lines(text, before.end, &format_block_entries(entries, 0, before.line_break()))
        }
        (ListStyle::Block { indent }, _) => {
            append_lines(text, before.end, &format_block_entries(entries, *indent, before.line_break()))
        }
    }
}

/// The full line of the range if the line contains nothing else, else the range itself.
fn whole_line(text: &str, range: &Range<usize>) -> Range<usize> {
    let line = line_start(text, range.start)..line_end(text, range.end);
    if text[line.clone()].trim() == &text[range.clone()] { line } else { range.clone() }
}

/// Replaces a range of the text.
fn splice(text: &str, range: Range<usize>, new: &str) -> String {
    format!("{}{new}{}", &text[..range.start], &text[range.end..])
}

/// Inserts lines at `at`, which must be the start of a line or the end of the text.
fn append_lines(text: &str, at: usize, lines: &str) -> String {
    let (head, tail) = text.split_at(at);
    let line_break = if lines.contains("\r\n") { "\r\n" } else { "\n" };
    let separator = if head.is_empty() || head.ends_with('\n') { "" } else { line_break };
    format!("{head}{separator}{lines}{tail}")
}

fn format_block_entries(entries: &[&AuthEntry], indent: usize, line_break: &str) -> String {
    let margin = " ".repeat(indent);
    let mut out = String::new();
    let mut line = |text: String| out.push_str(&format!("{margin}{text}{line_break}"));
    for entry in entries {
        line(format!("- rolearn: {}", scalar(&without_path(&entry.role_arn))));
        line(format!("  username: {}", scalar(&entry.username)));
        line("  groups:".to_owned());
        for group in &entry.groups {
            line(format!("  - {}", scalar(group)));
        }
    }
    out
}

/// The text as a plain scalar if every YAML parser reads it as a string, else quoted.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.contains(':')
        && !text.ends_with(':')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ":/_+=.@{}-".contains(c));
    if plain { text.to_owned() } else { quote(text) }
}

fn format_flow_entries(entries: &[&AuthEntry]) -> String {
    let format_entry = |entry: &&AuthEntry| {
        let groups: Vec<_> = entry.groups.iter().map(|group| quote(group)).collect();
        format!(
            "{{\"rolearn\": {}, \"username\": {}, \"groups\": [{}]}}",
            quote(&without_path(&entry.role_arn)),
            quote(&entry.username),
            groups.join(", ")
        )
    };
    entries.iter().map(format_entry).collect::<Vec<_>>().join(", ")
}

/// The text as a JSON string, which is also a YAML string.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The text without the entries at these indexes; `None` when one of them cannot be located.
pub(super) fn remove_entries(before: &AwsAuthDocument, removed: &[usize]) -> Option<String> {
    let mut cuts: BTreeMap<usize, Range<usize>> = BTreeMap::new();
    for &index in removed {
        match before.style {
            ListStyle::Block { indent } => {
                for line in entry_lines(&before.text, before.lines_of(index, indent)?) {
                    cuts.insert(line.start, line);
                }
            }
            ListStyle::Flow(_) => {
                let item = before.items.get(index)?.clone();
                if let Some(comma) = adjacent_comma(before, index, removed) {
                    cuts.insert(comma.start, comma);
                }
                cuts.insert(item.start, item);
            }
            ListStyle::Empty(_) => return None,
        }
    }
    let mut out = before.text.clone();
    for cut in cuts.into_values().rev() {
        out.replace_range(cut, "");
    }
    if removed.len() == before.items.len() && matches!(before.style, ListStyle::Block { .. }) {
        let at = before.end - (before.text.len() - out.len());
        out = append_lines(&out, at, &format!("[]{}", before.line_break()));
    }
    Some(out)
}

/// The lines of an entry except comment lines. No value that the controller writes has a line that begins with `#`.
fn entry_lines(text: &str, lines: Range<usize>) -> Vec<Range<usize>> {
    let mut at = lines.start;
    text[lines]
        .split_inclusive('\n')
        .map(|line| {
            let range = at..at + line.len();
            at = range.end;
            (line, range)
        })
        .filter(|(line, _)| !line.trim_start().starts_with('#'))
        .map(|(_, range)| range)
        .collect()
}

/// The comma to remove with an entry of a flow list: the one after it, or, when only removed entries follow, the one
/// before it.
fn adjacent_comma(before: &AwsAuthDocument, index: usize, removed: &[usize]) -> Option<Range<usize>> {
    let items = &before.items;
    let stays_after = (index + 1..items.len()).any(|later| !removed.contains(&later));
    let gap = if stays_after {
        items[index].end..items[index + 1].start
    } else {
        items[index.checked_sub(1)?].end..items[index].start
    };
    let mut at = gap.start;
    for line in before.text[gap].split_inclusive('\n') {
        let code = line.split('#').next().unwrap_or_default();
        if let Some(comma) = code.find(',') {
            let start = at + comma;
            let after = &line[comma + 1..];
            let blank = usize::from(after.starts_with(' ') && !after.starts_with(" #"));
            return Some(start..start + 1 + blank);
        }
        at += line.len();
    }
    None
}
