//! The fields of the key `rollout` about times: windows, freezes, deferrals, delays and urgency.

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::error::{ConfigError, ErrorList};
use super::rollout_fields::{Fields, exact_keys, parse_duration};
use super::section::Section;
use crate::util::calendar::{Freeze, Window, parse_day, parse_time, parse_zone};

/// The longest time for which `urgentUntil` counts, from the arrival of a revision.
pub(crate) const MAX_URGENCY: SignedDuration = SignedDuration::from_hours(7 * 24);

const WINDOW_KEYS: [&str; 4] = ["days", "from", "to", "zone"];
const FREEZE_KEYS: [&str; 4] = ["from", "to", "zone", "why"];
const DEFERRAL_KEYS: [&str; 2] = ["namespaces", "max"];
const DELAY_KEYS: [&str; 2] = ["clusters", "by"];

/// How long tenants may put a revision off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deferral {
    /// Glob over the names of namespaces.
    pub namespaces: String,
    /// From the opening of their wave.
    pub max: SignedDuration,
}

/// How long a cluster waits for other clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delay {
    /// Glob over the names of clusters.
    pub clusters: String,
    /// From the arrival of a revision.
    pub by: SignedDuration,
}

/// One item of a list of maps.
struct ListItem<'a> {
    section: &'a Section<'a>,
    path: String,
    fields: Fields,
}

impl<'a> ListItem<'a> {
    /// Parses each item of a list.
    fn all<T>(
        section: &'a Section,
        value: &Value,
        path: &str,
        keys: &[&str],
        parse: impl Fn(&Self) -> Result<T, ErrorList>,
    ) -> Result<Vec<T>, ErrorList> {
        let (mut found, mut errors) = (vec![], ErrorList::default());
        for (index, item) in section.list(value, path)?.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let item = Self { section, fields: exact_keys(section, item, &path, keys, &mut errors), path };
            found.extend(errors.ok(parse(&item)));
        }
        errors.into_result(found)
    }

    fn get(&self, key: &str) -> &Value {
        self.fields.get(key)
    }

    fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    /// The text of a field that must not be absent. `noun` names it, and `example` is one.
    fn required(&self, key: &str, noun: &str, example: &str) -> Result<String, ErrorList> {
        let text = self.section.text(self.get(key), &self.path(key))?;
        if self.fields.may_be_misspelled(key) {
            return Err(ErrorList::default());
        }
        if text.trim().is_empty() {
            let remedy = format!("write {key}: {example}");
            return Err(self.section.error(&self.path, &format!("has no {noun}"), &remedy).into());
        }
        Ok(text.trim().to_owned())
    }

    fn zone(&self) -> Result<TimeZone, ErrorList> {
        let name = self.required("zone", "zone", "Europe/Berlin")?;
        let zone = parse_zone(&name);
        Ok(zone.map_err(|problem| self.section.error(&self.path("zone"), &problem, "write its IANA name"))?)
    }

    fn time(&self, key: &str) -> Result<Time, ErrorList> {
        let text = self.required(key, &format!("time {key}"), "\"22:00\"")?;
        Ok(parse_time(&text).ok_or_else(|| {
            let message = format!("{text:?} is not a valid time of day");
            self.section.error(&self.path(key), &message, "write hours and minutes in quotes, such as \"22:00\"")
        })?)
    }

    fn day(&self, key: &str) -> Result<Date, ErrorList> {
        let text = self.required(key, &format!("day {key}"), "2026-12-18")?;
        Ok(text.parse().map_err(|_| {
            let message = format!("{text:?} is not a valid day");
            self.section.error(&self.path(key), &message, "write year, month and day, such as 2026-12-18")
        })?)
    }

    fn window(&self) -> Result<Window, ErrorList> {
        let mut errors = ErrorList::default();
        let days = match self.get("days") {
            Value::Null => Some([true; 7]),
            value => errors.ok(self.days(value)),
        };
        let (from, to, zone) = (errors.ok(self.time("from")), errors.ok(self.time("to")), errors.ok(self.zone()));
        match (days, from, to, zone) {
            (Some(days), Some(from), Some(to), Some(zone)) => Ok(Window { days, from, to, zone }),
            _ => Err(errors),
        }
    }

    fn days(&self, value: &Value) -> Result<[bool; 7], ErrorList> {
        let path = self.path("days");
        let (mut days, mut errors) = ([false; 7], ErrorList::default());
        let names = self.section.list(value, &path)?;
        if names.is_empty() {
            let message = "is empty, so the window never opens";
            return Err(self.section.error(&path, message, "leave it out for every day").into());
        }
        for (index, name) in names.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let day = self.section.text(name, &path).and_then(|name| {
                parse_day(&name).ok_or_else(|| {
                    self.section.error(
                        &path,
                        &format!("{name:?} is not a day of the week"),
                        "write mon, tue, wed, thu, fri, sat or sun",
                    )
                })
            });
            if let Some(day) = errors.ok(day) {
                days[day] = true;
            }
        }
        errors.into_result(days)
    }

    fn freeze(&self) -> Result<Freeze, ErrorList> {
        let mut errors = ErrorList::default();
        let (from, to) = (errors.ok(self.day("from")), errors.ok(self.day("to")));
        if let (Some(from), Some(to)) = (from, to)
            && to < from
        {
            let message = format!("ends before it begins: {to} is before {from}");
            errors.push(self.section.error(&self.path("to"), &message, "write the last frozen day"));
        }
        let why = errors.or_default(self.section.text(self.get("why"), &self.path("why")));
        match (from, to, errors.ok(self.zone())) {
            (Some(from), Some(to), Some(zone)) => errors.into_result(Freeze { from, to, zone, why }),
            _ => Err(errors),
        }
    }

    fn duration(&self, key: &str) -> Result<SignedDuration, ErrorList> {
        self.required(key, key, "24h")?;
        Ok(parse_duration(self.section, self.get(key), &self.path(key), SignedDuration::ZERO)?)
    }

    /// A duration for what a glob matches.
    fn duration_of(&self, glob: &str, example: &str, key: &str) -> Result<(String, SignedDuration), ErrorList> {
        let mut errors = ErrorList::default();
        match (errors.ok(self.required(glob, glob, example)), errors.ok(self.duration(key))) {
            (Some(glob), Some(duration)) => Ok((glob, duration)),
            _ => Err(errors),
        }
    }
}

