//! Fields of the key `rollout`: typed, with an error that names line, field and remedy.

use jiff::SignedDuration;
use serde_json::{Map, Value};

use super::error::ConfigError;
use super::section::Section;
use crate::api::schema;
use crate::util::duration;

/// A map whose keys are all known. Any other key is an error: the admin would wait for a brake that does not exist.
pub(super) fn exact_keys(
    section: &Section,
    value: &Value,
    at: &str,
    known: &[&str],
) -> Result<Map<String, Value>, ConfigError> {
    let mut found = Map::new();
    let place = if at.is_empty() { "rollout" } else { at };
    for (key, value) in section.map(value, at)? {
        let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
        let Some(name) = known.iter().find(|name| name.eq_ignore_ascii_case(key)) else {
            let remedy = schema::closest_match(key, known.iter().copied())
                .map_or_else(|| format!("use one of {}", known.join(", ")), |near| format!("did you mean {near:?}?"));
            return Err(section.error(&path, &format!("is not a known key of {place}"), &remedy));
        };
        if found.insert((*name).to_owned(), value.clone()).is_some() {
            return Err(section.error(&path, &format!("is a duplicate of {name}"), "remove the duplicate"));
        }
    }
    Ok(found)
}

/// One of some words, in any case; the default when it is absent.
pub(super) fn one_of<T: Copy + Default>(
    section: &Section,
    value: &Value,
    path: &str,
    words: &[(&str, T)],
) -> Result<T, ConfigError> {
    let text = section.text(value, path)?;
    if text.is_empty() {
        return Ok(T::default());
    }
    let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(&text));
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        section.error(path, &format!("{text:?} is not a known value"), &format!("use one of {}", names.join(", ")))
    })
}

/// A duration of at most a year.
pub(super) fn parse_duration(
    section: &Section,
    value: &Value,
    path: &str,
    default: SignedDuration,
) -> Result<SignedDuration, ConfigError> {
    let text = section.text(value, path)?;
    if text.is_empty() {
        return Ok(default);
    }
    duration::parse(&text).filter(|duration| *duration <= SignedDuration::from_hours(24 * 366)).ok_or_else(|| {
        let remedy = "write a duration of at most a year with its units, such as 90s, 2h or 24h";
        section.error(path, &format!("{text:?} is not a valid duration"), remedy)
    })
}

/// A whole number in a range; `None` when it is absent.
pub(super) fn number(
    section: &Section,
    value: &Value,
    path: &str,
    range: std::ops::RangeInclusive<usize>,
) -> Result<Option<usize>, ConfigError> {
    if value.is_null() {
        return Ok(None);
    }
    let found = value.as_u64().and_then(|number| usize::try_from(number).ok());
    found.filter(|number| range.contains(number)).map(Some).ok_or_else(|| {
        let remedy = format!("write a whole number from {} to {}", range.start(), range.end());
        section.error(path, &format!("{value} is out of range"), &remedy)
    })
}
