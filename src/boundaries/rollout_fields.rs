//! Fields of the key `rollout`: typed, with an error that names line, field and remedy.

use std::fmt;

use jiff::SignedDuration;
use serde_json::{Map, Value};

use super::error::{ConfigError, ErrorList};
use super::section::Section;
use crate::api::schema;
use crate::util::duration;

/// The most characters of a name.
pub(super) const MAX_NAME: usize = 63;

/// The known fields of a map.
pub(super) struct Fields {
    map: Map<String, Value>,
    is_complete: bool,
}

impl Fields {
    /// The value of a field; null when it is absent.
    pub(super) fn get(&self, name: &str) -> &Value {
        self.map.get(name).unwrap_or(&Value::Null)
    }

    /// Whether a field is absent because its key, or the map itself, is an error already.
    pub(super) fn may_be_misspelled(&self, name: &str) -> bool {
        !self.is_complete && !self.map.contains_key(name)
    }
}

/// A map whose keys are all known. Any other key is an error: a misspelled safeguard would have no effect.
pub(super) fn exact_keys(section: &Section, value: &Value, at: &str, known: &[&str], errors: &mut ErrorList) -> Fields {
    let mut found = Map::new();
    let before = errors.count();
    let place = if at.is_empty() { "rollout" } else { at };
    for (key, value) in errors.ok(section.map(value, at)).into_iter().flatten() {
        let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
        let Some(name) = known.iter().find(|name| name.eq_ignore_ascii_case(key)) else {
            let remedy = schema::closest_match(key, known.iter().copied())
                .map_or_else(|| format!("use one of {}", known.join(", ")), |near| format!("did you mean {near:?}?"));
            errors.push(section.error(&path, &format!("is not a known key of {place}"), &remedy));
            continue;
        };
        if found.insert((*name).to_owned(), value.clone()).is_some() {
            errors.push(section.error(&path, &format!("is a duplicate of {name}"), "remove the duplicate"));
        }
    }
    Fields { map: found, is_complete: errors.count() == before }
}

/// The name of an item of a list: lower-case letters, digits and hyphens. `noun` names the kind of the item.
pub(super) fn parse_name(
    section: &Section,
    item: &Fields,
    at: &str,
    noun: &str,
    example: &str,
) -> Result<String, ErrorList> {
    if item.may_be_misspelled("name") {
        return Ok(String::new());
    }
    let path = format!("{at}.name");
    let name = section.text(item.get("name"), &path)?;
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_word) {
        let place = if item.map.contains_key("name") { &path } else { at };
        let words = "lower-case letters, digits and hyphens";
        let remedy = format!("name the {noun} with at most {MAX_NAME} {words}, such as {example}");
        return Err(section.error(place, "has no valid name", &remedy).into());
    }
    Ok(name)
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

/// A number of things, or a share of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountOrPercent {
    /// This number.
    Number(usize),
    /// This share, rounded down.
    Percent(u32),
}

impl CountOrPercent {
    /// The number of so many.
    pub(crate) fn resolve(self, all: usize) -> usize {
        match self {
            Self::Number(number) => number,
            Self::Percent(percent) => all.saturating_mul(percent as usize) / 100,
        }
    }

    /// The same, but at least one, so that a rollout in a small cluster makes progress.
    pub(crate) fn at_least_one(self, all: usize) -> usize {
        self.resolve(all).max(1)
    }
}

impl fmt::Display for CountOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// A number of things, or a percentage of them; `None` when it is absent.
pub(super) fn parse_amount(
    section: &Section,
    value: &Value,
    path: &str,
    things: &str,
) -> Result<Option<CountOrPercent>, ConfigError> {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|digits| digits.parse::<u32>().ok());
    match (value, percent) {
        (Value::Null, _) => Ok(None),
        (_, Some(percent)) if percent <= 100 => Ok(Some(CountOrPercent::Percent(percent))),
        (Value::Number(_), _) if let Some(number) = value.as_u64().and_then(|number| usize::try_from(number).ok()) => {
            Ok(Some(CountOrPercent::Number(number)))
        }
        _ => {
            let message = format!("{value} is neither a number of {things} nor a percentage");
            Err(section.error(path, &message, "write a number such as 1, or a percentage from 0% to 100%"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_down() {
        assert_eq!(CountOrPercent::Percent(50).resolve(3), 1);
        assert_eq!(CountOrPercent::Percent(10).resolve(2), 0);
        assert_eq!(CountOrPercent::Number(2).resolve(1), 2);
    }
}
