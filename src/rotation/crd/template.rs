//! The template of a strategy's resource: Go's text/template with the functions
//! that are built into Go, none of which reads the environment, a file or the
//! network. What it may cost is bounded before and while it is rendered.

use std::time::Duration;

use gtmpl_ng::{Context, ExecError, Limits, ParseError, Template, Value};

use super::TEMPLATE_PATH;
use crate::api::spec_error::SpecError;

/// Longest template in bytes.
pub const MAX_TEMPLATE_BYTES: usize = 64 << 10;
/// Longest output in bytes.
pub const MAX_OUTPUT_BYTES: usize = 256 << 10;
/// Most actions, which are what stands between braces.
const MAX_ACTIONS: usize = 1000;
/// Longest action in bytes.
const MAX_ACTION_BYTES: usize = 4 << 10;
/// Deepest parentheses and most alternatives: the parser goes down one level of its stack for each.
const MAX_NESTING: usize = 32;
/// Largest value that a function may make, in bytes.
const MAX_VALUE_BYTES: usize = 16 << 10;
/// Most iterations of all loops together.
const MAX_ITERATIONS: usize = 1000;
/// Most bytes that all values together can come to: each mention of a variable or a field may copy all of the group.
const MAX_MEMORY_BYTES: usize = 64 << 20;
/// Longest time, should all other bounds be too wide for a slow machine.
const MAX_RENDER_TIME: Duration = Duration::from_secs(1);
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// Whether a template parses and keeps within the bounds; all that can be known before it is rendered.
pub fn check(text: &str) -> Result<(), SpecError> {
    parse(text).map(drop)
}

/// Renders a template over its root, which was made from `weight` bytes.
pub fn render(text: &str, root: Value, weight: usize) -> Result<String, SpecError> {
    let (template, mentions) = parse(text)?;
    if mentions.saturating_mul(weight.max(MAX_VALUE_BYTES)) > MAX_MEMORY_BYTES {
        let rule = format!("mentions values {mentions} times, which is too much for a group of {weight} bytes");
        return Err(template_error(rule, "keep values in variables less often, or make the template shorter"));
    }
    let out = template.render(&Context::from(root)).map_err(|error| render_error(&error))?;
    if out.contains("<no value>") {
        let rule = "prints a label, an annotation or an entry of a map that is not there";
        return Err(template_error(rule, "add it to the group, or print it only where it is there, with {{ with }}"));
    }
    Ok(out)
}

fn parse(text: &str) -> Result<(Template, usize), SpecError> {
    if text.len() > MAX_TEMPLATE_BYTES {
        return Err(template_error(format!("is longer than {MAX_TEMPLATE_BYTES} bytes"), "shorten it"));
    }
    let mentions = scan(text)?;
    let limits = Limits::default()
        .with_iterations(MAX_ITERATIONS)
        .with_total_iterations(MAX_ITERATIONS)
        .with_output_bytes(MAX_OUTPUT_BYTES)
        .with_function_output(MAX_VALUE_BYTES)
        .with_deadline(MAX_RENDER_TIME);
    let mut template = Template::with_limits(limits);
    template.parse(text).map_err(|error| parse_error(&error))?;
    Ok((template, mentions))
}

fn template_error(rule: impl Into<String>, remedy: &str) -> SpecError {
    SpecError::invalid(TEMPLATE_PATH, "", rule, remedy)
}

