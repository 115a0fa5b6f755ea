//! The template of a strategy's resource: Go's text/template with the functions
//! that are built into Go, none of which reads the environment, a file or the
//! network. What it may cost is bounded before and while it is rendered.

use std::time::Duration;

use gtmpl_ng::{Context, ExecError, Limits, ParseError, Template, Value};

use super::TEMPLATE;
use crate::api::spec_error::Problem;

/// Longest template in bytes.
pub const MOST_TEXT: usize = 64 << 10;
/// Longest output in bytes.
pub const MOST_OUTPUT: usize = 256 << 10;
/// Most actions, which are what stands between braces.
const MOST_ACTIONS: usize = 1000;
/// Longest action in bytes.
const LONGEST_ACTION: usize = 4 << 10;
/// Deepest parentheses and most alternatives: the parser goes down one level of its stack for each.
const DEEPEST: usize = 32;
/// Largest value that a function may make, in bytes.
const LARGEST_VALUE: usize = 16 << 10;
/// Most iterations of all loops together.
const MOST_ITERATIONS: usize = 1000;
/// Most bytes that all values together can come to: each mention of a variable or a field may copy all of the group.
const MOST_MEMORY: usize = 64 << 20;
/// Longest time, should all other bounds be too wide for a slow machine.
const LONGEST: Duration = Duration::from_secs(1);
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// Whether a template parses and keeps within the bounds; all that can be known before it is rendered.
pub fn check(text: &str) -> Result<(), Problem> {
    parse(text).map(drop)
}

/// Renders a template over its root, which was made from `weight` bytes.
pub fn render(text: &str, root: Value, weight: usize) -> Result<String, Problem> {
    let (template, mentions) = parse(text)?;
    if mentions.saturating_mul(weight.max(LARGEST_VALUE)) > MOST_MEMORY {
        let rule = format!("mentions values {mentions} times, which is too much for a group of {weight} bytes");
        return Err(problem(rule, "keep values in variables less often, or make the template shorter"));
    }
    let out = template.render(&Context::from(root)).map_err(|error| failed(&error))?;
    if out.contains("<no value>") {
        let rule = "prints a label, an annotation or an entry of a map that is not there";
        return Err(problem(rule, "add it to the group, or print it only where it is there, with {{ with }}"));
    }
    Ok(out)
}

fn parse(text: &str) -> Result<(Template, usize), Problem> {
    if text.len() > MOST_TEXT {
        return Err(problem(format!("is longer than {MOST_TEXT} bytes"), "shorten it"));
    }
    let mentions = scan(text)?;
    let limits = Limits::default()
        .with_iterations(MOST_ITERATIONS)
        .with_total_iterations(MOST_ITERATIONS)
        .with_output_bytes(MOST_OUTPUT)
        .with_function_output(LARGEST_VALUE)
        .with_deadline(LONGEST);
    let mut template = Template::with_limits(limits);
    template.parse(text).map_err(|error| unparsable(&error))?;
    Ok((template, mentions))
}

fn problem(rule: impl Into<String>, remedy: &str) -> Problem {
    Problem::invalid(TEMPLATE, "", rule, remedy)
}

/// Goes through the actions as a Go template is read, and counts mentions of variables and fields.
///
/// Templates in a template could call each other without end, parentheses and chains of alternatives without end would
/// exhaust the stack: both are refused here, for nothing after this could.
fn scan(text: &str) -> Result<usize, Problem> {
    let (mut at, mut mentions, mut actions, mut alternatives) = (0, 0, 0, 0);
    while let Some(found) = text[at..].find("{{") {
        let line = text[..at + found].lines().count().max(1);
        at += found + 2;
        let body = &text[at..];
        let marked = body.strip_prefix('-').filter(|rest| rest.starts_with(SPACES));
        let inner = marked.map_or(body, |rest| &rest[1..]);
        if inner.starts_with("/*") {
            let Some(end) = body.find("*/") else { return Err(open(line)) };
            at += end + 2;
            continue;
        }
        let action = Action::read(body).ok_or_else(|| open(line))?;
        at += action.length;
        mentions += action.mentions;
        actions += 1;
        let word = inner.trim_start().split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        alternatives += usize::from(word == "else");
        let refused = match word {
            "define" | "template" | "block" => Some(format!("uses {{{{ {word} }}}}")),
            _ if action.depth > DEEPEST => Some(format!("has more than {DEEPEST} parentheses in each other")),
            _ if action.length > LONGEST_ACTION => Some(format!("has an action of more than {LONGEST_ACTION} bytes")),
            _ if action.characters => Some("has a character constant".to_owned()),
            _ if alternatives > DEEPEST => Some(format!("has more than {DEEPEST} times {{{{ else }}}}")),
            _ if actions > MOST_ACTIONS => Some(format!("has more than {MOST_ACTIONS} actions")),
            _ => None,
        };
        if let Some(rule) = refused {
            return Err(problem(format!("line {line}: {rule}"), "write it without"));
        }
    }
    Ok(mentions)
}

fn open(line: usize) -> Problem {
    problem(format!("line {line}: opens an action that nothing closes"), "close it with }}")
}

/// What stands between braces.
#[derive(Default)]
struct Action {
    length: usize,
    mentions: usize,
    depth: usize,
    characters: bool,
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
                b'\'' => action.characters = true,
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
fn unparsable(error: &ParseError) -> Problem {
    let (place, words) = match error {
        ParseError::WithContext(context, words) => (format!("line {}, column {}: ", context.line, context.col), words),
        other => (String::new(), &other.to_string()),
    };
    let undefined = words.strip_prefix("function ").and_then(|rest| rest.strip_suffix(" not defined"));
    match undefined.filter(|name| name.len() <= 40) {
        Some(name) => {
            let remedy = "use the functions that are built into Go's templates; there are no others";
            problem(format!("{place}there is no function `{name}`"), remedy)
        }
        None => problem(format!("{place}is no Go template"), "correct it there"),
    }
}

/// What a value holds is never told, only the field that is missing or the bound that was met.
fn failed(error: &ExecError) -> Problem {
    let (place, words) = match error.as_structured() {
        Some(found) => (format!("line {}, column {}: ", found.context.line, found.context.col), found.message.clone()),
        None => (String::new(), error.to_string()),
    };
    if let Some((field, _)) = words.strip_prefix("no field `").and_then(|rest| rest.split_once('`')) {
        let field: String = field.chars().take(80).collect();
        let rule = format!("{place}there is no field `{field}` there");
        return problem(rule, "compare it with the fields in the chapter on the crd strategy");
    }
    let bounds = ["range over ", "the render would ", "a function produced ", "the render did not ", "exceeded "];
    if bounds.iter().any(|bound| words.starts_with(bound)) {
        return problem(format!("{place}{}", words.lines().next().unwrap_or_default()), "let it do less");
    }
    problem(format!("{place}cannot be rendered"), "correct it there")
}
