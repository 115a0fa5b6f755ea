//! Parses and renders the template of a strategy's resource: Go's text/template with its built-in
//! functions, none of which reads the environment, a file or the network. Limits on size, memory and
//! time are checked before and while the template is rendered, because tenants write templates.

use std::time::Duration;

use gtmpl_ng::{Context, ExecError, Limits, ParseError, Template, Value};

use super::types::TEMPLATE_PATH;
use crate::api::spec_error::SpecError;

/// Longest template in bytes.
pub(crate) const MAX_TEMPLATE_BYTES: usize = 64 << 10;
/// Longest output in bytes.
pub(crate) const MAX_OUTPUT_BYTES: usize = 256 << 10;
/// Maximum number of actions, that is of `{{ ... }}` blocks.
const MAX_ACTIONS: usize = 1000;
/// Longest action in bytes.
const MAX_ACTION_BYTES: usize = 4 << 10;
/// Maximum depth of parentheses, and maximum number of `{{ else }}`: the parser recurses once for each.
const MAX_NESTING: usize = 32;
/// Largest value that a function may return, in bytes.
const MAX_VALUE_BYTES: usize = 16 << 10;
/// Maximum number of iterations of all loops together.
const MAX_ITERATIONS: usize = 1000;
/// Maximum total size of all values in bytes. Each mention of a variable or a field may copy the whole group.
const MAX_MEMORY_BYTES: usize = 64 << 20;
/// Longest time to render, in case the other limits are too high for a slow machine.
const MAX_RENDER_TIME: Duration = Duration::from_secs(1);
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// Checks that a template parses and is within the limits that can be checked before rendering.
///
/// # Errors
/// The syntax error, or the limit that is exceeded.
pub(crate) fn check(text: &str) -> Result<(), SpecError> {
    parse(text).map(drop)
}

/// Renders a template with `root`, whose approximate size is `weight` bytes.
///
/// # Errors
/// A syntax error, a missing field, or a limit that is exceeded; never a value of the group.
pub(crate) fn render(text: &str, root: Value, weight: usize) -> Result<String, SpecError> {
    let (template, mentions) = parse(text)?;
    if mentions.saturating_mul(weight.max(MAX_VALUE_BYTES)) > MAX_MEMORY_BYTES {
        let rule =
            format!("mentions values {mentions} times, which exceeds the memory limit for a group of {weight} bytes");
        return Err(template_error(rule, "use fewer variables and fields, or shorten the template"));
    }
    let out = template.render(&Context::from(root)).map_err(|error| render_error(&error))?;
    if out.contains("<no value>") {
        let rule = "prints a label, an annotation or a map entry that does not exist";
        return Err(template_error(rule, "add it to the group, or print it only if it exists, with {{ with }}"));
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

/// Scans the actions as Go's lexer does, and counts the mentions of variables and fields.
///
/// Nested templates could recurse without end, and deep parentheses or long else chains would exhaust the parser's
/// stack. Both are rejected here, because the parser itself has no such limits.
fn scan(text: &str) -> Result<usize, SpecError> {
    let (mut at, mut mentions, mut actions, mut else_count) = (0, 0, 0, 0);
    while let Some(found) = text[at..].find("{{") {
        let line = text[..at + found].lines().count().max(1);
        at += found + 2;
        let body = &text[at..];
        let trimmed = body.strip_prefix('-').filter(|rest| rest.starts_with(SPACES));
        let inner = trimmed.map_or(body, |rest| &rest[1..]);
        if inner.starts_with("/*") {
            let Some(end) = body.find("*/") else { return Err(unclosed_action(line)) };
            at += end + 2;
            continue;
        }
        let action = Action::read(body).ok_or_else(|| unclosed_action(line))?;
        at += action.length;
        mentions += action.mentions;
        actions += 1;
        let keyword = inner.trim_start().split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        else_count += usize::from(keyword == "else");
        let violation = match keyword {
            "define" | "template" | "block" => Some(format!("uses {{{{ {keyword} }}}}")),
            _ if action.depth > MAX_NESTING => Some(format!("nests parentheses more than {MAX_NESTING} levels deep")),
            _ if action.length > MAX_ACTION_BYTES => {
                Some(format!("has an action of more than {MAX_ACTION_BYTES} bytes"))
            }
            _ if action.has_char_constant => Some("has a character constant".to_owned()),
            _ if else_count > MAX_NESTING => Some(format!("has more than {MAX_NESTING} {{{{ else }}}}")),
            _ if actions > MAX_ACTIONS => Some(format!("has more than {MAX_ACTIONS} actions")),
            _ => None,
        };
        if let Some(rule) = violation {
            return Err(template_error(format!("line {line}: {rule}"), "remove it"));
        }
    }
    Ok(mentions)
}

fn unclosed_action(line: usize) -> SpecError {
    template_error(format!("line {line}: has an action that is not closed"), "close it with }}")
}

/// One action: the text between `{{` and `}}`.
#[derive(Default)]
struct Action {
    length: usize,
    mentions: usize,
    depth: usize,
    has_char_constant: bool,
}

impl Action {
    /// Reads to the closing braces; `None` when there are none. Braces within quotes do not count.
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

/// Converts a parser error. Its message may quote the template, which may hold secrets, so only the position is kept.
fn parse_error(error: &ParseError) -> SpecError {
    let (position, message) = match error {
        ParseError::WithContext(context, message) => {
            (format!("line {}, column {}: ", context.line, context.col), message)
        }
        other => (String::new(), &other.to_string()),
    };
    let undefined = message.strip_prefix("function ").and_then(|rest| rest.strip_suffix(" not defined"));
    match undefined.filter(|name| name.len() <= 40) {
        Some(name) => {
            let remedy = "use only the built-in functions of Go's text/template";
            template_error(format!("{position}unknown function `{name}`"), remedy)
        }
        None => template_error(format!("{position}is not a valid Go template"), "fix it at this position"),
    }
}

/// Converts a render error. It names the missing field or the exceeded limit, never a value.
fn render_error(error: &ExecError) -> SpecError {
    let (position, message) = match error.as_structured() {
        Some(found) => (format!("line {}, column {}: ", found.context.line, found.context.col), found.message.clone()),
        None => (String::new(), error.to_string()),
    };
    if let Some((field, _)) = message.strip_prefix("no field `").and_then(|rest| rest.split_once('`')) {
        let field: String = field.chars().take(80).collect();
        let rule = format!("{position}unknown field `{field}`");
        return template_error(rule, "see the list of fields in the documentation of the crd strategy");
    }
    let limits = ["range over ", "the render would ", "a function produced ", "the render did not ", "exceeded "];
    if limits.iter().any(|limit| message.starts_with(limit)) {
        return template_error(
            format!("{position}{}", message.lines().next().unwrap_or_default()),
            "reduce what the template does",
        );
    }
    template_error(format!("{position}cannot be rendered"), "fix it at this position")
}