/// Goes through the actions as a Go template is read, and counts mentions of variables and fields.
///
/// Templates in a template could call each other without end, parentheses and chains of alternatives without end would
/// exhaust the stack: both are refused here, for nothing after this could.
fn scan(text: &str) -> Result<usize, SpecError> {
    let (mut at, mut mentions, mut actions, mut alternatives) = (0, 0, 0, 0);
    while let Some(found) = text[at..].find("{{") {
        let line = text[..at + found].lines().count().max(1);
        at += found + 2;
        let body = &text[at..];
        let marked = body.strip_prefix('-').filter(|rest| rest.starts_with(SPACES));
        let inner = marked.map_or(body, |rest| &rest[1..]);
        if inner.starts_with("/*") {
            let Some(end) = body.find("*/") else { return Err(unclosed_action(line)) };
            at += end + 2;
            continue;
        }
        let action = Action::read(body).ok_or_else(|| unclosed_action(line))?;
        at += action.length;
        mentions += action.mentions;
        actions += 1;
        let word = inner.trim_start().split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        alternatives += usize::from(word == "else");
        let refused = match word {
            "define" | "template" | "block" => Some(format!("uses {{{{ {word} }}}}")),
            _ if action.depth > MAX_NESTING => Some(format!("has more than {MAX_NESTING} parentheses in each other")),
            _ if action.length > MAX_ACTION_BYTES => {
                Some(format!("has an action of more than {MAX_ACTION_BYTES} bytes"))
            }
            _ if action.has_char_constant => Some("has a character constant".to_owned()),
            _ if alternatives > MAX_NESTING => Some(format!("has more than {MAX_NESTING} times {{{{ else }}}}")),
            _ if actions > MAX_ACTIONS => Some(format!("has more than {MAX_ACTIONS} actions")),
            _ => None,
        };
        if let Some(rule) = refused {
            return Err(template_error(format!("line {line}: {rule}"), "write it without"));
        }
    }
    Ok(mentions)
}

fn unclosed_action(line: usize) -> SpecError {
    template_error(format!("line {line}: opens an action that nothing closes"), "close it with }}")
}

/// What stands between braces.
#[derive(Default)]
struct Action {
    length: usize,
    mentions: usize,
    depth: usize,
    has_char_constant: bool,
}

impl Action {
    /// Reads to the closing braces; `None` when there are none. Braces within quotes close nothing.
    fn read(text: &str) -> Option<Self> {
        let (mut action, mut depth, mut at) = (Action::default(), 0_usize, 0);
        let bytes = text.as_bytes();
        loop {
            match bytes.get(at)? {
                b'}' if bytes.get(at + 1) == Some(&b'}') => {
                    action.length = at + 2;
                    return Some(action);
                }
                b'"' => {
                    at += 1;
                    while *bytes.get(at)? != b'"' {
                        at += if bytes[at] == b'\\' { 2 } else { 1 };
                    }
                }
                b'`' => at += 1 + text.get(at + 1..)?.find('`')?,
                b'\'' => action.has_char_constant = true,
                b'(' => {
                    depth += 1;
                    action.depth = action.depth.max(depth);
                }
                b')' => depth = depth.saturating_sub(1),
                b'$' | b'.' => action.mentions += 1,
                _ => {}
            }
            at += 1;
        }
    }
}

/// The parser's own words may quote the template, which may hold anything; its place does not.
fn parse_error(error: &ParseError) -> SpecError {
    let (place, words) = match error {
        ParseError::WithContext(context, words) => (format!("line {}, column {}: ", context.line, context.col), words),
        other => (String::new(), &other.to_string()),
    };
    let undefined = words.strip_prefix("function ").and_then(|rest| rest.strip_suffix(" not defined"));
    match undefined.filter(|name| name.len() <= 40) {
        Some(name) => {
            let remedy = "use the functions that are built into Go's templates; there are no others";
            template_error(format!("{place}there is no function `{name}`"), remedy)
        }
        None => template_error(format!("{place}is no Go template"), "correct it there"),
    }
}

/// What a value holds is never told, only the field that is missing or the bound that was met.
fn render_error(error: &ExecError) -> SpecError {
    let (place, words) = match error.as_structured() {
        Some(found) => (format!("line {}, column {}: ", found.context.line, found.context.col), found.message.clone()),
        None => (String::new(), error.to_string()),
    };
    if let Some((field, _)) = words.strip_prefix("no field `").and_then(|rest| rest.split_once('`')) {
        let field: String = field.chars().take(80).collect();
        let rule = format!("{place}there is no field `{field}` there");
        return template_error(rule, "compare it with the fields in the chapter on the crd strategy");
    }
    let bounds = ["range over ", "the render would ", "a function produced ", "the render did not ", "exceeded "];
    if bounds.iter().any(|bound| words.starts_with(bound)) {
        return template_error(format!("{place}{}", words.lines().next().unwrap_or_default()), "let it do less");
    }
    template_error(format!("{place}cannot be rendered"), "correct it there")
}
