//! Parser for `mapRoles` that keeps the position of each entry, so that an edit changes nothing else.

use std::ops::Range;

use granit_parser::{Event, Parser, Span, StructureStyle};
use serde_yaml::Value;

/// The YAML style of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListStyle {
    /// There is no list: the text is empty or has only comments, or it has `null` at this range.
    Empty(Option<Range<usize>>),
    /// Block style, with `- ` at this column.
    Block { indent: usize },
    /// Flow style, `[...]`; the range includes both brackets.
    Flow(Range<usize>),
}

/// A parsed `mapRoles`. All positions and ranges are in bytes.
#[derive(Clone, Debug)]
pub(crate) struct AwsAuthDocument {
    /// The text of `mapRoles` as the ConfigMap has it, with comments and white space.
    pub text: String,
    /// Style of the list.
    pub style: ListStyle,
    /// Range of each entry's content, without the dash and surrounding white space and comments.
    pub items: Vec<Range<usize>>,
    /// The same entries as values, in the same order.
    pub values: Vec<Value>,
    /// Where entries can be appended: the end of the text, or the `...` at the end of the document.
    pub end: usize,
}

impl AwsAuthDocument {
    /// Parses the text.
    ///
    /// # Errors
    /// Where and why it cannot be parsed.
    pub(crate) fn parse(text: String) -> Result<Self, String> {
        #[cfg(test)]
        PARSED.with(|parsed| parsed.set(parsed.get() + 1));
        let (style, items, end) = positions(&text)?;
        let values = match serde_yaml::from_str(&text).map_err(|error| error.to_string())? {
            Value::Null => Vec::new(),
            Value::Sequence(values) => values,
            _ => return Err("it is not a list".to_owned()),
        };
        if values.len() != items.len() {
            return Err("two YAML parsers disagree about its entries".to_owned());
        }
        if let Some(at) = values.iter().position(|value| !value.is_mapping() && !value.is_null()) {
            let line = text[..items[at].start].matches('\n').count() + 1;
            return Err(format!(
                "line {line}: the entry is not a mapping, which makes the whole list invalid: remove it"
            ));
        }
        Ok(Self { text, style, items, values, end })
    }

    /// The line break that the text uses.
    pub(crate) fn line_break(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }

    /// The full lines of a block entry, starting with the line of its dash.
    pub(crate) fn lines_of(&self, item: usize, indent: usize) -> Option<Range<usize>> {
        let content = self.items.get(item)?;
        let mut start = line_start(&self.text, content.start);
        while self.text.as_bytes().get(start + indent) != Some(&b'-')
            || !self.text[start..start + indent].trim().is_empty()
        {
            start = line_start(&self.text, start.checked_sub(1)?);
        }
        Some(start..line_end(&self.text, content.end))
    }
}

#[cfg(test)]
thread_local! {
    /// How many texts this thread parsed.
    pub(crate) static PARSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The start of the line that contains the byte at `at`.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |found| found + 1)
}

/// The end, including the line break, of the line that contains the byte before `at`.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    if text[..at].ends_with('\n') {
        return at;
    }
    text[at..].find('\n').map_or(text.len(), |found| at + found + 1)
}

/// The style, the range of each entry, and the position where entries can be appended.
type Positions = (ListStyle, Vec<Range<usize>>, usize);

fn positions(text: &str) -> Result<Positions, String> {
    let mut reader = Reader { text, depth: 0, documents: 0, style: None, items: Vec::new(), end: text.len() };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| error.to_string())?;
        reader.handle_event(&event, span)?;
    }
    Ok((reader.style.unwrap_or(ListStyle::Empty(None)), reader.items, reader.end))
}

/// Collects positions from parser events.
struct Reader<'a> {
    text: &'a str,
    /// Number of open collections.
    depth: usize,
    documents: usize,
    style: Option<ListStyle>,
    items: Vec<Range<usize>>,
    end: usize,
}

impl Reader<'_> {
    fn handle_event(&mut self, event: &Event<'_>, span: Span) -> Result<(), String> {
        let at = span.byte_range().ok_or("the parser reports no positions")?;
        if event.anchor_id().is_some() || event.is_alias() {
            return Err(format!(
                "line {}: it uses an anchor or alias, which cannot be edited safely: write the entry out",
                span.start.line()
            ));
        }
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(format!("line {}: it contains a second document", span.start.line()));
                }
            }
            Event::DocumentEnd if self.text[at.clone()].starts_with("...") => self.end = at.start,
            Event::Scalar(value, ..) => self.scalar(value, at)?,
            Event::SequenceStart(style, ..) => {
                if self.depth == 0 {
                    self.style = Some(match style {
                        StructureStyle::Block => ListStyle::Block { indent: span.start.col() },
                        StructureStyle::Flow => ListStyle::Flow(at),
                    });
                } else {
                    self.open(at);
                }
                self.depth += 1;
            }
            Event::MappingStart(..) => {
                if self.depth == 0 {
                    return Err("it is not a list".to_owned());
                }
                self.open(at);
                self.depth += 1;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.depth -= 1;
                self.close(at);
            }
            _ => {}
        }
        Ok(())
    }

    fn scalar(&mut self, value: &str, at: Range<usize>) -> Result<(), String> {
        if self.depth == 0 {
            if !matches!(value, "" | "~" | "null" | "Null" | "NULL") {
                return Err("it is not a list".to_owned());
            }
            self.style = Some(ListStyle::Empty((!at.is_empty()).then_some(at)));
            return Ok(());
        }
        self.open(at.clone());
        self.extend(at.end);
        Ok(())
    }

    /// Handles the start of a node. A node in the list itself is an entry.
    fn open(&mut self, at: Range<usize>) {
        if self.depth == 1 {
            self.items.push(at);
        }
    }

    /// Handles the end of a collection. The parser reports the end of a block-style collection at the next token, which
    /// is not part of its content.
    fn close(&mut self, at: Range<usize>) {
        let is_flow = !at.is_empty() && self.text[at.clone()].ends_with([']', '}']);
        match (&mut self.style, self.depth) {
            (Some(ListStyle::Flow(range)), 0) => range.end = at.end,
            (_, 0) => {}
            _ if is_flow => self.extend(at.end),
            _ => {}
        }
    }

    /// Extends the range of the current entry.
    fn extend(&mut self, end: usize) {
        if let Some(item) = self.items.last_mut() {
            item.end = item.end.max(end);
        }
    }
}