pub(super) fn parse_windows(section: &Section, value: &Value, path: &str) -> Result<Vec<Window>, ErrorList> {
    ListItem::all(section, value, path, &WINDOW_KEYS, ListItem::window)
}

pub(super) fn parse_freezes(section: &Section, value: &Value) -> Result<Vec<Freeze>, ErrorList> {
    ListItem::all(section, value, "freezes", &FREEZE_KEYS, ListItem::freeze)
}

pub(super) fn parse_deferral(section: &Section, value: &Value) -> Result<Vec<Deferral>, ErrorList> {
    ListItem::all(section, value, "deferral", &DEFERRAL_KEYS, |item| {
        let (namespaces, max) = item.duration_of("namespaces", "\"*\"", "max")?;
        Ok(Deferral { namespaces, max })
    })
}

pub(super) fn parse_delay(section: &Section, value: &Value) -> Result<Vec<Delay>, ErrorList> {
    ListItem::all(section, value, "delay", &DELAY_KEYS, |item| {
        let (clusters, by) = item.duration_of("clusters", "\"*-dev\"", "by")?;
        Ok(Delay { clusters, by })
    })
}

pub(super) fn parse_urgent_until(section: &Section, value: &Value) -> Result<Option<Timestamp>, ConfigError> {
    let text = section.text(value, "urgentUntil")?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    text.trim().parse().map(Some).map_err(|_| {
        let message = format!("{text:?} is not a valid time");
        section.error("urgentUntil", &message, "write a time with its zone, such as \"2026-08-22T06:00:00Z\"")
    })
}
